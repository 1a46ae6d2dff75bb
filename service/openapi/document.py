"""The OpenAPI document: the routes of the application and the schemas of the dataclasses."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from service.api.access.authorization import KEY, SCOPE, SECURITY_SCHEMES, security_requirement
from service.api.caching import describe_idempotency, takes_idempotency_key
from service.api.openapi import ETAG, JSON, MERGE_PATCH, Schema
from service.api.queries import REV
from service.api.request_context import deprecation_of
from service.openapi.compact import compacted, share_parameters, share_responses, without_bounds
from service.openapi.generated import answered_by, reached, tidied
from service.openapi.problems import LIMIT_HEADERS, problem_responses, problem_schemas, response_ref
from service.openapi.published_names import published, published_schemas
from service.source_tree import ROOT, write_generated

RECORDED = Path(__file__).parents[1] / "web" / "examples"
"""Examples of answers, recorded from the service: one file for each type, and for each operation that answers a text.
Their numbers hold under the versions that they name."""


EXAMPLES = "x-examples"
"""Extension of a media type: addresses of examples. Generators resolve OpenAPI's `externalValue` as a local file."""


def add_examples(operation: Schema) -> None:
    """Name the file with an example of each successful response of an operation."""
    for media_type, content in successes(operation):
        if media_type == JSON:
            names = [name for name in types_of(content["schema"]) if (RECORDED / f"{name}.json").exists()]
            content[EXAMPLES] = [f"/web/examples/{name}.json" for name in names]
        else:
            text = RECORDED / f"{operation['operationId']}.txt"
            if text.exists():
                content["example"] = text.read_text(encoding="utf-8")


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

CHANGED = ("calibrations", "measurements", "catalogue", "scenarios", "sweeps")
"""Families of what callers change; a change of an older version is refused."""

CONTRADICTED = frozenset({
    "createLaunchCheck", "createSweep", "promoteCalibration", "retireCalibration", "rollBackCalibration",
})  # fmt: skip
"""Operations that what is stored may contradict."""

STORED = (
    "/v1/scenarios", "/v1/sweeps", "/v1/estimates/", "/v1/catalogue/revisions", "/v1/reconciliations", "/v1/worker",
    "/v1/launch-checks", "/v1/measurements", "/v1/calibrations", "/v1/audit", "/readyz",
)  # fmt: skip
"""Beginnings of the paths whose every answer comes from the database, which may not answer."""

EARLIER = {REV, "revision"}
"""Parameters that name an earlier catalogue or row, which the database holds; of a list, a column."""

NEVER_REFUSED = "/v1/cell/why"
"""The path that answers every question of a caller with access, in words."""

OF_A_LEASE = "/v1/worker/jobs/"
"""Beginning of the paths of a worker's job, whose lease may have ended."""

ETAG_REFERENCE = {"$ref": "#/components/headers/ETag"}

NOT_MODIFIED = {"description": "The answer is the one that If-None-Match names.", "headers": {"ETag": ETAG_REFERENCE}}
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
    paths, own = tidied(document)
    schemas = compacted(published_schemas(problem_schemas()) | published_schemas(own))
    paths = compacted(published(dict(sorted(paths.items(), key=_place_in_tags))))
    answered = answered_by(paths, schemas) & schemas.keys()
    schemas |= {name: without_bounds(schemas[name]) for name in answered}
    for path, operations in paths.items():
        for method, operation in operations.items():
            _complete(path, method, operation)
    parameters: dict[str, Schema] = {}
    responses = {"NotModified": NOT_MODIFIED, **problem_responses()}
    used = reached([paths, responses], schemas)
    share_parameters(paths, parameters)
    share_responses(paths, responses)
    document["paths"], document["security"] = paths, [{KEY: []}]
    document["components"] = {
        "schemas": {name: schemas[name] for name in sorted(used)},
        "parameters": parameters,
        "responses": responses,
        "headers": {"ETag": ETAG, **LIMIT_HEADERS},
        "securitySchemes": SECURITY_SCHEMES,
    }
    return document


def _complete(path: str, method: str, operation: Schema) -> None:
    """Add what holds for operations of a kind to what a route declares."""
    name = operation["operationId"]
    for response in operation["responses"].values():
        if response.get("description") == "Successful Response":
            response["description"] = "The answer."
        media = response.pop("content", {})
        described = {media_type: content for media_type, content in media.items() if content.get("schema")}
        response.update({"content": described} if described else {})
    bodies = operation.get("requestBody", {}).get("content", {})
    if MERGE_PATCH in bodies:
        bodies[MERGE_PATCH].setdefault("schema", bodies[JSON]["schema"])
    operation.setdefault("description", f"{operation['summary']}.")
    if "parameters" in operation:
        named = {one.get("$ref", (one.get("in"), one.get("name"))): one for one in operation["parameters"]}
        operation["parameters"] = [_parameter(one) for one in named.values()]  # the route's own comes last
    operation.update(deprecation_of(name))
    requirement = security_requirement(name, method.upper())
    operation.update(requirement if requirement["security"] != [{KEY: []}] else {SCOPE: requirement[SCOPE]})
    if takes_idempotency_key(method, operation["responses"]):
        describe_idempotency(operation)
    if method == "get":
        operation["responses"]["200"].setdefault("headers", {}).setdefault("ETag", ETAG_REFERENCE)
        operation["responses"]["304"] = {"$ref": "#/components/responses/NotModified"}
    operation["responses"].pop("422", None)  # FastAPI's own
    operation["responses"] |= {status: response_ref(status) for status in _refusals(path, method, operation)}
    add_examples(operation)


def _refusals(path: str, method: str, operation: Schema) -> tuple[str, ...]:
    """Statuses of refusals that callers plan for; what may happen to every request is under `default`."""
    if path == NEVER_REFUSED:
        return ("4XX", "default")
    (family,) = operation["tags"]
    is_change = family in CHANGED and method in {"put", "patch", "delete"}
    conflicts = (
        operation["operationId"] in CONTRADICTED
        or path.startswith(OF_A_LEASE)
        or (family == "catalogue" and method != "get")
    )
    named = {one.get("name", one.get("$ref", "").rpartition("/")[2]) for one in operation.get("parameters", ())}
    earlier = EARLIER if "{" in path else {REV}
    is_from_the_database = is_change or (conflicts and method != "get") or path.startswith(STORED) or named & earlier
    return (
        *(("404",) if ("{" in path and not path.startswith(OF_A_LEASE)) or REV in named else ()),
        *(("409",) if conflicts else ()),
        *(("412", "428") if is_change else ()),
        *(("503",) if is_from_the_database else ()),
        "422",
        "default",
    )


def _parameter(parameter: Schema) -> Schema:
    """A parameter with its example beside its schema, and without what goes without saying."""
    schema = dict(parameter.get("schema", {}))
    examples = schema.pop("examples", ())
    if schema.get("description") == parameter.get("description"):
        schema.pop("description", None)
    named = {key: value for key, value in parameter.items() if (key, value) != ("required", False)}
    return named | ({"schema": schema} if schema else {}) | ({"example": examples[0]} if examples else {})


def _place_in_tags(path: tuple[str, Schema]) -> int:
    """Sort paths by family, independent of the names of route modules."""
    operation: Schema = next(iter(path[1].values()))
    return list(TAGS).index(operation["tags"][0])
