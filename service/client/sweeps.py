"""Sweeps from a program: create one, wait for it, read its table."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx

from service.answers.sweeps import SweepAnswer
from service.client.errors import Unreachable
from service.client.lists import Listing
from service.client.reading import from_json
from service.client.sending import Sent, json_of, making, segment

LOOK_SECONDS = 1.0
"""Time between two polls of a sweep. Source: a choice."""

UNFINISHED = ("queued", "running")


class Sweeps(Listing):
    """The sweeps of a service."""

    def create(self, body: Mapping[str, Any], *, key: str | None = None) -> SweepAnswer:
        """Have a table worked out; sent again where it may not have arrived, for it is made once.

        Args:
            body: as `POST /v1/sweeps` takes it
            key: what the request is called; the same key and body lead to the same sweep. None for a new one

        Returns:
            the sweep, which waits for workers
        """
        return _sweep(self.sender.send(making(self.path, body, key)))

    def read(self, sweep_id: str) -> SweepAnswer:
        """How far a sweep is, by its id."""
        return _sweep(self.sender.send(Sent(method="GET", path=self._place(sweep_id), repeats=True)))

    def cancel(self, sweep_id: str) -> SweepAnswer:
        """Stop a sweep, by its id; what is done stays."""
        return self._post(sweep_id, "cancel")

    def resume(self, sweep_id: str) -> SweepAnswer:
        """Go on with a sweep that was cancelled, or failed in parts, by its id."""
        return self._post(sweep_id, "resume")

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
            sleep(LOOK_SECONDS)
        return sweep

    def save(self, sweep_id: str, file: Path) -> None:
        """Write the table of a sweep, as far as it is done.

        Args:
            sweep_id: its id
            file: where to; its name ends with .parquet or .csv
        """
        with file.open("wb") as table:
            table.writelines(self._chunks(f"{self._place(sweep_id)}/rows{file.suffix}"))

    def _chunks(self, path: str) -> Iterator[bytes]:
        sent = Sent(method="GET", path=path, repeats=True, headers={"Accept": "*/*"}, streams=True)
        with closing(self.sender.send(sent)) as response:
            try:
                yield from response.iter_bytes()
            except httpx.RequestError as error:
                raise Unreachable(f"the table broke off: {error!r}") from error

    def _post(self, sweep_id: str, what: str) -> SweepAnswer:
        return _sweep(self.sender.send(Sent(method="POST", path=f"{self._place(sweep_id)}/{what}", repeats=True)))

    def _place(self, sweep_id: str) -> str:
        return f"{self.path}/{segment(sweep_id)}"


def _sweep(response: httpx.Response) -> SweepAnswer:
    document: Any = json_of(response)
    return from_json(SweepAnswer, document)
