"""How wide must the interval of a whole run be? The tails of published residuals, every source alike."""

from collections.abc import Sequence
from itertools import accumulate
from math import ceil, floor

from service.calibration.residuals import Residuals
from service.estimator.answer import INSIDE_FRACTION

TAIL_FRACTION = (1 - INSIDE_FRACTION) / 2
"""Share of the residuals that may lie beyond either end."""

DECIMALS = 1e2
"""A shipped end is rounded outwards to hundredths."""

Ends = tuple[float, float]
"""Lower and upper end of residuals ln(published / predicted)."""


def run_spread(residuals: Residuals) -> Ends | None:
    """The ends beyond each of which lie at most 10 % of some residuals, each source counting as much as any other.

    Args:
        residuals: residuals by source

    Returns:
        both ends; None where there are no residuals

    >>> run_spread({"one": [0.0, 0.5], "two": [0.2], "three": [-0.1, 0.3]})
    (-0.1, 0.5)
    """
    weighted = sorted((found, 1 / len(own) / len(residuals)) for own in residuals.values() for found in own)
    if not weighted:
        return None
    return _end(weighted), _end(weighted[::-1])


def shipped_ends(ends: Ends) -> Ends:
    """Ends as the estimator states them.

    Args:
        ends: both ends

    Returns:
        the same, rounded outwards

    >>> shipped_ends((-0.161, 0.592))
    (-0.17, 0.6)
    """
    low, high = ends
    return floor(low * DECIMALS) / DECIMALS, ceil(high * DECIMALS) / DECIMALS


def _end(weighted: Sequence[tuple[float, float]]) -> float:
    """The first residual from one side beyond which lies no more than the tail."""
    reached = accumulate(weight for _, weight in weighted)
    return next(found for (found, _), beyond in zip(weighted, reached, strict=True) if beyond > TAIL_FRACTION)
