"""CSV as spreadsheets write it, each row with its line number.

Comma, semicolon and tab are distinguished by the header: only one of them makes it a row of known columns. A text that
was marked so that no spreadsheet runs it (`'=...`) loses its mark again.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from service.errors import MOST_PROBLEMS, Problem, Refused, did_you_mean, nearest
from service.estimator.question import Documented
from service.tabular.cell_text import unmarked
from service.text_bounds import MOST_COLUMNS

DELIMITERS = (",", ";", "\t")
MOST_LINES = 10_000
"""Rows of one table below its header."""
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
    """One row of a table."""

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
    """A problem as a finding about a row."""
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
        refuse_columns(_split(text)[0].count(delimiter) + 1)
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True):
            rows.append(row)
            if len(rows) > MOST_LINES + 1:
                message = f"the table has more than {MOST_LINES} rows, the most that one request takes"
                raise _refusal("too_many_rows", message, "send it in several parts, each with the header")
    except csv.Error as error:
        raise _unreadable(len(rows) + 1, error) from None
    return rows


def refuse_columns(count: int) -> None:
    """Refuse a table with more columns than any has, before its names are compared with those that are known."""
    if count > MOST_COLUMNS:
        message = f"the header has {count} columns, and a table has at most {MOST_COLUMNS}"
        raise _refusal("too_many_columns", message, "leave out columns that the list does not have")


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
    message = "the header names a column that the list does not have; it would change nothing, so it is refused"
    return Problem(field="", code="unknown_column", message=message, fix=fix)


def _refusal(code: str, message: str, fix: str) -> Refused:
    return Refused(Problem(field="", code=code, message=message, fix=fix))
