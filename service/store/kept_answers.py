"""Stored answers, byte for byte under their ids, and the owners who may read them.

An id is a hash of the question and the versions of its answer, so several owners may have the same one.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

from sqlalchemy import ColumnElement, Connection, delete, exists, true

from service.store.engine import insert_new, insert_or
from service.store.scenario_tables import CHECKED_QUESTIONS, ESTIMATE_OWNERS, ESTIMATES


def keep_answer_in(connection: Connection, estimate_id: str, answer: bytes, owner: str) -> None:
    """Keep an answer for an owner, in a writing transaction; stored again, it is as young as if it were new."""
    stored = {"id": estimate_id, "answer": answer, "stored_at": datetime.now(UTC)}
    adding = insert_or(connection, ESTIMATES)
    younger = adding.on_conflict_do_update(index_elements=["id"], set_={"stored_at": adding.excluded.stored_at})
    connection.execute(younger, stored)
    keep_owners_in(connection, [(estimate_id, owner)])


def keep_owners_in(connection: Connection, owned: Iterable[tuple[str, str]]) -> None:
    """Note whose answers are, by their ids, in a writing transaction."""
    rows = [{"estimate_id": estimate_id, "owner": owner} for estimate_id, owner in sorted(set(owned))]
    connection.execute(insert_new(connection, ESTIMATE_OWNERS), rows)


def is_owned(estimate_id: ColumnElement[str], whose: str | None) -> ColumnElement[bool]:
    """Whether an answer is an owner's; None for whoever it belongs to."""
    if whose is None:
        return true()
    return exists().where(ESTIMATE_OWNERS.c.estimate_id == estimate_id, ESTIMATE_OWNERS.c.owner == whose)


def forget_owners_in(connection: Connection) -> None:
    """Remove the owners of answers and questions that are not kept any more."""
    held = (ESTIMATES.c.id, CHECKED_QUESTIONS.c.estimate_id)
    gone = [~exists().where(estimate_id == ESTIMATE_OWNERS.c.estimate_id) for estimate_id in held]
    connection.execute(delete(ESTIMATE_OWNERS).where(*gone))
