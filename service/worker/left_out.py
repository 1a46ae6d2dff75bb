"""Why has a probe no figure of something that it was asked for? A code for the verdict, a sentence for people."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.calibration.records import LeftOutCode

NO_TIME = "no time was left"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Why something was not measured."""

    code: LeftOutCode
    """For programs."""
    reason: str
    """For people."""


NOT_IN_TIME = LeftOut(code="no_time", reason=NO_TIME)


def wrong_result(error_fraction: float) -> LeftOut:
    """Why something that computes nonsense has no figure: it may be fast.

    Args:
        error_fraction: largest error of its result over the largest number of the reference

    Returns:
        the reason
    """
    return LeftOut(code="wrong_result", reason=f"wrong result, off by {error_fraction:.2g} of the largest number")


def no_memory(whose: str) -> LeftOut:
    """Why something that found no room has no figure.

    Args:
        whose: what has too little

    Returns:
        the reason
    """
    return LeftOut(code="out_of_memory", reason=f"out of memory: it needs more than {whose} has left")


def left_out_row(operation: str, shape: Mapping[str, Any], why: LeftOut) -> dict[str, Any]:
    """What a summary tells of something that was not measured.

    >>> left_out_row("copy", {"size_bytes": 8}, NOT_IN_TIME)
    {'operation': 'copy', 'size_bytes': 8, 'code': 'no_time', 'reason': 'no time was left'}

    Args:
        operation: what it is
        shape: what tells it from others of the same operation
        why: why it was not measured

    Returns:
        a row of `left_out`
    """
    return {"operation": operation, **shape, "code": why.code, "reason": why.reason}


def why_left_out(left_out: Sequence[Mapping[str, Any]]) -> str | None:
    """What was not measured, in one sentence.

    >>> why_left_out([{"reason": "no time was left"}, {"reason": "no time was left"}])
    '2 not measured: no time was left'

    Args:
        left_out: what was not measured, each with its reason

    Returns:
        the sentence; None where nothing was left out
    """
    reasons = dict.fromkeys(str(row["reason"]) for row in left_out)
    return f"{len(left_out)} not measured: {'; '.join(reasons)}" if left_out else None
