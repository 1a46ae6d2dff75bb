"""OpenAPI of scenarios and share links."""

from pydantic import TypeAdapter

from service.answers.shares import ListedShare, Share, ShareLinks, ShareList
from service.api.openapi import (
    ETAG,
    JSON_BODY,
    MERGE_PATCH,
    Schema,
    described,
    json_content,
    object_schema,
    path_parameter,
    ref,
    request_body,
    undefaulted,
    untitled,
)
from service.features.catalogue.list_openapi import VERSION, one_example
from service.features.catalogue.openapi import IF_MATCH
from service.features.estimates.examples import EXAMPLES
from service.features.scenarios.scenarios import COLUMNS, FIELDS, QUESTION, SUMMARY, VERSIONS, Label
from service.features.scenarios.shares import ShareRequest
from service.tabular.columns import Column
from service.validation.specs import schema_of

ID = path_parameter("scenario_id", "Id of the scenario.", "scn_ZIjOyq1grjPPQTBxcVsEqg")
LOCATION: Schema = {"description": "Where it is read; handing this on shares it.", "schema": {"type": "string"}}

EXAMPLE: Schema = {"name": "8B on one node", "note": "first guess", QUESTION: EXAMPLES["one-node"]["value"]}
PATCH: Schema = {"name": "8B on two nodes", QUESTION: {"cluster": {"gpus": 16}}}
LINKS = {
    "self": "The scenario, in its newest revision; handing this on shares it.",
    "revision": "This revision of it.",
    "estimate": "The whole answer, byte for byte as it was given.",
    "budget": "A workbook that asks the same, its fields free to change.",
    "list": "Every scenario.",
}


def scenario_schemas() -> dict[str, Schema]:
    """Schemas of scenarios."""
    grouped = {*SUMMARY, *VERSIONS}
    links = LINKS.items()
    shown = {
        **{column.name: dict(column.schema) for column in COLUMNS if column.name not in grouped},
        QUESTION: _question(),
        "summary": _group("What was answered, in short.", SUMMARY),
        "versions": _group("What the answer rests on.", VERSIONS),
        "links": _full_object("Where more is.", {name: {"type": "string", "description": s} for name, s in links}),
    }
    labels: Schema = schema_of(Label)["properties"]
    fields = {name: undefaulted(untitled(labels[name])) if name in labels else _question() for name in FIELDS}
    return {
        "Scenario": _full_object("A question under a name, with what was answered.", shown),
        "ScenarioRequest": object_schema("A question to keep under a name.", ["name", QUESTION], fields),
        "ScenarioPatch": {
            "type": "object",
            "description": "What changes, as a merge patch: null removes a field of the question, or the note.",
            "additionalProperties": False,
            "properties": {
                **fields,
                "note": {**fields["note"], "type": ["string", "null"]},
                QUESTION: described("Fields of the question that change.", ref("QuestionPatch")),
            },
        },
    }


def create_operation() -> Schema:
    """OpenAPI of creating a scenario."""
    return {
        "requestBody": _whole(),
        "responses": _answered("201", "The scenario.", {"ETag": ETAG, "Location": LOCATION}),
    }


def read_operation() -> Schema:
    """OpenAPI of reading a scenario."""
    return {"parameters": [ID, VERSION], "responses": _answered("200", "The scenario.", {"ETag": ETAG})}


def replace_operation() -> Schema:
    """OpenAPI of replacing a scenario."""
    return _change(_whole())


def patch_operation() -> Schema:
    """OpenAPI of patching a scenario."""
    examples = one_example("Another name, and more GPUs", PATCH)
    return _change(request_body(ref("ScenarioPatch"), examples, MERGE_PATCH, JSON_BODY))


def delete_operation() -> Schema:
    """OpenAPI of deleting a scenario."""
    return {"parameters": [ID, IF_MATCH], "responses": {"204": {"description": "It is gone."}}}


def _whole() -> Schema:
    return request_body(ref("ScenarioRequest"), one_example("One of the questions of /v1/estimates", EXAMPLE))


def _change(body: Schema) -> Schema:
    answered = _answered("200", "Its new revision.", {"ETag": ETAG})
    return {"parameters": [ID, IF_MATCH], "requestBody": body, "responses": answered}


def _answered(status: str, description: str, headers: Schema) -> Schema:
    return {status: {"description": description, "headers": headers, "content": json_content(ref("Scenario"))}}


def _question() -> Schema:
    return described("What POST /v1/estimates takes, as it was sent.", ref("QuestionRequest"))


def _group(description: str, names: tuple[str, ...]) -> Schema:
    schemas: dict[str, Column] = {column.name: column for column in COLUMNS}
    return _full_object(description, {name: dict(schemas[name].schema) for name in names})


def _full_object(description: str, properties: Schema) -> Schema:
    """Object schema whose fields are all required."""
    return object_schema(description, list(properties), properties)


def share_schemas() -> dict[str, Schema]:
    """Schemas of share links."""
    wanted = {
        name: {key: value for key, value in untitled(schema).items() if key != "default"}
        for name, schema in schema_of(ShareRequest)["properties"].items()
    }
    links = _properties(ShareLinks)
    shared = {**_properties(Share), "links": ref("ShareLinks")}
    listed, one = _properties(ShareList), _properties(ListedShare)
    listed["items"] = {**listed["items"], "items": ref("ListedShare")}
    return {
        "ListedShare": object_schema("Links that were made of a scenario.", list(one), one),
        "ShareList": object_schema("The links of a scenario.", list(listed), listed),
        "ShareRequest": object_schema("For how long a scenario is to be shared.", [], wanted),
        "Share": object_schema("A scenario that is shared.", list(shared), shared),
        "ShareLinks": object_schema("Links that show a scenario to anyone who has them.", list(links), links),
    }


def _properties(kind: type) -> Schema:
    properties: Schema = TypeAdapter(kind).json_schema(mode="serialization")["properties"]
    return {name: untitled(schema) for name, schema in properties.items()}
