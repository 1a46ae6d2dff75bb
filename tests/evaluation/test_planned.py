"""Published runs beside their best plans: what intervals of plans rest on."""

import pytest

from service.calibration.scores import run_spread, shipped_ends
from service.calibration.tables import describes_main_run, shipped_totals
from service.catalogue import shipped_catalogue
from service.estimator.run.totals import PLAN_RESIDUALS
from service.evaluation.planned import (
    PlannedRun,
    held_out_planned_interval,
    planned_residuals,
    planned_run,
    planned_runs,
)
from tests.evaluation.test_totals import row_like


@pytest.fixture(scope="module")
def runs() -> list[PlannedRun]:
    return planned_runs(shipped_totals(), shipped_catalogue())


def test_every_main_run_has_a_plan(runs: list[PlannedRun]) -> None:
    assert len(runs) == sum(map(describes_main_run, shipped_totals()))


def test_shipped_residuals_are_those_of_planned_runs(runs: list[PlannedRun]) -> None:
    ends = run_spread(planned_residuals(runs))
    assert ends is not None
    assert shipped_ends(ends) == PLAN_RESIDUALS


def test_intervals_of_plans_cover_runs_that_they_never_saw(runs: list[PlannedRun]) -> None:
    planned = [held_out_planned_interval(run, runs) for run in runs]
    inside = [one is not None and one.low <= run.published_gpu_hours <= one.high
              for run, one in zip(runs, planned, strict=True)]  # fmt: skip
    given = [run.gpu_hours.low <= run.published_gpu_hours <= run.gpu_hours.high for run in runs]
    assert sum(inside) >= 0.8 * len(runs)
    assert sum(inside) >= sum(given)


def test_the_best_plan_of_deepseek_is_close_to_its_own_layout(runs: list[PlannedRun]) -> None:
    """Sixteen stages run DualPipe, as published, though two ranks split each layer."""
    (layout,) = (run.layout for run in runs if run.row.text("id") == "S-017")
    assert (layout.tensor, layout.pipeline, layout.reshard_after_forward) == (2, 16, False)
    assert layout.expert in (32, 64, 128)
    assert layout.schedule == "dualpipe"


def test_a_run_alone_has_no_held_out_interval() -> None:
    run = planned_run(row_like("S-028"), shipped_catalogue())
    assert run is not None
    assert held_out_planned_interval(run, [run]) is None


def test_a_run_for_which_no_layout_fits_has_no_plan() -> None:
    assert planned_run(row_like("S-036", n_gpus="48", gpu="A100-SXM 40GB"), shipped_catalogue()) is None
