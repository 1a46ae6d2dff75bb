"""Promotion of calibrations: a calibration takes effect once its held-out errors are below those of the one before.

It takes effect for its owner, or for everyone if an admin says so. The calibration in effect for a GPU is a row of the
catalogue: promoting, rolling back and retiring change the catalogue like any other change, so every replica sees them,
`rev` reads the state before, and equal rows have equal digests.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from service.catalogue import EVERYONE, CalibrationRow, Holdings, Row
from service.catalogue.rows import Scope
from service.errors import Conflict, ForAdmins, NotFound, Problem
from service.estimator import FORMULAS_VERSION
from service.features.calibrations.fitting import constants_of
from service.features.calibrations.lists import find_calibration, find_changeable_calibration
from service.store import Connection, Engine
from service.store.history import History, Rows
from service.store.keys import Caller
from service.store.measurements import Calibration, promoted_in, read_calibration, retire_calibration, retired_in

MOST_HELD_OUT_FRACTION = 0.5
"""Held-out mean error above which nothing is promoted, of all probes and of each. Source: a
choice; on a device that is as its data sheet says, published rates alone are off by less, and the worst published GPU
of a fitted kind is 1.3 times as slow as they have it."""

Write = Callable[[Connection], None]
"""Write that accompanies a change of the catalogue."""


def promote(
    engine: Engine, history: History, caller: Caller, calibration_id: str, scope: Scope = "owner"
) -> Calibration:
    """Promote a calibration for its owner or for everyone."""
    calibration = find_changeable_calibration(engine, caller, calibration_id)
    if scope == "everyone" and not caller.sees_all:
        raise ForAdmins(FOR_EVERYONE)
    refusals = reasons_against(calibration)
    if refusals:
        raise Conflict(*refusals)
    row = replace(row_of(calibration), scope=scope)

    def decide(holdings: Holdings) -> Rows:
        current = _in_effect(calibration, scope, holdings)
        if current is not None and current.calibration.id == calibration.id and scope == current.holds_for:
            raise Conflict(_problem("is_promoted", f"{calibration.id} holds already", "nothing is to be done"))
        outdated = _outdated(calibration, None if current is None else current.calibration.id)
        if outdated is not None:
            raise Conflict(outdated)
        return Rows(put=(row,), drop=_row_of_other_scope(calibration, scope, holdings))

    def also(connection: Connection, before: Holdings) -> None:
        current = holdings_row(calibration, scope, before)
        replaced = None if current is None else current.calibration.id
        promoted_in(connection, calibration, datetime.now(UTC), scope, retires=replaced)

    history.change(caller.owner, decide, also)
    return find_calibration(engine, caller, calibration_id)


def roll_back(engine: Engine, history: History, caller: Caller, calibration_id: str) -> Calibration:
    """Restore what was in effect before a calibration: another one, or published rates."""
    calibration = find_changeable_calibration(engine, caller, calibration_id)
    before = None if calibration.replaces is None else read_calibration(engine, calibration.replaces)
    _withdraw(history, caller, calibration, before if before is not None and _can_return(before, calibration) else None)
    return find_calibration(engine, caller, calibration_id)


def retire(engine: Engine, history: History, caller: Caller, calibration_id: str) -> Calibration:
    """Retire a calibration: a draft, or the one in effect, which the one for everyone then replaces."""
    calibration = find_changeable_calibration(engine, caller, calibration_id)
    if calibration.status == "promoted":
        _withdraw(history, caller, calibration, None)
    elif calibration.status == "draft":
        retire_calibration(engine, calibration.id, datetime.now(UTC))
    return find_calibration(engine, caller, calibration_id)


def reasons_against(calibration: Calibration) -> tuple[Problem, ...]:
    """Reasons against promoting a calibration."""
    if calibration.gpu is None:
        message = f"no GPU of the catalogue is called {calibration.device}, so no answer could rest on it"
        fix = "create the GPU at POST /v1/gpus with a slug of the words of this name, and fit again"
        return (_problem("no_gpu", message, fix),)
    held_out, before = calibration.held_out_fraction, calibration.before_fraction
    if held_out is None or before is None:
        message = "nothing could be held out, so its error on other measurements is unknown"
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
    """Catalogue row of a promoted calibration, always the same."""
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


def _withdraw(history: History, caller: Caller, calibration: Calibration, before: Calibration | None) -> None:
    """Remove a calibration from the catalogue, with a replacement or none."""
    if calibration.scope == "everyone" and calibration.status == "promoted" and not caller.sees_all:
        raise ForAdmins(FOR_EVERYONE)

    def decide(holdings: Holdings) -> Rows:
        current = holdings_row(calibration, calibration.scope, holdings)
        if current is None or current.calibration.id != calibration.id:
            message = f"{calibration.id} does not hold, so there is nothing to take back"
            raise Conflict(_problem("not_promoted", message, "GET /v1/calibrations?status=promoted lists what holds"))
        if before is None:
            return Rows(drop=(current,))
        again = replace(row_of(before), scope=calibration.scope)
        return Rows(put=(again,), drop=_row_of_other_scope(before, calibration.scope, holdings))

    def also(connection: Connection, _: Holdings) -> None:
        moment = datetime.now(UTC)
        retired_in(connection, calibration.id, moment)
        if before is not None:
            promoted_in(connection, before, moment, calibration.scope, retires=None)

    history.change(caller.owner, decide, also)


def _can_return(before: Calibration, calibration: Calibration) -> bool:
    """Whether a replaced calibration returns: not if one for everyone is in effect meanwhile."""
    if calibration.scope == "everyone":
        return True
    is_everyones = before.status == "promoted" and before.scope == "everyone"
    return before.owner == calibration.owner and not is_everyones


def holdings_row(calibration: Calibration, scope: Scope, holdings: Holdings) -> CalibrationRow | None:
    """Calibration in effect for the GPU of another, for everyone or for its owner."""
    part = EVERYONE if scope == "everyone" else calibration.owner
    row = None if calibration.gpu is None else holdings.at((part, (CalibrationRow, calibration.gpu)))
    return row if isinstance(row, CalibrationRow) else None


def _in_effect(calibration: Calibration, scope: Scope, holdings: Holdings) -> CalibrationRow | None:
    """Calibration that answers use until a calibration is promoted for everyone or for its owner."""
    view = holdings.everyone if scope == "everyone" else holdings.view(calibration.owner)
    return None if calibration.gpu is None else view.calibrations.get(calibration.gpu)


def _row_of_other_scope(calibration: Calibration, scope: Scope, holdings: Holdings) -> tuple[Row, ...]:
    """Row of a calibration in effect in the other scope until promotion: only one scope at a time has it."""
    other = holdings_row(calibration, "owner" if scope == "everyone" else "everyone", holdings)
    return () if other is None or other.calibration.id != calibration.id else (other,)


def _outdated(calibration: Calibration, current_id: str | None) -> Problem | None:
    """Reason why the comparison of a calibration is out of date."""
    if calibration.formulas != FORMULAS_VERSION:
        message = f"it was fitted with formulas {calibration.formulas}, and {FORMULAS_VERSION} answer now"
        return _problem("other_formulas", message, FIT_AGAIN)
    if calibration.replaces != current_id:
        message = f"it was compared with {calibration.replaces or PUBLISHED}, and {current_id or PUBLISHED} holds now"
        return _problem("other_before", message, FIT_AGAIN)
    return None


def _problem(code: str, message: str, fix: str) -> Problem:
    return Problem(field="", code=code, message=message, fix=fix)
