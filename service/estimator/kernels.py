"""How long does one rank compute for one micro-batch? A roofline for each operation of the ledger."""

from dataclasses import dataclass

from service.estimator.degrees import Degrees, divisors
from service.estimator.efficiency import LAUNCH_SECONDS, MEMORY_FRACTION, efficiency_of, matrix_fraction
from service.estimator.filled import filled
from service.estimator.job import Job
from service.estimator.ledger import Op, OpKind, Ops
from service.estimator.numeric import Amount, maximum
from service.estimator.precision import peak_flop_per_s
from service.estimator.rerun import is_rerun, rerun_flop


@dataclass(slots=True, kw_only=True)
class ComputeSeconds:
    """Seconds of computing by kind of kernel."""

    gemm: Amount = 0.0
    attention: Amount = 0.0
    elementwise: Amount = 0.0
    loss: Amount = 0.0
    recompute: Amount = 0.0
    """Forward passes run a second time, whatever their kind."""
    forward: Amount = 0.0
    """The forward passes' share of the first three."""

    @property
    def total_seconds(self) -> Amount:
        """All of it [s]."""
        return self.gemm + self.attention + self.elementwise + self.loss + self.recompute

    def plus(self, other: "ComputeSeconds", count: Amount) -> "ComputeSeconds":
        """This and `count` times another."""
        return ComputeSeconds(
            gemm=self.gemm + count * other.gemm,
            attention=self.attention + count * other.attention,
            elementwise=self.elementwise + count * other.elementwise,
            loss=self.loss + count * other.loss,
            recompute=self.recompute + count * other.recompute,
            forward=self.forward + count * other.forward,
        )


@dataclass(frozen=True, slots=True)
class Rates:
    """What one GPU reaches inside a step."""

    flop_per_s: dict[OpKind, float]
    """Arithmetic by kind of kernel."""
    plain_flop_per_s: float
    """Matrix products that stay in the attention's format."""
    bytes_per_s: float
    """Memory traffic."""

    def op_flop_per_s(self, op: Op) -> float:
        """Arithmetic rate of an operation [FLOP/s]."""
        return self.plain_flop_per_s if op.keeps_precision else self.flop_per_s[op.kind]


def rates_of(job: Job) -> Rates:
    """The rates that a job's kernels reach on its GPU.

    Args:
        job: the job; its GPU has the formats of its precision

    Returns:
        the rates
    """
    gpu, precision = job.gpu, job.precision
    matrix, attention = (
        filled(peak_flop_per_s(gpu, name)) for name in (precision.matrix_format, precision.attention_format)
    )
    plain = attention * matrix_fraction(gpu, precision.attention_format)
    fused = attention * efficiency_of(gpu).attention_fraction
    return Rates(
        flop_per_s={
            "gemm": matrix * matrix_fraction(gpu, precision.matrix_format),
            "attention": plain if job.recipe.attention == "eager" else fused,
            "elementwise": attention,
        },
        plain_flop_per_s=plain,
        bytes_per_s=gpu.memory_bytes_per_s * MEMORY_FRACTION,
    )


def kernel_seconds(flop: Amount, moved_bytes: Amount, flop_per_s: float, bytes_per_s: float) -> Amount:
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


def op_seconds(op: Op, job: Job, degrees: Degrees, split: tuple[Amount, ...], rates: Rates) -> tuple[Amount, Amount]:
    """Seconds of one operation on one rank for one micro-batch.

    Formula:
        forward: roofline of its FLOP, its bytes and a product's weights; backward: of the gradients' FLOP, of the bytes
        once for each gradient (twice all three where everything is trained), and what the kernel repeats by itself

    Args:
        op: the operation
        job: the job
        degrees: the layout
        split: divisor of each split [1]
        rates: rates of the GPU

    Returns:
        forward and backward seconds [s]

    Source:
        definition; backward products: Kaplan et al. 2020, arXiv:2001.08361, section 2.1

    >>> from service.estimator.samples import sample_degrees, sample_job
    >>> from service.estimator.ledger import Split
    >>> op, rates = Op(name="o", kind="gemm", split=Split.WHOLE, flop=10**12), Rates({"gemm": 1e15}, 1e15, 1e12)
    >>> [round(seconds, 6) for seconds in op_seconds(op, sample_job(), sample_degrees(), (1,) * 9, rates)]
    [0.001005, 0.002005]
    """
    scale = degrees.micro_batch / degrees.context
    divisor = split[op.split]
    flop = op.flop / divisor * scale
    moved = (op.moved_bytes / divisor + op.whole_bytes) * scale
    if op.kind == "gemm":
        for weight in op.weights:
            moved = moved + weight.parameters / split[weight.split] * job.precision.weight_bytes
    rate = rates.op_flop_per_s(op)
    forward = kernel_seconds(flop, moved, rate, rates.bytes_per_s)
    repeated = op.kernel_rerun_flop / divisor * scale
    gradients = op.backward_flop / divisor * scale + repeated
    if not op.gradients:
        return forward, 0.0
    return forward, kernel_seconds(gradients, op.gradients * moved, rate, rates.bytes_per_s)


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
    for op in ops:
        if not (op.flop or op.moved_bytes):
            continue
        forward, backward = op_seconds(op, job, degrees, split, rates)
        sums[op.kind] = sums[op.kind] + forward + backward
        ahead = ahead + forward
        if is_rerun(op, job.recompute):
            again = again + forward * (rerun_flop(op, job.recompute) / op.flop if op.flop else 1.0)
    return ComputeSeconds(
        gemm=sums["gemm"],
        attention=sums["attention"],
        elementwise=sums["elementwise"],
        recompute=again,
        forward=ahead,
    )
