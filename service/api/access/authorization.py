"""Authorisation: keys, tokens and share links, decided in memory before a route runs.

The tables of scopes name every POST, because a POST may read or change; GET reads, and PUT, PATCH and DELETE change.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, NamedTuple, Protocol

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool

from service.api.access.audit import begin_audit
from service.api.access.credentials import Presented, presented_by
from service.api.access.key_rules import does_allow, key_status
from service.api.access.share_links import PARAMETER, revocation_reason, verify_link
from service.api.errors import ApiError
from service.api.openapi import Schema
from service.errors import TraincostError
from service.store import ApiKey, KeyRing, Scope
from service.store.keys import ANYBODY, Caller

ISSUER_AWAY = "the issuer of tokens does not say with which key this one is signed; ask again"


class InvalidToken(TraincostError):
    """A token is none, is another service's, or holds no longer."""


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    """Who sent a token."""

    caller: Caller
    """Who it is."""
    scopes: Collection[Scope]
    """What the token allows."""
    end_seconds: float
    """When it expires [second since 1970]."""


class TokenVerifier(Protocol):
    """What judges tokens."""

    async def verify(self, token: str) -> VerifiedToken:
        """Who sent a token; WrongToken where it is none that holds here and now."""


def is_token(sent: str) -> bool:
    """Whether what a caller sends is a token and not a key.

    >>> is_token("tck_a.b"), is_token("a.b.c")
    (False, True)
    """
    return sent.count(".") == 2


SINGULAR: Mapping[str, str] = {
    "models": "Model",
    "gpus": "Gpu",
    "clusters": "Cluster",
    "prices": "Price",
    "rate-cards": "RateCard",
    "regions": "Region",
}
"""What one row of a list is called in the names of schemas and operations."""

PUBLIC_OPERATIONS = frozenset({"getHealth", "getReadiness", "createAdmissionReview"})
"""Operations that ask for no key: probes send none, and the address of the webhook holds a secret of its own."""

SHEET_OPERATIONS = frozenset({
    "getCell", "getCellReason", "getCellTable", "getCellXml", "getScenarioAsOds", "getScenarioAsXlsx",
})  # fmt: skip
"""Operations for which a sheet key is enough, in the query too, for a sheet can send nothing else."""

SHAREABLE_OPERATIONS = frozenset({"getScenario", "getScenarioAsOds", "getScenarioAsXlsx"})
"""Operations that a link opens which the service signed for that scenario."""

WORKER_OPERATIONS = frozenset({"claimJob", "finishJob", "getSweepContent", "keepJob", "keepJobFile"})
"""Operations that only workers have a use for."""

ADMIN_OPERATIONS = frozenset({"listAuditRecords", "listAuditRecordsAsCsv", "listAuditRecordsAsXlsx"})
"""Operations that look after the service."""

WRITER_OPERATIONS = frozenset({"listShares"})
"""Operations that change nothing, and need what the changes need that they are about."""

SCOPE_OF_METHOD: Mapping[str, Scope] = {"GET": "read", "PUT": "write", "PATCH": "write", "DELETE": "write"}

SCOPE_OF_POST: Mapping[str, Scope] = {
    "cancelLaunchCheck": "write",
    "cancelSweep": "write",
    "createBatch": "read",
    "createCalibration": "write",
    "createCheck": "read",
    "createComparison": "read",
    "createComparisonAsCsv": "read",
    "createComparisonAsXlsx": "read",
    "createDiagnosis": "read",
    "createEstimate": "read",
    "createExport": "read",
    "createFlop": "read",
    "createGpuHours": "read",
    "createImport": "read",
    "createKubernetesCheck": "read",
    "createLaunchCheck": "write",
    "createMemory": "read",
    "createPlans": "read",
    "createReconciliation": "write",
    "createScenario": "write",
    "createSensitivity": "read",
    "createSensitivityAsCsv": "read",
    "createSensitivityAsXlsx": "read",
    "createSlurmCheck": "read",
    "createSolution": "read",
    "createSweep": "write",
    "createTimeline": "read",
    "importMeasurementFile": "write",
    "importMeasurements": "write",
    "importModel": "write",
    "importPrices": "write",
    "resumeSweep": "write",
    "promoteCalibration": "write",
    "quarantineMeasurements": "write",
    "releaseMeasurements": "write",
    "retireCalibration": "write",
    "rollBackCalibration": "write",
    "shareScenario": "write",
    **{f"create{singular}": "write" for singular in SINGULAR.values()},
}
"""What asks a question writes nothing, whatever its method."""

KEY, SHEET_KEY, SHARE_LINK = "key", "sheetKey", "shareLink"

SCOPE = "x-scope"
"""Where an operation of the contract says which scope its caller needs: only OAuth has scopes among its schemes."""

SECURITY_SCHEMES: Schema = {
    KEY: {
        "type": "http",
        "scheme": "bearer",
        "description": "A key that `traincost keys create` made, or a token of the OpenID Connect provider that the "
        "service is set up with, with a scope that allows the operation's x-scope. A service with neither asks for "
        "none.",
    },
    SHEET_KEY: {
        "type": "apiKey",
        "in": "query",
        "name": "key",
        "description": "A key whose only scope is sheet, for programs that send an address and nothing else.",
    },
    SHARE_LINK: {
        "type": "apiKey",
        "in": "query",
        "name": PARAMETER,
        "description": "A signature for one scenario, which links of POST /v1/scenarios/{scenario_id}/share hold.",
    },
}


def required_scope(operation_id: str | None, method: str) -> Scope | None:
    """The scope that an operation needs."""
    if operation_id is None or operation_id in PUBLIC_OPERATIONS:
        return None
    if operation_id in SHEET_OPERATIONS:
        return "sheet"
    if operation_id in WORKER_OPERATIONS:
        return "worker"
    if operation_id in ADMIN_OPERATIONS:
        return "admin"
    if operation_id in WRITER_OPERATIONS:
        return "write"
    return SCOPE_OF_POST[operation_id] if method == "POST" else SCOPE_OF_METHOD[method]


def is_rate_limited(operation_id: str | None, method: str) -> bool:
    """Whether requests for an operation are counted, and refused where they are too many."""
    return required_scope(operation_id, method) is not None


def security_requirement(operation_id: str, method: str) -> Schema:
    """What the contract says that an operation needs."""
    scope = required_scope(operation_id, method)
    if scope is None:
        return {"security": []}
    in_query = [
        name
        for name, operations in ((SHEET_KEY, SHEET_OPERATIONS), (SHARE_LINK, SHAREABLE_OPERATIONS))
        if operation_id in operations
    ]
    return {"security": [{name: []} for name in (KEY, *in_query)], SCOPE: scope}


CALLER = "caller"
"""Name of who asks in the state of the request."""

GRANT = "admitted"
"""Name of what let a request in, in its state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What let a request in."""

    key: ApiKey | None = None
    """The key; None where a token did, or the service asked for neither."""
    token_end_seconds: float | None = None
    """When the token expires [second since 1970]; None where a key let it in, or nothing had to."""
    scope: Scope
    """What the request needs."""


def caller_of(request: Request) -> Caller:
    """Who sent a request."""
    found: Caller = request.scope["state"].get(CALLER, ANYBODY)
    return found


async def _caller(request: Request) -> Caller:
    return caller_of(request)


CallerDep = Annotated[Caller, Depends(_caller)]
"""Argument of a route that reads or changes what belongs to somebody."""


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
"""Whoever has a link that the service signed; it was signed for the one scenario that they read."""


ANONYMOUS = Caller(owner="")
"""Whoever asks what needs no key of a service that otherwise asks for one: they see what everyone does."""


class AccessDenied(ApiError):
    """The caller may not do this: 401 where nobody is known to ask, 403 where somebody is who may not."""


class _Identity(NamedTuple):
    """Somebody who is known, before it is asked what they may do."""

    caller: Caller
    scopes: Collection[Scope]
    key: ApiKey | None
    token_end_seconds: float | None


async def authorize(request: Request) -> ApiKey | None:
    """Let a request through where its caller may do it."""
    operation_id, presented = request.scope["route"].operation_id, presented_by(request.scope)
    scope, state = required_scope(operation_id, request.method), request.app.state
    if operation_id in SHAREABLE_OPERATIONS and presented.share is not None:
        await _check_share_link(request, presented.share)
        request.scope["state"][CALLER] = SHARE_LINK_CALLER
    elif scope is not None and is_locked(state.keys, state.tokens):
        known = await _identify(state.keys, state.tokens, presented)
        request.scope["state"][CALLER] = known.caller
        request.scope["state"][GRANT] = Grant(key=known.key, token_end_seconds=known.token_end_seconds, scope=scope)
        if scope == "write" and request.method not in {"GET", "HEAD"}:
            begin_audit(request, known.caller)
        _check_scope(known, presented, scope)
        if known.key is not None:
            state.keys.note_use(known.key, datetime.now(UTC))
        return known.key
    elif scope is not None:
        request.scope["state"][GRANT] = Grant(scope=scope)
        if scope == "write" and request.method not in {"GET", "HEAD"}:
            begin_audit(request, caller_of(request))
    elif is_locked(state.keys, state.tokens):
        request.scope["state"][CALLER] = ANONYMOUS
    return None


def is_locked(ring: KeyRing, tokens: TokenVerifier | None) -> bool:
    """Whether callers have to say who they are."""
    return tokens is not None or ring.is_locked


async def _identify(ring: KeyRing, tokens: TokenVerifier | None, presented: Presented) -> _Identity:
    sent = presented.key if presented.bearer is None else presented.bearer
    if sent is None:
        raise unauthorized(NO_KEY, "")
    if tokens is not None and is_token(sent):
        try:
            bearer = await tokens.verify(sent)
        except InvalidToken as wrong:
            raise unauthorized(str(wrong)) from None
        return _Identity(bearer.caller, bearer.scopes, None, bearer.end_seconds)
    key = ring.find(sent)
    if key is None:
        raise unauthorized(UNKNOWN_KEY)
    standing = key_status(key, datetime.now(UTC))
    if standing != "active":
        raise unauthorized(inactive_key_reason(standing))
    return _Identity(Caller(id=key.id, owner=key.owner, sees_all="admin" in key.scopes), key.scopes, key, None)


def inactive_key_reason(standing: str) -> str:
    """Why a key that is revoked or expired lets nobody in."""
    return f"the key {'was revoked' if standing == 'revoked' else 'has expired'}; ask for another"


def _check_scope(known: _Identity, presented: Presented, scope: Scope) -> None:
    if presented.bearer is None and set(known.scopes) != {"sheet"}:
        raise _forbidden(KEY_IN_ADDRESS, "sheet")
    if not does_allow(known.scopes, scope):
        what = "token" if known.key is None else "key"
        raise _forbidden(f"this needs a {what} with the scope {scope}, which this one has not", scope)


async def _check_share_link(request: Request, share: str) -> None:
    """Refuse a link that the service did not sign, or that has ended."""
    state = request.app.state
    if state.keys.signing_secret is None:
        await state.signing_secret_refresh.refresh()  # another process may have made it a moment ago
    now = datetime.now(UTC)
    opened = verify_link(state.keys, request.path_params["scenario_id"], share, now)
    if isinstance(opened, str):
        raise unauthorized(opened)
    if opened.id is not None:
        reason = await run_in_threadpool(revocation_reason, state.engine, opened.id)
        if reason is not None:
            raise unauthorized(reason)
        state.keys.note_opening(opened.id, now)


def unauthorized(detail: str, why: str = ', error="invalid_token"') -> AccessDenied:
    """The refusal of a caller who is not known, or not any more."""
    return AccessDenied("unauthorized", detail, {"WWW-Authenticate": f"{CHALLENGE}{why}"})


def _forbidden(detail: str, scope: Scope) -> AccessDenied:
    challenge = f'{CHALLENGE}, error="insufficient_scope", scope="{scope}"'
    return AccessDenied("forbidden", detail, {"WWW-Authenticate": challenge})
