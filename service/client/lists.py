"""Lists of the catalogue and of saved questions: read, create, change, delete."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from service.client.reading import encoded
from service.client.sending import Sender, Sent, json_of, making, segment

PAGE_ROWS = 1_000
"""Rows that are fetched at once: as many as the service gives."""

Row = Mapping[str, Any]
"""A row by its columns; None means not known."""

Value = str | int | float | bool | None
"""What a column may have to be; None for not known."""


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
        path: where the list is
    """

    def __init__(self, sender: Sender, path: str) -> None:
        self.sender = sender
        self.path = path

    def rows(self, *, sort: Sequence[str] = (), **columns: Value | Sequence[Value]) -> Iterator[Row]:
        """The rows, fetched page by page while they are read.

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
            found = json_of(self.sender.send(Sent(method="GET", path=self.path, repeats=True, parameters=page)))
            yield from found["items"]
            cursor = found["next_cursor"]


class Collection(Listing):
    """A list with changeable custom rows; changes are never retried, because the first attempt may have arrived."""

    def read(self, key: str, revision: int | None = None) -> StoredRow:
        """One row.

        Args:
            key: its name or id
            revision: which of its revisions; None for the one that holds

        Returns:
            the row and its version
        """
        query = {} if revision is None else {"revision": revision}
        return _stored_row(self.sender.send(Sent(method="GET", path=self._place(key), repeats=True, parameters=query)))

    def create(self, row: Row, *, key: str | None = None) -> StoredRow:
        """A new row; sent again where it may not have arrived, for it is made once.

        Args:
            row: its columns; of a scenario `name`, `question` and a `note`
            key: what the request is called; the same key and row lead to the same answer. None for a new one

        Returns:
            the stored row
        """
        return _stored_row(self.sender.send(making(self.path, row, key)))

    def replace(self, key: str, row: Row, etag: str) -> StoredRow:
        """Another row in the place of one.

        Args:
            key: name or id
            row: the columns of the new row
            etag: the version that is replaced; * for any

        Returns:
            the stored row
        """
        return _stored_row(self._write("PUT", self._place(key), row, etag))

    def update(self, key: str, patch: Row, etag: str) -> StoredRow:
        """Some columns of a row, given anew.

        Args:
            key: name or id
            patch: merge patch of the row
            etag: the version that is changed; * for any

        Returns:
            the stored row
        """
        return _stored_row(self._write("PATCH", self._place(key), patch, etag))

    def delete(self, key: str, etag: str) -> None:
        """Take a row away.

        Args:
            key: name or id
            etag: the version that is taken away; * for any
        """
        self._write("DELETE", self._place(key), None, etag)

    def _place(self, key: str) -> str:
        return f"{self.path}/{segment(key)}"

    def _write(self, method: str, path: str, body: Row | None, etag: str | None = None) -> httpx.Response:
        content = None if body is None else encoded(body)
        headers = {} if etag is None else {"If-Match": etag}
        return self.sender.send(Sent(method=method, path=path, repeats=False, content=content, headers=headers))


def _stored_row(response: httpx.Response) -> StoredRow:
    return StoredRow(json_of(response), response.headers.get("ETag", ""))


def _parameter(value: Value | Sequence[Value]) -> list[str]:
    several = [value] if isinstance(value, str) or not isinstance(value, Sequence) else value
    return ["" if one is None else str(one).lower() if isinstance(one, bool) else str(one) for one in several]
