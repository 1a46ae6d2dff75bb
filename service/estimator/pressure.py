"""How much slower is a step on a device that is nearly full?"""

from service.estimator.numeric import Amount, maximum, minimum

CROWDED_FROM = 0.92
"""Share of the device's room from which the allocator has to give cached blocks back and ask again.
Source: allocator.HELD_ROOM."""


def pressure_fraction(filled_fraction: Amount, full_fraction: float) -> Amount:
    """Share of a step that the allocator's retries add.

    Formula:
        x min(1, max(0, (u - 0.92) / (1 - 0.92)))

    Args:
        filled_fraction: reserved memory over usable memory, u [1]
        full_fraction: what a full device adds, x [1]

    Returns:
        share of the step's time [1]

    Source:
        CROWDED_FROM; StepConstants.pressure_fraction

    >>> pressure_fraction(0.5, 0.1), round(pressure_fraction(0.96, 0.1), 9), pressure_fraction(1.2, 0.1)
    (0.0, 0.05, 0.1)
    """
    return full_fraction * minimum(1.0, maximum(0.0, (filled_fraction - CROWDED_FROM) / (1 - CROWDED_FROM)))
