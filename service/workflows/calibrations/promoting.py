"""When does a calibration hold? Once it is promoted, which takes errors below those of before on what it never saw.

Which one holds for a GPU is a row of the catalogue: promoting, rolling back and retiring are changes of the catalogue
like any other, so every replica takes them over, `rev` asks for what held before, and the same rows have the same
digest again.
"""

from collections.abc import Callable
from datetime import UTC, datetime

from service import store
from service.catalogue import CalibrationRow, Catalogue
from service.errors import Conflict, NotFound, Problem
from service.estimator import FORMULAS_VERSION
from service.store import Calibration, Connection, Engine, History, Rows
from service.workflows.calibrations.fitting import constants_of
from service.workflows.calibrations.listed import find_calibration, find_own
from service.workflows.callers import Caller

Write = Callable[[Connection], None]
"""What is written beside a change of the catalogue."""


def promote(engine: Engine, history: History, caller: Caller, calibration_id: str) -> Calibration:
    """Let a calibration hold for its GPU.

    Args:
        engine: the database
        history: the catalogue over time
        caller: who does
        calibration_id: its id

    Returns:
        the calibration as it is then

    Raises:
        NotFound: the caller has no such calibration
        Conflict: it is no better than what holds, was compared with something else, is of no GPU of the catalogue, or
            what holds is another owner's
        Unreachable: the database does not answer
    """
    wanted = find_own(engine, caller, calibration_id)
    refusals = reasons_against(wanted)
    if refusals:
        raise Conflict(*refusals)

    def decide(catalogue: Catalogue) -> Rows:
        held = _held(wanted, catalogue)
        if held is not None and held.calibration.id == wanted.id:
            raise Conflict(_problem("is_promoted", f"{wanted.id} holds already", "nothing is to be done"))
        if held is not None and not caller.reaches(held.owner):
            raise Conflict(HELD_BY_ANOTHER)
        outdated = _outdated(wanted, None if held is None else held.calibration.id)
        if outdated is not None:
            raise Conflict(outdated)
        return Rows(put=(row_of(wanted),))

    def also(connection: Connection, before: Catalogue) -> None:
        held = _held(wanted, before)
        store.promoted_in(connection, wanted, datetime.now(UTC), None if held is None else held.calibration.id)

    history.change(caller.owner, decide, also)
    return find_calibration(engine, caller, calibration_id)


def roll_back(engine: Engine, history: History, caller: Caller, calibration_id: str) -> Calibration:
    """Let what held before a calibration hold again: another one, or published rates.

    Args:
        engine: the database
        history: the catalogue over time
        caller: who does
        calibration_id: id of the calibration that holds

    Returns:
        the calibration as it is then, retired

    Raises:
        NotFound: the caller has no such calibration
        Conflict: it does not hold
        Unreachable: the database does not answer
    """
    wanted = find_own(engine, caller, calibration_id)
    before = None if wanted.replaces is None else store.read_calibration(engine, wanted.replaces)
    _let_go(history, caller, wanted, before)
    return find_calibration(engine, caller, calibration_id)


def retire(engine: Engine, history: History, caller: Caller, calibration_id: str) -> Calibration:
    """Give a calibration up: a draft, or the one that holds, in whose place published rates come.

    Args:
        engine: the database
        history: the catalogue over time
        caller: who does
        calibration_id: its id

    Returns:
        the calibration as it is then

    Raises:
        NotFound: the caller has no such calibration
        Unreachable: the database does not answer
    """
    wanted = find_own(engine, caller, calibration_id)
    if wanted.status == "promoted":
        _let_go(history, caller, wanted, None)
    elif wanted.status == "draft":
        store.retire_calibration(engine, wanted.id, datetime.now(UTC))
    return find_calibration(engine, caller, calibration_id)


def reasons_against(calibration: Calibration) -> tuple[Problem, ...]:
    """Why a calibration must not hold.

    Args:
        calibration: the calibration

    Returns:
        one problem for each reason; none where it may
    """
    if calibration.gpu is None:
        message = f"no GPU of the catalogue is called {calibration.device}, so no answer could rest on it"
        fix = "create the GPU at POST /v1/gpus with a slug of the words of this name, and fit again"
        return (_problem("no_gpu", message, fix),)
    held_out, before = calibration.held_out_fraction, calibration.before_fraction
    if held_out is None or before is None:
        message = "nothing could be held out, so nobody knows whether it holds for what it was not fitted on"
        return (_problem("not_judged", message, "measure more shapes, or a second run, and fit on all of them"),)
    found = [
        _problem("worse_part", _figures(str(part["probe"]), part["held_out_fraction"], part["before_fraction"]), REFIT)
        for part in calibration.parts
        if part["held_out_fraction"] > part["before_fraction"]
    ]
    if held_out >= before:
        found.insert(0, _problem("not_better", _figures("all probes", held_out, before), REFIT))
    return tuple(found)


HELD_BY_ANOTHER = Problem(
    field="",
    code="held_by_another",
    message="a calibration of another owner holds for this GPU, and everybody's answers rest on it",
    fix="ask its owner to retire it, or an admin to promote this one",
)

REFIT = "leave these probes out, measure more shapes or another run, and fit again"


FIT_AGAIN = "fit again on the same measurements at POST /v1/calibrations, which compares with what holds now"
PUBLISHED = "what is published"


def _figures(what: str, held_out: float, before: float) -> str:
    return (
        f"{what}: predictions of what it never saw are off by {100 * held_out:.1f} %, and by {100 * before:.1f} % "
        "without it"
    )


def row_of(calibration: Calibration) -> CalibrationRow:
    """What the catalogue holds of a calibration that is promoted: the same each time.

    Args:
        calibration: the calibration, of a GPU of the catalogue

    Returns:
        the row

    Raises:
        NotFound: it is of no GPU of the catalogue
    """
    if calibration.gpu is None:
        raise NotFound("this calibration is of no GPU of the catalogue")
    return CalibrationRow(
        gpu=calibration.gpu,
        calibration=constants_of(calibration),
        source=f"{calibration.id}, fitted on {len(calibration.fitted_on)} measurements of {calibration.device}",
        as_of=calibration.created_at[:10],
        verified="yes",
        owner=calibration.owner,
    )


def _let_go(history: History, caller: Caller, wanted: Calibration, before: Calibration | None) -> None:
    """Take a calibration out of the catalogue, and put another one there, or none."""

    def decide(catalogue: Catalogue) -> Rows:
        held = _held(wanted, catalogue)
        if held is None or held.calibration.id != wanted.id:
            message = f"{wanted.id} does not hold, so there is nothing to take back"
            raise Conflict(_problem("not_promoted", message, "GET /v1/calibrations?status=promoted lists what holds"))
        return Rows(drop=(held,)) if before is None else Rows(put=(row_of(before),))

    def also(connection: Connection, _: Catalogue) -> None:
        moment = datetime.now(UTC)
        store.retired_in(connection, wanted.id, moment)
        if before is not None:
            store.promoted_in(connection, before, moment, before.replaces)

    history.change(caller.owner, decide, also)


def _outdated(wanted: Calibration, held: str | None) -> Problem | None:
    """Why what a calibration was judged by is not what holds now."""
    if wanted.formulas != FORMULAS_VERSION:
        message = f"it was fitted with formulas {wanted.formulas}, and {FORMULAS_VERSION} answer now"
        return _problem("other_formulas", message, FIT_AGAIN)
    if wanted.replaces != held:
        message = f"it was compared with {wanted.replaces or PUBLISHED}, and {held or PUBLISHED} holds now"
        return _problem("other_before", message, FIT_AGAIN)
    return None


def _held(calibration: Calibration, catalogue: Catalogue) -> CalibrationRow | None:
    return None if calibration.gpu is None else catalogue.calibrations.get(calibration.gpu)


def _problem(code: str, message: str, fix: str) -> Problem:
    return Problem(field="", code=code, message=message, fix=fix)
