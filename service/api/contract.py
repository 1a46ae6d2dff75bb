"""What may callers rely on? The OpenAPI document: the routes of the application and the schemas of the dataclasses."""

import json
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from service.api.access import SECURITY_SCHEMES, security_of
from service.api.catalogue_schemas import catalogue_schemas
from service.api.json_schema import ETAG, Schema, parameter_ref, ref
from service.api.own_row_schemas import own_row_schemas
from service.api.problems import KINDS, MEDIA_TYPE
from service.api.queries import REV
from service.api.query_parameters import component_parameters
from service.api.scenario_schemas import scenario_schemas
from service.api.schemas import component_schemas
from service.api.share_schemas import share_schemas
from service.errors import MOST_PROBLEMS
from service.workflows.source_tree import ROOT, write_generated

COMMITTED = ROOT / "openapi" / "openapi.json"

DESCRIPTION = """What it takes to train a model: bytes per GPU, FLOP, seconds per step, GPU-hours, money and energy.

Ask with four nouns (model, recipe, layout, cluster) and get one answer. Units are suffixes of the names; null means
"not asked or not known", never zero. Errors are RFC 9457 problem documents that name the field and the fix."""

TAGS = {
    "estimates": "One configuration: everything, or memory, FLOP, GPU-hours alone.",
    "scenarios": "Saved questions, with their answers.",
    "choices": "Every name a field takes.",
    "catalogue": "Models, GPUs, clusters, prices, rate cards and regions: the shipped ones, and your own.",
    "cells": "One number a spreadsheet cell.",
    "checks": "Admission of jobs by a scheduler.",
    "adapters": "Schedulers ask in their own words, and fetch the files that do so.",
    "exports": "A question as the file of a launcher or a training framework, and the way back.",
    "accuracy": "How near predictions come to what was measured.",
    "health": "Is the service alive and ready?",
}

REFUSALS = ("422", "default")
"""Responses of every operation that are problem documents."""

REFUSALS_OF_STRANGERS = ("401", "403")
"""Those of an operation that asks for a key."""

REFUSALS_OF_A_BODY = ("400", "413", "415")
"""Those of an operation that takes a body."""

REFUSALS_OF_A_CHANGE = {"post": ("503",), **dict.fromkeys(("put", "patch", "delete"), ("412", "428", "503"))}
"""Those of an operation that changes the catalogue or a scenario."""

CHANGED = {"catalogue": ("409",), "scenarios": ()}
"""Families of what callers change, and how else a change may be refused there: scenarios have no names to take."""

REFUSALS_UNDER_A_REVISION = ("404", "503")
"""Those of an operation that answers under an earlier catalogue."""

NOT_MODIFIED = {"description": "The answer is the one that If-None-Match names.", "headers": {"ETag": ETAG}}
"""Response to every GET of what the caller has already."""

PROBLEM_RESPONSE = {
    "description": "What is wrong, field by field, and what to do about it.",
    "content": {MEDIA_TYPE: {"schema": ref("Problem")}},
}

_TEXT: Schema = {"type": "string"}

PROBLEM: Schema = {
    "type": "object",
    "description": "What went wrong, as RFC 9457 has it; nothing of the request is repeated.",
    "required": ["type", "title", "status", "code", "detail", "request_id", "errors"],
    "properties": {
        "type": _TEXT | {"description": "Where this kind of problem is described."},
        "title": _TEXT | {"description": "This kind of problem in words."},
        "status": {"type": "integer", "description": "HTTP status."},
        "code": {"enum": list(KINDS), "description": "This kind of problem, stable."},
        "detail": _TEXT | {"description": "What went wrong this time."},
        "request_id": _TEXT | {"description": "As in the header X-Request-Id and in the service's log."},
        "report": ref("ImportReport"),
        "errors": {
            "type": "array",
            "maxItems": MOST_PROBLEMS,
            "description": "One entry for each thing to mend.",
            "items": {
                "type": "object",
                "required": ["code", "message", "fix"],
                "properties": {
                    "pointer": _TEXT | {"description": "JSON pointer of the field in the body."},
                    "parameter": _TEXT | {"description": "Name of the query parameter, instead of a pointer."},
                    "row": {"type": "integer", "description": "Row of a table, its header being row 1."},
                    "column": _TEXT | {"description": "Column of a table, instead of a pointer."},
                    "code": _TEXT | {"description": "Broken rule, stable."},
                    "message": _TEXT | {"description": "What is wrong and why it matters."},
                    "fix": _TEXT | {"description": "What to do about it."},
                },
            },
        },
    },
}

FASTAPI_SCHEMAS = {"HTTPValidationError", "ValidationError"}
"""FastAPI's own error form, which this service never sends."""


def contract_bytes(app: FastAPI) -> bytes:
    """The contract of an application, byte for byte.

    Args:
        app: the application

    Returns:
        OpenAPI 3.1 as UTF-8 JSON, ending in a newline
    """
    return (json.dumps(contract(app), indent=1, ensure_ascii=False) + "\n").encode()


def write_contract(app: FastAPI) -> Path:
    """Write the contract into the source tree, where a test compares it with the one that is served.

    Args:
        app: the application

    Returns:
        the file

    Raises:
        StartupError: the package is installed, so there is no source tree around it
    """
    return write_generated(COMMITTED, contract_bytes(app))


def contract(app: FastAPI) -> dict[str, Any]:
    """The contract of an application.

    Args:
        app: the application

    Returns:
        OpenAPI 3.1 document
    """
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
    schemas = document.get("components", {}).get("schemas", {})
    own = {name: schema for name, schema in schemas.items() if name not in FASTAPI_SCHEMAS}
    document["components"] = {
        "schemas": dict(sorted((own | _schemas()).items())),
        "parameters": component_parameters(),
        "responses": {"NotModified": NOT_MODIFIED, "Problem": PROBLEM_RESPONSE},
        "securitySchemes": SECURITY_SCHEMES,
    }
    document["security"] = []
    document["paths"] = dict(sorted(document["paths"].items(), key=_place_in_tags))
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            operation["security"] = security_of(operation["operationId"], method.upper())
            _complete(operation, _refusals(path, method, operation))
            if method == "get":
                operation["responses"]["200"].setdefault("headers", {}).setdefault("ETag", ETAG)
                operation["responses"]["304"] = {"$ref": "#/components/responses/NotModified"}
    return document


def _refusals(path: str, method: str, operation: Schema) -> tuple[str, ...]:
    """How an operation may be refused, beside what may happen to every one."""
    (family,) = operation["tags"]
    changes = REFUSALS_OF_A_CHANGE.get(method, ()) if family in CHANGED else ()
    return (
        *(REFUSALS_OF_A_BODY if "requestBody" in operation else ()),
        *REFUSALS,
        *(REFUSALS_OF_STRANGERS if operation["security"] else ()),
        *changes,
        *(CHANGED[family] if changes else ()),
        *(("404",) if "{" in path else ()),
        *(REFUSALS_UNDER_A_REVISION if parameter_ref(REV) in operation.get("parameters", ()) else ()),
    )


def _schemas() -> dict[str, Schema]:
    lists = catalogue_schemas() | own_row_schemas() | scenario_schemas() | share_schemas()
    return component_schemas() | lists | {"Problem": PROBLEM}


def _place_in_tags(path: tuple[str, Schema]) -> int:
    """Paths stand in the order of their families, whatever the files of their routes are called."""
    operation: Schema = next(iter(path[1].values()))
    return list(TAGS).index(operation["tags"][0])


def _complete(operation: Schema, refusals: tuple[str, ...]) -> None:
    """What a route says of itself, without what FastAPI guesses from its function, and with every refusal."""
    for response in operation["responses"].values():
        media = response.pop("content", {})
        described = {name: content for name, content in media.items() if content.get("schema")}
        response.update({"content": described} if described else {})
    operation["responses"] |= {status: {"$ref": "#/components/responses/Problem"} for status in refusals}
    operation.setdefault("description", f"{operation['summary']}.")
    if "parameters" in operation:
        operation["parameters"] = _without_guesses(operation["parameters"])


def _without_guesses(parameters: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a route says of its parameters itself comes last and wins over what FastAPI guesses from its function."""
    return list({p.get("$ref", (p.get("in"), p.get("name"))): p for p in parameters}.values())
