"""POST and GET of /v1/compare: one job on many clusters at many prices, as JSON, CSV or a workbook."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from service.answers.rows import ComparisonAnswer
from service.api.answers import add_computed_table, computed_table
from service.api.openapi import examples, requires
from service.api.requests import CatalogueDep, JsonBody, Parameters, StrictRoute, whole_query
from service.features.compare.compare import comparison_bytes, flat_comparison_bytes
from service.features.compare.schemas import ComparisonRequest, FlatComparison

router = APIRouter(tags=["estimates"], route_class=StrictRoute)


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
    openapi_extra=requires("read") | examples("createComparison"),
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
