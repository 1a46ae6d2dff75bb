"""Promotion of calibrations: a calibration takes effect once its held-out errors are below those of the one before.

It holds for its owner alone, or for everyone where an admin says so. Which one holds for a GPU is a row of the
catalogue: promoting, rolling back and retiring are changes of the catalogue like any other, so every replica takes them
over, `rev` asks for what held before, and the same rows have the same digest again.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from service import store
from service.catalogue import EVERYONE, CalibrationRow, Holdings, Row
from service.catalogue.provenance import Scope
from service.errors import Conflict, ForAdmins, NotFound, Problem
from service.estimator import FORMULAS_VERSION
from service.features.calibrations.fitting import constants_of
from service.features.calibrations.lists import find_calibration, find_own
from service.store import Calibration, Connection, Engine, History, Rows
from service.store.keys import Caller

MOST_HELD_OUT_FRACTION = 0.5
"""Mean error on what had no part in the fit above which nothing is promoted, of all probes and of each. Source: a
choice; on a device that is as its data sheet says, published rates alone are off by less, and the worst published GPU
of a fitted kind is 1.3 times as slow as they have it."""

Write = Callable[[Connection], None]
"""What is written beside a change of the catalogue."""


def promote(
    engine: Engine, history: History, caller: Caller, calibration_id: str, scope: Scope = "owner"
) -> Calibration:
    """Let a calibration hold for its GPU, for its owner or for everyone."""
    wanted = find_own(engine, caller, calibration_id)
    if scope == "everyone" and not caller.sees_all:
        raise ForAdmins(FOR_EVERYONE)
    refusals = reasons_against(wanted)
    if refusals:
        raise Conflict(*refusals)
    row = replace(row_of(wanted), scope=scope)

    def decide(holdings: Holdings) -> Rows:
        held = _held(wanted, scope, holdings)
        if held is not None and held.calibration.id == wanted.id and scope == held.holds_for:
            raise Conflict(_problem("is_promoted", f"{wanted.id} holds already", "nothing is to be done"))
        outdated = _outdated(wanted, None if held is None else held.calibration.id)
        if outdated is not None:
            raise Conflict(outdated)
        return Rows(put=(row,), drop=_elsewhere(wanted, scope, holdings))

    def also(connection: Connection, before: Holdings) -> None:
        held = holdings_row(wanted, scope, before)
        replaced = None if held is None else held.calibration.id
        store.promoted_in(connection, wanted, datetime.now(UTC), scope, retires=replaced)

    history.change(caller.owner, decide, also)
    return find_calibration(engine, caller, calibration_id)


def roll_back(engine: Engine, history: History, caller: Caller, calibration_id: str) -> Calibration:
    """Let what held before a calibration hold again: another one, or published rates."""
    wanted = find_own(engine, caller, calibration_id)
    before = None if wanted.replaces is None else store.read_calibration(engine, wanted.replaces)
    _let_go(history, caller, wanted, before if before is not None and _may_hold_again(before, wanted) else None)
    return find_calibration(engine, caller, calibration_id)


def retire(engine: Engine, history: History, caller: Caller, calibration_id: str) -> Calibration:
    """Give a calibration up: a draft, or the one that holds, in whose place what everyone sees comes."""
    wanted = find_own(engine, caller, calibration_id)
    if wanted.status == "promoted":
        _let_go(history, caller, wanted, None)
    elif wanted.status == "draft":
        store.retire_calibration(engine, wanted.id, datetime.now(UTC))
    return find_calibration(engine, caller, calibration_id)


def reasons_against(calibration: Calibration) -> tuple[Problem, ...]:
    """Why a calibration must not hold."""
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
    found += [
        _problem("too_far_off", _too_far(str(part["probe"]), part["held_out_fraction"]), REFIT)
        for part in calibration.parts
        if not part["held_out_fraction"] <= MOST_HELD_OUT_FRACTION
    ]
    if not held_out <= MOST_HELD_OUT_FRACTION:
        found.insert(0, _problem("too_far_off", _too_far("all probes", held_out), REFIT))
    if held_out >= before:
        found.insert(0, _problem("not_better", _figures("all probes", held_out, before), REFIT))
    return tuple(found)


FOR_EVERYONE = Problem(
    field="scope",
    code="admins_only",
    message="a calibration for everyone changes every caller's answers, so only an admin may promote or take back one",
    fix="promote it for its owner alone, or ask an admin",
)

REFIT = "leave these probes out, measure more shapes or another run, and fit again"


FIT_AGAIN = "fit again on the same measurements at POST /v1/calibrations, which compares with what holds now"
PUBLISHED = "what is published"


def _figures(what: str, held_out: float, before: float) -> str:
    return (
        f"{what}: predictions of what it never saw are off by {100 * held_out:.1f} %, and by {100 * before:.1f} % "
        "without it"
    )


def _too_far(what: str, held_out: float) -> str:
    return (
        f"{what}: predictions of what it never saw are off by {100 * held_out:.1f} %, and nothing holds that is off by "
        f"more than {100 * MOST_HELD_OUT_FRACTION:g} %, however far off what held before was"
    )


def row_of(calibration: Calibration) -> CalibrationRow:
    """What the catalogue holds of a calibration that is promoted: the same each time."""
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
    if wanted.scope == "everyone" and wanted.status == "promoted" and not caller.sees_all:
        raise ForAdmins(FOR_EVERYONE)

    def decide(holdings: Holdings) -> Rows:
        held = holdings_row(wanted, wanted.scope, holdings)
        if held is None or held.calibration.id != wanted.id:
            message = f"{wanted.id} does not hold, so there is nothing to take back"
            raise Conflict(_problem("not_promoted", message, "GET /v1/calibrations?status=promoted lists what holds"))
        if before is None:
            return Rows(drop=(held,))
        again = replace(row_of(before), scope=wanted.scope)
        return Rows(put=(again,), drop=_elsewhere(before, wanted.scope, holdings))

    def also(connection: Connection, _: Holdings) -> None:
        moment = datetime.now(UTC)
        store.retired_in(connection, wanted.id, moment)
        if before is not None:
            store.promoted_in(connection, before, moment, wanted.scope, retires=None)

    history.change(caller.owner, decide, also)


def _may_hold_again(before: Calibration, wanted: Calibration) -> bool:
    """Whether a calibration that another one replaced comes back with it gone: not where everyone's holds meanwhile."""
    if wanted.scope == "everyone":
        return True
    is_everyones = before.status == "promoted" and before.scope == "everyone"
    return before.owner == wanted.owner and not is_everyones


def holdings_row(calibration: Calibration, scope: Scope, holdings: Holdings) -> CalibrationRow | None:
    """The calibration that holds for the GPU of another, for everyone or for the other's owner alone."""
    part = EVERYONE if scope == "everyone" else calibration.owner
    found = None if calibration.gpu is None else holdings.at((part, (CalibrationRow, calibration.gpu)))
    return found if isinstance(found, CalibrationRow) else None


def _held(wanted: Calibration, scope: Scope, holdings: Holdings) -> CalibrationRow | None:
    """The calibration that answers rest on until a calibration is promoted for everyone or for its owner."""
    view = holdings.everyone if scope == "everyone" else holdings.view(wanted.owner)
    return None if wanted.gpu is None else view.calibrations.get(wanted.gpu)


def _elsewhere(wanted: Calibration, scope: Scope, holdings: Holdings) -> tuple[Row, ...]:
    """The row of a calibration that holds in the other scope until it is promoted: it holds in one at a time."""
    held = holdings_row(wanted, "owner" if scope == "everyone" else "everyone", holdings)
    return () if held is None or held.calibration.id != wanted.id else (held,)


def _outdated(wanted: Calibration, held: str | None) -> Problem | None:
    """Why what a calibration was judged by is not what holds now."""
    if wanted.formulas != FORMULAS_VERSION:
        message = f"it was fitted with formulas {wanted.formulas}, and {FORMULAS_VERSION} answer now"
        return _problem("other_formulas", message, FIT_AGAIN)
    if wanted.replaces != held:
        message = f"it was compared with {wanted.replaces or PUBLISHED}, and {held or PUBLISHED} holds now"
        return _problem("other_before", message, FIT_AGAIN)
    return None


def _problem(code: str, message: str, fix: str) -> Problem:
    return Problem(field="", code=code, message=message, fix=fix)
