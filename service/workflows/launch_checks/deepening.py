"""What do two reduced depths say of the whole model? What predictions miss grows evenly with the depth."""

from collections.abc import Sequence

from service.answers.launch_checks import Compared, Deepened
from service.workflows.launch_checks.items import Expected

QUANTITIES = ("live_bytes_peak", "allocated_peak", "step")
"""Measurements of a step that grow with the depth."""


def deepened(measured: Sequence[Compared], whole: Sequence[Expected]) -> tuple[Deepened, ...]:
    """What the measured depths come to at the model's full depth, beside what is predicted of it.

    The fullest moment of a step may be another one in a deeper model, so where predictions exist they say how a
    quantity grows, and what they miss at both depths is carried on; else the quantity itself is.

    Args:
        measured: measurements of the step probe
        whole: what is predicted of the whole model in the probe's own configuration

    Returns:
        one entry a quantity that was measured at two depths, and grew from the smaller to the larger
    """
    found = (_deepened(name, measured, whole) for name in QUANTITIES)
    return tuple(one for one in found if one is not None)


def _deepened(operation: str, measured: Sequence[Compared], whole: Sequence[Expected]) -> Deepened | None:
    full = next((one for one in whole if one.operation == operation), None)
    last: dict[int, Compared] = {}
    for one in measured:
        if one.operation == operation and "depth" in one.shape:
            depth = int(one.shape["depth"])
            if depth not in last or _step(one) > _step(last[depth]):
                last[depth] = one
    if full is None or len(last) != 2:
        return None
    smaller, larger = sorted(last)
    layers, both = int(full.shape["depth"]), (last[smaller], last[larger])
    each = (both[1].measured.value - both[0].measured.value) / (larger - smaller)
    if each <= 0:  # a smaller model cannot take more: what was measured is noise
        return None
    predicted = None if full.predicted is None else full.predicted.value
    value = _whole((smaller, larger), both, layers, predicted)
    return Deepened(
        quantity=operation,
        depths=(smaller, larger),
        layers=layers,
        each_layer=each,
        measured=value,
        predicted=predicted,
        ratio=value / predicted if predicted else None,
    )


def _step(one: Compared) -> int:
    return int(one.shape.get("step", 0))


def _whole(depths: tuple[int, int], both: tuple[Compared, Compared], layers: int, predicted: float | None) -> float:
    """The quantity at full depth."""
    less, more = both
    if predicted is None or less.predicted is None or more.predicted is None:
        return _carried_on(depths, (less.measured.value, more.measured.value), layers)
    missed = (less.measured.value - less.predicted.value, more.measured.value - more.predicted.value)
    return predicted + _carried_on(depths, missed, layers)


def _carried_on(depths: tuple[int, int], values: tuple[float, float], layers: int) -> float:
    """What grows evenly from one depth to another, at a third one.

    >>> _carried_on((1, 2), (10.0, 14.0), 32)
    134.0
    """
    (smaller, larger), (less, more) = depths, values
    return less + (more - less) / (larger - smaller) * (layers - smaller)
