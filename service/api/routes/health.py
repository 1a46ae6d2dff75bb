"""Is the process alive, and can it do its work?"""

from fastapi import APIRouter, Request

from service.api.json_schema import json_response, ref
from service.api.problems import RETRY_AFTER, ApiError
from service.api.queries import takes_only
from service.store import is_reachable

router = APIRouter(tags=["health"], dependencies=[takes_only()])


@router.get(
    "/healthz",
    operation_id="getHealth",
    summary="The process is alive",
    openapi_extra={"responses": json_response(ref("HealthAnswer"))},
)
async def health() -> dict[str, str]:
    """Answer as long as the process can answer anything."""
    return {"status": "ok"}


@router.get(
    "/readyz",
    operation_id="getReadiness",
    summary="The database can be reached",
    openapi_extra={"responses": json_response(ref("ReadinessAnswer"))},
)
def readiness(request: Request) -> dict[str, str]:
    """Answer once the database answers; 503 until then."""
    engine = request.app.state.engine
    if engine is None or not is_reachable(engine):
        raise ApiError("not_ready", "the database does not answer", RETRY_AFTER)
    return {"status": "ready"}
