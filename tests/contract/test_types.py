"""The contract names every type clearly enough for generated code."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from fastapi.openapi.utils import get_openapi

from service.api.openapi import JSON
from service.app import create_app
from service.catalogue import shipped_catalogue
from service.openapi.document import CHOICES, EXAMPLES, RENAMED, successes, tidied, types_of
from service.settings import Settings
from tests.contract.record import Document

FREE = {
    "ChangedField", "FieldValue", "HfConfig", "ModelPatch", "KubernetesObject", "AdmissionRequest",
    "ClaimedJob", "HeartbeatRequest", "FinishRequest", "SacctDocument", "ComparedMeasurement", "ProbeFindings",
    "ProbeRecord",
}  # fmt: skip
"""Types that hold an object of somebody else (a config.json, what Kubernetes or Slurm sends), one of any kind of job,
or the shape of what a probe measures."""


def parts(value: Any) -> Iterator[Document]:
    """Every object of a document that may be a schema."""
    if isinstance(value, list):
        for item in value:
            yield from parts(item)
    elif isinstance(value, dict):
        yield value
        for key, inner in value.items():
            if key not in EXAMPLES:
                yield from parts(inner)


def test_names_are_those_of_types(document: Document) -> None:
    assert [name for name in document["components"]["schemas"] if not re.fullmatch(r"([A-Z][a-z0-9]*)+", name)] == []


def test_every_new_name_is_needed() -> None:
    app = create_app(Settings(database_url="sqlite://"), shipped_catalogue())
    _, schemas = tidied(get_openapi(title="", version="", routes=app.routes))
    own = {name.rpartition("__")[2] for name in schemas}
    nouns = {name.removesuffix("-Input").removesuffix("-Output") for name in own}
    assert RENAMED.keys() - own - nouns - schemas.keys() == set()


def test_every_choice_has_one_type(document: Document) -> None:
    used = Counter(part["$ref"].rpartition("/")[2] for part in parts(document) if isinstance(part.get("$ref"), str))
    assert [name for name in CHOICES if not used[name]] == []
    enums = [part["enum"] for part in parts(document["components"]["schemas"]) if isinstance(part.get("enum"), list)]
    told = Counter(tuple(values) for values in enums if isinstance(values[0], str))
    assert [values for values, count in told.items() if count > 2] == []


def test_every_object_tells_its_fields(document: Document) -> None:
    schemas = document["components"]["schemas"]
    free = {
        name
        for name, schema in schemas.items()
        for part in parts(schema)
        if part.get("additionalProperties") is True
        or (part.get("type") == "object" and not {"properties", "additionalProperties"} & part.keys())
    }
    assert free == FREE


def test_fields_of_requests_have_no_default_that_makes_them_required(document: Document) -> None:
    assert [part for part in parts(document["components"]["schemas"]) if "default" in part] == []


def test_every_json_answer_is_a_type(document: Document) -> None:
    answers = [
        (path, content["schema"])
        for path, methods in document["paths"].items()
        for operation in methods.values()
        for media_type, content in successes(operation)
        if media_type == JSON
    ]
    assert len(answers) > 40
    assert [path for path, schema in answers if not types_of(schema)] == []
