"""What was predicted of a job, by the id of its estimate?"""

import json
from collections.abc import Callable
from dataclasses import dataclass

from service import store
from service.answers.estimates import Answer
from service.catalogue import Catalogue
from service.errors import Refused, UnknownRevision
from service.estimator import FORMULAS_VERSION
from service.estimator.interval import Interval
from service.estimator.memory_parts import Verdict
from service.store import CheckedQuestion, Engine
from service.workflows.estimates import answer
from service.workflows.questions import read_question
from service.workflows.stored_answers import ESTIMATE_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What an estimate said of a job."""

    gpu_hours: Interval | None
    """The whole run; None where its length was not said."""
    verdict: Verdict
    """Whether it fits."""
    gpus: int
    """GPUs that it was asked for."""
    gpu: str
    """Their model, by its slug."""
    host_bytes: float
    """Memory of its node that a rank takes."""
    formulas: str
    """Version of the formulas."""
    calibration: str | None
    """Calibration that predicted; None where none did."""
    is_asked_again: bool
    """Whether it is one of today, because formulas or facts of its time are not held any more."""


def predicted(
    engine: Engine,
    whose: str | None,
    estimate_id: str,
    now: Catalogue,
    catalogue_at: Callable[[str], Catalogue],
    look_again: Callable[[], bool],
) -> Prediction | None:
    """What an estimate said.

    Args:
        engine: the database
        whose: owner who has to have asked; None for whoever did
        estimate_id: id of the estimate
        now: the facts of today
        catalogue_at: the facts of a revision
        look_again: waits for what others are about to write; false where nobody is

    Returns:
        the prediction; None where no question of this id is kept, or it is refused today

    Raises:
        Unreachable: the database does not answer
    """
    if ESTIMATE_ID.fullmatch(estimate_id) is None:
        return None
    kept = store.read_answer(engine, estimate_id, whose)
    if kept is not None:
        return _of_document(kept)
    checked = store.read_checked_question(engine, estimate_id, whose, look_again)
    return None if checked is None else _worked_out(checked, now, catalogue_at)


def _of_document(kept: bytes) -> Prediction:
    """The prediction of an answer that a scenario holds."""
    said = json.loads(kept)
    hours = None if said["totals"] is None else Interval(**said["totals"]["gpu_hours"])
    return Prediction(
        gpu_hours=hours,
        verdict=said["verdict"],
        gpus=said["resolved"]["cluster"]["gpus"],
        gpu=said["resolved"]["gpu"]["slug"],
        host_bytes=said["memory"]["host_bytes"],
        formulas=said["versions"]["formulas"],
        calibration=said["versions"]["calibration"],
        is_asked_again=False,
    )


def _worked_out(
    checked: CheckedQuestion, now: Catalogue, catalogue_at: Callable[[str], Catalogue]
) -> Prediction | None:
    try:
        catalogue, is_of_then = catalogue_at(checked.catalogue), checked.formulas == FORMULAS_VERSION
    except UnknownRevision:
        catalogue, is_of_then = now, False
    try:
        found = answer(read_question(checked.question, catalogue), catalogue, advise=False)
    except Refused:
        return None
    return _of_answer(found, is_asked_again=not is_of_then)


def _of_answer(found: Answer, *, is_asked_again: bool) -> Prediction:
    return Prediction(
        gpu_hours=None if found.totals is None else found.totals.gpu_hours,
        verdict=found.verdict,
        gpus=found.resolved.cluster.gpus,
        gpu=found.resolved.gpu.slug,
        host_bytes=found.memory.host_bytes,
        formulas=found.versions.formulas,
        calibration=found.versions.calibration,
        is_asked_again=is_asked_again,
    )
