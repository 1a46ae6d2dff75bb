"""Every answer is read back as the dataclass that the service filled, and nouns are sent as what they say."""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from service.answers import checks, estimates, exports, plans, rows
from service.api.openapi import request_bodies
from service.catalogue import Catalogue, shipped_catalogue
from service.client import Layout, Price, Recipe, Recompute, Unreadable
from service.client.reading import from_json, to_json
from service.estimator import complete
from service.features.checks.check import check
from service.features.checks.schemas import read_launch
from service.features.compare.compare import compare
from service.features.differences.differences import difference
from service.features.estimates.answers import answer, answer_by, answer_of, timeline_answer
from service.features.exports.exports import export, listed_targets
from service.features.plans.search_plans import search
from service.features.sensitivity.vary import vary
from service.features.solve.solve import solve
from service.formats.targets import TARGETS
from service.validation.questions import read_question
from service.validation.reading import to_bytes
from tests.api.asking import QUESTION

MODULES = (checks, estimates, exports, plans, rows)
ALONE = {"model": "smollm3-3b", "recipe": {"sequence_length": 4096}, "cluster": {"gpu": "h100", "gpus": 1}}
LAUNCH: dict[str, Any] = request_bodies("createCheck")["launch"]["value"]
TOO_LARGE = {**QUESTION, "model": "llama-3.1-405b"}


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return shipped_catalogue()


def examples_of(operation: str) -> Iterator[Any]:
    return (example["value"] for example in request_bodies(operation).values())


def answered(catalogue: Catalogue) -> Iterator[Any]:
    """Answers of every kind, and of every kind of value that they may hold."""
    for question in (QUESTION, TOO_LARGE, *examples_of("createEstimate")):
        asked = read_question(question, catalogue)
        yield answer(asked, catalogue, explain=question is QUESTION)
        yield timeline_answer(asked, catalogue)
    for kind in (estimates.MemoryAnswer, estimates.FlopAnswer, estimates.GpuHoursAnswer):
        yield answer_of(kind, QUESTION, catalogue)
    yield answer_by("nanotron-predict-memory", read_question(ALONE, catalogue), catalogue)
    yield check({**TOO_LARGE, "deadline_seconds": 5}, catalogue)
    yield check(LAUNCH, catalogue)
    yield from (list(search(body, catalogue))[-1] for body in islice(examples_of("createPlans"), 1, 2))
    yield next(iter(search(QUESTION, catalogue)))
    yield from (solve(body, catalogue) for body in examples_of("createSolution"))
    yield from (compare(body, catalogue).answer for body in examples_of("createComparison"))
    yield vary(next(examples_of("createSensitivity")), catalogue).answer
    yield difference(next(examples_of("createDifference")), catalogue).answer
    yield export(QUESTION, catalogue, TARGETS["torchtitan"], next(iter(TARGETS["torchtitan"].versions)))
    yield from listed_targets().items
    yield read_launch(LAUNCH["launch"])


def kind_of(value: Any) -> type | None:
    """The class of a dataclass in the contract: a complete part of a question is one of what it completes."""
    kind = type(value)
    return kind.__base__ if kind.__module__ == complete.__name__ else kind


def shape(value: Any) -> Any:
    """A value whose dataclasses can be told from dicts, and whose numbers are as near as doubles are."""
    if dataclasses.is_dataclass(value):
        return kind_of(value), {field.name: shape(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [shape(item) for item in value]
    if isinstance(value, Mapping):
        return {name: shape(item) for name, item in value.items()}
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def test_every_answer_is_read_back_as_it_was_filled(catalogue: Catalogue) -> None:
    read = set()
    for found in answered(catalogue):
        document = json.loads(to_bytes(found))
        assert shape(from_json(type(found), document)) == shape(found)
        with pytest.raises(Unreadable, match=type(found).__name__):
            from_json(type(found), dict(islice(document.items(), 1, None)))
        assert from_json(type(found), {**document, "of_a_newer_service": 1}) is not None
        read.add(type(found))
    assert read >= {
        estimates.Answer, estimates.TimelineAnswer, estimates.MethodAnswer, checks.Check, plans.PlanAnswer,
        rows.ComparisonAnswer, rows.SensitivityAnswer, plans.Solution, exports.Export, exports.Imported,
    }  # fmt: skip


def hints(kind: Any, seen: set[Any]) -> Iterator[Any]:
    """The types of all fields below a dataclass."""
    if dataclasses.is_dataclass(kind):
        inner = [] if kind in seen else [get_type_hints(kind)[field.name] for field in dataclasses.fields(kind)]
        seen.add(kind)
    else:
        inner = [] if get_origin(kind) is Literal else [one for one in get_args(kind) if one is not ...]
        yield kind
    for hint in inner:
        yield from hints(hint, seen)


def test_every_field_is_of_a_kind_that_is_read() -> None:
    """Tuples of any length, mappings by text, unions of those, plain values: nothing else is told apart on the wire."""
    kinds = [kind for module in MODULES for kind in vars(module).values() if dataclasses.is_dataclass(kind)]
    held = [hint for kind in kinds for hint in hints(kind, set())]
    tuples = [hint for hint in held if get_origin(hint) is tuple]
    assert len(tuples) > 20
    assert all(get_args(hint)[1:] == (...,) for hint in tuples)
    mappings = [hint for hint in held if isinstance(get_origin(hint), type) and issubclass(get_origin(hint), Mapping)]
    assert {get_args(hint)[0] for hint in mappings} == {str}


def test_a_noun_says_what_is_not_its_default() -> None:
    body = {
        "model": "llama-3.1-8b",
        "recipe": Recipe(sequence_length=8192, recompute=Recompute(granularity="full", layers=2)),
        "layout": Layout(tensor=2, sequence_parallel=False),
        "clusters": [{"price": Price(usd_per_gpu_hour=2.5)}],
    }
    assert to_json(body) == {
        "model": "llama-3.1-8b",
        "recipe": {"sequence_length": 8192, "recompute": {"granularity": "full", "layers": 2}},
        "layout": {"tensor": 2, "sequence_parallel": False},
        "clusters": [{"price": {"usd_per_gpu_hour": 2.5}}],
    }


def test_a_resolved_question_can_be_asked_again(catalogue: Catalogue) -> None:
    first = answer(read_question(QUESTION, catalogue), catalogue)
    again = answer(read_question(to_json(first.resolved), catalogue), catalogue)
    assert (again.id, again.totals) == (first.id, first.totals)
