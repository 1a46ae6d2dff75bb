"""What did teams ask, under which name, and what was answered? Scenarios with their revisions, and stored answers.

A change names the revision that it starts from; of two that start from the same one, the second is refused.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, Select, delete, insert, select, update

from service.errors import Stale
from service.estimator.answer import Verdict
from service.store.audit import note_in
from service.store.engine import answering, reading, writing
from service.store.kept_answers import is_owned, keep_answer_in
from service.store.row_parts import RowPart, part_of
from service.store.scenario_tables import ESTIMATES, SCENARIO_REVISIONS, SCENARIOS

Question = Mapping[str, Any]
"""A request body of POST /v1/estimates, as it was sent."""

_HEAD = frozenset(("id", "owner", "revision", "created_at"))
"""Fields of a scenario that stand in its own table; the others may differ from revision to revision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A saved question with what was answered, but without the question itself."""

    id: str
    """What it is read by: scn_ and 128 random bits, so that nobody guesses it; the list tells it, though."""
    name: str
    """What the team calls it."""
    note: str
    """What to know about it; empty where nobody wrote anything."""
    owner: str
    """Whose it is."""
    revision: int
    """How often it was written: 1 when it was made, one more with every change."""
    gpu: str
    """Catalogue name of the GPU."""
    gpus: int
    """GPUs in all."""
    verdict: Verdict
    """Does it fit?"""
    device_peak_bytes: float
    """Most memory in use on the fullest GPU."""
    usable_bytes: float
    """Memory a job can use on this GPU."""
    step_seconds: float
    """One optimizer step."""
    gpu_hours: float | None
    """The whole run; null without training_tokens."""
    cost_usd: float | None
    """The whole run; null without training_tokens or a price."""
    estimate_id: str
    """What the whole answer is read by."""
    formulas: str
    """Version of the formulas that answered."""
    catalogue: str
    """Digest of the facts that it was answered from."""
    calibration: str | None
    """Calibration that corrected the predictions; null where none did."""
    created_at: str
    """When it was made, in UTC."""
    changed_at: str
    """When this revision was made, in UTC."""


class Saved(NamedTuple):
    """A scenario together with what it asks."""

    scenario: Scenario
    question: Question


def read_scenarios(engine: Engine, owner: str | None = None, part: RowPart | None = None) -> list[Scenario]:
    """Scenarios, in their newest revision.

    Args:
        engine: the database
        owner: whose; None for everybody's
        part: which of them, and in which order; None for all, in none

    Returns:
        the scenarios
    """
    newest = _selected().where(SCENARIOS.c.revision == SCENARIO_REVISIONS.c.revision)
    query = newest if owner is None else newest.where(SCENARIOS.c.owner == owner)
    query = part_of(query, engine, part, SCENARIOS.c.id, SCENARIOS.c.created_at)
    with answering(), reading(engine) as connection:
        return [_scenario(row) for row in connection.execute(query).mappings()]


def read_scenario(engine: Engine, scenario_id: str, revision: int | None = None) -> Saved | None:
    """One scenario with its question.

    Args:
        engine: the database
        scenario_id: its id
        revision: which of its revisions; None for the newest

    Returns:
        the scenario and its question; None where there is no such scenario or revision
    """
    wanted = SCENARIOS.c.revision if revision is None else revision
    query = _selected(SCENARIO_REVISIONS.c.question)
    query = query.where(SCENARIOS.c.id == scenario_id, SCENARIO_REVISIONS.c.revision == wanted)
    with answering(), reading(engine) as connection:
        row = connection.execute(query).mappings().one_or_none()
    return None if row is None else Saved(_scenario(row), row["question"])


def create_scenario(engine: Engine, saved: Saved, answer: bytes) -> None:
    """Keep a new scenario and its answer.

    Args:
        engine: the database
        saved: the scenario, at revision 1, and its question
        answer: what was answered, as it is sent
    """
    head = {name: value for name, value in _record(saved.scenario).items() if name in _HEAD}
    with answering(), writing(engine) as connection:
        connection.execute(insert(SCENARIOS), head)
        _add_revision(connection, saved, answer)
        note_in(connection, saved.scenario.id)


def change_scenario(engine: Engine, saved: Saved, answer: bytes | None) -> None:
    """Keep a new revision of a scenario.

    Args:
        engine: the database
        saved: the scenario, its revision one more than that of the one it starts from, and its question
        answer: what was answered, as it is sent; None where that is stored already

    Raises:
        Stale: it was changed or deleted since
        Unreachable: the database does not answer
    """
    revision = saved.scenario.revision
    starts_from = SCENARIOS.c.id == saved.scenario.id, SCENARIOS.c.revision == revision - 1
    with answering(), writing(engine) as connection:
        changed = connection.execute(update(SCENARIOS).where(*starts_from).values(revision=revision))
        _refuse_unless_one(changed.rowcount)
        _add_revision(connection, saved, answer)
        note_in(connection, saved.scenario.id)


def delete_scenario(engine: Engine, scenario_id: str, revision: int) -> None:
    """Remove a scenario and all of its revisions; the stored answers stay.

    Args:
        engine: the database
        scenario_id: its id
        revision: number of its newest revision

    Raises:
        Stale: it was changed or deleted since
        Unreachable: the database does not answer
    """
    with answering(), writing(engine) as connection:
        gone = connection.execute(
            delete(SCENARIOS).where(SCENARIOS.c.id == scenario_id, SCENARIOS.c.revision == revision)
        )
        _refuse_unless_one(gone.rowcount)
        note_in(connection, scenario_id)


def read_answer(engine: Engine, estimate_id: str, whose: str | None = None) -> bytes | None:
    """A stored answer.

    Args:
        engine: the database
        estimate_id: what it is read by
        whose: owner who has to have it; None for whoever has

    Returns:
        the answer byte for byte as it was first given; None where the owner has none of this id
    """
    with answering(), reading(engine) as connection:
        answer: bytes | None = connection.execute(
            select(ESTIMATES.c.answer).where(ESTIMATES.c.id == estimate_id, is_owned(ESTIMATES.c.id, whose))
        ).scalar_one_or_none()
    return answer


def _add_revision(connection: Connection, saved: Saved, answer: bytes | None) -> None:
    scenario, question = saved
    if answer is not None:
        keep_answer_in(connection, scenario.estimate_id, answer, scenario.owner)
    record = _record(scenario)
    said = {column.name: record[column.name] for column in SCENARIO_REVISIONS.c if column.name in record}
    connection.execute(insert(SCENARIO_REVISIONS), {**said, "question": question})


def _refuse_unless_one(rows: int) -> None:
    if rows != 1:
        raise Stale("the scenario was changed or deleted since it was read")


def _selected(*more: Any) -> Select[Any]:
    """Both halves of a scenario, as columns named like its fields."""
    tables = {name: SCENARIOS if name in _HEAD - {"revision"} else SCENARIO_REVISIONS for name in _NAMES}
    columns = [table.c[name] for name, table in tables.items()]
    return select(*columns, *more).join_from(SCENARIOS, SCENARIO_REVISIONS, SCENARIOS.c.id == SCENARIO_REVISIONS.c.id)


def _record(scenario: Scenario) -> dict[str, Any]:
    record = asdict(scenario)
    return {**record, **{name: datetime.fromisoformat(record[name]) for name in _DATES}}


def _scenario(row: Mapping[Any, Any]) -> Scenario:
    values = {name: row[name] for name in _NAMES}
    return Scenario(**{**values, **{name: utc_text(values[name]) for name in _DATES}})


def utc_text(moment: datetime) -> str:
    """A moment as text, to the second.

    Args:
        moment: a date and time; in UTC where it does not say, for SQLite does not

    Returns:
        its RFC 3339 text

    >>> utc_text(datetime(2026, 11, 21, 16, 30))
    '2026-11-21T16:30:00Z'
    """
    known = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return known.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_NAMES = tuple(field.name for field in fields(Scenario))
_DATES = ("created_at", "changed_at")
