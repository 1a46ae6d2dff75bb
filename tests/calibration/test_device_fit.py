"""Fits find the constants of a device, predict held-out measurements, and stay within physical bounds."""

from dataclasses import replace

import pytest

from service.calibration.device_fit import fitted_device, score_calibration
from service.calibration.observations import Observed, predicted_value, processor_of
from service.calibration.records import Environment, quality_flag_of
from service.estimator.constants import calibrated
from service.estimator.samples import H100
from tests.calibration.observations import ENVIRONMENT, SIDES, TRUE, observed, others, products


def before(one: Observed) -> float | None:
    return predicted_value(one, H100)


def test_the_constants_of_a_device_are_found_again() -> None:
    found = fitted_device([*products(), *others()], H100, "found")
    assert found.matrix[0].flop_per_s == pytest.approx(TRUE.matrix[0].flop_per_s, rel=0.02)
    assert found.matrix[0].launch_seconds == pytest.approx(TRUE.matrix[0].launch_seconds, rel=0.25)
    assert found.attention[0].forward_fraction == pytest.approx(0.37, rel=0.02)
    assert found.attention[0].backward_fraction == pytest.approx(0.31, rel=0.02)
    assert found.memory_bytes_per_s == pytest.approx(2.7e12, rel=0.02)
    assert found.context_bytes == TRUE.context_bytes
    assert [one.collective for one in found.links] == ["all_reduce", "all_gather"]
    for one, true in zip(found.links, reversed(TRUE.links), strict=True):
        assert one.link_fraction == pytest.approx(true.link_fraction, rel=0.05)
        assert one.fixed_fraction == pytest.approx(true.fixed_fraction, rel=0.25)


def test_one_measurement_gone_wrong_moves_nothing() -> None:
    rows = products()
    wrong = replace(rows[3], measurement=replace(rows[3].measurement, value=50 * rows[3].measurement.value))
    one, other = (fitted_device(some, H100, "x").matrix[0] for some in (rows, [*rows[:3], wrong, *rows[4:]]))
    assert one.flop_per_s == pytest.approx(other.flop_per_s, rel=0.02)


def test_no_rate_is_above_the_peak_and_no_link_above_its_own() -> None:
    rows = [*products(), *others()]
    quick = [replace(one, measurement=replace(one.measurement, value=one.measurement.value / 1e3)) for one in rows]
    found = fitted_device([one for one in quick if one.probe != "bandwidth"], H100, "x")
    assert found.matrix[0].flop_per_s <= (H100.bf16_flop_per_s or 0)
    assert max(one.forward_fraction or 0 for one in found.attention) <= 0.97
    assert all(one.link_fraction <= 1 / 0.8 for one in found.links)


def test_what_was_not_measured_is_left_out_and_predicted_as_before() -> None:
    found = fitted_device(products(), H100, "x")
    assert (found.attention, found.links, found.memory_bytes_per_s, found.context_bytes) == ((), (), None, None)
    gpu = calibrated(H100, found)
    assert all(predicted_value(one, gpu) == before(one) for one in others())
    assert fitted_device([], H100, "x").is_empty


def test_held_out_errors_fall_where_the_device_is_unlike_others_of_its_kind() -> None:
    judgement = score_calibration([*products(noise=0.02), *others()], H100, before)
    assert {part.probe: part.left_out for part in judgement.parts} == {
        "attention": "shape", "bandwidth": "shape", "collective": "shape", "gemm": "shape"
    }  # fmt: skip
    assert judgement.held_out_fraction is not None
    assert judgement.before_fraction is not None
    assert judgement.held_out_fraction < 0.03 < judgement.before_fraction
    for part in judgement.parts:
        assert part.held_out_fraction < part.before_fraction, part.probe


def test_held_out_errors_do_not_fall_where_there_is_nothing_to_learn() -> None:
    rows = [
        replace(one, measurement=replace(one.measurement, value=(before(one) or 1) * (1.3 if index % 2 else 0.7)))
        for index, one in enumerate(products())
    ]
    judgement = score_calibration(rows, H100, before)
    assert (judgement.held_out_fraction or 0) > 0.9 * (judgement.before_fraction or 1)


def test_runs_are_left_out_whole_and_their_rows_have_no_part_in_what_predicts_them() -> None:
    slow = [
        replace(one, measurement=replace(one.measurement, value=2 * one.measurement.value)) for one in products("two")
    ]
    judgement = score_calibration([*products("one"), *slow], H100, before)
    part = judgement.parts[0]
    assert part.left_out == "run"
    assert part.measurements == 2 * 3 * len(SIDES)
    assert part.held_out_fraction == pytest.approx((0.5 + 1.0) / 2, rel=0.1)
    assert part.in_sample_fraction < part.held_out_fraction


def test_nothing_is_judged_by_what_it_was_fitted_on_alone() -> None:
    judgement = score_calibration([observed("context", "context", {}, "bytes")], H100, before)
    assert judgement.parts == ()
    assert judgement.held_out_fraction is None


@pytest.mark.parametrize(
    ("number_format", "instructions", "flop_per_s"),
    [
        ("fp32", (), 8e10),
        ("fp32", ("avx2", "fma"), 3e11),
        ("fp32", ("avx2", "avx512f"), 5e11),
        ("bf16", ("avx2", "avx512_bf16", "avx512f"), 1e12),
        ("bf16", ("amx_bf16", "amx_tile", "avx2", "avx512f"), 5e12),
    ],
)
def test_a_processor_is_a_device_too(number_format: str, instructions: tuple[str, ...], flop_per_s: float) -> None:
    told = Environment(kind="cpu", device="EPYC", devices=1, memory_bytes=8e9, threads=2, instructions=instructions)
    gpu = processor_of(told)
    rows = [
        observed(
            "gemm",
            "forward",
            {"rows": m, "columns": n, "inner": k, "dtype": number_format},
            environment=told,
            off=1.0,
        )
        for m, n, k in SIDES
    ]
    timed = [
        replace(one, measurement=replace(one.measurement, value=2 * m * n * k / flop_per_s + 1e-3))
        for one, (m, n, k) in zip(rows, SIDES, strict=True)
    ]
    judgement = score_calibration(timed, gpu, lambda one: predicted_value(one, gpu))
    assert (judgement.held_out_fraction or 1) < 0.1 < (judgement.before_fraction or 0)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, None),
        ({"throttle_reasons": ("sw_power_cap",)}, None),
        ({"throttle_reasons": ("sw_power_cap", "hw_thermal_slowdown")}, "throttled: the board was too hot"),
        ({"other_processes": 2}, "shared: 2 other process(es) used the device"),
        ({"is_partition": True}, "divided: the device is a slice of a GPU"),
    ],
)
def test_devices_that_were_held_back_are_doubted(changed: dict[str, object], said: str | None) -> None:
    assert quality_flag_of(replace(ENVIRONMENT, **changed)) == said  # type: ignore[arg-type]
