"""What did schedulers ask? The question of each check, by the id of its estimate, with the versions of its answer."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Engine, delete, select

from service.store.engine import answering, insert_new, reading, writing
from service.store.kept_answers import forget_owners_in, is_owned, keep_owners_in
from service.store.scenario_tables import CHECKED_QUESTIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedQuestion:
    """A question whose answer can be worked out again, the same under the same versions."""

    estimate_id: str
    """What its answer is read by."""
    question: Mapping[str, Any]
    """A request body of POST /v1/estimates."""
    formulas: str
    """Version of the formulas that answered."""
    catalogue: str
    """Digest of the facts that it was answered from."""


def keep_checked_questions(engine: Engine, asked: Iterable[tuple[CheckedQuestion, str]]) -> None:
    """Keep questions, each for an owner; one whose id is kept already stays as it is, and is that owner's too.

    Args:
        engine: the database
        asked: the questions with their owners

    Raises:
        Unreachable: the database does not answer
    """
    now, pairs = datetime.now(UTC), list(asked)
    rows = [{**asdict(one), "asked_at": now} for one in {one.estimate_id: one for one, _ in pairs}.values()]
    with answering(), writing(engine) as connection:
        connection.execute(insert_new(connection, CHECKED_QUESTIONS), rows)
        keep_owners_in(connection, [(one.estimate_id, owner) for one, owner in pairs])


def forget_checked_questions(engine: Engine, before: datetime) -> None:
    """Remove questions that were asked before a moment.

    Args:
        engine: the database
        before: the moment

    Raises:
        Unreachable: the database does not answer
    """
    with answering(), writing(engine) as connection:
        connection.execute(delete(CHECKED_QUESTIONS).where(CHECKED_QUESTIONS.c.asked_at < before))
        forget_owners_in(connection)


def nobody_writes() -> bool:
    """What to wait with where no other process is about to write a question.

    Returns:
        false, at once
    """
    return False


def read_checked_question(
    engine: Engine, estimate_id: str, whose: str | None = None, look_again: Callable[[], bool] = nobody_writes
) -> CheckedQuestion | None:
    """The question of a check.

    Args:
        engine: the database
        estimate_id: id of its estimate
        whose: owner who has to have asked it; None for whoever did
        look_again: waits where it is not there and somebody may be about to write it; false where nobody is

    Returns:
        the question; None where the owner has no check of this id

    Raises:
        Unreachable: the database does not answer
    """
    columns = [CHECKED_QUESTIONS.c[name] for name in CheckedQuestion.__dataclass_fields__]
    owned = is_owned(CHECKED_QUESTIONS.c.estimate_id, whose)
    query = select(*columns).where(CHECKED_QUESTIONS.c.estimate_id == estimate_id, owned)
    while True:
        with answering(), reading(engine) as connection:
            row = connection.execute(query).mappings().one_or_none()
        if row is not None or not look_again():
            return None if row is None else CheckedQuestion(**row)
