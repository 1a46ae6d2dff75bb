"""The trace of a profile loads in its viewers, and the summary agrees with it."""

from collections.abc import Sequence
from pathlib import Path
from shutil import copyfile
from typing import Any

import pytest

from service.calibration.records import ProbeRecord, ProbeTask
from service.worker.probes.profile import ROLES, Span, common, length_seconds, merged, summary_of, trace_events, without
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


HOST, MAIN, SIDE = 1, 7, 20


def event(category: str, name: str, start: float, end: float, **more: Any) -> dict[str, Any]:
    """One event of a trace; on stream `stream`, launched by `launch`, within the operation `outer`."""
    stream, launch, outer, copied = (more.get(key) for key in ("stream", "launch", "outer", "copied"))
    given = {"correlation": launch, "External id": outer, "bytes": copied, "device": 0}
    return {
        "ph": "X", "cat": category, "name": name, "ts": start, "dur": end - start,
        "pid": 0 if stream else HOST, "tid": stream or HOST,
        "args": {key: value for key, value in given.items() if value is not None},
    }  # fmt: skip


RUNTIME = "Runtime"
"""What torch-tb-profiler calls calls of CUDA; newer traces say cuda_runtime, which it does not read."""


SECOND = (130, 145, 160, 175)
"""When the kernels of the second step begin: as many as in the first, or TensorBoard's loader takes it for cut off."""


def two_steps(runtime: str = RUNTIME) -> list[dict[str, Any]]:
    """Two steps of 100 us on the host; the device is done with the first 20 us later.

    First step: copies 5, a product of 40 beside which 20 of an all-reduce of 50 run, the last 30 of it alone, then an
    update of 10. Second: a product of 60.
    """
    return [
        event("user_annotation", "ProfilerStep#2", 0, 100),
        event("user_annotation", "ProfilerStep#3", 100, 200),
        event("user_annotation", "enumerate(DataLoader)#_Single.__next__", 1, 4),
        event("cpu_op", "aten::mm", 5, 20, outer=1),
        event("cpu_op", "nccl:all_reduce", 21, 25, outer=2),
        event("cpu_op", "aten::_foreach_add_", 26, 40, outer=3),
        event("cpu_op", "aten::mm", 105, 120, outer=4),
        event(runtime, "cudaMemcpyAsync", 6, 8, launch=10, outer=1),
        event(runtime, "cudaLaunchKernel", 10, 12, launch=11, outer=1),
        event(runtime, "cudaLaunchKernel", 22, 24, launch=12, outer=2),
        event(runtime, "cudaLaunchKernel", 30, 32, launch=13, outer=3),
        event(runtime, "cudaStreamSynchronize", 80, 95, launch=14, outer=3),
        event(runtime, "cudaLaunchKernel", 110, 112, launch=15, outer=4),
        event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 15, 20, stream=MAIN, launch=10, outer=1, copied=4096),
        event("kernel", "sm90_xmma_gemm_bf16", 20, 60, stream=MAIN, launch=11, outer=1),
        event("kernel", "ncclDevKernel_AllReduce_Sum_bf16", 40, 90, stream=SIDE, launch=12, outer=2),
        event("kernel", "void multi_tensor_apply_kernel<FusedAdamMath>", 110, 120, stream=MAIN, launch=13, outer=3),
        *(event("kernel", "sm90_xmma_gemm_bf16", at, at + 15, stream=MAIN, launch=15, outer=4) for at in SECOND),
    ]


def test_steps_of_a_device_by_hand() -> None:
    for runtime in (RUNTIME, "cuda_runtime"):
        summary = summary_of(trace_events(two_steps(runtime)))
        first, second = summary["steps"]
        assert summary["on"] == "device"
        micros = {
            "seconds": 120, "kernel_seconds": 50, "memcpy_seconds": 5, "memset_seconds": 0,
            "communication_seconds": 30, "runtime_seconds": 9, "dataloader_seconds": 0,
            "computing_seconds": 50, "communicating_seconds": 50, "exposed_communication_seconds": 30,
            "could_overlap_seconds": 30, "waiting_for_data_seconds": 3, "device_idle_seconds": 35, "launch_seconds": 6,
        }  # fmt: skip
        for name, expected in micros.items():
            assert first[name] == pytest.approx(expected * 1e-6, abs=1e-12), name
        assert first["launches"] == 3
        assert second["seconds"] == pytest.approx(80e-6)
        assert second["device_idle_seconds"] == pytest.approx(20e-6)


def test_kinds_copies_and_waits_by_hand() -> None:
    summary = summary_of(trace_events(two_steps()))
    assert summary["kinds_seconds"] == {
        "gemm": pytest.approx(100e-6),
        "communication": pytest.approx(50e-6),
        "optimizer": pytest.approx(10e-6),
        "copies": pytest.approx(5e-6),
    }
    assert summary["copies"] == {"host_to_device": {"count": 1, "bytes": 4096, "seconds": pytest.approx(5e-6)}}
    assert summary["synchronisations"] == {"cudaStreamSynchronize": {"count": 1, "seconds": pytest.approx(15e-6)}}


def test_every_moment_of_a_step_counts_once() -> None:
    for step in summary_of(trace_events(two_steps()))["steps"]:
        parts = sum(step[f"{role}_seconds"] for role in ROLES) + step["other_seconds"]
        assert parts == pytest.approx(step["seconds"])


def test_communication_beside_nothing_else_hides_behind_nothing() -> None:
    alone = [
        event("user_annotation", "ProfilerStep#0", 0, 50),
        event("kernel", "ncclDevKernel_AllGather", 10, 40, stream=SIDE),
        event("kernel", "gemm", 0, 4, stream=MAIN),
    ]
    (step,) = summary_of(trace_events(alone))["steps"]
    assert step["exposed_communication_seconds"] == pytest.approx(30e-6)
    assert step["could_overlap_seconds"] == pytest.approx(4e-6)


def test_operations_on_a_processor_count_without_those_inside_them() -> None:
    nested = [
        event("user_annotation", "ProfilerStep#0", 0, 100),
        event("cpu_op", "aten::linear", 0, 30),
        event("cpu_op", "aten::addmm", 5, 25),
        event("user_annotation", "Optimizer.step#AdamW.step", 40, 90),
        event("cpu_op", "aten::sqrt", 50, 60),
    ]
    summary = summary_of(trace_events(nested))
    assert summary["on"] == "host"
    assert summary["kinds_seconds"] == {"optimizer": pytest.approx(50e-6), "gemm": pytest.approx(30e-6)}


def moments(spans: Sequence[Span]) -> set[float]:
    """Half seconds that lie in any of some spans."""
    return {at / 2 for at in range(80) for start, end in spans if start <= at / 2 < end}


def test_spans_are_sets_of_moments() -> None:
    one: list[Span] = [(3, 5), (0, 2), (4, 9), (9, 10)]
    other: list[Span] = [(1, 4), (6, 7), (20, 30)]
    first, second = merged(one), merged(other)
    assert moments(first) == moments(one)
    assert moments(common(first, second)) == moments(one) & moments(other)
    assert moments(without(first, second)) == moments(one) - moments(other)
    assert length_seconds(first) == len(moments(one)) / 2


@pytest.mark.filterwarnings("ignore")
def test_the_loader_of_tensorboard_says_the_same_of_a_device(tmp_path: Path) -> None:
    path = kept(tmp_path / "run", two_steps())
    assert same_as_loader(tmp_path / "run", path) == 2
