"""POST /v1/reconciliations: what finished jobs took beside their predictions, from the output of sacct."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from service.answers.diagnoses import Reconciliation
from service.api.access.authorization import caller_of
from service.api.answers import json_answer
from service.api.compute import queued
from service.api.inputs import Database, catalogue_at, view_of
from service.api.openapi import examples, request_bodies
from service.api.requests import StrictRoute, answer, is_long, read_in_process, text_or_json
from service.estimator.question import DESCRIBED
from service.features.reconcile.reconcile import reconcile
from service.features.reconcile.slurm import COMMAND, SlurmRecords, read_document, read_parsable

router = APIRouter(tags=["reconciliations"], route_class=StrictRoute)


@dataclass(frozen=True, slots=True, kw_only=True)
class SacctDocument:
    """What sacct --json prints: as much of it as every version has."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED | {"extra": "allow"}

    jobs: tuple[dict[str, Any], ...]
    """The jobs."""
    meta: dict[str, Any]
    """Says the version of the schema."""


TextOrDocument = Annotated[str | Mapping[str, Any], Depends(text_or_json(SacctDocument))]


async def _records(request: Request, body: TextOrDocument) -> SlurmRecords:
    if not isinstance(body, str):
        return await run_in_threadpool(read_document, body)
    if not is_long(body.encode()):
        return await run_in_threadpool(read_parsable, body)
    records: SlurmRecords = await read_in_process(request, read_parsable, body)
    return records


@router.post(
    "/v1/reconciliations",
    summary="What did jobs take that were estimated before?",
    response_model=answer(Reconciliation),
    openapi_extra=examples(
        "createReconciliation",
        text={
            "schema": {"type": "string", "description": f"What this prints: {COMMAND}"},
            "examples": request_bodies("createReconciliationOfText"),
        },
    ),
)
@queued
def create_reconciliation(
    request: Request, database: Database, records: Annotated[SlurmRecords, Depends(_records)]
) -> Response:
    """Jobs whose comment holds the id of an estimate, as Slurm's hooks write it, beside what the estimate predicted.

    Those whose hours are compared are kept as measurements of source slurm, each once. `traincost reconcile` calls
    sacct and sends only what is needed of it.
    """
    state, caller = request.app.state, caller_of(request)
    state.checked_questions.write()  # a job may end before the question of its check is written
    others = state.checked_questions.retry_for_replicas()
    return json_answer(reconcile(database, caller, records, view_of(request), catalogue_at(request), others))
