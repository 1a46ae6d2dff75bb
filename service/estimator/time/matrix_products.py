"""Seconds of one matrix product by its shape: tiles, waves of tiles, memory traffic and launch.

A product of m x k by k x n numbers is cut into tiles of its result. A kernel computes whole tiles, so an edge costs as
much as a full one, and it computes as many at once as the GPU has processors, so the last wave may run half empty.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

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
    """One number of either operand."""
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

    Returns:
        seconds of the kernel [s]

    Source:
        roofline: Williams et al. 2009, doi:10.1145/1498765.1498785; tiles and waves: NVIDIA, Matrix Multiplication
        Background User's Guide, sections 3 and 4; constants: matrix_rates.MATRIX_RATES

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

    Formula:
        q x / W + t_q

    Args:
        numbers: numbers of the operand, x [1]
        rates: what the GPU reaches, with W, q and t_q

    Returns:
        seconds of the kernels [s]

    Source:
        calibration/published/matrix_products.csv: a scan for the largest number, then scaling and writing

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


_AIC = "calibration/published/matrix_products.csv: ai-dynamo/aiconfigurator@095f58a gemm_perf (TensorRT-LLM)"
_SIMUMAX = "calibration/published/matrix_products.csv: MooreThreads/SimuMax@4dcaae5 configs/system"
_MAMF = "stas00/ml-engineering@744d01e compute/accelerator README, MAMF table, x FITTED_TO_BEST"

FITTED_TO_BEST = 0.94
"""Fitted share of peak over the best of a search over shapes: 0.91-1.00 on six GPUs that have both, median.
Source: MATRIX_RATES against the MAMF table of stas00/ml-engineering@744d01e compute/accelerator README."""


def _rates(processors: int | None, source: str, formats: Mapping[Format, tuple[float, ...]]) -> GenerationRates:
    """Rates of a generation: of each format the share of peak, and the bytes and the launch of quantising."""
    rates = {name: FormatRate(*numbers) for name, numbers in formats.items()}
    return GenerationRates(processors=processors, source=source, formats=rates)


def _searched(best: Mapping[Format, float]) -> GenerationRates:
    """Rates of a generation of which only the best product over a search is known."""
    return _rates(None, _MAMF, {name: (round(share * FITTED_TO_BEST, 3),) for name, share in best.items()})


_A100_PCIE = _rates(108, _SIMUMAX, {"bf16": (0.753,)})
_HOPPER = _rates(132, _AIC, {"bf16": (0.815,), "fp8": (0.753, 6.6, 6e-6)})
_RTX_BLACKWELL = _rates(188, _AIC, {"bf16": (0.876,), "fp8": (0.878, 4.2, 11e-6), "fp4": (0.855, 2.8, 1.2e-6)})

UNMEASURED_RATES = _rates(
    None,
    "median of the fitted generations: calibration/published/matrix_products.csv",
    {"bf16": (0.753,), "fp8": (0.753, 7.5, 10.4e-6), "fp4": (0.488, 3.6, 4.5e-6)},
)
"""For a generation without a measurement; the answer says so."""

FASTEST_CLOCK = 1.7
"""The highest clock of a server's processor over the one that is assumed where nothing tells it: 5 over 3 GHz.
Source: AMD EPYC 9575F data sheet; CLOCK_HZ in calibration/observations.py."""

_PROCESSOR = GenerationRates(
    tile=16,
    source="oneDNN developer guide, CPU kernels of 6 to 48 x 8 to 64 numbers; shares as UNMEASURED_RATES",
    most_peak_fraction=FASTEST_CLOCK,
    formats=UNMEASURED_RATES.formats,
)

MATRIX_RATES: dict[str, GenerationRates] = {
    "Ampere": _rates(108, _AIC, {"bf16": (0.854,), "int8": (0.867,)}),
    "Ada": _rates(142, _AIC, {"bf16": (0.596,), "fp8": (0.521, 0.8)}),
    "Hopper": _HOPPER,
    "Hopper (Grace)": _HOPPER,
    "Blackwell": _rates(148, _AIC, {"bf16": (0.722,), "fp8": (0.726, 7.7, 10.9e-6), "fp4": (0.491, 4.2, 3.6e-6)}),
    "Blackwell (Grace)": _rates(
        148, _AIC, {"bf16": (0.681,), "fp8": (0.686, 8.3, 11.3e-6), "fp4": (0.488, 4.6, 4.5e-6)}
    ),
    "Blackwell Ultra": _rates(148, _AIC, {"bf16": (0.749,), "fp8": (0.765, 7.5, 10.4e-6), "fp4": (0.386, 3.6, 7.6e-6)}),
    "Blackwell Ultra (Grace)": _rates(
        148, _AIC, {"bf16": (0.784,), "fp8": (0.798, 8.3, 10.3e-6), "fp4": (0.377, 3.6, 8.2e-6)}
    ),
    "CDNA3": _searched({"bf16": 0.556}),
    "CDNA4": _searched({"bf16": 0.622}),
    "Gaudi2": _searched({"bf16": 0.969, "fp8": 0.956}),
    "Gaudi3": _searched({"bf16": 0.741, "fp8": 0.769}),
    "cpu": _PROCESSOR,
}
"""By generation and what it is paired with."""

SLUG_RATES: dict[str, GenerationRates] = {
    "a100-pcie-40gb": _A100_PCIE,
    "a100-pcie-80gb": _A100_PCIE,
    "a800-pcie-80gb": _A100_PCIE,
    "rtx-5090": _RTX_BLACKWELL,
    "rtx-pro-6000-blackwell-server": _RTX_BLACKWELL,
    "rtx-pro-6000-blackwell-workstation": _RTX_BLACKWELL,
}
"""By slug, where a GPU runs unlike others of its generation."""


def generation_rates(gpu: Gpu) -> GenerationRates:
    """The measured rates of a GPU, or of its generation."""
    known = SLUG_RATES.get(gpu.slug) or MATRIX_RATES.get(gpu.architecture, UNMEASURED_RATES)
    calibration = calibration_of(gpu)
    return known if calibration is None or not calibration.matrix else _measured(known, calibration.matrix, gpu)


def _measured(known: GenerationRates, matrix: tuple[MatrixCalibration, ...], gpu: Gpu) -> GenerationRates:
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
    """How a format runs on a generation, or the format nearest to it that was measured there.

    Where none was measured, int8 and fp4 take that of fp8, all others that of bf16.
    """
    nearest = ("fp8",) if number_format in {"int8", "fp4"} else ()
    return next(generation.formats[name] for name in (number_format, *nearest, "bf16") if name in generation.formats)


def traffic_bytes_per_s(rate: FormatRate, gpu: Gpu, fraction: float) -> float:
    """Memory traffic that products of one format reach on a GPU.

    Formula:
        what was measured of such products, w x / MEMORY_FRACTION; else streaming_bytes_per_s

    Args:
        rate: how the format runs, with w
        fraction: share of the data sheet's bandwidth that streaming kernels reach, x [1]

    Returns:
        bytes a second [byte/s]

    Source:
        device_calibration; efficiency.MEMORY_FRACTION

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
