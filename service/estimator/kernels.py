"""How long does one rank compute for one micro-batch? A roofline for each operation of the ledger."""

from dataclasses import dataclass, replace

from service.estimator.degrees import Degrees, divisors
from service.estimator.efficiency import LAUNCH_SECONDS, efficiency_of, best_fraction
from service.estimator.filled import filled
from service.estimator.job import Job
from service.estimator.ledger import Op, OpKind, Ops, Split
from service.estimator.numeric import Amount, maximum, where
from service.estimator.matrix_product import ProductRates, matrix_product_seconds, quantise_seconds
from service.estimator.matrix_rates import generation_rates, rates_under
from service.estimator.product_shape import product_shape
from service.estimator.precision import Format, peak_flop_per_s
from service.estimator.workspaces import generation
from service.estimator.rerun import is_rerun, rerun_flop


@dataclass(slots=True, kw_only=True)
class ComputeSeconds:
    """Seconds of computing by kind of kernel."""

    gemm: Amount = 0.0
    attention: Amount = 0.0
    elementwise: Amount = 0.0
    cast: Amount = 0.0
    loss: Amount = 0.0
    recompute: Amount = 0.0
    """Forward passes run a second time, whatever their kind."""
    forward: Amount = 0.0
    """The forward passes' share of the first three."""

    @property
    def total_seconds(self) -> Amount:
        """All of it [s]."""
        return self.gemm + self.attention + self.elementwise + self.cast + self.loss + self.recompute

    def plus(self, other: "ComputeSeconds", count: Amount) -> "ComputeSeconds":
        """This and `count` times another."""
        return ComputeSeconds(
            gemm=self.gemm + count * other.gemm,
            attention=self.attention + count * other.attention,
            elementwise=self.elementwise + count * other.elementwise,
            cast=self.cast + count * other.cast,
            loss=self.loss + count * other.loss,
            recompute=self.recompute + count * other.recompute,
            forward=self.forward + count * other.forward,
        )


@dataclass(frozen=True, slots=True)
class Rates:
    """What one GPU reaches inside a step."""

    product: ProductRates
    product_adds: ProductRates
    plain: ProductRates
    plain_adds: ProductRates
    attention_flop_per_s: float
    bytes_per_s: float
    traffic: float
    misaligned_fraction: float
    is_narrow: bool


def rates_of(job: Job) -> Rates:
    gpu, precision, constants = job.gpu, job.precision, job.constants
    family = generation(gpu)
    sustained = constants.sustained_fractions.get(family, 0.9)
    measured = generation_rates(gpu)
    def under(number_format: Format, adds: bool) -> ProductRates:
        r = rates_under(measured, gpu, number_format, sustained, adds=adds)
        return replace(r, fill_numbers=constants.inner_numbers, bytes_per_s=gpu.memory_bytes_per_s * constants.memory_fraction)
    matrix, plain = precision.matrix_format, precision.attention_format
    attention = filled(peak_flop_per_s(gpu, plain))
    fused = constants.attention_fractions.get((job.kernel, family), efficiency_of(gpu).attention_fraction)
    adds = job.software.gradient_fusion is True
    p, w = under(plain, False), under(plain, adds)
    return Rates(
        product=under(matrix, False), product_adds=under(matrix, adds), plain=p, plain_adds=w,
        attention_flop_per_s=attention * constants.eager_attention_fraction if job.kernel == "eager" else attention * fused,
        bytes_per_s=gpu.memory_bytes_per_s * constants.memory_fraction,
        traffic=1.0 if job.implementation.fused_activation else constants.eager_traffic,
        misaligned_fraction=constants.misaligned_fraction,
        is_narrow=precision.matrix_format in ("fp8", "fp4"),
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


@dataclass(slots=True)
class OpSeconds:
    forward: Amount
    backward: Amount
    cast: Amount = 0.0


def constants_(job):
    return job.constants


def _aligned(n, fraction):
    return where(n % 64 == 0, 1.0, fraction)


def _product(op, job, degrees, split, rates, backward_share):
    shape = product_shape(op, job.model, degrees, split)
    m, n, k, copies = shape.rows, shape.columns, shape.inner, shape.copies
    narrow = rates.is_narrow and not op.keeps_precision
    rate, adding = (rates.product, rates.product_adds) if narrow or not rates.is_narrow else (rates.plain, rates.plain_adds)
    slow = (1 / constants_(job).grouped_fraction if op.weights and op.weights[0].split is Split.EXPERT else 1.0) / (_aligned(n, rates.misaligned_fraction) * _aligned(k, rates.misaligned_fraction))
    forward = matrix_product_seconds(m, n, k, rate, copies) * slow
    backward = (matrix_product_seconds(m, k, n, rate, copies) + matrix_product_seconds(k, n, m, adding, copies)) / 2 * backward_share * slow if backward_share else 0.0
    cast = 0.0
    if narrow:
        cast = (m * k + (m * n if backward_share else 0.0)) * copies * 4 / rates.bytes_per_s
    return OpSeconds(forward, backward, cast)


def op_seconds(op: Op, job: Job, degrees: Degrees, split: tuple[Amount, ...], rates: Rates) -> OpSeconds:
    scale = degrees.micro_batch / degrees.context
    divisor = split[op.split]
    flop = op.flop / divisor * scale
    gradients = op.backward_flop / divisor * scale
    if op.kind == "gemm":
        return _product(op, job, degrees, split, rates, op.backward_flop / op.flop if op.gradients else 0.0)
    moved = (op.moved_bytes / divisor + op.whole_bytes) * scale / rates.bytes_per_s
    if op.kind == "elementwise":
        moved = moved * rates.traffic + LAUNCH_SECONDS
        return OpSeconds(moved, moved * op.gradients)
    repeated = op.kernel_rerun_flop / divisor * scale
    width = job.model.head_width if job.model.kv_lora_rank is None else job.model.query_width
    if job.kernel == "eager":
        rate = rates.attention_flop_per_s * (1.0 if width % 8 == 0 else job.constants.misaligned_head_fraction)
        return OpSeconds(flop / rate + moved, gradients / rate + op.gradients * moved)
    pad = -(-width // 32) * 32 / width
    flop, gradients, repeated = flop * pad, gradients * pad, repeated * pad
    return OpSeconds(
        maximum(flop / rates.attention_flop_per_s, moved) + LAUNCH_SECONDS,
        maximum((gradients + repeated) / rates.attention_flop_per_s, op.gradients * moved) + LAUNCH_SECONDS if op.gradients else 0.0,
    )


def ops_compute(ops: Ops, job: Job, degrees: Degrees, rates: Rates) -> ComputeSeconds:
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
            again = again + one.forward * (rerun_flop(op, job.recompute) / op.flop if op.flop else 1.0)
    return ComputeSeconds(
        gemm=sums["gemm"],
        attention=sums["attention"],
        elementwise=sums["elementwise"],
        cast=cast,
        recompute=again,
        forward=ahead,
    )
