"""Texts that a spreadsheet would run as a formula, and the mark that keeps it from doing so.

A spreadsheet runs a cell that begins with = + - or @. Programs with Asian input also take the fullwidth forms, and any
program may normalise a text first, so every character whose compatibility form (NFKC) is one of the four counts. So
does what stands behind spaces and characters without width, which programs drop, and behind a semicolon, a tab or a
line break, which one that does not read our quotes takes for the end of a cell.
"""

import re

MARK = "'"
"""Stands before such a text: spreadsheets take what follows as text."""
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
