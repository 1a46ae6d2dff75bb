"""POST /v1/solve: the value of one open field, and the next value that fails."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service.answers.plans import Solution
from service.api.answers import JSON
from service.api.compute import compute
from service.api.openapi import examples
from service.api.requests import CatalogueDep, JsonBody, StrictRoute, answer
from service.features.estimates.examples import JOB, QUESTION
from service.features.solve.schemas import SolveRequest
from service.features.solve.solve import solution_json

router = APIRouter(tags=["estimates"], route_class=StrictRoute)


SOLUTIONS: dict[str, Any] = {
    "largest-micro-batch": {
        "summary": "The largest micro-batch that fits, a tenth of the memory left free",
        "value": {
            "unknown": "recipe.micro_batch",
            "question": {**QUESTION, "recipe": {"sequence_length": 4096, "recompute": "full"}},
            "limits": {"headroom_fraction": 0.1},
        },
    },
    "gpus-for-a-deadline": {
        "summary": "The fewest GPUs that train 100 billion tokens in a week",
        "value": {
            "unknown": "cluster.gpus",
            "question": {
                **QUESTION,
                "recipe": {"sequence_length": 8192, "global_batch": 512, "training_tokens": 1e11},
            },
            "limits": {"days": 7},
        },
    },
    "tokens-for-a-budget": {
        "summary": "The tokens that 50,000 dollars buy",
        "value": {"unknown": "recipe.training_tokens", "question": QUESTION, "limits": {"cost_usd": 50_000}},
    },
    "cheapest-cluster": {
        "summary": "The cheapest of some clusters that is done in a year",
        "value": {
            "unknown": "cluster",
            "question": JOB,
            "clusters": [{"preset": "dgx-h100", "nodes": nodes} for nodes in (16, 64, 256)],
            "prices": [{"usd_per_gpu_hour": 2.5}],
            "limits": {"days": 365},
        },
    },
    "compute-optimal": {
        "summary": "The model and the tokens that make most of 5.76e23 FLOP",
        "value": {"unknown": "model", "limits": {"total_flop": 5.76e23}},
    },
    "size-for-cheap-tokens": {
        "summary": "The same where a million tokens in use may cost ten cents on an H100",
        "value": {
            "unknown": "model",
            "limits": {"total_flop": 5.76e23, "inference_usd_per_million_tokens": 0.1},
            "serving": {"gpu": "h100", "usd_per_gpu_hour": 2.5, "mfu_fraction": 0.33},
        },
    },
    "plan-of-a-batch": {
        "summary": "How to make a batch of four million tokens",
        "value": {
            "unknown": "recipe.global_batch",
            "question": {
                **QUESTION,
                "recipe": {"sequence_length": 4096, "recompute": "full", "global_batch_tokens": 1 << 22},
            },
        },
    },
}
"""Request bodies that POST /v1/solve answers."""


@router.post(
    "/v1/solve",
    operation_id="createSolution",
    summary="One open field: the value that keeps the limits, and the next one that does not",
    description="The value keeps the limits and the next one does not: the numbers of both prove it. Where no value "
    "keeps the limits, it is null, and the next one says what is missing.",
    response_model=answer(Solution),
    openapi_extra=examples(SOLUTIONS),
)
async def solve(request: Request, body: JsonBody[SolveRequest], catalogue: CatalogueDep) -> Response:
    """The largest or smallest value of a field with which the job fits and keeps its limits, with its proof."""
    return Response(await compute(request, solution_json, body, catalogue), media_type=JSON)
