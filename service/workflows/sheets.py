"""What is a spreadsheet file made of, whichever program reads it? Sheets of typed cells, some of them formulas.

A formula is written once, as Excel shows it in English; `excel_formula` and `open_formula` spell it as the two kinds of
files want it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

NEW_FUNCTIONS = frozenset({"WEBSERVICE", "ENCODEURL", "NUMBERVALUE"})
"""Functions that Excel files mark, because they are newer than the form of the file."""

MICROSOFT_FUNCTIONS = frozenset({"WEBSERVICE", "ENCODEURL"})
"""Functions that OpenFormula does not name, and spells by who made them."""

TOKEN = re.compile(
    r"""
    (?P<text>"[^"]*")
    | (?P<reference>(?:(?P<sheet>\w+)!)?(?P<place>\$?[A-Z]{1,2}\$?[0-9]+))
    | (?P<function>[A-Z]+)(?=\()
    | (?P<comma>,)
    """,
    re.VERBOSE,
)


Plain: TypeAlias = str | int | float
"""What a cell holds that is not worked out."""


@dataclass(frozen=True, slots=True)
class Formula:
    """A cell that is worked out."""

    text: str
    """The formula without its equals sign, as Excel shows it in English."""
    value: Plain = ""
    """What it comes to, shown until it is worked out again."""


@dataclass(frozen=True, slots=True)
class Heading:
    """A text that stands out."""

    text: str


Cell: TypeAlias = Plain | Formula | Heading | None


@dataclass(frozen=True, slots=True)
class Sheet:
    """One sheet."""

    name: str
    """What it is called; letters only, so that formulas can name it as it is."""
    rows: Sequence[Sequence[Cell]]
    """Its cells, row by row; None for an empty one."""
    widths: Sequence[int]
    """Characters that each column shows."""


def excel_formula(formula: str) -> str:
    """A formula as .xlsx files hold it.

    Args:
        formula: as Excel shows it in English

    Returns:
        the same, functions that came later marked

    >>> excel_formula('NUMBERVALUE(WEBSERVICE(Inputs!$B$4&"/x, y"),".",",")')
    '=_xlfn.NUMBERVALUE(_xlfn.WEBSERVICE(Inputs!$B$4&"/x, y"),".",",")'
    """

    def spell(token: re.Match[str]) -> str:
        return f"_xlfn.{token[0]}" if token["function"] in NEW_FUNCTIONS else token[0]

    return f"={TOKEN.sub(spell, formula)}"


def open_formula(formula: str) -> str:
    """A formula as OpenDocument files hold it.

    Args:
        formula: as Excel shows it in English

    Returns:
        the same in OpenFormula

    >>> open_formula('NUMBERVALUE(WEBSERVICE(Inputs!$B$4&$A5&"/x, y"),".",",")')
    'of:=NUMBERVALUE(COM.MICROSOFT.WEBSERVICE([$Inputs.$B$4]&[.$A5]&"/x, y");".";",")'
    """

    def spell(token: re.Match[str]) -> str:
        if token["comma"]:
            return ";"
        if token["reference"]:
            sheet = token["sheet"]
            return f"[{f'${sheet}' if sheet else ''}.{token['place']}]"
        return f"COM.MICROSOFT.{token[0]}" if token["function"] in MICROSOFT_FUNCTIONS else token[0]

    return f"of:={TOKEN.sub(spell, formula)}"
