"""OpenAPI of solve: one open field, and its value with the proof."""

from service.api.openapi import NULL, Schema, json_response, parameter_ref, ref, request_body, untitled
from service.api.queries import REV
from service.features.compare.openapi import JOB, QUESTIONED
from service.features.compare.schemas import CLUSTERS, PRICES, QUESTION
from service.features.solve.schemas import LIMITS, SERVING, SolveOptions
from service.validation.specs import schema_of

SOLUTIONS: dict[str, Schema] = {
    "largest-micro-batch": {
        "summary": "The largest micro-batch that fits, a tenth of the memory left free",
        "value": {
            "unknown": "recipe.micro_batch",
            QUESTION: {**QUESTIONED, "recipe": {"sequence_length": 4096, "recompute": "full"}},
            LIMITS: {"headroom_fraction": 0.1},
        },
    },
    "gpus-for-a-deadline": {
        "summary": "The fewest GPUs that train 100 billion tokens in a week",
        "value": {
            "unknown": "cluster.gpus",
            QUESTION: {
                **QUESTIONED,
                "recipe": {"sequence_length": 8192, "global_batch": 512, "training_tokens": 1e11},
            },
            LIMITS: {"days": 7},
        },
    },
    "tokens-for-a-budget": {
        "summary": "The tokens that 50,000 dollars buy",
        "value": {"unknown": "recipe.training_tokens", QUESTION: QUESTIONED, LIMITS: {"cost_usd": 50_000}},
    },
    "cheapest-cluster": {
        "summary": "The cheapest of some clusters that is done in a year",
        "value": {
            "unknown": "cluster",
            QUESTION: JOB,
            CLUSTERS: [{"preset": "dgx-h100", "nodes": nodes} for nodes in (16, 64, 256)],
            PRICES: [{"usd_per_gpu_hour": 2.5}],
            LIMITS: {"days": 365},
        },
    },
    "compute-optimal": {
        "summary": "The model and the tokens that make most of 5.76e23 FLOP",
        "value": {"unknown": "model", LIMITS: {"total_flop": 5.76e23}},
    },
    "size-for-cheap-tokens": {
        "summary": "The same where a million tokens in use may cost ten cents on an H100",
        "value": {
            "unknown": "model",
            LIMITS: {"total_flop": 5.76e23, "inference_usd_per_million_tokens": 0.1},
            SERVING: {"gpu": "h100", "usd_per_gpu_hour": 2.5, "mfu_fraction": 0.33},
        },
    },
    "plan-of-a-batch": {
        "summary": "How to make a batch of four million tokens",
        "value": {
            "unknown": "recipe.global_batch",
            QUESTION: {
                **QUESTIONED,
                "recipe": {"sequence_length": 4096, "recompute": "full", "global_batch_tokens": 1 << 22},
            },
        },
    },
}
"""Request bodies that POST /v1/solve answers."""

MEANING = "What POST /v1/estimates takes; the open field may be any legal value, or absent where it has a default."


def solve_schemas(lists: Schema) -> dict[str, Schema]:
    """Schemas of solve, without those of the answer."""
    options = {name: untitled(schema) for name, schema in schema_of(SolveOptions)["properties"].items()}
    limits = {"description": "What has to hold beside fitting; null for no more.", "anyOf": [ref("SolveLimits"), NULL]}
    serving = {
        "description": "What the trained model is used on; read with limits.inference_usd_per_million_tokens.",
        "anyOf": [ref("Serving"), NULL],
    }
    question = {"description": MEANING, "anyOf": [ref("JobQuestion"), NULL]}
    request: Schema = {
        "type": "object",
        "description": "One open field, and everything else.",
        "additionalProperties": False,
        "required": ["unknown"],
        "properties": {
            **options,
            QUESTION: question,
            LIMITS: limits,
            SERVING: serving,
            CLUSTERS: lists[CLUSTERS],
            PRICES: lists[PRICES],
        },
    }
    return {"SolveRequest": request}


def solve_operation() -> Schema:
    """OpenAPI of the operation."""
    return {
        "description": "The value will do and the next one will not: their numbers prove both. Where nothing will do, "
        "the value is null and the next one says what is missing.",
        "parameters": [parameter_ref(REV)],
        "requestBody": request_body(ref("SolveRequest"), SOLUTIONS),
        "responses": json_response(ref("Solution")),
    }
