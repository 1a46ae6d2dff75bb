"""OpenAPI of batches: each question with its kind, each answer with its status."""

from service.answers.batch import MOST_QUESTIONS
from service.api.openapi import Schema, described, json_response, object_schema, parameter_ref, ref, request_body
from service.api.queries import REV
from service.features.batch.batch import ANSWERERS, BODY, KIND, QUESTIONS
from service.features.estimates.examples import EXAMPLES

CHECKED = "check"
"""Kind whose body holds more than a question."""

ANSWERS = ("Answer", "MemoryAnswer", "FlopAnswer", "GpuHoursAnswer", "Check")

_ONE_NODE = EXAMPLES["one-node"]["value"]

BATCHES: dict[str, Schema] = {
    "every-kind": {
        "summary": "The same job asked five ways",
        "value": {
            QUESTIONS: [
                *({KIND: kind, BODY: _ONE_NODE} for kind in ANSWERERS if kind != CHECKED),
                {KIND: CHECKED, BODY: {**_ONE_NODE, "limits": {"days": 2_000}}},
            ]
        },
    },
    "one-refused": {
        "summary": "Two layouts, the second of which divides no attention head; it alone is refused",
        "value": {
            QUESTIONS: [
                {KIND: "memory", BODY: {**_ONE_NODE, "layout": {"tensor": tensor}, "cluster": _cluster}}
                for tensor, _cluster in ((4, {"gpu": "h100", "gpus": 8}), (3, {"gpu": "h100", "gpus": 6}))
            ]
        },
    },
}
"""Request bodies that POST /v1/batch answers."""


def batch_schemas() -> dict[str, Schema]:
    """Schemas of batches."""
    kinds = [kind for kind in ANSWERERS if kind != CHECKED]
    return {
        "BatchRequest": object_schema(
            "Questions that are asked together.", [QUESTIONS], {QUESTIONS: _list("The questions.", _question_forms())}
        ),
        "BatchQuestion": _question("A question.", {"type": "string", "enum": kinds}, "QuestionRequest"),
        "BatchCheck": _question("A job that wants to start.", {"const": CHECKED}, "CheckRequest"),
        "BatchAnswers": object_schema(
            "The answers, in the order of the questions.",
            ["answers"],
            {"answers": _list("One answer a question.", {"anyOf": [ref("BatchAnswer"), ref("BatchProblem")]})},
        ),
        "BatchAnswer": object_schema(
            "A question that was answered.",
            ["status", "body"],
            {
                "status": {"const": 200, "description": "Answered."},
                "body": {"description": "What the route of its kind answers.", "anyOf": [*map(ref, ANSWERS)]},
            },
        ),
        "BatchProblem": object_schema(
            "A question that was not.",
            ["status", "body"],
            {
                "status": {"type": "integer", "enum": [400, 422, 500], "description": "Status of the refusal."},
                "body": described("Why not.", ref("Problem")),
            },
        ),
    }


def batch_operation() -> Schema:
    """OpenAPI of the operation."""
    return {
        "description": "Each question is answered, or refused, as the route of its kind would answer it; pointers of a "
        "refusal begin at its body. What is wrong with one leaves the others as they are; what is wrong with the "
        "request as a whole, such as too many questions, refuses all of them.",
        "parameters": [parameter_ref(REV)],
        "requestBody": request_body(ref("BatchRequest"), BATCHES),
        "responses": json_response(ref("BatchAnswers"), "One answer a question, in the same order."),
    }


def _question_forms() -> Schema:
    return {"anyOf": [ref("BatchQuestion"), ref("BatchCheck")]}


def _question(description: str, kind: Schema, body: str) -> Schema:
    properties = {
        KIND: described("Which answer it wants.", kind),
        BODY: described("What the route of that kind takes.", ref(body)),
    }
    return object_schema(description, [KIND, BODY], properties)


def _list(description: str, items: Schema) -> Schema:
    return {"type": "array", "description": description, "maxItems": MOST_QUESTIONS, "items": items}
