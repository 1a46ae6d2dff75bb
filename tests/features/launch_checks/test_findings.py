"""Each rule of the verdict finds its fault, and nothing in a sound run."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from service.answers.launch_checks import Compared, Deepened, MeasuredValue, Outlook, ProbeAnswer
from service.calibration.records import Environment, ProbeName, ProbeRecord, ProbeStatus
from service.estimator.answer import Interval
from service.features.launch_checks.findings import RULES, Findings, at_full_depth, compared_probe, launch_verdict
from service.features.launch_checks.targets import Expected
from service.worker.probing import Case, PreparedRun, allowed_error_fraction, time_cases
from tests.worker.probing import need_torch, told

FITS = Outlook(
    verdict="fits", oom_probability_fraction=0.0, device_peak_bytes=Interval(9e9, 10e9, 11e9, "analytic"),
    usable_bytes=20e9, step_seconds=Interval(0.9, 1.0, 1.1, "analytic"),
    mfu_fraction=Interval(0.3, 0.4, 0.5, "analytic"), gpu_hours=None, cost_usd=None,
)  # fmt: skip
H100 = Environment(
    kind="cuda", device="NVIDIA H100 80GB HBM3", devices=8, memory_bytes=85e9, power_limit_watts=700.0,
    throttle_reasons=("gpu_idle", "sw_power_cap"),
)  # fmt: skip


def took(ratio: float, *, error: float = 1e-3, quantity: str = "seconds", dtype: str = "bf16") -> Compared:
    """A measurement that is some times as large as predicted."""
    return Compared(
        operation="forward", shape={"name": "mlp.up", "dtype": dtype}, quantity=quantity,
        measured=MeasuredValue(low=ratio, value=ratio, high=ratio, repeats=20),
        predicted=Interval(0.9, 1.0, 1.1, "analytic"), ratio=ratio, count=2.0, relative_error_fraction=error,
    )  # fmt: skip


def probe(name: ProbeName, *measured: Compared, status: ProbeStatus = "succeeded", **said: Any) -> ProbeAnswer:
    told = {"reason": None, "done_fraction": 1.0, "seconds": 1.0, "summary": None, **said}
    return ProbeAnswer(probe=name, status=status, measurements=measured, **told)


def without(*codes: str) -> dict[str, Any]:
    """A summary that tells of what was not measured."""
    rows = [{"operation": "forward", "kernel": "flash", "code": code, "reason": f"it is {code}"} for code in codes]
    return {"left_out": rows}


def memory(ratio: float) -> Deepened:
    return Deepened(
        quantity="allocated_peak", depths=(1, 2), layers=30, each_layer=1.0, measured=ratio, predicted=1.0, ratio=ratio
    )


SOUND = Findings(
    probes=(probe("gemm", took(1.05)), probe("bandwidth", took(1.0, quantity="bytes_per_s"))), environments=(H100,),
    comparable=True, gpu="h100-sxm5-80gb", rated_watts=700.0, outlook=FITS, depths=(memory(1.0),),
)  # fmt: skip

Changed = Callable[[Findings], Findings]


def on(**said: Any) -> Changed:
    """Measured elsewhere, or under other conditions."""
    return lambda found: replace(found, environments=(replace(H100, **said),))


def beside(*probes: ProbeAnswer) -> Changed:
    """With further probes."""
    return lambda found: replace(found, probes=(*found.probes, *probes))


FOUND: Mapping[str, tuple[Changed, ...]] = {
    "out_of_memory": (lambda found: replace(found, outlook=replace(FITS, verdict="out_of_memory")),),
    "measured_memory_exceeds": (lambda found: replace(found, depths=(memory(2.1),)),),
    "step_out_of_memory": (beside(probe("step", status="failed", reason="CUDA out of memory: 3 GiB")),),
    "wrong_results": (
        beside(probe("attention", took(1.0), summary=without("cannot_run", "wrong_result"))),
        beside(probe("collective", summary=without("wrong_result"))),
    ),
    "driver_too_old": (beside(probe("context", status="skipped", reason="the driver is too old for this torch")),),
    "broken_rate": (
        beside(probe("attention", took(2.0))),
        beside(probe("collective", took(0.4, quantity="bytes_per_s"))),
    ),
    "at_risk": (lambda found: replace(found, outlook=replace(FITS, verdict="at_risk")),),
    "measured_memory_tight": (lambda found: replace(found, depths=(memory(1.95),)),),
    "slower": (beside(probe("attention", took(1.2))),),
    "throttled": (
        on(throttle_reasons=("hw_thermal_slowdown",)),
        on(power_limit_watts=500.0),
    ),
    "device_busy": (on(other_processes=2),),
    "partition": (on(is_partition=True),),
    "probe_failed": (beside(probe("profile", status="failed", reason="it broke")),),
    "probe_skipped": (beside(probe("profile", status="skipped", reason="no such thing here")),),
    "impossible_value": (lambda found: replace(found, impossible=("gemm forward: impossible",)),),
    "nothing_measured": (
        beside(probe("collective", reason="3 not measured: no time was left", summary=without("no_time"))),
        beside(probe("profile", reason="it left no summary")),
        beside(probe("step", status="cancelled", reason="the check ended before it reported anything")),
    ),
    "not_comparable": (lambda found: replace(found, comparable=False),),
    "network_unmeasured": (lambda found: replace(found, nodes=2),),
    "nothing_compared": (lambda found: replace(found, probes=(), depths=()),),
}
"""What each rule finds, every way of it."""


def test_where_all_is_well_it_is_go() -> None:
    verdict, (reason,) = launch_verdict(SOUND)
    assert (verdict, reason.code) == ("go", "as_predicted")


def test_every_rule_is_tried() -> None:
    assert [*FOUND] == [*RULES]
    assert "go" not in {verdict for verdict, _ in RULES.values()}


@pytest.mark.parametrize(
    ("code", "place"), [(code, place) for code, ways in FOUND.items() for place in range(len(ways))]
)
def test_a_rule_finds_what_it_looks_for(code: str, place: int) -> None:
    verdict, reasons = launch_verdict(FOUND[code][place](SOUND))
    found = [reason for reason in reasons if reason.code == code]
    assert len(found) == 1
    assert (found[0].verdict, found[0].fix) == RULES[code]
    assert found[0].message
    assert verdict == reasons[0].verdict != "go"


def test_a_probe_that_does_not_succeed_never_says_go() -> None:
    for status in ("failed", "skipped"):
        for reason in (None, "anything"):
            assert launch_verdict(beside(probe("context", status=status, reason=reason))(SOUND))[0] != "go"


def same(ready: PreparedRun) -> PreparedRun:
    return ready


def test_what_a_worker_leaves_out_as_wrong_is_no_go_and_what_is_only_rough_is_go(tmp_path: Path) -> None:
    need_torch()
    allowed = allowed_error_fraction("bf16")
    verdicts = {}
    for error in (0.9 * allowed, 1.1 * allowed, float("nan")):
        ready = PreparedRun(run=lambda: None, error_fraction=partial(float, error))
        case = Case(
            operation="forward", shape={"name": "mlp.up", "dtype": "bf16"}, amount=1.0, prepare=partial(same, ready),
            allowed_error_fraction=allowed,
        )  # fmt: skip
        found = time_cases([case], told(tmp_path), repeats=2)
        written = asdict(ProbeRecord(probe="gemm", status="succeeded", **asdict(found)))
        record = TypeAdapter(ProbeRecord).validate_json(json.dumps(written, allow_nan=False))
        verdicts[error], reasons = launch_verdict(beside(compared_probe(record, ()))(SOUND))
    assert [*verdicts.values()] == ["go", "no-go", "no-go"]
    assert reasons[0].code == "wrong_results"
    assert reasons[0].message.startswith("mlp.up forward: wrong result, off by nan")


def test_a_collective_between_nodes_measures_the_network() -> None:
    between = replace(took(1.0, quantity="bytes_per_s"), shape={"ranks": 16, "nodes": 2})
    assert launch_verdict(beside(probe("collective", between))(replace(SOUND, nodes=4)))[0] == "go"


def test_memory_of_another_attention_is_no_word_on_the_job_s() -> None:
    findings = replace(SOUND, depths=(memory(2.1),))
    assert launch_verdict(findings)[0] == "no-go"
    assert launch_verdict(replace(findings, judges_memory=False))[0] == "go"


def test_what_a_device_lacks_beside_what_it_has_is_go() -> None:
    rest = probe("attention", took(1.0), summary=without("cannot_run", "out_of_memory", "no_time"))
    assert launch_verdict(beside(rest)(SOUND))[0] == "go"


def test_a_summary_that_is_odd_is_passed_over() -> None:
    for odd in ({"left_out": None}, {"left_out": 3}, {"left_out": ["x", {}]}):
        assert launch_verdict(beside(probe("attention", took(1.0), summary=odd))(SOUND))[0] == "go"


def test_the_worst_reason_comes_first() -> None:
    worse = beside(probe("attention", took(3.0)), probe("profile", status="failed"))(SOUND)
    verdict, reasons = launch_verdict(replace(worse, comparable=False))
    assert (verdict, [reason.verdict for reason in reasons]) == ("no-go", ["no-go", "caution", "caution"])


def test_a_small_product_far_off_does_not_outweigh_a_large_one() -> None:
    small = replace(took(5.0), predicted=Interval(0.0009, 0.001, 0.0011, "analytic"), ratio=5.0)
    small = replace(small, measured=MeasuredValue(low=0.005, value=0.005, high=0.005, repeats=20))
    assert launch_verdict(beside(probe("attention", took(1.0), small))(SOUND))[0] == "go"


def compared_at(depth: int, value: float, predicted: float | None, step: int = 3) -> Compared:
    interval = None if predicted is None else Interval(predicted, predicted, predicted, "analytic")
    return Compared(
        operation="allocated_peak", shape={"depth": depth, "step": step}, quantity="bytes",
        measured=MeasuredValue(low=value, value=value, high=value, repeats=1), predicted=interval, ratio=None,
        count=None, relative_error_fraction=None,
    )  # fmt: skip


def whole(predicted: float | None) -> tuple[Expected, ...]:
    interval = None if predicted is None else Interval(predicted, predicted, predicted, "analytic")
    shape = {"depth": 12, "step": 3}
    return (Expected(probe="step", operation="allocated_peak", shape=shape, quantity="bytes", predicted=interval),)


def test_without_a_prediction_it_grows_evenly() -> None:
    (found,) = at_full_depth([compared_at(1, 10.0, None), compared_at(2, 13.0, None)], whole(None))
    assert (found.each_layer, found.measured, found.predicted, found.ratio) == (3.0, 43.0, None, None)


def test_a_right_prediction_of_both_depths_is_right_of_the_whole_however_it_grows() -> None:
    (found,) = at_full_depth([compared_at(1, 10.0, 10.0), compared_at(2, 13.0, 13.0)], whole(100.0))
    assert (found.measured, found.ratio) == (100.0, 1.0)


def test_what_a_prediction_misses_of_a_layer_it_misses_of_each() -> None:
    (found,) = at_full_depth([compared_at(1, 11.0, 10.0), compared_at(2, 15.0, 13.0)], whole(100.0))
    assert found.measured == 112.0


def test_the_last_step_counts() -> None:
    first = [compared_at(1, 1.0, None, step=1), compared_at(2, 2.0, None, step=1)]
    (found,) = at_full_depth([*first, compared_at(1, 10.0, None), compared_at(2, 13.0, None)], whole(None))
    assert found.measured == 43.0


def test_one_depth_and_noise_say_nothing() -> None:
    assert at_full_depth([compared_at(1, 10.0, None)], whole(None)) == ()
    assert at_full_depth([compared_at(1, 10.0, None), compared_at(2, 9.0, None)], whole(None)) == ()
