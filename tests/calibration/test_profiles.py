"""Profiles of steps: by hand, of the worker's own traces, and of published ones."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from service.calibration import profiles
from service.calibration.records import fault_of
from service.calibration.traces import collective_of, kind_of, read_trace, trace_events
from service.errors import Refused
from tests.calibration.two_steps import MAIN, RUNTIME, SIDE, event, two_steps

TRACES = Path(__file__).parent / "traces"
CLOCKS: dict[str, list[float]] = json.loads((TRACES / "clocks.json").read_text(encoding="utf-8"))


def profiled(raw: Any, **head: Any) -> profiles.Profile:
    return profiles.profile_of(read_trace(json.dumps({**head, "traceEvents": raw}).encode()))


def of_file(name: str) -> profiles.Profile:
    return profiles.profile_of(read_trace((TRACES / f"{name}.json.gz").read_bytes()))


@pytest.mark.parametrize("name", CLOCKS)
def test_the_workers_own_traces_have_the_steps_of_its_own_clock(name: str) -> None:
    profile = of_file(name)
    assert [step.seconds for step in profile.steps] == pytest.approx(CLOCKS[name], rel=0.01)
    assert profile.step.seconds == sorted(step.seconds for step in profile.steps)[1]
    assert (profile.on, profile.has_steps, profile.updates) == ("host", True, 1)
    seconds = {part.kind: part.seconds for part in profile.parts}
    assert sum(seconds.values()) == pytest.approx(profile.step.seconds)
    assert {"gemm", "attention", "elementwise", "optimizer", "waiting_for_data", "idle"} <= set(seconds)
    assert max(seconds, key=lambda kind: seconds[kind]) in ("gemm", "elementwise", "optimizer")


PUBLISHED = {
    "hta-amd-minitoy": ("device", 2, {"gemm", "idle"}),
    "hta-gloo": ("host", 1, {"exposed_communication", "idle"}),
    "hta-alexnet": ("device", 1, {"gemm", "elementwise", "copies", "idle"}),
    "hta-host": ("host", 1, {"gemm", "optimizer", "idle"}),
    "hta-nccl": ("device", 2, {"gemm", "optimizer", "exposed_communication", "idle"}),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_traces_are_read_and_divided(name: str) -> None:
    on, steps, kinds = PUBLISHED[name]
    profile = of_file(name)
    assert (profile.on, len(profile.steps)) == (on, steps)
    assert kinds <= {part.kind for part in profile.parts}
    assert sum(part.seconds for part in profile.parts) == pytest.approx(profile.step.seconds)
    assert all(part.seconds >= 0 for part in profile.parts)
    assert len(profile.gaps) <= 5
    assert all(gap.seconds > 0 for gap in profile.gaps)


def test_a_kernel_counts_for_the_optimizer_that_launched_it_and_each_moment_once() -> None:
    profile = profiled(
        [
            event("user_annotation", "ProfilerStep#1", 0, 100),
            event("user_annotation", "Optimizer.step#SGD.step", 10, 30),
            event("cpu_op", "aten::add_", 12, 20, outer=1),
            event("cpu_op", "aten::scaled_dot_product_attention", 31, 45),
            event("cpu_op", "aten::bmm", 32, 40, outer=2),
            event("cuda_runtime", "cudaLaunchKernel", 14, 16, launch=1, outer=1),
            event("cuda_runtime", "cudaLaunchKernel", 33, 34, launch=2, outer=2),
            event("kernel", "vectorized_elementwise_kernel", 40, 60, stream=MAIN, launch=1),
            event("kernel", "cutlass_gemm", 60, 70, stream=MAIN, launch=2),
            event("kernel", "ncclDevKernel_ReduceScatter_Sum_bf16", 50, 90, stream=SIDE),
        ]
    )
    seconds = {part.kind: (round(part.seconds * 1e6, 6), part.calls) for part in profile.parts}
    assert seconds == {
        "optimizer": (20, 1), "attention": (10, 1), "exposed_communication": (20, 1), "idle": (50, 0),
    }  # fmt: skip
    (collective,) = profile.collectives
    assert (collective.kind, collective.calls, collective.bytes) == ("reduce_scatter", 1, None)
    assert [collective.seconds, collective.exposed_seconds] == pytest.approx([40e-6, 20e-6])


def test_gaps_name_what_the_host_did() -> None:
    profile = profiled(two_steps())
    longest = profile.gaps[0]
    assert [longest.start_seconds, longest.seconds] == pytest.approx([90e-6, 20e-6])
    assert longest.after is not None
    assert longest.before is not None
    assert (longest.after[:4], longest.before[:9]) == ("nccl", "void mult")
    waits = [
        event("user_annotation", "ProfilerStep#1", 0, 100),
        event("kernel", "gemm", 0, 10, stream=MAIN),
        event("cuda_runtime", "cudaStreamSynchronize", 11, 39),
        event("kernel", "gemm", 40, 50, stream=MAIN),
        event("user_annotation", "enumerate(DataLoader)#_Single.__next__", 50, 95),
    ]
    found = [(gap.kind, gap.host[:10]) for gap in profiled(waits).gaps]
    assert found == [("waiting_for_data", "enumerate("), ("synchronisation", "cudaStream")]


def test_the_host_of_a_step_may_be_ahead_of_its_device() -> None:
    profile = profiled(
        [
            *(event("user_annotation", f"ProfilerStep#{at}", 10 * at, 10 * at + 10) for at in range(3)),
            *(event("user_annotation", "Optimizer.step#SGD.step", 10 * at + 5, 10 * at + 9) for at in range(3)),
            *(event("cuda_runtime", "cudaLaunchKernel", 10 * at + 6, 10 * at + 7, launch=at) for at in range(3)),
            *(
                event("kernel", "vectorized_elementwise", 100 * at, 100 * at + 100, stream=MAIN, launch=at)
                for at in (0, 1, 2)
            ),
        ]
    )
    assert [round(step.seconds * 1e6) for step in profile.steps] == [100, 100, 100]
    assert [(step.launches, step.idle_seconds) for step in profile.steps] == [(1, 0)] * 3
    assert (profile.updates, [part.kind for part in profile.parts if part.seconds]) == (1, ["optimizer"])


def test_products_become_a_record_where_shapes_were_recorded() -> None:
    def product(outer: int, start: float, kind: str = "c10::BFloat16") -> list[dict[str, Any]]:
        op = event("cpu_op", "aten::addmm", start, start + 5, outer=outer)
        op["args"] |= {"Input Dims": [[64], [128, 32], [32, 64]], "Input type": [kind, kind, kind]}
        return [op, event("kernel", "gemm", start + 10, start + 30 + outer, stream=MAIN, outer=outer)]

    raw = [*product(1, 0), *product(2, 100), *product(3, 200), *product(4, 300, "float")]
    device = {"name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85 * 10**9}
    trace = read_trace(json.dumps({"deviceProperties": [device], "traceEvents": raw}).encode())
    (record,) = profiles.product_records(trace)
    (measured,) = record.measurements
    assert measured.shape == {"rows": 128, "columns": 64, "inner": 32, "dtype": "bf16", "copies": 1}
    assert [measured.repeats, measured.value] == [3, pytest.approx(22e-6)]
    assert fault_of("gemm", measured) is None
    assert profiles.product_records(read_trace(json.dumps(raw).encode())) == ()


NAMES = {
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL": "all_reduce",
    "ncclKernel_ReduceScatter_RING_LL_Sum_half": "reduce_scatter",
    "c10d::_allgather_base_": "all_gather",
    "nccl:all_to_all": "all_to_all",
    "ncclDevKernel_SendRecv": "send",
    "gloo:broadcast": "broadcast",
    "nccl:_reduce_oop": "reduce",
}


@pytest.mark.parametrize("name", NAMES)
def test_collectives_by_name(name: str) -> None:
    assert (kind_of(name), collective_of(name)) == ("communication", NAMES[name])


KINDS = {
    "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT": "gemm",
    "aten::addmm": "gemm",
    "aten::bmm": "attention",
    "pytorch_flash::flash_fwd_kernel<...>": "attention",
    "cudnn_generated_fort_native_sdpa_sm90_flash_bprop": "attention",
    "triton_poi_fused_add_mul_0": "elementwise",
    "triton_red_fused__to_copy_native_layer_norm_3": "norm",
    "aten::_log_softmax": "softmax_and_loss",
    "autograd::engine::evaluate_function: EmbeddingBackward0": "embedding",
}


@pytest.mark.parametrize("name", KINDS)
def test_kinds_by_name(name: str) -> None:
    assert kind_of(name) == KINDS[name]


def test_steps_that_overlap_and_operations_that_cross_are_refused() -> None:
    overlapping = [event("user_annotation", f"ProfilerStep#{at}", at, at + 20) for at in (0, 10)]
    crossing = [event("cpu_op", f"aten::op{at}", at, at + 40) for at in (0, 20)]
    many = [event("user_annotation", f"ProfilerStep#{at}", at, at + 1) for at in range(0, 200, 2)]
    for raw, code in ((overlapping, "broken_nesting"), (crossing, "broken_nesting"), (many, "too_long")):
        with pytest.raises(Refused) as refused:
            profiled(raw)
        assert refused.value.problems[0].code == code
        assert refused.value.problems[0].fix


def test_annotations_and_collectives_may_end_after_what_they_began_in() -> None:
    operations = [event("cpu_op", "aten::mm", 20, 60)]
    annotations = [event("user_annotation", f"part {at}", at, at + 40) for at in (0, 30)]
    sent = [event("cpu_op", "c10d::allreduce_", 61, 65), event("cpu_op", "gloo:all_reduce", 62, 90)]
    profile = profiled([*operations, *annotations, *sent])
    seconds = {part.kind: round(part.seconds * 1e6) for part in profile.parts}
    assert seconds == {"gemm": 40, "exposed_communication": 29, "idle": 21}


def test_operations_that_span_every_step_are_refused_in_bounded_time() -> None:
    steps = [event("user_annotation", f"ProfilerStep#{at}", at, at + 1) for at in range(0, 100, 2)]
    spanning = [event("cpu_op", "aten::mm", 0, 100) for _ in range(1000)]
    with pytest.raises(Refused) as refused:
        profiled(steps + spanning)
    assert refused.value.problems[0].code == "broken_nesting"


def test_steps_of_a_device_by_hand() -> None:
    for runtime in (RUNTIME, "cuda_runtime"):
        summary = profiles.summary_of(trace_events(two_steps(runtime)))
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
    summary = profiles.summary_of(trace_events(two_steps()))
    assert summary["kinds_seconds"] == {
        "gemm": pytest.approx(100e-6),
        "communication": pytest.approx(50e-6),
        "optimizer": pytest.approx(10e-6),
        "copies": pytest.approx(5e-6),
    }
    assert summary["copies"] == {"host_to_device": {"count": 1, "bytes": 4096, "seconds": pytest.approx(5e-6)}}
    assert summary["synchronisations"] == {"cudaStreamSynchronize": {"count": 1, "seconds": pytest.approx(15e-6)}}


def test_every_moment_of_a_step_counts_once() -> None:
    for step in profiles.summary_of(trace_events(two_steps()))["steps"]:
        parts = sum(step[f"{role}_seconds"] for role in profiles.ROLES) + step["other_seconds"]
        assert parts == pytest.approx(step["seconds"])


def test_communication_beside_nothing_else_hides_behind_nothing() -> None:
    alone = [
        event("user_annotation", "ProfilerStep#0", 0, 50),
        event("kernel", "ncclDevKernel_AllGather", 10, 40, stream=SIDE),
        event("kernel", "gemm", 0, 4, stream=MAIN),
    ]
    (step,) = profiles.summary_of(trace_events(alone))["steps"]
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
    summary = profiles.summary_of(trace_events(nested))
    assert summary["on"] == "host"
    assert summary["kinds_seconds"] == {"optimizer": pytest.approx(50e-6), "gemm": pytest.approx(30e-6)}


def moments(spans: Sequence[profiles.Span]) -> set[float]:
    """Half seconds that lie in any of some spans."""
    return {at / 2 for at in range(80) for start, end in spans if start <= at / 2 < end}


def test_spans_are_sets_of_moments() -> None:
    one: list[profiles.Span] = [(3, 5), (0, 2), (4, 9), (9, 10)]
    other: list[profiles.Span] = [(1, 4), (6, 7), (20, 30)]
    first, second = profiles.merged(one), profiles.merged(other)
    assert moments(first) == moments(one)
    assert moments(profiles.common(first, second)) == moments(one) & moments(other)
    assert moments(profiles.without(first, second)) == moments(one) - moments(other)
    assert profiles.length_seconds(first) == len(moments(one)) / 2
