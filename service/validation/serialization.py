"""Answers as JSON: dataclasses become plain values, spelled the same everywhere."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from hashlib import sha256
from math import isfinite
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import to_json

from service.answers.names import INLINE, WIRE_NAMES
from service.errors import Problem, Refused
from service.estimator.constants import UNTOLD

DIGEST_CHARACTERS = 32

LARGEST_EXACT = 1 << 53
"""Integers up to here are doubles too; beyond, readers of JSON would round them each in their own way."""


@cache
def adapter_of(kind: Any) -> TypeAdapter[Any]:
    """What reads and writes values of a type, made when it is first needed: a large one takes a tenth of a second."""
    return TypeAdapter(kind)


class NotFinite(Refused):
    """Values inside all bounds lead together to a number that no double holds, which is never sent."""

    def __init__(self) -> None:
        super().__init__(
            Problem(
                field="",
                code="not_finite",
                message="these values together lead to a number beyond all bounds, so the answer would mean nothing",
                fix="give values nearer to those of a real job, above all rates and prices far from zero",
            )
        )


def to_wire(value: Any) -> Any:
    """JSON-ready form of an answer or of one of its parts."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return value if -LARGEST_EXACT <= value <= LARGEST_EXACT else float(value)
    if isinstance(value, float):
        if not isfinite(value):
            raise NotFinite
        return value
    if isinstance(value, (tuple, list)):
        return [to_wire(item) for item in value]
    if isinstance(value, Mapping):
        return {str(name): to_wire(item) for name, item in value.items()}
    names, inline = _wire_fields(value.__class__)
    told = {wire_name: to_wire(getattr(value, name)) for name, wire_name in names}
    return told if inline is None else _spread(told, inline)


def to_bytes(value: Any) -> bytes:
    """The one JSON text of an answer: same answer, same bytes."""
    return to_json(to_wire(value))


def refuse_infinite(*parts: Any) -> None:
    """Refuse an answer whose numbers no caller could compute with."""
    to_wire(parts)


def digest_of(content: bytes) -> str:
    """What tells one content from any other, in ids and ETags."""
    return sha256(content).hexdigest()[:DIGEST_CHARACTERS]


@cache
def _wire_fields(kind: type) -> tuple[tuple[tuple[str, str], ...], str | None]:
    """Fields of a dataclass with their names on the wire, and the one whose items stand there themselves."""
    if not is_dataclass(kind):
        raise TypeError(f"{kind.__name__} has no wire form")
    inline = next((f.name for f in fields(kind) if f.metadata == INLINE), None)
    return tuple((f.name, WIRE_NAMES.get(f.name, f.name)) for f in fields(kind) if f.metadata != UNTOLD), inline


def _spread(told: dict[str, Any], inline: str) -> dict[str, Any]:
    """An object with the items of one field in the place of the field."""
    return {
        name: item
        for field, value in told.items()
        for name, item in (value.items() if field == inline else ((field, value),))
    }
