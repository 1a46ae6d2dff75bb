"""POST /v1/solve: the value of one open field, and the next value that fails."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service.api.answers import JSON
from service.api.catalogues import catalogue_of
from service.api.computing.compute import compute
from service.api.queries import REV, takes_only
from service.api.requests import read_body
from service.features.solve.openapi import solve_operation
from service.features.solve.solve import solution_json

router = APIRouter(tags=["estimates"], dependencies=[takes_only(REV)])


@router.post(
    "/v1/solve",
    operation_id="createSolution",
    summary="One open field: the value that will do, and the next one that will not",
    openapi_extra=solve_operation(),
)
async def solve(request: Request) -> Response:
    """The largest or smallest value of a field with which the job fits and keeps its limits, with its proof."""
    body, catalogue = await read_body(request), await catalogue_of(request)
    return Response(await compute(request, solution_json, body, catalogue), media_type=JSON)
