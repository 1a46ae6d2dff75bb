"""The OpenAPI document: the routes of the application and the schemas of the dataclasses."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from service.api.access.authorization import SECURITY_SCHEMES, is_rate_limited, security_requirement
from service.api.caching import describe_idempotency, takes_idempotency_key
from service.api.openapi import ETAG, JSON, Schema, component_parameters
from service.api.queries import REV
from service.api.request_context import deprecation_of
from service.features.catalogue.list_openapi import VERSION
from service.features.catalogue.openapi import custom_row_schemas
from service.features.launch_checks.openapi import launch_check_schemas
from service.features.scenarios.openapi import scenario_schemas, share_schemas
from service.features.sweeps.openapi import sweep_schemas
from service.openapi.components import component_schemas, measurement_schemas, plain_schemas
from service.openapi.generated import share_parameters, tidied
from service.openapi.problems import (
    LIMIT_HEADERS,
    LIMIT_REFERENCES,
    problem_responses,
    problem_schemas,
    response_ref,
)
from service.openapi.published_names import published, published_schemas
from service.source_tree import ROOT, write_generated

GIVEN = Path(__file__).with_name("answer_examples.json")
"""Examples of answers, recorded from the service, so that the contract is the same on every machine. Their numbers hold
under the versions that they name."""


@cache
def given_answers() -> Mapping[str, Mapping[str, Any]]:
    """Answers that the service gave."""
    given: Mapping[str, Mapping[str, Any]] = json.loads(GIVEN.read_text(encoding="utf-8"))
    return given


def example_components(schemas: Mapping[str, Schema]) -> dict[str, Schema]:
    """An example of each type of answer."""
    answers = given_answers()["answers"]
    return {name: {"summary": schemas[name]["description"], "value": value} for name, value in answers.items()}


def add_examples(operation: Schema) -> None:
    """Add an example to each successful response of an operation."""
    answers, texts = (given_answers()[kind] for kind in ("answers", "texts"))
    for media_type, content in successes(operation):
        if media_type == JSON:
            names = [name for name in types_of(content["schema"]) if name in answers]
            content["examples"] = {name: {"$ref": f"#/components/examples/{name}"} for name in names}
        elif media_type in texts.get(operation["operationId"], {}):
            content["example"] = texts[operation["operationId"]][media_type]


def successes(operation: Schema) -> Iterator[tuple[str, Schema]]:
    """The content of every successful response of an operation."""
    for status, response in operation["responses"].items():
        if status.startswith("2"):
            yield from response.get("content", {}).items()


def types_of(schema: Schema) -> list[str]:
    """The types of an answer."""
    return [option["$ref"].rpartition("/")[2] for option in schema.get("anyOf", (schema,)) if "$ref" in option]


COMMITTED = ROOT / "openapi" / "openapi.json"

DESCRIPTION = """What it takes to train a model: bytes per GPU, FLOP, seconds per step, GPU-hours, money and energy.

Ask with four objects (model, recipe, layout, cluster) and get one answer. Units are suffixes of the names; null means
"not asked or not known", never zero. Errors are RFC 9457 problem documents that name the field and the fix."""

TAGS = {
    "estimates": "One configuration: everything, or memory, FLOP, GPU-hours alone.",
    "diagnoses": "Why a job ran out of memory, and what to change.",
    "scenarios": "Saved questions, with their answers.",
    "choices": "Every name a field takes.",
    "catalogue": "Models, GPUs, clusters, prices, rate cards and regions: the shipped ones, and your own.",
    "cells": "One number a spreadsheet cell.",
    "checks": "Admission of jobs by a scheduler.",
    "adapters": "Schedulers ask in their own words, and fetch the files that do so.",
    "exports": "A question as the file of a launcher or a training framework, and the way back.",
    "reconciliations": "What jobs took that were estimated before.",
    "measurements": "What was measured, by workers or by other tools.",
    "calibrations": "Constants of a device, fitted on measurements of it.",
    "accuracy": "How near predictions come to what was measured.",
    "launch-checks": "Measurements of a job's own kernels before it starts, and a verdict.",
    "workers": "Workers, and the jobs that they are given.",
    "sweeps": "Tables of many questions, worked out by workers.",
    "audit": "Who changed what, and what was refused.",
    "health": "Is the service alive and ready?",
}

REFUSALS = ("422", "default")
"""Responses of every operation that are problem documents."""

REFUSALS_OF_STRANGERS = ("401", "403")
"""Those of an operation that asks for a key."""

NEVER_REFUSED = "/v1/cell/why"
"""The path that explains in words what is wrong, to any caller with access; a body, which it never reads, can be
too large."""

REFUSALS_OF_A_BODY = ("400", "408", "413", "415")
"""Those of an operation that takes a body."""

REFUSALS_OF_A_CHANGE = {"post": ("503",), **dict.fromkeys(("put", "patch", "delete"), ("412", "428", "503"))}
"""Those of an operation that changes the catalogue or a scenario."""

CHANGED = {"calibrations": (), "measurements": (), "catalogue": ("409",), "scenarios": (), "sweeps": ()}
"""Families of what callers change, and how else a change may be refused there: scenarios, sweeps and what is measured
have no names to take."""

CONTRADICTED = frozenset({
    "createLaunchCheck", "createSweep", "promoteCalibration", "retireCalibration", "rollBackCalibration",
})  # fmt: skip
"""Operations that what holds may contradict, in families whose others it cannot."""

OF_A_CLAIM = "/v1/worker/jobs/"
"""Where paths begin of what a worker says of its job, which may be another's by then."""

REFUSALS_UNDER_A_REVISION = ("404", "503")
"""Those of an operation that answers under an earlier catalogue."""

STORED = (
    "/v1/scenarios", "/v1/sweeps", "/v1/estimates/", "/v1/catalogue/revisions", "/v1/reconciliations", "/v1/worker",
    "/v1/launch-checks", "/v1/measurements", "/v1/calibrations", "/v1/audit", "/readyz",
)  # fmt: skip
"""Where paths begin whose every answer comes from the database, which may not answer."""

NOT_MODIFIED = {"description": "The answer is the one that If-None-Match names.", "headers": {"ETag": ETAG}}
"""Response to every GET of what the caller has already."""


def contract_bytes(app: FastAPI) -> bytes:
    """The contract of an application, byte for byte."""
    return (json.dumps(contract(app), indent=1, ensure_ascii=False) + "\n").encode()


def write_contract(app: FastAPI) -> Path:
    """Write the contract into the source tree, where a test compares it with the one that is served."""
    return write_generated(COMMITTED, lambda: contract_bytes(app))


def contract(app: FastAPI) -> dict[str, Any]:
    """The contract of an application."""
    document = get_openapi(
        title=app.title,
        version=app.version,
        summary="What it takes to train a large language model.",
        description=DESCRIPTION,
        routes=app.routes,
        tags=[{"name": name, "description": meaning} for name, meaning in TAGS.items()],
        servers=[{"url": "/", "description": "This service."}],
        contact={"name": "The maintainers of traincost"},
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
    )
    document["paths"], own = tidied(document)
    document["components"] = {
        "schemas": published_schemas(_schemas()) | published_schemas(own),
        "parameters": published(_parameters()),
        "responses": {"NotModified": NOT_MODIFIED, **problem_responses()},
        "headers": dict(LIMIT_HEADERS),
        "securitySchemes": SECURITY_SCHEMES,
    }
    document["components"]["examples"] = example_components(document["components"]["schemas"])
    document["security"] = []
    document["paths"] = published(dict(sorted(document["paths"].items(), key=_place_in_tags)))
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            operation.update(security_requirement(operation["operationId"], method.upper()))
            operation.update(deprecation_of(operation["operationId"]))
            if takes_idempotency_key(method, operation["responses"]):
                describe_idempotency(operation)
            _complete(operation, _refusals(path, method, operation))
            if method == "get":
                operation["responses"]["200"].setdefault("headers", {}).setdefault("ETag", ETAG)
                operation["responses"]["304"] = {"$ref": "#/components/responses/NotModified"}
            if is_rate_limited(operation["operationId"], method.upper()):
                _say_limited(operation)
            add_examples(operation)
    document["components"]["parameters"] |= share_parameters(document["paths"])
    return document


def _say_limited(operation: Schema) -> None:
    """Add the rate limit headers to every successful response."""
    for status, response in operation["responses"].items():
        if status.startswith("2"):
            response["headers"] = response.get("headers", {}) | LIMIT_REFERENCES


def _refusals(path: str, method: str, operation: Schema) -> tuple[str, ...]:
    """How an operation may be refused, beside what may happen to every one."""
    if path == NEVER_REFUSED:
        return (*REFUSALS_OF_STRANGERS, "413", "default")
    (family,) = operation["tags"]
    parameters = operation.get("parameters", ())
    changes = REFUSALS_OF_A_CHANGE.get(method, ()) if family in CHANGED else ()
    return (
        *(REFUSALS_OF_A_BODY if "requestBody" in operation else ()),
        *REFUSALS,
        *(REFUSALS_OF_STRANGERS if operation["security"] else ()),
        *(("429",) if is_rate_limited(operation["operationId"], method.upper()) else ()),
        *changes,
        *(CHANGED[family] if changes else ()),
        *(("409",) if operation["operationId"] in CONTRADICTED else ()),
        *(("409",) if path.startswith(OF_A_CLAIM) else ("404",) if "{" in path else ()),
        *(
            REFUSALS_UNDER_A_REVISION
            if any(REV in (one.get("name"), one.get("$ref", "").rpartition("/")[2]) for one in parameters)
            else ()
        ),
        *(("503",) if path.startswith(STORED) or VERSION in parameters else ()),
    )


def _schemas() -> dict[str, Schema]:
    lists = custom_row_schemas() | scenario_schemas() | share_schemas() | sweep_schemas()
    jobs = launch_check_schemas() | measurement_schemas()
    return component_schemas() | lists | plain_schemas() | jobs | problem_schemas()


def _parameters() -> dict[str, Schema]:
    return component_parameters()


def _place_in_tags(path: tuple[str, Schema]) -> int:
    """Sort paths by family, independent of the names of route modules."""
    operation: Schema = next(iter(path[1].values()))
    return list(TAGS).index(operation["tags"][0])


def _complete(operation: Schema, refusals: tuple[str, ...]) -> None:
    """What a route says of itself, without what FastAPI guesses from its function, and with every refusal."""
    for response in operation["responses"].values():
        if response.get("description") == "Successful Response":
            response["description"] = "The answer."
        media = response.pop("content", {})
        described = {name: content for name, content in media.items() if content.get("schema")}
        response.update({"content": described} if described else {})
    operation["responses"] |= {status: response_ref(status) for status in refusals}
    operation.setdefault("description", f"{operation['summary']}.")
    if "parameters" in operation:
        described = {
            one.get("$ref", (one.get("in"), one.get("name"))): _parameter(one) for one in operation["parameters"]
        }
        operation["parameters"] = list(described.values())  # of a route's own description and FastAPI's guess, the last


def _parameter(parameter: Schema) -> Schema:
    """A parameter with its example beside its schema, and without what goes without saying."""
    schema = dict(parameter.get("schema", {}))
    examples = schema.pop("examples", ())
    named = {key: value for key, value in parameter.items() if (key, value) != ("required", False)}
    return named | ({"schema": schema} if schema else {}) | ({"example": examples[0]} if examples else {})
