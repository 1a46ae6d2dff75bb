"""Threshold of an open field: its value, the next one, the fields that change, and the numbers of both."""

from dataclasses import fields, replace
from typing import Any

from service.answers.estimates import Answer
from service.answers.plans import Evidence, KeyNumbers, NextValue, Solution
from service.catalogue import Catalogue
from service.estimator.constants import calibration_id
from service.estimator.question import Question
from service.features.estimates.answers import answer, versions_of
from service.features.estimates.metrics import COLUMNS
from service.features.solve.schemas import SolveRequest
from service.planner.feasibility import UNKNOWNS
from service.planner.solve import Threshold
from service.validation.questions import ParsedQuestion
from service.validation.reading import field_names
from service.validation.serialization import to_wire

CHANGING = ("model", "recipe", "layout", "cluster")
"""Parts of a question that a value may change."""

NUMBERS = tuple(name for name in field_names(KeyNumbers) if name not in {"id", "verdict"})
"""Numbers of the evidence."""


def solution_of(
    request: SolveRequest,
    parsed: ParsedQuestion,
    threshold: Threshold,
    value: Any,
    catalogue: Catalogue,
    warnings: tuple[str, ...] = (),
) -> Solution:
    """Solution of a threshold with its numbers."""
    found, beyond = threshold.found, threshold.beyond
    of_value = None if found is None else _answered(parsed, found.question, catalogue)
    of_next = _answered(parsed, beyond.question, catalogue) if beyond is not None and beyond.is_legal else None
    first_answer = of_value or of_next
    unknown = UNKNOWNS.get(request.unknown)
    why_not = None if beyond is None else beyond.why_not
    return Solution(
        unknown=request.unknown,
        value=value,
        next=None if beyond is None or why_not is None else NextValue(value=beyond.value, why_not=why_not),
        changes={} if found is None else changed_fields(parsed.question, found.question),
        evidence=Evidence(value=_numbers(of_value), next=_numbers(of_next), tried=threshold.tried),
        assumptions=(
            *(unknown.assumptions if unknown else ()),
            *(first_answer.assumptions if first_answer else parsed.assumptions),
        ),
        warnings=(*warnings, *_gap_warning(threshold), *(first_answer.warnings if first_answer else parsed.warnings)),
        versions=versions_of(catalogue, [calibration_id(parsed.question.gpu)]),
    )


def _gap_warning(threshold: Threshold) -> tuple[str, ...]:
    gap = threshold.gap
    if gap is None or gap.why_not is None:
        return ()
    return (
        f"not every smaller value will do ({gap.value}: {gap.why_not.message}); the allocator gives back what it "
        "caches only where memory ends",
    )


def changed_fields(before: Question, after: Question) -> dict[str, Any]:
    """Fields in which two questions differ."""
    parts = [(part, getattr(before, part), getattr(after, part)) for part in CHANGING]
    return {
        f"{part}.{field.name}": to_wire(getattr(new, field.name))
        for part, old, new in parts
        for field in fields(new)
        if getattr(old, field.name) != getattr(new, field.name)
    }


def _answered(parsed: ParsedQuestion, question: Question, catalogue: Catalogue) -> Answer:
    return answer(replace(parsed, question=question), catalogue, advise=False)


def _numbers(found: Answer | None) -> KeyNumbers | None:
    """Key numbers of an answer; those of the whole run are null without its tokens."""
    if found is None:
        return None
    parts = {name: getattr(found, COLUMNS[name].partition(".")[0]) for name in NUMBERS}
    values: dict[str, Any] = {name: getattr(part, name, None) for name, part in parts.items()}
    return KeyNumbers(id=found.id, verdict=found.verdict, **values)
