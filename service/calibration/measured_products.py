"""Which matrix products were measured on which GPU? The published table that comes with the package."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import get_args

from service.calibration.tables import shipped_table
from service.estimator.software.precision import Format

SOURCES = {
    "aiconfigurator": "ai-dynamo/aiconfigurator@095f58a systems/data/*/gemm/trtllm/*/gemm_perf.parquet (random normal "
    "data, short bursts; fp8 and fp4 with the quantising of the input), read 2026-11",
    "simumax": "MooreThreads/SimuMax@4dcaae5 configs/system/{a100_pcie,b200_bf16_ceperm}.json (shares of 312 and 2250 "
    "TFLOP/s; forward and both gradients, also of experts by Transformer Engine's general_grouped_gemm), read 2026-11",
}
"""Who measured, by the key of a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredProduct:
    """One measured matrix product."""

    source_key: str
    """Who measured it; a key of SOURCES."""
    gpu: str
    """Slug of the GPU."""
    format: Format
    """Format of the operands."""
    layout: str
    """Which operands lie transposed: TN forward, NN gradient of the input, NT gradient of the weight."""
    adds: bool
    """Whether it adds to an fp32 result."""
    copies: int
    """Products of that shape, timed together: those of experts."""
    rows: int
    """Rows of the result."""
    columns: int
    """Columns of the result."""
    inner: int
    """Numbers that each of its numbers sums."""
    product_seconds: float
    """Mean time."""


@cache
def measured_products() -> tuple[MeasuredProduct, ...]:
    """The measured products that the package ships.

    Returns:
        the rows, read once a process
    """
    return tuple(map(_product, shipped_table("matrix_products")))


def _product(row: Mapping[str, str]) -> MeasuredProduct:
    """One row of the table."""
    return MeasuredProduct(
        source_key=row["source_key"],
        gpu=row["gpu"],
        format=next(name for name in get_args(Format) if name == row["format"]),
        layout=row["layout"],
        adds=row["adds"] == "1",
        copies=int(row["copies"]),
        rows=int(row["rows"]),
        columns=int(row["columns"]),
        inner=int(row["inner"]),
        product_seconds=float(row["microseconds"]) * 1e-6,
    )
