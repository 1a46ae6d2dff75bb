"""Which version of a library is this, and is it old or new enough?"""

import re
from dataclasses import dataclass

READABLE = re.compile(r"\d{1,4}(\.\d{1,4}){0,3}")

LAST_MONTH = 12


def is_version(text: str) -> bool:
    """Whether a text names a version: numbers with dots between them.

    Args:
        text: what was given

    Returns:
        True for 2.11 and 0.14.1

    >>> is_version("2.11"), is_version("newest")
    (True, False)
    """
    return READABLE.fullmatch(text) is not None


def is_year_and_month(version: str, first_year: int) -> bool:
    """Whether a version is a year and a month.

    Args:
        version: numbers with dots between them
        first_year: the earliest year that there is [1]

    Returns:
        True for 2025.6

    >>> [is_year_and_month(version, 2023) for version in ("2025.6", "2025.13", "2025", "0.2")]
    [True, False, False, False]
    """
    year, month, *_ = (*_numbers(version), 0)
    return year >= first_year and 1 <= month <= LAST_MONTH


def at_least(version: str | None, first: str) -> bool:
    """Whether a version is not older than another; a version that is not told is the newest.

    Args:
        version: the version, None where it is not told
        first: the oldest that will do

    Returns:
        True where it will do

    >>> at_least("2.11", "2.3"), at_least("2.2", "2.3"), at_least(None, "2.3")
    (True, False, True)
    """
    return version is None or _numbers(version) >= _numbers(first)


@dataclass(frozen=True, slots=True)
class Range:
    """Versions from one on and before another."""

    first: str
    """The oldest that will do."""
    end: str | None = None
    """The oldest that will not do any more; none where None."""

    def holds(self, version: str | None) -> bool:
        """Whether a version is in the range; one that is not told is."""
        too_new = version is not None and self.end is not None and at_least(version, self.end)
        return at_least(version, self.first) and not too_new


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split("."))
