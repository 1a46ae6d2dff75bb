"""Stored answers by id: of scenarios byte for byte, of checks recomputed."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from service.catalogue import Catalogue
from service.errors import NotFound
from service.estimator import FORMULAS_VERSION
from service.features.estimates.answers import answer
from service.store import Engine
from service.store.scenarios import (
    CheckedQuestion,
    no_pending_writes,
    read_answer,
    read_checked_question,
    read_scenario,
)
from service.validation.question_parts import PARTS
from service.validation.questions import read_question
from service.validation.reading import to_bytes

ESTIMATE_ID = re.compile(r"est_[0-9a-f]{32}")
"""Pattern of ids; any other id is not found without a query."""

SCENARIO_ID = re.compile(r"scn_[A-Za-z0-9_-]{22}")
"""Pattern of the ids of scenarios, likewise."""

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


def question_of(stored: bytes) -> Mapping[str, Any]:
    """Question of a stored answer with every default filled."""
    resolved = json.loads(stored)["resolved"]
    return {name: value for name, value in resolved.items() if name in PARTS and value is not None}


def stored_question(
    engine: Engine,
    owner: str | None,
    stored_id: str,
    catalogue_at: Callable[[str], Catalogue],
    should_retry: Callable[[], bool] = no_pending_writes,
) -> Mapping[str, Any]:
    """Question of a scenario as it was sent, or of a stored answer with every default filled."""
    if not SCENARIO_ID.fullmatch(stored_id):
        return question_of(stored_answer(engine, owner, stored_id, catalogue_at, should_retry=should_retry))
    found = read_scenario(engine, stored_id)
    if found is None or owner not in (None, found.scenario.owner):
        raise NotFound("there is no scenario of this id; GET /v1/scenarios lists the ids")
    return found.question


def _recomputed(checked: CheckedQuestion, catalogue_at: Callable[[str], Catalogue]) -> bytes:
    if checked.formulas != FORMULAS_VERSION:
        raise NotFound(
            f"this check was answered under the formulas {checked.formulas}, and this release holds "
            f"{FORMULAS_VERSION}; ask its question again"
        )
    catalogue = catalogue_at(checked.catalogue)
    return to_bytes(answer(read_question(checked.question, catalogue), catalogue))
