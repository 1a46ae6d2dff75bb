"""Numbers and texts of cells that every spreadsheet reads alike, and that none runs as a formula.

A point means decimals in one locale and thousands in another: `1.234` becomes 1234 in a German
sheet, silently. A whole mantissa with a power of ten, `1234e-3`, is read alike everywhere.

A spreadsheet runs a cell that begins with = + - or @, also in fullwidth form, behind spaces or characters without
width, and behind a semicolon, a tab or a line break. A text counts as a formula where its compatibility form (NFKC)
begins so.
"""

import re
from collections.abc import Collection, Sequence
from decimal import Decimal
from typing import Literal

NumberStyle = Literal["e", ".", ","]
"""Mantissa and exponent, decimal point, or decimal comma."""

DIGITS = 15
"""Significant digits that every spreadsheet keeps."""


def number_text(value: float, style: NumberStyle = "e") -> str:
    """A number as the text of one cell: no unit, no mark between thousands, at most 15 significant digits.

    >>> number_text(71.25), number_text(80_000_000_000), number_text(7.2e23)
    ('7125e-2', '80000000000', '72e22')
    >>> number_text(71.25, "."), number_text(71.25, ",")
    ('71.25', '71,25')
    """
    decimal = Decimal(f"{value:.{DIGITS}g}")
    if not decimal:
        return "0"
    sign, digits, exponent = decimal.normalize().as_tuple()
    if style == "e" and not (isinstance(exponent, int) and 0 <= exponent <= DIGITS - len(digits)):
        return f"{'-' * sign}{''.join(map(str, digits))}e{exponent}"
    plain = _plain(decimal)
    return plain.replace(".", style) if style == "," else plain


def exact_text(value: float) -> str:
    """A number as a text that is read back as the same number: with a point, as few digits as tell it apart.

    >>> exact_text(0.1 + 0.2), exact_text(80.0), exact_text(2.5e-7)
    ('0.30000000000000004', '80', '0.00000025')
    """
    return _plain(Decimal(repr(value)))


def _plain(decimal: Decimal) -> str:
    text = f"{decimal:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


MARK = "'"
"""Prefix of such a text, after which spreadsheets read plain text."""
OPERATORS = (
    "=\u207c\u208c\u2a75\u2a76\ufe66\uff1d+\u207a\u208a\ufb29\ufe62\uff0b\\-\u207b\u208b\u2212\ufe63\uff0d@\ufe6b\uff20"
)
"""Characters that begin a formula, or become one of those when normalised, as a set of a pattern."""
DROPPED = (
    "\x00-\x08\x0b\x0c\x0e-\x20\x7f-\xa0\xad\u061c\u1680\u180e"
    "\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufe00-\ufe0f\ufeff"
)
"""Spaces, controls and characters without width, as a set of a pattern."""
BREAKS = "\t\r\n"
FORMULA = re.compile(rf"(?:\A|(?<=[;{BREAKS}])){MARK}*(?=[{DROPPED}]*[{OPERATORS}])|\A{MARK}*(?=[{BREAKS}])")
"""Where such a text begins, marked or not."""


def marked(text: str) -> str:
    r"""A text with a mark wherever a spreadsheet would begin a formula.

    >>> marked("=1+1"), marked("\uff1d1"), marked(" @x"), marked("a;-b"), marked("a-b")
    ("'=1+1", "'\uff1d1", "' @x", "a;'-b", 'a-b')
    """
    return FORMULA.sub(lambda begin: MARK + begin[0], text)


def unmarked(text: str) -> str:
    """The text that `marked` was given.

    >>> [unmarked(marked(text)) for text in ("=1+1", "'=1+1", "'90s", "plain", "x;=1;'-2")]
    ['=1+1', "'=1+1", "'90s", 'plain', "x;=1;'-2"]
    """
    return FORMULA.sub(lambda begin: begin[0].removeprefix(MARK), text)


def begins_formula(text: str) -> bool:
    """Whether a spreadsheet would run a text that someone enters into a cell."""
    return FORMULA.match(text) is not None


def aligned(rows: Sequence[Sequence[str]], *, right: Collection[int] = (), indent: str = "") -> list[str]:
    """Rows of cells as lines with aligned columns, those of the given numbers to the right.

    >>> aligned([("a", "bc"), ("def", "g")])
    ['a    bc', 'def  g']
    >>> aligned([("a", "bc"), ("def", "g")], right={1}, indent="  ")
    ['  a    bc', '  def   g']
    """
    aligners = [str.rjust if place in right else str.ljust for place in range(len(rows[0]))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        indent
        + "  ".join(align(*cell) for align, cell in zip(aligners, zip(row, widths, strict=True), strict=True)).rstrip()
        for row in rows
    ]
