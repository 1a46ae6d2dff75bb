"""OpenAPI of launch checks: the request, the events, and the findings."""

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode

from service.answers.launch_checks import LaunchCheck
from service.api.openapi import (
    EVENTS,
    Schema,
    described,
    json_content,
    json_response,
    object_schema,
    path_parameter,
    ref,
    request_body,
    undefaulted,
    untitled,
)
from service.features.estimates.examples import EXAMPLES
from service.features.launch_checks.launch_checks import LaunchCheckOptions

GZIP = "application/gzip"
LAST_EVENT_ID = "Last-Event-ID"
EVENT_NUMBER = "[0-9]{1,9}"
"""Pattern of event numbers: every match fits a database integer, and no job has more events."""

ID = path_parameter("check_id", "Id of the launch check.", "lch_1f7c0a5e4b6d49d2a8e3c5b7d9f01234")

REQUEST_EXAMPLES: dict[str, Schema] = {
    "everything": {
        "summary": "Everything that can be measured of SmolLM2 135M on what there is, in two minutes",
        "value": {
            "question": {
                "model": "smollm2-135m",
                "recipe": {"sequence_length": 2048},
                "cluster": {"gpu": "h100-sxm5-80gb", "gpus": 8},
            },
            "on": "any",
        },
    },
    "products": {
        "summary": "The matrix products alone, on the cluster's own GPU where a worker has it",
        "value": {"question": EXAMPLES["one-node"]["value"], "probes": ["gemm"], "time_budget_seconds": 60},
    },
}
"""Request bodies that POST /v1/launch-checks takes."""

_LOCATION: Schema = {"description": "Where the launch check is read.", "schema": {"type": "string"}}

_EVENTS_TEXT = (
    "Events: queued, running, progress with what each probe reported, and one of succeeded, failed and cancelled, "
    "numbered by their ids; then launch_check, with the whole answer, and the stream ends. A stream may end early, "
    "with the event again, or be cut off: reconnect with the id of the last event to get those after it."
)

_EVENTS_EXAMPLE = """id: 2
event: running
data: {"at":"2026-11-23T08:00:01Z","data":{"worker":"gpu-node-7"}}

id: 3
event: progress
data: {"at":"2026-11-23T08:00:02Z","data":{"probes":[{"probe":"gemm","status":"running","done_fraction":0.25}]}}

"""


def launch_check_schemas() -> dict[str, Schema]:
    """Component schemas of launch checks."""
    modes: tuple[tuple[type, JsonSchemaMode], ...] = (
        (LaunchCheckOptions, "validation"),
        (LaunchCheck, "serialization"),
    )
    _, document = TypeAdapter.json_schemas(
        [(kind, mode, TypeAdapter(kind)) for kind, mode in modes],
        schema_generator=_EveryField,
        ref_template="#/components/schemas/{model}",
    )
    schemas: dict[str, Schema] = {name: untitled(schema) for name, schema in document["$defs"].items()}
    options = schemas.pop("LaunchCheckOptions")["properties"]
    schemas["LaunchCheck"]["properties"]["question"] = _question()
    return {
        **{name: _bare(schema) for name, schema in schemas.items() if name not in _DEFINED_ELSEWHERE},
        "LaunchCheckRequest": object_schema(
            "What to measure of which job: a question, or the id of a stored estimate of it.",
            [],
            {"question": _question(), **{name: undefaulted(untitled(schema)) for name, schema in options.items()}},
        ),
    }


_DEFINED_ELSEWHERE = ("Interval",)
"""Classes defined among the components of estimates."""


class _EveryField(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: object) -> bool:  # noqa: ARG002 - pydantic calls it so
        """Leave out titles, which repeat the field names."""
        return False


def _bare(schema: Schema) -> Schema:
    """Schema of a part of an answer: every field is required."""
    properties = {name: undefaulted(untitled(field)) for name, field in schema["properties"].items()}
    return schema | {"properties": properties, "required": list(properties), "additionalProperties": False}


def _question() -> Schema:
    return described("What POST /v1/estimates takes, as it was sent.", ref("QuestionRequest"))


def create_operation() -> Schema:
    """OpenAPI of creating a launch check."""
    headers = {"Location": _LOCATION}
    content = json_content(ref("LaunchCheck"))
    return {
        "description": "A worker measures the real kernels of this model under this recipe and layout.",
        "requestBody": request_body(ref("LaunchCheckRequest"), REQUEST_EXAMPLES),
        "responses": {"202": {"description": "The launch check, queued.", "headers": headers, "content": content}},
    }


def read_operation(description: str) -> Schema:
    """OpenAPI of operations that answer with a launch check."""
    return {
        "description": description,
        "parameters": [ID],
        "responses": json_response(ref("LaunchCheck"), "The launch check."),
    }


def events_operation() -> Schema:
    """OpenAPI of the event stream."""
    last = {
        "name": LAST_EVENT_ID,
        "in": "header",
        "description": "Id of the last event that came; from the first one on where absent.",
        "schema": {"type": "string", "pattern": f"^{EVENT_NUMBER}$"},
    }
    content = {EVENTS: {"schema": {"description": _EVENTS_TEXT}, "example": _EVENTS_EXAMPLE}}
    return {
        "description": _EVENTS_TEXT,
        "parameters": [ID, last],
        "responses": {"200": {"description": "What happens, as it happens.", "content": content}},
    }


def trace_operation() -> Schema:
    """OpenAPI of the trace."""
    content = {GZIP: {"schema": {"type": "string", "format": "binary"}}}
    return {
        "description": "For chrome://tracing, Perfetto, and TensorBoard's profiler, which takes it under the name that "
        "it is saved as.",
        "parameters": [ID],
        "responses": {"200": {"description": "A Chrome trace, compressed.", "content": content}},
    }
