"""What callers rely on: the contract is the committed one, is valid, describes everything, and its examples work."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import validate

from service.api.caching import REPLAYED
from service.api.errors import KINDS
from service.features.catalogue.lists import LISTINGS
from service.features.estimates.routes import PARTS
from service.features.workers.leases import JOB_ID
from service.jobs.jobs import NewJob, create_jobs
from service.openapi.document import COMMITTED, LIMIT_HEADERS, NEVER_REFUSED, TAGS
from tests.api.asking import ADMISSION_TOKEN, Ask

METHODS = {"get", "post", "put", "patch", "delete"}

PLACES = {
    "/v1/adapters/kubernetes/admission/{token}": f"/v1/adapters/kubernetes/admission/{ADMISSION_TOKEN}",
    "/v1/exports/{target}": "/v1/exports/megatron-lm",
    "/v1/imports/{format}": "/v1/imports/megatron-lm",
}
"""A path that an example is sent to, for each that takes a name."""

GUIDE = [
    f"/guide{page}"
    for page in ("", "/page", "/tuning", "/schedulers", "/spreadsheets", "/clients", "/sweeps", "/operating")
]


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert method in METHODS
            yield path, method, operation


def test_the_committed_contract_is_the_one_that_is_served(ask: Ask) -> None:
    served = ask("GET", "/openapi.json").content
    assert COMMITTED.read_bytes() == served, "run: traincost write-openapi"


def test_the_contract_is_valid(document: dict[str, Any]) -> None:
    validate(document)


def test_every_operation_is_described(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(set(names)) == len(names)
    for path, method, operation in operations(document):
        assert operation["operationId"][0].islower(), path
        assert operation["operationId"].isalnum(), path
        assert operation["summary"], path
        assert operation["description"], path
        assert set(operation["tags"]) <= TAGS.keys(), path
        assert {"default"} <= operation["responses"].keys(), (path, method)


def test_every_route_is_in_the_contract(document: dict[str, Any]) -> None:
    pages = {"/", "/docs", "/openapi.json"}
    described = document["paths"].keys()
    assert {part.path for part in PARTS} | {"/v1/choices", "/healthz", "/readyz"} <= described
    assert not pages & described


def test_families_stand_in_the_order_of_their_tags(document: dict[str, Any]) -> None:
    tags = [operation["tags"][0] for _, _, operation in operations(document)]
    assert tags == sorted(tags, key=list(TAGS).index)
    assert set(tags) == TAGS.keys()


def test_every_problem_has_its_place_in_the_documentation(ask: Ask) -> None:
    page = ask("GET", "/docs").text
    for code, kind in KINDS.items():
        assert f'id="{code}"><td><code>{code}</code></td><td>{kind.status}</td>' in page


@pytest.mark.parametrize("path", ["/", "/docs", "/web/docs.js", "/web/style.css"])
def test_pages_load_nothing_from_elsewhere(ask: Ask, path: str) -> None:
    answer = ask("GET", path)
    assert answer.status_code == 200
    assert "//" not in answer.text.replace("// ", "")


@pytest.mark.parametrize("path", GUIDE)
def test_the_guide_links_to_this_service_only(ask: Ask, path: str) -> None:
    page = ask("GET", path).text
    places = [piece.split('"')[0] for name in ("href", "src") for piece in page.split(f'{name}="')[1:]]
    assert len(places) >= 4
    assert {place: ask("GET", place).status_code for place in places} == dict.fromkeys(places, 200)
    assert "<script" not in page


def test_pages_forbid_loading_from_elsewhere(ask: Ask) -> None:
    for path in ("/", *GUIDE, "/docs"):
        assert "default-src 'self'" in ask("GET", path).headers["content-security-policy"]


def test_links_of_the_front_page_lead_somewhere(ask: Ask) -> None:
    page = ask("GET", "/").text
    links = [piece.split('"')[0].replace("&amp;", "&") for piece in page.split('href="')[1:]]
    assert len(links) >= 5
    assert {link: ask("GET", link).status_code for link in links} == dict.fromkeys(links, 200)


def test_answers_have_every_field_and_no_default(document: dict[str, Any]) -> None:
    for name in ("EstimateAnswer", "MemoryAnswer", "FlopAnswer", "ResolvedQuestion", "ResolvedLayout", "Totals"):
        schema = document["components"]["schemas"][name]
        assert set(schema["required"]) == set(schema["properties"]), name
        assert not any("default" in field for field in schema["properties"].values()), name


def test_every_field_is_described(document: dict[str, Any]) -> None:
    bare = [
        f"{name}.{field}"
        for name, schema in document["components"]["schemas"].items()
        for field, inner in schema.get("properties", {}).items()
        if not inner.get("description") and "$ref" not in inner
    ]
    assert bare == []


def test_flop_counts_are_doubles_and_6n_is_spelled_so(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    assert schemas["Flop"]["properties"]["per_step_flop"]["type"] == "number"
    assert schemas["Flop"]["properties"]["total_flop"]["type"] == ["number", "null"]
    assert "6n" in schemas["FlopConventions"]["properties"]


CONTRADICTED = frozenset({"calibrations", "catalogue", "launch-checks", "sweeps", "workers"})
"""Families in which what there is may contradict what is asked."""


def examples(operation: dict[str, Any], form: str = "json") -> Iterator[Any]:
    """Bodies of one form that the contract shows for an operation."""
    for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
        if media_type.endswith(form):
            yield from (example["value"] for example in content["examples"].values())


def test_examples_are_answered_as_the_contract_says(ask: Ask, document: dict[str, Any]) -> None:
    tried = 0
    for path, method, operation in operations(document):
        if operation["tags"][0] not in {"catalogue", "scenarios", "workers"}:
            for body in examples(operation) if "{calibration_id}" not in path else ():
                exercised(ask, document, method, path, body, PLACES.get(path))
                tried += 1
    assert tried >= 3 * len(PARTS)


def exercised(
    ask: Ask, document: dict[str, Any], method: str, path: str, body: Any, place: str | None = None
) -> httpx.Response:
    """What an example is answered, as the contract says it would be."""
    operation = document["paths"][path][method]
    request = operation["requestBody"]["content"]["application/json"]["schema"]
    OAS31Validator({**request, "components": document["components"]}).validate(body)
    answer = ask(method, place or path, json=body, headers={"If-Match": "*"} if place else {})
    assert answer.is_success, (path, answer.text)
    described = operation["responses"][str(answer.status_code)]
    media = answer.headers["content-type"].partition(";")[0]
    assert media in described["content"], path
    if media == "application/json":
        check(document, described, answer.json())
    always = described.get("headers", {}).keys() - {REPLAYED, *LIMIT_HEADERS}
    assert {name.lower() for name in always} <= answer.headers.keys()
    return answer


def test_examples_of_changes_make_change_and_remove_what_the_contract_says(own: Ask, document: dict[str, Any]) -> None:
    made = [path for path, methods in document["paths"].items() if any(examples(methods.get("post", {})))]
    made = [path for path in made if document["paths"][path]["post"]["tags"][0] in {"catalogue", "scenarios"}]
    made.remove("/v1/scenarios/{scenario_id}/share")
    assert len(made) == len(LISTINGS) + len(["import", "scenarios"])
    for path in made:
        (body,) = examples(document["paths"][path]["post"])
        place = exercised(own, document, "post", path, body).headers["location"]
        listed = place.rpartition("/")[0]
        one = next(named for named in document["paths"] if named.startswith(f"{listed}/{{") and named.endswith("}"))
        for method in ("put", "patch") if path == listed else ():
            for body in examples(document["paths"][one][method]):
                exercised(own, document, method, one, body, place)
        assert {"201"} == document["paths"][path]["post"]["responses"].keys() & {"200", "201"}
        assert {"204"} == document["paths"][one]["delete"]["responses"].keys() & {"200", "204"}
        assert own("DELETE", place, headers={"If-Match": "*"}).status_code == 204


def test_the_example_of_sharing_is_answered_as_the_contract_says(own: Ask, document: dict[str, Any]) -> None:
    (scenario,) = examples(document["paths"]["/v1/scenarios"]["post"])
    place = own("POST", "/v1/scenarios", json=scenario).headers["location"]
    path = "/v1/scenarios/{scenario_id}/share"
    for body in examples(document["paths"][path]["post"]):
        exercised(own, document, "post", path, body, f"{place}/share")


def test_what_the_examples_of_workers_say_one_after_the_other_is_answered(
    own: Ask, own_app: FastAPI, document: dict[str, Any]
) -> None:
    job = NewJob(id=JOB_ID, kind="launch-check", payload={}, timeout_seconds=60.0, priority=1000)
    create_jobs(own_app.state.engine, [job])
    (claim,) = examples(document["paths"]["/v1/worker/claim"]["post"])
    lease = exercised(own, document, "post", "/v1/worker/claim", claim, "/v1/worker/claim").json()["job"]["lease"]
    place = "/v1/worker/jobs/{job_id}/heartbeat"
    (heartbeat,) = examples(document["paths"][place]["post"])
    exercised(own, document, "post", place, {**heartbeat, "lease": lease}, place.format(job_id=JOB_ID))
    place = "/v1/worker/jobs/{job_id}/finish"
    (finish,) = examples(document["paths"][place]["post"])
    assert own("POST", place.format(job_id=JOB_ID), json={**finish, "lease": lease}).status_code == 204


def test_every_change_has_an_example(document: dict[str, Any]) -> None:
    for path, method, operation in operations(document):
        if method in {"post", "put", "patch"}:
            taken = operation.get("requestBody", {}).get("content", {})
            shown = [one for kind in ("json", "csv", "plain") for one in examples(operation, kind)]
            assert shown or "application/octet-stream" in taken or not taken, (method, path)


def test_what_a_route_may_answer_is_what_it_can(ask: Ask, document: dict[str, Any]) -> None:
    paths = document["paths"]
    assert "409" in paths["/v1/gpus"]["post"]["responses"]
    for path, method, operation in operations(document):
        said = operation["responses"].keys()
        assert ("304" in said) == (method == "get"), path
        assert "409" not in said or operation["tags"][0] in CONTRADICTED, path
        if path != NEVER_REFUSED and "rev" in {one["name"] for one in operation["parameters"]}:
            assert {"404", "503"} <= said, path
    assert {"404", "503"} <= paths["/v1/check"]["post"]["responses"].keys()
    for path in ("/v1/gpus/h100", "/v1/gpus", "/v1/gpus.csv", "/v1/choices", "/healthz"):
        answer = ask("GET", path)
        again = ask("GET", path, headers={"If-None-Match": answer.headers["etag"]})
        assert (again.status_code, again.headers["etag"]) == (304, answer.headers["etag"])
    assert "ETag" in paths["/v1/gpus/{name}"]["get"]["responses"]["200"]["headers"]


def test_choices_are_as_the_contract_says(ask: Ask, document: dict[str, Any]) -> None:
    check(document, document["paths"]["/v1/choices"]["get"]["responses"]["200"], ask("GET", "/v1/choices").json())


def test_every_json_answer_has_a_schema(document: dict[str, Any]) -> None:
    bare = [
        path
        for path, _, operation in operations(document)
        for response in operation["responses"].values()
        for media, content in response.get("content", {}).items()
        if media == "application/json" and not content.get("schema")
    ]
    assert bare == []


def test_problems_are_as_the_contract_says(ask: Ask, document: dict[str, Any]) -> None:
    response = document["components"]["responses"]["Problem"]
    for answer in (ask("GET", "/nothing"), ask("POST", "/v1/memory", json={"x": 1}), ask("PUT", "/v1/memory")):
        check(document, response, answer.json(), "application/problem+json")


def check(document: dict[str, Any], response: dict[str, Any], body: Any, media: str = "application/json") -> None:
    schema = response["content"][media]["schema"]
    OAS31Validator({**schema, "components": document["components"]}).validate(body)
