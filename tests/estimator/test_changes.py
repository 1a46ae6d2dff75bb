"""What is said of a change is what the changed question is answered, and every change that is named may be made."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from service.estimator import Question, estimate
from service.estimator.changes import ranked_changes
from service.estimator.memory_parts import Change
from service.estimator.question import Software
from service.estimator.resolve import resolve
from tests.estimator.legal_questions import questions, with_layout, with_recipe

any_question = settings(deadline=None, max_examples=60)
ROOM_BYTES = 2.0**30

AXES = ("layout.tensor", "layout.context", "layout.pipeline")


def made(asked: Question, change: Change) -> Question:
    """The question with a change, what follows from it left to defaults."""
    part, _, name = change.field.partition(".")
    value: Any = int(change.value) if change.value.isdecimal() else change.value
    if name == "stack.cross_entropy":
        given = asked.recipe.stack
        return with_recipe(asked, stack=replace(given, cross_entropy=value))  # type: ignore[type-var]  # drawn as a noun
    if part == "recipe":
        return with_recipe(asked, **{name: value})
    layout = asked.layout
    beside: dict[str, Any] = {}
    if change.field in AXES:
        beside |= {"data": (layout.data or 1) // 2, "virtual_group": None}
    if change.field in ("layout.pipeline", "layout.zero_stage"):
        beside["reshard_after_forward"] = None
    if change.field == "layout.pipeline":
        beside |= {"stage_layers": None}
    if change.field == "layout.tensor" and layout.tensor == 1:
        beside["sequence_parallel"] = None
    return with_layout(asked, **{name: value}, **beside)


@any_question
@given(questions())
def test_a_change_saves_what_is_said(asked: Question) -> None:
    small = replace(asked, gpu=replace(asked.gpu, usable_bytes=ROOM_BYTES))
    assert isinstance(small.recipe.stack, Software)
    if small.layout.virtual_group not in (None, small.layout.pipeline):
        return
    before = estimate(small).memory
    for change in ranked_changes(resolve(small), before.biggest_line):
        after = estimate(made(small, change)).memory
        assert change.device_peak_bytes == pytest.approx(after.device_peak_bytes.value, rel=1e-12), change.field
        saved = before.device_peak_bytes.value - after.device_peak_bytes.value
        assert change.saves_bytes == pytest.approx(saved, rel=1e-9)
        assert change.fits == (after.headroom_bytes >= 0)
