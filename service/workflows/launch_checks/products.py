"""Which matrix products are measured? The exact shapes of this model on one rank of this layout, each once."""

from dataclasses import dataclass

from service.estimator.matrix_rates import OPERAND_BYTES
from service.estimator.precision import Format
from service.estimator.rank_products import RankProduct, rank_products
from service.estimator.resolve import Resolved
from service.workflows.launch_checks.items import CPU_DTYPE, DTYPES, Expected, Item, reached_flop_per_s
from service.workflows.launch_checks.target import Target


@dataclass(frozen=True, slots=True)
class _Key:
    """What tells one product from another."""

    operation: str
    rows: int
    columns: int
    inner: int
    dtype: str
    copies: int


def product_items(resolved: Resolved, target: Target) -> tuple[tuple[Item, ...], tuple[str, ...]]:
    """The products of one step, equal ones together.

    Args:
        resolved: the question
        target: the machine that runs them

    Returns:
        the items, and what cannot be measured
    """
    groups: dict[_Key, list[RankProduct]] = {}
    left_out: set[str] = set()
    for product in rank_products(resolved.job, resolved.degrees):
        dtype = DTYPES.get(product.format) if target.is_gpu else CPU_DTYPE
        if dtype is None:
            left_out.add(f"products in {product.format}: no probe has kernels for them")
            continue
        shape = product.shape
        sizes = (max(1, round(float(size))) for size in (shape.rows, shape.columns, shape.inner))
        rows, columns, inner = sizes
        key = _Key(product.product, rows, columns, inner, dtype, max(1, round(float(shape.copies))))
        groups.setdefault(key, []).append(product)
    return tuple(_item(key, products, target) for key, products in groups.items()), tuple(sorted(left_out))


def _item(key: _Key, products: list[RankProduct], target: Target) -> Item:
    name, count = products[0].name, sum(float(product.count) for product in products)
    flop = 2.0 * key.rows * key.columns * key.inner * key.copies
    shape = {
        "name": name, "rows": key.rows, "columns": key.columns, "inner": key.inner, "dtype": key.dtype,
        "copies": key.copies,
    }  # fmt: skip
    width = OPERAND_BYTES[_format(key.dtype)]
    operands = key.inner * (key.rows + key.columns) * key.copies
    wide = 4.0  # a reference in higher precision
    return Item(
        entry={"operation": key.operation, **shape},
        name=f"{name} {key.operation} {key.rows} x {key.columns} x {key.inner}",
        once_seconds=flop / reached_flop_per_s(target, key.dtype),
        weight_flop=flop * count,
        memory_bytes=(width + wide) * operands + 2 * wide * key.rows * key.columns * key.copies,
        expected=(
            Expected(
                probe="gemm",
                operation=key.operation,
                shape=shape,
                quantity="seconds",
                count=count,
            ),
        ),
    )


def _format(dtype: str) -> Format:
    return next(name for name, told in DTYPES.items() if told == dtype)
