"""How is one scenario shared with somebody who has no key? By a link that the service signed, until it expires.

What is signed is the scheme, the scenario and the end: a changed part makes another signature necessary.
"""

from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from hmac import compare_digest, digest
from typing import Annotated, Any, ClassVar

from annotated_types import Interval, Len

from service.answers.shares import Share, ShareLinks
from service.errors import Problem, Refused
from service.estimator.noun import STRICT
from service.store import Engine, KeyRing, note, utc_text
from service.workflows.callers import Caller
from service.workflows.nouns import read_noun
from service.workflows.scenarios import PATH, find_scenario

SCHEME = "1"
"""Version of what is signed, and how."""
PARAMETER = "share"
DEFAULT_DAYS = 30
MOST_DAYS = 366


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedShare:
    """For how long a scenario is to be shared."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    days: Annotated[int, Interval(ge=1, le=MOST_DAYS)] | None = None
    """Days from now; 30 where neither is given."""
    expires_at: Annotated[str, Len(1, 40)] | None = None
    """When it ends, as RFC 3339 has it, at most 366 days from now; instead of days."""


def share_scenario(
    engine: Engine, keys: KeyRing, caller: Caller, scenario_id: str, body: Mapping[str, Any], address: str
) -> Share:
    """Links that show a scenario to whoever has them.

    Args:
        engine: the database
        keys: what signs
        caller: who shares it
        scenario_id: its id
        body: days, or expires_at
        address: where the service is

    Returns:
        the links

    Raises:
        NotFound: the caller has no such scenario
        Refused: the end is none
    """
    expires_at = _end(body, datetime.now(UTC))
    find_scenario(engine, caller, scenario_id)
    note(engine, scenario_id)
    token = signed(keys.make_signing_secret(), scenario_id, int(expires_at.timestamp()))
    forms = (f"{address}{PATH}/{scenario_id}{ending}?{PARAMETER}={token}" for ending in ("", ".xlsx", ".ods"))
    return Share(utc_text(expires_at), ShareLinks(*forms))


def signed(secret: bytes, scenario_id: str, end: int) -> str:
    """What a link holds that lets its reader in.

    Args:
        secret: what signs
        scenario_id: which scenario it shows
        end: when it ends, in seconds since 1970

    Returns:
        scheme, end and signature
    """
    signature = digest(secret, f"{SCHEME} {scenario_id} {end}".encode(), sha256)
    return f"{SCHEME}.{end}.{urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def refusal_of(secret: bytes | None, scenario_id: str, token: str, moment: datetime) -> str | None:
    """Why a link does not let its reader in.

    Args:
        secret: what signs; None where nothing was ever signed
        scenario_id: the scenario that is asked for
        token: what the link holds
        moment: now

    Returns:
        the reason; None where it does
    """
    _, _, rest = token.partition(".")
    told, _, _ = rest.partition(".")
    end = int(told) if told.isascii() and told.isdigit() and len(told) <= LONGEST_END else 0
    genuine = signed(secret or b"", scenario_id, end)
    if secret is None or not compare_digest(genuine.encode(), token.encode(errors="replace")):
        return "the link is none that this service signed for this scenario; look for a part of it that is missing"
    if end <= moment.timestamp():
        return f"the link ended at {utc_text(datetime.fromtimestamp(end, UTC))}; ask for another"
    return None


LONGEST_END = 11
"""Digits of a moment in seconds: enough until the year 5138, and few enough to be computed with."""


def _end(body: Mapping[str, Any], moment: datetime) -> datetime:
    wanted = read_noun(WantedShare, body, "")
    if wanted.days is not None and wanted.expires_at is not None:
        message = "days and expires_at both say when the link ends"
        raise Refused(Problem(field="expires_at", code="not_with_days", message=message, fix="give one of them"))
    if wanted.expires_at is None:
        return moment + timedelta(days=wanted.days or DEFAULT_DAYS)
    try:
        end = datetime.fromisoformat(wanted.expires_at)
        is_near = moment < end <= moment + timedelta(days=MOST_DAYS)
    except (ValueError, TypeError, OverflowError):  # no moment, or one that does not say in which time zone it is
        message = "expires_at is no moment of RFC 3339 with its offset from UTC"
        fix = f"write it as {utc_text(moment + timedelta(days=DEFAULT_DAYS))}"
        raise Refused(Problem(field="expires_at", code="not_a_moment", message=message, fix=fix)) from None
    if not is_near:
        message = f"expires_at is over already, or more than {MOST_DAYS} days from now"
        raise Refused(
            Problem(field="expires_at", code="out_of_range", message=message, fix="choose a moment in between")
        )
    return end
