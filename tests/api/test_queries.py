"""No path ignores a query parameter, whichever file its route stands in."""

import pytest
from fastapi.routing import APIRoute

from service.api.inputs import EXPLAIN, REV
from service.app import ROUTERS
from service.features.cells import cells
from service.validation.flat import ALIASES, flat_fields
from tests.api.asking import QUESTION, Ask
from tests.echoes import beyond_echo

CANARY = "c4n4ry"

NAMES = {
    "/v1/models/{name:path}": "llama-3.1-8b",
    "/v1/gpus/{name:path}": "h100",
    "/v1/clusters/{name:path}": "dgx-h100",
    "/v1/prices/{name:path}": "any",
    "/v1/scenarios/{scenario_id}": "any",
    "/v1/estimates/{estimate_id}": "any",
    "/v1/rate-cards/{name:path}": "any",
    "/v1/cell/{metric}": "gpu_hours",
    "/v1/exports/{target}": "sbatch",
    "/v1/imports/{format}": "deepspeed",
    "/v1/adapters/slurm/{name}": "job_submit.lua",
    "/v1/adapters/{scheduler}/{name}": "kueue/controller.py",
    "/web/{name}": "docs.js",
}
"""A name for each path that takes one."""

ALWAYS_TEXT = "/v1/cell/why"
"""The path that answers every error with a line of text."""

ROUTES = [
    (method, route.path if route.path not in NAMES else f"{route.path.partition('{')[0]}{NAMES[route.path]}")
    for router in ROUTERS
    for route in router.routes
    if isinstance(route, APIRoute)
    for method in sorted(route.methods or ())
]


def test_routes_are_found() -> None:
    assert {("GET", "/healthz"), ("POST", "/v1/check"), ("GET", "/v1/gpus/h100"), ("GET", "/")} <= set(ROUTES)


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_an_unknown_query_parameter_is_refused_by_its_name(ask: Ask, method: str, path: str) -> None:
    answer = ask(method, path, params={CANARY: CANARY}, json=QUESTION if method == "POST" else None)
    assert CANARY not in beyond_echo(answer)
    if path == ALWAYS_TEXT:
        assert answer.text.startswith("unknown_field: ")
        return
    assert answer.status_code == 422
    error = answer.json()["errors"][0]
    assert error["code"] in {"unknown_parameter", "unknown_field"}
    assert error["parameter"] == CANARY
    assert error["fix"]


@pytest.mark.parametrize("path", ["/v1/choices", "/healthz", "/v1/models/llama-3.1-8b", "/v1/check", "/v1/memory"])
def test_explain_is_taken_only_where_it_is_read(ask: Ask, path: str) -> None:
    is_asked_in_body = path in {"/v1/check", "/v1/memory"}
    form = {"method": "POST", "json": QUESTION} if is_asked_in_body else {"method": "GET"}
    assert ask(path=f"{path}?explain=true", **form).status_code == (200 if path == "/v1/memory" else 422)


@pytest.mark.parametrize("query", ["explain=yes", "explain=true&explain=true", "explain="])
def test_explain_is_true_or_false_once(ask: Ask, query: str) -> None:
    (error,) = ask("POST", f"/v1/memory?{query}", json=QUESTION).json()["errors"]
    assert (error["parameter"], error["code"]) == ("explain", "not_true_or_false")


def test_what_stands_beside_a_flat_question_is_no_field_of_it() -> None:
    assert not {EXPLAIN, REV, *cells.OTHER_FIELDS} & {*flat_fields(), *ALIASES}
