"""Which share of its data-sheet rates does a GPU reach inside a training step? One row a GPU generation."""

from dataclasses import dataclass, field

from service.estimator.gpu import Gpu
from service.estimator.precision import Format

MEMORY_FRACTION = 0.87
"""Share of memory bandwidth that streaming kernels reach: best read rates of eight GPUs lie at 0.84-0.94.
Source: ai-dynamo/aiconfigurator@095f58a memory kernels (A100 0.87, H100 0.87, H200 0.89, B200 0.88)."""

LAUNCH_SECONDS = 5e-6
"""Fixed cost of one kernel: intercepts of 4.7 (A100) and 6 (H100) microseconds over 38,136 measured matrix products.
Source: microsoft/vidur profiling data mlp.csv, fitted."""

SHAPE_FRACTION = 0.86
"""A training step's matrix shapes against the best shape found: 0.69 of peak over model shapes, 0.80 at best (H100).
Source: microsoft/vidur profiling data mlp.csv against stas00/ml-engineering@744d01e MAMF table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """Shares of peak that one GPU generation reaches."""

    best_fractions: dict[Format, float] = field(default_factory=dict)
    """Best measured matrix product over dense peak, by format; bf16 where a format is absent."""
    attention_fraction: float
    """Fused attention kernel, forward and backward together, over dense peak."""
    source: str
    """Where the measurements come from."""


_MAMF = "stas00/ml-engineering@744d01e compute/accelerator README, MAMF table"
_AIC = "ai-dynamo/aiconfigurator@095f58a gemm_perf"
_MAMF_AIC = f"{_MAMF}; fp4: {_AIC}"

EFFICIENCIES: dict[str, Efficiency] = {
    "Ampere": Efficiency(
        best_fractions={"bf16": 0.869}, attention_fraction=0.45,
        source=_MAMF + "; attention: Dao 2023, arXiv:2307.08691, figure 5 (FlashAttention-2 with a causal mask)",
    ),
    "Ada": Efficiency(best_fractions={"bf16": 0.768, "fp8": 0.591}, attention_fraction=0.40, source=_AIC),
    "Hopper": Efficiency(
        best_fractions={"bf16": 0.803, "fp8": 0.709}, attention_fraction=0.45,
        source=_MAMF + "; attention: Shah et al. 2024, arXiv:2407.08608; 447 of 989 TFLOP/s inside an H200 step",
    ),
    "Hopper (Grace)": Efficiency(best_fractions={"bf16": 0.838, "fp8": 0.776}, attention_fraction=0.45, source=_MAMF),
    "Blackwell": Efficiency(
        best_fractions={"bf16": 0.776, "fp8": 0.763, "fp4": 0.505}, attention_fraction=0.37,
        source=f"{_MAMF_AIC}; attention: 834 of 2250 TFLOP/s (FlashAttention-4)",
    ),
    "Blackwell (Grace)": Efficiency(
        best_fractions={"bf16": 0.729, "fp8": 0.723, "fp4": 0.520}, attention_fraction=0.37, source=_MAMF_AIC
    ),
    "Blackwell Ultra": Efficiency(
        best_fractions={"bf16": 0.786, "fp8": 0.745, "fp4": 0.444}, attention_fraction=0.37, source=_MAMF_AIC
    ),
    "Blackwell Ultra (Grace)": Efficiency(
        best_fractions={"bf16": 0.843, "fp8": 0.750, "fp4": 0.431}, attention_fraction=0.37, source=_AIC
    ),
    "CDNA3": Efficiency(best_fractions={"bf16": 0.556}, attention_fraction=0.30, source=f"{_MAMF}; mean of two"),
    "CDNA4": Efficiency(best_fractions={"bf16": 0.622}, attention_fraction=0.30, source=_MAMF),
    "Gaudi2": Efficiency(best_fractions={"bf16": 0.969, "fp8": 0.956}, attention_fraction=0.40, source=_MAMF),
    "Gaudi3": Efficiency(best_fractions={"bf16": 0.741, "fp8": 0.769}, attention_fraction=0.40, source=_MAMF),
}  # fmt: skip

UNMEASURED = Efficiency(
    best_fractions={"bf16": 0.75},
    attention_fraction=0.35,
    source="median of the measured generations: " + _MAMF,
)
"""For a generation without a measurement; the answer says so."""


def efficiency_of(gpu: Gpu) -> Efficiency:
    """The measured shares of a GPU's generation.

    Args:
        gpu: the GPU

    Returns:
        its row, or UNMEASURED
    """
    return EFFICIENCIES.get(gpu.architecture, UNMEASURED)


def best_fraction(gpu: Gpu, number_format: Format) -> float:
    best = efficiency_of(gpu).best_fractions
    return best.get(number_format, best["bf16"])


def matrix_fraction(gpu: Gpu, number_format: Format) -> float:
    """Share of dense peak that a training step's matrix products reach on one GPU.

    Formula:
        best measured share x shape share

    Args:
        gpu: the GPU
        number_format: format of the products

    Returns:
        share of peak [1]

    Source:
        the generation's row; SHAPE_FRACTION

    >>> from service.estimator.samples import H100
    >>> round(matrix_fraction(H100, "bf16"), 3)
    0.691
    """
    best = efficiency_of(gpu).best_fractions
    return best.get(number_format, best["bf16"]) * SHAPE_FRACTION
