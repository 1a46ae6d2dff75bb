"""Answers become JSON with one spelling: doubles, lists, `6n`, and never NaN."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from annotated_types import Lt
from pydantic_core import to_json

from service.estimator.answer import Conventions, Interval
from service.validation.reading import NotFinite, to_bytes, to_wire


@dataclass(frozen=True, slots=True)
class Nested:
    step_flop: int
    parts: tuple[Interval, ...]
    note: str | None
    is_exact: bool


def test_dataclasses_become_objects_and_tuples_lists() -> None:
    nested = Nested(7, (Interval(1.0, 2.0, 3.5, "analytic"),), None, is_exact=True)
    assert to_wire(nested) == {
        "step_flop": 7,
        "parts": [{"low": 1.0, "value": 2.0, "high": 3.5, "basis": "analytic"}],
        "note": None,
        "is_exact": True,
    }


def test_a_name_that_python_cannot_spell_has_its_own_on_the_wire() -> None:
    assert to_wire(Conventions(causal=1.0, full=2.0, palm=3.0, six_n=4.0)) == {
        "causal": 1.0,
        "full": 2.0,
        "palm": 3.0,
        "6n": 4.0,
    }


@pytest.mark.parametrize("number", [0, 1, -5, 2**53, -(2**53), 2**53 + 1, 10**20 + 1, 3 * 10**25 + 7])
def test_an_integer_is_a_double_that_every_reader_reads_the_same(number: int) -> None:
    text = to_bytes({"flop": number})
    assert float(json.loads(text)["flop"]) == float(number)
    assert len(text) < 40


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_is_never_sent(number: float) -> None:
    with pytest.raises(NotFinite):
        to_bytes({"seconds": [number]})


def test_the_same_answer_is_the_same_bytes() -> None:
    nested = Nested(7, (), "ä", is_exact=False)
    assert to_bytes(nested) == b'{"step_flop":7,"parts":[],"note":"\xc3\xa4","is_exact":false}' == to_bytes(nested)


@dataclass(frozen=True, slots=True)
class Everything:
    count: int
    share: Annotated[float, Lt(1.0)]
    rate: float
    free: Any
    one_of: Interval | Nested | None
    some: int | str | tuple[int, ...]
    by_name: Mapping[str, Interval]


@dataclass(frozen=True, slots=True)
class Estimated(Interval):
    quantile: float


INTERVAL = Interval(0.1 + 0.2, 2**53, 7 * 10**22, "analytic")
ESTIMATED = Estimated(1, 2, 3, "analytic", 0.5)
NESTED = Nested(3 * 10**25 + 7, (INTERVAL,), "NaN, Infinity", is_exact=True)


@pytest.mark.parametrize("rate", [1, 0.1, 2**60, 1e300, -(2**70)])
@pytest.mark.parametrize(
    "free", [None, {"a": (1, 2**60)}, [INTERVAL, NESTED], "\u2028\\", Estimated(1, 2, 3, "analytic", 0.5)]
)
@pytest.mark.parametrize("one_of", [None, INTERVAL, NESTED, Estimated(1, 2, 3, "analytic", 0.5)])
@pytest.mark.parametrize("some", [2**60, "text", (1, 2)])
def test_bytes_are_those_of_plain_values(rate: float, free: Any, one_of: Any, some: Any) -> None:
    everything = Everything(2**61 + 1, 0.5, rate, free, one_of, some, {"x": INTERVAL})
    assert to_bytes(everything) == to_json(to_wire(everything))


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_is_never_sent_from_a_field(number: float) -> None:
    for share, rate, free in ((number, 1.0, None), (0.5, number, None), (0.5, 1.0, {"deep": [number]})):
        with pytest.raises(NotFinite):
            to_bytes(Everything(1, share, rate, free, None, 1, {}))


def test_a_field_that_has_no_wire_form_is_a_defect() -> None:
    with pytest.raises(TypeError):
        to_bytes(Everything(1, 0.5, 1.0, object(), None, 1, {}))


def test_what_has_no_wire_form_is_a_defect() -> None:
    with pytest.raises(TypeError):
        to_wire(object())
