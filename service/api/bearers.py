"""Who sent a token, and when does nobody know? What judges tokens is loaded only where a setting asks for it."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from service.errors import TraincostError
from service.store import Scope
from service.store.callers import Caller

AWAY = "the issuer of tokens does not say with which key this one is signed; ask again"


class WrongToken(TraincostError):
    """A token is none, is another service's, or holds no longer."""


@dataclass(frozen=True, slots=True)
class Bearer:
    """Who sent a token."""

    caller: Caller
    """Who it is."""
    scopes: Collection[Scope]
    """What the token allows."""
    end_seconds: float
    """When it expires [second since 1970]."""


class TokenJudge(Protocol):
    """What judges tokens."""

    async def bearer_of(self, token: str) -> Bearer:
        """Who sent a token; WrongToken where it is none that holds here and now."""


def is_token(sent: str) -> bool:
    """Whether what a caller sends is a token and not a key.

    Args:
        sent: what stands in the header

    Returns:
        true for three parts with dots between; a key has two

    >>> is_token("tck_a.b"), is_token("a.b.c")
    (False, True)
    """
    return sent.count(".") == 2
