"""Share of peak that an attention kernel reaches, forward and backward. One row a kernel and generation.

FLOP are those that the mask lets through; those of the backward pass are its four products and the scores once again.
"""

from dataclasses import dataclass, replace
from typing import Literal

from service.estimator.constants import calibration_of
from service.estimator.numeric import Amount
from service.estimator.question import Gpu
from service.estimator.time.matrix_products import generation_rates

FusedName = Literal["flash-1", "flash-2", "flash-3", "flash-4", "cudnn"]
"""Kernels that keep no scores."""

_PUBLISHED = "calibration/published/attention.csv"

QUERY_TILE = 128
"""Queries of one head that a kernel works on at once.
Source: Dao 2023, arXiv:2307.08691, section 3.3 (blocks of 64 or 128 rows)."""

FORWARD_KEYS = 250.0
"""Keys whose time a tile of queries costs beside that of its keys: starting, finishing, and its masked corner.
Source: calibration/published/attention.csv, fitted over all kernels."""

BACKWARD_KEYS = 500.0
"""The same of the backward pass. Source: calibration/published/attention.csv, fitted over all kernels."""

FORWARD_TILES = 3.0
"""Tiles a processor whose time is lost because the last ones run alone.
Source: calibration/published/attention.csv, fitted over all kernels."""

BACKWARD_TILES = 0.8
"""The same of the backward pass, which is cut finer.
Source: calibration/published/attention.csv, fitted over all kernels."""

MOST_FRACTION = 0.97
"""No width's share is extrapolated beyond this. Source: definition: no kernel is as fast as the peak."""


@dataclass(frozen=True, slots=True)
class KernelShares:
    """What one fused kernel reaches on one generation of GPUs."""

    forward_fraction: float
    """Share of dense peak over endless keys and tiles, heads of 128, forward."""
    backward_fraction: float
    """The same, backward."""
    source: str
    """Who measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionRate:
    """What one fused kernel reaches on one GPU with heads of one width."""

    forward_fraction: float
    """Share of dense peak over endless keys and tiles, forward."""
    backward_fraction: float
    """The same, backward."""
    wave_queries: int
    """Queries, each head's counted, that the GPU works on at once; 0 where its processors are not known."""


_FLASH_4 = f"{_PUBLISHED}: Dao-AILab/flash-attention#2280, #2605 (FlashAttention-4, which flash_attn runs there)"
_RECALLED_AMPERE = "as Ampere, recalled: the same kernel and instructions; not measured, take it as +-25 %"

KERNEL_SHARES: dict[FusedName, dict[str, KernelShares]] = {
    "flash-1": {
        "Ampere": KernelShares(
            0.36, 0.36, "Dao 2023, arXiv:2307.08691, abstract: 25-40 % of the peak of A100; take it as +-20 %"
        ),
        "Hopper": KernelShares(0.18, 0.20, "as Ampere, in the proportion of flash-2; +-25 %"),
        "Ada": KernelShares(0.36, 0.36, _RECALLED_AMPERE),
        "Blackwell": KernelShares(0.09, 0.10, "as Ampere, in the proportion of flash-2; +-25 %"),
        "Blackwell Ultra": KernelShares(0.09, 0.10, "as Blackwell; not measured, take it as +-25 %"),
        "CDNA3": KernelShares(0.15, 0.15, "as Ampere, in the proportion of flash-2; +-30 %"),
        "CDNA4": KernelShares(0.15, 0.15, "as CDNA3; take it as +-30 %"),
    },
    "flash-2": {
        "Ampere": KernelShares(0.903, 0.652, f"{_PUBLISHED}: MooreThreads/SimuMax@4dcaae5 a100_pcie.json"),
        "Ada": KernelShares(0.903, 0.652, _RECALLED_AMPERE),
        "Hopper": KernelShares(0.438, 0.360, f"{_PUBLISHED}: arXiv:2407.08608, figures 5 and 6"),
        "Blackwell": KernelShares(0.214, 0.181, f"{_PUBLISHED}: Dao-AILab/flash-attention#1589 (B200, heads of 64)"),
        "Blackwell Ultra": KernelShares(0.214, 0.181, "as Blackwell; not measured, take it as +-25 %"),
        "CDNA3": KernelShares(0.38, 0.28, "recalled: both passes 0.30; take it as +-30 %"),
        "CDNA4": KernelShares(0.38, 0.28, "as CDNA3; take it as +-30 %"),
    },
    "flash-3": {
        "Hopper": KernelShares(
            0.775, 0.557, f"{_PUBLISHED}: arXiv:2407.08608, figures 5 and 6; meta-pytorch/tritonbench#1267"
        ),
    },
    "flash-4": {
        "Blackwell": KernelShares(0.643, 0.629, _FLASH_4),
        "Blackwell Ultra": KernelShares(0.643, 0.629, "as Blackwell; not measured, take it as +-25 %"),
    },
    "cudnn": {
        "Ampere": KernelShares(0.903, 0.652, "as flash-2 on it, recalled"),
        "Hopper": KernelShares(
            0.708,
            0.613,
            f"{_PUBLISHED}: arXiv:2407.08608, figures 5 and 6; NVIDIA/cudnn-frontend@3929da2 (H200, cuDNN 9.19)",
        ),
        "Blackwell": KernelShares(
            0.624, 0.528, f"{_PUBLISHED}: NVIDIA/cudnn-frontend@3929da2 (GB200, cuDNN 9.22); SimuMax@4dcaae5 (B200)"
        ),
        "Blackwell Ultra": KernelShares(
            0.817, 0.636, f"{_PUBLISHED}: NVIDIA/cudnn-frontend@3929da2 (GB300, cuDNN 9.22)"
        ),
    },
}
"""Shares by kernel, then by generation, whatever it is paired with."""

UNMEASURED_SHARES = KernelShares(
    0.45,
    0.36,
    "no measurement: FlashAttention-2 on Hopper, a kernel written for the generation before; take it as +-35 %",
)
"""A kernel on a generation without a measurement."""

RUNS_LIKE = dict.fromkeys(("rtx-5090", "rtx-pro-6000-blackwell-server", "rtx-pro-6000-blackwell-workstation"), "Ada")
"""GPUs whose tensor cores take the instructions of another generation than their own.
Source: NVIDIA/cutlass@v3.9 README, compute capability 12.0 (warp-wide products of the Ada kind, not tcgen05)."""

HEAD_WIDTHS: dict[FusedName, dict[int, tuple[float, float]]] = {
    "flash-1": {64: (0.815, 0.879), 128: (1.0, 1.0), 160: (0.806, 0.835), 256: (1.063, 0.835)},
    "flash-2": {64: (0.815, 0.879), 128: (1.0, 1.0), 160: (0.806, 0.835), 256: (1.063, 0.835)},
    "flash-3": {64: (0.674, 0.93), 128: (1.0, 1.0), 160: (1.0, 0.859), 256: (1.226, 0.859)},
    "flash-4": {64: (0.574, 0.93), 128: (1.0, 1.0), 160: (1.0, 0.859), 256: (1.226, 0.859)},
    "cudnn": {64: (0.645, 0.774), 128: (1.0, 1.0), 160: (1.004, 0.883), 256: (1.243, 0.883)},
}
"""Shares of heads of other widths over that of 128, forward and backward; 160 stands for queries of 192, values of 128.
Source: calibration/published/attention.csv; for want of measurements, backward from 160 on the rate of 160, 160 of
flash-3 that of flash-2 and cudnn, flash-1 as flash-2, flash-4 as flash-3 but forward at 64."""


def attention_rate(kernel: FusedName, gpu: Gpu, query_width: int, value_width: int) -> AttentionRate:
    """What a fused kernel reaches on a GPU with heads of some width.

    Between measured widths as far as the mean width lies, below 64 in proportion to it.

    >>> from service.estimator.samples import H100

    >>> attention_rate("cudnn", H100, 128, 128)
    AttentionRate(forward_fraction=0.708, backward_fraction=0.613, wave_queries=16896)
    """
    family = RUNS_LIKE.get(gpu.slug, gpu.architecture.removesuffix(" (Grace)"))
    shares = _measured(KERNEL_SHARES[kernel].get(family, UNMEASURED_SHARES), kernel, gpu)
    forward, backward = _width_shares(kernel, (query_width + value_width) / 2)
    return AttentionRate(
        forward_fraction=min(shares.forward_fraction * forward, MOST_FRACTION),
        backward_fraction=min(shares.backward_fraction * backward, MOST_FRACTION),
        wave_queries=(generation_rates(gpu).processors or 0) * QUERY_TILE,
    )


def _measured(known: KernelShares, kernel: FusedName, gpu: Gpu) -> KernelShares:
    """Shares with those that were measured of the GPU in the place of its generation's."""
    calibration = calibration_of(gpu)
    one = next((one for one in calibration.attention if one.kernel == kernel), None) if calibration else None
    if one is None:
        return known
    return replace(
        known,
        forward_fraction=one.forward_fraction or known.forward_fraction,
        backward_fraction=one.backward_fraction or known.backward_fraction,
    )


def _width_shares(kernel: FusedName, width: float) -> tuple[float, float]:
    """Shares of heads of a width over those of 128, forward and backward."""
    table = HEAD_WIDTHS[kernel]
    low = max((known for known in table if known <= width), default=0)
    high = min((known for known in table if known >= width), default=max(table))
    below = table.get(low, (0.0, 0.0))
    above = table[high]
    part = (width - low) / (high - low) if high > low else 0.0
    return below[0] + part * (above[0] - below[0]), below[1] + part * (above[1] - below[1])


def attention_fraction(rate: AttentionRate, seen_tokens: Amount, queries: Amount, *, backward: bool = False) -> Amount:
    """Share of dense peak that a fused kernel reaches in one pass on one GPU.

    Formula:
        f k / (k + k0) q / (q + x0 S), with k0 = FORWARD_KEYS and x0 = FORWARD_TILES, or those of the backward pass

    Args:
        rate: what the kernel reaches, with f and S = wave_queries
        seen_tokens: keys that a query sees, on average: half a causal sequence, a window once it is full, k [token]
        queries: queries of one launch, each head's counted: sequences x heads x tokens, q [1]
        backward: whether it is the backward pass

    Returns:
        share of dense peak [1]

    Source:
        calibration/published/attention.csv

    >>> rate = AttentionRate(forward_fraction=0.7, backward_fraction=0.6, wave_queries=16384)
    >>> round(attention_fraction(rate, 4096, 32 * 8192), 3), round(attention_fraction(rate, 64, 8 * 128), 3)
    (0.556, 0.003)
    """
    if backward:
        share, keys, tiles = rate.backward_fraction, BACKWARD_KEYS, BACKWARD_TILES
    else:
        share, keys, tiles = rate.forward_fraction, FORWARD_KEYS, FORWARD_TILES
    return share * seen_tokens / (seen_tokens + keys) * queries / (queries + tiles * rate.wave_queries)
