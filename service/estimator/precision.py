"""In which number formats are weights, gradients, master copy and activations kept? One row a recipe."""

from dataclasses import dataclass
from typing import Literal

from service.estimator.question import Gpu, PrecisionName

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


def _row(  # noqa: PLR0913 - one argument a column of the table
    meaning: str,
    weight: float,
    gradient: float,
    master: float,
    moment: float,
    copies: float,
    formats: tuple[Format, Format],
    source: str,
) -> Precision:
    return Precision(
        meaning=meaning,
        weight_bytes=weight,
        gradient_bytes=gradient,
        master_bytes=master,
        moment_bytes=moment,
        copy_bytes=copies,
        element_bytes=4 if formats[1] == "fp32" else 2,
        matrix_format=formats[0],
        attention_format=formats[1],
        source=source,
    )


PRECISIONS: dict[PrecisionName, Precision] = {
    "fp32": _row("single precision throughout", 4, 4, 0, 4, 0, ("fp32", "fp32"), _SEEDS),
    "fp16": _row("half precision throughout", 2, 2, 0, 2, 0, ("fp16", "fp16"), _SEEDS),
    "bf16": _row("bfloat16 throughout", 2, 2, 0, 2, 0, ("bf16", "bf16"), _SEEDS),
    "int8": _row("8-bit integer weights and gradients, fp32 master copy", 1, 1, 4, 4, 0, ("int8", "bf16"), _SEEDS),
    "fp16-mixed": _row("fp16 compute, fp32 master copy", 2, 2, 4, 4, 0, ("fp16", "fp16"), _MIXED),
    "bf16-mixed": _row("bf16 compute, fp32 master copy", 2, 2, 4, 4, 0, ("bf16", "bf16"), _SEEDS),
    "fp8-tensorwise": _row(
        "bf16-mixed with fp8 matrix products, one scale a tensor; fp8 weight and its transpose cached",
        2, 2, 4, 4, 2, ("fp8", "bf16"), _TE,
    ),
    "fp8-blockwise": _row(
        "bf16-mixed with fp8 matrix products, one fp32 scale a 128 x 128 block; row- and column-wise copies",
        2, 2, 4, 4, 2 * (1 + 4 / 128**2), ("fp8", "bf16"), _TE,
    ),
    "mxfp8": _row(
        "bf16-mixed with MXFP8 matrix products, one byte of scale for 32 numbers; row- and column-wise copies",
        2, 2, 4, 4, 2 * (1 + 1 / 32), ("fp8", "bf16"), "OCP Microscaling Formats specification 1.0; " + _TE,
    ),
    "nvfp4": _row(
        "bf16-mixed with NVFP4 matrix products, one byte of scale for 16 numbers; row- and column-wise copies",
        2, 2, 4, 4, 2 * (1 / 2 + 1 / 16), ("fp4", "bf16"), "NVIDIA 2025, arXiv:2509.25149; " + _TE,
    ),
    "fp8-deepseek": _row(
        "fp8 weights, fp32 master copy and gradients, bf16 moments",
        1, 4, 4, 2, 0, ("fp8", "bf16"), "DeepSeek-V3, arXiv:2412.19437, section 3.3",
    ),
}  # fmt: skip


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
