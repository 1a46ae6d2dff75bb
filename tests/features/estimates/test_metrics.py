"""Every number of an answer has a name, the name means one number, and it is the number that the JSON holds."""

from collections.abc import Iterator
from typing import Any

import pytest

from service.answers.estimates import Answer
from service.errors import Refused, UnknownMetric
from service.features.estimates.metrics import MAIN, metric_named
from service.units import COUNT, dimension_of
from service.validation.reading import to_wire


def numbers(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, float]]:
    """Every number of a JSON value, by its dotted path."""
    if isinstance(value, bool | int | float):
        yield ".".join(path), value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from numbers(item, (*path, name))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from numbers(item, (*path, str(place)))


def test_every_number_of_the_json_is_a_metric(answered: Answer) -> None:
    found = list(numbers(to_wire(answered)))
    assert len(found) > 150
    for path, number in found:
        assert metric_named(path).value_in(answered) == number, path


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("total", "parameters.total"), ("active", "parameters.active"), ("6n", "flop.conventions.6n"),
        ("conventions.full", "flop.conventions.full"), ("usable_bytes", "memory.usable_bytes"),
        ("gpu.usable_bytes", "resolved.gpu.usable_bytes"), ("data", "resolved.layout.data"),
        ("gpu_hours.high", "totals.gpu_hours.high"), ("device_peak_bytes", "memory.device_peak_bytes.value"),
        ("active_by_definition.total", "parameters.active_by_definition.total"),
        ("sequence_parallel", "resolved.layout.sequence_parallel"),
    ],
)  # fmt: skip
def test_a_short_name_means_the_number_nearest_to_the_top(name: str, path: str, answered: Answer) -> None:
    number = dict(numbers(to_wire(answered)))[path]
    assert metric_named(name).value_in(answered) == number


def test_a_list_item_is_named_by_its_place_or_its_kind(answered: Answer) -> None:
    stage = answered.memory.stages[0]
    for place, line in enumerate(stage.lines):
        assert metric_named(f"stages.0.lines.{line.kind}.bytes").value_in(answered) == line.bytes
        assert metric_named(f"memory.stages.0.lines.{place}.bytes").value_in(answered) == line.bytes
    assert metric_named("parts.gemm.seconds").value_in(answered) == answered.step.parts[0].seconds


def test_the_metrics_shown_to_the_lost_exist(answered: Answer) -> None:
    for name in MAIN.split(", "):
        assert metric_named(name).value_in(answered) > 0


@pytest.mark.parametrize(
    "name", ["gpu_huors", "", ".", "verdict", "id", "stages", "stages.x", "0", "*", "total.", "A" * 9000]
)
def test_an_unknown_metric_is_told_the_nearest_and_not_repeated(name: str) -> None:
    with pytest.raises(UnknownMetric) as unknown:
        metric_named(name)
    assert "did you mean" in str(unknown.value) or MAIN in str(unknown.value)
    assert len(str(unknown.value)) < 400


def test_capitals_do_not_count(answered: Answer) -> None:
    assert metric_named("GPU_Hours.Low").value_in(answered) == metric_named("gpu_hours.low").value_in(answered)


def test_the_beginning_of_a_name_is_recognised() -> None:
    with pytest.raises(UnknownMetric, match="did you mean mfu_fraction"):
        metric_named("mfu")


def test_a_misspelt_metric_is_recognised() -> None:
    with pytest.raises(UnknownMetric, match="gpu_hours"):
        metric_named("gpu_huors")


@pytest.mark.parametrize("name", ["stages.99.layers", "parts.nothing.seconds", "stages.-1.layers", "stage_layers.7"])
def test_an_item_that_the_list_does_not_hold_is_unknown(name: str, answered: Answer) -> None:
    with pytest.raises((Refused, UnknownMetric)):
        metric_named(name).value_in(answered)


def test_a_number_of_a_list_is_offered_by_a_name_that_works(answered: Answer) -> None:
    with pytest.raises(UnknownMetric) as unknown:
        metric_named("first_step_peak_bytes")
    assert "did you mean memory.stages.0.first_step_peak_bytes" in str(unknown.value)
    assert metric_named("memory.stages.0.first_step_peak_bytes").value_in(answered) > 0


def offered(typed: str) -> list[str]:
    """The names that whoever types this one is told."""
    try:
        metric_named(typed)
    except Refused as ambiguous:
        return ambiguous.problems[0].fix.removeprefix("use one of ").split(", ")
    except UnknownMetric as unknown:
        return str(unknown).partition("did you mean ")[2].rstrip("?").split(" or ")
    return []


def fault_of(name: str, answered: Answer) -> str:
    """Why a name leads to no number of this answer."""
    try:
        metric_named(name).value_in(answered)
    except Refused as refused:
        return {"not_known": "null"}.get(refused.problems[0].code, refused.problems[0].code)
    except UnknownMetric as unknown:
        return "empty list" if "is empty" in str(unknown) else str(unknown)
    return ""


def test_every_offered_name_works(answered: Answer) -> None:
    typed = {name for path, _ in numbers(to_wire(answered)) for name in (path.split(".")[-1], path[:-1])}
    found = {name for typing in typed if not typing.isdigit() for name in offered(typing) if name}
    assert len(found) > 50
    for name in found:
        assert "*" not in name
        assert fault_of(name, answered) in {"", "null", "empty list"}


def test_a_name_of_several_numbers_is_refused_with_their_paths() -> None:
    with pytest.raises(Refused) as ambiguous:
        metric_named("high")
    (problem,) = ambiguous.value.problems
    assert problem.code == "ambiguous_metric"
    assert "totals.gpu_hours.high" in problem.fix or "memory.device_peak_bytes.high" in problem.fix


def test_every_measured_number_has_its_unit_in_its_name(answered: Answer) -> None:
    words = ("bytes", "seconds", "hours", "days", "flop", "usd", "kwh", "kg", "watts", "fraction")
    for path, _ in numbers(to_wire(answered)):
        steps = path.split(".")
        named = any(word in steps[-1] for word in words)
        assert not (named and dimension_of(steps) is COUNT), path
