"""POST /v1/diagnose: the cause of an out-of-memory error, from its message and the estimate."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service.answers.diagnoses import Diagnosis
from service.api.answers import JSON
from service.api.compute import compute
from service.api.openapi import examples, requires
from service.api.requests import CatalogueDep, JsonBody, StrictRoute, answer
from service.features.diagnose.diagnose import diagnosis_json
from service.features.diagnose.schemas import DiagnoseRequest

router = APIRouter(tags=["diagnoses"], route_class=StrictRoute)


@router.post(
    "/v1/diagnose",
    summary="Why did it run out of memory?",
    response_model=answer(Diagnosis),
    openapi_extra=requires("read") | examples("createDiagnosis"),
)
async def create_diagnosis(request: Request, body: JsonBody[DiagnoseRequest], catalogue: CatalogueDep) -> Response:
    """The body of /v1/estimates with the message, what torch.cuda.memory_stats() gave, or both.

    The answer repeats nothing of the message but its numbers.
    """
    return Response(await compute(request, diagnosis_json, body, catalogue), media_type=JSON)
