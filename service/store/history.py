"""Which catalogue holds now, which held before, and how is it changed? Held in memory, kept in the database.

Answers come from memory: the catalogue that holds now, and a few of those that somebody asked for again. Changes of
this process are seen at once, those of other processes at the next look at the newest change.
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock

from sqlalchemy import Connection, Engine, and_

from service.catalogue import Catalogue, Row, UnsoundFact
from service.errors import Conflict, Problem, UnknownRevision, Unreachable
from service.store.changes import (
    Change,
    Rows,
    Written,
    catalogue_at,
    catalogue_since,
    newest_change,
    number_of,
    read_changes,
    revision_after,
    write_change,
)
from service.store.engine import alone, answering, reading, writing
from service.store.joined import afterwards
from service.store.kept import KEPT
from service.store.refusals import NO_ANSWER

MOST_HELD = 8
"""Catalogues of other revisions that stay in memory."""

MOST_HELD_ROWS = 1_000_000
"""Rows of those catalogues together, but for the last one: each row is found by 150 bytes. Source: measured."""

REVISION = re.compile(r"[0-9a-f]{12}")
"""What the digest of a catalogue looks like."""

Also = Callable[[Connection, Catalogue], None]
"""What a change of the catalogue writes elsewhere, given the catalogue before it."""

NO_SUCH_REVISION = "no catalogue of this revision is kept; GET /v1/catalogue/revisions lists those that are"


class History:
    """The catalogue over time.

    Args:
        engine: the database; None where there is none, so that nothing can be changed
        current: the catalogue that holds now
        publish: what to do with the catalogue whenever another holds
        number: the change after which it held; 0 where nobody knows
    """

    def __init__(
        self,
        engine: Engine | None,
        current: Catalogue,
        publish: Callable[[Catalogue], None] = lambda _: None,
        number: int = 0,
    ) -> None:
        self._engine = engine
        self._publish = publish
        self._number = number
        self._held: OrderedDict[str, Catalogue] = OrderedDict()
        self._lock = Lock()
        self.current = current

    @property
    def number(self) -> int:
        """Number of the newest change that is in memory; 0 where nobody knows before the first look."""
        return self._number

    def refresh(self) -> None:
        """Take over what other processes changed, and what was restored from a backup.

        Raises:
            Unreachable: the database does not answer
        """
        with self._lock:
            number, current = self._number, self.current
        with self._reading() as connection:  # it sees at least what was in memory, so a lower number is a restored one
            newest = newest_change(connection)
            if newest is None or (newest.number, newest.catalogue) == (number, current.revision):
                return
            found = _brought_up(connection, current, number, newest)
        self._take(newest.number, found, instead_of=number)

    def held(self, revision: str) -> Catalogue | None:
        """The catalogue of a revision, if it is in memory.

        Args:
            revision: digest of the catalogue

        Returns:
            the catalogue, or None
        """
        with self._lock:
            if revision == self.current.revision:
                return self.current
            if revision in self._held:
                self._held.move_to_end(revision)
            return self._held.get(revision)

    def at(self, revision: str) -> Catalogue:
        """The catalogue of a revision, from memory or from the database.

        Args:
            revision: digest of the catalogue

        Returns:
            the catalogue

        Raises:
            UnknownRevision: there never was one
            Unreachable: it is not in memory, and the database does not answer
        """
        found = self.held(revision)
        if found is not None:
            return found
        if self._engine is None or not REVISION.fullmatch(revision):
            raise UnknownRevision(NO_SUCH_REVISION)
        with self._reading() as connection:
            number = number_of(connection, revision)
            if number is None:
                raise UnknownRevision(NO_SUCH_REVISION)
            found = replace(catalogue_at(connection, number), revision=revision)
        with self._lock:
            self._hold(found)
        return found

    def changes(self) -> list[Change]:
        """Every change of the catalogue, the newest first.

        Returns:
            the changes

        Raises:
            Unreachable: the database does not answer
        """
        with self._reading() as connection:
            return read_changes(connection)

    def version(self, kind: type, key: str, revision: int) -> Row | None:
        """One version of a row, whether it still holds or not.

        Args:
            kind: class of the row
            key: its slug, or the id of a price
            revision: which version

        Returns:
            the row; where several owners had the key, the one that has it now or had it last; None where there is none

        Raises:
            Unreachable: the database does not answer
        """
        kept, held = KEPT[kind], self.current.held(kind, key)
        with self._reading() as connection:
            named = kept.named(connection, key, held)
            versions = [] if named is None else kept.read(connection, and_(named, kept.table.c.revision == revision))
        mine = [row for row in versions if held is not None and row.owner == held.owner]
        return next(reversed(mine or versions), None)

    def change(self, owner: str, decide: Callable[[Catalogue], Rows], also: Also | None = None) -> Written:
        """Change the catalogue, all of it or nothing, with nobody else changing it meanwhile.

        Args:
            owner: who changes it
            decide: what is written, given the catalogue that the database holds; any error it raises undoes everything
            also: what is written elsewhere in the same transaction, given the catalogue before; None for nothing

        Returns:
            what the change made; it is in memory when this returns, or when what it is written together with is kept

        Raises:
            Conflict: the catalogue would contradict itself
            Busy: others write for so long that waiting came to an end
            Unreachable: the database does not answer
        """
        with answering(), writing(self._connected()) as connection:
            alone(connection)
            newest = newest_change(connection)
            before = self.current if newest is None else self._before(connection, newest)
            rows = decide(before)
            try:
                written = write_change(connection, before, rows, owner)
            except UnsoundFact:
                raise Conflict(CONTRADICTION) from None
            if also is not None:
                also(connection, before)
        afterwards(lambda: self._take(written.change.number, written.catalogue))
        return written

    def _before(self, connection: Connection, newest: Change) -> Catalogue:
        with self._lock:
            number, current = self._number, self.current
        if (newest.number, newest.catalogue) == (number, current.revision):
            return current
        found = _brought_up(connection, current, number, newest)
        if newest.number < number:  # restored from a backup
            self._take(newest.number, found, instead_of=number)
        return found

    def _take(self, number: int, catalogue: Catalogue, *, instead_of: int = 0) -> None:
        """Let a catalogue hold, unless one of a later change does that came into memory after another number was."""
        with self._lock:
            if number < self._number != instead_of:
                return
            if catalogue is not self.current:
                self._hold(self.current)
            self._number, self.current = number, catalogue
            self._publish(catalogue)

    def _hold(self, catalogue: Catalogue) -> None:
        self._held[catalogue.revision] = catalogue
        self._held.move_to_end(catalogue.revision)
        while len(self._held) > 1 and (len(self._held) > MOST_HELD or self._held_rows() > MOST_HELD_ROWS):
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


def load_catalogue(engine: Engine) -> Catalogue:
    """Everything the database knows, the shipped rows and a team's own.

    Args:
        engine: the database

    Returns:
        the catalogue

    Raises:
        UnsoundFact: rows contradict each other
    """
    return load_numbered(engine)[1]


def load_numbered(engine: Engine) -> tuple[int, Catalogue]:
    """Everything the database knows, and since when.

    Args:
        engine: the database

    Returns:
        number of the newest change, 0 where there is none, and the catalogue after it

    Raises:
        UnsoundFact: rows contradict each other
    """
    with reading(engine) as connection:
        newest = newest_change(connection)
        return (0, Catalogue.from_rows(())) if newest is None else (newest.number, _catalogue_after(connection, newest))


def _brought_up(connection: Connection, current: Catalogue, number: int, newest: Change) -> Catalogue:
    """The catalogue after the newest change, made of one in memory where the database tells of that one too.

    Args:
        connection: the database
        current: a catalogue in memory
        number: the change after which it held; 0 where nobody knows
        newest: the newest change of the database
    """
    if 0 < number < newest.number and revision_after(connection, number) == current.revision:
        found = catalogue_since(connection, current, number, newest.number)
        if found.revision == newest.catalogue:
            return found
    return _catalogue_after(connection, newest)


def _catalogue_after(connection: Connection, change: Change) -> Catalogue:
    """The catalogue after a change, under the digest that it was given then."""
    return replace(catalogue_at(connection, change.number), revision=change.catalogue)


CONTRADICTION = Problem(
    field="",
    code="contradiction",
    message="with this change the catalogue would contradict itself: a name would mean two rows",
    fix="choose names that no other row has",
)
