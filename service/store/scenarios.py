"""Scenarios with their revisions, stored answers, and questions of checks."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Any, NamedTuple

import sqlalchemy as sa

from service.errors import Stale
from service.estimator.answer import Verdict
from service.estimator.software.precision import SHORT_NAMES_SINCE, in_present_names
from service.estimator.software.versions import at_least
from service.store.engine import RowPart, answering, insert_new, insert_or, part_of, reading, row_as, values_of, writing
from service.store.requests import log_change_in
from service.store.tables import CHECKED_QUESTIONS, ESTIMATE_OWNERS, ESTIMATES, SCENARIO_REVISIONS, SCENARIOS


def store_answer_in(connection: sa.Connection, estimate_id: str, answer: bytes, owner: str) -> None:
    """Store an answer for an owner, in the caller's transaction; storing it again resets its age."""
    stored = {"id": estimate_id, "answer": answer, "stored_at": datetime.now(UTC)}
    adding = insert_or(connection, ESTIMATES)
    younger = adding.on_conflict_do_update(index_elements=["id"], set_={"stored_at": adding.excluded.stored_at})
    connection.execute(younger, stored)
    store_owners_in(connection, [(estimate_id, owner)])


def store_owners_in(connection: sa.Connection, owned: Iterable[tuple[str, str]]) -> None:
    """Record the owners of answers, by their ids, in the caller's transaction."""
    rows = [{"estimate_id": estimate_id, "owner": owner} for estimate_id, owner in sorted(set(owned))]
    connection.execute(insert_new(connection, ESTIMATE_OWNERS), rows)


def is_owned(estimate_id: sa.ColumnElement[str], owner: str | None) -> sa.ColumnElement[bool]:
    """Whether an answer belongs to an owner; None for any owner."""
    if owner is None:
        return sa.true()
    return sa.exists().where(ESTIMATE_OWNERS.c.estimate_id == estimate_id, ESTIMATE_OWNERS.c.owner == owner)


Question = Mapping[str, Any]

_HEAD = frozenset(("id", "owner", "created_at"))
"""Fields of a scenario that do not differ between revisions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A saved question's name and answered numbers, without the question itself."""

    id: str
    """Id: scn_ and 128 random bits; it cannot be guessed, but the list shows it."""
    name: str
    """Name that the team uses."""
    note: str
    """A note; empty where none was written."""
    owner: str
    """Owner."""
    revision: int
    """Revision: 1 at first, one more with every change."""
    gpu: str
    """Catalogue name of the GPU."""
    gpus: int
    """GPUs in all."""
    verdict: Verdict
    """Whether the job fits into memory."""
    device_peak_bytes: float
    """Most memory in use on the fullest GPU."""
    usable_bytes: float
    """Memory a job can use on this GPU."""
    step_seconds: float
    """Seconds of one optimizer step."""
    gpu_hours: float | None
    """GPU-hours of the whole run; null without training_tokens."""
    cost_usd: float | None
    """Cost of the whole run; null without training_tokens or a price."""
    estimate_id: str
    """Id of the whole answer."""
    formulas: str
    """Version of the formulas that answered."""
    catalogue: str
    """Digest of the catalogue that it was answered from."""
    calibration: str | None
    """Calibration that corrected the predictions; null where none did."""
    created_at: str
    """When it was made, in UTC."""
    changed_at: str
    """When this revision was made, in UTC."""


class SavedQuestion(NamedTuple):
    scenario: Scenario
    question: Question


def read_scenarios(engine: sa.Engine, owner: str | None = None, part: RowPart | None = None) -> list[Scenario]:
    """Scenarios, in their newest revision."""
    newest = _selected().where(SCENARIOS.c.revision == SCENARIO_REVISIONS.c.revision)
    query = newest if owner is None else newest.where(SCENARIOS.c.owner == owner)
    query = part_of(query, engine, part, SCENARIOS.c.id, SCENARIOS.c.created_at)
    with answering(), reading(engine) as connection:
        return [row_as(Scenario, row) for row in connection.execute(query).mappings()]


def read_scenario(engine: sa.Engine, scenario_id: str, revision: int | None = None) -> SavedQuestion | None:
    number = SCENARIOS.c.revision if revision is None else revision
    query = _selected(SCENARIO_REVISIONS.c.question)
    query = query.where(SCENARIOS.c.id == scenario_id, SCENARIO_REVISIONS.c.revision == number)
    with answering(), reading(engine) as connection:
        row = connection.execute(query).mappings().one_or_none()
    return (
        None
        if row is None
        else SavedQuestion(row_as(Scenario, row), _in_present_names(row["question"], row["formulas"]))
    )


def _in_present_names(question: Question, formulas: str) -> Question:
    if at_least(formulas, SHORT_NAMES_SINCE) or "recipe" not in question:
        return question
    return {**question, "recipe": in_present_names(question["recipe"])}


def create_scenario(engine: sa.Engine, saved: SavedQuestion, answer: bytes) -> None:
    with answering(), writing(engine) as connection:
        connection.execute(sa.insert(SCENARIOS), values_of(SCENARIOS, saved.scenario))
        _add_revision(connection, saved, answer)
        log_change_in(connection, saved.scenario.id)


def change_scenario(engine: sa.Engine, saved: SavedQuestion, answer: bytes | None) -> None:
    """Store a new revision of a scenario."""
    revision = saved.scenario.revision
    starts_from = SCENARIOS.c.id == saved.scenario.id, SCENARIOS.c.revision == revision - 1
    with answering(), writing(engine) as connection:
        changed = connection.execute(sa.update(SCENARIOS).where(*starts_from).values(revision=revision))
        _refuse_unless_one(changed.rowcount)
        _add_revision(connection, saved, answer)
        log_change_in(connection, saved.scenario.id)


def delete_scenario(engine: sa.Engine, scenario_id: str, revision: int) -> None:
    """Remove a scenario and all of its revisions; the stored answers stay."""
    with answering(), writing(engine) as connection:
        gone = connection.execute(
            sa.delete(SCENARIOS).where(SCENARIOS.c.id == scenario_id, SCENARIOS.c.revision == revision)
        )
        _refuse_unless_one(gone.rowcount)
        log_change_in(connection, scenario_id)


def read_answer(engine: sa.Engine, estimate_id: str, owner: str | None = None) -> bytes | None:
    with answering(), reading(engine) as connection:
        answer: bytes | None = connection.execute(
            sa.select(ESTIMATES.c.answer).where(ESTIMATES.c.id == estimate_id, is_owned(ESTIMATES.c.id, owner))
        ).scalar_one_or_none()
    return answer


def _add_revision(connection: sa.Connection, saved: SavedQuestion, answer: bytes | None) -> None:
    scenario, question = saved
    if answer is not None:
        store_answer_in(connection, scenario.estimate_id, answer, scenario.owner)
    connection.execute(sa.insert(SCENARIO_REVISIONS), {**values_of(SCENARIO_REVISIONS, scenario), "question": question})


def _refuse_unless_one(rows: int) -> None:
    if rows != 1:
        raise Stale("the scenario was changed or deleted since it was read")


def _selected(*more: Any) -> sa.Select[Any]:
    """A scenario and its revision, as columns named like its fields."""
    columns = [(SCENARIOS if field.name in _HEAD else SCENARIO_REVISIONS).c[field.name] for field in fields(Scenario)]
    return sa.select(*columns, *more).join_from(
        SCENARIOS, SCENARIO_REVISIONS, SCENARIOS.c.id == SCENARIO_REVISIONS.c.id
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedQuestion:
    """A question whose answer can be computed again with the same versions."""

    estimate_id: str
    question: Mapping[str, Any]
    """A request body of POST /v1/estimates."""
    formulas: str
    catalogue: str


def store_checked_questions(engine: sa.Engine, questions: Iterable[tuple[CheckedQuestion, str]]) -> None:
    """Store questions, each for an owner; an existing one gains the owner."""
    now, pairs = datetime.now(UTC), list(questions)
    unique = {question.estimate_id: question for question, _ in pairs}
    rows = [{**asdict(question), "asked_at": now} for question in unique.values()]
    with answering(), writing(engine) as connection:
        connection.execute(insert_new(connection, CHECKED_QUESTIONS), rows)
        store_owners_in(connection, [(question.estimate_id, owner) for question, owner in pairs])


def remove_checked_questions(engine: sa.Engine, before: datetime) -> None:
    """Remove questions from before a moment, and owners of answers and questions that are gone."""
    with answering(), writing(engine) as connection:
        connection.execute(sa.delete(CHECKED_QUESTIONS).where(CHECKED_QUESTIONS.c.asked_at < before))
        stored_ids = (ESTIMATES.c.id, CHECKED_QUESTIONS.c.estimate_id)
        is_gone = [~sa.exists().where(estimate_id == ESTIMATE_OWNERS.c.estimate_id) for estimate_id in stored_ids]
        connection.execute(sa.delete(ESTIMATE_OWNERS).where(*is_gone))


def no_pending_writes() -> bool:
    """The default of `should_retry`: no other process is about to write the question."""
    return False


def read_checked_question(
    engine: sa.Engine, estimate_id: str, owner: str | None = None, should_retry: Callable[[], bool] = no_pending_writes
) -> CheckedQuestion | None:
    columns = [CHECKED_QUESTIONS.c[name] for name in CheckedQuestion.__dataclass_fields__]
    owned = is_owned(CHECKED_QUESTIONS.c.estimate_id, owner)
    query = sa.select(*columns).where(CHECKED_QUESTIONS.c.estimate_id == estimate_id, owned)
    while True:
        with answering(), reading(engine) as connection:
            row = connection.execute(query).mappings().one_or_none()
        if row is not None or not should_retry():
            return None if row is None else CheckedQuestion(**row)
