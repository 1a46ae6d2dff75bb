"""The catalogue over time: each owner's view now and after any earlier change, and how to change it.

Answers come from memory: the current rows, and a few earlier catalogues that callers requested. Changes of this process
apply at once, those of other processes at the next refresh.
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock

from sqlalchemy import Connection, Engine, and_

from service.catalogue import EVERYONE, Catalogue, Holdings, Row, UnsoundFact, key_of
from service.errors import Conflict, Problem, UnknownRevision, Unreachable
from service.store.changes import (
    ROW_TABLES,
    Change,
    Rows,
    Written,
    changes_seen,
    holdings_at,
    holdings_since,
    last_number_of,
    last_number_with,
    newest_change,
    owners_with_parts,
    revision_after,
    shared_at,
    shared_number_of,
    view_at,
    write_change,
)
from service.store.engine import NO_ANSWER, afterwards, alone, answering, reading, writing

MOST_CACHED = 8
"""Earlier catalogues in memory."""

MOST_CACHED_ROWS = 1_000_000
"""Rows of the earlier catalogues in memory, except for the last one: an index takes 150 bytes a row. Source:
measured."""

REVISION = re.compile(r"[0-9a-f]{12}")
"""Pattern of a catalogue's digest."""

Also = Callable[[Connection, Holdings], None]
"""Further writes of a change of the catalogue, given the rows before it."""

NO_SUCH_REVISION = "no catalogue of this revision is kept; GET /v1/catalogue/revisions lists those that are"


class History:
    """The catalogue over time."""

    def __init__(
        self,
        engine: Engine | None,
        holdings: Holdings | Catalogue,
        publish: Callable[[Catalogue], None] = lambda _: None,
        number: int = 0,
    ) -> None:
        self._engine = engine
        self._publish = publish
        self._number = number
        self._held: OrderedDict[tuple[str, str], Catalogue] = OrderedDict()
        self._lock = Lock()
        self.holdings = holdings if isinstance(holdings, Holdings) else Holdings(holdings)

    @property
    def number(self) -> int:
        """Number of the newest change in memory; 0 before the first refresh."""
        return self._number

    def view(self, owner: str) -> Catalogue:
        """An owner's view now: the rows for everyone and its private ones."""
        return self.holdings.view(owner).asked_by(owner)

    def refresh(self) -> None:
        """Read changes of other processes, and of a restored backup."""
        with self._lock:
            number, current = self._number, self.holdings
        with self._reading() as connection:  # it sees at least what was in memory, so a lower number is a restored one
            newest = newest_change(connection)
            if newest is None or (newest.number, newest.catalogue) == (number, current.revision):
                return
            found = _brought_up(connection, current, number, newest)
        self._take(newest.number, found, instead_of=number)

    def held(self, revision: str, owner: str) -> Catalogue | None:
        """The catalogue of a revision, as far as an owner may see it, if it is in memory."""
        now = self.holdings
        for made in (now.everyone, now.view_if_made(owner)):
            if made is not None and made.revision == revision:
                return made.asked_by(owner)
        with self._lock:
            for key in ((revision, EVERYONE), (revision, owner)):
                if key in self._held:
                    self._held.move_to_end(key)
                    return self._held[key].asked_by(owner)
        return None

    def at(self, revision: str, owner: str, *, of_all: bool = False) -> Catalogue:
        """The catalogue of a revision, as far as an owner may see it, from memory or from the database."""
        found = self.held(revision, owner)
        if found is not None:
            return found
        if self._engine is None or not REVISION.fullmatch(revision):
            raise UnknownRevision(NO_SUCH_REVISION)
        with self._reading() as connection:
            owners = [owner, *(owners_with_parts(connection) if of_all else ())]
            read = _read_view(connection, revision, owners)
        if read is None:
            raise UnknownRevision(NO_SUCH_REVISION)
        whose, found = read
        with self._lock:
            self._hold(found, whose)
        return found.asked_by(owner)

    def changes(self, owner: str, *, of_all: bool = False) -> list[Change]:
        """Changes of an owner's view, newest first, each with the digest of the view after it."""
        with self._reading() as connection:
            return changes_seen(connection, owner, of_all=of_all)

    def version(self, kind: type, key: str, revision: int, may_see: Callable[[Row], bool]) -> Row | None:
        """One version of a row, current or not."""
        kept = ROW_TABLES[kind]
        now = [row for row in (self.holdings.everyone.held(kind, key),) if row is not None]
        now += [row for row in self.holdings.rows_of_kind(kind) if key_of(row) == key and may_see(row)]
        held = now[-1] if now else None
        with self._reading() as connection:
            named = kept.named(connection, key, held)
            versions = [] if named is None else kept.read(connection, and_(named, kept.table.c.revision == revision))
        seen = [row for row in versions if may_see(row)]
        mine = [row for row in seen if held is not None and row.owner == held.owner]
        return next(reversed(mine or seen), None)

    def change(self, owner: str, decide: Callable[[Holdings], Rows], also: Also | None = None) -> Written:
        """Change the catalogue, all of it or nothing, while no other process changes it."""
        with answering(), writing(self._connected()) as connection:
            alone(connection)
            newest = newest_change(connection)
            before = self.holdings if newest is None else self._before(connection, newest)
            rows = decide(before)
            try:
                written = write_change(connection, before, rows, owner)
            except UnsoundFact:
                raise Conflict(CONTRADICTION) from None
            if also is not None:
                also(connection, before)
        afterwards(lambda: self._take(written.change.number, written.holdings))
        return written

    def _before(self, connection: Connection, newest: Change) -> Holdings:
        with self._lock:
            number, current = self._number, self.holdings
        if (newest.number, newest.catalogue) == (number, current.revision):
            return current
        found = _brought_up(connection, current, number, newest)
        if newest.number < number or number == 0:  # restored from a backup, or read for the first time
            self._take(newest.number, found, instead_of=number)
        return found

    def _take(self, number: int, holdings: Holdings, *, instead_of: int = 0) -> None:
        """Set the current rows, unless a later change has set them since a given number."""
        with self._lock:
            if number < self._number != instead_of:
                return
            if holdings is not self.holdings:
                self._hold_former(self.holdings, holdings)
            self._number, self.holdings = number, holdings
            self._publish(holdings.everyone)

    def _hold_former(self, former: Holdings, now: Holdings) -> None:
        """Cache the former views: the rows for everyone, and the views that change."""
        if former.everyone is not now.everyone:
            self._hold(former.everyone, EVERYONE)
        for owner in former.private:
            view = former.view_if_made(owner)
            if view is not None and view is not now.view_if_made(owner):
                self._hold(view, owner)

    def _hold(self, catalogue: Catalogue, owner: str) -> None:
        self._held[catalogue.revision, owner] = catalogue
        self._held.move_to_end((catalogue.revision, owner))
        while len(self._held) > 1 and (len(self._held) > MOST_CACHED or self._held_rows() > MOST_CACHED_ROWS):
            self._held.popitem(last=False)

    def _held_rows(self) -> int:
        return sum(len(catalogue.digests) for catalogue in self._held.values())

    def _connected(self) -> Engine:
        if self._engine is None:
            raise Unreachable(NO_ANSWER)
        return self._engine

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with answering(), reading(self._connected()) as connection:
            yield connection


def load_catalogue(engine: Engine) -> Holdings:
    """All rows in the database."""
    return load_numbered(engine)[1]


def load_numbered(engine: Engine) -> tuple[int, Holdings]:
    """All rows in the database, with the number of the newest change."""
    with reading(engine) as connection:
        newest = newest_change(connection)
        return (0, Holdings.of(())) if newest is None else (newest.number, holdings_at(connection, newest.number))


def _read_view(connection: Connection, revision: str, owners: Iterable[str]) -> tuple[str, Catalogue] | None:
    """A view with a digest that everyone or one of some owners had, and its owner; None where there is none."""
    number = last_number_of(connection, EVERYONE, revision)
    if number is not None:
        return EVERYONE, view_at(connection, number, EVERYONE)
    number = shared_number_of(connection, revision)
    if number is not None:
        return EVERYONE, shared_at(connection, number, revision)
    for owner in dict.fromkeys(owners):
        number = last_number_with(connection, revision, owner)
        if number is not None:
            return owner, view_at(connection, number, owner)
    return None


def _brought_up(connection: Connection, current: Holdings, number: int, newest: Change) -> Holdings:
    """The rows after the newest change, from those in memory where the change lists its rows."""
    if 0 < number < newest.number and revision_after(connection, number) == current.revision:
        with suppress(UnsoundFact):
            found = holdings_since(connection, current, number, newest.number)
            if found.revision == newest.catalogue:
                return found
    return holdings_at(connection, newest.number)


CONTRADICTION = Problem(
    field="",
    code="contradiction",
    message="with this change the catalogue would contradict itself: a name would mean two rows",
    fix="choose names that no other row has",
)
