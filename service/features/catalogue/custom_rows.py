"""Custom rows: each owner creates, changes and deletes its own, and an admin may promote one to everyone.

A row is seen by its owner alone until an admin sets its scope to everyone; from then on only admins change it. Shipped
rows stay as they are. Every function decides inside one transaction, on the rows that the database holds then: of
several writers that start from one version of a row, the first succeeds and the others are refused as stale.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from service.catalogue import EVERYONE, SHIPPED, Catalogue, GpuRow, Holdings, ModelRow, Row, key_of
from service.errors import Conflict, ForAdmins, NotFound, Problem, Refused, Stale
from service.estimator.model.parameters import ParameterCounts, count_parameters
from service.features.catalogue.lists import LISTINGS, Listing, record_of
from service.features.catalogue.models import columns_of_config, patched, slug_of_config, with_model
from service.features.catalogue.row_bodies import FOLLOWING, filled, judged_once, read_row, underived
from service.features.catalogue.row_rules import refuse_taken, refuse_used, sound
from service.store import History, Rows, Written
from service.store.keys import Caller
from service.tabular.lists import IsCurrent, Record
from service.validation.models import read_config

UNVERIFIED = "no"
"""What a row says of its verification until an admin has looked at it."""

Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RowChange:
    """A change of one row: which, and from which version."""

    listing: Listing
    """The list that the row stands in."""
    key: str
    """Its slug; for a price its id."""
    is_current: IsCurrent
    """Whether the caller's version is the one that holds."""
    caller: Caller
    """Who changes it."""
    owner: str | None = None
    """Whose row is meant, where an admin names one of several owners with a row of this key."""


def create_row(history: History, listing: Listing, caller: Caller, body: Body) -> Record:
    """Create a custom row."""
    row = own_row(listing, body, caller)
    written = history.change(caller.owner, lambda holdings: Rows(put=(addable(row, body, holdings),)))
    return _shown(listing, written)


def own_row(listing: Listing, body: Body, caller: Caller, owner: str | None = None) -> Row:
    """The row that a body spells."""
    given = with_model(body) if listing.row is ModelRow else body
    flat = {name: value for name, value in filled(listing.row, given).items() if name not in FOLLOWING}
    try:
        row: Row = replace(read_row(listing.row, flat), owner=caller.owner if owner is None else owner)
    except Refused as refused:
        raise Refused(*judged_once(listing.row, given, refused.problems)) from None
    problems = [] if caller.sees_all else admin_problems(row)
    if problems:
        raise ForAdmins(*problems)
    return row


def admin_problems(row: Row) -> list[Problem]:
    """What a row says of itself that only an admin may set."""
    problems = []
    if row.scope != "owner":
        message = "a row for everyone changes every caller's answers, so only an admin may make it one"
        fix = "leave scope out, or ask an admin to set it to everyone"
        problems.append(Problem(field="scope", code="admins_only", message=message, fix=fix))
    if row.verified != UNVERIFIED:
        message = "a row is marked as verified by an admin who read its source, not by its writer"
        fix = f"leave verified out, or give {UNVERIFIED}, and ask an admin to mark it"
        problems.append(Problem(field="verified", code="admins_only", message=message, fix=fix))
    return problems


def addable(row: Row, body: Body, holdings: Holdings) -> Row:
    """A new row as it may be added to the catalogue."""
    found = sound(row, beside_which(row, holdings))
    for view in (beside_which(row, holdings), holdings.view(row.owner)):
        held = view.held(type(found), key_of(found))
        if held is not None:
            raise Conflict(_exists(held))
    refuse_untrue(body, {"id": key_of(found), "owner": found.owner})
    refuse_taken(found, beside_which(row, holdings))
    return found


def beside_which(row: Row, holdings: Holdings) -> Catalogue:
    """The rows that a row stands beside: those for everyone, or what its owner sees."""
    return holdings.everyone if row.is_for_everyone else holdings.view(row.owner)


def replace_row(history: History, change: RowChange, body: Body) -> Record:
    """Put a whole row in the place of an own one."""
    given = {name: value for name, value in body.items() if value is not None}
    return _edit(history, change, lambda record: {"as_of": record["as_of"], "scope": record["scope"], **given})


def patch_row(history: History, change: RowChange, patch: Body) -> Record:
    """Change some columns of an own row."""
    return _edit(history, change, lambda record: patched(record, patch))


def delete_row(history: History, change: RowChange) -> None:
    """Delete an own row; its versions stay for answers under an earlier catalogue."""

    def decide(holdings: Holdings) -> Rows:
        row, _ = _changeable(change, holdings)
        _refuse_used(row, holdings)
        return Rows(drop=(row,))

    history.change(change.caller.owner, decide)


def _edit(history: History, change: RowChange, edited: Callable[[Record], Body]) -> Record:
    def decide(holdings: Holdings) -> Rows:
        held, record = _changeable(change, holdings)
        if not change.caller.sees_all:
            record = {**record, "verified": UNVERIFIED}  # an admin read the source of what the row said before
        body = underived(change.listing.row, record, edited(record))
        row = own_row(change.listing, body, change.caller, held.owner)
        row = sound(row, beside_which(row, holdings))
        refuse_untrue(body, {"id": key_of(held), "owner": held.owner, "revision": held.revision})
        _refuse_moved(change.listing, row, held)
        _refuse_rescoped(row, held, holdings)
        refuse_taken(row, beside_which(row, holdings))
        return Rows(put=(row,))

    return _shown(change.listing, history.change(change.caller.owner, decide))


def _refuse_rescoped(row: Row, held: Row, holdings: Holdings) -> None:
    """Refuse to promote a row whose key another one has, or to take one back that rows of others speak of."""
    if row.is_for_everyone and not held.is_for_everyone:
        taken = holdings.everyone.held(type(row), key_of(row))
        if taken is not None:
            raise Conflict(_exists(taken))
    if held.is_for_everyone and not row.is_for_everyone:
        _refuse_used(held, holdings)


def _refuse_used(row: Row, holdings: Holdings) -> None:
    """Refuse to take a GPU away that rows speak of; a private one only its owner's rows can speak of."""
    if not isinstance(row, GpuRow):
        return
    if row.is_for_everyone:
        owners = [owner for owner, held in holdings.private.items() if (GpuRow, row.slug) not in held.rows]
        refuse_used(row, (holdings.everyone, *map(holdings.view, owners)))
    elif row.slug not in holdings.everyone.gpus:
        refuse_used(row, (holdings.view(row.owner),))


def _shown(listing: Listing, written: Written) -> Record:
    (row,) = written.rows
    return record_of(listing, row)


def _changeable(change: RowChange, holdings: Holdings) -> tuple[Row, Record]:
    """The row that is to be changed, and how its list shows it."""
    row = _named(change, holdings)
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


def _named(change: RowChange, holdings: Holdings) -> Row | None:
    """The row that a change names: the caller's or one for everyone, else one that another owner alone has."""
    kind, caller = change.listing.row, change.caller
    if change.owner is not None:
        return owned_row(holdings, caller, (kind, change.key), change.owner)
    seen = holdings.view(caller.owner).held(kind, change.key)
    if seen is not None or not caller.sees_all:
        return seen
    others = [row for row in holdings.rows_of_kind(kind) if key_of(row) == change.key]
    if len(others) > 1:
        names = ", ".join(row.owner for row in others)
        message = f"{len(others)} owners have a row of this name: {names}"
        raise Conflict(Problem(field="owner", code="several_owners", message=message, fix="name one as owner=NAME"))
    return next(iter(others), None)


def owned_row(holdings: Holdings, caller: Caller, key: tuple[type, str], owner: str) -> Row | None:
    """The row of a key that an owner has, if the caller may see it."""
    found = [holdings.at((owner, key)) if caller.reaches(owner) else None, holdings.at((EVERYONE, key))]
    return next((row for row in found if row is not None and row.owner == owner), None)


def refuse_untrue(body: Body, truth: Record) -> None:
    """Refuse what a body sets although it follows from the rest, unless it says what is true anyway."""
    wrong = [name for name in FOLLOWING if body.get(name) is not None and not _is(body[name], truth.get(name))]
    if wrong:
        raise Refused(*(_follows(name) for name in wrong))


def _is(value: object, truth: object) -> bool:
    return type(value) is type(truth) and value == truth


def _follows(name: str) -> Problem:
    message = f"{name} is not what the row has; it follows from the row and its history, and no change sets it"
    return Problem(field=name, code="not_settable", message=message, fix="leave it out")


def _refuse_moved(listing: Listing, row: Row, held: Row) -> None:
    if key_of(row) != key_of(held):
        name = listing.key.name
        message = f"with these values the {name} would be another, and a row keeps the {name} that it was created under"
        fix = "create another row by POST, and delete this one"
        raise Refused(Problem(field="" if name == "id" else name, code="not_settable", message=message, fix=fix))


def _exists(held: Row) -> Problem:
    field = "slug" if hasattr(held, "slug") else ""
    if held.owner == SHIPPED:
        message, fix = (
            "a row of the shipped catalogue has this name; an own row cannot take its place",
            "choose another",
        )
    elif held.is_for_everyone:
        message, fix = f"a row of {held.owner} for everyone has this name already", "choose another"
    else:
        message = f"an own row has this name already, at revision {held.revision}"
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
    message="the row belongs to the shipped catalogue, which answers everywhere rest on",
    fix="create an own row by POST from it, without owner and revision, and with a slug and names of its own",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedModel:
    """A model preset that was made of a config."""

    row: Record
    """The row, as the list of models shows it."""
    parameters: ParameterCounts
    """Its parameters, exact."""
    assumptions: tuple[str, ...]
    """What was assumed to read the config."""
    warnings: tuple[str, ...]
    """What of the config changes nothing here, or may belong to another model."""


def import_model(
    history: History, caller: Caller, config: Mapping[str, Any], slug: str | None, name: str | None
) -> ImportedModel:
    """Create a model preset from a Hugging Face config."""
    read = read_config(config, "")
    counts = count_parameters(read.spec)
    given = {"slug": slug or slug_of_config(config, read.spec), "name": name}
    row = create_row(history, LISTINGS["models"], caller, {**columns_of_config(read), **given})
    return ImportedModel(row=row, parameters=counts, assumptions=read.assumptions, warnings=read.warnings)
