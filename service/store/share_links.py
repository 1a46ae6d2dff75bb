"""Share links of scenarios, a row for each, and their signing secrets.

A link is valid while its row exists, is not revoked, and the key that created it is not revoked either.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from secrets import token_bytes
from typing import Any

from sqlalchemy import Connection, Engine, Select, bindparam, delete, func, insert, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from service.store.audit import log_change_in
from service.store.engine import answering, reading, writing
from service.store.queries import in_utc
from service.store.tables import API_KEYS, SERVER_SECRETS, SHARE_LINKS

LINKS = "listed share links"
UNLISTED_LINKS = "share links"
"""Name of the signing secret of earlier versions, whose links have no row; without it they are not valid."""
SECRET_BYTES = 32
_INSERT: Mapping[str, Any] = {"postgresql": postgresql.insert, "sqlite": sqlite.insert}


def make_signing_secret(engine: Engine) -> bytes:
    """The signing secret of links, created where there is none."""
    fresh = token_bytes(SECRET_BYTES)
    made = {"name": LINKS, "secret": fresh, "made_at": datetime.now(UTC)}
    with answering(), writing(engine) as connection:
        connection.execute(_INSERT[connection.dialect.name](SERVER_SECRETS).values(made).on_conflict_do_nothing())
        secret = signing_secret_in(connection)
    return fresh if secret is None else secret


def signing_secret_in(connection: Connection) -> bytes | None:
    """The signing secret of links; None where no link was ever created."""
    return signing_secrets_in(connection).get(LINKS)


def signing_secrets_in(connection: Connection) -> Mapping[str, bytes]:
    """The current and former signing secrets of links, by name."""
    query = select(SERVER_SECRETS.c.name, SERVER_SECRETS.c.secret)
    return {name: secret for name, secret in connection.execute(query) if name in {LINKS, UNLISTED_LINKS}}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareLink:
    """A link that shows one scenario."""

    id: str
    """Its id, which is part of the link."""
    scenario_id: str
    """The scenario that it shows."""
    made_by: str | None
    """Public part of the key, or subject of the token, that created it; None where the service required none."""
    created_at: datetime
    expires_at: datetime
    revoked_at: datetime | None = None
    """Revocation of the link or of its key, whichever came first."""
    last_used_at: datetime | None = None
    """To a minute."""


def create_share_link(engine: Engine, link: ShareLink, most: int) -> bool:
    """Store a new link, unless its scenario has too many; ended ones are removed first."""
    of_scenario = SHARE_LINKS.c.scenario_id == link.scenario_id
    ended = or_(SHARE_LINKS.c.revoked_at.is_not(None), SHARE_LINKS.c.expires_at <= link.created_at)
    counted = select(func.count()).select_from(SHARE_LINKS).where(of_scenario)
    with answering(), writing(engine) as connection:
        if connection.execute(counted).scalar_one() >= most:
            connection.execute(delete(SHARE_LINKS).where(of_scenario, ended))
            if connection.execute(counted).scalar_one() >= most:
                return False
        connection.execute(insert(SHARE_LINKS), asdict(link))
        log_change_in(connection, f"{link.scenario_id}/{link.id}")
    return True


def read_share_links(engine: Engine, scenario_id: str | None = None) -> list[ShareLink]:
    """The links of a scenario, or of all, oldest first."""
    query = _selected().order_by(SHARE_LINKS.c.created_at, SHARE_LINKS.c.id)
    if scenario_id is not None:
        query = query.where(SHARE_LINKS.c.scenario_id == scenario_id)
    with answering(), reading(engine) as connection:
        return [_link(row) for row in connection.execute(query).mappings()]


def read_share_link(engine: Engine, link_id: str) -> ShareLink | None:
    """One link; None where there is none of this id."""
    with answering(), reading(engine) as connection:
        row = connection.execute(_selected().where(SHARE_LINKS.c.id == link_id)).mappings().one_or_none()
    return None if row is None else _link(row)


def revoke_share_link(engine: Engine, link_id: str, moment: datetime, scenario_id: str | None = None) -> bool:
    """Revoke a link; a revoked one stays as it is."""
    is_meant = [SHARE_LINKS.c.id == link_id]
    if scenario_id is not None:
        is_meant.append(SHARE_LINKS.c.scenario_id == scenario_id)
    with answering(), writing(engine) as connection:
        found = connection.execute(select(SHARE_LINKS.c.scenario_id).where(*is_meant)).scalar_one_or_none()
        if found is None:
            return False
        still = update(SHARE_LINKS).where(*is_meant, SHARE_LINKS.c.revoked_at.is_(None))
        if connection.execute(still.values(revoked_at=moment)).rowcount:
            log_change_in(connection, f"{found}/{link_id}")
    return True


def revoke_unlisted_links(engine: Engine) -> bool:
    """Revoke every link without a row; false where none is valid."""
    with answering(), writing(engine) as connection:
        gone = connection.execute(delete(SERVER_SECRETS).where(SERVER_SECRETS.c.name == UNLISTED_LINKS)).rowcount
        if gone:
            log_change_in(connection, "unlisted")
    return bool(gone)


def write_link_uses_in(connection: Connection, used: Mapping[str, datetime]) -> None:
    """Write when links were last used, unless a later moment is stored."""
    last = SHARE_LINKS.c.last_used_at
    marking = update(SHARE_LINKS).where(
        SHARE_LINKS.c.id == bindparam("link"), or_(last.is_(None), last < bindparam("moment"))
    )
    given = [{"link": link_id, "moment": moment} for link_id, moment in sorted(used.items())]
    connection.execute(marking.values(last_used_at=bindparam("moment")), given)


def _selected() -> Select[Any]:
    return select(SHARE_LINKS, API_KEYS.c.revoked_at.label("key_revoked_at")).join_from(
        SHARE_LINKS, API_KEYS, SHARE_LINKS.c.made_by == API_KEYS.c.id, isouter=True
    )


def _link(row: Mapping[Any, Any]) -> ShareLink:
    values = {name: row[name] for name in ShareLink.__dataclass_fields__}
    moments = {name: in_utc(values[name]) for name in ("created_at", "expires_at", "last_used_at")}
    revoked = [moment for moment in (in_utc(row["revoked_at"]), in_utc(row["key_revoked_at"])) if moment]
    return ShareLink(**{**values, **moments, "revoked_at": min(revoked, default=None)})
