"""Authorization by keys, tokens and share links, decided in memory before a route runs."""

import re
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Event, Lock
from typing import Annotated, Protocol

from fastapi import Depends, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from service.api.access.credentials import Presented, presented_by, revocation_reason, verify_link
from service.api.access.key_rules import does_allow, key_status
from service.api.errors import ApiError
from service.api.openapi import SCOPE, SHARE_LINK, accepts
from service.errors import TraincostError, Unreachable
from service.store import Engine
from service.store.keys import UNRESTRICTED, ApiKey, Caller, KeyRing, Scope
from service.store.requests import AuditedCall, AuditEntry, AuditOutcome, set_audited_call, store_entries

AUDITED_CALL = "audited_call"

OUTCOME_OF_STATUS: Mapping[int, AuditOutcome] = {403: "forbidden", 404: "not_found", 409: "conflict", 412: "stale"}
"""Audited rejections by status: those about permissions and state, not malformed requests."""

MOST_WAITING = 10_000
"""Queued entries while the database does not answer; beyond that the oldest are dropped. Source: a choice."""
LONGEST_SECONDS = 1.0
"""Longest wait for another thread's write: readers of the log do not queue up behind a slow database."""

OBJECT = re.compile(r"[A-Za-z0-9._:/-]{1,200}")
"""Object names that the log stores; others from a path are omitted."""


def begin_audit(request: Request, caller: Caller) -> None:
    """Set the actor of what this request writes from now on."""
    state = request.scope["state"]
    call = AuditedCall(
        caller=caller.id or None,
        owner=caller.owner,
        operation=request.scope["route"].unique_id,
        request_id=state["request_id"],
    )
    state[AUDITED_CALL] = call
    set_audited_call(call)


class DeniedChanges:
    def __init__(self, engine: Engine | None) -> None:
        self._engine = engine
        self._waiting: deque[AuditEntry] = deque(maxlen=MOST_WAITING)
        self._writing = Lock()
        self.noted = Event()
        """Set where something waits to be written."""

    def note(self, request: Request, response: Response) -> None:
        """Queue the entry of a denied change by an authenticated caller."""
        call: AuditedCall | None = request.scope["state"].get(AUDITED_CALL)
        outcome = OUTCOME_OF_STATUS.get(response.status_code)
        if call is not None and outcome is not None and self._engine is not None:
            name = "/".join(map(str, request.path_params.values()))
            known = name if OBJECT.fullmatch(name) else None
            self._waiting.append(AuditEntry(call=call, at=datetime.now(UTC), object=known, outcome=outcome))
            self.noted.set()

    def write(self) -> None:
        """Write the queued entries; keep them queued where the database fails."""
        if not self._writing.acquire(timeout=LONGEST_SECONDS):
            return  # another thread writes them to a slow database
        try:
            batch = [self._waiting.popleft() for _ in range(len(self._waiting))]
            if self._engine is None or not batch:
                return
            try:
                store_entries(self._engine, batch)
            except Unreachable:
                self._waiting.extendleft(reversed(batch))
                raise
        finally:
            self._writing.release()


ISSUER_AWAY = "the issuer of tokens does not say with which key this one is signed; ask again"


class InvalidToken(TraincostError):
    """A malformed, foreign or expired token."""


@dataclass(frozen=True, slots=True)
class Identity:
    """An authenticated caller, before authorization."""

    caller: Caller
    """Id and owner of the key, or subject and owner of the token."""
    scopes: Collection[Scope]
    """Scopes that the key or token grants."""
    key: ApiKey | None = None
    token_end_seconds: float | None = None
    """Expiry of the token [second since 1970]; None for a key."""


class TokenVerifier(Protocol):
    async def verify(self, token: str) -> Identity:
        """The caller of a token; InvalidToken where it is not valid here and now."""


def is_token(sent: str) -> bool:
    """Whether a bearer credential is a token, not a key.

    >>> is_token("tck_a.b"), is_token("a.b.c")
    (False, True)
    """
    return sent.count(".") == 2


def required_scope(request: Request) -> Scope | None:
    """The scope that the route of a request requires; None for a public one."""
    scope: Scope | None = (request.scope["route"].openapi_extra or {}).get(SCOPE)
    return scope


CALLER = "caller"

GRANT = "admitted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """The credential that authorized a request."""

    key: ApiKey | None = None
    """The key; None for a token, or where the service requires no credential."""
    token_end_seconds: float | None = None
    """Expiry of the token [second since 1970]; None without a token."""
    scope: Scope


def caller_of(request: Request) -> Caller:
    caller: Caller = request.scope["state"].get(CALLER, UNRESTRICTED)
    return caller


async def _caller(request: Request) -> Caller:
    return caller_of(request)


CallerDep = Annotated[Caller, Depends(_caller)]

CHALLENGE = 'Bearer realm="traincost"'

NO_KEY = "this service asks for a key; send it as Authorization: Bearer KEY, from a sheet as key=KEY in the address"
UNKNOWN_KEY = (
    "this key is not known here: was it copied whole, and made in this service's own database (traincost keys list)?"
)
KEY_IN_ADDRESS = (
    "an address is kept in histories and logs, so only a key whose one scope is sheet may stand in it; "
    "send this one as Authorization: Bearer KEY"
)

SHARE_LINK_CALLER = Caller(id="share link", owner="", sees_all=True)
"""Caller with a share link, which is valid for one scenario."""

ANONYMOUS = Caller(owner="")
"""Caller of a public operation of a service with keys: they see the shared rows."""


class AccessDenied(ApiError):
    """Access denied: 401 without a valid credential, 403 without the required scope."""


async def authorize(request: Request) -> ApiKey | None:
    """Authenticate and authorize the caller of a request; return their key, if they have one."""
    credential, scope, state = presented_by(request.scope), required_scope(request), request.app.state
    if credential.share is not None and accepts(request.scope["route"].openapi_extra, SHARE_LINK):
        await _check_share_link(request, credential.share)
        request.scope["state"][CALLER] = SHARE_LINK_CALLER
    elif scope is not None and is_locked(state.keys, state.tokens):
        identity = await _identify(state.keys, state.tokens, credential)
        request.scope["state"][CALLER] = identity.caller
        request.scope["state"][GRANT] = Grant(
            key=identity.key, token_end_seconds=identity.token_end_seconds, scope=scope
        )
        if scope == "write" and request.method not in {"GET", "HEAD"}:
            begin_audit(request, identity.caller)
        if credential.bearer is None and set(identity.scopes) != {"sheet"}:
            raise _forbidden(KEY_IN_ADDRESS, "sheet")
        if not does_allow(identity.scopes, scope):
            what = "token" if identity.key is None else "key"
            raise _forbidden(f"this needs a {what} with the scope {scope}, which this one has not", scope)
        if identity.key is not None:
            state.keys.note_use(identity.key, datetime.now(UTC))
        return identity.key
    elif scope is not None:
        request.scope["state"][GRANT] = Grant(scope=scope)
        if scope == "write" and request.method not in {"GET", "HEAD"}:
            begin_audit(request, caller_of(request))
    elif is_locked(state.keys, state.tokens):
        request.scope["state"][CALLER] = ANONYMOUS
    return None


def is_locked(ring: KeyRing, tokens: TokenVerifier | None) -> bool:
    """Whether callers have to authenticate."""
    return tokens is not None or ring.is_locked


async def _identify(ring: KeyRing, tokens: TokenVerifier | None, credential: Presented) -> Identity:
    sent = credential.key if credential.bearer is None else credential.bearer
    if sent is None:
        raise unauthorized(NO_KEY, "")
    if tokens is not None and is_token(sent):
        try:
            return await tokens.verify(sent)
        except InvalidToken as error:
            raise unauthorized(str(error)) from None
    key = ring.find(sent)
    if key is None:
        raise unauthorized(UNKNOWN_KEY)
    status = key_status(key, datetime.now(UTC))
    if status != "active":
        raise unauthorized(inactive_key_reason(status))
    return Identity(Caller(id=key.id, owner=key.owner, sees_all="admin" in key.scopes), key.scopes, key)


def inactive_key_reason(status: str) -> str:
    """Message for a revoked or expired key."""
    return f"the key {'was revoked' if status == 'revoked' else 'has expired'}; ask for another"


async def _check_share_link(request: Request, share: str) -> None:
    """Reject a share link that is not genuine, has ended or was revoked."""
    state = request.app.state
    if state.keys.signing_secret is None:
        await state.signing_secret_refresh.refresh()  # another process may have created it a moment ago
    now = datetime.now(UTC)
    link = verify_link(state.keys, request.path_params["scenario_id"], share, now)
    if isinstance(link, str):
        raise unauthorized(link)
    if link.id is not None:
        reason = await run_in_threadpool(revocation_reason, state.engine, link.id)
        if reason is not None:
            raise unauthorized(reason)
        state.keys.record_link_use(link.id, now)


def unauthorized(detail: str, error: str = ', error="invalid_token"') -> AccessDenied:
    """The 401 of a caller without a valid credential."""
    return AccessDenied("unauthorized", detail, {"WWW-Authenticate": f"{CHALLENGE}{error}"})


def _forbidden(detail: str, scope: Scope) -> AccessDenied:
    challenge = f'{CHALLENGE}, error="insufficient_scope", scope="{scope}"'
    return AccessDenied("forbidden", detail, {"WWW-Authenticate": challenge})
