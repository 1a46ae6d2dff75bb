"""Numbers and texts of cells that spreadsheets read alike and none runs as a formula, and CSV as they write it."""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from service.errors import MOST_PROBLEMS, Problem, Refused, did_you_mean, nearest, quoted
from service.estimator.question import Documented
from service.text_bounds import MOST_COLUMNS

NumberStyle = Literal["e", ".", ","]

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


DELIMITERS = (",", ";", "\t")
MOST_LINES = 10_000
QUOTE = '"'
HINT = "sep="
"""Prefix of a first line in which Excel names the separator of cells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(Documented):
    """What is wrong with one row of a table."""

    row: int
    """Its number, as a spreadsheet shows it: the header is row 1."""
    column: str
    """Which column; empty where it is the row as a whole."""
    code: str
    """Stable name of the broken rule."""
    message: str
    """What is wrong and why it matters."""
    fix: str
    """What to do about it."""


@dataclass(frozen=True, slots=True)
class Line:
    row: int
    """Its number, as a spreadsheet shows it."""
    cells: Mapping[str, str]
    """Its texts by column; empty ones are left out."""


@dataclass(frozen=True, slots=True)
class Table:
    """What a text holds."""

    lines: tuple[Line, ...]
    """Its rows, those without any text left out."""
    findings: tuple[Finding, ...]


def read_table(content: bytes, columns: Sequence[str], required: Sequence[str]) -> Table:
    """The table that a CSV text holds."""
    header, *rows = _rows(_decoded(content), columns)
    names = [name.strip().lower() for name in header]
    _refuse_header(names, columns, required)
    width = len(names)
    lines: list[Line] = []
    findings: list[Finding] = []
    for number, row in enumerate(rows, start=2):
        cells = row if any(row[width:]) else row[:width]  # empty cells behind the last column do not count
        if any(row) and len(cells) == width:
            texts = {name: unmarked(cell) for name, cell in zip(names, cells, strict=True) if cell}
            lines.append(Line(number, texts))
        elif any(row):
            message = (
                f"the row has {len(cells)} cells where the header has {width}, so it is unclear which cell is which"
            )
            fix = "give one cell for each column, between quotes where it holds what separates the cells"
            findings.append(Finding(row=number, column="", code="wrong_width", message=message, fix=fix))
    return Table(tuple(lines), tuple(findings))


def finding_of(row: int, problem: Problem) -> Finding:
    return Finding(row=row, column=problem.field, code=problem.code, message=problem.message, fix=problem.fix)


def _decoded(content: bytes) -> str:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _refusal("not_utf_8", "the body is not text in UTF-8", "save it as CSV UTF-8") from None
    if "\0" in text:
        raise _refusal("not_text", "the body holds a NUL, which no CSV does", "save it as CSV UTF-8")
    return text


def _split(text: str) -> tuple[str, str]:
    """The first line of a text and the rest, whichever of the three line ends it has."""
    first = io.StringIO(text, newline="").readline()
    return first.rstrip("\r\n"), text[len(first) :]


def _delimiter(header: str, columns: Sequence[str]) -> str:
    """The one character that makes the header a row of known columns; else the one that makes most of it so."""

    def known(delimiter: str) -> tuple[bool, int]:
        if header.count(delimiter) >= MOST_COLUMNS:
            return False, 0
        names = {name.strip().lower() for name in next(csv.reader([header], delimiter=delimiter), [])}
        return names <= {*columns}, len(names & {*columns})

    return max(DELIMITERS, key=known)


def _rows(text: str, columns: Sequence[str]) -> list[list[str]]:
    """The header and the rows below it."""
    first, rest = _split(text)
    is_hint = first.lower().startswith(HINT) and len(first) == len(HINT) + 1 and first[-1] != QUOTE
    text = rest if is_hint else text
    if not text.strip():
        raise _refusal("empty", "the body holds no row", "send a header row and at least one row below it")
    rows: list[list[str]] = []
    try:
        delimiter = first[-1] if is_hint else _delimiter(first, columns)
        count = _split(text)[0].count(delimiter) + 1
        if count > MOST_COLUMNS:  # before its names are compared with those that are known
            message = f"the header has {count} columns, and a table has at most {MOST_COLUMNS}"
            raise _refusal("too_many_columns", message, "leave out columns that the list does not have")
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True):
            rows.append(row)
            if len(rows) > MOST_LINES + 1:
                message = f"the table has more than {MOST_LINES} rows, the most that one request takes"
                raise _refusal("too_many_rows", message, "send it in several parts, each with the header")
    except csv.Error as error:
        raise _unreadable(len(rows) + 1, error) from None
    return rows


def _unreadable(row: int, error: csv.Error) -> Refused:
    """Why a row cannot be read; the reader tells a cell that is too long in words alone."""
    if "field limit" in str(error):
        message = f"a cell of row {row} has more than {csv.field_size_limit()} characters, the most that one may have"
        return _refusal("too_long", message, "shorten it, or close the quotes that it begins with")
    message = f"row {row} is not CSV: a quote stands where none may, or one is never closed"
    return _refusal("not_csv", message, 'put cells that hold quotes between quotes, and double those inside: ""')


def _refuse_header(names: Sequence[str], columns: Sequence[str], required: Sequence[str]) -> None:
    unknown = [name for name in names if name not in columns]
    problems = [_unknown(name, columns) for name in unknown[:MOST_PROBLEMS]]
    for name in dict.fromkeys(name for name in names if name in columns and names.count(name) > 1):
        message = f"the header names the column {name} twice, so it is unclear which counts"
        problems.append(Problem(field=name, code="repeated", message=message, fix="name it once"))
    for name in required if not problems else ():
        if name not in names:
            message = f"the header lacks the column {name}, without which no row can be read"
            fix = "put the names of the columns into the first row, as the list has them"
            problems.append(Problem(field=name, code="required", message=message, fix=fix))
    if problems:
        raise Refused(*problems)


def _unknown(name: str, columns: Sequence[str]) -> Problem:
    fix = did_you_mean(nearest(name, columns)) or f"leave it out; the columns are {', '.join(columns)}"
    message = f"the header names a column {quoted(name)}, which the list does not have; it would change nothing"
    return Problem(field="", code="unknown_column", message=message, fix=fix)


def _refusal(code: str, message: str, fix: str) -> Refused:
    return Refused(Problem(field="", code=code, message=message, fix=fix))
