"""Which links show a scenario to whoever has them, and until when?"""

from dataclasses import dataclass
from typing import Any, ClassVar

from service.estimator.noun import SPOKEN


@dataclass(frozen=True, slots=True)
class ShareLinks:
    """Links that show a scenario to whoever has them."""

    __pydantic_config__: ClassVar[dict[str, Any]] = SPOKEN

    scenario: str
    """The scenario as JSON."""
    xlsx: str
    """Its budget as an Excel workbook."""
    ods: str
    """Its budget as an OpenDocument spreadsheet."""


@dataclass(frozen=True, slots=True)
class Share:
    """A scenario that is shared."""

    __pydantic_config__: ClassVar[dict[str, Any]] = SPOKEN

    expires_at: str
    """When the links end, in UTC."""
    links: ShareLinks
    """One for each form that the scenario has."""
