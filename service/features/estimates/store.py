"""Stored answers by id: of scenarios byte for byte, of checks recomputed."""

import re
from collections.abc import Callable

from service.catalogue import Catalogue
from service.errors import NotFound
from service.estimator import FORMULAS_VERSION
from service.features.estimates.answers import answer
from service.store import Engine
from service.store.scenarios import CheckedQuestion, no_pending_writes, read_answer, read_checked_question
from service.validation.questions import read_question
from service.validation.reading import to_bytes

ESTIMATE_ID = re.compile(r"est_[0-9a-f]{32}")
"""Pattern of ids; any other id is not found without a query."""

NOT_STORED = (
    "no stored answer has this id; asking alone stores nothing, so only answers of scenarios and of checks can be read "
    "again: POST /v1/scenarios with a name and the question"
)


def stored_answer(
    engine: Engine,
    owner: str | None,
    estimate_id: str,
    catalogue_at: Callable[[str], Catalogue],
    waiting: Callable[[str], CheckedQuestion | None] = lambda _: None,
    should_retry: Callable[[], bool] = no_pending_writes,
) -> bytes:
    known = ESTIMATE_ID.fullmatch(estimate_id) is not None
    if known and (found := read_answer(engine, estimate_id, owner)) is not None:
        return found
    checked = waiting(estimate_id) or (
        read_checked_question(engine, estimate_id, owner, should_retry) if known else None
    )
    if checked is None:
        raise NotFound(NOT_STORED)
    return _recomputed(checked, catalogue_at)


def _recomputed(checked: CheckedQuestion, catalogue_at: Callable[[str], Catalogue]) -> bytes:
    if checked.formulas != FORMULAS_VERSION:
        raise NotFound(
            f"this check was answered under the formulas {checked.formulas}, and this release holds "
            f"{FORMULAS_VERSION}; ask its question again"
        )
    catalogue = catalogue_at(checked.catalogue)
    return to_bytes(answer(read_question(checked.question, catalogue), catalogue))
