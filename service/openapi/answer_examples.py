"""Examples of answers, recorded from the service.

The answers stand in a file beside this one, so that the contract is the same on every machine. An example shows the
form of an answer; its numbers hold under the versions that it names.
"""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from service.api.openapi import JSON, Schema

GIVEN = Path(__file__).with_name("answer_examples.json")


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
    """Show with each successful response of an operation what it may look like."""
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
