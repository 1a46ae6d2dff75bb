"""Each probe measures on a real GPU, with correct results and physically possible figures.

Every probe runs as a worker runs it, in a process of its own, on the first GPU; collectives on two.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from service.calibration.records import Environment, ProbeRecord, ProbeTask
from tests.gpu.needing import need_gpus
from tests.worker.probing import run_probe

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

REPEATS = 20
OPERATIONS = ("forward", "input_gradient", "weight_gradient")
ATTENTION = {"batch": 2, "heads": 16, "kv_heads": 4, "length": 2048, "width": 128, "causal": True}
BETWEEN = ("rms_norm", "layer_norm", "silu_mul", "gelu", "rope", "cross_entropy")

HOLDS = """
import sys, torch
held = torch.ones(3 * 2**30, dtype=torch.uint8, device="cuda:0")
torch.cuda.synchronize()
print("held", flush=True)
sys.stdin.readline()
"""


def _run(probe: Any, parameters: dict[str, Any], folder: Path, ranks: int = 1) -> ProbeRecord:
    task = ProbeTask(probe=probe, parameters=parameters, timeout_seconds=180.0, ranks=ranks)
    return run_probe(task, folder)


def _left_out(record: ProbeRecord) -> list[dict[str, Any]]:
    left_out: list[dict[str, Any]] = (record.summary or {})["left_out"]
    return left_out


def _environment(record: ProbeRecord) -> Environment:
    assert record.environment is not None
    return record.environment


def _capability(record: ProbeRecord) -> tuple[int, ...]:
    return tuple(map(int, (_environment(record).compute_capability or "0").split(".")))


def test_the_environment_is_told_in_full(tmp_path: Path) -> None:
    name = need_gpus()
    product = {"operation": "forward", "name": "x", "rows": 8192, "columns": 8192, "inner": 8192, "dtype": "bf16"}
    record = _run("gemm", {"products": [product], "repeats": 400}, tmp_path)
    environment = _environment(record)
    assert (environment.kind, environment.device, environment.threads) == ("cuda", name, None)
    assert environment.memory_bytes > 2**30
    for field in ("driver", "runtime", "torch", "nccl", "python", "compute_capability"):
        assert getattr(environment, field), field
    assert environment.other_processes == 0
    assert environment.is_partition is (" MIG " in name)
    if not environment.is_partition:
        assert (environment.power_limit_watts or 0) > 10
        assert 1e8 < (environment.clock_hz or 0) <= (environment.most_clock_hz or 0)
    assert "gpu_idle" not in environment.throttle_reasons


@pytest.mark.parametrize("copies", [1, 4])
def test_products_of_every_format_are_right_and_as_fast_as_a_gpu_can_be(copies: int, tmp_path: Path) -> None:
    need_gpus()
    shape = {"name": "x", "rows": 4096, "columns": 4096, "inner": 2048, "copies": copies}
    formats = ("fp32", "fp16", "bf16", "fp8")
    asked = [{"operation": one, **shape, "dtype": dtype} for dtype in formats for one in OPERATIONS]
    record = _run("gemm", {"products": asked, "repeats": REPEATS}, tmp_path)
    assert record.status == "succeeded", record.reason
    has_fp8 = _capability(record) >= (8, 9) and copies == 1
    assert {row["dtype"] for row in _left_out(record)} == (set() if has_fp8 else {"fp8"})
    assert len(record.measurements) == len(asked) - (0 if has_fp8 else len(OPERATIONS))
    flop = 2 * 4096 * 4096 * 2048 * copies
    assert all(1e12 < flop / one.value < 1e16 and one.repeats == REPEATS for one in record.measurements)


@pytest.mark.parametrize("heads", [4, 16], ids=["shared keys", "own keys"])
def test_attention_of_every_kernel_is_right(heads: int, tmp_path: Path) -> None:
    need_gpus()
    kernels = ("eager", "flash", "efficient", "cudnn")
    asked = [{"kernel": name, **ATTENTION, "kv_heads": heads, "dtype": "bf16"} for name in kernels]
    record = _run("attention", {"kernels": asked, "repeats": REPEATS}, tmp_path)
    assert record.status == "succeeded", record.reason
    measured = {(one.shape["kernel"], one.operation) for one in record.measurements}
    always = ("eager", "efficient", "flash") if _capability(record) >= (8, 0) else ("eager", "efficient")
    assert {(name, way) for name in always for way in ("forward", "backward")} <= measured
    assert not any(row["reason"].startswith("wrong") for row in _left_out(record))
    seconds = {(one.shape["kernel"], one.operation): one.value for one in record.measurements}
    assert seconds["eager", "forward"] > seconds["efficient", "forward"]


def test_kernels_between_products_are_right(tmp_path: Path) -> None:
    need_gpus()
    shape = {"rows": 8192, "width": 4096, "dtype": "bf16"}
    asked = [{"operation": name, **shape, "direction": way} for name in BETWEEN for way in ("forward", "backward")]
    asked += [{"operation": "adamw", **shape, "dtype": "fp32", "direction": "forward", "implementation": one}
              for one in ("fused", "foreach")]  # fmt: skip
    record = _run("elementwise", {"kernels": asked, "repeats": REPEATS}, tmp_path)
    assert (record.status, _left_out(record)) == ("succeeded", [])
    assert len(record.measurements) == len(asked)


def test_memory_moves_as_fast_as_a_gpu_can(tmp_path: Path) -> None:
    need_gpus()
    record = _run("bandwidth", {"sizes_bytes": [2**26, 2**29], "repeats": REPEATS}, tmp_path)
    rates = {(one.operation, one.shape["size_bytes"]): one.value for one in record.measurements}
    assert len(rates) == 8
    assert all(5e10 < rates[name, 2**29] < 5e13 for name in ("copy", "read"))
    assert all(1e9 < rates[name, 2**29] < 1e12 for name in ("host_to_device", "device_to_host"))


def test_a_context_takes_what_the_driver_counts(tmp_path: Path) -> None:
    need_gpus()
    record = _run("context", {}, tmp_path)
    found = {one.operation: one.value for one in record.measurements}
    assert 2**25 < found["bare_context"] <= found["context"] < 2**32
    assert found["matrix_product"] >= 0


def test_gpus_exchange_every_way_and_agree(tmp_path: Path) -> None:
    need_gpus(2)
    ways = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send"]
    parameters = {"operations": ways, "sizes_bytes": [2**10, 2**28], "repeats": REPEATS}
    record = _run("collective", parameters, tmp_path, ranks=2)
    assert (record.status, record.reason) == ("succeeded", None)
    assert {one.shape["backend"] for one in record.measurements} == {"nccl"}
    assert len(record.measurements) == 2 * 2 * len(ways)


def test_communicators_take_memory_on_top(tmp_path: Path) -> None:
    need_gpus(2)
    record = _run("context", {}, tmp_path, ranks=2)
    (found,) = (one for one in record.measurements if one.operation == "communicator")
    assert 2**20 < found.value < 2**33


def test_what_does_not_fit_is_left_out_and_the_rest_is_measured(tmp_path: Path) -> None:
    need_gpus()
    small = {"operation": "forward", "name": "small", "rows": 256, "columns": 256, "inner": 256, "dtype": "bf16"}
    record = _run("gemm", {"products": [{**small, "name": "huge", "rows": 2**21, "columns": 2**20}, small]}, tmp_path)
    assert [one.shape["name"] for one in record.measurements] == ["small"]
    (row,) = _left_out(record)
    assert row["reason"].startswith(("out of memory", "no time was left"))


def test_a_gpu_that_somebody_uses_is_refused(tmp_path: Path) -> None:
    need_gpus()
    with _somebody():
        record = _run("bandwidth", {"sizes_bytes": [2**26]}, tmp_path)
    assert (record.status, record.measurements) == ("skipped", ())
    assert record.reason is not None
    assert "other process" in record.reason


@contextmanager
def _somebody() -> Iterator[None]:
    """A process that holds memory of the GPU."""
    holder = subprocess.Popen([sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield
    finally:
        holder.communicate("\n", timeout=60)
