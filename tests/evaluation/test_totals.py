"""Every published run is asked as its row describes it, and the totals are those of the rows."""

import json
from dataclasses import replace
from math import exp
from typing import Any

import pytest

from service.answers.accuracy import TotalsAccuracy, TotalsRow
from service.calibration.scores import run_spread, shipped_ends
from service.calibration.tables import MeasuredRow, NotExpressible, describes_main_run, shipped_toml, shipped_totals
from service.catalogue import shipped_catalogue
from service.cli.data_reports import totals_text
from service.estimator import Model, estimate_memory
from service.estimator.model.counts import count_parameters
from service.estimator.run.totals import RUN_RESIDUALS, run_interval
from service.evaluation.frameworks import table_of
from service.evaluation.totals import (
    NO_LAYOUT,
    TABLE,
    RunQuestion,
    evaluate_run,
    gpu_of,
    gpus_of,
    lab_defaults,
    question_of_run,
    run_residuals,
    sequence_of,
    sequences_of,
    totals_accuracy,
    totals_accuracy_of,
)
from service.validation.reading import to_wire
from tests.commands import Command

CATALOGUE = shipped_catalogue()
ROWS = shipped_totals()
MAIN = [pytest.param(row, id=row.text("id")) for row in ROWS if describes_main_run(row)]


def row_like(identity: str, **cells: str) -> MeasuredRow:
    """A shipped row with some cells changed; an empty text empties one."""
    found = next(row for row in ROWS if row.text("id") == identity)
    changed = {**found.cells, **cells}
    return replace(found, cells={name: cell for name, cell in changed.items() if cell})


@pytest.fixture(scope="module")
def found() -> TotalsAccuracy:
    return totals_accuracy()


@pytest.fixture(scope="module")
def questions() -> dict[str, RunQuestion]:
    return {row.text("id"): question_of_run(row, CATALOGUE) for row in ROWS if describes_main_run(row)}


def test_every_row_was_decided_on_with_a_reason() -> None:
    assert len(ROWS) == len({row.text("id") for row in ROWS}) == 88
    for row in ROWS:
        assert row.cells.keys() <= set(shipped_toml("columns")["totals"])
        assert row.text("describes_main_run") in {"yes", "no"}
        assert row.text("reason")
        assert row.text("source")


def test_main_runs_tell_hours_and_tokens_and_were_read_at_their_source() -> None:
    assert len(MAIN) == 23
    for row in ROWS:
        if describes_main_run(row):
            assert row.number_of("gpu_hours")
            assert row.number_of("tokens_t")
            assert row.text("verified") == "yes"
            assert "estimate" not in row.text("value_kind")


@pytest.mark.parametrize("row", MAIN)
def test_what_a_main_run_tells_reaches_its_question(row: MeasuredRow, questions: dict[str, RunQuestion]) -> None:
    question = questions[row.text("id")].question
    stated: dict[str, Any] = {
        "n_gpus": question.cluster.gpus,
        "tp": question.layout.tensor,
        "pp": question.layout.pipeline,
        "ep": question.layout.expert,
        "seq_len": question.recipe.sequence_length,
    }
    for column, value in stated.items():
        assert row.whole(column) in {None, value}, column
    replicas = question.cluster.gpus // (question.layout.tensor * question.layout.pipeline)
    assert row.whole("dp") in {None, replicas}
    assert question.recipe.training_tokens == (row.number_of("tokens_t") or 0) * 1e12
    batch = row.number_of("batch_tokens")
    if batch:
        assert (question.recipe.global_batch or 0) * question.recipe.sequence_length == pytest.approx(batch, rel=0.06)
    assert (row.text("precision") or "bf16")[:3] in (question.recipe.precision or "bf16-mixed")
    text = row.text("gpu").lower().replace("gb", "").split("-")[0].split()[0]
    assert text in question.gpu.slug


def test_what_is_assumed_is_what_the_row_leaves_empty(questions: dict[str, RunQuestion]) -> None:
    for row in ROWS:
        if describes_main_run(row):
            for name in questions[row.text("id")].assumed:
                assert name in {NO_LAYOUT, *(one.assumes for one in lab_defaults())} or not row.text(name)


def test_shapes_of_our_own_have_the_parameters_of_their_papers() -> None:
    sizes = {name: count_parameters(Model(**shape)).total for name, shape in table_of(TABLE)["shapes"].items()}
    assert sizes["BloombergGPT 50B"] == pytest.approx(50_558_868_480, rel=0.001)
    assert sizes["StarCoderBase 15.5B"] == pytest.approx(15.52e9, rel=0.001)


def test_a_model_of_another_size_is_not_asked() -> None:
    with pytest.raises(NotExpressible, match="another size"):
        question_of_run(row_like("S-001", n_params_b="9"), CATALOGUE)
    with pytest.raises(NotExpressible, match="no shape"):
        question_of_run(row_like("S-001", model="Unheard 7B"), CATALOGUE)


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"gpu_hours": ""}, "missing: gpu_hours"),
        ({"tokens_t": ""}, "missing: tokens_t"),
        ({"precision": "int3"}, "precision: not understood"),
        ({"gpu": "Z900"}, "gpu: not in the catalogue"),
        ({"n_gpus": "7", "tp": "8"}, "layout: the GPUs are no multiple of any replica"),
    ],
)
def test_a_row_that_cannot_be_asked_says_why(cells: dict[str, str], reason: str) -> None:
    (one,) = totals_accuracy_of([row_like("S-001", **cells)], CATALOGUE).rows
    assert (one.reason, one.gpu_hours, one.is_inside) == (reason, None, None)


@pytest.mark.parametrize(
    ("batch", "replicas", "sequences"),
    [("4000000.0", 128, 2048), ("4194304", 64, 2048), ("2360000.0", 192, 1152), ("", 440, 2200), ("1", 8, 8)],
)
def test_a_batch_is_a_multiple_of_its_replicas(batch: str, replicas: int, sequences: int) -> None:
    """Round millions mean a power of two; an untold batch is four million tokens."""
    assert sequences_of(row_like("S-027", batch_tokens=batch), 2048, replicas) == sequences


def test_an_untold_cluster_is_sized_by_a_month() -> None:
    """6 x 6.74e9 x 2e12 FLOP at 40 % of 312e12 FLOP/s in 30 days are 250 GPUs."""
    assert gpus_of(row_like("S-001"), 4096, CATALOGUE) == 256
    assert gpus_of(row_like("S-001", n_gpus="384"), 4096, CATALOGUE) == 384
    assert gpus_of(row_like("S-001", tokens_t="0.001"), 4096, CATALOGUE) == 8
    assert gpus_of(row_like("S-001", tokens_t="900"), 4096, CATALOGUE) == 1024
    with pytest.raises(NotExpressible, match="n_gpus"):
        gpus_of(row_like("S-001", tokens_t=""), 4096, CATALOGUE)


def test_an_untold_length_is_the_usual_one() -> None:
    assert sequence_of(row_like("S-001", seq_len=""), CATALOGUE) == 4096
    assert sequence_of(row_like("S-030", seq_len=""), CATALOGUE) == 2048


@pytest.mark.parametrize(
    ("text", "slug"),
    [
        ("A100-SXM 40GB", "a100-sxm4-40gb"),
        ("NVIDIA A100", "a100-sxm4-80gb"),
        ("NVIDIA H100 SXM5 80GB", "h100-sxm5-80gb"),
        ("V100 32GB", "v100-sxm2-32gb"),
        ("H800-SXM 80GB", "h800-sxm5-80gb"),
    ],
)
def test_a_gpu_is_found_by_family_form_and_size(text: str, slug: str) -> None:
    assert gpu_of(row_like("S-001", gpu=text), CATALOGUE) == slug


def test_the_smallest_replica_that_fits_is_taken(questions: dict[str, RunQuestion]) -> None:
    """One step less of tensor parallelism does not fit without recompute."""
    question = questions["S-002"].question
    assert question.layout.tensor == 2
    assert estimate_memory(question).verdict == "fits"
    smaller = replace(
        question,
        layout=replace(question.layout, tensor=1, data=None),
        recipe=replace(question.recipe, micro_batch=1, global_batch=1024),
    )
    assert estimate_memory(smaller).verdict != "fits"


def test_the_largest_micro_batch_that_fits_is_taken(questions: dict[str, RunQuestion]) -> None:
    question = questions["S-030"].question
    assert question.recipe.micro_batch > 1
    larger = replace(question, recipe=replace(question.recipe, micro_batch=2 * question.recipe.micro_batch))
    assert estimate_memory(larger).verdict != "fits"


def test_a_pipeline_keeps_enough_micro_batches(questions: dict[str, RunQuestion]) -> None:
    for run in questions.values():
        recipe, layout = run.question.recipe, run.question.layout
        if layout.pipeline > 1 and recipe.micro_batch > 1:
            replicas = run.question.cluster.gpus // (layout.tensor * layout.pipeline)
            assert (recipe.global_batch or 0) / (recipe.micro_batch * replicas) >= 4 * layout.pipeline


def test_deepseeks_batch_rises(questions: dict[str, RunQuestion]) -> None:
    (stage,) = questions["S-017"].question.recipe.stages
    assert (stage.until_tokens, stage.final_global_batch) == (469e9, 15360)


def test_every_habit_has_a_row_and_a_reason() -> None:
    for habits in lab_defaults():
        assert habits.why
    names = [habits.name for habits in lab_defaults()]
    assert len(set(names)) == len(names)
    assert names[-1] == ""


def test_main_runs_stand_apart(found: TotalsAccuracy) -> None:
    assert found.main_runs.rows == len(MAIN)
    assert found.main_runs.rows + found.beside.rows == len(found.rows) == 88
    assert [row.describes_main_run for row in found.rows] == [True] * 23 + [False] * 65
    assert found.main_runs.scored == 23


def test_figures_are_those_of_the_rows(found: TotalsAccuracy) -> None:
    for group, is_main in ((found.main_runs, True), (found.beside, False)):
        rows = [row for row in found.rows if row.describes_main_run == is_main]
        scored = [row for row in rows if row.gpu_hours is not None]
        assert group.rows == group.scored + sum(group.not_expressible.values())
        inside = [row for row in scored if _is_inside(row)]
        assert (group.scored, group.inside) == (len(scored), len(inside))
        assert group.inside_fraction == len(inside) / len(scored)
        held_out = [row for row in scored if row.is_inside_held_out]
        assert group.held_out_inside == len(held_out)
        assert group.held_out_inside_fraction == len(held_out) / len(scored)
        values = [(row.gpu_hours.value, row.published_gpu_hours) for row in scored if row.gpu_hours]
        errors = [abs(value / (published or 1) - 1) for value, published in values]
        assert group.mape_fraction == pytest.approx(sum(errors) / len(errors))


def _is_inside(row: TotalsRow) -> bool:
    assert row.gpu_hours is not None
    assert row.published_gpu_hours is not None
    return row.gpu_hours.low <= row.published_gpu_hours <= row.gpu_hours.high


def test_shipped_residuals_are_those_of_the_main_runs() -> None:
    ends = run_spread(run_residuals([evaluate_run(row, CATALOGUE) for row in ROWS]))
    assert ends is not None
    assert shipped_ends(ends) == RUN_RESIDUALS


def test_most_main_runs_lie_inside_intervals_that_never_saw_their_source(found: TotalsAccuracy) -> None:
    assert (found.main_runs.held_out_inside_fraction or 0) >= 0.7


def test_a_source_alone_has_no_held_out_interval() -> None:
    (one,) = totals_accuracy_of([row_like("S-036")], CATALOGUE).rows
    assert one.gpu_hours is not None
    assert (one.held_out_gpu_hours, one.is_inside_held_out) == (None, None)


def test_an_interval_is_never_narrower_than_that_of_its_steps() -> None:
    run = evaluate_run(row_like("S-017"), CATALOGUE)
    assert run.gpu_hours is not None
    assert run.by_steps_gpu_hours is not None
    assert run.gpu_hours.low <= run.by_steps_gpu_hours.low
    assert run.gpu_hours.high >= run.by_steps_gpu_hours.high
    wide = replace(run.by_steps_gpu_hours, low=run.by_steps_gpu_hours.value * exp(2 * RUN_RESIDUALS[0]))
    assert run_interval(wide, RUN_RESIDUALS).low == wide.low


def test_every_row_is_compared_or_says_why_not(found: TotalsAccuracy) -> None:
    for row in found.rows:
        assert (row.is_inside is None) == bool(row.reason)
        assert row.decided


def test_no_rows_have_no_figures() -> None:
    found = totals_accuracy_of([], CATALOGUE)
    assert (found.main_runs.scored, found.main_runs.inside_fraction, found.main_runs.mape_fraction) == (0, None, None)
    assert "none compared" in totals_text(found)


def test_the_text_names_every_row(found: TotalsAccuracy) -> None:
    text = totals_text(found)
    assert all(row.id in text for row in found.rows)
    assert f"{found.main_runs.held_out_inside} of 23 compared" in text


def test_the_command_says_the_same(
    found: TotalsAccuracy, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Command("accuracy", capsys, monkeypatch)
    assert run("--totals").out == f"{totals_text(found)}\n"
    assert json.loads(run("--totals", "--json").out) == to_wire(found)
    refused = run("--totals", "--rows", "rows.csv")
    assert refused.code == 2
    assert "takes no table" in refused.err
