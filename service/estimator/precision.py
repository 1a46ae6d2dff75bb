"""In which number formats are weights, gradients, master copy and activations kept? One row a recipe."""

from dataclasses import dataclass, replace
from typing import Literal

from service.estimator.gpu import Gpu
from service.estimator.names import PrecisionName

Format = Literal["fp32", "fp16", "bf16", "fp8", "fp4", "int8"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Bytes of one parameter and one activation under one precision recipe."""

    meaning: str
    """What the recipe is, in one line."""
    weight_bytes: float
    """Weights that the forward pass reads."""
    gradient_bytes: float
    """Gradients as the backward pass writes them."""
    master_bytes: float
    """fp32 copy that the optimizer updates; 0 where the weights themselves are updated."""
    moment_bytes: float
    """One optimizer moment."""
    copy_bytes: float
    """Low-precision copies of the weights kept for the matrix products."""
    element_bytes: int
    """One saved activation."""
    product_bytes: float | None = None
    """One number that a low-precision product keeps of its input; those of an activation where None."""
    transposes_copies: bool = False
    """Before Blackwell the copies are held twice, as they are and transposed; from it on once."""
    matrix_format: Format
    """Format of the matrix products."""
    attention_format: Format
    """Format of the attention kernel."""
    source: str
    """Where the bytes come from."""

    @property
    def is_mixed(self) -> bool:
        """Whether a master copy is kept beside the weights."""
        return self.master_bytes > 0


_SEEDS = "Ultrascale Playbook, memory for weights, gradients and optimizer states"
_TE = "Transformer Engine user guide, FP8 primer; Megatron-LM docs, dist_optimizer"
_MIXED = "Micikevicius et al. 2018, arXiv:1710.03740"


def _plain(meaning: str, number_format: Format, width: int, source: str) -> Precision:
    """One format throughout."""
    return Precision(
        meaning=meaning,
        weight_bytes=width,
        gradient_bytes=width,
        master_bytes=0,
        moment_bytes=width,
        copy_bytes=0,
        element_bytes=width,
        matrix_format=number_format,
        attention_format=number_format,
        source=source,
    )


def _mixed(
    meaning: str, matrix: Format, attention: Format, source: str, copies: float = 0, inputs: float | None = None
) -> Precision:
    """Half-precision weights with a master copy; products in `matrix` from `copies` bytes, keeping `inputs` bytes."""
    return Precision(
        meaning=meaning,
        weight_bytes=2,
        gradient_bytes=2,
        master_bytes=4,
        moment_bytes=4,
        copy_bytes=copies,
        element_bytes=2,
        product_bytes=inputs,
        matrix_format=matrix,
        attention_format=attention,
        source=source,
    )


PRECISIONS: dict[PrecisionName, Precision] = {
    "fp32": _plain("single precision throughout", "fp32", 4, _SEEDS),
    "fp16": _plain("half precision throughout", "fp16", 2, _SEEDS),
    "bf16": _plain("bfloat16 throughout", "bf16", 2, _SEEDS),
    "int8": Precision(
        meaning="8-bit integer weights and gradients, fp32 master copy",
        weight_bytes=1,
        gradient_bytes=1,
        master_bytes=4,
        moment_bytes=4,
        copy_bytes=0,
        element_bytes=2,
        matrix_format="int8",
        attention_format="bf16",
        source="lecture notes, memory and compute requirements (1 byte a parameter, 1 a gradient)",
    ),
    "fp16-mixed": _mixed("fp16 compute, fp32 master copy", "fp16", "fp16", _MIXED),
    "bf16-mixed": _mixed("bf16 compute, fp32 master copy", "bf16", "bf16", _SEEDS),
    "fp8-tensorwise": replace(
        _mixed(
            "bf16-mixed with fp8 products, one scale a tensor; fp8 weight cached, before Blackwell its transpose too",
            "fp8",
            "bf16",
            _TE,
            2,
            1,
        ),
        transposes_copies=True,
    ),
    "fp8-blockwise": _mixed(
        "bf16-mixed with fp8 products, one fp32 scale a 128 x 128 block; row- and column-wise copies",
        "fp8",
        "bf16",
        _TE,
        2 * (1 + 4 / 128**2),
        1 + 4 / 128,
    ),
    "mxfp8": _mixed(
        "bf16-mixed with MXFP8 products, one byte of scale for 32 numbers; row- and column-wise copies",
        "fp8",
        "bf16",
        "OCP Microscaling Formats specification 1.0; " + _TE,
        2 * (1 + 1 / 32),
        1 + 1 / 32,
    ),
    "nvfp4": _mixed(
        "bf16-mixed with NVFP4 products, one byte of scale for 16 numbers; row- and column-wise copies",
        "fp4",
        "bf16",
        "NVIDIA 2025, arXiv:2509.25149; " + _TE,
        2 * (1 / 2 + 1 / 16),
        1 / 2 + 1 / 16,
    ),
    "fp8-deepseek": Precision(
        meaning="fp8 weights, fp32 master copy and gradients, bf16 moments",
        weight_bytes=1,
        gradient_bytes=4,
        master_bytes=4,
        moment_bytes=2,
        copy_bytes=0,
        element_bytes=2,
        product_bytes=1 + 4 / 128,
        matrix_format="fp8",
        attention_format="bf16",
        source="DeepSeek-V3, arXiv:2412.19437, section 3.3",
    ),
}


def peak_flop_per_s(gpu: Gpu, number_format: Format) -> float | None:
    """Dense peak of one GPU in a number format.

    Formula:
        the GPU's data-sheet row

    Args:
        gpu: the GPU
        number_format: format of the products

    Returns:
        the peak [FLOP/s], None where the GPU has no such unit

    Source:
        the GPU's row in the catalogue

    >>> from service.estimator.samples import H100
    >>> peak_flop_per_s(H100, "bf16")
    989400000000000.0
    """
    peaks = {
        "fp32": gpu.fp32_flop_per_s,
        "fp16": gpu.fp16_flop_per_s,
        "bf16": gpu.bf16_flop_per_s,
        "fp8": gpu.fp8_flop_per_s,
        "fp4": gpu.fp4_flop_per_s,
        "int8": gpu.int8_flop_per_s,
    }
    return peaks[number_format]


def default_precision(gpu: Gpu) -> PrecisionName:
    """The precision recipe of a question that names none: the widest used that the GPU has units for.

    Args:
        gpu: the GPU

    Returns:
        bf16-mixed; fp16-mixed before the Ampere generation; fp32 where neither has a published rate
    """
    if gpu.bf16_flop_per_s is not None:
        return "bf16-mixed"
    return "fp32" if gpu.fp16_flop_per_s is None else "fp16-mixed"


def highest_peak_flop_per_s(gpu: Gpu, precision: Precision) -> float:
    """The peak that MFU divides by: the higher of the formats that matrix products and attention run in.

    Formula:
        max(R_matrix, R_attention)

    Args:
        gpu: the GPU
        precision: the precision's row

    Returns:
        the peak [FLOP/s]

    Source:
        definition; some GPUs are slower in int8 than in bf16

    >>> from service.estimator.samples import H100
    >>> highest_peak_flop_per_s(H100, PRECISIONS["fp8-tensorwise"])
    1978900000000000.0
    """
    peaks = [peak_flop_per_s(gpu, name) for name in (precision.matrix_format, precision.attention_format)]
    return max(peak for peak in peaks if peak is not None)
