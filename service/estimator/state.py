"""How many bytes does one parameter need for weights, gradients and master copy, under a recipe and a stack?"""

from dataclasses import dataclass

from service.estimator.gpu import Gpu
from service.estimator.names import GradientDtype
from service.estimator.precision import Precision
from service.estimator.question import Recipe
from service.estimator.stacks import Stack
from service.estimator.workspaces import generation

SHARDED_GRADIENTS = 2
"""ZeRO stage from which gradients are sharded. Source: Rajbhandari et al. 2020, arXiv:1910.02054, figure 1."""

DTYPE_BYTES: dict[GradientDtype, float] = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class StateBytes:
    """Bytes of one parameter, unsharded; optimizer moments are counted by `optimizers`."""

    weight_bytes: float
    """Weights that are resident."""
    gathered_bytes: float
    """Weights as the forward pass reads them, where they are gathered or cast on the fly; frozen ones are kept so."""
    copy_bytes: float
    """Low-precision copies for the matrix products."""
    gradient_bytes: float
    """Gradients as they are accumulated."""
    half_gradient_bytes: float
    """Gradients in the compute format beside those, at the end of a backward pass."""
    master_bytes: float
    """fp32 master copy."""
    step_bytes: float
    """fp32 gradients made inside the optimizer step."""

    @property
    def frozen_bytes(self) -> float:
        """Weights that are not trained: in the format that the forward pass reads, without a copy for the optimizer."""
        return self.gathered_bytes

    @property
    def copied_fraction(self) -> float:
        """Bytes of a part trained whole beside adapters, in the format of frozen weights, over those of other ones."""
        return self.frozen_bytes / self.weight_bytes

    @property
    def casts_weights(self) -> bool:
        """Whether the forward pass reads another format than the one that is kept."""
        return self.gathered_bytes != self.weight_bytes


def gradient_bytes(precision: Precision, gradient_dtype: GradientDtype | None, stack: Stack) -> float:
    """Bytes of gradient that one parameter accumulates.

    Formula:
        own format, unless mixed precision accumulates in another: that format

    Args:
        precision: the precision's row
        gradient_dtype: format of accumulation, the stack's default where None
        stack: the stack's row

    Returns:
        bytes of one parameter [byte]

    Source:
        Ultrascale Playbook (2 bytes, or 4 with fp32 accumulation); Megatron-LM dist_optimizer (4)

    >>> from service.estimator.precision import PRECISIONS
    >>> from service.estimator.stacks import STACKS
    >>> mixed = PRECISIONS["bf16-mixed"]
    >>> gradient_bytes(mixed, "fp32", STACKS["nanotron"]), gradient_bytes(mixed, "bf16", STACKS["nanotron"])
    (4.0, 2.0)
    """
    accumulated = default_gradient_dtype(precision, stack) if gradient_dtype is None else gradient_dtype
    if accumulated is None:
        return precision.gradient_bytes
    return DTYPE_BYTES[accumulated]


def half_gradient_bytes(precision: Precision, gradient: float, stack: Stack) -> float:
    """Bytes of gradient in the compute format that stay beside accumulated ones until a backward pass is over.

    Formula:
        the own format's, where the stack keeps them and they are narrower than what is accumulated

    Args:
        precision: the precision's row
        gradient: bytes that are accumulated [byte]
        stack: the stack's row

    Returns:
        bytes of one parameter [byte]

    Source:
        Ultrascale Playbook (2 + 4 bytes with fp32 accumulation)

    >>> from service.estimator.precision import PRECISIONS
    >>> from service.estimator.stacks import STACKS
    >>> half_gradient_bytes(PRECISIONS["bf16-mixed"], 4.0, STACKS["nanotron"])
    2.0
    """
    own = float(precision.gradient_bytes)
    return own if stack.keeps_half_gradients != "never" and gradient > own else 0.0


def default_gradient_dtype(precision: Precision, stack: Stack, zero_stage: int = 0) -> GradientDtype | None:
    """Format in which a stack accumulates gradients under a precision recipe.

    Args:
        precision: the precision's row
        stack: the stack's row
        zero_stage: ZeRO stage; some stacks shard gradients only in the compute format [1]

    Returns:
        the format, None for formats that a caller cannot name (int8)
    """
    if precision.is_mixed and precision.matrix_format not in ("fp16", "int8"):
        return "bf16" if stack.shards_half_gradients and zero_stage >= SHARDED_GRADIENTS else stack.mixed_gradient
    if precision.is_mixed and precision.matrix_format == "fp16":
        return "fp16" if stack.step_gradient_bytes else stack.mixed_gradient
    named: dict[str, GradientDtype] = {"fp32": "fp32", "bf16": "bf16", "fp16": "fp16"}
    return named.get(precision.matrix_format)


def state_bytes(precision: Precision, recipe: Recipe, stack: Stack, gpu: Gpu, *, keeps_copies: bool) -> StateBytes:
    """Bytes of one parameter for weights, gradients and master copy.

    Formula:
        compute-format weights + gradients + master copy, or fp32 weights + fp32 gradients cast on the fly

    Args:
        precision: the precision's row
        recipe: the recipe: formats of gradients and master copy
        stack: the stack's row
        gpu: the GPU, which decides whether fp8 copies are held transposed too
        keeps_copies: whether low-precision copies of weights live on between products

    Returns:
        the bytes of one parameter [byte]

    Source:
        Ultrascale Playbook (16 and 20 bytes with AdamW); Megatron-LM dist_optimizer (18, 6 + 12/d; fp16: 20, 4 + 16/d)

    >>> from service.estimator.precision import PRECISIONS
    >>> from service.estimator.stacks import STACKS
    >>> from service.estimator.samples import H100
    >>> mixed, asked = PRECISIONS["bf16-mixed"], Recipe(sequence_length=1)
    >>> b = state_bytes(mixed, asked, STACKS["megatron-core"], H100, keeps_copies=True)
    >>> b.weight_bytes + b.gradient_bytes + b.master_bytes + 8
    18.0
    """
    gradient = gradient_bytes(precision, recipe.gradient_dtype, stack)
    halves = 2 if precision.transposes_copies and generation(gpu) == "Blackwell" else 1
    copies = precision.copy_bytes / halves if keeps_copies else 0.0
    beside = half_gradient_bytes(precision, gradient, stack)
    if precision.is_mixed and stack.mixed_weights == "fp32":
        return StateBytes(
            weight_bytes=4.0,
            gathered_bytes=precision.weight_bytes,
            copy_bytes=copies,
            gradient_bytes=gradient,
            half_gradient_bytes=beside,
            master_bytes=0.0,
            step_bytes=0.0,
        )
    narrow = precision.is_mixed and gradient < DTYPE_BYTES["fp32"] and recipe.moment_dtype is None
    return StateBytes(
        weight_bytes=float(precision.weight_bytes),
        gathered_bytes=float(precision.weight_bytes),
        copy_bytes=copies,
        gradient_bytes=gradient,
        half_gradient_bytes=beside,
        master_bytes=float(precision.master_bytes if recipe.master_dtype is None else DTYPE_BYTES[recipe.master_dtype]),
        step_bytes=stack.step_gradient_bytes if narrow else 0.0,
    )
