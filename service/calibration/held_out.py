"""What would be predicted of a published step by constants that never saw its source? Fit without it, then ask."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from tomllib import loads
from typing import Protocol

from service.calibration.step_rows import StepRow
from service.estimator import FORMULAS_VERSION
from service.estimator.question import Question

FILE = "published/held_out.toml"
"""Where the predictions are shipped: a fit for every source takes too long to repeat at every question."""

DIGITS = 6
"""Significant digits of a shipped prediction."""


class StepModel(Protocol):
    """A way to predict steps whose constants are fitted on published ones."""

    def fit(self, rows: Sequence[StepRow]) -> object:
        """The constants that some rows give.

        Args:
            rows: the rows

        Returns:
            the constants
        """

    def step_seconds(self, question: Question, fitted: object) -> float:
        """Seconds of a step by some constants.

        Args:
            question: the question
            fitted: the constants

        Returns:
            seconds of one step [s]
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """Predictions of steps, each by constants that never saw the row's source."""

    formulas: str
    """Version of the formulas that predicted."""
    digest: str
    """Digest of what the shipped constants predict of the same rows: another one means that these are stale."""
    predicted_seconds: Mapping[str, float]
    """Seconds of a step by the row's name."""


def held_out_seconds(
    rows: Sequence[StepRow], model: StepModel, only: Collection[str] | None = None
) -> dict[str, float]:
    """Predictions of every row by constants fitted on the rows that are not left out with it.

    Args:
        rows: the rows
        model: what is fitted
        only: names of what is left out in turn; everything where None

    Returns:
        seconds of a step by the row's name [s]
    """
    found = {}
    for name in dict.fromkeys(row.left_out_with for row in rows):
        if only is not None and name not in only:
            continue
        own = [row for row in rows if row.left_out_with == name]
        fitted = model.fit([row for row in rows if row.left_out_with != name])
        found.update({row.id: model.step_seconds(row.question, fitted) for row in own})
    return found


def digest_of(seconds: Mapping[str, float]) -> str:
    """What tells some predictions from others.

    Args:
        seconds: seconds of a step by the row's name

    Returns:
        16 hexadecimal digits

    >>> digest_of({"a": 1.0}) == digest_of({"a": 1.00000004}), digest_of({"a": 1.0}) == digest_of({"a": 1.1})
    (True, False)
    """
    return sha256("\n".join(_lines(seconds)).encode()).hexdigest()[:16]


def held_out_text(held_out: Mapping[str, float], shipped: Mapping[str, float]) -> str:
    """The file of held-out predictions.

    Args:
        held_out: what constants without a row's source predict of it
        shipped: what the shipped constants predict of the same rows

    Returns:
        TOML
    """
    head = f'formulas = "{FORMULAS_VERSION}"\ndigest = "{digest_of(shipped)}"\n\n[predicted_seconds]'
    return "\n".join([head, *_lines(held_out), ""])


def rounded(seconds: Mapping[str, float]) -> dict[str, float]:
    """Predictions as the file holds them.

    Args:
        seconds: seconds of a step by the row's name [s]

    Returns:
        the same to DIGITS digits [s]

    >>> rounded({"a": 1.23456789})
    {'a': 1.23457}
    """
    return {name: float(_number(value)) for name, value in seconds.items()}


@cache
def shipped_held_out() -> HeldOut:
    """The held-out predictions that the package ships.

    Returns:
        the predictions, read once a process
    """
    return HeldOut(**loads(files("service.calibration").joinpath(FILE).read_text(encoding="utf-8")))


def _lines(seconds: Mapping[str, float]) -> list[str]:
    return [f'"{name}" = {_number(seconds[name])}' for name in sorted(seconds)]


def _number(seconds: float) -> str:
    said = f"{seconds:.{DIGITS}g}"
    return said if "." in said or "e" in said else f"{said}.0"
