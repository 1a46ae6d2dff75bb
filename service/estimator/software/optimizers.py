"""States that each optimizer keeps for each weight. One row an optimizer."""

from dataclasses import dataclass
from typing import Literal

from service.estimator.model.ledger import Weight
from service.estimator.question import MomentDtype, OptimizerName
from service.estimator.software.precision import Precision

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


_ADAM = "Loshchilov and Hutter 2019, arXiv:1711.05101"
_EIGHT_BIT = "Dettmers et al. 2022, arXiv:2110.02861 (one byte a moment); one fp32 scale for 256 numbers: bitsandbytes"

OPTIMIZERS: dict[OptimizerName, Optimizer] = {
    "adamw": Optimizer(meaning="two full moments", first_moment="full", second_moment="full", source=_ADAM),
    "adamw-8bit": Optimizer(
        meaning="two moments of one byte, with scales",
        first_moment="full",
        second_moment="full",
        moment_bytes=1.0,
        scale_bytes=4 / 256,
        source=_EIGHT_BIT,
    ),
    "sgd-momentum": Optimizer(
        meaning="one full moment", first_moment="full", second_moment="none", source="Polyak 1964; torch.optim.SGD"
    ),
    "adafactor": Optimizer(
        meaning="no first moment, second moment as one row and one column",
        first_moment="none",
        second_moment="rows_and_columns",
        source="Shazeer and Stern 2018, arXiv:1804.04235",
    ),
    "lion": Optimizer(
        meaning="one full moment",
        first_moment="full",
        second_moment="none",
        source="Chen et al. 2023, arXiv:2302.06675",
    ),
    "muon": Optimizer(
        meaning="one full moment on hidden matrices; AdamW on embeddings, head and vectors",
        first_moment="full",
        second_moment="none",
        outside_matrices="adamw",
        needs_whole_matrices=True,
        source="Jordan et al. 2024, Muon; Liu et al. 2025, arXiv:2502.16982",
    ),
    "adam-mini": Optimizer(
        meaning="full first moment, one second moment for each output",
        first_moment="full",
        second_moment="columns",
        source="Zhang et al. 2024, arXiv:2406.16793",
    ),
}


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

    Returns:
        numbers of both moments together [1]

    Source:
        the optimizer's row

    >>> state_numbers(OPTIMIZERS["adamw"], Weight(4, 3)), state_numbers(OPTIMIZERS["adafactor"], Weight(4, 3))
    (24, 7)
    """
    if not weight.trained:
        return 0
    if optimizer.outside_matrices == "adamw" and (weight.role not in ("matrix", "adapter") or weight.rows == 1):
        return 2 * weight.parameters
    return _form_numbers(optimizer.first_moment, weight) + _form_numbers(optimizer.second_moment, weight)


MOMENT_BYTES: dict[MomentDtype, float] = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0}


def moment_bytes(optimizer: Optimizer, precision: Precision, moment_dtype: MomentDtype | None = None) -> float:
    """Bytes of one number of optimizer state.

    Formula:
        the format that the recipe names, else the optimizer's own width, else the precision recipe's

    Args:
        moment_dtype: format that the recipe names

    Returns:
        bytes of one number [byte]

    Source:
        the rows

    >>> from service.estimator.software.precision import PRECISIONS
    >>> moment_bytes(OPTIMIZERS["adamw"], PRECISIONS["bf16-mixed"])
    4
    """
    if moment_dtype is not None:
        return MOMENT_BYTES[moment_dtype]
    return precision.moment_bytes if optimizer.moment_bytes is None else optimizer.moment_bytes
