"""Are the estimator's shares of attention kernels the best that the shipped measurements give, and how good is that?"""

from collections.abc import Sequence
from statistics import fmean
from typing import get_args

import numpy as np
import pytest

from service.calibration import attention
from service.calibration.attention import (
    SOURCES,
    UNEQUAL_WIDTH,
    MeasuredAttention,
    fitted_shares,
    is_fitted,
    measured_attention,
    residual_fraction,
    unexplained_fraction,
)
from service.catalogue import shipped_catalogue
from service.estimator.time.attention import (
    HEAD_WIDTHS,
    KERNEL_SHARES,
    FusedName,
)

GPUS = {slug: row.gpu for slug, row in shipped_catalogue().gpus.items()}
ROWS = measured_attention()
FITTED = [row for row in ROWS if is_fitted(row)]
FUSED = [row for row in ROWS if row.kernel != "eager"]
SHARES = fitted_shares(FITTED, GPUS)
KERNELS: tuple[FusedName, ...] = tuple(name for name in get_args(FusedName) if any(row.kernel == name for row in ROWS))


def _mape_percent(rows: Sequence[MeasuredAttention]) -> float:
    return 100 * fmean(abs(float(np.expm1(residual_fraction(row, GPUS)))) for row in rows)


def test_every_measurement_is_of_a_known_gpu_and_source() -> None:
    assert len(ROWS) > 500
    assert {row.gpu for row in ROWS} <= GPUS.keys()
    assert {row.source_key for row in ROWS} == SOURCES.keys()


@pytest.mark.parametrize("kernel", KERNELS)
def test_shares_of_the_estimator_are_the_best_fit(kernel: FusedName) -> None:
    generations = {name[1] for name in SHARES if name[0] == kernel and not name[-1].isdigit()}
    assert generations
    for generation in generations:
        kept = KERNEL_SHARES[kernel][generation]
        found = [SHARES[kernel, generation, direction] for direction in ("forward", "backward")]
        assert [kept.forward_fraction, kept.backward_fraction] == pytest.approx(found, abs=0.0015), generation


@pytest.mark.parametrize("kernel", KERNELS)
def test_widths_of_the_estimator_are_the_best_fit(kernel: FusedName) -> None:
    for index, direction in enumerate(("forward", "backward")):
        for width, both in HEAD_WIDTHS[kernel].items():
            found = SHARES.get((kernel, direction, str(width)))
            if found is not None:
                assert both[index] == pytest.approx(found, abs=0.0015), (direction, width)


def test_what_nobody_measured_is_taken_from_the_nearest() -> None:
    others = [HEAD_WIDTHS[kernel][UNEQUAL_WIDTH][1] for kernel in ("flash-2", "cudnn")]
    assert HEAD_WIDTHS["flash-3"][UNEQUAL_WIDTH][1] == pytest.approx(fmean(others), abs=0.002)
    for kernel in KERNELS:
        assert (kernel, "backward", "256") not in SHARES
        assert HEAD_WIDTHS[kernel][256][1] == HEAD_WIDTHS[kernel][UNEQUAL_WIDTH][1]


@pytest.mark.parametrize(
    ("rows", "percent"),
    [
        pytest.param([row for row in FITTED if row.kernel == kernel and row.gpu.startswith(chip)], percent, id=name)
        for name, kernel, chip, percent in (
            ("flash-2, A100", "flash-2", "a100", 5.2),
            ("flash-2, H100", "flash-2", "h100", 4.1),
            ("flash-2, B200", "flash-2", "b200", 3.3),
            ("flash-3, H100", "flash-3", "h100", 7.3),
            ("FlashAttention-4, B200", "flash-4", "b200", 8.7),
            ("cudnn, H100", "cudnn", "h100", 5.5),
            ("cudnn, H200", "cudnn", "h200", 5.6),
            ("cudnn, B200", "cudnn", "b200", 15.8),
            ("cudnn, GB200", "cudnn", "gb200", 10.1),
            ("cudnn, GB300", "cudnn", "gb300", 4.7),
        )
    ],
)
def test_errors_are_those_that_are_told(rows: Sequence[MeasuredAttention], percent: float) -> None:
    assert _mape_percent(rows) == pytest.approx(percent, abs=0.1)


@pytest.mark.parametrize(("chip", "percent"), [("a100", 6.1), ("h100", 5.3)])
def test_rows_that_had_no_part_in_the_fit_are_predicted(chip: str, percent: float) -> None:
    both = [row for row in FUSED if row.direction == "both" and row.gpu.startswith(chip)]
    causal = [row for row in both if row.causal and row.sequence_tokens >= 1024]
    assert len(causal) == 10
    assert _mape_percent(causal) == pytest.approx(percent, abs=0.1)


def test_a_window_is_predicted_by_the_keys_it_shows() -> None:
    windows = [row for row in FUSED if row.window == 1024 and row.gpu.startswith("h200")]
    assert len(windows) == 10
    assert _mape_percent(windows) < 7


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("FORWARD_KEYS", (100.0, 175.0, 400.0)),
        ("BACKWARD_KEYS", (250.0, 800.0)),
        ("FORWARD_TILES", (1.0, 2.0, 5.0)),
        ("BACKWARD_TILES", (0.2, 2.0)),
    ],
)
def test_what_all_kernels_share_fits_better_than_other_values(
    monkeypatch: pytest.MonkeyPatch, name: str, others: tuple[float, ...]
) -> None:
    kept = unexplained_fraction(FITTED, GPUS)
    for other in others:
        monkeypatch.setattr(attention, name, other)
        assert unexplained_fraction(FITTED, GPUS) > kept, other
