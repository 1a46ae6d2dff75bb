"""How is money computed and rounded? In decimals of the numbers as they are written, each line to the cent.

A double such as 2.3 stands for the decimal that its shortest text spells; products of such decimals are exact, and
quotients keep 60 digits. Each line of a cost, at both ends of its interval too, is rounded once, to the cent, a half
to the even cent (ROUND_HALF_EVEN), and a sum of lines is the sum of the rounded ones. The answer holds the nearest
double.
"""

from collections.abc import Callable, Iterable
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext
from math import isfinite
from typing import Any

from service.estimator.interval import Interval

CENT = Decimal("0.01")

CONTEXT = Context(prec=60, rounding=ROUND_HALF_EVEN)
"""Digits enough for three doubles multiplied; a double has no cents from 1e16 on."""

MOST_DIGITS = 50
"""Digits before the point up to which an amount is rounded to the cent."""


def usd(formula: Callable[..., Any], *quantities: float) -> float:
    """What a formula of money gives, in decimals, to the cent.

    Formula:
        round(formula(decimals), 2), a half to the even cent

    Args:
        formula: one of `charges`
        quantities: its arguments, in order [1]

    Returns:
        the amount as the nearest double; what doubles give where one is not finite [USD]

    Source:
        ISO 4217 (USD has two decimals); General Decimal Arithmetic, round-half-even

    >>> usd(lambda hours, price: hours * price, 0.5, 2.33), usd(lambda hours, price: hours * price, 0.5, 2.35)
    (1.16, 1.18)
    """
    first, *rates = quantities
    return usd_of(formula, Interval(first, first, first, "exact"), tuple(rates)).value


def usd_of(formula: Callable[..., Any], quantity: Interval, rates: tuple[float, ...]) -> Interval:
    """What a formula of money gives for a quantity and both of its ends, each to the cent.

    Args:
        formula: one of `charges`; it grows with its first argument
        quantity: its first argument
        rates: its other arguments, in order

    Returns:
        the amount as `usd` rounds it
    """
    ends = (quantity.low, quantity.value, quantity.high)
    if not all(map(isfinite, (*ends, *rates))):
        low, value, high = (float(formula(end, *rates)) for end in ends)
        return Interval(low, value, high, quantity.basis)
    with localcontext(CONTEXT):
        held = tuple(map(_exact, rates))
        amounts = {end: _rounded(formula(_exact(end), *held)) for end in ends}
    return Interval(amounts[ends[0]], amounts[ends[1]], amounts[ends[2]], quantity.basis)


def _exact(number: float) -> Decimal:
    return Decimal(repr(float(number)))


def _rounded(amount: Decimal) -> float:
    return float(amount.quantize(CENT)) if amount.adjusted() < MOST_DIGITS else float(amount)


def sum_usd(lines: Iterable[float]) -> float:
    """The sum of amounts that are whole cents, itself whole cents.

    Formula:
        the sum of the decimals

    Args:
        lines: amounts [USD]

    Returns:
        the nearest double to the sum [USD]

    Source:
        definition

    >>> sum_usd([0.1, 0.2])
    0.3
    """
    amounts = tuple(lines)
    if not all(map(isfinite, amounts)):
        return sum(amounts)
    with localcontext(CONTEXT):
        return float(sum(map(_exact, amounts)))


def sum_of(lines: Iterable[Interval]) -> Interval:
    """The sum of amounts of money, end by end.

    Args:
        lines: amounts; at least one

    Returns:
        their sum
    """
    first, *others = lines
    if not others:
        return first
    low, value, high = (sum_usd(getattr(line, end) for line in (first, *others)) for end in ("low", "value", "high"))
    return Interval(low, value, high, first.basis)
