"""POST /v1/solve: the value of one open field, and the next value that fails."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service.answers.plans import Solution
from service.api.answers import JSON
from service.api.compute import compute
from service.api.openapi import examples, requires
from service.api.requests import CatalogueDep, JsonBody, StrictRoute, answer
from service.features.solve.schemas import SolveRequest
from service.features.solve.solve import solution_json

router = APIRouter(tags=["estimates"], route_class=StrictRoute)


@router.post(
    "/v1/solve",
    summary="One open field: the value that keeps the limits, and the next one that does not",
    response_model=answer(Solution),
    openapi_extra=requires("read") | examples("createSolution"),
)
async def create_solution(request: Request, body: JsonBody[SolveRequest], catalogue: CatalogueDep) -> Response:
    """The value keeps the limits and the next one does not: the numbers of both prove it.

    Where no value keeps the limits, it is null, and the next one says what is missing.
    """
    return Response(await compute(request, solution_json, body, catalogue), media_type=JSON)
