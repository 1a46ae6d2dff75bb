"""Who takes measurements out of what calibrations are fitted on, and back in? Somebody who says why."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar

from annotated_types import Len

from service import store
from service.errors import Problem, Refused
from service.estimator.noun import STRICT, Name
from service.store import Engine
from service.workflows.callers import Caller
from service.workflows.listed import Record, as_record
from service.workflows.measurements.listed import COLUMNS, row_of
from service.workflows.nouns import read_noun
from service.workflows.plain_text import plain

MOST_IDS = 1_000
"""Measurements of one request. Source: a choice; one answer lists no more rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """Measurements by their ids."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    ids: Annotated[tuple[Name, ...], Len(1, MOST_IDS)]
    """Their ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """Measurements that are not to be trusted, and why."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    ids: Annotated[tuple[Name, ...], Len(1, MOST_IDS)]
    """Their ids."""
    reason: Annotated[str, Len(1, 500)]
    """Why nothing should be fitted on them."""


def quarantine(engine: Engine, caller: Caller, body: Mapping[str, Any]) -> Record:
    """Take measurements out of what calibrations are fitted on.

    Args:
        engine: the database
        caller: whose they are
        body: their ids, and the reason

    Returns:
        the measurements as they are then, as the list shows them

    Raises:
        Refused: a wrong body, or an id of no measurement of the caller's; then nothing is changed
        Unreachable: the database does not answer
    """
    doubt = read_noun(Doubt, plain(body), "")
    return _changed(engine, caller, doubt.ids, doubt.reason)


def release(engine: Engine, caller: Caller, body: Mapping[str, Any]) -> Record:
    """Let measurements count again.

    Args:
        engine: the database
        caller: whose they are
        body: their ids

    Returns:
        the measurements as they are then, as the list shows them

    Raises:
        Refused: a wrong body, or an id of no measurement of the caller's; then nothing is changed
        Unreachable: the database does not answer
    """
    return _changed(engine, caller, read_noun(Named, body, "").ids, None)


def _changed(engine: Engine, caller: Caller, ids: tuple[str, ...], reason: str | None) -> Record:
    known = {row.id for row in store.read_measurements(engine, ids, caller.whose)}
    missing = len(set(ids) - known)
    if missing:
        message = f"{missing} of the {len(set(ids))} ids are those of no measurement, so nothing was changed"
        fix = "take ids from GET /v1/measurements"
        raise Refused(Problem(field="ids", code="not_found", message=message, fix=fix))
    store.quarantine_measurements(engine, ids, None if reason is None else datetime.now(UTC), reason)
    rows = sorted(store.read_measurements(engine, ids), key=lambda row: row.id)
    return {"items": [as_record(COLUMNS, row_of(row)) for row in rows]}
