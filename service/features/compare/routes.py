"""POST and GET of /v1/compare: one job on many clusters at many prices, as JSON, CSV or a workbook."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from service.answers.rows import ComparisonAnswer
from service.api.answers import computed_table, written_table
from service.api.openapi import examples, requires
from service.api.requests import CatalogueDep, JsonBody, Parameters, StrictRoute, whole_query
from service.features.compare.compare import comparison_bytes, flat_comparison_bytes
from service.features.compare.schemas import ComparisonRequest, FlatComparison

router = APIRouter(tags=["estimates"], route_class=StrictRoute)

FlatQuery = Annotated[Parameters, Depends(whole_query(FlatComparison))]

SUMMARY = "The same job on many clusters at many prices"
ROWS = "The rows, sorted."
FLAT = (
    "The same with query parameters: give fields of the cluster and the price several times to compare all their "
    "combinations."
)


@computed_table(
    router,
    "/v1/compare",
    ComparisonAnswer,
    ROWS,
    methods=["POST"],
    summary=SUMMARY,
    openapi_extra=requires("read") | examples("createComparison"),
)
async def create_comparison(request: Request, body: JsonBody[ComparisonRequest], catalogue: CatalogueDep) -> Response:
    """An invalid request is refused as a whole.

    A cluster or price that cannot be estimated is a row with status 422 and its reason; a job that does not fit is a
    row like any other.
    """
    return await written_table(request, "compare", comparison_bytes, body, catalogue)


@computed_table(router, "/v1/compare", ComparisonAnswer, ROWS, methods=["GET"], summary=SUMMARY, description=FLAT)
async def get_comparison(request: Request, query: FlatQuery, catalogue: CatalogueDep) -> Response:
    """The same with query parameters."""
    return await written_table(request, "compare", flat_comparison_bytes, query, catalogue)
