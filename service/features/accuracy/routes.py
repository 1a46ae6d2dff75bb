"""GET /v1/accuracy: errors of predictions against published measurements."""

from dataclasses import replace

from fastapi import APIRouter, Request
from fastapi.responses import Response

from service.answers.accuracy import Accuracy, AccuracyPoint, TotalsAccuracy
from service.answers.names import WIRE_NAMES
from service.api.access.authorization import caller_of
from service.api.answers import JSON, add_list
from service.api.compute import compute, computed_once
from service.api.inputs import catalogue_of
from service.api.requests import StrictRoute, answer
from service.evaluation.accuracy import own_accuracy_json, with_own_accuracy
from service.evaluation.shipped import shipped_accuracy_json, shipped_points
from service.evaluation.totals import totals_accuracy_json
from service.store import Engine
from service.tabular.lists import Listed, ListTypes, columns_of

router = APIRouter(tags=["accuracy"], route_class=StrictRoute)

COLUMNS = tuple(replace(column, name=WIRE_NAMES.get(column.name, column.name)) for column in columns_of(AccuracyPoint))

add_list(
    router,
    "accuracy/points",
    ListTypes(singular="AccuracyPoint", row_meaning="One published figure beside its prediction", columns=COLUMNS),
    "Published figures beside predictions that never saw their source",
    lambda _: Listed(COLUMNS, shipped_points()),
)


@router.get(
    "/v1/accuracy",
    summary="Predicted against published memory and step time, by class and by source",
    description="`held_out` leads: errors on sources that neither constants nor intervals have seen, by class of "
    "question and by source, beside other methods on the same rows; `/v1/accuracy/points` lists each point. Below it, "
    "in sample: every published measurement that ships with the service, asked and compared, rows that cannot be "
    "asked by reason, how often the verdict was right, and the rows farthest off. `measured` holds what workers "
    "measured: counted live tensors, matrix products of a processor, and own measurements.",
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
