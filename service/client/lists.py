"""Lists of the service: catalogue rows and scenarios, sweeps, launch checks."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import httpx

from service.answers.launch_checks import LaunchCheck
from service.answers.sweeps import SweepAnswer
from service.client.reading import Problem, Unreachable, encoded, from_json
from service.client.sending import EVENT_STREAM, Event, Sender, Sent, creation, events_of, json_of, segment

PAGE_ROWS = 1_000
"""Rows of one request: as many as the service gives."""

Row = Mapping[str, Any]
"""A row by its columns; None means not known."""

Value = str | int | float | bool | None
"""A value of a column in a filter; None for not known."""


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A stored row: its fields, and the version on which a change is based."""

    row: Row
    """Its columns."""
    etag: str
    """Its version."""


class Listing:
    """A list that is read.

    Args:
        sender: sends the requests
        path: path of the list
    """

    def __init__(self, sender: Sender, path: str) -> None:
        self.sender = sender
        self.path = path

    def rows(self, *, sort: Sequence[str] = (), **columns: Value | Sequence[Value]) -> Iterator[Row]:
        """The rows, fetched page by page while you read them.

        Args:
            sort: columns to sort by, the first one first, `-` before one that descends
            columns: values that columns must have; of several any will do

        Yields:
            rows
        """
        query: dict[str, Any] = {name: _parameter(value) for name, value in columns.items()}
        if sort:
            query["sort"] = ",".join(sort)
        cursor: str | None = ""
        while cursor is not None:
            page = {**query, "limit": PAGE_ROWS, **({"cursor": cursor} if cursor else {})}
            document = self.sender.json(Sent("GET", self.path, parameters=page))
            yield from document["items"]
            cursor = document["next_cursor"]

    def _at(self, key: str, part: str = "") -> str:
        return f"{self.path}/{segment(key)}{part}"


class Collection(Listing):
    """A list with changeable custom rows; changes are never retried, because the first attempt may have arrived."""

    def read(self, key: str, revision: int | None = None) -> StoredRow:
        """Read one row.

        Args:
            key: its name or id
            revision: which of its revisions; None for the current one

        Returns:
            the row and its version
        """
        query = {} if revision is None else {"revision": revision}
        return _stored_row(self.sender.send(Sent("GET", self._at(key), parameters=query)))

    def create(self, row: Row, *, key: str | None = None) -> StoredRow:
        """Create a row once, however often the request is sent.

        Args:
            row: its columns; of a scenario `name`, `question` and a `note`
            key: idempotency key; the same key and row lead to the same answer. None for a new one

        Returns:
            the stored row
        """
        return _stored_row(self.sender.send(creation(self.path, row, key)))

    def replace(self, key: str, row: Row, etag: str) -> StoredRow:
        """Replace a row.

        Args:
            key: name or id
            row: the columns of the new row
            etag: the version that is replaced; * for any

        Returns:
            the stored row
        """
        return _stored_row(self._change("PUT", key, etag, row))

    def update(self, key: str, patch: Row, etag: str) -> StoredRow:
        """Change some columns of a row.

        Args:
            key: name or id
            patch: merge patch of the row
            etag: the version that is changed; * for any

        Returns:
            the stored row
        """
        return _stored_row(self._change("PATCH", key, etag, patch))

    def delete(self, key: str, etag: str) -> None:
        """Delete a row.

        Args:
            key: name or id
            etag: the version that is deleted; * for any
        """
        self._change("DELETE", key, etag)

    def _change(self, method: str, key: str, etag: str, body: Row | None = None) -> httpx.Response:
        content, headers = None if body is None else encoded(body), {"If-Match": etag}
        return self.sender.send(Sent(method, self._at(key), repeats=False, content=content, headers=headers))


def _stored_row(response: httpx.Response) -> StoredRow:
    return StoredRow(json_of(response), response.headers.get("ETag", ""))


def _parameter(value: Value | Sequence[Value]) -> list[str]:
    several = [value] if isinstance(value, str) or not isinstance(value, Sequence) else value
    return ["" if one is None else str(one).lower() if isinstance(one, bool) else str(one) for one in several]


POLL_SECONDS = 1.0
"""Time between two polls of a sweep. Source: a choice."""

UNFINISHED = ("queued", "running")

Answer = TypeVar("Answer", SweepAnswer, LaunchCheck)


class Jobs(Listing, Generic[Answer]):
    """A list of what workers compute; each of them can be started, read and stopped."""

    kind: type[Answer]
    """Its answers."""

    def create(self, body: Any, *, key: str | None = None) -> Answer:
        """Start one, once however often the request is sent.

        Args:
            body: as `POST` of the list takes it
            key: idempotency key; the same key and body lead to the same answer. None for a new one

        Returns:
            the sweep or launch check, which waits for workers
        """
        return self.sender.answer(self.kind, creation(self.path, body, key))

    def read(self, job_id: str) -> Answer:
        """Read its current state, by its id."""
        return self.sender.answer(self.kind, Sent("GET", self._at(job_id)))

    def cancel(self, job_id: str) -> Answer:
        """Stop it, by its id; what has finished stays."""
        return self.sender.answer(self.kind, Sent("POST", self._at(job_id, "/cancel")))


class Sweeps(Jobs[SweepAnswer]):
    """The sweeps of a service."""

    kind = SweepAnswer

    def resume(self, sweep_id: str) -> SweepAnswer:
        """Resume a sweep that was cancelled, or failed in parts, by its id."""
        return self.sender.answer(SweepAnswer, Sent("POST", self._at(sweep_id, "/resume")))

    def wait(
        self,
        sweep_id: str,
        on_progress: Callable[[SweepAnswer], object] | None = None,
        *,
        sleep: Callable[[float], object] = time.sleep,
    ) -> SweepAnswer:
        """Wait for the end of a sweep.

        Args:
            sweep_id: its id
            on_progress: called about once a second with the progress
            sleep: waits so many seconds

        Returns:
            the sweep as it ended: succeeded, failed or cancelled
        """
        while (sweep := self.read(sweep_id)).status in UNFINISHED:
            if on_progress is not None:
                on_progress(sweep)
            sleep(POLL_SECONDS)
        return sweep

    def save(self, sweep_id: str, file: Path) -> None:
        """Write the finished rows of a sweep to a file.

        Args:
            sweep_id: its id
            file: target; its name ends with .parquet or .csv
        """
        path = self._at(sweep_id, f"/rows{file.suffix}")
        sent = Sent("GET", path, headers={"Accept": "*/*"}, streams=True)
        with file.open("wb") as table, closing(self.sender.send(sent)) as response:
            try:
                table.writelines(response.iter_bytes())
            except httpx.RequestError as error:
                raise Unreachable(f"the table broke off: {error!r}") from error


WHOLE = "launch_check"
"""The last event of a stream: the whole answer."""

AGAIN = "again"
"""The last event of a stream that the client has to open again; any number of streams may end with it."""

AGAIN_SECONDS = 1.0
"""Wait before a broken stream is resumed. Source: a choice."""
FRUITLESS = 5
"""Streams that may break off without a new event before the client gives up. Source: a choice."""


class LaunchChecks(Jobs[LaunchCheck]):
    """The launch checks of a service."""

    kind = LaunchCheck

    def trace(self, check_id: str) -> bytes:
        """Read the trace of its profile: a Chrome trace as gzip."""
        return self.sender.send(Sent("GET", self._at(check_id, "/trace"))).content

    def wait(self, check_id: str, on_event: Callable[[Event], object] = lambda _: None) -> LaunchCheck:
        """Wait for the end of a launch check.

        Args:
            check_id: its id
            on_event: called with each event until then

        Returns:
            its findings
        """
        for event in self.events(check_id):
            if event.name == WHOLE:
                return from_json(LaunchCheck, json.loads(event.data))
            on_event(event)
        raise Unreachable("the events ended before the launch check did")

    def events(self, check_id: str, after: str = "") -> Iterator[Event]:
        """Follow a launch check; a stream that breaks off is resumed after its last event.

        Args:
            check_id: its id
            after: id of the last event that is known; empty for all of them

        Yields:
            its events, the last one with the whole answer
        """
        fruitless = 0
        while fruitless < FRUITLESS:
            known, reopens = after, False
            headers = {**EVENT_STREAM, **({"Last-Event-ID": after} if after else {})}
            with closing(
                self.sender.send(Sent("GET", self._at(check_id, "/events"), headers=headers, streams=True))
            ) as response:
                for event in _until_broken(response):
                    if event.name == AGAIN:
                        reopens = True
                        break
                    after = event.id
                    yield event
                    if event.name == WHOLE:
                        return
            fruitless = 0 if reopens or after != known else fruitless + 1
            self.sender.retries.sleep(AGAIN_SECONDS)
        raise Unreachable("the stream of events broke off again and again")


def _until_broken(response: httpx.Response) -> Iterator[Event]:
    """The events of a stream until it ends or breaks off; a problem is raised."""
    try:
        for event in events_of(response.iter_bytes()):
            if event.name == "problem":
                document: Mapping[str, Any] = json.loads(event.data)
                raise Problem(document["status"], document)
            yield event
    except httpx.RequestError:
        return
