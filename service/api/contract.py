"""What may callers rely on? The OpenAPI document: the routes of the application and the schemas of the dataclasses."""

import json
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from service.api.catalogue_schemas import catalogue_schemas
from service.api.json_schema import Schema, ref
from service.api.own_row_schemas import own_row_schemas
from service.api.problems import KINDS, MEDIA_TYPE
from service.api.query_parameters import component_parameters
from service.api.scenario_schemas import scenario_schemas
from service.api.schemas import component_schemas
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
    "catalogue": "Models, GPUs, clusters, prices and rate cards: the shipped ones, and your own.",
    "cells": "One number a spreadsheet cell.",
    "checks": "Admission of jobs by a scheduler.",
    "health": "Is the service alive and ready?",
}

REFUSALS = ("422", "default")
"""Responses of every operation that are problem documents."""

REFUSALS_OF_A_BODY = ("400", "413", "415")
"""Those of an operation that takes a body."""

REFUSALS_OF_A_CHANGE = {
    "post": ("409", "503"),
    **dict.fromkeys(("put", "patch", "delete"), ("409", "412", "428", "503")),
}
"""Those of an operation that changes the catalogue or a scenario."""

CHANGED = {"catalogue", "scenarios"}
"""Families of what callers change."""

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
        "responses": {"Problem": PROBLEM_RESPONSE},
    }
    document["security"] = []
    document["paths"] = dict(sorted(document["paths"].items(), key=_place_in_tags))
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            more = REFUSALS_OF_A_CHANGE.get(method, ()) if CHANGED & {*operation["tags"]} else ()
            _complete(operation, (*more, *(("404",) if "{" in path else ())))
    return document


def _schemas() -> dict[str, Schema]:
    lists = catalogue_schemas() | own_row_schemas() | scenario_schemas()
    return component_schemas() | lists | {"Problem": PROBLEM}


def _place_in_tags(path: tuple[str, Schema]) -> int:
    """Paths stand in the order of their families, whatever the files of their routes are called."""
    operation: Schema = next(iter(path[1].values()))
    return list(TAGS).index(operation["tags"][0])


def _complete(operation: Schema, more: tuple[str, ...]) -> None:
    """What a route says of itself, without what FastAPI guesses from its function, and with every refusal."""
    refusals = (
        *(REFUSALS_OF_A_BODY if "requestBody" in operation else ()),
        *REFUSALS,
        *more,
    )
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
