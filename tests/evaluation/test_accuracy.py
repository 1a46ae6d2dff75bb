"""Accuracy figures count every row once, and own measurements beside the published ones."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.answers.accuracy import Accuracy, Figures
from service.calibration.kernels import observed_rows, scored_products
from service.calibration.observations import Observed, counted_peaks
from service.calibration.scores import FITTED_SOURCES, READ_OFF, score, spread_fraction
from service.calibration.tables import MEMORY, shipped_rows
from service.catalogue import shipped_catalogue
from service.cli.data_reports import measured_lines
from service.estimator.memory.device import LEAST_RESIDUAL, RESIDUALS, class_of
from service.evaluation.accuracy import LISTED_ROWS, accuracy_of, evaluated_peaks, shipped_measured, with_own_accuracy
from service.evaluation.scoring import Evaluation, evaluate_row
from service.validation.reading import to_bytes, to_wire
from tests.amounts import amount
from tests.evaluation.rows import ROWS, row_of

CATALOGUE = shipped_catalogue()
CELLS = sorted(
    {text for row in ROWS.values() for name, text in row.cells.items() if name not in ("id", "notes", "source")}
)
"""Every text that a cell of the shipped rows holds, to put it where it does not belong."""

NAMES = {
    "quantity", "source_key", "class", "moe", "rows", "scored", "not_expressible", "mape_fraction", "median_fraction",
    "bias_fraction", "p95_fraction", "coverage80_fraction", "in_sample",
}  # fmt: skip


def every_set(found: Accuracy) -> Iterator[Figures]:
    for group in (*found.groups, found.all):
        for sized in (group, group.full_config):
            yield from (sized, sized.large, sized.small)


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"mem_class": "torch alocated"}, "mem_class: not known"),
        ({"outcome": "crashed"}, "outcome: not known"),
        ({"outcome": "oom"}, "outcome: not known"),
    ],
)
def test_an_unknown_class_or_outcome_costs_its_row(cells: dict[str, str], reason: str) -> None:
    for one in evaluate_row(row_of(**cells), CATALOGUE):
        assert (one.comparison, one.reason) == (None, reason)


@pytest.mark.parametrize("text", ["", "ok", "OOM", "OOM (fragmentation)"])
def test_known_outcomes_cost_nothing(text: str) -> None:
    assert not any(one.reason for one in evaluate_row(row_of(outcome=text), CATALOGUE))


def test_no_shipped_row_has_an_unknown_class_or_outcome(evaluations: tuple[Evaluation, ...]) -> None:
    assert not [one.row.text("id") for one in evaluations if one.reason == "mem_class: not known"]
    assert not [one.row.text("id") for one in evaluations if one.reason == "outcome: not known"]


def test_every_row_is_counted_once(found: Accuracy) -> None:
    for figures in every_set(found):
        assert figures.rows == figures.scored + figures.ran_out + sum(figures.not_expressible.values())


def test_groups_hold_every_row(found: Accuracy) -> None:
    peaks = [group for group in found.groups if group.quantity == "peak"]
    assert sum(group.rows for group in peaks) == found.all.rows == len(shipped_rows())
    statics = [group for group in found.groups if group.quantity == "static"]
    assert sum(group.rows for group in statics) == sum(bool(row.text("static_mem_gib")) for row in shipped_rows())


def test_sizes_and_told_rows_are_parts(found: Accuracy) -> None:
    for group in (*found.groups, found.all):
        assert group.rows == group.large.rows + group.small.rows
        assert group.full_config.rows <= group.rows
        assert group.full_config.rows == group.full_config.large.rows + group.full_config.small.rows


def test_figures_are_those_of_the_comparisons(found: Accuracy, evaluations: tuple[Evaluation, ...]) -> None:
    (group,) = [group for group in found.groups if (group.quantity, group.source_key) == ("peak", "nanotron")]
    compared = [one.comparison for one in evaluations if one.row.text("source_key") == "nanotron"]
    text = score([one for one in compared if one is not None])
    assert (group.mape_fraction, group.p95_bytes) == (text.mape_fraction, text.p95_bytes)


def test_only_sources_that_gave_a_constant_are_in_sample(found: Accuracy) -> None:
    in_sample = [group for group in found.groups if group.in_sample]
    assert {group.source_key for group in in_sample if group.quantity != "step"} == READ_OFF.keys()
    assert {group.source_key for group in in_sample if group.quantity == "step"} == set(FITTED_SOURCES)
    assert all(bool(group.constants) is group.in_sample for group in found.groups)


def test_the_wire_has_the_promised_names(found: Accuracy) -> None:
    wire = to_wire(found)
    in_sample = {"groups", "all", "verdicts", "rows_worst", "steps", "steps_worst"}
    assert wire.keys() == {"versions", "held_out", *in_sample, "measured"}
    assert all(wire["groups"][place].keys() >= NAMES for place in range(len(wire["groups"])))
    assert wire["all"].keys() >= NAMES
    assert len(wire["rows_worst"]) == LISTED_ROWS
    assert all(row["reason"] and row["lines"] and row["source"] for row in wire["rows_worst"])


def test_the_worst_come_first(found: Accuracy) -> None:
    distances = [
        abs(row.value_bytes - row.measured_bytes) / max(row.measured_bytes, 4 << 30) for row in found.rows_worst
    ]
    assert distances == sorted(distances, reverse=True)


def test_verdicts_count_every_row_that_has_one(found: Accuracy, evaluations: tuple[Evaluation, ...]) -> None:
    peaks = [one for one in evaluations if one.quantity == "peak"]
    counts = found.verdicts
    assert counts.ran == counts.ran_fits + counts.ran_at_risk + counts.ran_out_of_memory
    assert counts.ran == sum(one.predicted is not None and not one.ran_out for one in peaks)
    assert counts.ran_out == Counter(one.ran_out for one in peaks)[True]
    assert counts.ran_out >= counts.ran_out_told + sum(counts.ran_out_not_expressible.values())
    assert counts.roomy_at_risk_fraction == counts.roomy_at_risk / counts.roomy
    assert counts.full_config.ran <= counts.ran


def test_a_row_that_ran_out_is_judged_by_its_verdict_alone() -> None:
    ran_out = next(row for row in ROWS.values() if row.text("outcome") == "OOM" and not row.text("config_missing"))
    found = accuracy_of([ran_out], CATALOGUE)
    assert (found.all.rows, found.all.scored, found.all.ran_out, found.verdicts.ran_out) == (1, 0, 1, 1)
    assert found.all.mape_fraction is None


def test_a_table_without_rows_has_no_figures() -> None:
    found = accuracy_of([], CATALOGUE)
    assert (found.groups, found.all.rows, found.rows_worst) == ((), 0, ())


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"layers": "", "config_missing": "layers recompute"}, "missing: layers recompute"),
        ({"peak_mem_reported": ""}, "missing: peak_mem_reported"),
        ({"peak_mem_unit": "cup"}, "unit: not known"),
        ({"framework": "?"}, "framework: no stack stands for it"),
        ({"mbs": "x"}, "unreadable: mbs"),
    ],
)
def test_a_row_that_cannot_be_scored_is_listed_with_its_reason(cells: dict[str, str], reason: str) -> None:
    found = accuracy_of([row_of("M-torchtitan-0001", **cells)], CATALOGUE)
    assert dict(found.all.not_expressible) == {reason: 1}


def test_static_and_peak_of_a_row_are_two_figures() -> None:
    peak, static = evaluate_row(ROWS["M-megatron_functional-0012"], CATALOGUE)
    assert (peak.quantity, static.quantity) == ("peak", "static")
    assert peak.comparison is not None
    assert static.comparison is not None
    assert peak.comparison.value > static.comparison.value


def test_the_last_rank_is_of_the_last_stage() -> None:
    (peak, *_) = evaluate_row(ROWS["M-megatron_functional-0009"], CATALOGUE)
    (other, *_) = evaluate_row(row_of("M-megatron_functional-0009", mem_rank="rank 0"), CATALOGUE)
    assert peak.stage is not None
    assert other.stage is not None
    assert (peak.stage.stage, other.stage.stage) == (3, 0)


@settings(max_examples=amount(40, 300))
@given(
    st.sampled_from(sorted(ROWS)),
    st.dictionaries(st.sampled_from(MEMORY.used), st.one_of(st.sampled_from(CELLS), st.text(max_size=12)), max_size=3),
)
def test_no_row_breaks_the_rest(name: str, cells: dict[str, str]) -> None:
    for one in evaluate_row(row_of(name, **cells), CATALOGUE):
        assert one.reason or one.comparison is not None or one.ran_out


@pytest.mark.parametrize("name", RESIDUALS, ids=" ".join)
def test_spread_is_that_of_the_rows_which_say_all(name: tuple[str, str], evaluations: tuple[Evaluation, ...]) -> None:
    residuals: dict[str, list[float]] = {}
    for one in evaluations:
        if (
            one.quantity == "peak"
            and one.is_complete
            and one.comparison is not None
            and class_of(one.stack, is_sparse=one.is_moe) == name
        ):
            residuals.setdefault(one.row.text("source_key"), []).append(one.comparison.residual_fraction)
    spread = spread_fraction(residuals)
    assert spread is not None
    assert RESIDUALS[name] == max(LEAST_RESIDUAL, ceil(spread * 1e3) / 1e3)


def rows(rate: float = 5e10, seconds: float = 1e-3, second_run: float = 1.0) -> tuple[Observed, ...]:
    """Products of a processor of one rate and one fixed cost, in two runs."""
    stated = []
    for run, factor in ((1, 1.0), (2, second_run)):
        for number in range(12):
            sides = {"rows": 512 + 64 * number, "columns": 1024, "inner": 768 + 32 * number}
            value = (2 * sides["rows"] * sides["columns"] * sides["inner"] / rate + seconds) * factor
            stated.append({
                "run": run, "operation": "forward", "name": "p", **sides, "copies": 1, "dtype": "fp32", "value": value,
                "low": value, "high": value, "repeats": 20, "device": "EPYC", "threads": 2, "memory_bytes": 8e9,
                "instructions": "avx2", "torch": "2.13.0",
            })  # fmt: skip
    return observed_rows(stated)


def test_half_of_the_shapes_tell_the_other_half() -> None:
    found = scored_products(rows(second_run=1.05))
    assert found is not None
    assert (found.products, found.runs, found.least_repeats) == (12, 2, 20)
    assert found.held_out_fraction < 0.05 < found.before_fraction
    assert found.noise_fraction == pytest.approx(0.05)


def test_a_half_says_nothing_of_itself() -> None:
    """Where the halves are of different machines, the error is that between them."""
    families = sorted({(one.measurement.shape["rows"], one.family) for one in rows()})
    slow = {family for place, (_, family) in enumerate(families) if place % 2}
    mixed = [
        replace(
            one, measurement=replace(one.measurement, value=one.measurement.value * (2 if one.family in slow else 1))
        )
        for one in rows()
    ]
    found = scored_products(mixed)
    assert found is not None
    assert found.held_out_fraction == pytest.approx((1.0 + 0.5) / 2, rel=0.2)


def test_small_products_are_not_judged() -> None:
    small = [
        replace(one, measurement=replace(one.measurement, shape={**one.measurement.shape, "columns": 16}))
        for one in rows()
    ]
    assert scored_products(small) is None
    found = scored_products([*small, *rows()])
    assert found is not None
    assert found.products == 12


def test_what_ships_is_told_with_its_noise() -> None:
    found = shipped_measured()
    assert len(found.counted_peaks.rows) >= 12
    assert found.counted_peaks.largest_fraction is not None
    assert found.counted_peaks.largest_fraction <= 0.03
    assert found.products is not None
    assert found.products.least_repeats >= 20
    assert found.products.held_out_fraction <= 0.15
    assert found.products.noise_fraction <= 0.10
    assert found.own is None
    shipped = to_bytes(accuracy_of([], shipped_catalogue()))
    assert with_own_accuracy(shipped, b"null") == shipped
    stated = "\n".join(measured_lines(found))
    assert f"{found.products.noise_fraction:.1%}" in stated
    assert f"{found.counted_peaks.largest_fraction:.1%}" in stated


WITHIN = 0.03


def test_every_counted_peak_is_predicted() -> None:
    evaluations = evaluated_peaks()
    assert {one.model for one in evaluations} == {"gpt2-124m", "smollm2-135m", "qwen3-0.6b"}
    assert {(one.layers, one.step) for one in evaluations} == {(1, 1), (1, 3), (2, 1), (2, 3)}
    far = [one for one in evaluations if abs(one.error_fraction) > WITHIN]
    assert not far


def test_counted_peaks_name_their_source() -> None:
    assert all(one.source.startswith("own measurement: ") and "torch" in one.source for one in counted_peaks())
