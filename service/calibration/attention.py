"""Published attention kernels, and the shares of peak that fit them best.

The logarithm of a share is a sum: one term for the kernel, generation and pass, one for the width of its heads, and
the two ramps over keys and tiles, whose constants all kernels share. So the shares are a linear least-squares fit. Rows
with a causal mask count in full, as training has one. Without it only long sequences are read, and count less: without
masked corners short ones run faster. Rows that time both passes together, windows and eager attention are left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, get_args

import numpy as np

from service.calibration.tables import shipped_table
from service.estimator.question import AttentionName, Gpu
from service.estimator.time.attention import (
    BACKWARD_KEYS,
    BACKWARD_TILES,
    FORWARD_KEYS,
    FORWARD_TILES,
    QUERY_TILE,
    FusedName,
    attention_fraction,
    attention_rate,
)
from service.estimator.time.matrix_products import generation_rates

SOURCES = {
    "flash-2-paper": "Dao 2023, arXiv:2307.08691, figures 4 and 7, numbers over the bars, as in "
    "Dao-AILab/flash-attention@0251105 assets/flash2_{a100,h100}_fwd_bwd_benchmark.png, read 2026-11",
    "flash-3-paper": "Shah et al. 2024, arXiv:2407.08608, figures 5 (as in Dao-AILab/flash-attention@0251105 "
    "assets/flash3_fp16_fwd.png) and 6, numbers over the bars, read 2026-11",
    "flash-2-b200": "Dao-AILab/flash-attention#1589, flash_attn 2.7.4 on B200, read 2026-11",
    "flash-4": "Dao-AILab/flash-attention#2280 and #2605, FlashAttention-4 on a data-centre Blackwell, taken for B200; "
    "read 2026-11",
    "tritonbench": "meta-pytorch/tritonbench#1267, FlashAttention-3 on H100, read 2026-11",
    "cudnn-frontend": "NVIDIA/cudnn-frontend@3929da2 benchmark/sdpa_benchmark_training/results, bf16, cuDNN 9.19 on "
    "H200, 9.22 on GB200 and GB300, read 2026-11",
    "simumax": "MooreThreads/SimuMax@4dcaae5 configs/system/{a100_pcie,b200_bf16_ceperm}.json, halved for the mask; "
    "read 2026-11",
}
"""Sources by the key of a row."""

LONG_TOKENS = 4096
"""Shortest sequence that is read without a causal mask."""

TRAINING_TOKENS = 2048
"""Shortest sequence that counts in full."""

SMALL_WEIGHT = 0.3
"""Weight of the others."""

UNEQUAL_WIDTH = 160
"""Width in the fit of heads with queries of 192 and values of 128."""

PassName = Literal["forward", "backward", "both"]
Gpus = Mapping[str, Gpu]
"""GPUs by slug."""

Term = tuple[str, ...]
"""Subject of a number of the fit: kernel, generation and pass, or kernel, pass and width."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredAttention:
    """One measured attention kernel; its FLOP are those inside the mask."""

    source_key: str
    """Key of its source in SOURCES."""
    gpu: str
    """Slug of the GPU."""
    kernel: AttentionName
    """The kernel."""
    direction: PassName
    """Timed pass."""
    causal: bool
    """Whether a query attends to earlier keys only."""
    window: int | None
    """Most keys of a query."""
    widths: tuple[int, int]
    """Widths of a query and of a value head."""
    sequence_tokens: int
    """Tokens of a sequence."""
    heads: int
    """Query heads of all its sequences."""
    flop_per_s: float
    """Reached rate."""

    @property
    def seen_tokens(self) -> float:
        """Keys of a query on average [token]."""
        tokens, window = self.sequence_tokens, self.window
        if not self.causal:
            return tokens
        return tokens / 2 if window is None or window >= tokens else window - window**2 / (2 * tokens)

    @property
    def queries(self) -> int:
        """Queries of all heads [1]."""
        return self.heads * self.sequence_tokens


@cache
def measured_attention() -> tuple[MeasuredAttention, ...]:
    """The measured attention kernels that the package ships."""
    return tuple(map(_measured, shipped_table("attention")))


def _measured(row: Mapping[str, str]) -> MeasuredAttention:
    """One row of the table."""
    return MeasuredAttention(
        source_key=row["source_key"],
        gpu=row["gpu"],
        kernel=next(name for name in get_args(AttentionName) if name == row["kernel"]),
        direction=next(name for name in get_args(PassName) if name == row["pass"]),
        causal=row["causal"] == "1",
        window=int(row["window"]) if row["window"] else None,
        widths=(int(row["query_width"]), int(row["value_width"])),
        sequence_tokens=int(row["sequence"]),
        heads=int(row["sequences"]) * int(row["heads"]),
        flop_per_s=float(row["tflop_per_s"]) * 1e12,
    )


def fused_name(kernel: AttentionName) -> FusedName | None:
    """The fused kernel of that name.

    >>> fused_name("cudnn"), fused_name("eager")
    ('cudnn', None)
    """
    return next((name for name in get_args(FusedName) if name == kernel), None)


def is_fitted(row: MeasuredAttention) -> bool:
    """Whether a row is part of the fit."""
    long_enough = row.causal or row.sequence_tokens >= LONG_TOKENS
    return fused_name(row.kernel) is not None and row.window is None and row.direction != "both" and long_enough


def residual_fraction(row: MeasuredAttention, gpus: Gpus) -> float:
    """Residual of the estimator, ln(predicted / measured)."""
    gpu, kernel = gpus[row.gpu], fused_name(row.kernel)
    if kernel is None or gpu.bf16_flop_per_s is None:
        return float("nan")
    rate = attention_rate(kernel, gpu, *row.widths)
    forward = attention_fraction(rate, row.seen_tokens, row.queries)
    backward = attention_fraction(rate, row.seen_tokens, row.queries, backward=True)
    share = {"forward": forward, "backward": backward, "both": 3.5 / (1 / forward + 2.5 / backward)}[row.direction]
    return float(np.log(share * gpu.bf16_flop_per_s / row.flop_per_s))


def fitted_shares(rows: Sequence[MeasuredAttention], gpus: Gpus) -> dict[Term, float]:
    """The best shares of peak over endless keys and tiles for some rows."""
    terms = [_terms(row, gpus[row.gpu]) for row in rows]
    names = sorted({name for own in terms for name in own})
    counted = np.array([[float(name in own) for name in names] for own in terms])
    seen = np.array([_log_fraction(row, gpus[row.gpu]) for row in rows])
    weights = np.sqrt([_weight_fraction(row) for row in rows])
    solved = np.linalg.lstsq(counted * weights[:, None], seen * weights, rcond=None)[0]
    return {name: float(np.exp(value)) for name, value in zip(names, solved, strict=True)}


def unexplained_fraction(rows: Sequence[MeasuredAttention], gpus: Gpus) -> float:
    """The weighted mean square of the residuals of the best shares."""
    shares = fitted_shares(rows, gpus)
    results = [sum(np.log(shares[name]) for name in _terms(row, gpus[row.gpu])) for row in rows]
    left = np.array(results) - [_log_fraction(row, gpus[row.gpu]) for row in rows]
    return float(np.average(left**2, weights=[_weight_fraction(row) for row in rows]))


def _terms(row: MeasuredAttention, gpu: Gpu) -> tuple[Term, ...]:
    """Factors of a row's share."""
    query, value = row.widths
    width = query if query == value else UNEQUAL_WIDTH
    base: Term = (row.kernel, gpu.architecture.removesuffix(" (Grace)"), row.direction)
    return (base,) if width == QUERY_TILE else (base, (row.kernel, row.direction, str(width)))


def _log_fraction(row: MeasuredAttention, gpu: Gpu) -> float:
    """Logarithm of a row's share of peak without the ramps."""
    keys, tiles = (FORWARD_KEYS, FORWARD_TILES) if row.direction == "forward" else (BACKWARD_KEYS, BACKWARD_TILES)
    wave = (generation_rates(gpu).processors or 0) * QUERY_TILE
    ramps = row.seen_tokens / (row.seen_tokens + keys) * row.queries / (row.queries + tiles * wave)
    return float(np.log(row.flop_per_s / (gpu.bf16_flop_per_s or np.nan) / ramps))


def _weight_fraction(row: MeasuredAttention) -> float:
    """Weight of a row."""
    return (1.0 if row.causal else SMALL_WEIGHT) * (1.0 if row.sequence_tokens >= TRAINING_TOKENS else SMALL_WEIGHT)
