"""Versions of a row by revision."""

from service.catalogue import key_of
from service.errors import NotFound, Problem, Refused, UnknownName
from service.features.catalogue.lists import Listing, record_of
from service.store.history import History
from service.store.keys import Caller
from service.tabular.lists import Record
from service.validation.flat_values import read_value

REVISION = "revision"
"""Query parameter of a version."""
LARGEST_REVISION = (1 << 31) - 1
"""Largest revision in the database."""


def read_version(listing: Listing, history: History, caller: Caller, name: str, revision: str) -> Record:
    """A version of a row, current or not."""
    number = read_revision(revision)
    try:
        key = key_of(listing.find(history.view(caller.owner), name))
    except (UnknownName, NotFound):
        key = name
    found = history.version(listing.row, key, number, lambda row: row.is_for_everyone or caller.reaches(row.owner))
    if found is None:
        raise NotFound("no row of this name has or had a version of this revision")
    return record_of(listing, found)


def read_revision(text: str) -> int:
    """Parse the revision parameter."""
    number = read_value(REVISION, "integer", text, ".")
    if not isinstance(number, int) or not 1 <= number <= LARGEST_REVISION:
        message = f"{REVISION} is not from 1 to {LARGEST_REVISION}"
        raise Refused(Problem(field=REVISION, code="out_of_range", message=message, fix="give the revision of a row"))
    return number
