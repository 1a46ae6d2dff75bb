"""Which measurements does a table hold? A CSV of published figures, read whole or refused with its columns named.

The text of a cell is read only when somebody asks for it, so one unreadable cell costs its own row and no other.
"""

import csv
import io
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from service.calibration.columns import FORMS, LARGEST, MEMORY, THROUGHPUT, Form, FormName
from service.errors import MOST_PROBLEMS, Problem, Refused, TraincostError, did_you_mean, nearest

MOST_BYTES = 64 << 20
"""Size of the largest table that is read."""

MOST_ROWS = 100_000
"""Rows of the longest one."""

LONGEST_SHOWN = 40
"""Characters of an unknown column's name that a refusal repeats."""

LONGEST_HEADER = 1 << 16
"""Characters of the header that are looked at for other signs than commas."""

SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}
"""Signs that other programs put between columns."""

IMAGE_HOST = re.compile(r"\b[a-z]+\.io/(?=[a-z]+/[a-z]+:)")
"""Host of a container image, which says nothing of what is in it."""

_COMMAS = "separate columns by commas: save it as CSV with commas"

_KNOWN = frozenset().union(*(form.known for form in FORMS))
_NUMBER = re.compile(r"[0-9]{1,18}(\.[0-9]{1,18})?(e[+-]?[0-9]{1,2})?", re.IGNORECASE)


class NotExpressible(TraincostError):
    """A row cannot be put as a question, or its figure not be compared; the message is the reason, short and stable."""


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """One published measurement, its cells as they were written."""

    number: int
    """Its row in the table, as a spreadsheet shows it."""
    cells: Mapping[str, str]
    """Its texts by column; empty ones are left out."""
    form: FormName = "memory"
    """Which kind of table it stands in."""

    def text(self, column: str) -> str:
        """What a cell says; nothing where it is empty."""
        return self.cells.get(column, "")

    def number_of(self, column: str) -> float | None:
        """The number of a cell, in the unit of its column; None where it is empty."""
        said = self.text(column)
        if not said:
            return None
        if not _NUMBER.fullmatch(said):
            raise NotExpressible(f"unreadable: {column}")
        return float(said)

    def whole(self, column: str) -> int | None:
        """The whole number of a cell; None where it is empty, and no number where it counts too few or too many."""
        number = self.number_of(column)
        if number is None:
            return None
        if number != int(number) or (column in LARGEST and not 1 <= number <= LARGEST[column]):
            raise NotExpressible(f"unreadable: {column}")
        return int(number)

    def count(self, column: str, default: int | None = None) -> int:
        """The whole number of a cell, or the default; without one, an empty cell makes the row inexpressible."""
        found = self.whole(column)
        if found is not None:
            return found
        if default is None:
            raise NotExpressible(f"missing: {column}")
        return default

    def is_on(self, column: str) -> bool:
        """Whether a cell of 0 or 1 is 1."""
        return self.whole(column) == 1


def read_measured_rows(content: bytes) -> tuple[MeasuredRow, ...]:
    """The measurements of a table, in its order.

    Args:
        content: CSV in UTF-8 with a header, with or without byte order mark, lines ended as anybody ends them

    Returns:
        the rows, empty lines left out

    Raises:
        Refused: it is no such table, is too large, or has a column that is unknown, repeated or missing

    >>> table = [",".join(MEMORY.required), "a,b,c,d,8,1024,bf16,3.5,GiB,torch allocated,ok"]
    >>> row = read_measured_rows(chr(10).join(table).encode("utf-8-sig"))[0]
    >>> row.count("n_gpus"), row.text("outcome"), row.whole("layers")
    (8, 'ok', None)
    """
    if len(content) > MOST_BYTES:
        raise _refusal("too_large", f"the table has more than {MOST_BYTES} bytes", "score it in parts")
    text = _decoded(content)
    _refuse_other_forms(text)
    header, rows = _lines(text)
    names = [name.strip() for name in header]
    form = form_of(names)
    _refuse_header(names, form)
    found = []
    for number, row in rows:
        if len(row) != len(names):
            message = f"row {number} has {len(row)} cells where the header has {len(names)}"
            raise _refusal("wrong_width", message, "give one cell for each column")
        cells = {name: cell.strip() for name, cell in zip(names, row, strict=True) if cell.strip()}
        found.append(MeasuredRow(number, cells, form.name))
    return tuple(found)


def form_of(names: Collection[str]) -> Form:
    """Which kind of table has these columns.

    Args:
        names: the columns

    Returns:
        throughput where a step was measured and no memory, else memory

    >>> form_of(["id", "step_time_s"]).name, form_of(["id", "step_time_s", "peak_mem_reported"]).name
    ('throughput', 'memory')
    """
    is_step = not {*names} & {*MEMORY.figures} and {*names} & {*THROUGHPUT.figures}
    return THROUGHPUT if is_step else MEMORY


def trimmed_table(rows: Iterable[MeasuredRow], form: Form = MEMORY) -> str:
    """A table of measurements with the columns that scoring uses and no others.

    Args:
        rows: the measurements
        form: the kind of table

    Returns:
        CSV; scoring it gives the same figures as the table that the rows came from
    """
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(form.used)
    writer.writerows([IMAGE_HOST.sub("", row.text(column)) for column in form.used] for row in rows)
    return written.getvalue()


def _decoded(content: bytes) -> str:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _refusal("not_utf_8", "the table is not text in UTF-8", "save it as CSV UTF-8") from None
    if "\0" in text:
        raise _refusal("not_text", "the table holds a NUL, which no CSV does", "save it as CSV UTF-8")
    return text


def _refuse_other_forms(text: str) -> None:
    """Refuse a table whose columns stand between other signs than commas, and JSON."""
    first = text.lstrip()[:LONGEST_HEADER].partition("\n")[0].partition("\r")[0]
    if first[:1] in {"{", "["}:
        raise _refusal("not_csv", "the table is JSON, and CSV is read", _COMMAS)
    for sign, name in SEPARATORS.items():
        columns = [column.strip(' "') for column in first.split(sign)]
        if sum(column in _KNOWN for column in columns) > 1:
            raise _refusal("not_commas", f"the header separates {len(columns)} columns by {name}", _COMMAS)


def _lines(text: str) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The header and the numbered rows below it."""
    rows: list[tuple[int, list[str]]] = []
    try:
        for number, row in enumerate(csv.reader(io.StringIO(text, newline=""), strict=True), start=1):
            if any(row):
                rows.append((number, row))
            if len(rows) > MOST_ROWS + 1:
                raise _refusal("too_many_rows", f"the table has more than {MOST_ROWS} rows", "score it in parts")
    except csv.Error:
        message = f"row {len(rows) + 1} is not CSV: a quote stands where none may, or a cell is too long"
        raise _refusal("not_csv", message, "put cells that hold commas or quotes between quotes") from None
    if not rows:
        raise _refusal("empty", "the table holds no header", f"begin it with the columns {', '.join(MEMORY.required)}")
    return rows[0][1], rows[1:]


def _refuse_header(names: list[str], form: Form) -> None:
    unknown = [name for name in names if name not in form.known]
    repeated = [name for name in dict.fromkeys(names) if name in form.known and names.count(name) > 1]
    missing = [name for name in form.required if name not in names]
    problems = [
        *(_column(_shown(name), "unknown_column", "is not known", _fix_of_unknown(name, form)) for name in unknown),
        *(_column(name, "repeated", "stands in the header twice", "name it once") for name in repeated),
        *(_column(name, "required", "is missing, and no row can be read without it", "add it") for name in missing),
    ]
    if problems:
        raise Refused(*problems[:MOST_PROBLEMS])


def _fix_of_unknown(name: str, form: Form) -> str:
    return did_you_mean(nearest(name, form.known)) or f"leave it out; columns are {', '.join(sorted(form.known))}"


def _shown(name: str) -> str:
    return ascii(name[:LONGEST_SHOWN])[1:-1] or "(empty)"


def _column(name: str, code: str, what: str, fix: str) -> Problem:
    return Problem(field=name, code=code, message=f"the column {name} {what}", fix=fix)


def _refusal(code: str, message: str, fix: str) -> Refused:
    return Refused(Problem(field="table", code=code, message=message, fix=fix))
