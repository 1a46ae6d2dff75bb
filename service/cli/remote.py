"""Requests of commands to a running service."""

from collections.abc import Iterator
from contextlib import contextmanager

from service.client import Client, ClientError, Finding, Problem
from service.errors import TraincostError


class NotAnswered(TraincostError):
    """A running service refuses, or cannot be reached."""


@contextmanager
def asked_of(url: str, key: str | None) -> Iterator[Client]:
    """A client of a running service, whose refusals become errors of the command."""
    try:
        with Client(url, key) as client:
            yield client
    except Problem as problem:
        found = dict.fromkeys(_problem_text(one) for one in problem.errors)
        raise NotAnswered(f"the service refuses: {'; '.join(found) or problem.detail}") from None
    except ClientError as error:
        raise NotAnswered(f"{error}; is it running there? Say where with --url or TRAINCOST_URL") from None


def _problem_text(finding: Finding) -> str:
    """A problem with its field and its remedy."""
    return f"{finding.pointer or finding.parameter or ''}: {finding.message}; {finding.fix}".removeprefix(": ")
