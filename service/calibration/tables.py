"""Published tables of measurements. Cells are parsed when they are read: an unreadable one excludes its row alone."""

import csv
import io
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from tomllib import loads
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from service.errors import MOST_PROBLEMS, Problem, Refused, TraincostError, did_you_mean, nearest


def shipped_table(name: str) -> list[dict[str, str]]:
    """The rows of a table of `published/`.

    >>> shipped_table("totals")[0]["model"]
    'Llama 2 7B'
    """
    text = files("service.calibration").joinpath(f"published/{name}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(io.StringIO(text, newline="")))


def shipped_toml(name: str) -> dict[str, Any]:
    """A file of facts about the tables of `published/`."""
    return loads(files("service.calibration").joinpath(f"published/{name}.toml").read_text(encoding="utf-8"))


Row = TypeVar("Row")

_CELLS: Mapping[Any, Callable[[str], Any]] = {
    **{int: int, float: float, bool: "1".__eq__},
    int | None: lambda cell: int(cell) if cell else None,
    tuple[str, ...]: lambda cell: tuple(cell.split()),
}
"""Readers of cells by the type of their field; all others are texts, or one of some choices."""


def _choice(choices: tuple[str, ...], cell: str) -> str:
    if cell not in choices:
        raise ValueError(f"{cell} is none of {', '.join(choices)}")
    return cell


def shipped_records(kind: type[Row], name: str, **scaled: tuple[str, float]) -> tuple[Row, ...]:
    """The rows of a table of `published/` as dataclasses; `scaled` gives the column and the unit of a field."""
    readers = {
        field: partial(_choice, get_args(hint)) if get_origin(hint) is Literal else _CELLS.get(hint, str)
        for field, hint in get_type_hints(kind).items()
        if field not in scaled
    }
    return tuple(
        kind(
            **{field: read(row[field]) for field, read in readers.items()},
            **{field: float(row[column]) * unit for field, (column, unit) in scaled.items()},
        )
        for row in shipped_table(name)
    )


FormName = Literal["memory", "throughput"]


@dataclass(frozen=True, slots=True)
class Form:
    """The columns of one kind of table."""

    name: FormName
    """Its measured quantity."""
    required: tuple[str, ...]
    """Columns that a question, or the comparison with its answer, requires."""
    figures: tuple[str, ...]
    """Columns that can give the compared figure; a table has at least one of them."""
    measured: tuple[str, ...]
    """Columns that no prediction reads."""
    used: tuple[str, ...]
    """Columns that scoring reads, and notes; the shipped tables have exactly these."""
    unused: tuple[str, ...]
    """Other columns of the full form, which scoring ignores."""

    @property
    def known(self) -> frozenset[str]:
        """Every column that the form may have."""
        return frozenset({*self.used, *self.unused})


_COLUMNS = shipped_toml("columns")

FORMS = tuple(
    Form(name, **{role: tuple(columns) for role, columns in _COLUMNS[name].items()}) for name in get_args(FormName)
)

MEMORY, THROUGHPUT = FORMS

FIGURES_OF_A_STEP: tuple[str, ...] = tuple(_COLUMNS["figures_of_a_step"])

LARGEST: Mapping[str, int] = _COLUMNS["largest"]
"""Largest value of each column that holds a count; the smallest is 1."""


MOST_BYTES = 64 << 20
"""Largest table that is read."""

MOST_ROWS = 100_000

LONGEST_SHOWN = 40
"""Most characters of an unknown column's name in a message."""
LONGEST_HEADER = 1 << 16
"""Most characters of the header that are searched for other separators."""

SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}

IMAGE_HOST = re.compile(r"\b[a-z]+\.io/(?=[a-z]+/[a-z]+:)")
"""Host of a container image, which is removed from shipped rows."""

_COMMAS = "separate columns by commas: save it as CSV with commas"

_KNOWN = frozenset().union(*(form.known for form in FORMS))
_NUMBER = re.compile(r"[0-9]{1,18}(\.[0-9]{1,18})?(e[+-]?[0-9]{1,2})?", re.IGNORECASE)


class NotExpressible(TraincostError):
    """A row that gives no question, or no figure to compare; the message is a short, stable reason."""


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """One published measurement, as text cells."""

    number: int
    """Its row number in a spreadsheet."""
    cells: Mapping[str, str]
    """Text of each cell that is not empty, by column."""
    form: FormName = "memory"

    def text(self, column: str) -> str:
        """Text of a cell; empty for an empty cell."""
        return self.cells.get(column, "")

    def number_of(self, column: str) -> float | None:
        """Number of a cell, in the unit of its column; None for an empty cell."""
        text = self.text(column)
        if not text:
            return None
        if not _NUMBER.fullmatch(text):
            raise NotExpressible(f"unreadable: {column}")
        return float(text)

    def whole(self, column: str) -> int | None:
        """Whole number of a cell; None for an empty cell. A count out of bounds is unreadable."""
        number = self.number_of(column)
        if number is None:
            return None
        if number != int(number) or (column in LARGEST and not 1 <= number <= LARGEST[column]):
            raise NotExpressible(f"unreadable: {column}")
        return int(number)

    def count(self, column: str, default: int | None = None) -> int:
        """Whole number of a cell, or the default; raise NotExpressible for an empty cell without a default."""
        result = self.whole(column)
        if result is not None:
            return result
        if default is None:
            raise NotExpressible(f"missing: {column}")
        return default

    def is_on(self, column: str) -> bool:
        """Whether a cell of 0 or 1 is 1."""
        return self.whole(column) == 1


def read_measured_rows(content: bytes, kind: Form | None = None) -> tuple[MeasuredRow, ...]:
    """The measurements of a table, in its order; of a kind, or of that which its columns tell.

    >>> table = [",".join(MEMORY.required), "a,b,c,d,8,1024,bf16,3.5,GiB,torch allocated,ok"]
    >>> row = read_measured_rows(chr(10).join(table).encode("utf-8-sig"))[0]
    >>> row.count("n_gpus"), row.text("outcome"), row.whole("layers")
    (8, 'ok', None)
    """
    if len(content) > MOST_BYTES:
        raise _table_refused("too_large", f"the table has more than {MOST_BYTES} bytes", "score it in parts")
    text = _decoded(content)
    _refuse_other_forms(text)
    header, rows = _header_and_rows(text)
    names = [name.strip() for name in header]
    form = kind or form_of(names)
    _refuse_header(names, form)
    results = []
    for number, row in rows:
        if len(row) != len(names):
            message = f"row {number} has {len(row)} cells where the header has {len(names)}"
            raise _table_refused("wrong_width", message, "give one cell for each column")
        cells = {name: cell.strip() for name, cell in zip(names, row, strict=True) if cell.strip()}
        results.append(MeasuredRow(number, cells, form.name))
    return tuple(results)


def form_of(names: Collection[str]) -> Form:
    """The kind of table with these columns.

    >>> form_of(["id", "step_time_s"]).name, form_of(["id", "step_time_s", "peak_mem_reported"]).name
    ('throughput', 'memory')
    """
    is_step = not {*names} & {*MEMORY.figures} and {*names} & {*THROUGHPUT.figures}
    return THROUGHPUT if is_step else MEMORY


def trimmed_table(rows: Iterable[MeasuredRow], form: Form = MEMORY) -> str:
    """A table of measurements with the columns that scoring uses and no others."""
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow(form.used)
    writer.writerows([IMAGE_HOST.sub("", row.text(column)) for column in form.used] for row in rows)
    return output.getvalue()


def _decoded(content: bytes) -> str:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _table_refused("not_utf_8", "the table is not text in UTF-8", "save it as CSV UTF-8") from None
    if "\0" in text:
        raise _table_refused("not_text", "the table holds a NUL, which no CSV does", "save it as CSV UTF-8")
    return text


def _refuse_other_forms(text: str) -> None:
    first = text.lstrip()[:LONGEST_HEADER].partition("\n")[0].partition("\r")[0]
    if first[:1] in {"{", "["}:
        raise _table_refused("not_csv", "the table is JSON, and CSV is read", _COMMAS)
    for sign, name in SEPARATORS.items():
        columns = [column.strip(' "') for column in first.split(sign)]
        if sum(column in _KNOWN for column in columns) > 1:
            raise _table_refused("not_commas", f"the header separates {len(columns)} columns by {name}", _COMMAS)


def _header_and_rows(text: str) -> tuple[list[str], list[tuple[int, list[str]]]]:
    rows: list[tuple[int, list[str]]] = []
    try:
        for number, row in enumerate(csv.reader(io.StringIO(text, newline=""), strict=True), start=1):
            if any(row):
                rows.append((number, row))
            if len(rows) > MOST_ROWS + 1:
                raise _table_refused("too_many_rows", f"the table has more than {MOST_ROWS} rows", "score it in parts")
    except csv.Error:
        message = f"row {len(rows) + 1} is not CSV: a quote stands where none may, or a cell is too long"
        raise _table_refused("not_csv", message, "put cells that hold commas or quotes between quotes") from None
    if not rows:
        raise _table_refused(
            "empty", "the table holds no header", f"begin it with the columns {', '.join(MEMORY.required)}"
        )
    return rows[0][1], rows[1:]


def _refuse_header(names: list[str], form: Form) -> None:
    unknown = [name for name in names if name not in form.known]
    repeated = [name for name in dict.fromkeys(names) if name in form.known and names.count(name) > 1]
    missing = [name for name in form.required if name not in names]
    problems = [
        *(_unknown_column(name, form) for name in unknown),
        *(_column_problem(name, "repeated", "stands in the header twice", "name it once") for name in repeated),
        *(
            _column_problem(name, "required", "is missing, and no row can be read without it", "add it")
            for name in missing
        ),
    ]
    if problems:
        raise Refused(*problems[:MOST_PROBLEMS])


def _unknown_column(name: str, form: Form) -> Problem:
    fix = did_you_mean(nearest(name, form.known)) or f"leave it out; columns are {', '.join(sorted(form.known))}"
    return _column_problem(ascii(name[:LONGEST_SHOWN])[1:-1] or "(empty)", "unknown_column", "is not known", fix)


def _column_problem(name: str, code: str, what: str, fix: str) -> Problem:
    return Problem(field=name, code=code, message=f"the column {name} {what}", fix=fix)


def _table_refused(code: str, message: str, fix: str) -> Refused:
    return refused("table", code, message, fix)


def refused(field: str, code: str, message: str, fix: str, line: int | None = None) -> Refused:
    """The refusal of a file."""
    place = "" if line is None else f"line {line}: "
    return Refused(Problem(field=field, code=code, message=f"{place}{message}", fix=fix))


@cache
def shipped_rows(form: FormName = "memory") -> tuple[MeasuredRow, ...]:
    """The measurements that the package ships."""
    return read_measured_rows(files("service.calibration").joinpath(f"published/{form}.csv").read_bytes())


@cache
def shipped_totals() -> tuple[MeasuredRow, ...]:
    """The whole runs that the package ships, each with its source."""
    return tuple(
        MeasuredRow(number, {name: cell for name, cell in row.items() if cell})
        for number, row in enumerate(shipped_table("totals"), start=2)
    )


def describes_main_run(row: MeasuredRow) -> bool:
    """Whether a row states the GPU-hours of one pre-training run."""
    return row.text("describes_main_run") == "yes"


def refuse_empty(text: str, what: str) -> None:
    """Refuse an empty file."""
    if not text.strip():
        message = f"the file is empty, so it holds no {what}"
        raise refused("", "empty", message, "check what wrote it, and send it again")
