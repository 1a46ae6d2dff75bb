"""A cell holds one number in the unit and spelling the sheet asks for, or a text that says why there is none."""

from dataclasses import replace

import pytest

from service.answers.estimates import Answer
from service.answers.rows import Cell
from service.catalogue import Catalogue
from service.errors import Refused, UnknownMetric
from service.features.cells.cells import CellOptions, cell, error_text, on_error_of, read_options, split_options, why

Flat = dict[str, str]


def text(metric: str, flat: Flat, catalogue: Catalogue, **options: str) -> Cell:
    return cell(metric, list(flat.items()), read_options(list(options.items())), catalogue)


def refusal(metric: str, flat: Flat, catalogue: Catalogue, **options: str) -> list[tuple[str, str]]:
    with pytest.raises(Refused) as refused:
        text(metric, flat, catalogue, **options)
    return [(problem.field, problem.code) for problem in refused.value.problems]


def test_a_cell_is_the_number_of_the_answer(flat: Flat, catalogue: Catalogue, answered: Answer) -> None:
    assert answered.totals is not None
    assert answered.totals.cost_usd is not None
    assert text("fits", flat, catalogue) == Cell("1", "1", "fits")
    assert text("parameters.total", flat, catalogue) == Cell("8030261248", "1", "fits")
    for metric, number, unit in [
        ("gpu_hours", answered.totals.gpu_hours.value, "GPU-h"),
        ("cost_usd.low", answered.totals.cost_usd.low, "USD"),
        ("device_peak_bytes", answered.memory.device_peak_bytes.value, "B"),
        ("total_flop", float(answered.flop.total_flop or 0), "FLOP"),
    ]:
        found = text(metric, flat, catalogue)
        assert (float(found.text), found.unit) == (float(f"{number:.15g}"), unit)


def test_a_number_comes_in_the_unit_and_the_style_asked_for(flat: Flat, catalogue: Catalogue, answered: Answer) -> None:
    peak_bytes = answered.memory.device_peak_bytes.value
    assert float(text("device_peak_bytes", flat, catalogue, unit="GiB", num=".").text) == pytest.approx(
        peak_bytes / 2**30
    )
    assert float(text("device_peak_bytes", flat, catalogue, unit="GB").text) == pytest.approx(peak_bytes / 1e9)
    assert text("device_peak_bytes", flat, catalogue, unit="GB").unit == "GB"
    assert "e-" in text("device_peak_bytes", flat, catalogue, unit="GiB").text
    point, comma = (text("step_seconds", flat, catalogue, num=mark).text for mark in ".,")
    assert point.replace(".", ",") == comma
    assert "." in point


def test_the_same_unit_asked_for_or_not_is_the_same_number(flat: Flat, catalogue: Catalogue) -> None:
    assert text("total_flop", flat, catalogue, unit="FLOP") == text("total_flop", flat, catalogue)


@pytest.mark.parametrize(
    ("metric", "unit"),
    [
        ("gpu_hours", "GiB"),
        ("device_peak_bytes", "h"),
        ("fits", "%"),
        ("cost_usd", "EUR"),
        ("days", ""),
        ("days", "parsec"),
    ],
)
def test_a_unit_of_something_else_is_refused(metric: str, unit: str, flat: Flat, catalogue: Catalogue) -> None:
    assert refusal(metric, flat, catalogue, unit=unit) == [("unit", "unknown_unit")]


def test_a_decimal_comma_must_be_announced(flat: Flat, catalogue: Catalogue) -> None:
    german = {**flat, "usd_per_gpu_hour": "2,5"}
    assert refusal("cost_usd", german, catalogue) == [("usd_per_gpu_hour", "decimal_comma")]
    assert text("cost_usd", german, catalogue, dec=",") == text("cost_usd", flat, catalogue)


def test_a_number_that_is_not_known_names_every_field_it_needs(flat: Flat, catalogue: Catalogue) -> None:
    del flat["training_tokens"], flat["usd_per_gpu_hour"]
    assert refusal("cost_usd", flat, catalogue) == [("training_tokens", "not_known"), ("usd_per_gpu_hour", "not_known")]
    assert refusal("total_flop", flat, catalogue) == [("training_tokens", "not_known")]
    assert refusal("gpu_hours.high", flat, catalogue) == [("training_tokens", "not_known")]
    assert refusal("carbon_kg_co2e", {**flat, "training_tokens": "1e12"}, catalogue) == [("grid_region", "not_known")]


def test_what_does_not_fit_is_a_number_too(flat: Flat, catalogue: Catalogue) -> None:
    large = {**flat, "gpus": "2", "gbs": "8"}
    assert text("fits", {**large, "model": "llama-3.1-70b"}, catalogue) == Cell("0", "1", "out_of_memory")
    assert text("headroom_bytes", {**large, "model": "llama-3.1-70b"}, catalogue).text.startswith("-")


def test_options_are_split_from_the_question() -> None:
    query = [("tp", "2"), ("unit", "GiB"), ("r", "17"), ("on_error", "text"), ("r", "18")]
    options, question = split_options(query)
    assert question == [("tp", "2")]
    assert read_options(options) == CellOptions(unit="GiB", on_error="text")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([("num", "x")], [("num", "not_a_choice")]), ([("dec", ";")], [("dec", "not_a_choice")]),
        ([("on_error", "TEXT")], [("on_error", "not_a_choice")]), ([("unit", "s")] * 2, [("unit", "repeated")]),
        ([("num", "e"), ("num", "e")], [("num", "repeated")]),
    ],
)  # fmt: skip
def test_options_take_their_own_values_once(given: list[tuple[str, str]], expected: list[tuple[str, str]]) -> None:
    with pytest.raises(Refused) as refused:
        read_options(given)
    assert [(problem.field, problem.code) for problem in refused.value.problems] == expected


def test_on_error_holds_even_where_another_option_is_the_error() -> None:
    assert on_error_of([("num", "x"), ("on_error", "blank")]) == "blank"
    assert on_error_of([("on_error", "loud")]) == "problem"


def test_why_says_ok_or_each_thing_to_mend(flat: Flat, catalogue: Catalogue) -> None:
    query = list(flat.items())
    assert why([*query, ("unit", "GiB"), ("r", "1")], catalogue) == "ok"
    first, second = why([*query, ("tensr", "2"), ("zero_stage", "x")], catalogue).split("\n")
    assert first.startswith("unknown_field: ")
    assert "tensor" in first
    assert second.startswith("not_a_whole_number: zero_stage ")
    assert why([*query, ("unit", "parsec")], catalogue).startswith("unknown_unit: ")
    assert why([("tp", "3") if name == "tp" else (name, value) for name, value in query], catalogue) != "ok"


def test_why_explains_the_cell_of_a_metric(flat: Flat, catalogue: Catalogue) -> None:
    del flat["training_tokens"], flat["usd_per_gpu_hour"]
    query = list(flat.items())
    assert why(query, catalogue) == "ok"
    assert why([*query, ("metric", "device_peak_bytes")], catalogue) == "ok"
    for metric, needed in [("gpu_hours", ["training_tokens"]), ("cost_usd", ["training_tokens", "usd_per_gpu_hour"])]:
        lines = why([*query, ("metric", metric)], catalogue).split("\n")
        assert [line.rpartition("give ")[2] for line in lines] == needed
        assert all(line.startswith("not_known: ") for line in lines)
    assert why([*query, ("metric", "gpu_huors")], catalogue).startswith("unknown_metric: ")
    assert why([*query, ("metric", "fits"), ("metric", "days")], catalogue).startswith("repeated: ")
    assert "GiB" in why([*query, ("metric", "device_peak_bytes"), ("unit", "gib")], catalogue)


def test_a_misspelt_option_or_unit_is_recognised(flat: Flat, catalogue: Catalogue) -> None:
    with pytest.raises(Refused) as refused:
        text("device_peak_bytes", {**flat, "units": "GB"}, catalogue)
    assert refused.value.problems[0].fix.startswith("did you mean unit")
    with pytest.raises(Refused) as refused:
        text("device_peak_bytes", flat, catalogue, unit="gib")
    assert refused.value.problems[0].fix.startswith("did you mean GiB? ")
    assert " TiB" in refused.value.problems[0].fix
    assert "FLOP" not in refused.value.problems[0].fix


def test_an_error_text_is_one_short_line(flat: Flat, catalogue: Catalogue) -> None:
    with pytest.raises(Refused) as refused:
        text("gpu_hours", {**flat, "tp": "x\ny"}, catalogue)
    (problem,) = refused.value.problems
    assert error_text(refused.value) == f"#ERR {problem.code}: {problem.message}; {problem.fix}"
    long = error_text(Refused(replace(problem, message="line\r\n\x00 " * 200)))
    assert len(long) == 255
    assert long.isprintable()
    assert error_text(UnknownMetric("no such metric")) == "#ERR unknown_metric: no such metric"


def test_an_unknown_metric_is_not_found(flat: Flat, catalogue: Catalogue) -> None:
    with pytest.raises(UnknownMetric):
        text("gpu_huors", flat, catalogue)
