"""What is memory full of, category by category, while training goes from moment to moment?"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from service.worker.training.gauges import Reading
from service.worker.training.trainer import Held


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Where training was at one mark, what it held by name and what memory held."""

    step: int
    """Step, from 1."""
    name: str
    """start, forward, loss, backward, clip, optimizer or end."""
    layer: int | None
    """Layer that had just run, where it was one's."""
    held: Held
    """Tensors by name."""
    reading: Reading
    """All of memory."""


def told_moment(moment: Moment, before: Reading | None) -> dict[str, Any]:
    """One moment by category.

    Formula:
        activations = live - all that is held by name; temporaries = peak since the mark before - the more of both marks

    Args:
        moment: the moment
        before: the reading before it; None for the first

    Returns:
        its row of the timeline, in bytes

    >>> held = Held(parameters_bytes=40, gradients_bytes=0, optimizer_states_bytes=0, input_bytes=8)
    >>> now = Moment(step=1, name="loss", layer=None, held=held, reading=Reading(live_bytes=100, peak_bytes=130))
    >>> row = told_moment(now, Reading(live_bytes=90, peak_bytes=90))
    >>> row["activations_bytes"], row["temporaries_bytes"]
    (52, 30)
    """
    named: Mapping[str, int] = asdict(moment.held)
    now = moment.reading
    standing = now.live_bytes if before is None else max(now.live_bytes, before.live_bytes)
    return {
        "step": moment.step,
        "moment": moment.name,
        "layer": moment.layer,
        **named,
        "activations_bytes": now.live_bytes - sum(named.values()),
        "temporaries_bytes": now.peak_bytes - standing,
        "live_bytes": now.live_bytes,
        "peak_bytes": now.peak_bytes,
    }


def timeline(moments: Sequence[Moment]) -> list[dict[str, Any]]:
    """Every moment by category.

    Args:
        moments: the moments, in order

    Returns:
        one row a moment
    """
    before = [None, *(moment.reading for moment in moments[:-1])]
    return [told_moment(moment, earlier) for moment, earlier in zip(moments, before, strict=True)]


def step_peaks(moments: Sequence[Moment], step: int) -> Reading:
    """The most that memory held in one step, its own beginning not counted.

    Args:
        moments: the moments of all steps
        step: the step, from 1

    Returns:
        the peaks
    """
    found = [moment.reading for moment in moments if moment.step == step and moment.name != "start"]
    reserved = [one.reserved_bytes for one in found if one.reserved_bytes is not None]
    device = [one.device_bytes for one in found if one.device_bytes is not None]
    return Reading(
        live_bytes=found[-1].live_bytes,
        peak_bytes=max(one.peak_bytes for one in found),
        reserved_bytes=max(reserved, default=None),
        device_bytes=max(device, default=None),
    )
