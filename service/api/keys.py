"""May this caller do this? Decided from memory, before a route sees the request."""

from collections.abc import Collection
from datetime import UTC, datetime
from typing import NamedTuple

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from service.api.access import SHARED, needed
from service.api.bearers import TokenJudge, WrongToken, is_token
from service.api.callers import ADMITTED, CALLER, Admitted, caller_of
from service.api.credentials import Presented, presented_by
from service.api.deeds import begin_deed
from service.api.key_rules import does_allow, standing_of
from service.api.problems import ApiError
from service.api.share_links import open_link, refusal_of_row
from service.store import ApiKey, KeyRing, Scope
from service.store.callers import Caller

CHALLENGE = 'Bearer realm="traincost"'

NO_KEY = "this service asks for a key; send it as Authorization: Bearer KEY, from a sheet as key=KEY in the address"
UNKNOWN = (
    "this key is not known here: was it copied whole, and made in this service's own database (traincost keys list)?"
)
TELLS_TOO_MUCH = (
    "an address is kept in histories and logs, so only a key whose one scope is sheet may stand in it; "
    "send this one as Authorization: Bearer KEY"
)

BY_LINK = Caller(id="share link", owner="", sees_all=True)
"""Whoever has a link that the service signed; it was signed for the one scenario that they read."""


UNKNOWN_CALLER = Caller(owner="")
"""Whoever asks what needs no key of a service that otherwise asks for one: they see what everyone does."""


class NotAllowed(ApiError):
    """The caller may not do this: 401 where nobody is known to ask, 403 where somebody is who may not."""


class _Known(NamedTuple):
    """Somebody who is known, before it is asked what they may do."""

    caller: Caller
    scopes: Collection[Scope]
    key: ApiKey | None
    token_end_seconds: float | None


async def refuse_strangers(request: Request) -> ApiKey | None:
    """Let a request through where its caller may do it.

    Args:
        request: the request; its credentials are in its state

    Returns:
        the key that let it in; None where there is none, or another credential did

    Raises:
        NotAllowed: a key, token or link is missing, wrong, expired or revoked, or does not allow this
        ApiError: whoever signs tokens does not say with which key
    """
    operation_id, presented = request.scope["route"].operation_id, presented_by(request.scope)
    scope, state = needed(operation_id, request.method), request.app.state
    if operation_id in SHARED and presented.share is not None:
        await _refuse_ended(request, presented.share)
        request.scope["state"][CALLER] = BY_LINK
    elif scope is not None and is_locked(state.keys, state.tokens):
        known = await _known(state.keys, state.tokens, presented)
        request.scope["state"][CALLER] = known.caller
        request.scope["state"][ADMITTED] = Admitted(
            key=known.key, token_end_seconds=known.token_end_seconds, scope=scope
        )
        if scope == "write" and request.method not in {"GET", "HEAD"}:
            begin_deed(request, known.caller)
        _refuse_unallowed(known, presented, scope)
        if known.key is not None:
            state.keys.note_use(known.key, datetime.now(UTC))
        return known.key
    elif scope is not None:
        request.scope["state"][ADMITTED] = Admitted(scope=scope)
        if scope == "write" and request.method not in {"GET", "HEAD"}:
            begin_deed(request, caller_of(request))
    elif is_locked(state.keys, state.tokens):
        request.scope["state"][CALLER] = UNKNOWN_CALLER
    return None


def is_locked(ring: KeyRing, tokens: TokenJudge | None) -> bool:
    """Whether callers have to say who they are.

    Args:
        ring: the keys
        tokens: what judges tokens; None where there are none

    Returns:
        true from the first key on, and wherever tokens are taken
    """
    return tokens is not None or ring.is_locked


async def _known(ring: KeyRing, tokens: TokenJudge | None, presented: Presented) -> _Known:
    sent = presented.key if presented.bearer is None else presented.bearer
    if sent is None:
        raise unauthorized(NO_KEY, "")
    if tokens is not None and is_token(sent):
        try:
            bearer = await tokens.bearer_of(sent)
        except WrongToken as wrong:
            raise unauthorized(str(wrong)) from None
        return _Known(bearer.caller, bearer.scopes, None, bearer.end_seconds)
    key = ring.find(sent)
    if key is None:
        raise unauthorized(UNKNOWN)
    standing = standing_of(key, datetime.now(UTC))
    if standing != "active":
        raise unauthorized(ended_key(standing))
    return _Known(Caller(id=key.id, owner=key.owner, sees_all="admin" in key.scopes), key.scopes, key, None)


def ended_key(standing: str) -> str:
    """Why a key that is revoked or expired lets nobody in."""
    return f"the key {'was revoked' if standing == 'revoked' else 'has expired'}; ask for another"


def _refuse_unallowed(known: _Known, presented: Presented, scope: Scope) -> None:
    if presented.bearer is None and set(known.scopes) != {"sheet"}:
        raise _forbidden(TELLS_TOO_MUCH, "sheet")
    if not does_allow(known.scopes, scope):
        what = "token" if known.key is None else "key"
        raise _forbidden(f"this needs a {what} with the scope {scope}, which this one has not", scope)


async def _refuse_ended(request: Request, share: str) -> None:
    """Refuse a link that the service did not sign, or that has ended."""
    state = request.app.state
    if state.keys.signing_secret is None:
        await state.secret_looks.look()  # another process may have made it a moment ago
    now = datetime.now(UTC)
    opened = open_link(state.keys, request.path_params["scenario_id"], share, now)
    if isinstance(opened, str):
        raise unauthorized(opened)
    if opened.id is not None:
        reason = await run_in_threadpool(refusal_of_row, state.engine, opened.id)
        if reason is not None:
            raise unauthorized(reason)
        state.keys.note_opening(opened.id, now)


def unauthorized(detail: str, why: str = ', error="invalid_token"') -> NotAllowed:
    """The refusal of a caller who is not known, or not any more."""
    return NotAllowed("unauthorized", detail, {"WWW-Authenticate": f"{CHALLENGE}{why}"})


def _forbidden(detail: str, scope: Scope) -> NotAllowed:
    challenge = f'{CHALLENGE}, error="insufficient_scope", scope="{scope}"'
    return NotAllowed("forbidden", detail, {"WWW-Authenticate": challenge})
