"""Where does a loss have its least value? Steps of the constants, one by one and together, that become ever smaller."""

from collections.abc import Callable, Mapping
from itertools import product

Values = Mapping[str, float]
"""Constants by name."""

Bounds = Mapping[str, tuple[float, float]]
"""The least and the largest value of each constant that may change."""

LARGEST_SHARE = 0.25
"""The search begins with steps of this share of what a constant may be."""

SMALLEST_SHARE = 2e-4
"""It ends with steps of this share."""

SMALLEST_GAIN = 1e-9
"""A step that gains less is none."""


def least(loss: Callable[[Values], float], start: Values, bounds: Bounds) -> dict[str, float]:
    """The constants at which a loss is least, as far as steps of at most three of them find it.

    Args:
        loss: what is to be small
        start: where the search begins
        bounds: how far each constant may go that changes

    Returns:
        the constants, those without bounds as they were

    >>> found = least(lambda at: abs(at["x"] + at["y"] - 1) + abs(at["x"] - 0.3), {"x": 0.9, "y": 0.9},
    ...               {"x": (0.0, 1.0), "y": (0.0, 1.0)})
    >>> round(found["x"], 2), round(found["y"], 2)
    (0.3, 0.7)
    """
    values, share = dict(start), LARGEST_SHARE
    reached = loss(values)
    ways = [way for way in product((0, 1, -1), repeat=len(bounds)) if any(way)]
    while share > SMALLEST_SHARE:
        before = values
        for way in ways:
            tried = {**values, **_stepped(values, bounds, [share * direction for direction in way])}
            found = loss(tried)
            if found < reached - SMALLEST_GAIN:
                values, reached = tried, found
        if values is before:
            share /= 2
            continue
        further = {**values, **_further(before, values, bounds)}
        found = loss(further)
        if found < reached - SMALLEST_GAIN:
            values, reached = further, found
    return values


def _further(before: Values, values: Values, bounds: Bounds) -> dict[str, float]:
    """Constants as far again as they have come: a valley is followed in ever longer steps (Hooke and Jeeves 1961)."""
    return {name: min(max(2 * values[name] - before[name], low), high) for name, (low, high) in bounds.items()}


def _stepped(values: Values, bounds: Bounds, shares: list[float]) -> dict[str, float]:
    """Constants after a step, each a share of what it may be, inside its bounds."""
    return {
        name: min(max(values[name] + share * (high - low), low), high)
        for (name, (low, high)), share in zip(bounds.items(), shares, strict=True)
    }
