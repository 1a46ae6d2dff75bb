"""How an answer looks on the wire: dataclasses become plain JSON values, with one spelling everywhere."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from math import isfinite
from typing import Any

from pydantic_core import to_json

WIRE_NAMES = {"six_n": "6n"}
"""Field names that Python cannot spell."""


class NotFinite(ArithmeticError):
    """An answer holds NaN or Infinity: a defect of a formula, never something to send."""


def to_wire(value: Any) -> Any:
    """JSON-ready form of an answer or of one of its parts.

    FLOP counts, exact integers inside, become the nearest double; tuples become lists.

    Args:
        value: dataclass, mapping, sequence, or plain value

    Returns:
        dicts, lists, strings, numbers, booleans, None

    Raises:
        NotFinite: a number is NaN or infinite
    """
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        if not isfinite(value):
            raise NotFinite("an answer holds a number that is not finite")
        return value
    if isinstance(value, (tuple, list)):
        return [to_wire(item) for item in value]
    if isinstance(value, Mapping):
        return {str(name): to_wire(item) for name, item in value.items()}
    return {
        wire_name: _as_double(item) if is_flop else to_wire(item)
        for name, wire_name, is_flop in _wire_fields(type(value))
        for item in (getattr(value, name),)
    }


def to_bytes(value: Any) -> bytes:
    """The one JSON text of an answer: same answer, same bytes.

    Args:
        value: anything `to_wire` takes

    Returns:
        UTF-8 JSON

    Raises:
        NotFinite: a number is NaN or infinite
    """
    return to_json(to_wire(value))


@cache
def _wire_fields(kind: type) -> tuple[tuple[str, str, bool], ...]:
    if not is_dataclass(kind):
        raise TypeError(f"{kind.__name__} has no wire form")
    return tuple((f.name, WIRE_NAMES.get(f.name, f.name), f.name.endswith("_flop")) for f in fields(kind))


def _as_double(flop: float | None) -> float | None:
    double = None if flop is None else float(flop)
    if double is not None and not isfinite(double):
        raise NotFinite("a FLOP count is not finite")
    return double
