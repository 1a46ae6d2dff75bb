"""How does a team change the catalogue? It creates, changes and deletes rows of its own; shipped rows stay as they are.

Every function decides inside one transaction, on the catalogue that the database holds then: of several writers that
start from one version of a row, one is first and the others are told that theirs is stale.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from service.catalogue import SHIPPED, Catalogue, ModelRow, Row, key_of
from service.errors import Conflict, NotFound, Problem, Refused, Stale
from service.store import History, Rows, Written
from service.workflows.callers import Caller
from service.workflows.catalogue_lists import Listing, record_of
from service.workflows.listed import Record
from service.workflows.model_bodies import patched, with_model
from service.workflows.row_bodies import FOLLOWING, read_row
from service.workflows.row_defaults import filled, judged_once, underived
from service.workflows.row_rules import refuse_taken, refuse_used, sound

Body = Mapping[str, Any]
IsCurrent = Callable[[Record], bool]
"""Whether the caller's change starts from a row as it is."""


@dataclass(frozen=True, slots=True)
class RowChange:
    """A change of one row: what of, and from which version."""

    listing: Listing
    """The list that the row stands in."""
    key: str
    """Its slug; for a price its id."""
    is_current: IsCurrent
    """Whether the caller's version is the one that holds."""
    caller: Caller
    """Who changes it."""


def create_row(history: History, listing: Listing, caller: Caller, body: Body) -> Record:
    """Create a row of a team's own.

    Args:
        history: the catalogue over time
        listing: the list that the row is to stand in
        caller: whose it is
        body: the columns of the row; those that are left out are derived where they can be

    Returns:
        the row as the list shows it

    Raises:
        Refused: a wrong value, one that is missing, or an unknown column
        Conflict: another row has one of its names
        Unreachable: the database does not answer
    """
    row = own_row(listing, body, caller.owner)
    written = history.change(caller.owner, lambda catalogue: Rows(put=(addable(row, body, catalogue),)))
    return _shown(listing, written)


def own_row(listing: Listing, body: Body, owner: str) -> Row:
    """The row that a body spells.

    Args:
        listing: the list that the row is to stand in
        body: the columns of the row
        owner: whose it is

    Returns:
        the row

    Raises:
        Refused: a wrong value, one that is missing, or an unknown column
    """
    given = with_model(body) if listing.row is ModelRow else body
    flat = {name: value for name, value in filled(listing.row, given).items() if name not in FOLLOWING}
    try:
        row: Row = replace(read_row(listing.row, flat), owner=owner)
    except Refused as refused:
        raise Refused(*judged_once(listing.row, given, refused.problems)) from None
    return row


def addable(row: Row, body: Body, catalogue: Catalogue) -> Row:
    """A new row as it may be added to the catalogue.

    Args:
        row: the row
        body: what it was read from
        catalogue: what there is

    Returns:
        the row, its GPUs under their catalogue names

    Raises:
        Refused: it speaks of an unknown GPU, is wrong by itself, or sets what follows from the rest
        Conflict: another row has one of its names
    """
    found = sound(row, catalogue)
    held = catalogue.held(type(found), key_of(found))
    if held is not None:
        raise Conflict(_exists(held))
    refuse_untrue(body, {"id": key_of(found), "owner": found.owner})
    refuse_taken(found, catalogue)
    return found


def replace_row(history: History, change: RowChange, body: Body) -> Record:
    """Put a whole row in the place of an own one.

    Args:
        history: the catalogue over time
        change: which row
        body: the columns of the new row; it keeps its date where none is given

    Returns:
        the row as the list shows it

    Raises:
        NotFound: the caller has no such row
        Refused: a wrong value, one that is missing, or an unknown column
        Conflict: the row is shipped, or another row has one of the names
        Stale: the row was changed since the caller read it
        Unreachable: the database does not answer
    """
    given = {name: value for name, value in body.items() if value is not None}
    return _edit(history, change, lambda record: {"as_of": record["as_of"], **given})


def patch_row(history: History, change: RowChange, patch: Body) -> Record:
    """Change some columns of an own row.

    Args:
        history: the catalogue over time
        change: which row
        patch: RFC 7396 merge patch of the row as GET shows it; null makes a value underived or not known, and the
            config of a model takes the place of all of its columns

    Returns:
        the row as the list shows it

    Raises:
        NotFound: the caller has no such row
        Refused: the patched row has a wrong value, lacks one, or has an unknown column
        Conflict: the row is shipped, or another row has one of the names
        Stale: the row was changed since the caller read it
        Unreachable: the database does not answer
    """
    return _edit(history, change, lambda record: patched(record, patch))


def delete_row(history: History, change: RowChange) -> None:
    """Delete an own row; its versions stay for answers under an earlier catalogue.

    Args:
        history: the catalogue over time
        change: which row

    Raises:
        NotFound: the caller has no such row
        Conflict: the row is shipped, or others speak of it
        Stale: the row was changed since the caller read it
        Unreachable: the database does not answer
    """

    def decide(catalogue: Catalogue) -> Rows:
        row, _ = _changeable(change, catalogue)
        refuse_used(row, catalogue)
        return Rows(drop=(row,))

    history.change(change.caller.owner, decide)


def _edit(history: History, change: RowChange, edited: Callable[[Record], Body]) -> Record:
    def decide(catalogue: Catalogue) -> Rows:
        held, record = _changeable(change, catalogue)
        body = underived(change.listing.row, record, edited(record))
        row = sound(own_row(change.listing, body, held.owner), catalogue)
        refuse_untrue(body, {"id": key_of(held), "owner": held.owner, "revision": held.revision})
        _refuse_moved(change.listing, row, held)
        refuse_taken(row, catalogue)
        return Rows(put=(row,))

    return _shown(change.listing, history.change(change.caller.owner, decide))


def _shown(listing: Listing, written: Written) -> Record:
    (row,) = written.rows
    return record_of(listing, row)


def _changeable(change: RowChange, catalogue: Catalogue) -> tuple[Row, Record]:
    """The row that is to be changed, and how its list shows it."""
    row = catalogue.held(change.listing.row, change.key)
    if row is None:
        name = change.listing.key.name
        raise NotFound(f"no row has this {name}; a change takes the {name} itself, no other name of the row")
    if row.owner == SHIPPED:
        raise Conflict(SHIPPED_STAYS)
    if not change.caller.reaches(row.owner):
        raise NotFound("no row of yours is called this; one of others is changed by its owner, or by an admin")
    record = record_of(change.listing, row)
    if not change.is_current(record):
        raise Stale(f"the row is at revision {row.revision} now; read it again, and change that")
    return row, record


def refuse_untrue(body: Body, truth: Record) -> None:
    """Refuse what a body sets although it follows from the rest, unless it says what is true anyway.

    Args:
        body: the columns that are given
        truth: what follows from the rest, by column

    Raises:
        Refused: one problem for each column that says something else
    """
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
    else:
        message = f"an own row has this name already, at revision {held.revision}"
        fix = "choose another, or change that row by PUT or PATCH"
    return Problem(field=field, code="name_taken", message=message, fix=fix)


SHIPPED_STAYS = Problem(
    field="",
    code="shipped",
    message="the row belongs to the shipped catalogue, which answers everywhere rest on",
    fix="create an own row by POST from it, without owner and revision, and with a slug and names of its own",
)
