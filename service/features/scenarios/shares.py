"""Links that show one scenario without a key, until they expire or are revoked.

The signature covers the scheme, the scenario, the id of the link and its end. The row of the id says whether it was
revoked. Links of earlier versions have no id; they are valid until they expire, or until all are revoked at once.
"""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from secrets import token_urlsafe
from typing import Any

from service.answers.shares import ListedShare, Share, ShareLinks, ShareList, ShareStatus
from service.api.access.credentials import PARAMETER, signed
from service.errors import NotFound, Problem, Refused
from service.features.scenarios.scenarios import PATH, find_scenario
from service.features.scenarios.schemas import MOST_DAYS, ShareRequest
from service.store import Engine
from service.store.engine import utc_text
from service.store.keys import Caller, KeyRing, ShareLink, create_share_link, read_share_links, revoke_share_link
from service.tabular.lists import Record
from service.validation.reading import read_spec

ID_BYTES = 9
MOST_LINKS = 1000
"""Most links of a scenario. Source: a choice; far more than readers, and few enough for one list."""
DEFAULT_DAYS = 30


def share_scenario(
    engine: Engine, keys: KeyRing, caller: Caller, scenario_id: str, body: Mapping[str, Any], address: str
) -> Share:
    """Create share links of a scenario."""
    now = datetime.now(UTC)
    end = _end(body, now).replace(microsecond=0)
    find_scenario(engine, caller, scenario_id)
    link = ShareLink(
        id=f"shr_{token_urlsafe(ID_BYTES)}",
        scenario_id=scenario_id,
        made_by=caller.id or None,
        created_at=now,
        expires_at=end,
    )
    if not create_share_link(engine, link, MOST_LINKS):
        message = f"the scenario has {MOST_LINKS} links that hold, the most that one may have"
        raise Refused(Problem(field="", code="too_many_shares", message=message, fix="revoke some of them"))
    token = signed(keys.make_signing_secret(), link.id, scenario_id, int(end.timestamp()))
    forms = (f"{address}{PATH}/{scenario_id}{ending}?{PARAMETER}={token}" for ending in ("", ".xlsx", ".ods"))
    return Share(link.id, utc_text(end), ShareLinks(*forms))


def listed_shares(engine: Engine, caller: Caller, scenario_id: str) -> ShareList:
    """Links of a scenario; NotFound if the caller has no such scenario."""
    find_scenario(engine, caller, scenario_id)
    now = datetime.now(UTC)
    return ShareList(tuple(_listed_share(link, now) for link in read_share_links(engine, scenario_id)))


def revoke_share(engine: Engine, caller: Caller, scenario_id: str, share_id: str) -> None:
    """Revoke links; NotFound if the caller has no such scenario or the scenario no such links."""
    find_scenario(engine, caller, scenario_id)
    if not revoke_share_link(engine, share_id, datetime.now(UTC), scenario_id):
        raise NotFound(f"the scenario has no links of this id; GET {PATH}/{scenario_id}/shares lists the ids")


def share_records(engine: Engine, scenario_id: str | None = None) -> list[Record]:
    """Links of one or all scenarios, for the command."""
    now = datetime.now(UTC)
    links = read_share_links(engine, scenario_id)
    return [{"scenario": link.scenario_id, **asdict(_listed_share(link, now))} for link in links]


def _listed_share(link: ShareLink, moment: datetime) -> ListedShare:
    return ListedShare(
        id=link.id,
        status=_status(link, moment),
        made_by=link.made_by,
        created_at=utc_text(link.created_at),
        expires_at=utc_text(link.expires_at),
        revoked_at=None if link.revoked_at is None else utc_text(link.revoked_at),
        last_used_at=None if link.last_used_at is None else utc_text(link.last_used_at),
    )


def _status(link: ShareLink, moment: datetime) -> ShareStatus:
    if link.revoked_at is not None:
        return "revoked"
    return "expired" if link.expires_at <= moment else "active"


def _end(body: Mapping[str, Any], moment: datetime) -> datetime:
    requested = read_spec(ShareRequest, body, "")
    if requested.days is not None and requested.expires_at is not None:
        message = "days and expires_at both say when the link ends"
        raise Refused(Problem(field="expires_at", code="not_with_days", message=message, fix="give one of them"))
    if requested.expires_at is None:
        return moment + timedelta(days=requested.days or DEFAULT_DAYS)
    try:
        end = datetime.fromisoformat(requested.expires_at)
        is_near = moment < end <= moment + timedelta(days=MOST_DAYS)
    except (ValueError, TypeError, OverflowError):  # no moment, or one without a time zone
        message = "expires_at is no moment of RFC 3339 with its offset from UTC"
        fix = f"write it as {utc_text(moment + timedelta(days=DEFAULT_DAYS))}"
        raise Refused(Problem(field="expires_at", code="not_a_moment", message=message, fix=fix)) from None
    if not is_near:
        message = f"expires_at is over already, or more than {MOST_DAYS} days from now"
        raise Refused(
            Problem(field="expires_at", code="out_of_range", message=message, fix="choose a moment in between")
        )
    return end
