"""The process of a probe leaves a record in every case: alone, with other ranks, under torchrun."""

import importlib.util
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import pytest

from service.calibration.records import ProbeName, ProbeTask
from service.units import DIMENSIONS
from service.worker import devices
from service.worker.probe_process import run_task, write_json
from service.worker.probes import context
from service.worker.probing import Place, nodes_of, place_of, rendezvous
from tests.house.source import SERVICE
from tests.worker.probing import need_torch, read_record, run_probe, start_probe
from tests.worker.step_cases import FEW_TOKENS, model_of, parameters_of, resolved_step
from tests.worker.test_devices import TWO, install

SMALL = {"products": [{"operation": "forward", "name": "x", "rows": 8, "columns": 8, "inner": 8, "dtype": "fp32"}]}
SUMS = {"operations": ["all_reduce"], "sizes_bytes": [1024], "repeats": 2}
WAYS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")


def _task(probe: Any, parameters: dict[str, Any], *, ranks: int = 1, timeout_seconds: float = 120.0) -> ProbeTask:
    return ProbeTask(probe=probe, parameters=parameters, timeout_seconds=timeout_seconds, ranks=ranks)


def _in_process(task: ProbeTask, folder: Path) -> Any:
    return run_task(task, folder, Place(), time.monotonic())


def test_every_file_of_the_probes_is_one() -> None:
    files = {path.stem for path in (SERVICE / "worker" / "probes").glob("*.py")} - {"__init__"}
    assert files == set(get_args(ProbeName))


def test_a_probe_tells_what_it_ran_on(tmp_path: Path) -> None:
    need_torch()
    record = run_probe(_task("gemm", {**SMALL, "repeats": 3}), tmp_path)
    assert (record.status, record.reason) == ("succeeded", None)
    (one,) = record.measurements
    assert (one.operation, one.repeats, one.quantity) == ("forward", 3, "seconds")
    environment = record.environment
    assert environment is not None
    assert (environment.kind, environment.devices, environment.nccl) == ("cpu", 1, None)
    assert environment.threads
    assert environment.instructions
    assert environment.memory_bytes > 2**28
    assert environment.torch
    assert environment.python == ".".join(map(str, sys.version_info[:3]))
    assert '"done_fraction": 1.0' in (tmp_path / "progress.json").read_text()


def test_resident_memory_stands_for_a_context_on_a_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_torch()
    from service.worker.probes import context

    monkeypatch.setattr(context, "PROCESSES", 1)
    record = _in_process(_task("context", {}), tmp_path)
    found = {one.operation: one for one in record.measurements}
    assert found.keys() == {"bare_context", "context", "matrix_product"}
    assert 2**25 < found["bare_context"].value <= found["context"].value < 2**32
    assert record.summary == {"counted": "resident memory of a process"}


def test_ranks_of_one_machine_exchange_every_way_and_agree(tmp_path: Path) -> None:
    need_torch()
    record = run_probe(
        _task("collective", {"operations": WAYS, "repeats": 3, "sizes_bytes": [1000, 2**18]}, ranks=2), tmp_path
    )
    assert (record.status, record.reason) == ("succeeded", None)
    where = {"ranks": 2, "nodes": 1, "backend": "gloo"}
    expected = [
        (operation, {"size_bytes": size, **where}, quantity)
        for size in (1000, 2**18)
        for operation in WAYS
        for quantity in ("seconds", "bytes_per_s")
    ]
    assert [(one.operation, one.shape, one.quantity) for one in record.measurements] == expected
    assert all(0 < one.low <= one.value <= one.high and one.repeats == 3 for one in record.measurements)
    assert all((one.relative_error_fraction or 0.0) < 1e-6 for one in record.measurements)


def test_torchrun_may_start_the_ranks(tmp_path: Path) -> None:
    need_torch()
    record = run_probe(_task("collective", SUMS, ranks=2), tmp_path, launcher=TORCHRUN)
    assert (record.status, len(record.measurements)) == ("succeeded", 2)


def test_one_rank_has_nobody_to_exchange_with(tmp_path: Path) -> None:
    need_torch()
    record = _in_process(_task("collective", SUMS), tmp_path)
    assert (record.status, record.measurements) == ("skipped", ())
    assert record.reason.startswith("a collective needs two or more ranks")


def test_what_every_rank_refuses_is_told_once(tmp_path: Path) -> None:
    need_torch()
    for name in ("rendezvous", "record.json", "rank-1.json"):
        (tmp_path / name).write_text("left behind by an attempt before")
    record = run_probe(_task("collective", {**SUMS, "operations": ["gossip"]}, ranks=2), tmp_path)
    assert record.status == "skipped"
    assert record.reason == "no collective gossip; there are all_reduce, all_gather, reduce_scatter, all_to_all, send"


def test_a_rank_that_is_killed_ends_the_others_and_is_told(tmp_path: Path) -> None:
    need_torch()
    with _long_probe(tmp_path) as (process, ranks):
        os.kill(ranks[1], signal.SIGKILL)
        assert process.wait(60) == 1
        _await_end(ranks)
    record = read_record(tmp_path)
    assert record.status == "failed"
    assert record.reason is not None
    assert record.reason.startswith("rank ")


def test_ranks_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    need_torch()
    with _long_probe(tmp_path) as (process, ranks):
        process.kill()
        process.wait(60)
        _await_end(ranks)


@contextmanager
def _long_probe(folder: Path) -> Iterator[tuple[Any, list[int]]]:
    """A probe of two ranks in mid-measurement."""
    task = _task("collective", {**SUMS, "sizes_bytes": [2**10, 2**22], "repeats": 10**6}, ranks=2)
    process = start_probe(task, folder)
    try:
        while not (folder / "progress.json").is_file():
            assert process.poll() is None
            time.sleep(0.05)
        yield process, _children(process.pid)
    finally:
        process.kill()
        process.wait(60)


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return sorted(map(int, text.split()))


def _await_end(pids: list[int]) -> None:
    assert len(pids) == 2
    end = time.monotonic() + 60
    while any(_runs(pid) for pid in pids):
        assert time.monotonic() < end
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def test_a_probe_of_another_release_is_skipped_by_name(tmp_path: Path) -> None:
    need_torch()
    record = _in_process(_task("tarot", {}), tmp_path)
    assert record.status == "skipped"
    assert record.reason.startswith("no probe tarot in this release of the worker; it has context, gemm, ")


def test_what_goes_wrong_is_the_reason(tmp_path: Path) -> None:
    need_torch()
    record = _in_process(_task("gemm", {}), tmp_path)
    assert (record.status, record.reason) == ("failed", "KeyError: 'products'")
    assert record.environment is not None


def test_too_little_memory_is_told_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_torch()
    from service.worker.probes import context

    def exhausted(parameters: object, told: object) -> None:  # noqa: ARG001 - it never comes to them
        raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB\nmore")

    monkeypatch.setattr(context, "run", exhausted)
    record = _in_process(_task("context", {}), tmp_path)
    assert record.status == "failed"
    assert record.reason == (
        "out of memory: CUDA out of memory. Tried to allocate 2.00 GiB; "
        "ask for a smaller micro-batch or sequence, or for a device with more memory"
    )


def test_without_torch_the_record_names_the_one_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", {}.get)
    record = _in_process(_task("gemm", SMALL), tmp_path)
    assert (record.status, record.environment) == ("skipped", None)
    assert record.reason == "torch is not installed where the worker runs: pip install '.[measure]'"
    monkeypatch.setattr(devices, "CHECKOUT", tmp_path)
    installed = "torch is not installed where the worker runs: pip install 'torch>=2.6'"
    assert _in_process(_task("gemm", SMALL), tmp_path).reason == installed


def test_a_gpu_that_torch_cannot_use_is_not_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_torch()
    import torch

    if torch.cuda.is_available():
        pytest.skip("this torch can use the GPU that is here")
    install(tmp_path, gpus=TWO)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv(devices.VISIBLE_GPUS, raising=False)
    record = _in_process(_task("gemm", SMALL), tmp_path)
    assert (record.status, record.measurements) == ("skipped", ())
    assert "cannot use the GPU that driver 550.90.07 tells of" in record.reason
    assert "update the driver, or install a torch built for it" in record.reason
    monkeypatch.setenv(devices.VISIBLE_GPUS, "")
    assert _in_process(_task("gemm", SMALL), tmp_path).status == "succeeded"


def test_a_task_of_one_rank_looks_at_no_variable() -> None:
    assert place_of(1, {"RANK": "3", "WORLD_SIZE": "8"}) == Place()
    assert place_of(8, {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}) == Place(rank=3, ranks=8, local_rank=1)
    assert place_of(4, {"RANK": "3", "WORLD_SIZE": "8"}) is None
    assert nodes_of(8, {"LOCAL_WORLD_SIZE": "2"}) == 4


def test_machines_meet_where_torchrun_says_and_ranks_of_one_in_a_file(tmp_path: Path) -> None:
    assert rendezvous(tmp_path, {"MASTER_ADDR": "10.0.0.1"}) == "env://"
    assert rendezvous(tmp_path, {}) == f"file://{tmp_path}/rendezvous"


HEADS = {"batch": 1, "heads": 2, "kv_heads": 1, "length": 16, "width": 8}
ROWS = {"rows": 8, "width": 16, "dtype": "fp32", "direction": "forward"}
SIDES = {"name": "x", "rows": 8, "columns": 8, "inner": 8, "dtype": "fp32"}

STEP = resolved_step(model_of("smollm2-135m", 1, vocab_size=FEW_TOKENS), sequence_length=16)

SMALL_TASKS: Mapping[ProbeName, dict[str, Any]] = {
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
    assert SMALL_TASKS.keys() == set(get_args(ProbeName))


@pytest.mark.parametrize("probe", SMALL_TASKS)
def test_a_record_reads_back_as_it_was(probe: ProbeName, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_torch()
    monkeypatch.setattr(context, "PROCESSES", 1)
    task = ProbeTask(probe=probe, parameters={"repeats": 2, **SMALL_TASKS[probe]}, timeout_seconds=100.0)
    record = run_task(task, tmp_path, Place(), time.monotonic())
    write_json(asdict(record), tmp_path / "record.json")
    assert read_record(tmp_path) == record
    assert record.status == ("skipped" if probe in CANNOT else "succeeded")
    assert bool(record.measurements) is (probe not in CANNOT | SUMS_UP)
    assert record.environment is not None
    assert {one.quantity for one in record.measurements} <= DIMENSIONS.keys()
