"""Does every probe leave a record that reads back as it was, its fields and their types checked?"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pytest

from service.calibration.records import ProbeName, ProbeTask
from service.units import DIMENSIONS
from service.worker.probe_process import RankTask, measured, write_record
from service.worker.probes import context
from service.worker.ranks import Place
from tests.worker.probing import need_torch, read_record
from tests.worker.step_cases import FEW_TOKENS, model_of, parameters_of, resolved_step

HEADS = {"batch": 1, "heads": 2, "kv_heads": 1, "length": 16, "width": 8}
ROWS = {"rows": 8, "width": 16, "dtype": "fp32", "direction": "forward"}
SIDES = {"name": "x", "rows": 8, "columns": 8, "inner": 8, "dtype": "fp32"}

STEP = resolved_step(model_of("smollm2-135m", 1, vocab_size=FEW_TOKENS), sequence_length=16)

SMALL: Mapping[ProbeName, dict[str, Any]] = {
    "context": {},
    "gemm": {"products": [{"operation": "forward", **SIDES}, {"operation": "forward", **SIDES, "dtype": "fp8"}]},
    "attention": {"kernels": [{"kernel": "flash", **HEADS, "dtype": "fp32", "causal": True}]},
    "bandwidth": {"sizes_bytes": [4096]},
    "elementwise": {"kernels": [{"operation": "gelu", **ROWS}, {"operation": "adamw", **ROWS}]},
    "collective": {"operations": ["send"], "sizes_bytes": [64]},
    "step": parameters_of(STEP, depths=[1], steps=3, timed_steps=1),
    "profile": parameters_of(STEP, depth=1),
}
"""The least that each probe can be asked for."""

CANNOT = {"collective"}
"""Probes that one rank cannot run."""

SUMS_UP = {"profile"}
"""Probes that leave a summary, and no measurements."""


def test_no_probe_is_forgotten() -> None:
    assert SMALL.keys() == set(get_args(ProbeName))


@pytest.mark.parametrize("probe", SMALL)
def test_a_record_reads_back_as_it_was(probe: ProbeName, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_torch()
    monkeypatch.setattr(context, "PROCESSES", 1)
    task = ProbeTask(probe=probe, parameters={"repeats": 2, **SMALL[probe]}, timeout_seconds=100.0)
    record = measured(RankTask(task=task, folder=tmp_path, place=Place(), started_seconds=time.monotonic()))
    write_record(record, tmp_path / "record.json")
    assert read_record(tmp_path) == record
    assert record.status == ("skipped" if probe in CANNOT else "succeeded")
    assert bool(record.measurements) is (probe not in CANNOT | SUMS_UP)
    assert record.environment is not None
    assert {one.quantity for one in record.measurements} <= DIMENSIONS.keys()
