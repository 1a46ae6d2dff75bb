"""How near would a single number come? Steps predicted by one constant utilisation of each GPU, for comparison."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True, kw_only=True)
class Worked:
    """The work of one published step, and what its GPUs could do."""

    left_out_with: str
    """Rows of one such name never give the utilisation that predicts them."""
    gpu: str
    """Catalogue name of the GPU."""
    is_moe: bool = False
    """A mixture of experts; dense models never give its utilisation."""
    work_flop: float
    """FLOP of one step, as a baseline counts them."""
    peak_flop_per_s: float
    """Dense peak of all GPUs together."""
    measured_seconds: float
    """Seconds of the step."""
    is_apart: bool = False
    """It is counted apart and gives no utilisation."""

    @property
    def utilisation_fraction(self) -> float:
        """Share of the peak that was reached [1]."""
        return self.work_flop / self.peak_flop_per_s / self.measured_seconds


def constant_utilisation_seconds(rows: Sequence[Worked]) -> list[float]:
    """Seconds of each step at the utilisation that all other sources reach on its GPU.

    Formula:
        F / (u R),  u = median over sources of the median of F / (R t), of models of the same kind on the same GPU; on
        every GPU where no other source has it

    Args:
        rows: the steps

    Returns:
        seconds of each [s]; nothing can be said of the rows of a single source, which are predicted by their own

    Source:
        the usual rule of thumb, fitted in its own favour: one MFU for each GPU

    >>> steps = [
    ...     Worked(left_out_with=source, gpu="h100", work_flop=4.0, peak_flop_per_s=10.0, measured_seconds=seconds)
    ...     for source, seconds in (("one", 1.0), ("two", 2.0))
    ... ]
    >>> [round(found, 9) for found in constant_utilisation_seconds(steps)]
    [2.0, 1.0]
    """
    fitted: dict[tuple[str, str, bool], float] = {}
    for row in rows:
        key = (row.left_out_with, row.gpu, row.is_moe)
        if key not in fitted:
            fitting = [other for other in rows if not other.is_apart and other.is_moe == row.is_moe]
            others = [other for other in fitting if other.left_out_with != row.left_out_with] or rows
            fitted[key] = _utilisation([other for other in others if other.gpu == row.gpu] or others)
    return [row.work_flop / row.peak_flop_per_s / fitted[row.left_out_with, row.gpu, row.is_moe] for row in rows]


def _utilisation(rows: Sequence[Worked]) -> float:
    """The utilisation that some steps reach, every source counting as much as any other."""
    reached: dict[str, list[float]] = {}
    for row in rows:
        reached.setdefault(row.left_out_with, []).append(row.utilisation_fraction)
    return median(median(own) for own in reached.values())
