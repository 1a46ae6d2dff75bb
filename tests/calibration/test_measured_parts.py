"""Measured parts of layers of experts, and whole runs of MLPerf, that ship beside the rows that are scored."""

import pytest

from service.calibration.steps import SPARSE
from service.calibration.tables import shipped_table
from service.estimator.time.host import DISPATCH_LAUNCHES, EXPERT_LAUNCHES, LAYER_LAUNCHES, NATIVE_SECONDS

LOCAL_EXPERTS = 128 // 16
"""Experts of Qwen3-30B-A3B over the expert ranks of that run, whose graphs hold the router."""

PARTS = shipped_table("moe_parts")
RUNS = shipped_table("mlperf_runs")


def test_every_part_has_a_value_and_a_source() -> None:
    assert [row for row in PARTS if not all(row[name] for name in ("quantity", "value", "source"))] == []


def test_a_layer_without_graphs_bounds_the_host() -> None:
    (busy,) = [row for row in PARTS if row["quantity"].startswith("GPU active union")]
    layers, step_seconds = 3072, float(busy["value"].split()[-1])
    (launch,) = [one for one in SPARSE if one.field == "host_launch_seconds"]
    assert f"{layers:,} layers" in launch.source
    launched = LAYER_LAUNCHES + DISPATCH_LAUNCHES["flex"]
    experts = LOCAL_EXPERTS * EXPERT_LAUNCHES * NATIVE_SECONDS
    assert launched * launch.high + experts < step_seconds / layers


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run['org']}-{run['system']}-{run['benchmark']}")
def test_hours_of_a_run_are_its_seconds_on_all_its_gpus(run: dict[str, str]) -> None:
    hours = float(run["run_seconds_median"]) * int(run["n_gpus"]) / 3600
    assert float(run["gpu_hours"]) == pytest.approx(hours, rel=0.01)
    assert run["source"].startswith("mlcommons/training_results")
