"""The contract with its shared parameters and responses in their places, as tests read it."""

import json
from typing import Any

from service.openapi.document import COMMITTED


def resolved(document: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """A part of the document, or the component that it refers to."""
    found = document
    for step in part.get("$ref", "").split("/")[1:]:
        found = found[step]
    return found if "$ref" in part else part


def committed_contract() -> dict[str, Any]:
    """The committed contract, which tests/api/test_contract.py holds against the one that is served."""
    return whole_contract(json.loads(COMMITTED.read_bytes()))


def whole_contract(document: dict[str, Any]) -> dict[str, Any]:
    """A contract without references to parameters and successful responses."""
    for methods in document["paths"].values():
        for operation in methods.values():
            operation.setdefault("security", document["security"])
            operation["parameters"] = [resolved(document, one) for one in operation.get("parameters", ())]
            operation["responses"] = {
                status: resolved(document, one) if status < "3" else one
                for status, one in operation["responses"].items()
            }
    return document
