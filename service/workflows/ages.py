"""Is a price too old to budget on? Its age against the newest fact of the catalogue, never against a clock.

An answer must stay what it is under the same versions, so the age of a price is told by the catalogue alone: the days
between the last day that its date may mean and the first day that the date of the newest price or GPU may mean.
"""

from calendar import monthrange
from datetime import date

from service.catalogue import Catalogue

MOST_DAYS = 180
"""Age of a price from which an answer warns. Source: an assumption; AWS cut H100 list prices by 44 % in June 2025."""


def age_warnings(as_of: str | None, catalogue: Catalogue, instead: str) -> tuple[str, ...]:
    """What is said of a price that is old.

    Args:
        as_of: date at which it held; None where nobody says
        catalogue: the facts that it stands beside
        instead: field that gives a new one

    Returns:
        a sentence, if it is older than MOST_DAYS
    """
    if as_of is None:
        return ()
    newest = newest_as_of(catalogue)
    days = age_days(as_of, newest) if newest else 0
    if days <= MOST_DAYS:
        return ()
    return (
        f"the price is of {as_of}, at least {days} days older than the newest fact of this catalogue "
        f"({newest}): prices move, so ask for a new one and give {instead}",
    )


def newest_as_of(catalogue: Catalogue) -> str:
    """Date of the newest price or GPU of a catalogue.

    Args:
        catalogue: the facts

    Returns:
        its as_of; empty where there is neither
    """
    return max((catalogue.price_index.newest_as_of, *(row.as_of for row in catalogue.gpus.values())))


def age_days(as_of: str, newest: str) -> int:
    """Days by which one date is older than another, at least.

    Args:
        as_of: the older date: 2025, 2025-03 or 2025-03-17
        newest: the newer date, likewise

    Returns:
        days, from the last day that the first may mean to the first day that the second may mean

    >>> age_days("2025", "2026-03"), age_days("2026", "2026-11-21") <= 0
    (60, True)
    """
    return (_first_day(newest) - _last_day(as_of)).days


def _parts(text: str) -> list[int]:
    """Year, month and day as far as they are told; the calendar of Python has no year 0."""
    year, *rest = (int(part) for part in text.split("-"))
    return [max(year, 1), *rest]


def _first_day(text: str) -> date:
    year, month, day = (*_parts(text), 1, 1)[:3]
    return date(year, month, min(day, monthrange(year, month)[1]))


def _last_day(text: str) -> date:
    year, *rest = _parts(text)
    month = rest[0] if rest else 12
    last = monthrange(year, month)[1]
    return date(year, month, min(rest[1], last) if len(rest) > 1 else last)
