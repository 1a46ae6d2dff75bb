"""Values that are no numbers, and the places of a body that hold numbers, read from the contract for every route.

A text stands at the place of a number in an example of the route's body, so that a field that is added is tried too.
"""

import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.api.openapi import JSON_BODY
from tests.api.asking import ADMISSION_TOKEN

CANARY = "c4n4ry"
"""Stands for whatever a caller may send: it must not come back."""

NUMBERS: Mapping[str, str] = {
    "not a number": "NaN",
    "infinite": "Infinity",
    "negative infinite": "-Infinity",
    "beyond every double": "1e400",
    "beyond every double, below": "-1e400",
    "beyond 64 bits": str(2**63),
    "of 4,000 digits": "9" * 4000,
    "of 5,000 digits": "9" * 5000,
    "of 4,000 decimals": "1." + "9" * 4000,
    "below the least": "-1",
    "far below the least": "-1e308",
    "almost the largest double": "1e308",
    "the smallest double": "5e-324",
    "true": "true",
    "a text": f'"{CANARY}"',
    "the name of no number": '"NaN"',
    "digits in a text": '"8"',
    "digits with underscores in a text": '" 1_000 "',
    "half a surrogate pair": '"\\ud800"',
    "a text with NUL": '"a\\u0000b"',
    "a list": "[[1]]",
    "an object": f'{{"{CANARY}": 1}}',
    "one key twice": '{"a": 1, "a": 2}',
    "33 lists": "[" * 33 + "]" * 33,
    "5,000 items": "[" + "1," * 4999 + "1]",
    "5,000 keys": "{" + ",".join(f'"k{number}": 1' for number in range(5000)) + "}",
}
"""By name, JSON or what resembles it."""

BODIES: Mapping[str, bytes] = {
    "nothing": b"",
    "half an object": b'{"a": ',
    "no UTF-8": b'{"a": "\xff"}',
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "byte order mark": b"\xef\xbb\xbf{}",
    "1,000 lists": b"[" * 1000 + b"]" * 1000,
    "100,000 lists": b"[" * 100_000 + b"]" * 100_000,
    "100,000 objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "10,000 keys": json.dumps({f"k{number}": number for number in range(10_000)}).encode(),
    "500,000 items": b'{"a": [' + b"1," * 499_999 + b"1]}",
    "one long text": b'{"a": "' + b"x" * 900_000 + b'"}',
    "one long number": b'{"a": ' + b"9" * 900_000 + b"}",
}
"""By name, whole bodies that no route takes."""

HEADERS: Mapping[str, Mapping[str, str]] = {
    "no media type": {},
    "plain text": {"content-type": "text/x-other"},
    "a form": {"content-type": "application/x-www-form-urlencoded"},
    "UTF-16": {"content-type": "application/json; charset=utf-16"},
    "gzip": {"content-type": "application/json", "content-encoding": "gzip"},
}
"""By name, headers of a body that no route takes."""

MOST_DEPTH = 9
"""Objects and lists that are looked into."""

PARAMETER = re.compile(r"\{[^}]*\}")
EXISTING = {
    "/v1/exports/{target}": "/v1/exports/torchtitan",
    "/v1/imports/{format}": "/v1/imports/megatron-lm",
    "/v1/adapters/kubernetes/admission/{token}": f"/v1/adapters/kubernetes/admission/{ADMISSION_TOKEN}",
}
"""Paths that are there already, by the path of the contract."""

Place = tuple[str | int, ...]


@dataclass(frozen=True)
class JsonRoute:
    """An operation that takes JSON."""

    method: str
    path: str
    """With examples in the place of its parameters."""
    operation_id: str
    example: Any
    places: tuple[Place, ...]
    """Where its body may hold numbers."""

    def body(self, place: Place, text: str) -> bytes:
        """Its example with a text at one place."""
        return json.dumps(_put(copy.deepcopy(self.example), place)).replace('"@here@"', text).encode()


def json_routes(document: Mapping[str, Any], paths: Mapping[str, str]) -> list[JsonRoute]:
    """Every operation of the contract that takes JSON; `paths` are what to ask for paths with parameters in them."""
    found = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            content = operation.get("requestBody", {}).get("content", {}).get(JSON_BODY)
            if content is None:
                continue
            schema = content["schema"]
            example: Any = next(iter(content.get("examples", {}).values()), {"value": {}})["value"]
            places = tuple(dict.fromkeys(_numbers(document, schema, (), 0)))
            asked = paths.get(path) or PARAMETER.sub("hostile", path)
            found.append(JsonRoute(method.upper(), asked, operation["operationId"], example, places))
    return found


def own_paths(document: Mapping[str, Any], make: Callable[[str, Any], str]) -> dict[str, str]:
    """A path of what was made for each path with a parameter at which a row can be changed; `make` makes one."""
    paths = dict(EXISTING)
    for path, methods in document["paths"].items():
        if "put" in methods and JSON_BODY in methods["put"]["requestBody"]["content"]:
            listed = path.rpartition("/")[0]
            content = document["paths"][listed]["post"]["requestBody"]["content"][JSON_BODY]
            paths[path] = make(listed, next(iter(content["examples"].values()))["value"])
    return paths


def _numbers(document: Mapping[str, Any], schema: Mapping[str, Any], place: Place, depth: int) -> Iterator[Place]:
    if depth > MOST_DEPTH:
        return
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        yield from _numbers(document, document["components"]["schemas"][name], place, depth)
    for kind in ("anyOf", "oneOf", "allOf"):
        for option in schema.get(kind, ()):
            yield from _numbers(document, option, place, depth)
    types = schema.get("type", ())
    if {"integer", "number"} & ({types} if isinstance(types, str) else {*types}):
        yield place
    for name, inner in schema.get("properties", {}).items():
        yield from _numbers(document, inner, (*place, name), depth + 1)
    if isinstance(inner := schema.get("items"), Mapping):
        yield from _numbers(document, inner, (*place, 0), depth + 1)


def _put(body: Any, place: Sequence[str | int]) -> Any:
    """A body with the mark at a place; whatever is in its way gives way."""
    if not place:
        return "@here@"
    step, *rest = place
    if isinstance(step, int):
        inner = body[0] if isinstance(body, list) and body else None
        return [_put(inner, rest)]
    held = body if isinstance(body, dict) else {}
    return {**held, step: _put(held.get(step), rest)}
