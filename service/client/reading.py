"""JSON to the dataclasses of answers, dataclasses of questions to JSON, and the errors of the client.

ClientError
├── Problem      the service refuses, or fails to answer: its problem document, typed
├── Unreachable  no complete answer arrived, after all retries
└── Unreadable   an answer that this version of the client cannot read
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from http.client import responses
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from service.answers.names import INLINE, WIRE_NAMES
from service.estimator.question import Question

NO_DOCUMENT = "unknown"
"""Code of a problem without a document: some other server on the way answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding of a problem document."""

    pointer: str | None
    """JSON pointer of the field in the body; None where a parameter is wrong."""
    parameter: str | None
    """Query parameter; None where the body is wrong."""
    code: str
    """Broken rule, stable."""
    message: str
    """The fault, and why it matters."""
    fix: str
    """The remedy."""


class ClientError(Exception):
    """Base of all errors of the client."""


class Problem(ClientError):
    """The service refuses, or fails to answer.

    Args:
        status: HTTP status
        document: its problem document; empty where none came
        request_id: the request's id in the service's log, where the document has none
    """

    def __init__(self, status: int, document: Mapping[str, Any], request_id: str = "") -> None:
        self.status = status
        self.code = str(document.get("code", NO_DOCUMENT))
        """Kind of the problem, stable."""
        self.detail = str(document.get("detail") or responses.get(status, "no reason was given"))
        """The fault of this request."""
        self.request_id = str(document.get("request_id") or request_id)
        self.errors = tuple(map(_finding, document.get("errors") or ()))
        """Its findings."""
        super().__init__(f"{status} {self.code}: {self.detail}")


class Unreachable(ClientError):
    """No complete answer: no connection, one that broke, or none in time."""


class Unreadable(ClientError):
    """An answer that this version of the client cannot read."""


def _finding(error: Mapping[str, Any]) -> Finding:
    texts = {name: str(error.get(name, "")) for name in ("code", "message", "fix")}
    return Finding(pointer=error.get("pointer"), parameter=error.get("parameter"), **texts)


Kind = TypeVar("Kind")
Read = Callable[[Any], Any]

DERIVED = "gpu"
"""Field of a question that no request has: it follows from the cluster."""


def from_json(kind: type[Kind], value: Any) -> Kind:
    """An answer as its dataclass; fields of a newer service are ignored, and anything else is Unreadable."""
    hashable: Any = kind  # mypy holds type[Kind] to be unhashable
    try:
        answer: Kind = _reader(hashable)(value)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Unreadable(f"the answer is no {kind.__name__} of this version of the client: {error!r}") from None
    return answer


def to_json(value: Any) -> Any:
    """A request's body as plain JSON values; fields of dataclasses with their defaults are left out."""
    if isinstance(value, Mapping):
        return {name: to_json(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if not is_dataclass(value):
        return value
    values = {field.name: getattr(value, field.name) for field in fields(value)}
    left_out = {field.name for field in fields(value) if values[field.name] == field.default}
    if isinstance(value, Question):
        left_out.add(DERIVED)
    return {name: to_json(item) for name, item in values.items() if name not in left_out}


def encoded(body: Any) -> bytes:
    """A request's body as bytes of JSON; infinity and NaN raise a ValueError."""
    return json.dumps(to_json(body), allow_nan=False).encode()


@cache
def _reader(hint: Any) -> Read:
    """The reader of a type's JSON."""
    if is_dataclass(hint):
        return _dataclass_reader(hint)
    origin, inner = get_origin(hint), get_args(hint)
    if origin in {Union, UnionType}:
        return _union_reader(inner)
    if origin is tuple:
        item = _reader(inner[0])
        return lambda values: tuple(item(value) for value in values)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        item = _reader(inner[1])
        return lambda values: {name: item(value) for name, value in values.items()}
    return _whole if hint is int else _unchanged


def _dataclass_reader(kind: Any) -> Read:
    hints = get_type_hints(kind)
    inline = next((field.name for field in fields(kind) if field.metadata == INLINE), None)
    names = [field.name for field in fields(kind) if field.name != inline]
    readers = [(name, WIRE_NAMES.get(name, name), _reader(hints[name])) for name in names]
    known = {wire_name for _, wire_name, _ in readers}

    def read(value: Mapping[str, Any]) -> Any:
        values = {name: reader(value[wire_name]) for name, wire_name, reader in readers}
        if inline is not None:
            values[inline] = {name: item for name, item in value.items() if name not in known}
        return kind(**values)

    return read


def _union_reader(members: tuple[Any, ...]) -> Read:
    """A reader of an object as the dataclass of which it has most fields, and of a list as a tuple."""
    kinds = {member: {field.name for field in fields(member)} for member in members if is_dataclass(member)}
    containers = {get_origin(member): _reader(member) for member in members if get_origin(member) in {tuple, dict}}
    plain = _whole if int in members and float not in members else _unchanged

    def read(value: Any) -> Any:
        if isinstance(value, dict) and kinds:
            nearest: Any = max(kinds, key=lambda kind: len(kinds[kind] & value.keys()))
            return _reader(nearest)(value)
        return containers.get(tuple if isinstance(value, list) else type(value), plain)(value)

    return read


def _whole(value: Any) -> Any:
    """A count, which is on the wire the nearest double where no double is it exactly."""
    return int(value) if isinstance(value, float) else value


def _unchanged(value: Any) -> Any:
    return value
