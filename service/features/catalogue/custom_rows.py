"""Custom rows: an owner's own, which only the owner sees until an admin sets their scope to everyone."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from service.answers.names import Published
from service.catalogue import EVERYONE, SHIPPED, Catalogue, GpuRow, ModelRow, Row, Snapshot, key_of
from service.errors import Conflict, ForAdmins, NotFound, Problem, Refused, Stale, refuse
from service.estimator.model.counts import ParameterCounts, count_parameters
from service.estimator.question import Documented
from service.features.catalogue import row_bodies
from service.features.catalogue.lists import LISTINGS, Listing, record_of
from service.features.catalogue.row_rules import refuse_taken, refuse_used, validated
from service.store.history import History, Rows, Written
from service.store.keys import Caller
from service.tabular.lists import IsCurrent, Record
from service.validation.question_parts import read_config

UNVERIFIED = "no"
"""Verification of a row before an admin has checked it."""

Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RowChange:
    """A change of one row, from the version that the caller has read."""

    listing: Listing
    key: str
    """Slug of the row; for a price its id."""
    is_current: IsCurrent
    """Whether the caller's version is the current one."""
    caller: Caller
    owner: str | None = None
    """Owner of the row, where an admin names one of several owners with a row of this key."""


def create_row(history: History, listing: Listing, caller: Caller, body: Body) -> Record:
    """Create a custom row, validated against the catalogue that it belongs to."""
    given = custom_row(listing, body, caller)

    def decide(snapshot: Snapshot) -> Rows:
        row = validated(given, catalogue_of(given, snapshot))
        for view in (catalogue_of(row, snapshot), snapshot.view(row.owner)):
            if (taken := view.row(type(row), key_of(row))) is not None:
                raise Conflict(_exists(taken))
        refuse_wrong_derived(body, {"id": key_of(row), "owner": row.owner})
        refuse_taken(row, catalogue_of(row, snapshot))
        return Rows(put=(row,))

    return _stored_record(listing, history.change(caller.owner, decide))


def custom_row(listing: Listing, body: Body, caller: Caller, owner: str | None = None) -> Row:
    given = row_bodies.with_model(body) if listing.row is ModelRow else body
    flat = {
        name: value
        for name, value in row_bodies.with_defaults(listing.row, given).items()
        if name not in row_bodies.NOT_SETTABLE
    }
    try:
        row: Row = replace(row_bodies.read_row(listing.row, flat), owner=caller.owner if owner is None else owner)
    except Refused as refused:
        raise Refused(*row_bodies.without_consequences(listing.row, given, refused.problems)) from None
    problems = [] if caller.sees_all else admin_problems(row)
    if problems:
        raise ForAdmins(*problems)
    return row


def admin_problems(row: Row) -> list[Problem]:
    """Problems of values that only an admin may set."""
    problems = []
    if row.scope != "owner":
        message = "a row for everyone changes every caller's answers, so only an admin may make it one"
        fix = "leave scope out, or ask an admin to set it to everyone"
        problems.append(Problem(field="scope", code="admins_only", message=message, fix=fix))
    if row.verified != UNVERIFIED:
        message = "only an admin who has read the source of a row marks it as verified"
        fix = f"leave verified out, or give {UNVERIFIED}, and ask an admin to mark it"
        problems.append(Problem(field="verified", code="admins_only", message=message, fix=fix))
    return problems


def catalogue_of(row: Row, snapshot: Snapshot) -> Catalogue:
    """Catalogue that a row belongs to: that of everyone, or that of its owner."""
    return snapshot.everyone if row.is_for_everyone else snapshot.view(row.owner)


def replace_row(history: History, change: RowChange, body: Body) -> Record:
    given = {name: value for name, value in body.items() if value is not None}
    return _edit(history, change, lambda record: {"as_of": record["as_of"], "scope": record["scope"], **given})


def patch_row(history: History, change: RowChange, patch: Body) -> Record:
    """Change some columns of a custom row."""
    return _edit(history, change, lambda record: row_bodies.patched(record, patch))


def delete_row(history: History, change: RowChange) -> None:
    """Delete a custom row; its versions remain for answers under an earlier catalogue."""

    def decide(snapshot: Snapshot) -> Rows:
        row, _ = _changeable(change, snapshot)
        _refuse_used(row, snapshot)
        return Rows(drop=(row,))

    history.change(change.caller.owner, decide)


def _edit(history: History, change: RowChange, edited: Callable[[Record], Body]) -> Record:
    def decide(snapshot: Snapshot) -> Rows:
        before, record = _changeable(change, snapshot)
        if not change.caller.sees_all:
            record = {**record, "verified": UNVERIFIED}  # an admin verified the earlier values
        body = row_bodies.without_derived(change.listing.row, record, edited(record))
        row = custom_row(change.listing, body, change.caller, before.owner)
        row = validated(row, catalogue_of(row, snapshot))
        refuse_wrong_derived(body, {"id": key_of(before), "owner": before.owner, "revision": before.revision})
        _refuse_moved(change.listing, row, before, snapshot)
        refuse_taken(row, catalogue_of(row, snapshot))
        return Rows(put=(row,))

    return _stored_record(change.listing, history.change(change.caller.owner, decide))


def _refuse_moved(listing: Listing, row: Row, before: Row, snapshot: Snapshot) -> None:
    """Refuse a new key, a promotion under a taken key, and the withdrawal of a row that rows of others reference."""
    if key_of(row) != key_of(before):
        name = listing.key.name
        message = f"with these values the {name} would be another, and a row keeps the {name} that it was created under"
        fix = "create another row by POST, and delete this one"
        raise Refused(Problem(field="" if name == "id" else name, code="not_settable", message=message, fix=fix))
    if row.is_for_everyone and not before.is_for_everyone:
        taken = snapshot.everyone.row(type(row), key_of(row))
        if taken is not None:
            raise Conflict(_exists(taken))
    if before.is_for_everyone and not row.is_for_everyone:
        _refuse_used(before, snapshot)


def _refuse_used(row: Row, snapshot: Snapshot) -> None:
    """Refuse to remove a GPU that rows reference; only rows of its owner can reference a private one."""
    if not isinstance(row, GpuRow):
        return
    if row.is_for_everyone:
        owners = [owner for owner, rows in snapshot.private.items() if (GpuRow, row.slug) not in rows.rows]
        refuse_used(row, (snapshot.everyone, *map(snapshot.view, owners)))
    elif row.slug not in snapshot.everyone.gpus:
        refuse_used(row, (snapshot.view(row.owner),))


def _stored_record(listing: Listing, written: Written) -> Record:
    (row,) = written.rows
    return record_of(listing, row)


def _changeable(change: RowChange, snapshot: Snapshot) -> tuple[Row, Record]:
    row = _find_row(change, snapshot)
    if row is None:
        name = change.listing.key.name
        raise NotFound(
            f"no row that you see has this {name}; a change takes the {name} itself, no other name of the row"
        )
    if row.owner == SHIPPED:
        raise Conflict(SHIPPED_STAYS)
    if row.is_for_everyone and not change.caller.sees_all:
        raise ForAdmins(FOR_EVERYONE)
    record = record_of(change.listing, row)
    if not change.is_current(record):
        raise Stale(f"the row is at revision {row.revision} now; read it again, and change that")
    return row, record


def _find_row(change: RowChange, snapshot: Snapshot) -> Row | None:
    """Row that a change names: of the caller or for everyone, else of the only other owner that has one."""
    kind, caller = change.listing.row, change.caller
    if change.owner is not None:
        own = snapshot.at((change.owner, (kind, change.key))) if caller.may_access(change.owner) else None
        candidates = (own, snapshot.at((EVERYONE, (kind, change.key))))
        return next((row for row in candidates if row is not None and row.owner == change.owner), None)
    seen = snapshot.view(caller.owner).row(kind, change.key)
    if seen is not None or not caller.sees_all:
        return seen
    others = [row for row in snapshot.rows_of_kind(kind) if key_of(row) == change.key]
    if len(others) > 1:
        names = ", ".join(row.owner for row in others)
        message = f"{len(others)} owners have a row of this name: {names}"
        raise Conflict(Problem(field="owner", code="several_owners", message=message, fix="name one as owner=NAME"))
    return next(iter(others), None)


def refuse_wrong_derived(body: Body, truth: Record) -> None:
    """Refuse values of columns that are not settable, unless they equal the true ones."""
    why = "differs from the row's; it follows from the row and its history, and no change sets it"
    problems = [
        Problem(field=name, code="not_settable", message=f"{name} {why}", fix="leave it out")
        for name in row_bodies.NOT_SETTABLE
        if body.get(name) is not None and (type(body[name]), body[name]) != (type(truth.get(name)), truth.get(name))
    ]
    refuse(problems)


def _exists(existing: Row) -> Problem:
    field = "slug" if hasattr(existing, "slug") else ""
    if existing.owner == SHIPPED:
        message = "a row of the shipped catalogue has this name; an own row cannot take its place"
        fix = "choose another"
    elif existing.is_for_everyone:
        message, fix = f"a row of {existing.owner} for everyone has this name already", "choose another"
    else:
        message = f"an own row has this name already, at revision {existing.revision}"
        fix = "choose another, or change that row by PUT or PATCH"
    return Problem(field=field, code="name_taken", message=message, fix=fix)


FOR_EVERYONE = Problem(
    field="",
    code="admins_only",
    message="the row holds for everyone, so a change of it would change every caller's answers",
    fix="ask an admin to change it, or create a row of your own under another name",
)
SHIPPED_STAYS = Problem(
    field="",
    code="shipped",
    message="the row belongs to the shipped catalogue, on which all answers rest",
    fix="create an own row by POST from it, without owner and revision, and with a slug and names of its own",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedModelRow(Documented):
    """A model preset made from a config."""

    row: Annotated[Record, Published("ModelRow")]
    """The row, as in the list of models."""
    parameters: ParameterCounts
    """Its exact parameter counts."""
    assumptions: tuple[str, ...]
    """Assumptions made to read the config."""
    warnings: tuple[str, ...]
    """Parts of the config that have no effect, or that may belong to another model."""


def import_model(
    history: History, caller: Caller, config: Mapping[str, Any], slug: str | None, name: str | None
) -> ImportedModelRow:
    """Create a model preset from a Hugging Face config."""
    read = read_config(config, "")
    counts = count_parameters(read.spec)
    given = {"slug": slug or row_bodies.slug_of_config(config, read.spec), "name": name}
    row = create_row(history, LISTINGS["models"], caller, {**row_bodies.columns_of_config(read), **given})
    return ImportedModelRow(row=row, parameters=counts, assumptions=read.assumptions, warnings=read.warnings)
