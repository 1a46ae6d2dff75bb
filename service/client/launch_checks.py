"""Launch checks from a program: create one, follow its progress, read its findings."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any

import httpx

from service.answers.launch_checks import LaunchCheck
from service.client.errors import Problem, Unreachable
from service.client.events import Event, events_of
from service.client.lists import Listing
from service.client.reading import from_json
from service.client.sending import Sender, Sent, json_of, making, segment

PATH = "/v1/launch-checks"
WHOLE = "launch_check"
"""The last event of a stream: the whole answer."""

AGAIN = "again"
"""The last event of a stream that the client has to open again; there may be any number of those."""

AGAIN_SECONDS = 1.0
"""Wait before a stream that broke off is taken up again. Source: a choice."""

FRUITLESS = 5
"""Streams that may break off without a new event before the client gives up. Source: a choice."""


class LaunchChecks(Listing):
    """The launch checks of a service.

    Args:
        sender: sends the requests
    """

    def __init__(self, sender: Sender) -> None:
        super().__init__(sender, PATH)

    def create(self, body: Any, *, key: str | None = None) -> LaunchCheck:
        """Ask for a launch check; sent again where it may not have arrived, for it is made once.

        Args:
            body: as `POST /v1/launch-checks` takes it
            key: what the request is called; the same key and body lead to the same check. None for a new one

        Returns:
            the launch check, queued
        """
        return from_json(LaunchCheck, json_of(self.sender.send(making(PATH, body, key))))

    def read(self, check_id: str) -> LaunchCheck:
        """One launch check as it is now."""
        return from_json(LaunchCheck, json_of(self.sender.send(self._sent("GET", check_id))))

    def cancel(self, check_id: str) -> LaunchCheck:
        """Stop a launch check; one that has ended stays as it is."""
        return from_json(LaunchCheck, json_of(self.sender.send(self._sent("POST", check_id, "/cancel"))))

    def trace(self, check_id: str) -> bytes:
        """The trace of its profile: a Chrome trace as gzip."""
        return self.sender.send(self._sent("GET", check_id, "/trace")).content

    def wait(self, check_id: str, on_event: Callable[[Event], object] = lambda _: None) -> LaunchCheck:
        """A launch check once it has ended.

        Args:
            check_id: its id
            on_event: called with each event until then

        Returns:
            what it found
        """
        for event in self.events(check_id):
            if event.name == WHOLE:
                return from_json(LaunchCheck, json.loads(event.data))
            on_event(event)
        raise Unreachable("the events ended before the launch check did")

    def events(self, check_id: str, after: str = "") -> Iterator[Event]:
        """What happens to a launch check, as it happens; a stream that breaks off is taken up where it was.

        Args:
            check_id: its id
            after: id of the last event that is known; empty for all of them

        Yields:
            its events, the last one with the whole answer
        """
        fruitless = 0
        while fruitless < FRUITLESS:
            known, is_asked_again = after, False
            with closing(self.sender.send(self._stream(check_id, after))) as response:
                for event in _until_broken(response):
                    if event.name == AGAIN:
                        is_asked_again = True
                        break
                    after = event.id
                    yield event
                    if event.name == WHOLE:
                        return
            fruitless = 0 if is_asked_again or after != known else fruitless + 1
            self.sender.retries.sleep(AGAIN_SECONDS)
        raise Unreachable("the stream of events broke off again and again")

    def _stream(self, check_id: str, after: str) -> Sent:
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": after} if after else {})}
        return Sent(
            method="GET", path=f"{PATH}/{segment(check_id)}/events", repeats=True, headers=headers, streams=True
        )

    def _sent(self, method: str, check_id: str, what: str = "") -> Sent:
        return Sent(method=method, path=f"{PATH}/{segment(check_id)}{what}", repeats=True)


def _until_broken(response: httpx.Response) -> Iterator[Event]:
    """The events of a stream until it ends or breaks off, but a problem, which is raised."""
    try:
        for event in events_of(response.iter_bytes()):
            if event.name == "problem":
                document: Mapping[str, Any] = json.loads(event.data)
                raise Problem(document["status"], document)
            yield event
    except httpx.RequestError:
        return
