"""How scenarios stand in the contract: what is sent, what is shown, and the list of them."""

from service.api.catalogue_schemas import VERSION, named_row
from service.api.json_schema import Schema, json_content, ref
from service.api.list_schemas import list_schemas
from service.api.operations import EXAMPLES, asked_in_body
from service.api.own_row_schemas import ETAG, IF_MATCH
from service.workflows.columns import Column
from service.workflows.nouns import schema_of
from service.workflows.scenario_label import FIELDS, QUESTION, Label
from service.workflows.scenarios import COLUMNS, SUMMARY, VERSIONS

NAME = named_row("Id of the scenario.")
LOCATION: Schema = {"description": "Where it is read; handing this on shares it.", "schema": {"type": "string"}}

EXAMPLE: Schema = {"name": "8B on one node", "note": "first guess", QUESTION: EXAMPLES["one-node"]["value"]}
LINKS = {
    "self": "The scenario, in its newest revision; handing this on shares it.",
    "revision": "This revision of it.",
    "estimate": "The whole answer, byte for byte as it was given.",
    "list": "Every scenario.",
}


def scenario_schemas() -> dict[str, Schema]:
    """The schemas that the routes of scenarios refer to.

    Returns:
        JSON schemas by component name
    """
    grouped = {*SUMMARY, *VERSIONS}
    shown = {
        **{column.name: dict(column.schema) for column in COLUMNS if column.name not in grouped},
        QUESTION: _question(),
        "summary": _group("What was answered, in short.", SUMMARY),
        "versions": _group("What the answer rests on.", VERSIONS),
        "links": _object("Where more is.", {name: {"type": "string", "description": s} for name, s in LINKS.items()}),
    }
    labels: Schema = schema_of(Label)["properties"]
    said = {name: _bare(labels[name]) if name in labels else _question() for name in FIELDS}
    return {
        **list_schemas("Scenario", "One of the scenarios", COLUMNS),
        "Scenario": _object("A question under a name, with what was answered.", shown),
        "ScenarioRequest": {**_object("A question to keep under a name.", said), "required": ["name", QUESTION]},
        "ScenarioPatch": {
            "type": "object",
            "description": "What changes, as a merge patch: null removes a field of the question, or the note.",
            "additionalProperties": False,
            "properties": {
                **said,
                "note": {**said["note"], "type": ["string", "null"]},
                QUESTION: {"type": "object", "description": "Fields of the question that change."},
            },
        },
    }


def create_operation() -> Schema:
    """What the contract adds to the making of a scenario.

    Returns:
        parts of an OpenAPI operation
    """
    examples = {"one-node": {"summary": "One of the questions of /v1/estimates", "value": EXAMPLE}}
    return {
        "requestBody": asked_in_body(ref("ScenarioRequest"), examples),
        "responses": _answered("201", "The scenario.", {"ETag": ETAG, "Location": LOCATION}),
    }


def read_operation() -> Schema:
    """What the contract adds to the reading of a scenario.

    Returns:
        parts of an OpenAPI operation
    """
    return {"parameters": [NAME, VERSION], "responses": _answered("200", "The scenario.", {"ETag": ETAG})}


def change_operation(schema: str, *media_types: str) -> Schema:
    """What the contract adds to a change of a scenario.

    Args:
        schema: component name of the body
        media_types: what the body may be called

    Returns:
        parts of an OpenAPI operation
    """
    return {
        "parameters": [NAME, IF_MATCH],
        "requestBody": {"required": True, "content": {name: {"schema": ref(schema)} for name in media_types}},
        "responses": _answered("200", "Its new revision.", {"ETag": ETAG}),
    }


def delete_operation() -> Schema:
    """What the contract adds to the removal of a scenario.

    Returns:
        parts of an OpenAPI operation
    """
    return {"parameters": [NAME, IF_MATCH], "responses": {"204": {"description": "It is gone."}}}


def _answered(status: str, description: str, headers: Schema) -> Schema:
    return {status: {"description": description, "headers": headers, "content": json_content(ref("Scenario"))}}


def _question() -> Schema:
    return {"description": "What POST /v1/estimates takes, as it was sent.", "allOf": [ref("QuestionRequest")]}


def _group(description: str, names: tuple[str, ...]) -> Schema:
    schemas: dict[str, Column] = {column.name: column for column in COLUMNS}
    return _object(description, {name: dict(schemas[name].schema) for name in names})


def _object(description: str, properties: Schema) -> Schema:
    return {
        "type": "object",
        "description": description,
        "additionalProperties": False,
        "required": list(properties),
        "properties": properties,
    }


def _bare(schema: Schema) -> Schema:
    return {key: value for key, value in schema.items() if key not in {"title", "default"}}
