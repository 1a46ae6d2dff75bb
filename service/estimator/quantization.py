"""How many bytes does a frozen weight need in a format of 4 bits? One row a format."""

from dataclasses import dataclass

from service.estimator.names import QuantizationName
from service.estimator.question import Method


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """One format of frozen matrices."""

    meaning: str
    """What it is, in one line."""
    weight_bytes: float
    """Bytes of one weight, scales counted."""
    source: str
    """Who says so."""


QUANTIZATIONS: dict[QuantizationName, Quantization] = {
    "nf4-double": Quantization(
        meaning="4-bit normal float, one 8-bit scale for 64 numbers, one fp32 scale for 256 of those",
        weight_bytes=0.5 + 1 / 64 + 4 / (64 * 256),
        source="Dettmers et al. 2023, arXiv:2305.14314, section 3",
    ),
    "nf4": Quantization(
        meaning="4-bit normal float, one fp32 scale for 64 numbers",
        weight_bytes=0.5 + 4 / 64,
        source="Dettmers et al. 2023, arXiv:2305.14314, section 3",
    ),
    "gptq": Quantization(
        meaning="4-bit integers, one 16-bit scale and one 4-bit zero for 128 numbers",
        weight_bytes=0.5 + 2.5 / 128,
        source="Frantar et al. 2022, arXiv:2210.17323; AutoGPTQ, group size 128",
    ),
}


def quantization_of(method: Method) -> Quantization:
    """The format of a method's frozen matrices.

    Args:
        method: the method; it is qlora

    Returns:
        the row; nf4-double where none is named
    """
    return QUANTIZATIONS[method.quantization or "nf4-double"]


def quantized_bytes(method: Method) -> float:
    """Bytes of one weight of a frozen matrix, scales counted.

    Formula:
        the row of the format; 0 where nothing is quantised

    Args:
        method: the method

    Returns:
        bytes of one parameter [byte]

    Source:
        the row

    >>> quantized_bytes(Method(name="qlora", quantization="nf4"))
    0.5625
    """
    return quantization_of(method).weight_bytes if method.name == "qlora" else 0.0
