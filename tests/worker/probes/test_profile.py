"""The trace of a profile loads in its viewers, and the summary agrees with it."""

from pathlib import Path
from shutil import copyfile
from statistics import median

import pytest

from service.calibration.profiles import ROLES
from service.calibration.records import ProbeRecord, ProbeTask
from tests.calibration.two_steps import two_steps
from tests.worker.probing import need_torch, run_probe
from tests.worker.step_cases import FEW_TOKENS, model_of, parameters_of, resolved_step
from tests.worker.viewers import in_chrome, kept, same_as_loader

TRACE = "trace.json.gz"


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ProbeRecord]:
    """The folder and the record of one profile."""
    need_torch()
    folder = tmp_path_factory.mktemp("profile")
    step = resolved_step(model_of("smollm2-135m", 1, vocab_size=FEW_TOKENS), sequence_length=16)
    parameters = parameters_of(step, depth=1)
    return folder, run_probe(ProbeTask(probe="profile", parameters=parameters, timeout_seconds=100.0), folder)


def test_three_steps_are_profiled_each_moment_once(profiled: tuple[Path, ProbeRecord]) -> None:
    folder, record = profiled
    assert record.status == "succeeded", record.reason
    assert record.summary is not None
    assert record.summary["files"] == [TRACE]
    assert (folder / TRACE).is_file()
    assert len(record.summary["steps"]) == 3
    for step in record.summary["steps"]:
        parts = sum(step[f"{role}_seconds"] for role in ROLES) + step["other_seconds"]
        assert parts == pytest.approx(step["seconds"])
        assert step["waiting_for_data_seconds"] > 0
    assert record.summary["on"] == "host"
    assert {"gemm", "optimizer", "elementwise", "waiting_for_data"} <= set(record.summary["kinds_seconds"])


def test_the_trace_has_the_time_of_the_workers_own_clock(profiled: tuple[Path, ProbeRecord]) -> None:
    summary = profiled[1].summary
    assert summary is not None
    ratios = [step["seconds"] / clock for step, clock in zip(summary["steps"], summary["clock_seconds"], strict=True)]
    assert median(ratios) == pytest.approx(1, rel=0.01)


@pytest.mark.filterwarnings("ignore")
def test_the_loader_of_tensorboard_says_the_same(profiled: tuple[Path, ProbeRecord], tmp_path: Path) -> None:
    path = tmp_path / "run" / "worker.pt.trace.json.gz"
    path.parent.mkdir()
    copyfile(profiled[0] / TRACE, path)
    assert same_as_loader(path.parent, path) == 3


def test_the_viewer_of_chrome_shows_the_same_steps(profiled: tuple[Path, ProbeRecord]) -> None:
    folder, record = profiled
    shown = in_chrome(folder / TRACE)
    assert shown["warnings"] == []
    assert shown["events"] > 1000
    assert record.summary is not None
    told = {f"ProfilerStep#{step['step']}": step["seconds"] for step in record.summary["steps"]}
    assert {name: milliseconds / 1e3 for name, milliseconds in shown["steps"].items()} == pytest.approx(told, rel=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_the_loader_of_tensorboard_says_the_same_of_a_device(tmp_path: Path) -> None:
    path = kept(tmp_path / "run", two_steps())
    assert same_as_loader(tmp_path / "run", path) == 2
