"""Within which spread do predictions lie, and does it hold for a source that had no part in it?

The residual of a prediction is ln(measured / predicted). A spread r stands for the interval from predicted x exp(-r) to
predicted x exp(r).
"""

from collections.abc import Mapping, Sequence

from service.estimator.answer import INSIDE_FRACTION

Residuals = Mapping[str, Sequence[float]]
"""Residuals by source."""


def spread_fraction(residuals: Residuals) -> float | None:
    """The smallest spread that holds 80 % of some residuals, each source counting as much as any other.

    Args:
        residuals: residuals by source

    Returns:
        the spread; None where there are no residuals

    >>> spread_fraction({"one": [0.1, -0.2, 0.3, 0.4], "two": [-0.5]})
    0.5
    >>> spread_fraction({"one": [0.1, -0.2, 0.3, 0.4, 0.9]}), spread_fraction({})
    (0.4, None)
    """
    weighted = sorted((abs(found), 1 / len(own)) for own in residuals.values() for found in own)
    wanted = INSIDE_FRACTION * sum(weight for _, weight in weighted)
    reached = 0.0
    for size, weight in weighted:
        reached += weight
        if reached >= wanted * (1 - 1e-9):
            return size
    return None


def left_out_fraction(residuals: Residuals, source: str) -> float | None:
    """Share of a source's residuals inside the spread that all other sources give.

    Args:
        residuals: residuals by source
        source: the one that is left out and then judged

    Returns:
        the share; None where it has no residuals, or is the only source

    >>> left_out_fraction({"one": [0.1, 0.2], "two": [0.15, -0.3]}, "two"), left_out_fraction({"one": [0.1]}, "one")
    (0.5, None)
    """
    spread = spread_fraction({name: found for name, found in residuals.items() if name != source})
    own = residuals.get(source, ())
    if spread is None or not own:
        return None
    return sum(abs(found) <= spread for found in own) / len(own)
