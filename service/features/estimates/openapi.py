"""OpenAPI of the estimating routes: bodies, parameters, answers and examples."""

from service.api.openapi import (
    Schema,
    flat_references,
    json_response,
    parameter_ref,
    query_parameter,
    ref,
    request_body,
)
from service.api.queries import EXPLAIN, METHOD, REV
from service.estimator.other_tools.comparison import TOOLS

EXAMPLES: dict[str, Schema] = {
    "one-node": {
        "summary": "Llama 3.1 8B on one DGX H100, the whole run with its cost",
        "value": {
            "model": "llama-3.1-8b",
            "recipe": {"sequence_length": 8192, "micro_batch": 1, "global_batch": 128, "training_tokens": 15e12},
            "layout": {"tensor": 2, "zero_stage": 1},
            "cluster": {"gpu": "h100-sxm5-80gb", "gpus": 8},
            "price": {"usd_per_gpu_hour": 2.5},
        },
    },
    "many-nodes": {
        "summary": "Llama 3.1 70B with fewer layers on sixteen nodes of a cluster preset",
        "value": {
            "model": {"preset": "llama-3.1-70b", "num_hidden_layers": 64},
            "recipe": {"sequence_length": 8192, "global_batch": 512, "recompute": "selective"},
            "layout": {"tensor": 8, "pipeline": 4},
            "cluster": {"preset": "dgx-h100", "nodes": 16},
        },
    },
    "own-config": {
        "summary": "A Hugging Face config.json as it is",
        "value": {
            "model": {"hf_config": {
                "model_type": "llama", "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
                "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
            }},
            "recipe": {"sequence_length": 4096, "recompute": "full"},
            "cluster": "dgx-h100",
        },
    },
}  # fmt: skip
"""Request bodies that every estimating route answers."""


def question_operation(answer: str) -> Schema:
    """What the contract adds to a POST route that takes a question."""
    return {
        "description": "Ask with four objects; a name stands for a row of the catalogue. Not fitting is an answer too.",
        "parameters": [parameter_ref(EXPLAIN), parameter_ref(REV)],
        "requestBody": request_body(ref("QuestionRequest"), EXAMPLES),
        "responses": json_response(ref(answer)),
    }


def memory_operation(answer: str, answer_by_method: str) -> Schema:
    """What the contract adds to the POST route that other tools can be asked through."""
    operation = question_operation(answer)
    method = query_parameter(
        METHOD,
        "Answer as this other tool would, with the main reason why it differs from our own answer; what its formula "
        "does not read is refused. /v1/choices says what each is.",
        {"type": "string", "enum": list(TOOLS)},
    )
    return operation | {
        "parameters": [*operation["parameters"], method],
        "responses": json_response({"anyOf": [ref(answer), ref(answer_by_method)]}),
    }


def flat_operation(answer: str) -> Schema:
    """What the contract adds to a GET route that takes a question in its flat form."""
    description = "The same question in its flat form: each field by its own name, and the same answer."
    return {"description": description, "parameters": flat_references(), "responses": json_response(ref(answer))}


def choices_operation() -> Schema:
    """What the contract adds to the list of enumerations."""
    return {"responses": json_response(ref("Choices"), "Choices by field.")}
