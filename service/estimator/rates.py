"""Which rates do a job's kernels reach inside a step? Benchmarks of single kernels, scaled by what steps show."""

from dataclasses import dataclass, replace

from service.estimator.attention_rate import MOST_FRACTION, AttentionRate, FusedName, attention_rate
from service.estimator.cast import cast_bytes
from service.estimator.clock import clock_fraction
from service.estimator.device_calibration import streaming_bytes_per_s
from service.estimator.filled import filled
from service.estimator.job import Job
from service.estimator.ledger import Op
from service.estimator.matrix_product import ProductRates
from service.estimator.matrix_rates import format_rate, generation_rates, rates_under, traffic_bytes_per_s
from service.estimator.names import AttentionName, ImplementationName
from service.estimator.precision import Format, peak_flop_per_s
from service.estimator.step_constants import NEWEST_KERNEL, product_scale

SCANNED: FusedName = "flash-2"
"""Kernel whose rate stands for that of the scans of recurrent layers, which nobody has measured."""


@dataclass(frozen=True, slots=True)
class Products:
    """Rates of matrix products of one format."""

    plain: ProductRates
    """Products that write their result."""
    adding: ProductRates
    """Gradients of weights, which add to what earlier micro-batches gave where the stack fuses that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What one GPU reaches inside a step."""

    products: Products
    """Matrix products in the recipe's format."""
    wide_products: Products
    """Those that stay in the attention's format."""
    is_narrow: bool
    """The recipe's format is narrower than the activations'."""
    attention: AttentionRate
    """Attention, or a scan, by its kernel; shares of attention_flop_per_s."""
    attention_flop_per_s: float
    """Dense peak of the attention's format, scaled as the kernel is inside a step."""
    eager_flop_per_s: float
    """The two products of eager attention."""
    bytes_per_s: float
    """Memory traffic."""
    cast_bytes: float
    """Traffic of turning one number of an operand into the recipe's format."""

    def of(self, op: Op) -> Products:
        """Rates of an operation's products."""
        return self.wide_products if op.keeps_precision else self.products


def fused_kernel(kernel: AttentionName) -> FusedName:
    """The fused kernel whose rates a job's scans and attention have.

    Args:
        kernel: the job's attention kernel

    Returns:
        the same, or SCANNED where attention is eager

    >>> fused_kernel("cudnn"), fused_kernel("eager")
    ('cudnn', 'flash-2')
    """
    if kernel == "eager":
        return SCANNED
    return SCANNED if kernel == "flash" else kernel


def stack_scale(job: Job) -> float:
    """Seconds of a step over what all else says, on a job's stack.

    Formula:
        that of its stack and implementation; 1 where no published step has them

    Args:
        job: the job

    Returns:
        the scale [1]

    Source:
        StepConstants.stack_scales

    >>> from service.estimator.samples import sample_job
    >>> 0.75 < stack_scale(sample_job()) < 1.35
    True
    """
    implementation: ImplementationName = filled(job.software.implementation)
    return job.constants.stack_scales.get((job.software.name, implementation), 1.0)


def rates_of(job: Job) -> Rates:
    """The rates that a job's kernels reach on its GPU.

    Args:
        job: the job; its GPU has the formats of its precision

    Returns:
        the rates
    """
    constants, gpu, model = job.constants, job.gpu, job.model
    wide, scales = job.precision.attention_format, job.constants.attention_scales
    peak = filled(peak_flop_per_s(gpu, wide)) * _clock(job)
    kernel = fused_kernel(job.kernel)
    widths = (model.head_width,) * 2 if model.kv_lora_rank is None else (model.query_width, model.value_width)
    attention = attention_rate(kernel, gpu, *widths)
    most = MOST_FRACTION * min(1.0, stack_scale(job)) / max(attention.forward_fraction, attention.backward_fraction)
    aligned = job.kernel != "eager" or widths[0] % ALIGNED_HEAD == 0
    wide_products, narrow = _products(job, wide), job.precision.matrix_format
    return Rates(
        products=wide_products if narrow == wide else _products(job, narrow),
        wide_products=wide_products,
        is_narrow=job.precision.matrix_format in ("fp8", "fp4"),
        attention=attention,
        attention_flop_per_s=peak * min(scales.get(kernel, scales[NEWEST_KERNEL]), most),
        eager_flop_per_s=peak
        * constants.eager_attention_fraction
        * (1.0 if aligned else constants.misaligned_head_fraction),
        bytes_per_s=streaming_bytes_per_s(gpu, constants.memory_fraction),
        cast_bytes=cast_bytes(job),
    )


ALIGNED_HEAD = 8
"""Heads whose width is a multiple of this run at full rate in batched products of 16-bit numbers.
Source: NVIDIA, Matrix Multiplication Background User's Guide, section 2 (16 bytes of alignment)."""


def _products(job: Job, number_format: Format) -> Products:
    """Rates in one format, never above its peak."""
    measured = generation_rates(job.gpu)
    rate = format_rate(measured, number_format)
    most = min(1.0, stack_scale(job)) / rate.peak_fraction
    scale = min(product_scale(job.constants, job.gpu), most) * _clock(job)
    plain, adding = (
        replace(
            rates_under(measured, job.gpu, number_format, scale, adds=adds),
            fill_numbers=job.constants.fill_numbers,
            bytes_per_s=traffic_bytes_per_s(rate, job.gpu, job.constants.memory_fraction),
        )
        for adds in (False, bool(job.software.gradient_fusion))
    )
    return Products(plain, adding)


def _clock(job: Job) -> float:
    return clock_fraction(job.cluster.power_limit_watts, job.gpu.board_watts)
