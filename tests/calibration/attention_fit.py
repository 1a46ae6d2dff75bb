"""Published attention kernels, and the shares of the peak that fit them best.

The logarithm of a share is a sum, of one term for kernel, generation and pass, one for the width of heads, and two
ramps over keys and tiles that all kernels share. So the shares are a linear least-squares fit. Rows with a causal mask
count in full; without it only long sequences are read, and count less: without masked corners short ones run faster.
Rows that time both passes together, windows and eager attention are left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, get_args

import numpy as np

from service.calibration.tables import shipped_records, shipped_toml
from service.estimator.question import AttentionName, Gpu
from service.estimator.time import rates
from tests.calibration.product_fit import Gpus

ATTENTION_SOURCES: Mapping[str, str] = shipped_toml("sources")["attention"]
"""Sources by the key of a row."""

LONG_TOKENS = 4096
TRAINING_TOKENS = 2048

UNMASKED_WEIGHT = 0.3

UNEQUAL_WIDTH = 160
"""Width in the fit of heads with queries of 192 and values of 128."""

PassName = Literal["forward", "backward", "both"]

Term = tuple[str, ...]
"""Subject of a number of the fit: kernel, generation and pass, or kernel, pass and width."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredAttention:
    """One measured attention kernel; its FLOP are those inside the mask."""

    source_key: str
    gpu: str
    kernel: AttentionName
    direction: PassName
    causal: bool
    """Whether a query attends to earlier keys only."""
    window: int | None
    """Most keys of a query."""
    query_width: int
    value_width: int
    sequence_tokens: int
    sequences: int
    heads: int
    """Query heads of each of its sequences."""
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
        return self.sequences * self.heads * self.sequence_tokens


@cache
def measured_attention() -> tuple[MeasuredAttention, ...]:
    """The measured attention kernels that the package ships."""
    return shipped_records(MeasuredAttention, "attention", flop_per_s=("tflop_per_s", 1e12))


def is_fitted(row: MeasuredAttention) -> bool:
    """Whether a row is part of the fit."""
    long_enough = row.causal or row.sequence_tokens >= LONG_TOKENS
    return row.kernel in get_args(rates.FusedName) and row.window is None and row.direction != "both" and long_enough


def residual_fraction(row: MeasuredAttention, gpus: Gpus) -> float:
    """Residual of the estimator, ln(predicted / measured)."""
    gpu, kernel = gpus[row.gpu], next((name for name in get_args(rates.FusedName) if name == row.kernel), None)
    if kernel is None or gpu.bf16_flop_per_s is None:
        return float("nan")
    rate = rates.attention_rate(kernel, gpu, row.query_width, row.value_width)
    forward = rates.attention_fraction(rate, row.seen_tokens, row.queries)
    backward = rates.attention_fraction(rate, row.seen_tokens, row.queries, backward=True)
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
    width = row.query_width if row.query_width == row.value_width else UNEQUAL_WIDTH
    base: Term = (row.kernel, gpu.architecture.removesuffix(" (Grace)"), row.direction)
    return (base,) if width == rates.QUERY_TILE else (base, (row.kernel, row.direction, str(width)))


def _log_fraction(row: MeasuredAttention, gpu: Gpu) -> float:
    keys, tiles = (
        (rates.FORWARD_KEYS, rates.FORWARD_TILES)
        if row.direction == "forward"
        else (rates.BACKWARD_KEYS, rates.BACKWARD_TILES)
    )
    wave = (rates.generation_rates(gpu).processors or 0) * rates.QUERY_TILE
    ramps = row.seen_tokens / (row.seen_tokens + keys) * row.queries / (row.queries + tiles * wave)
    return float(np.log(row.flop_per_s / (gpu.bf16_flop_per_s or np.nan) / ramps))


def _weight_fraction(row: MeasuredAttention) -> float:
    return (1.0 if row.causal else UNMASKED_WEIGHT) * (
        1.0 if row.sequence_tokens >= TRAINING_TOKENS else UNMASKED_WEIGHT
    )
