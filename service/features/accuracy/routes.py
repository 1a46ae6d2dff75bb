"""GET /v1/accuracy: errors of predictions against published measurements."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service.answers.accuracy import Accuracy, TotalsAccuracy
from service.api.access.authorization import caller_of
from service.api.answers import JSON
from service.api.compute import compute, computed_once
from service.api.inputs import catalogue_of
from service.api.requests import StrictRoute, answer
from service.evaluation.accuracy import own_accuracy_json, shipped_accuracy_json, with_own_accuracy
from service.evaluation.totals import totals_accuracy_json
from service.store import Engine

router = APIRouter(tags=["accuracy"], route_class=StrictRoute)


@router.get(
    "/v1/accuracy",
    summary="Predicted against published memory and step time, by source",
    description="Every published measurement that ships with the service, asked and compared: errors by source, "
    "rows that cannot be asked by reason, how often the verdict was right, and the rows farthest off. Steps are "
    "also predicted without their own source, beside what a single utilisation of each GPU would say. `measured` "
    "holds what workers measured: counted live tensors, matrix products of a processor, and own measurements.",
    response_model=answer(Accuracy),
)
async def get_accuracy(request: Request) -> Response:
    """Return the figures: of shipped data computed once a process, of own measurements for each request."""
    shipped = await computed_once(request, shipped_accuracy_json)
    engine: Engine | None = request.app.state.engine
    own = b"null"
    if engine is not None:
        database = engine.url.render_as_string(hide_password=False)
        own = await compute(request, own_accuracy_json, database, await catalogue_of(request), caller_of(request))
    return Response(with_own_accuracy(shipped, own), media_type=JSON)


@router.get(
    "/v1/accuracy/totals",
    summary="Predicted against published GPU-hours, run by run",
    description="Every published run that ships with the service, asked and compared: those whose GPU-hours are "
    "of one pre-training run, as decided from their own text before any was asked, and the others beside them.",
    response_model=answer(TotalsAccuracy),
)
async def get_totals_accuracy(request: Request) -> Response:
    """Return the figures, computed once a process."""
    return Response(await computed_once(request, totals_accuracy_json), media_type=JSON)
