"""Forwarded headers count only from a proxy that a setting names."""

import asyncio
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from service.api.server import configured
from service.settings import Settings

SAID = [
    (b"x-forwarded-for", b"203.0.113.9, 198.51.100.7"),
    (b"x-forwarded-for", b"10.1.1.1"),
    (b"x-forwarded-proto", b"https"),
]
"""A caller who claims to be 203.0.113.9, as two proxies in a row hand it on."""


def seen_by_the_application(peer: str, *trusted: str) -> tuple[str, str]:
    """Address and scheme of a caller who says SAID."""
    seen: list[Scope] = []

    async def app(scope: Scope, _receive: Receive, _send: Send) -> None:
        seen.append(scope)

    async def nothing(*_: Any) -> Message:
        return {"type": "http.disconnect"}

    config = configured(app, Settings(database_url="sqlite://", trusted_proxies=trusted))
    config.load()
    scope = {"type": "http", "client": (peer, 4711), "scheme": "http", "headers": SAID}
    asyncio.run(config.loaded_app(scope, nothing, nothing))
    return seen[0]["client"][0], seen[0]["scheme"]


@pytest.mark.parametrize("peer", ["127.0.0.1", "::1", "10.1.1.2", "198.51.100.7"])
def test_nobody_is_believed_whom_no_setting_names(monkeypatch: pytest.MonkeyPatch, peer: str) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    assert seen_by_the_application(peer) == (peer, "http")
    assert seen_by_the_application(peer, "192.0.2.0/24", "192.0.2.1") == (peer, "http")


def test_the_last_hop_that_is_not_trusted_is_the_caller() -> None:
    assert seen_by_the_application("10.1.1.2", "10.1.0.0/16") == ("198.51.100.7", "https")
    assert seen_by_the_application("10.1.1.2", "10.1.1.2") == ("10.1.1.1", "https")
    assert seen_by_the_application("10.1.1.2", "10.1.0.0/16", "198.51.100.7") == ("203.0.113.9", "https")
    assert seen_by_the_application("fd00::2", "fd00::/8", "10.0.0.0/8") == ("198.51.100.7", "https")
