"""POST and GET of /v1/compare: one job on many clusters at many prices, as JSON, CSV or a workbook."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from service.answers.rows import ComparisonAnswer
from service.api.answers import add_computed_table, computed_table
from service.api.openapi import examples
from service.api.requests import CatalogueDep, JsonBody, Parameters, StrictRoute, whole_query
from service.features.compare.compare import comparison_bytes, flat_comparison_bytes
from service.features.compare.schemas import ANY, ComparisonRequest, FlatComparison
from service.features.estimates.examples import JOB

router = APIRouter(tags=["estimates"], route_class=StrictRoute)


COMPARISONS: dict[str, Any] = {
    "clusters-at-prices": {
        "summary": "Llama 3.1 8B on three clusters at two prices, the cheapest first",
        "value": {
            "question": JOB,
            "clusters": ["dgx-h100", {"gpu": "h200-sxm5-141gb", "gpus": 64}, {"preset": "dgx-h100", "nodes": 16}],
            "prices": [
                {"usd_per_gpu_hour": 2.5},
                {"provider": "aws", "region": "us-east-1", "price_model": "on-demand"},
            ],
            "sort_by": "cost_usd",
        },
    },
    "every-provider": {
        "summary": "The same job at every price that the catalogue holds of its GPU",
        "value": {
            "question": {**JOB, "cluster": {"gpu": "h100-sxm5-80gb", "gpus": 64}},
            "prices": [{"provider": ANY}],
        },
    },
    "own-layouts": {
        "summary": "Clusters with a price, a precision and a layout of their own",
        "value": {
            "question": JOB,
            "clusters": [
                {
                    "name": "rented, in fp8",
                    "cluster": {"gpu": "h100-sxm5-80gb", "gpus": 64},
                    "recipe": {"precision": "fp8-tensorwise"},
                    "price": {"usd_per_gpu_hour": 2.5},
                },
                {
                    "name": "older, in bf16",
                    "cluster": {"gpu": "a100-sxm4-80gb", "gpus": 64},
                    "layout": {"tensor": 4},
                    "price": {"usd_per_gpu_hour": 1.4},
                },
            ],
            "columns": ["fits", "days", "cost_usd", "cost_usd.high", "peak_flop_per_s"],
        },
    },
}
"""Request bodies that POST /v1/compare answers."""


FlatQuery = Annotated[Parameters, Depends(whole_query(FlatComparison))]


def _compare(media_type: str) -> Any:
    async def compare(request: Request, body: JsonBody[ComparisonRequest], catalogue: CatalogueDep) -> Response:
        """Compare one job on many clusters at many prices."""
        return await computed_table(request, media_type, "compare", comparison_bytes, body, catalogue)

    return compare


def _compare_flat(media_type: str) -> Any:
    async def compare_flat(request: Request, query: FlatQuery, catalogue: CatalogueDep) -> Response:
        """Compare all combinations of the fields of a cluster and of a price."""
        return await computed_table(request, media_type, "compare", flat_comparison_bytes, query, catalogue)

    return compare_flat


SUMMARY = "The same job on many clusters at many prices"
ROWS = "The rows, sorted."

add_computed_table(
    router,
    "/v1/compare",
    _compare,
    ComparisonAnswer,
    ROWS,
    operation_id="createComparison",
    methods=["POST"],
    summary=SUMMARY,
    description="A wrong request is refused as a whole. A cluster or price that cannot be estimated is a row with "
    "status 422 and its reason; a job that does not fit is a row like any other.",
    openapi_extra=examples(COMPARISONS),
)
add_computed_table(
    router,
    "/v1/compare",
    _compare_flat,
    ComparisonAnswer,
    ROWS,
    operation_id="getComparison",
    methods=["GET"],
    summary=SUMMARY,
    description="The same in its flat form: fields of the cluster may be given several times, and those of the "
    "price; all their combinations are compared.",
)
