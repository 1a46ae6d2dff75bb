"""Share links: signed links to a scenario, with their expiry."""

from dataclasses import dataclass
from typing import Literal

from service.estimator.question import Documented


@dataclass(frozen=True, slots=True)
class ShareLinks(Documented):
    """Links that show a scenario to anyone who has them."""

    scenario: str
    """The scenario as JSON."""
    xlsx: str
    """Its budget as an Excel workbook."""
    ods: str
    """Its budget as an OpenDocument spreadsheet."""
    html: str
    """Its budget as a page to print."""


@dataclass(frozen=True, slots=True)
class Share(Documented):
    """A scenario that is shared."""

    id: str
    """Id of the links, by which they are listed and revoked."""
    expires_at: str
    """When the links end, in UTC."""
    links: ShareLinks
    """One link for each format of the scenario."""


ShareStatus = Literal["active", "expired", "revoked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedShare(Documented):
    """Share links of a scenario, as the list shows them."""

    id: str
    """Their id."""
    status: ShareStatus
    """Whether the links open the scenario. Revoking the key that made them revokes them, too."""
    made_by: str | None
    """Public part of the key, or subject of the token, that made them; null where the service requires none."""
    created_at: str
    """When they were made, in UTC."""
    expires_at: str
    """When they end, in UTC."""
    revoked_at: str | None
    """When they, or the key that made them, were revoked, in UTC; null where neither was."""
    last_used_at: str | None
    """When one of them was last opened, in UTC, to the minute; null where none was opened."""


@dataclass(frozen=True, slots=True)
class ShareList(Documented):
    """The links of a scenario."""

    items: tuple[ListedShare, ...]
    """Active links and, for some time, ended ones; the oldest first."""
