"""Which matrix products does one rank run in one step: of which shapes, how often, in which format?"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from service.estimator.degrees import Degrees, divisors
from service.estimator.job import Job
from service.estimator.ledger import Op
from service.estimator.numeric import Amount
from service.estimator.precision import Format
from service.estimator.product_shape import ProductShape, product_shape

ProductName = Literal["forward", "input_gradient", "weight_gradient"]
"""What a product gives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankProduct:
    """One product of one operation."""

    name: str
    """The operation."""
    product: ProductName
    """What it gives."""
    shape: ProductShape
    """Rows, columns and inner numbers of this very product; grouped experts run side by side."""
    format: Format
    """Format of its operands."""
    count: Amount
    """How often one step has it, over the ranks of all stages that run one micro-batch after the other."""

    @property
    def flop(self) -> Amount:
        """Its FLOP, once [FLOP]."""
        shape = self.shape
        return 2 * shape.rows * shape.columns * shape.inner * shape.copies


def rank_products(job: Job, degrees: Degrees) -> tuple[RankProduct, ...]:
    """The matrix products of one step on one rank of every pipeline stage, those that recompute repeats counted once.

    Args:
        job: the job
        degrees: the layout, plain numbers

    Returns:
        the products; equal ones of different operations stand side by side

    Source:
        the ledger; Kaplan et al. 2020, arXiv:2001.08361, section 2.1 (a product for each gradient that is needed)

    >>> from service.estimator.samples import sample_degrees, sample_job
    >>> first = rank_products(sample_job(), sample_degrees())[0]
    >>> first.name, first.product, first.count, first.flop == 2 * 8192 * 4096 * 6144
    ('attention.qkv', 'forward', 32, True)
    """
    split = divisors(degrees, job.model, job.vocabulary_multiple)
    return tuple(
        found
        for times, ops in job.ledger.groups()
        for op in ops
        if times and op.kind == "gemm" and op.flop
        for found in _products(op, product_shape(op, job.model, degrees, split), job, times * degrees.accumulation)
    )


def _products(op: Op, shape: ProductShape, job: Job, times: Amount) -> Iterator[RankProduct]:
    """The products of one operation: its result, and each gradient that is needed."""
    number_format = job.precision.attention_format if op.keeps_precision else job.precision.matrix_format
    shapes: dict[ProductName, ProductShape] = {"forward": shape}
    if op.gradients == 2 or (op.gradients and not _is_trained(op)):
        shapes["input_gradient"] = shape.input_gradient
    if op.gradients == 2 or (op.gradients and _is_trained(op)):
        shapes["weight_gradient"] = shape.weight_gradient
    for name, found in shapes.items():
        one_by_one = op.holds_experts and not job.software.grouped_experts
        count = times * (found.copies if one_by_one else 1)
        run = _alone(found) if one_by_one else found
        yield RankProduct(name=op.name, product=name, shape=run, format=number_format, count=count)


def _alone(shape: ProductShape) -> ProductShape:
    """The product of one expert."""
    return ProductShape(rows=shape.rows, columns=shape.columns, inner=shape.inner, copies=1)


def _is_trained(op: Op) -> bool:
    """Whether the gradient of its weights is needed."""
    return any(weight.trained for weight in op.weights)
