"""How long does one rank compute for one micro-batch? A roofline for each operation of the ledger."""

from dataclasses import dataclass

from service.estimator.attention_rate import attention_fraction
from service.estimator.degrees import Degrees, divisors
from service.estimator.efficiency import LAUNCH_SECONDS
from service.estimator.job import Job
from service.estimator.ledger import Op, OpKind, Ops
from service.estimator.matrix_product import matrix_product_seconds
from service.estimator.numeric import Amount, maximum, where
from service.estimator.product_shape import ProductShape, product_shape
from service.estimator.rates import Rates
from service.estimator.rerun import is_rerun, rerun_flop

ALIGNED_SIDE = 64
"""Products run at full rate where the sides of a matrix are multiples of this.
Source: NVIDIA, Matrix Multiplication Background User's Guide, section 2 (128 bytes of 16-bit numbers on A100)."""


@dataclass(slots=True, kw_only=True)
class ComputeSeconds:
    """Seconds of computing by kind of kernel."""

    gemm: Amount = 0.0
    attention: Amount = 0.0
    elementwise: Amount = 0.0
    cast: Amount = 0.0
    """Operands turned into narrow formats."""
    loss: Amount = 0.0
    recompute: Amount = 0.0
    """Forward passes run a second time, whatever their kind."""
    forward: Amount = 0.0
    """The forward passes' share of the first three."""
    host: Amount = 0.0
    """The device waits for the host to launch its kernels; transfers do not."""

    @property
    def total_seconds(self) -> Amount:
        """All of it [s]."""
        return self.gemm + self.attention + self.elementwise + self.cast + self.loss + self.recompute + self.host

    def plus(self, other: "ComputeSeconds", count: Amount) -> "ComputeSeconds":
        """This and `count` times another."""
        if isinstance(count, int) and not count:
            return self
        return ComputeSeconds(
            gemm=self.gemm + count * other.gemm,
            attention=self.attention + count * other.attention,
            elementwise=self.elementwise + count * other.elementwise,
            cast=self.cast + count * other.cast,
            loss=self.loss + count * other.loss,
            recompute=self.recompute + count * other.recompute,
            forward=self.forward + count * other.forward,
            host=self.host + count * other.host,
        )


@dataclass(slots=True)
class OpSeconds:
    """Seconds of one operation on one rank for one micro-batch."""

    forward: Amount
    backward: Amount
    cast: Amount = 0.0
    """Operands turned into a narrow format, forward and backward."""
    recast: Amount = 0.0
    """What of that a repeated forward pass does again."""


def kernel_seconds(flop: Amount, moved_bytes: Amount, flop_per_s: Amount, bytes_per_s: float) -> Amount:
    """Seconds of one kernel on one GPU: the slower of arithmetic and memory traffic, and its launch.

    Formula:
        max(F / R, B / W) + t_launch

    Args:
        flop: arithmetic of one rank, F [FLOP]
        moved_bytes: memory traffic of one rank, B [byte]
        flop_per_s: arithmetic rate reached, R [FLOP/s]
        bytes_per_s: memory rate reached, W [byte/s]

    Returns:
        seconds of one kernel [s]

    Source:
        Williams et al. 2009, doi:10.1145/1498765.1498785; launch: efficiency.LAUNCH_SECONDS

    >>> kernel_seconds(1e12, 1e9, 5e14, 2e12)
    0.002005
    """
    return maximum(flop / flop_per_s, moved_bytes / bytes_per_s) + LAUNCH_SECONDS


def product_seconds(op: Op, shape: ProductShape, rates: Rates, job: Job) -> OpSeconds:
    """Seconds of the products of one operation with weights: its result, and the gradients of input and weights.

    Formula:
        forward: (m, n, k); backward: the mean of (m, k, n) and (k, n, m) for each gradient that is needed; each
        over x where a side is no multiple of ALIGNED_SIDE, over g where tokens are dealt to experts, whose products run
        side by side, or one after another where they are not grouped;
        cast: c (m k + m n) / W, c = Rates.cast_bytes

    Args:
        op: the operation
        shape: its shape on one rank
        rates: rates of the GPU
        job: the job, with x and g

    Returns:
        the seconds [s]

    Source:
        matrix_product_seconds; backward products: Kaplan et al. 2020, arXiv:2001.08361, section 2.1
    """
    m, n, k, copies = shape.rows, shape.columns, shape.inner, shape.copies
    products, constants = rates.of(op), job.constants
    aligned = where(n % ALIGNED_SIDE == 0, 1.0, constants.misaligned_fraction)
    aligned = aligned * where(k % ALIGNED_SIDE == 0, 1.0, constants.misaligned_fraction)
    slowed = 1 / (aligned * (constants.grouped_fraction if op.holds_experts else 1.0))
    if op.holds_experts and not job.software.grouped_experts:
        slowed, copies = slowed * copies, 1.0
    launches = copies if op.holds_experts else 1
    forward = slowed * matrix_product_seconds(m, n, k, products.plain, copies, launches)
    backward: Amount = 0.0
    if op.gradients:
        one, two = shape.input_gradient, shape.weight_gradient
        inputs = matrix_product_seconds(one.rows, one.columns, one.inner, products.plain, copies, launches)
        weights = matrix_product_seconds(two.rows, two.columns, two.inner, products.adding, copies, launches)
        backward = slowed * (inputs + weights) / 2 * (op.backward_flop / op.flop)
    if not rates.is_narrow or op.keeps_precision:
        return OpSeconds(forward, backward)
    number_seconds = rates.cast_bytes * shape.copies / rates.bytes_per_s
    inputs, gradients = m * k * number_seconds, (m * n * number_seconds if op.gradients else 0.0)
    return OpSeconds(forward, backward, inputs + gradients, inputs)


def attention_seconds(op: Op, job: Job, divisor: Amount, scale: Amount, rates: Rates) -> OpSeconds:
    """Seconds of attention, or of the scan of a recurrent layer, on one rank.

    Formula:
        fused: roofline at R f, f by keys and queries; backward: twice the FLOP and what the kernel repeats
        eager: FLOP over the rate of its products, and its traffic

    Args:
        op: the operation
        job: the job
        divisor: ranks that share its work [1]
        scale: sequences of a micro-batch on one context rank [1]
        rates: rates of the GPU

    Returns:
        the seconds [s]

    Source:
        attention_fraction; Korthikanti et al. 2022, arXiv:2205.05198, section 4.1 (eager)
    """
    flop, moved = op.flop / divisor * scale, op.moved_bytes / divisor * scale
    gradients = (op.backward_flop + op.kernel_rerun_flop) / divisor * scale
    if job.kernel == "eager" and op.is_core:
        passing = moved / rates.bytes_per_s
        return OpSeconds(
            flop / rates.eager_flop_per_s + passing, gradients / rates.eager_flop_per_s + op.gradients * passing
        )
    forward, backward = (rates.attention_flop_per_s * share for share in _shares(op, job, divisor, scale, rates))
    there = kernel_seconds(flop, moved, forward, rates.bytes_per_s)
    return OpSeconds(
        there, kernel_seconds(gradients, op.gradients * moved, backward, rates.bytes_per_s) if op.gradients else 0.0
    )


def _shares(op: Op, job: Job, divisor: Amount, scale: Amount, rates: Rates) -> tuple[Amount, Amount]:
    """Shares of the peak of both passes: of attention by keys and queries, of a scan as over endless ones."""
    if not op.is_core:
        return rates.attention.forward_fraction, rates.attention.backward_fraction
    tokens = job.recipe.sequence_length
    queries = job.model.num_attention_heads * tokens / divisor * scale
    seen = op.flop / (2 * tokens * op.score_width)
    there, back = (attention_fraction(rates.attention, seen, queries, backward=way) for way in (False, True))
    return there, back


def op_seconds(op: Op, job: Job, degrees: Degrees, split: tuple[Amount, ...], rates: Rates) -> OpSeconds:
    """Seconds of one operation on one rank for one micro-batch.

    Formula:
        products and attention by their own functions; what only streams: its bytes over W and a launch, once more for
        each gradient

    Args:
        op: the operation
        job: the job
        degrees: the layout
        split: divisor of each split [1]
        rates: rates of the GPU

    Returns:
        forward and backward seconds [s]

    Source:
        product_seconds, attention_seconds, kernel_seconds
    """
    if op.kind == "gemm":
        return product_seconds(op, product_shape(op, job.model, degrees, split), rates, job)
    scale, divisor = degrees.micro_batch / degrees.context, split[op.split]
    if op.kind == "attention":
        return attention_seconds(op, job, divisor, scale, rates)
    moved = (op.moved_bytes / divisor + op.whole_bytes) * scale / rates.bytes_per_s + LAUNCH_SECONDS
    return OpSeconds(moved, op.gradients * moved)


def ops_compute(ops: Ops, job: Job, degrees: Degrees, rates: Rates) -> ComputeSeconds:
    """Seconds that one rank computes for some operations on one micro-batch, forward and backward.

    Args:
        ops: the operations
        job: the job
        degrees: the layout
        rates: rates of the GPU

    Returns:
        seconds by kind of kernel [s]
    """
    split = divisors(degrees, job.model, job.vocabulary_multiple)
    sums: dict[OpKind, Amount] = {"gemm": 0.0, "attention": 0.0, "elementwise": 0.0}
    again: Amount = 0.0
    ahead: Amount = 0.0
    cast: Amount = 0.0
    for op in ops:
        if not (op.flop or op.moved_bytes):
            continue
        one = op_seconds(op, job, degrees, split, rates)
        sums[op.kind] = sums[op.kind] + one.forward + one.backward
        cast = cast + one.cast
        ahead = ahead + one.forward
        if is_rerun(op, job.recompute):
            again = again + (one.forward + one.recast) * (rerun_flop(op, job.recompute) / op.flop if op.flop else 1.0)
    return ComputeSeconds(
        gemm=sums["gemm"],
        attention=sums["attention"],
        elementwise=sums["elementwise"],
        cast=cast,
        recompute=again,
        forward=ahead,
    )
