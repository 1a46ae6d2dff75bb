"""No key may stand in a log or in an error: every secret that a test makes is looked for wherever something is told.

What is watched: each record that anything logs in this process, as it is written; each answer of 400 and above, its
headers too, to what tests ask the application in process; and the log of each service that tests start.
"""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from secrets import token_urlsafe

import pytest

from service.api.access import key_rules
from service.logs import AsJson, AsText

PRESENTED = re.compile(r"tck_[\w-]{8}\.[\w-]{43}")
"""What a whole key looks like, whoever made it."""

FORMS = (AsText(), AsJson())
"""How the service writes what is logged: whoever else writes it is no log of the service."""

_ISSUED: set[str] = set()
_LEAKS: list[str] = []


def issued(secret: str) -> None:
    """Look for a secret from now on."""
    _ISSUED.add(secret)


def look_into(text: str, where: str) -> None:
    """Note a leak where a text holds a secret, or what looks like a whole key."""
    if PRESENTED.search(text) or any(secret in text for secret in _ISSUED):
        _LEAKS.append(where)


def leaks() -> list[str]:
    """Where secrets were told since somebody asked last."""
    found = list(_LEAKS)
    _LEAKS.clear()
    return found


@contextmanager
def watched() -> Iterator[None]:
    """Watch what is made and what is logged."""

    def told(size: int | None = None) -> str:
        secret = token_urlsafe(size)
        if size == key_rules.SECRET_BYTES:
            issued(secret)
        return secret

    call = logging.Logger.callHandlers

    def hand_on(logger: logging.Logger, record: logging.LogRecord) -> None:
        for form in FORMS:
            look_into(form.format(record), f"the log of {record.name}")
        call(logger, record)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_rules, "token_urlsafe", told)
        patch.setattr(logging.Logger, "callHandlers", hand_on)
        yield
