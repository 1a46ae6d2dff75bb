"""Rates of matrix products by their shape and of fused attention by its widths, a row a generation or kernel.

A product of m x k by k x n numbers is cut into tiles of its result. A kernel computes whole tiles, so an edge costs as
much as a full one, and as many at once as the GPU has processors, so the last wave may run half empty. Attention counts
the FLOP that the mask lets through; those of its backward pass are four products and the scores once again.
"""

from dataclasses import dataclass, replace
from typing import Literal

from service.estimator.constants import (
    LAUNCH_SECONDS,
    MEMORY_FRACTION,
    MatrixCalibration,
    calibration_of,
    streaming_bytes_per_s,
)
from service.estimator.numeric import Amount, ceil_div, maximum
from service.estimator.question import Gpu
from service.estimator.software.precision import Format, known_peak_flop_per_s, peak_flop_per_s
from service.estimator.tables import Table

TILE = 128
"""Rows, and columns, of the block of a result that a kernel always computes whole.
Source: NVIDIA/cutlass@v3.9 media/docs/cpp/efficient_gemm.md (a thread block computes 128 x 128 or 128 x 256)."""

TILES_PER_PROCESSOR = 2
"""Blocks that one processor computes in one wave: kernels for large products take 128 x 256.
Source: calibration/published/matrix_products.csv; 128 x 256 fits best of 128 x 128, 128 x 256 and 256 x 256."""

EXPOSED_STORE_FRACTION = 0.5
"""Share of the time to write the result that arithmetic does not hide: the last tiles are written when nothing is left
to compute, and short inner dimensions have little to hide them under.
Source: calibration/published/matrix_products.csv, fitted over all GPUs and formats."""

WAVE_FRACTION = 0.15
"""Share of an unfilled wave that is lost: 1 for kernels of fixed tiles, 0 for those that split their work evenly;
libraries choose among them.
Source: calibration/published/matrix_products.csv, fitted over all GPUs and formats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductRates:
    """What one GPU reaches in matrix products of one format."""

    flop_per_s: float
    """Arithmetic of full waves of full tiles."""
    bytes_per_s: float
    """Memory traffic."""
    operand_bytes: float
    result_bytes: float
    """One number of the result: written, and read before where the product adds to it."""
    wave_tiles: int
    """Blocks that the GPU computes at once; 1 where its processors are not known: no wave runs half empty."""
    fill_numbers: float = 0.0
    """Numbers that a tile could have summed while its kernel fills and drains."""
    quantise_bytes: float = 0.0
    """Memory traffic of turning one number of an operand into the format; 0 where it has it already."""
    quantise_launch_seconds: float = 0.0
    """Fixed cost of doing so."""
    launch_seconds: float = LAUNCH_SECONDS
    """Fixed cost of one kernel."""
    tile: int = TILE
    """Rows, and columns, of the block of a result that is always computed whole."""


def matrix_product_seconds(
    rows: Amount, columns: Amount, inner: Amount, rates: ProductRates, copies: Amount = 1, launches: Amount = 1
) -> Amount:
    """Seconds of one matrix product, or of several of one shape that run side by side, on one GPU.

    Formula:
        max(2 (k + f) 128^2 (T + w (ceil(T/S) S - T)) / R + e c r m n / W, c (b k (m + n) + r m n) / W) + l t_launch,
        with tiles T = c ceil(m/128) ceil(n/128), S of them a wave, w = WAVE_FRACTION, e = EXPOSED_STORE_FRACTION
    Args:
        rows: rows of the result, m [1]
        columns: columns of the result, n [1]
        inner: numbers that each of its numbers sums, k [1]
        rates: what the GPU reaches, with R, W, S, f = fill_numbers, bytes of an operand's number, b, and a result's, r
        copies: products of that shape, c [1]
        launches: kernels that they take, l: one where it is grouped, one each where a library calls them in turn [1]
    Returns: seconds of the kernel [s]
    Source:
        roofline: Williams et al. 2009, doi:10.1145/1498765.1498785; tiles and waves: NVIDIA, Matrix Multiplication
        Background User's Guide, sections 3 and 4; constants: rates.MATRIX_RATES

    >>> rates = ProductRates(flop_per_s=1e15, bytes_per_s=3e12, operand_bytes=2, result_bytes=2, wave_tiles=256)
    >>> round(matrix_product_seconds(4096, 4096, 4096, rates) * 1e6, 1)
    148.0
    >>> round(matrix_product_seconds(4097, 4096, 4096, rates) * 1e6, 1)
    156.8
    """
    tiles = ceil_div(rows, rates.tile) * ceil_div(columns, rates.tile) * copies
    unfilled = ceil_div(tiles, rates.wave_tiles) * rates.wave_tiles - tiles
    arithmetic = (
        2 * rates.tile**2 * (inner + rates.fill_numbers) * (tiles + WAVE_FRACTION * unfilled) / rates.flop_per_s
    )
    store = rates.result_bytes * rows * columns * copies / rates.bytes_per_s
    load = rates.operand_bytes * inner * (rows + columns) * copies / rates.bytes_per_s
    return maximum(arithmetic + EXPOSED_STORE_FRACTION * store, load + store) + launches * rates.launch_seconds


def quantise_seconds(numbers: Amount, rates: ProductRates) -> Amount:
    """Seconds of turning one operand into the format of a product, in kernels of their own, on one GPU.

    Formula: q x / W + t_q
    Args:
        numbers: numbers of the operand, x [1]
        rates: what the GPU reaches, with W, q and t_q
    Returns: seconds of the kernels [s]
    Source: calibration/published/matrix_products.csv: a scan for the largest number, then scaling and writing

    >>> rates = ProductRates(flop_per_s=1e15, bytes_per_s=3e12, operand_bytes=1, result_bytes=2, wave_tiles=1,
    ...                      quantise_bytes=6.0, quantise_launch_seconds=1e-5)
    >>> quantise_seconds(5e6, rates)
    2e-05
    """
    return rates.quantise_bytes * numbers / rates.bytes_per_s + rates.quantise_launch_seconds


OPERAND_BYTES: dict[Format, float] = {"fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1, "fp4": 0.5625}
"""One number of an operand; fp4 with a byte of scale for 16 numbers.
Source: definition; NVIDIA 2025, arXiv:2509.25149, section 2."""

ADDED_BYTES = 8.0
"""A number of an fp32 result that a product adds to: read, then written. Source: definition."""


@dataclass(frozen=True, slots=True)
class FormatRate:
    """How one format runs on one generation of GPUs."""

    peak_fraction: float
    """Share of dense peak that full waves of full tiles reach in short bursts; long runs may lower the clock."""
    quantise_bytes: float = 0.0
    """Memory traffic of turning one number of an operand into the format."""
    quantise_launch_seconds: float = 0.0
    """Fixed cost of doing so."""
    bytes_per_s: float | None = None
    """Memory traffic that products reach in short bursts; None: as much as streaming kernels."""
    launch_seconds: float = LAUNCH_SECONDS
    """Fixed cost of one kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRates:
    """How matrix products run on one generation of GPUs."""

    processors: int | None = None
    """Processors (SMs) of the GPU that was measured; None: waves are not modelled."""
    tile: int = TILE
    """Rows, and columns, of the block of a result that is always computed whole."""
    most_peak_fraction: float = 1.0
    """Share of peak that a measurement may find at most; above 1 where the peak rests on an assumed clock."""
    formats: dict[Format, FormatRate]
    """Rates by format; fp16 and fp32 run as bf16, int8 as fp8 where absent."""
    source: str
    """Who measured."""


UNMEASURED_RATES = GenerationRates(
    source="median of the fitted generations: calibration/published/matrix_products.csv",
    formats={
        "bf16": FormatRate(0.753),
        "fp8": FormatRate(0.753, quantise_bytes=7.5, quantise_launch_seconds=10.4e-6),
        "fp4": FormatRate(0.488, quantise_bytes=3.6, quantise_launch_seconds=4.5e-6),
    },
)
"""For a generation without a measurement; the answer says so."""

MATRIX_RATES = Table(__package__, "rates.json", "generations", dict[str, GenerationRates])
"""By generation. FITTED_TO_BEST is 0.94, the fitted share of peak over the best of a search over shapes: 0.91-1.00 on
six GPUs that have both, median; the peak of a processor rests on an assumed clock, and the highest is 1.7 times that.
Source: MATRIX_RATES against the MAMF table of stas00/ml-engineering@744d01e compute/accelerator README; 5 over 3 GHz,
AMD EPYC 9575F data sheet and CLOCK_HZ in calibration/observations.py."""

SLUG_RATES = Table(__package__, "rates.json", "slugs", dict[str, GenerationRates])
"""By slug, where a GPU runs unlike others of its generation."""


def generation_rates(gpu: Gpu) -> GenerationRates:
    """The measured rates of a GPU, or of its generation."""
    known = SLUG_RATES.get(gpu.slug) or MATRIX_RATES.get(gpu.architecture, UNMEASURED_RATES)
    calibration = calibration_of(gpu)
    return (
        known if calibration is None or not calibration.matrix else _measured_products(known, calibration.matrix, gpu)
    )


def _measured_products(known: GenerationRates, matrix: tuple[MatrixCalibration, ...], gpu: Gpu) -> GenerationRates:
    """Rates with those that were measured of the GPU in the place of its generation's; no higher than it can run."""
    formats = dict(known.formats)
    for one in matrix:
        peak = peak_flop_per_s(gpu, one.format)
        if peak is not None:
            formats[one.format] = replace(
                format_rate(known, one.format),
                peak_fraction=min(known.most_peak_fraction, one.flop_per_s / peak),
                bytes_per_s=one.bytes_per_s,
                launch_seconds=one.launch_seconds,
            )
    return replace(known, formats=formats, source="measured on the device")


def format_rate(generation: GenerationRates, number_format: Format) -> FormatRate:
    """How a format runs on a generation; where it was not measured, int8 and fp4 run as fp8, all others as bf16."""
    nearest = ("fp8",) if number_format in {"int8", "fp4"} else ()
    return next(generation.formats[name] for name in (number_format, *nearest, "bf16") if name in generation.formats)


def traffic_bytes_per_s(rate: FormatRate, gpu: Gpu, fraction: float) -> float:
    """Memory traffic that products of one format reach on a GPU.

    Formula: what was measured of such products, w x / MEMORY_FRACTION; else streaming_bytes_per_s
    Args:
        rate: how the format runs, with w
        fraction: share of the data sheet's bandwidth that streaming kernels reach, x [1]
    Returns: bytes a second [byte/s]
    Source: device_calibration; constants.MEMORY_FRACTION

    >>> from service.estimator.samples import H100
    >>> traffic_bytes_per_s(FormatRate(peak_fraction=0.8), H100, 0.5)
    1675000000000.0
    """
    if rate.bytes_per_s is None:
        return streaming_bytes_per_s(gpu, fraction)
    return rate.bytes_per_s * fraction / MEMORY_FRACTION


def rates_under(
    generation: GenerationRates, gpu: Gpu, number_format: Format, sustained_fraction: float = 1.0, *, adds: bool = False
) -> ProductRates:
    """What a GPU reaches in products of one format, given how its generation runs them."""
    rate = format_rate(generation, number_format)
    width = OPERAND_BYTES[number_format]
    return ProductRates(
        flop_per_s=known_peak_flop_per_s(gpu, number_format) * rate.peak_fraction * sustained_fraction,
        bytes_per_s=traffic_bytes_per_s(rate, gpu, MEMORY_FRACTION),
        operand_bytes=width,
        result_bytes=ADDED_BYTES if adds else max(width, 2.0),
        wave_tiles=1 if generation.processors is None else generation.processors * TILES_PER_PROCESSOR,
        quantise_bytes=rate.quantise_bytes,
        quantise_launch_seconds=rate.quantise_launch_seconds,
        launch_seconds=rate.launch_seconds,
        tile=generation.tile,
    )


FusedName = Literal["flash-1", "flash-2", "flash-3", "flash-4", "cudnn"]
"""Kernels that keep no scores."""

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
    source: str
    """Who measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionRate:
    """What one fused kernel reaches on one GPU with heads of one width."""

    forward_fraction: float
    """Share of dense peak over endless keys and tiles, forward."""
    backward_fraction: float
    wave_queries: int
    """Queries, each head's counted, that the GPU works on at once; 0 where its processors are not known."""


KERNEL_SHARES = Table(__package__, "rates.json", "kernels", dict[FusedName, dict[str, KernelShares]])
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
    shares = _measured_attention(KERNEL_SHARES[kernel].get(family, UNMEASURED_SHARES), kernel, gpu)
    forward, backward = _width_shares(kernel, (query_width + value_width) / 2)
    return AttentionRate(
        forward_fraction=min(shares.forward_fraction * forward, MOST_FRACTION),
        backward_fraction=min(shares.backward_fraction * backward, MOST_FRACTION),
        wave_queries=(generation_rates(gpu).processors or 0) * QUERY_TILE,
    )


def _measured_attention(known: KernelShares, kernel: FusedName, gpu: Gpu) -> KernelShares:
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

    Formula: f k / (k + k0) q / (q + x0 S), with k0 = FORWARD_KEYS and x0 = FORWARD_TILES, or those of the backward pass
    Args:
        rate: what the kernel reaches, with f and S = wave_queries
        seen_tokens: keys that a query sees, on average: half a causal sequence, a window once it is full, k [token]
        queries: queries of one launch, each head's counted: sequences x heads x tokens, q [1]
        backward: whether it is the backward pass
    Returns: share of dense peak [1]
    Source: calibration/published/attention.csv

    >>> rate = AttentionRate(forward_fraction=0.7, backward_fraction=0.6, wave_queries=16384)
    >>> round(attention_fraction(rate, 4096, 32 * 8192), 3), round(attention_fraction(rate, 64, 8 * 128), 3)
    (0.556, 0.003)
    """
    if backward:
        share, keys, tiles = rate.backward_fraction, BACKWARD_KEYS, BACKWARD_TILES
    else:
        share, keys, tiles = rate.forward_fraction, FORWARD_KEYS, FORWARD_TILES
    return share * seen_tokens / (seen_tokens + keys) * queries / (queries + tiles * rate.wave_queries)
