"""Every operation tried by every kind of caller, on real objects of somebody's where it is about one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from service.store.keys import Scope
from tests.api.asking import ADMISSION_TOKEN, QUESTION
from tests.api.authorization import LISTS, ROWS
from tests.api.callers import OWN_BY_LIST, Service

LETS_DO: Mapping[str, frozenset[str]] = {
    "sheet": frozenset({"sheet"}),
    "reader": frozenset({"sheet", "read"}),
    "a": frozenset({"sheet", "read", "write"}),
    "b": frozenset({"sheet", "read", "write"}),
    "worker": frozenset({"worker"}),
    "admin": frozenset({"sheet", "read", "write", "worker", "admin"}),
}

STRANGERS = ("anonymous", "expired", "revoked", "unknown", "wrong")
CALLERS = (*STRANGERS, "sheet", "reader", "b", "worker", "a", "admin")
"""Whoever may change an object comes after all that must not."""

QUERY = {"no_such_parameter": "1"}
"""Whoever is let in is refused for this, before anything costs time."""

REFUSED = {401, 403, 404}
NO_SHARE = "shr_none"
"""Id of links that no scenario has."""

HIDDEN = frozenset(LISTS)
"""Lists of which others see nothing."""

OF_WHAT_HELD = frozenset({"rollBackCalibration", "retireCalibration"})
"""Changes of a calibration that has held, which everybody reads."""


@dataclass(frozen=True)
class Operation:
    """An operation of the contract."""

    name: str
    method: str
    path: str

    @property
    def scope(self) -> Scope | None:
        return ROWS[self.name][0]

    @property
    def plural(self) -> str | None:
        return ROWS[self.name][1]

    def place(self, name: str) -> str:
        """Its address with an object's name in it."""
        head, _, rest = self.path.replace("{token}", ADMISSION_TOKEN).partition("{")
        return f"{head}{name}{rest.partition('}')[2].replace('{share_id}', NO_SHARE)}"


def operations_of(document: dict[str, Any]) -> list[Operation]:
    """All that the contract has: what reads first, what deletes last."""
    found = [
        Operation(told["operationId"], method.upper(), path)
        for path, methods in document["paths"].items()
        for method, told in methods.items()
    ]
    return sorted(found, key=lambda one: (one.method != "GET", one.method == "DELETE", -one.path.count("{")))


def body_of(operation: Operation) -> dict[str, Any]:
    """What makes an operation on an object succeed."""
    plural, own = operation.plural or "", OWN_BY_LIST.get(operation.plural or "")
    if operation.method in {"PUT", "PATCH", "DELETE"}:
        headers = {"If-Match": "*"}
        if operation.method == "DELETE":
            return {"headers": headers}
        body = own.change if own is not None else {"note": "changed"}
        if operation.method == "PUT":
            body = {"name": "again", "question": QUESTION} if own is None else {**own.body}
        return {"headers": headers, "json": body}
    return {"json": {}} if operation.name == "shareScenario" or plural == "" else {}


def named(operation: Operation, request: dict[str, Any], turn: str) -> dict[str, Any]:
    """A whole own row has to say its name again."""
    own = OWN_BY_LIST.get(operation.plural or "")
    if own is None or operation.method != "PUT":
        return request
    slug = f"matrix {turn}" if own.plural == "prices" else f"matrix-{turn}"
    return {**request, "json": {**own.named(slug), **own.change}}


Cell = tuple[str, str, int]
"""Operation, caller, status."""


def expected(operation: Operation, caller: str) -> set[int]:
    """What a cell has to hold; nothing where the caller is let in."""
    if operation.scope is None:
        return set()
    if caller in STRANGERS:
        return {401}
    if operation.scope not in LETS_DO[caller]:
        return {403}
    return {404} if operation.plural is not None and caller == "b" else set()


@dataclass(frozen=True)
class Tried:
    """What came of trying everything."""

    wrong: list[tuple[str, str, int, str]]
    """Cells that hold what they must not."""
    cells: int
    told_apart: list[str]
    """Operations that tell whoever may not see an object that there is one."""


def trial(service: Service, operations: list[Operation]) -> Tried:
    """Try every operation as every caller."""
    wrong, told_apart, cells = [], [], 0
    for operation in operations:
        for caller in CALLERS:
            answer = asked(service, operation, caller)
            status = told_in_text(operation, answer)
            due, cells = expected(operation, caller), cells + 1
            if (status not in due) if due else (status in REFUSED or status >= 500):
                wrong.append((operation.name, caller, status, answer.text[:200]))
            is_hidden = due == {404} and operation.plural in HIDDEN and operation.name not in OF_WHAT_HELD
            if is_hidden and answer.json()["detail"] != of_nothing(service, operation):
                told_apart.append(operation.name)
    return Tried(wrong, cells, told_apart)


def asked(service: Service, operation: Operation, caller: str) -> httpx.Response:
    if operation.plural is None:
        path = operation.path.replace("{token}", ADMISSION_TOKEN).replace("{", "").replace("}", "")
        answer = service.by(caller, operation.method, path, params=QUERY)
        return httpx.Response(200) if answer.status_code == 404 else answer  # of no object: somebody was let in
    turn = "of-an-admin" if caller == "admin" else "of-a"
    path = operation.place(service.object(operation.plural, turn))
    if path.endswith(NO_SHARE):
        shared = service.by("admin", "POST", path.replace(f"shares/{NO_SHARE}", "share"), json={})
        path = path.replace(NO_SHARE, shared.json()["id"])
    return service.by(caller, operation.method, path, **named(operation, body_of(operation), turn))


def of_nothing(service: Service, operation: Operation) -> str:
    """What B is told of an object that is not there."""
    name = service.object(operation.plural or "", "of-a")
    another = name[:-1] + ("0" if name[-1] != "0" else "1")
    answer = service.by("b", operation.method, operation.place(another), **body_of(operation))
    assert answer.status_code == 404
    detail: str = answer.json()["detail"]
    return detail


def told_in_text(operation: Operation, answer: httpx.Response) -> int:
    """The status, told in words by the operation that always answers a text."""
    words = {"unauthorized": 401, "forbidden": 403}
    return words.get(answer.text.partition(":")[0], answer.status_code) if operation.name == "getCellReason" else (
        answer.status_code
    )  # fmt: skip
