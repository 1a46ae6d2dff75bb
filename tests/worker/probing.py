"""Probes for tests, in this process or in one of their own, whose record is read strictly."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from service.calibration.records import Measurement, ProbeRecord, ProbeTask
from service.worker.probing import ProbeContext, ProbeResult
from tests.house.source import ROOT
from tests.needing import need

RECORDS = TypeAdapter(ProbeRecord)
PATIENCE_SECONDS = 200.0
ALONE = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def need_torch() -> None:
    """Skip what measures with torch where there is none, or fail where nothing may be skipped.

    One thread computes: other tests run at the same time, and threads that wait for each other wait for those too.
    """
    need("torch")
    import torch

    torch.set_num_threads(1)


def told(folder: Path, left_seconds: float = PATIENCE_SECONDS, device: str = "cpu") -> ProbeContext:
    """What a probe is told, with nobody to tell how far it is."""
    return ProbeContext(device=device, folder=folder, end_seconds=time.monotonic() + left_seconds, report=tell_nobody)


def tell_nobody(done_fraction: float, note: str) -> None:
    """Takes what a probe reports, if it is what it should be."""
    assert 0 <= done_fraction <= 1
    assert note


def found_by(probe: str, parameters: Mapping[str, Any], folder: Path, device: str = "cpu") -> ProbeResult:
    """What a probe finds in this process."""
    found: ProbeResult = import_module(f"service.worker.probes.{probe}").run(parameters, told(folder, device=device))
    return found


def run_probe(task: ProbeTask, folder: Path, *, launcher: Sequence[str] = (), **variables: str) -> ProbeRecord:
    """The record of a task that a process of its own carried out."""
    command = [sys.executable, *launcher, "-m", "service.worker.probe_process", *map(str, _written(task, folder))]
    environment = {**os.environ, **ALONE, **variables}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
    )
    record = read_record(folder)
    assert (done.returncode == 0) is (record.status == "succeeded"), done.stderr
    return record


def start_probe(task: ProbeTask, folder: Path) -> subprocess.Popen[bytes]:
    """A process that carries a task out."""
    command = [sys.executable, "-m", "service.worker.probe_process", *map(str, _written(task, folder))]
    return subprocess.Popen(command, env={**os.environ, **ALONE})


def _written(task: ProbeTask, folder: Path) -> tuple[Path, Path]:
    file = folder / "task.json"
    file.write_text(json.dumps(asdict(task)), encoding="utf-8")
    return file, folder


def read_record(folder: Path) -> ProbeRecord:
    """The record that a process left, its fields and their types checked."""
    return RECORDS.validate_json((folder / "record.json").read_text(encoding="utf-8"), strict=True)


def sound(measurement: Measurement, repeats: int) -> bool:
    """Whether a measurement is in order and its result was right."""
    in_order = 0 < measurement.low <= measurement.value <= measurement.high
    return in_order and measurement.repeats == repeats and measurement.relative_error_fraction is not None
