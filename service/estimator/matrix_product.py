"""How long does one matrix product take on one GPU, by its shape? Tiles, waves of tiles, memory traffic and launch.

A product of m x k by k x n numbers is cut into tiles of its result. A kernel computes whole tiles, so an edge costs as
much as a full one, and it computes as many at once as the GPU has processors, so the last wave may run half empty.
"""

from dataclasses import dataclass

from service.estimator.efficiency import LAUNCH_SECONDS
from service.estimator.numeric import Amount, ceil_div, maximum

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
