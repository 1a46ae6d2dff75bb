"""Answers of single cells."""

from dataclasses import dataclass

from service.estimator.answer import Verdict


@dataclass(frozen=True, slots=True)
class Cell:
    """One number as a cell shows it."""

    text: str
    """The number, nothing else."""
    unit: str
    """Its unit."""
    verdict: Verdict
    """Whether the job fits; the value alone does not show it."""
