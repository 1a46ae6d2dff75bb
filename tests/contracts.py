"""The contract with its shared parameters and responses in their places, as tests read it."""

from typing import Any

from fastapi import FastAPI

from service.openapi.document import contract


def resolved(document: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """A part of the document, or the component that it refers to."""
    found = document
    for step in part.get("$ref", "").split("/")[1:]:
        found = found[step]
    return found if "$ref" in part else part


def whole_contract(app: FastAPI) -> dict[str, Any]:
    """The contract of an application, without references to parameters and successful responses."""
    document = contract(app)
    for methods in document["paths"].values():
        for operation in methods.values():
            operation.setdefault("security", document["security"])
            operation["parameters"] = [resolved(document, one) for one in operation.get("parameters", ())]
            operation["responses"] = {
                status: resolved(document, one) if status < "3" else one
                for status, one in operation["responses"].items()
            }
    return document
