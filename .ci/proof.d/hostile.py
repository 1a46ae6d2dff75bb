"""Hostile values in every number of every JSON route, hostile bodies, texts and bytes; all must be refused shortly."""

import argparse
import http.client
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import httpx
from openapi_schema_validator import OAS31Validator

from service.api.errors import MOST_BYTES
from tests.api.asking import ADMISSION_TOKEN
from tests.api.injections import INJECTIONS, columns, faults_of
from tests.api.smuggling import AMBIGUOUS, HIDDEN, SOUND, replies
from tests.echoes import unquoted_of
from tests.features.catalogue.hostile_table import BODIES, CANARY, HEADERS, NUMBERS, JsonRoute, json_routes, own_paths
from tests.live import serving

LEAST_CASES = 3_000
MOST_SECONDS = 0.2
AGAIN = 3
"""How often a slow refusal is asked for again, since others share the machine; the fastest counts."""
JSON = {"content-type": "application/json", "if-match": "*"}


@dataclass
class Tally:
    """What was found so far."""

    judge: Any
    cases: int = 0
    refused: int = 0
    slow: int = 0
    slowest_seconds: float = 0.0
    slowest_taken_seconds: float = 0.0
    largest_bytes: int = 0
    faults: list[str] = field(default_factory=list)

    def fault(self, what: str) -> None:
        if len(self.faults) < 50:
            print(what, flush=True)
        self.faults.append(what)


class Asking:
    """One connection that stays open."""

    def __init__(self, address: str) -> None:
        self.connection = http.client.HTTPConnection(address, timeout=60)

    def __call__(self, route: JsonRoute, content: bytes, headers: Mapping[str, str]) -> tuple[int, bytes, str, float]:
        """Status, body and media type of an answer, and how long it took."""
        begun = time.perf_counter()
        self.connection.request(route.method, route.path, body=content, headers=dict(headers))
        answer = self.connection.getresponse()
        body = answer.read()
        return answer.status, body, answer.headers.get("content-type", ""), time.perf_counter() - begun


def cases(routes: list[JsonRoute], share: int) -> Iterator[tuple[JsonRoute, str, bytes, Mapping[str, str]]]:
    """Every case, or each of so many: the route, what is hostile, the body and its headers."""
    number = 0
    for route in routes:
        for place in route.places:
            for name, text in NUMBERS.items():
                number += 1
                if number % share == 0:
                    yield route, f"{'.'.join(map(str, place))} {name}", route.body(place, text), JSON
        for name, content in BODIES.items():
            yield route, name, content, JSON
        for name, headers in HEADERS.items():
            yield route, name, b"{}", {**headers, "if-match": "*"}


def judge(ask: Asking, tally: Tally, case: tuple[JsonRoute, str, bytes, Mapping[str, str]]) -> None:
    route, name, content, headers = case
    status, body, media, seconds = ask(route, content, headers)
    tally.cases += 1
    where = f"{route.method} {route.path} {name}: {status}"
    if status >= 500 or (route.operation_id == "createBatch" and b'"status":5' in body):
        tally.fault(f"{where} {body[:300]!r}")
    if status < 400:
        tally.slowest_taken_seconds = max(tally.slowest_taken_seconds, seconds)
        return
    if seconds > MOST_SECONDS:
        tally.slow += 1
        seconds = min(seconds, *(ask(route, content, headers)[3] for _ in range(AGAIN)))
    tally.refused += 1
    tally.slowest_seconds, tally.largest_bytes = (
        max(tally.slowest_seconds, seconds),
        max(tally.largest_bytes, len(body)),
    )
    if seconds > MOST_SECONDS or len(body) > MOST_BYTES:
        tally.fault(f"{where} after {seconds * 1000:.0f} ms, {len(body)} bytes")
    if CANARY in unquoted_of(json.loads(body)):
        tally.fault(f"{where} repeats a text without quotes")
    if media != "application/problem+json" or not tally.judge.is_valid(json.loads(body)):
        tally.fault(f"{where} is no problem document: {body[:300]!r}")


def smuggle(address: str, tally: Tally) -> None:
    """Ambiguous requests on connections of their own, each with another behind it."""
    host, _, port = address.partition(":")
    for name, sent in {**AMBIGUOUS, **SOUND}.items():
        statuses, _ = replies((host, int(port)), sent + HIDDEN)
        if statuses != [400 if name in AMBIGUOUS else 200]:
            tally.fault(f"{name}: answered {statuses}")
    print(f"{len(AMBIGUOUS)} ambiguous requests and {len(SOUND)} that end the connection, each with one behind it")


def inject(client: httpx.Client, document: Mapping[str, Any], tally: Tally, share: int) -> None:
    """Texts that something might run, in every column that takes any."""
    taken = tried = 0
    for _, found in groupby(columns(document), lambda column: column.listed):
        for column in found:
            texts = list(islice(INJECTIONS, 0, None, share))
            made, faults = faults_of(client.request, [(column, texts)])
            taken, tried = taken + made, tried + len(texts)
            for fault in faults:
                tally.fault(fault)
    print(f"{tried} texts, {taken} of them kept letter by letter; CSV, workbooks and XML hold no formula", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--each", type=int, default=1, help="try each so many of the numbers and the texts alone")
    share = parser.parse_args().each
    os.environ["TRAINCOST_ADMISSION_TOKEN"] = ADMISSION_TOKEN
    with tempfile.TemporaryDirectory(prefix="traincost-hostile-") as name, serving(Path(name)) as address:
        with httpx.Client(base_url=f"http://{address}", timeout=60) as client:
            document = client.get("/openapi.json").json()
            tally = Tally(
                OAS31Validator({"$ref": "#/components/schemas/Problem", "components": document["components"]})
            )
            smuggle(address, tally)
            inject(client, document, tally, share)
            paths = own_paths(document, lambda path, body: client.post(path, json=body).headers["location"])
        routes = json_routes(document, paths)
        ask = Asking(address)
        for case in cases(routes, share):
            judge(ask, tally, case)
    print(
        f"{tally.cases} cases at {len(routes)} routes, {tally.refused} refused: the slowest after "
        f"{tally.slowest_seconds * 1000:.0f} ms ({tally.slow} took more than {MOST_SECONDS * 1000:.0f} ms at first), "
        f"the largest of {tally.largest_bytes} bytes; the slowest other answer: {tally.slowest_taken_seconds:.1f} s"
    )
    if tally.faults or tally.cases < LEAST_CASES:
        sys.exit(f"{len(tally.faults)} faults; {LEAST_CASES} cases and no fault are wanted")


if __name__ == "__main__":
    main()
