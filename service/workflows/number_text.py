"""How is one number written so that every spreadsheet, in every locale, reads the number that the JSON holds?

A point means decimals in one locale and thousands in another: `1.234` becomes 1234 in a German
sheet, silently. A whole mantissa with a power of ten, `1234e-3`, is read alike everywhere.
"""

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

    Args:
        value: a finite number
        style: how what is not a whole number of at most 15 digits is written

    Returns:
        its text
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

    Args:
        value: a finite number

    Returns:
        its text
    """
    return _plain(Decimal(repr(value)))


def _plain(decimal: Decimal) -> str:
    text = f"{decimal:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
