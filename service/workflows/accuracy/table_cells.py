"""How are cells of a table for people written? Shares as percentages, columns of one width."""

from collections.abc import Sequence


def percent(share: float | None, *, digits: int = 1, signed: bool = False) -> str:
    """A share as a percentage.

    Args:
        share: the share; None for none
        digits: digits after the decimal point
        signed: whether a plus is written

    Returns:
        the text

    >>> percent(0.123), percent(-0.5, signed=True), percent(None)
    ('12.3 %', '-50.0 %', '-')
    """
    return "-" if share is None else f"{100 * share:{'+' if signed else ''}.{digits}f} %"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells as lines in which columns stand below each other.

    Args:
        rows: the cells, as many in each row

    Returns:
        the lines

    >>> aligned([("a", "bc"), ("def", "g")])
    ['a    bc', 'def  g']
    """
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
