"""Provenance of a row: source, date, and how well the numbers were checked."""

import re
from dataclasses import dataclass, field
from typing import Annotated, Literal

from annotated_types import Interval, Len

from service.errors import StartupError
from service.estimator.question import Name

SHIPPED = "catalogue"
"""Owner of the shipped rows; the rows of any other owner are custom rows."""

Names = Annotated[tuple[Name, ...], Len(0, 64)]
Text = Annotated[str, Len(1, 2000)]
Note = Annotated[str, Len(0, 4000)]

Verified = Literal["yes", "partly", "no"]
Scope = Literal["owner", "everyone"]


DATE = re.compile(r"[0-9]{4}(?:-(?P<month>[0-9]{2})(?:-(?P<day>[0-9]{2}))?)?")
"""A year, a month or a day."""


class UnsoundFact(StartupError):
    """A row of facts that does not load: without source or date, contradicting another, or not a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where a row's numbers were read, when, and how well that was checked."""

    source: Text
    """Document, repository at a commit, or page; `from memory` where there is none."""
    as_of: Annotated[str, Len(4, 10)]
    """Date at which the numbers held or were read, as exact as it is known: 2025, 2025-03 or 2025-03-17."""
    verified: Verified
    """Whether the numbers were read in the source: yes, partly, or no (recalled)."""
    note: Note = ""
    """What to know before relying on the row."""
    owner: Name = field(default=SHIPPED, repr=False, compare=False)
    """Whose row it is: catalogue for those that come with the service, else a team's own."""
    revision: Annotated[int, Interval(ge=1, le=1 << 31)] = field(default=1, repr=False, compare=False)
    """How many versions of the row there have been, this one counted."""
    scope: Scope = field(default="owner", repr=False, compare=False)
    """Whose answers may rest on the row: its owner's alone, or everyone's, which only an admin can decide. Shipped rows
    are for everyone."""

    @property
    def is_for_everyone(self) -> bool:
        """Whether every caller sees the row: it is shipped, or an admin promoted it."""
        return self.owner == SHIPPED or self.scope == "everyone"

    @property
    def holds_for(self) -> Scope:
        """The scope as lists show it."""
        return "everyone" if self.is_for_everyone else "owner"

    def __post_init__(self) -> None:
        """Refuse a row without source or date."""
        if not self.source.strip():
            raise UnsoundFact("a row has no source; a number without a source does not load")
        if not is_date(self.as_of):
            raise UnsoundFact("a row has no as_of date; write 2025, 2025-03 or 2025-03-17")
        if self.verified not in ("yes", "partly", "no"):
            raise UnsoundFact("a row's verified is none of yes, partly, no")


def is_date(text: str) -> bool:
    """Whether a text is a date in the format of rows.

    >>> is_date("2025-03"), is_date("2025-3"), is_date("2025-13")
    (True, False, False)
    """
    parts = DATE.fullmatch(text)
    return parts is not None and 1 <= int(parts["month"] or 1) <= 12 and 1 <= int(parts["day"] or 1) <= 31
