"""Values of the flat form: whole numbers, numbers, booleans and names, strictly read.

A spreadsheet joins a cell to a URL in its own locale, so `1.5` may arrive as `1,5`: a comma is refused
with a hint, never guessed at, unless the caller states that commas separate the decimals.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from math import isfinite
from typing import Literal

from service.errors import Problem, Refused

Form = Literal["integer", "integers", "number", "numbers", "truth", "text"]
DecimalMark = Literal[".", ","]
Value = int | float | bool | str

LIST_MARK = ";"
"""Separator of list values."""

MEMBER_MARK = ":"
"""Separates the numbers of a small object, as in 512:300."""

MOST_PARAMETERS = 4_096
"""Parameters of one query; a question has some hundred, and a list of 2,048 layers may be given as repeated keys."""

TOO_MANY = Problem(
    field="",
    code="too_many",
    message=f"more than {MOST_PARAMETERS} parameters are given",
    fix=f"give at most {MOST_PARAMETERS}, each field once",
)

NUMBER = re.compile(r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+ -]?[0-9]{1,4})?")
"""A decimal number; a plus sign after the e may be a space, which is what `+` means in a query string."""

LONGEST_NUMBER = 40
"""Characters of one number; the longest double has 24."""

LARGEST_EXPONENT = 40
"""Powers of ten in a whole number, far beyond the bounds of any field."""

TRUTHS = {"true": True, "1": True, "false": False, "0": False}
"""Spellings of booleans: 1 and 0 because a spreadsheet writes TRUE in the language of its user."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Description of a form, and the error code of other texts."""

    words: str
    code: str
    example: str = ""


EXPECTED: Mapping[Form, Expected] = {
    "integer": Expected("a whole number", "not_a_whole_number", ", e.g. 8 or 2e6"),
    "integers": Expected("whole numbers with : between them", "not_whole_numbers", ", e.g. 512:300"),
    "number": Expected("a number", "not_a_number", ", e.g. 2.5 or 15e12"),
    "numbers": Expected("numbers with : between them", "not_numbers", ", e.g. 9.8:10.3"),
    "truth": Expected("true or false", "not_true_or_false"),
    "text": Expected("a name", "not_text"),
}


def read_value(name: str, form: Form, text: str, mark: DecimalMark) -> Value:
    """Parse a value of the flat form."""
    expected = EXPECTED[form]
    if not text:
        raise Refused(_problem(name, "empty", f"{name} is empty", f"give {expected.words}, or leave {name} out"))
    if form == "text":
        return text
    value = TRUTHS.get(text.lower()) if form == "truth" else _number(name, form, text, mark)
    if value is None:
        several = "; for several values ask /v1/cell/table.csv" if LIST_MARK in text else ""
        fix = f"give {expected.words}{expected.example}{several}"
        raise Refused(_problem(name, expected.code, f"{name} is not {expected.words}", fix))
    return value


def read_members(
    name: str, form: Form, members: tuple[str, ...], text: str, mark: DecimalMark, *, required: int
) -> dict[str, int | float]:
    """The small object that a text of the flat form spells: a number for each of its fields."""
    parts = text.split(MEMBER_MARK)
    given = {
        member: part
        for index, (member, part) in enumerate(zip(members, parts, strict=False))
        if part or index < required
    }
    each_form: Form = "integer" if form == "integers" else "number"
    found = {member: _number(name, each_form, part, mark) for member, part in given.items()}
    numbers = {member: number for member, number in found.items() if number is not None}
    if required <= len(parts) <= len(members) and len(numbers) == len(given):
        return numbers
    expected = EXPECTED[form]
    each = f"one for each of {', '.join(members[:required])}"
    others = f", and for {', '.join(members[required:])} where given" if members[required:] else ""
    message = f"a value of {name} is not {expected.words}, {each}{others}"
    raise Refused(_problem(name, expected.code, message, f"give {MEMBER_MARK.join(members)}{expected.example}"))


def _number(name: str, form: Form, text: str, mark: DecimalMark) -> int | float | None:
    other = "," if mark == "." else "."
    if other in text:
        raise Refused(_wrong_mark(name, mark))
    plain = text.replace(",", ".")
    if len(plain) > LONGEST_NUMBER or not NUMBER.fullmatch(plain):
        return None
    plain = plain.replace(" ", "+")
    if form == "integer":
        return _whole(plain)
    number = float(plain)
    return number if isfinite(number) else None


def _whole(text: str) -> int | None:
    """The integer that a decimal number equals; None for fractions and absurdly large numbers."""
    number = Decimal(text)
    if number.adjusted() > LARGEST_EXPONENT or number != number.to_integral_value():
        return None
    return int(number)


def _wrong_mark(name: str, mark: DecimalMark) -> Problem:
    if mark == ",":
        message = f"{name} holds a point, but dec=, says that a comma stands before the decimals"
        return _problem(name, "decimal_point", message, "write the number with a comma, or leave dec out")
    message = f"{name} holds a comma; read as a mark between thousands it would be another number, so it is refused"
    fix = "write decimals with a point and lists with ; between the values (under /v1/cell, dec=, takes decimal commas)"
    return _problem(name, "decimal_comma", message, fix)


def _problem(name: str, code: str, message: str, fix: str) -> Problem:
    return Problem(field=name, code=code, message=message, fix=fix)
