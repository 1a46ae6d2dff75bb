"""Number formats of weights, gradients, master copy and activations, and states of optimizers, in precision.json."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from service.estimator.model.ledger import Weight
from service.estimator.question import (
    Gpu,
    GradientDtype,
    Method,
    MomentDtype,
    OptimizerName,
    PrecisionName,
    QuantizationName,
    Recipe,
)
from service.estimator.software.stacks import Stack, requested_software
from service.estimator.software.versions import generation
from service.estimator.tables import Table

Format = Literal["fp32", "fp16", "bf16", "fp8", "fp4", "int8"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Bytes of one parameter and one activation under one precision recipe."""

    meaning: str
    """What the recipe is, in one line."""
    weight_bytes: float
    """Weights that the forward pass reads."""
    outside_bytes: float | None = None
    """Those of them that are no matrix of a layer (embedding, head, norms); as many where None."""
    gradient_bytes: float
    """Gradients as the backward pass writes them."""
    master_bytes: float
    """fp32 copy that the optimizer updates; 0 where the weights themselves are updated."""
    moment_bytes: float
    """One optimizer moment."""
    copy_bytes: float = 0
    """Low-precision copies of the weights kept for the matrix products, each with its scales."""
    element_bytes: int
    """One saved activation."""
    product_bytes: float | None = None
    """One number that a low-precision product keeps of its input: 1 + 4/128 with an fp32 scale for 128 of them; those
    of an activation where None."""
    activation_input_bytes: float | None = None
    """One number that the activation of an MLP keeps of its input; one saved activation where None."""
    result_bytes: float | None = None
    """One number of attention's result, as the projection after it keeps it; one saved activation where None."""
    dispatch_bytes: float | None = None
    """One number of a token on its way to an expert, and of its gradient; one saved activation where None."""
    transposes_copies: bool = False
    """Before Blackwell the copies are held twice, as they are and transposed; from it on once."""
    matrix_format: Format
    """Format of the matrix products."""
    attention_format: Format
    """Format of the attention kernel."""
    generations: tuple[str, ...] = ()
    """Generations of GPUs that have kernels for its products; all whose arithmetic has the format where empty."""
    is_unpublished: bool = False
    """It is that of one lab's software, which was never published."""
    source: str
    """Source of the bytes."""

    @property
    def is_mixed(self) -> bool:
        """Whether a master copy is kept beside the weights."""
        return self.master_bytes > 0


PRECISIONS = Table(__package__, "precision.json", "precisions", dict[PrecisionName, Precision])

SHORT_NAMES: dict[PrecisionName, PrecisionName] = {"bf16": "bf16-mixed", "fp16": "fp16-mixed"}
"""Recipes that short names stand for. Source: bf16 and fp16 of Hugging Face's TrainingArguments and of Megatron-LM."""

SHORT_NAMES_SINCE = "2026.11.7"
"""Formulas under which a short name first stood for a mixed recipe; before, it stood for the pure one."""


def in_present_names(recipe: Mapping[str, Any]) -> Mapping[str, Any]:
    """A recipe of earlier formulas, as JSON, with the present name of its precision.

    >>> in_present_names({"precision": "bf16"})
    {'precision': 'bf16-pure'}
    """
    is_short = recipe.get("precision") in SHORT_NAMES
    return {**recipe, "precision": f"{recipe['precision']}-pure"} if is_short else recipe


def peak_flop_per_s(gpu: Gpu, number_format: Format) -> float | None:
    """Dense peak of one GPU in a number format.

    Formula: the GPU's data-sheet row
    Returns: the peak [FLOP/s], None where the GPU has no such unit
    Source: the GPU's row in the catalogue

    >>> from service.estimator.samples import H100
    >>> peak_flop_per_s(H100, "bf16")
    989400000000000.0
    """
    peak: float | None = getattr(gpu, f"{number_format}_flop_per_s")
    return peak


def known_peak_flop_per_s(gpu: Gpu, number_format: Format) -> float:
    """Dense peak of one GPU in a number format that it has; rules refuse the others.

    Formula: the GPU's data-sheet row
    Returns: the peak [FLOP/s]
    Source: the GPU's row in the catalogue

    >>> from service.estimator.samples import H100
    >>> known_peak_flop_per_s(H100, "fp8")
    1978900000000000.0
    """
    peak = peak_flop_per_s(gpu, number_format)
    if peak is None:
        message = f"{gpu.slug} has no {number_format} unit"
        raise TypeError(message)
    return peak


def default_precision(gpu: Gpu) -> PrecisionName:
    """Default precision recipe: bf16-mixed, else fp16-mixed (before Ampere), else fp32, by the units of the GPU."""
    if gpu.bf16_flop_per_s is not None:
        return "bf16-mixed"
    return "fp32" if gpu.fp16_flop_per_s is None else "fp16-mixed"


def highest_peak_flop_per_s(gpu: Gpu, precision: Precision) -> float:
    """The peak that MFU divides by: the higher of the formats that matrix products and attention run in.

    Formula: max(R_matrix, R_attention)
    Returns: the peak [FLOP/s]
    Source: definition; some GPUs are slower in int8 than in bf16

    >>> from service.estimator.samples import H100
    >>> highest_peak_flop_per_s(H100, PRECISIONS["fp8-tensorwise"])
    1978900000000000.0
    """
    peaks = [peak_flop_per_s(gpu, name) for name in (precision.matrix_format, precision.attention_format)]
    return max(peak for peak in peaks if peak is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """One format of frozen matrices."""

    meaning: str
    """What it is, in one line."""
    weight_bytes: float
    """Bytes of one weight, scales counted."""
    traffic_bytes: float
    """Memory traffic that makes one weight wide for a product."""
    keeps_wide: bool = False
    """Autograd keeps the wide weights for the gradient of the input; else they are made again."""
    source: str
    """Source of the bytes."""


QUANTIZATIONS = Table(__package__, "precision.json", "quantizations", dict[QuantizationName, Quantization])


def quantization_of(method: Method) -> Quantization | None:
    """The format of frozen matrices; None where nothing is quantised."""
    return QUANTIZATIONS[method.quantization or "nf4-double"] if method.name == "qlora" else None


def quantized_bytes(method: Method) -> float:
    """Bytes of one weight of a frozen matrix, scales counted.

    Formula: the row of the format; 0 where nothing is quantised
    Returns: bytes of one parameter [byte]
    Source: the row

    >>> quantized_bytes(Method(name="qlora", quantization="nf4"))
    0.5625
    """
    quantization = quantization_of(method)
    return 0.0 if quantization is None else quantization.weight_bytes


SHARDED_GRADIENTS = 2
"""ZeRO stage from which gradients are sharded. Source: Rajbhandari et al. 2020, arXiv:1910.02054, figure 1."""

DTYPE_BYTES: dict[GradientDtype, float] = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class StateBytes:
    """Bytes of one parameter, unsharded; optimizer moments are counted by `optimizers`."""

    weight_bytes: float
    gathered_bytes: float
    """Weights as the forward pass reads them, where they are gathered or cast on the fly; frozen ones are kept so."""
    copy_bytes: float
    """Low-precision copies for the matrix products."""
    gradient_bytes: float
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

    Formula: own format, unless mixed precision accumulates in another: that format
    Args:
        gradient_dtype: format of accumulation, the stack's default where None
    Returns: bytes of one parameter [byte]
    Source: Ultrascale Playbook (2 bytes, or 4 with fp32 accumulation); Megatron-LM dist_optimizer (4)

    >>> from service.estimator.software.precision import PRECISIONS
    >>> from service.estimator.software.stacks import STACKS
    >>> mixed = PRECISIONS["bf16-mixed"]
    >>> gradient_bytes(mixed, "fp32", STACKS["nanotron"]), gradient_bytes(mixed, "bf16", STACKS["nanotron"])
    (4.0, 2.0)
    """
    accumulated = gradient_dtype or default_gradient_dtype(precision, stack)
    return precision.gradient_bytes if accumulated is None else DTYPE_BYTES[accumulated]


def half_gradient_bytes(precision: Precision, gradient: float, stack: Stack) -> float:
    """Bytes of gradient in the compute format that stay beside accumulated ones until a backward pass is over.

    Formula: the own format's, where the stack keeps them and they are narrower than what is accumulated
    Args:
        gradient: bytes that are accumulated [byte]
    Returns: bytes of one parameter [byte]
    Source: Ultrascale Playbook (2 + 4 bytes with fp32 accumulation)

    >>> from service.estimator.software.precision import PRECISIONS
    >>> from service.estimator.software.stacks import STACKS
    >>> half_gradient_bytes(PRECISIONS["bf16-mixed"], 4.0, STACKS["nanotron"])
    2.0
    """
    own = float(precision.gradient_bytes)
    return own if stack.keeps_half_gradients != "never" and gradient > own else 0.0


def default_gradient_dtype(precision: Precision, stack: Stack, zero_stage: int = 0) -> GradientDtype | None:
    """Format in which a stack accumulates gradients: fp32 in mixed precision, but for stacks that shard narrow ones."""
    if precision.is_mixed and precision.matrix_format == "fp16":
        return "fp16" if stack.step_gradient_bytes else "fp32"
    if precision.is_mixed and precision.matrix_format != "int8":
        return "bf16" if stack.shards_half_gradients and zero_stage >= SHARDED_GRADIENTS else "fp32"
    named: dict[Format, GradientDtype] = {"fp32": "fp32", "bf16": "bf16", "fp16": "fp16"}
    return named.get(precision.matrix_format)


def decouples_gradients(precision: Precision, recipe: Recipe, stack: Stack) -> bool:
    """Whether the optimizer's kernel reads gradients as they are accumulated, without fp32 copies of them.

    Formula: as the recipe chooses; else where moments or master copy have a named format, but for fp32 masters of fp8
    Returns: whether it does
    Source:
        NVIDIA/Megatron-LM@d98e8a64 core/optimizer/optimizer_config.py use_precision_aware_optimizer_no_fp8_or_ds_fp8,
        distrib_optimizer.py _copy_model_grads_to_main_grads; NVIDIA-NeMo/Megatron-Bridge@067f987
        training/mixed_precision.py (fp8_recipe is tensorwise without fp8, too: false there)

    >>> from service.estimator.software.precision import PRECISIONS
    >>> from service.estimator.software.stacks import STACKS
    >>> recipe, stack = Recipe(sequence_length=1, stack="megatron-core", moment_dtype="bf16"), STACKS["megatron-core"]
    >>> [decouples_gradients(PRECISIONS[name], recipe, stack) for name in ("bf16-mixed", "fp8-tensorwise")]
    [True, False]
    """
    chosen, master = requested_software(recipe).decoupled_gradients, recipe.master_dtype
    if chosen is not None:
        return chosen
    if not stack.decouples_gradients:
        return recipe.moment_dtype is not None
    named = recipe.moment_dtype or master
    return master == "fp16" or (named is not None and precision.matrix_format != "fp8")


def state_bytes(precision: Precision, recipe: Recipe, stack: Stack, gpu: Gpu, *, keeps_copies: bool) -> StateBytes:
    """Bytes of one parameter for weights, gradients and master copy.

    Formula:
        compute-format weights + gradients + master copy, or fp32 weights + fp32 gradients cast on the fly; inside the
        step fp32 copies of narrower gradients, unless its kernel reads those
    Args:
        recipe: the recipe: formats of gradients and master copy
        gpu: the GPU, which decides whether fp8 copies are held transposed too
        keeps_copies: whether low-precision copies of weights live on between products
    Returns: the bytes of one parameter [byte]
    Source:
        Ultrascale Playbook (16 and 20 bytes with AdamW); Megatron-LM dist_optimizer (18, 6 + 12/d; fp16: 20, 4 + 16/d)

    >>> from service.estimator.software.precision import PRECISIONS
    >>> from service.estimator.software.stacks import STACKS
    >>> from service.estimator.samples import H100
    >>> mixed, asked = PRECISIONS["bf16-mixed"], Recipe(sequence_length=1, stack="megatron-core")
    >>> b = state_bytes(mixed, asked, STACKS["megatron-core"], H100, keeps_copies=True)
    >>> b.weight_bytes + b.gradient_bytes + b.master_bytes + 8
    18.0
    """
    gradient = gradient_bytes(precision, recipe.gradient_dtype, stack)
    halves = 2 if precision.transposes_copies and generation(gpu) == "Blackwell" else 1
    casts = precision.is_mixed and stack.mixed_weights == "fp32"
    master = precision.master_bytes if recipe.master_dtype is None else DTYPE_BYTES[recipe.master_dtype]
    narrow = precision.is_mixed and gradient < DTYPE_BYTES["fp32"]
    copies = narrow and not casts and not decouples_gradients(precision, recipe, stack)
    return StateBytes(
        weight_bytes=4.0 if casts else float(precision.weight_bytes),
        gathered_bytes=precision.weight_bytes if casts else float(precision.weight_bytes),
        copy_bytes=precision.copy_bytes / halves if keeps_copies else 0.0,
        gradient_bytes=gradient,
        half_gradient_bytes=half_gradient_bytes(precision, gradient, stack),
        master_bytes=0.0 if casts else float(master),
        step_bytes=stack.step_gradient_bytes if copies else 0.0,
    )


Form = Literal["full", "rows_and_columns", "columns", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """States of one optimizer, by weight."""

    meaning: str
    """What it keeps, in one line."""
    first_moment: Form
    """Shape of the first moment of a weight."""
    second_moment: Form
    """Shape of the second moment of a weight."""
    outside_matrices: Literal["same", "adamw"] = "same"
    """Rule for embeddings, head and vectors."""
    needs_whole_matrices: bool = False
    """Its arithmetic needs a matrix whole, so a rank updates whole matrices."""
    moment_bytes: float | None = None
    """Bytes of one number of a moment; the precision recipe's where None."""
    scale_bytes: float = 0.0
    """Bytes of quantisation scales for one number of a moment."""
    source: str
    """Source of the states."""


OPTIMIZERS = Table(__package__, "precision.json", "optimizers", dict[OptimizerName, Optimizer])


def is_orthogonalized(optimizer: Optimizer, weight: Weight) -> bool:
    """Whether an optimizer makes the update of a weight orthogonal: that of a trained matrix of a layer."""
    is_matrix = weight.role in ("matrix", "adapter") and weight.rows > 1
    return optimizer.needs_whole_matrices and weight.trained and is_matrix


def _form_numbers(form: Form, weight: Weight) -> int:
    if form == "none":
        return 0
    if form == "full" or weight.rows == 1:
        return weight.parameters
    if form == "columns":
        return weight.copies * weight.columns
    return weight.copies * (weight.rows + weight.columns)


def state_numbers(optimizer: Optimizer, weight: Weight) -> int:
    """Numbers of optimizer state kept for one weight, undivided.

    Formula:
        full: r c        rows and columns: r + c        columns: c        (times copies; vectors are always full;
        none for a frozen weight)
    Args:
        weight: the weight, r inputs and c outputs
    Returns: numbers of both moments together [1]
    Source: the optimizer's row

    >>> state_numbers(OPTIMIZERS["adamw"], Weight(4, 3)), state_numbers(OPTIMIZERS["adafactor"], Weight(4, 3))
    (24, 7)
    """
    if not weight.trained:
        return 0
    if optimizer.outside_matrices == "adamw" and not is_orthogonalized(optimizer, weight):
        return 2 * weight.parameters
    return _form_numbers(optimizer.first_moment, weight) + _form_numbers(optimizer.second_moment, weight)


MOMENT_BYTES: dict[MomentDtype, float] = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0}


def moment_bytes(optimizer: Optimizer, precision: Precision, moment_dtype: MomentDtype | None = None) -> float:
    """Bytes of one number of optimizer state.

    Formula: the format that the recipe names, else the optimizer's own width, else the precision recipe's
    Args:
        moment_dtype: format that the recipe names
    Returns: bytes of one number [byte]
    Source: the rows

    >>> from service.estimator.software.precision import PRECISIONS
    >>> moment_bytes(OPTIMIZERS["adamw"], PRECISIONS["bf16-mixed"])
    4
    """
    if moment_dtype is not None:
        return MOMENT_BYTES[moment_dtype]
    return precision.moment_bytes if optimizer.moment_bytes is None else optimizer.moment_bytes


Gains = tuple[float, float]

WIDE_HEAD, WIDEST_HEAD = 128, 160
"""Mean widths of queries and values from which the later columns of FP8_ATTENTION apply.
Source: definition: models whose heads have 64, 128, and 192 and 128 numbers were measured."""

FP8_ATTENTION: dict[str, dict[str, tuple[Gains, Gains, Gains]]] = {
    "Hopper": {"fp8-tensorwise": ((1.0, 0.91), (1.49, 0.91), (1.49, 0.91))},
    "Blackwell": {
        "fp8-tensorwise": ((1.21, 1.0), (1.31, 1.24), (1.47, 1.74)),
        "mxfp8": ((1.12, 1.0), (1.22, 1.06), (1.38, 1.4)),
    },
    "Blackwell Ultra": {
        "fp8-tensorwise": ((1.37, 1.0), (1.58, 1.34), (1.71, 1.89)),
        "mxfp8": ((1.31, 1.0), (1.42, 1.04), (1.55, 1.47)),
    },
}
"""Rates of cuDNN's attention in fp8 over those in bf16, forward and backward, for heads below 128, of 128, and of
queries of 192 and values of 128, by architecture and precision.
Source: NVIDIA/cudnn-frontend@3929da2 benchmark/sdpa_benchmark_training/results (gpt_oss, llama3.1, dsv3), geometric
means from 4,096 tokens on, cuDNN 9.22 on GB200 and GB300, 9.19 on H200, where only heads of 128 were measured; below
128 its backward pass in fp8 is not tuned, and the rate of bf16 is kept."""


def fp8_attention_gains(precision: str, gpu: Gpu, mean_width: float) -> Gains | None:
    """Rates of attention in fp8 over those in bf16, forward and backward; None where no kernel was measured.

    >>> from service.estimator.samples import H100

    >>> fp8_attention_gains("fp8-tensorwise", H100, 128), fp8_attention_gains("mxfp8", H100, 128)
    ((1.49, 0.91), None)
    """
    known = FP8_ATTENTION.get(gpu.architecture.removesuffix(" (Grace)"), {}).get(precision)
    return None if known is None else known[(mean_width >= WIDE_HEAD) + (mean_width >= WIDEST_HEAD)]
