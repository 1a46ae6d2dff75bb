"""The first step, whose optimizer has no states yet, peaks lower by the measured difference.

Megatron-LM's functional test gpt3_7b_tp1_pp4_memory_speed logs the peak after every step on its last rank: one GPU of
the last of 4 stages, whose optimizer 2 replicas share.
"""

import json
from math import exp
from typing import Any

import pytest

from service.answers.accuracy import Accuracy, Group
from service.calibration.steps import digest_of, held_out_steps, held_out_text, shipped_held_out, step_spreads
from service.calibration.tables import THROUGHPUT, shipped_rows, trimmed_table
from service.catalogue import shipped_catalogue
from service.estimator import estimate
from service.estimator.resolve import resolve
from service.estimator.run.run import timeline
from service.estimator.software.versions import generation
from service.estimator.time.step import (
    FITTED_GENERATIONS,
    KNOWN_STACKS,
    LEAST_RESIDUAL,
    RESIDUALS,
    Operations,
    StepClass,
    spread_scale,
)
from service.evaluation.accuracy import accuracy_of
from service.evaluation.questions import question_of
from service.evaluation.scoring import APART, Evaluation, predict, shipped_seconds, step_rows_of
from service.evaluation.tables import HELD_OUT
from service.validation.reading import to_wire
from tests.evaluation.rows import ROWS, step_of

GOLDEN = ROWS["M-megatron_functional-0009"]

FIRST_STEP_PEAK_BYTES = 52_931_256_320
"""mem-max-allocated-bytes after step 1, NVIDIA/Megatron-LM@d98e8a64 golden_values_dev_dgx_h100.json."""

LATER_PEAK_BYTES = 60_720_852_992
"""The same after step 2 and every later one."""

MOMENT_BYTES = 8
"""The two moments of one parameter, fp32."""

REPLICAS = 2


def test_first_step_lacks_the_states_of_the_optimizer() -> None:
    question, _ = question_of(GOLDEN, shipped_catalogue())
    last = timeline(resolve(question))[-1]
    gap = last.later_step_peak_bytes - last.first_step_peak_bytes
    parameters = estimate(question).parameters.stages[-1].per_rank
    assert gap == pytest.approx(MOMENT_BYTES * parameters / REPLICAS, rel=1e-3)
    assert gap == pytest.approx(LATER_PEAK_BYTES - FIRST_STEP_PEAK_BYTES, rel=1e-3)


def test_both_peaks_are_the_measured_ones() -> None:
    last = predict(GOLDEN, shipped_catalogue()).memory.stages[-1]
    assert last.first_step_peak_bytes == pytest.approx(FIRST_STEP_PEAK_BYTES, rel=0.005)
    assert last.allocated_peak_bytes == pytest.approx(LATER_PEAK_BYTES, rel=0.005)


CATALOGUE = shipped_catalogue()


def of_class(found: Accuracy, name: str) -> Group:
    (group,) = [group for group in found.steps if group.memory_class == name]
    return group


def test_shipped_predictions_are_of_these_formulas(steps: tuple[Evaluation, ...]) -> None:
    shipped = shipped_held_out()
    assert shipped.digest == digest_of(shipped_seconds(steps)), "run `traincost write-held-out`"
    assert shipped.predicted_seconds.keys() == {row.id for row in step_rows_of(steps)}


def test_the_file_is_what_was_written(steps: tuple[Evaluation, ...]) -> None:
    shipped = shipped_held_out()
    written = held_out_text(shipped.predicted_seconds, shipped.withheld_seconds, shipped_seconds(steps))
    assert HELD_OUT.read_text(encoding="utf-8").partition("\n")[2] == written.partition("\n")[2]


@pytest.mark.parametrize("name", sorted(RESIDUALS.keys() - {"adapters"}))
def test_spread_is_that_of_the_held_out_steps(name: StepClass, steps: tuple[Evaluation, ...]) -> None:
    shipped = shipped_held_out()
    spreads = step_spreads(step_rows_of(steps), shipped.predicted_seconds, shipped.withheld_seconds)
    assert RESIDUALS[name] == spreads[name]


def test_what_a_recipe_leaves_open_widens_its_interval(steps: tuple[Evaluation, ...]) -> None:
    stated = {row.id for row in step_rows_of(steps) if row.question.model.num_experts and row.states_dispatcher}
    assert stated == shipped_held_out().withheld_seconds.keys()
    assert RESIDUALS["MoE, dispatcher unknown"] > RESIDUALS["MoE"]


def test_an_interval_never_saw_the_source_that_it_is_for(steps: tuple[Evaluation, ...]) -> None:
    rows, shipped = step_rows_of(steps), shipped_held_out().predicted_seconds
    before = {one.row.id: one.spread_fraction for one in held_out_steps(rows, shipped, {})}
    worse = {name: seconds * (3.0 if "bloom" in name else 1.0) for name, seconds in shipped.items()}
    after = {one.row.id: one.spread_fraction for one in held_out_steps(rows, worse, {})}
    bloom = [name for name in shipped if "bloom" in name]
    assert [before[name] for name in bloom] == [after[name] for name in bloom]
    wider, narrower = after["T-internevo-0001"], before["T-internevo-0001"]
    assert wider is not None
    assert narrower is not None
    assert wider > narrower


def test_classes_hold_every_row_told_in_full(found: Accuracy) -> None:
    stated = {group.memory_class: group.full_config.rows for group in found.steps}
    assert stated["all"] == stated["dense, fitted GPU"] + stated["new GPU"] + stated["old GPU"] + stated["MoE"]
    assert stated["all"] + stated[APART] == 619
    assert stated[APART] == 13


def test_what_is_counted_apart_moves_no_other_figure(steps: tuple[Evaluation, ...]) -> None:
    rows = step_rows_of(steps)
    shipped = shipped_held_out().predicted_seconds
    without = [row for row in rows if not row.is_scored_apart]
    assert step_spreads(rows, shipped, {}) == step_spreads(without, shipped, {})


def test_scores_stand_beside_baselines(found: Accuracy) -> None:
    for group in found.groups:
        assert (group.step is not None) == (group.quantity == "step" and group.full_config.scored > 0)
        if group.step is not None:
            scores = group.step
            counts = {scores.held_out.scored, scores.constant_mfu.scored, scores.six_pd.scored}
            assert counts == {group.full_config.scored}
            assert scores.constant_mfu.coverage80_fraction is None


def test_a_class_of_one_source_is_judged_by_the_other_unfitted_one(steps: tuple[Evaluation, ...]) -> None:
    rows, shipped = step_rows_of(steps), shipped_held_out().predicted_seconds
    volta = [row for row in rows if row.source_key == "dlperf"]
    assert all(one.spread_fraction is None for one in held_out_steps(volta, shipped, {}))
    before, after = (
        {one.row.id: one.spread_fraction for one in held_out_steps(rows, predicted, {})}
        for predicted in (
            shipped,
            {name: seconds * (1.0 if "dlperf" in name else 2.0) for name, seconds in shipped.items()},
        )
    )
    assert all((after[row.id] or 0.0) > (before[row.id] or 0.0) for row in volta)


def test_width_is_that_of_the_spread(found: Accuracy, steps: tuple[Evaluation, ...]) -> None:
    waiting = {row.id: row.waiting_fraction for row in step_rows_of(steps)}
    evaluations = [one for one in found.steps_worst if one.step_class != APART]
    assert evaluations
    for one in evaluations:
        step_class = next(name for name in RESIDUALS if name == one.step_class)
        spread = max(LEAST_RESIDUAL, RESIDUALS[step_class] * spread_scale(waiting[one.id]))
        assert one.high_seconds / one.value_seconds == pytest.approx(exp(spread))
        assert one.value_seconds / one.low_seconds == pytest.approx(exp(spread))


def test_a_changed_row_has_no_held_out_prediction() -> None:
    rows = [step_of("T-bloom-0001"), step_of("T-torchtitan-0001", gbs="32")]
    bloom, titan = accuracy_of(rows, CATALOGUE).groups
    assert bloom.step is not None
    assert titan.step is not None
    assert (bloom.step.held_out.scored, titan.step.held_out.scored) == (1, 0)


def test_the_shipped_rows_are_trimmed() -> None:
    rows = shipped_rows("throughput")
    assert HELD_OUT.with_name("throughput.csv").read_text(encoding="utf-8") == trimmed_table(rows, THROUGHPUT)


def test_the_wire_names_quantities_and_classes(found: Accuracy) -> None:
    text: dict[str, Any] = json.loads(json.dumps(to_wire(found)))
    steps = [group for group in text["groups"] if group["quantity"] == "step"]
    assert {"known stack", "new GPU", "MoE", "apart"} <= {group["class"] for group in steps}
    assert all(group["median_bytes"] is None and group["large_from_bytes"] is None for group in steps)
    assert {"mape_fraction", "p90_fraction", "coverage80_fraction"} <= steps[0]["step"]["held_out"].keys()


def test_known_stacks_are_those_that_several_sources_run(steps: tuple[Evaluation, ...]) -> None:
    sources: dict[Operations, set[str]] = {}
    for row in step_rows_of(steps):
        fitted = generation(row.question.gpu) in FITTED_GENERATIONS and not row.question.model.num_experts
        if fitted and not row.is_scored_apart:
            sources.setdefault(row.stack, set()).add(row.source_key)
    assert {stack for stack, names in sources.items() if len(names) > 1} == set(KNOWN_STACKS)
