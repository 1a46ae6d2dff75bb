"""Some of every route's numbers against some of the hostile table; `.ci/proof hostile` tries all against all."""

from collections.abc import Iterator
from itertools import cycle, islice
from typing import Any

import httpx
import pytest

from service.api.errors import MOST_BYTES
from service.api.limits.http_limits import SHORTER_BODY_BYTES
from tests.api.asking import Ask
from tests.echoes import beyond_echo
from tests.features.catalogue.hostile_table import BODIES, CANARY, HEADERS, NUMBERS, JsonRoute, json_routes, own_paths

JSON = {"content-type": "application/json", "if-match": "*"}
EACH = 3
"""Numbers that are tried of a route, each with another text."""


@pytest.fixture(scope="module")
def routes(own: Ask, document: dict[str, Any]) -> Iterator[list[JsonRoute]]:
    made: list[str] = []

    def make(path: str, example: Any) -> str:
        made.append(own("POST", path, json=example).headers["location"])
        return made[-1]

    yield json_routes(document, own_paths(document, make))
    for path in made:
        assert own("DELETE", path, headers={"if-match": "*"}).status_code == 204


def check(answer: httpx.Response, statuses: set[int]) -> None:
    assert answer.status_code in statuses, (answer.request.url, answer.text[:500])
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == "application/problem+json"
        assert len(answer.content) <= MOST_BYTES
        assert CANARY not in beyond_echo(answer)


def test_every_number_of_every_route_is_found(routes: list[JsonRoute]) -> None:
    found = {route.operation_id: {".".join(map(str, place)) for place in route.places} for route in routes}
    assert len(routes) >= 50
    assert {"recipe.sequence_length", "layout.stage_layers.0", "model.hidden_size"} <= found["createMemory"]
    assert {"clusters.0.cluster.gpus", "question.recipe.micro_batch"} <= found["createComparison"]
    assert sum(map(len, found.values())) * len(NUMBERS) > 3_000


def too_large(body: bytes) -> set[int]:
    """The status of a body that some route refuses for its length."""
    return {413} if len(body) > min(SHORTER_BODY_BYTES.values()) else set()


def test_no_number_of_any_route_breaks_anything(own: Ask, routes: list[JsonRoute]) -> None:
    texts = cycle(NUMBERS.values())
    for turn, route in enumerate(routes):
        step = max(len(route.places) // EACH, 1)
        for place in islice(route.places, turn % step, None, step):
            body = route.body(place, next(texts))
            answer = own(route.method, route.path, content=body, headers=JSON)
            check(answer, {200, 201, 202, 400, 404, 409, 422} | too_large(body))


def test_no_body_breaks_anything(own: Ask, routes: list[JsonRoute]) -> None:
    bodies, headers = cycle(BODIES.values()), cycle(HEADERS.values())
    for route in routes:
        body = next(bodies)
        check(own(route.method, route.path, content=body, headers=JSON), {400, 409, 422} | too_large(body))
        unlike = {**next(headers), "if-match": "*"}
        check(own(route.method, route.path, content=b"{}", headers=unlike), {415})
