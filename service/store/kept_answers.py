"""Which answer was given? Stored byte for byte under its id; what is stored again is as young as if it were new."""

from datetime import UTC, datetime

from sqlalchemy import Connection

from service.store.engine import insert_or
from service.store.scenario_tables import ESTIMATES


def keep_answer_in(connection: Connection, estimate_id: str, answer: bytes) -> None:
    """Keep an answer, in somebody's transaction; until that ends nobody removes it for its age.

    Args:
        connection: the database, inside a writing transaction
        estimate_id: id of the estimate
        answer: what was answered, as it is sent
    """
    stored = {"id": estimate_id, "answer": answer, "stored_at": datetime.now(UTC)}
    adding = insert_or(connection, ESTIMATES)
    younger = adding.on_conflict_do_update(index_elements=["id"], set_={"stored_at": adding.excluded.stored_at})
    connection.execute(younger, stored)
