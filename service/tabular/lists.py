"""Lists page by page as JSON, or whole as a table (CSV, XLSX, Parquet), and how the contract describes them."""

import csv
import io
from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache, partial
from heapq import nsmallest
from itertools import islice
from operator import attrgetter
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, GetJsonSchemaHandler, TypeAdapter
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, from_json, to_json

from service.answers.names import COMPONENT, EACH
from service.catalogue.rows import Provenance
from service.errors import MOST_PROBLEMS, Problem, Refused, did_you_mean, nearest, quoted
from service.store.engine import RowPart, utc_text
from service.tabular.csv_text import exact_text, marked
from service.tabular.sheets import workbook
from service.validation.flat import MOST_PARAMETERS, TOO_MANY, read_value
from service.validation.forms import ReadElsewhere, described_as, object_schema
from service.validation.json_text import normalized
from service.validation.problems import Schema, inside
from service.validation.reading import to_bytes

KEEP_THEIR_NAMES = ("model", "gpu", "cluster")
"""Nested objects whose fields keep their names; fields of others are prefixed by the object's name."""
FIRST = ("name", "vendor", "family")
"""Identifying columns, which come first, and provenance columns, which come last."""
ORIGIN = "Provenance"
SCOPE = "scope"
"""Column that is `everyone` for shipped rows, which do not set it."""


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    value: Callable[[Any], Any]
    """Its value in a row; None where unknown."""
    schema: Schema
    """JSON schema of its values, with a description."""
    path: tuple[str, ...] = ()
    """Path of the value in a row; empty where it combines several."""

    @property
    def types(self) -> frozenset[str]:
        """JSON types of its values: string, integer, number, boolean, array or null."""
        return frozenset(option["type"] for option in self._options)

    @property
    def choices(self) -> tuple[str, ...]:
        """Its possible texts, where they are a closed list."""
        return tuple(text for option in self._options for text in option.get("enum", ()) if isinstance(text, str))

    @property
    def _options(self) -> Sequence[Schema]:
        options: Sequence[Schema] = self.schema.get("anyOf", (self.schema,))
        return options


@cache
def columns_of(row: type) -> tuple[Column, ...]:
    origin = tuple(_spread(_definitions(Provenance), ORIGIN)) if issubclass(row, Provenance) else ()
    origin_names = {column.name for column in origin}
    own = [column for column in _spread(_definitions(row), row.__name__) if column.name not in origin_names]
    columns = (*sorted(own, key=lambda one: FIRST.index(one.name) if one.name in FIRST else len(FIRST)), *origin)
    if not issubclass(row, Provenance):
        return columns
    return tuple(replace(one, value=attrgetter("holds_for")) if one.name == SCOPE else one for one in columns)


@cache
def _definitions(row: type) -> Mapping[str, Any]:
    explained = ConfigDict(use_attribute_docstrings=True)
    rows: TypeAdapter[Any] = TypeAdapter(list[row], config=explained)  # type: ignore[valid-type]  # known at run time
    definitions: Mapping[str, Any] = rows.json_schema()["$defs"]
    return definitions


def _spread(
    definitions: Mapping[str, Any], kind: str, before: str = "", path: tuple[str, ...] = (), *, optional: bool = False
) -> Iterator[Column]:
    for name, schema in definitions[kind]["properties"].items():
        options = schema.get("anyOf", (schema,))
        nested = next((option["$ref"].rpartition("/")[2] for option in options if "$ref" in option), None)
        if nested is None:
            here = (*path, name)
            shown = _shown(_with_items(definitions, schema), optional=optional)
            yield Column(before + name, partial(_follow, here), shown, here)
        else:
            prefix = "" if name in KEEP_THEIR_NAMES else f"{name}_"
            is_optional = {"type": "null"} in options
            yield from _spread(definitions, nested, prefix, (*path, name), optional=is_optional)


def _with_items(definitions: Mapping[str, Any], schema: Schema) -> Schema:
    """The schema of a list with that of its items in it, where they are objects."""
    reference = schema.get("items", {}).get("$ref", "")
    if not reference:
        return schema
    items = definitions[reference.rpartition("/")[2]]
    fields = {name: _shown(field, optional=False) for name, field in items["properties"].items()}
    return {**schema, "items": {**_shown(items, optional=False), "properties": fields}}


def _follow(path: tuple[str, ...], row: Any) -> Any:
    """The value at the end of a path of attributes; None where a nested fact on the way is absent."""
    value = row
    for attribute in path:
        value = None if value is None else getattr(value, attribute)
    return value


def _shown(schema: Schema, *, optional: bool) -> Schema:
    """The schema of a value that is always present, null where unknown."""
    own = {key: value for key, value in schema.items() if key not in {"title", "default"}}
    if not optional or "anyOf" in own:
        return own
    meaning = own.pop("description")
    return {"anyOf": [own, {"type": "null"}], "description": meaning}


Form = str | int | float | None
Place = tuple[Form, ...]
"""Position of a row: its value in each column of the order, then its key."""

SortKey = list[tuple[Any, ...]]

DESCENDING = "-"


@dataclass(frozen=True, slots=True)
class Order:
    """Columns of a sort order, the first one first; the key breaks ties."""

    by: tuple[tuple[Column, bool], ...]
    """Each column, and whether it descends; unknown values come last either way."""
    key: Column

    def place(self, row: object) -> Place:
        return (*self._forms(row), self.key.value(row))

    def sorted(self, rows: Iterable[Any], most: int | None = None) -> list[Any]:
        def place(row: object) -> Any:
            return self._sort_key(row), self.key.value(row)

        return sorted(rows, key=place) if most is None else nsmallest(most, rows, key=place)

    def first(self, rows: Iterable[Any], most: int | None) -> list[Any]:
        if not self.by:
            return list(islice(rows, most))
        key = self._sort_key
        return sorted(rows, key=key) if most is None else nsmallest(most, rows, key=key)

    def is_behind(self, row: object, place: Place) -> bool:
        """Whether a row comes after a position."""
        ended = (self._sort_key_of(place[:-1]), _rising(place[-1]))
        return ended < (self._sort_key(row), _rising(self.key.value(row)))

    def cursor_behind(self, row: object) -> str:
        """The opaque cursor of the page after a row."""
        return _sealed([self._order_digest, *self.place(row)])

    def read_cursor(self, cursor: str) -> Place:
        """Position at which the previous page ended."""
        digest, *place = _opened(cursor)
        if digest != self._order_digest:
            message = "cursor comes from a list in another order, so it leads to no page of this one"
            fix = "give the sort of the page before too, or leave cursor out and begin anew"
            raise Refused(Problem(field="cursor", code="cursor_of_another_sort", message=message, fix=fix))
        if len(place) != len(self.by) + 1 or place[-1] is None:
            raise Refused(NO_CURSOR)
        return tuple(place)

    @property
    def _order_digest(self) -> str:
        return ",".join(f"{DESCENDING if descends else ''}{column.name}" for column, descends in self.by)

    def _sort_key(self, row: object) -> SortKey:
        return self._sort_key_of(self._forms(row))

    def _sort_key_of(self, forms: Place) -> SortKey:
        """The columns of the order without the key of the row: a smaller sort key comes first."""
        return [
            _falling(form) if descends else _rising(form) for form, (_, descends) in zip(forms, self.by, strict=True)
        ]

    def _forms(self, row: object) -> Place:
        """Values of a row in the columns of the order, without its key, which takes longer to compute."""
        return tuple(sortable(column.value(row)) for column, _ in self.by)


NO_CURSOR = Problem(
    field="cursor",
    code="invalid",
    message="cursor is none that this service gave out, so it leads to no page",
    fix="give next_cursor of the page before",
)


def read_order(text: str | None, columns: Sequence[Column]) -> Order:
    """Parse the `sort` parameter."""
    known = {column.name: column for column in columns}
    given = [] if text is None else text.split(",")
    parsed = [(name.removeprefix(DESCENDING), name.startswith(DESCENDING)) for name in given]
    names = [name for name, _ in parsed]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise Refused(*(_unknown("sort", "unknown_column", "sort", "", one, known) for one in unknown[:MOST_PROBLEMS]))
    if len(set(names)) < len(names):
        message = "sort names a column twice, and only the first time could count"
        raise Refused(Problem(field="sort", code="repeated", message=message, fix="name each column once"))
    return Order(tuple((known[name], descends) for name, descends in parsed), columns[0])


def forms_of(value: Any) -> list[Form]:
    """Values of a cell, as filters compare them.

    >>> forms_of("H100"), forms_of(("A", "b")), forms_of(()), forms_of(80)
    (['h100'], ['a', 'b'], [None], [80])
    """
    if value is None or value in ("", ()):
        return [None]
    items = value if isinstance(value, tuple) else (value,)
    return [item if isinstance(item, int | float) else str(item).casefold() for item in items]


def sortable(value: Any) -> Form:
    """Value of a cell, as an order compares it: a list by its members.

    >>> sortable(("B", "a")), sortable(80), sortable("") is None
    ('b;a', 80, True)
    """
    forms = forms_of(value)
    return forms[0] if len(forms) == 1 else ";".join(map(str, forms))


class _Falling(str):
    """A text that sorts in descending order."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return str.__gt__(self, other)


def _rising(form: Form) -> tuple[Any, ...]:
    """Sort key of an ascending column: numbers, then texts, then unknown values."""
    return (True,) if form is None else (False, isinstance(form, str), form)


def _falling(form: Form) -> tuple[Any, ...]:
    """Sort key of a descending column: texts, then numbers, then unknown values."""
    if form is None:
        return (True,)
    return (False, False, _Falling(form)) if isinstance(form, str) else (False, True, -form)


def _sealed(parts: list[Form]) -> str:
    return urlsafe_b64encode(to_json(parts)).decode().rstrip("=")


def _opened(cursor: str) -> list[Form]:
    try:
        parts = from_json(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)), allow_inf_nan=False)
    except ValueError:
        parts = None
    if (
        not isinstance(parts, list)
        or not parts
        or not all(part is None or isinstance(part, str | int | float) for part in parts)
        or _sealed(parts) != cursor
    ):
        raise Refused(NO_CURSOR)
    return parts


Meanings = Mapping[str, Callable[[str], Collection[str]]]
"""By column, the values that a name in any spelling may mean."""

PAGING = ("limit", "cursor", "sort")
"""Parameters that are not columns."""
DEFAULT_ROWS = 100
MOST_ROWS = 1000


@dataclass(frozen=True, slots=True)
class ListQuery:
    """Filters, order and page of a list."""

    filters: tuple[tuple[Column, frozenset[Form]], ...]
    limit: int | None
    """Rows on a page; None where the request sets no limit."""
    order: Order
    after: Place | None
    """Position at which the previous page ended; None for the first page."""

    def select(self, rows: Iterable[Any], most: int | None = None) -> list[Any]:
        """Rows of this page and of all later ones."""
        return self.order.sorted(self.admitted(rows), most)

    def select_in_order(self, rows: Sequence[Any], most: int | None = None) -> list[Any]:
        """Rows of this page and of all later ones, from rows in the order of their keys."""
        if self.after is None or self.order.by:
            return self.order.first(self.admitted(rows), most)
        begin = bisect_right(rows, str(self.after[-1]), key=self.order.key.value)
        return list(islice((row for row in islice(rows, begin, None) if self._admits(row)), most))

    def admitted(self, rows: Iterable[Any]) -> Iterator[Any]:
        """Rows of this page and of all later ones, in the order given."""
        after = self.after
        for row in rows:
            if self._admits(row) and (after is None or self.order.is_behind(row, after)):
                yield row

    def _admits(self, row: object) -> bool:
        return not any(accepted.isdisjoint(forms_of(column.value(row))) for column, accepted in self.filters)


def read_list_query(
    parameters: Sequence[tuple[str, str]], columns: Sequence[Column], meanings: Meanings, sort: str | None = None
) -> ListQuery:
    known = {column.name: column for column in columns}
    names = [*known, *PAGING]
    unknown = [name for name, _ in parameters if name not in names]
    if unknown:
        parts = ("unknown_parameter", "the query", "leave it out, or ")
        raise Refused(*(_unknown(inside("", name), *parts, name, names) for name in unknown[:MOST_PROBLEMS]))
    if len(parameters) > MOST_PARAMETERS:
        raise Refused(TOO_MANY)
    given: dict[str, list[str]] = {}
    for name, text in parameters:
        given.setdefault(name, []).append(text)
    limit, cursor = (_once(name, given.pop(name, [])) for name in ("limit", "cursor"))
    sorts = given.pop("sort", [])
    order = read_order(",".join(sorts) if sorts else sort, columns)
    return ListQuery(
        filters=tuple(
            (
                known[name],
                frozenset(form for text in texts for form in _accepted(known[name], text, meanings.get(name))),
            )
            for name, texts in given.items()
        ),
        limit=None if limit is None else _limit(limit),
        order=order,
        after=None if cursor is None else order.read_cursor(cursor),
    )


def _once(name: str, texts: list[str]) -> str | None:
    if len(texts) > 1:
        message = f"{name} is given {len(texts)} times, so it is unclear which counts"
        raise Refused(Problem(field=name, code="repeated", message=message, fix="give it once"))
    return texts[0] if texts else None


def _limit(text: str) -> int:
    limit = read_value("limit", "integer", text, ".")
    if not isinstance(limit, int) or not 1 <= limit <= MOST_ROWS:
        message = f"limit is not from 1 to {MOST_ROWS}, the rows that one answer may hold"
        fix = f"give 1 to {MOST_ROWS} and follow next_cursor"
        raise Refused(Problem(field="limit", code="out_of_range", message=message, fix=fix))
    return limit


def _accepted(column: Column, text: str, meant: Callable[[str], Collection[str]] | None) -> list[Form]:
    types = column.types
    if not text:
        return [None]
    if meant is not None:
        return [name.casefold() for name in meant(text)]
    if types & {"integer", "number", "boolean"}:
        return [read_value(column.name, "truth" if "boolean" in types else "number", text, ".")]
    if column.choices and text not in column.choices:
        message = f"{column.name} has no value {quoted(text)}"
        fix = f"use {' or '.join(column.choices)}"
        raise Refused(Problem(field=column.name, code="not_a_choice", message=message, fix=fix))
    return [normalized(text).casefold()]


def _unknown(field: str, code: str, place: str, otherwise: str, name: str, known: Iterable[str]) -> Problem:
    message = f"{place} names a column {quoted(name)} that this list does not have; it would change nothing"
    fix = did_you_mean(nearest(name, known)) or f"{otherwise}use {', '.join(known)}"
    return Problem(field=field, code=code, message=message, fix=fix)


Record = Mapping[str, Any]

IsCurrent = Callable[[Record], bool]
"""Whether the version of a row in a request is the current one."""
Parameters = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Listed:
    """A list before filters and order."""

    columns: Sequence[Column]
    """Columns, the key first."""
    rows: Iterable[Any]
    meanings: Meanings = field(default_factory=dict)
    """By column, the values that a name in a filter may mean."""
    sort: str | None = None
    """Default order; None for the order of the keys."""
    find: Callable[[ListQuery, int | None], list[Any]] | None = None
    """Reads the rows of a query from the database, at most so many; None where `rows` are all of them."""
    is_in_order: bool = False
    """Whether `rows` are in the order of their keys."""


@dataclass(frozen=True, slots=True)
class Page:
    items: tuple[Record, ...]
    """Rows as JSON objects."""
    next_cursor: str | None
    """Cursor of the next page; null after the last one."""


def page_of(listed: Listed, parameters: Parameters) -> Page:
    query = read_list_query(parameters, listed.columns, listed.meanings, listed.sort)
    limit = query.limit or DEFAULT_ROWS
    rows = _select(listed, query, limit + 1)
    shown = rows[:limit]
    more = query.order.cursor_behind(shown[-1]) if len(rows) > limit else None
    return Page(tuple(as_record(listed.columns, row) for row in shown), more)


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of a file."""

    columns: Sequence[Column]
    """Columns, the key first."""
    rows: Sequence[Any]


def table_of(listed: Listed, parameters: Parameters) -> Table:
    """Every row of a list that passes the filters, up to the limit of the request."""
    query = read_list_query(parameters, listed.columns, listed.meanings, listed.sort)
    return Table(listed.columns, _select(listed, query, query.limit))


def csv_of(table: Table) -> str:
    rows = ([column.value(row) for column in table.columns] for row in table.rows)
    return csv_text([column.name for column in table.columns], rows)


def csv_text(names: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Rows under a header as CSV of RFC 4180, without cells that a spreadsheet runs as formulas."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(names)
    writer.writerows(map(cell_text, row) for row in rows)
    return text.getvalue()


TableForm = Literal["json", "csv", "xlsx", "md"]
"""Format of a computed table."""


def table_bytes(form: TableForm, answer: Any, names: Sequence[str], rows: Sequence[Sequence[object]]) -> bytes:
    """A computed table: the answer as JSON, or its rows under their names as CSV or a workbook."""
    if form == "json":
        return to_bytes(answer)
    if form == "csv":
        return csv_text(names, rows).encode()
    return workbook(names, [[typed_cell(cell) for cell in row] for row in rows])


def workbook_of(table: Table) -> bytes:
    return workbook(
        [column.name for column in table.columns],
        [[typed_cell(column.value(row)) for column in table.columns] for row in table.rows],
    )


def parquet_of(table: Table) -> bytes:
    """A table as Parquet; pyarrow is imported here, for it takes longer to load than the rest of the service."""
    import pyarrow
    from pyarrow import parquet as written

    kinds = {
        "boolean": pyarrow.bool_(),
        "integer": pyarrow.int64(),
        "number": pyarrow.float64(),
        "array": pyarrow.list_(pyarrow.string()),
    }
    fields, arrays = [], []
    for column in table.columns:
        kind = next((kind for name, kind in kinds.items() if name in column.types), pyarrow.string())
        meaning = {"description": str(column.schema.get("description", ""))}
        fields.append(pyarrow.field(column.name, kind, metadata=meaning))
        values = (column.value(row) for row in table.rows)
        arrays.append(pyarrow.array([list(value) if isinstance(value, tuple) else value for value in values], kind))
    file = io.BytesIO()
    written.write_table(pyarrow.Table.from_arrays(arrays, schema=pyarrow.schema(fields)), file)
    return file.getvalue()


def as_record(columns: Sequence[Column], row: object) -> Record:
    return {column.name: column.value(row) for column in columns}


def cell_text(value: object) -> str:
    """A value as the text of one CSV cell that no spreadsheet evaluates as a formula.

    >>> cell_text("=HYPERLINK(1)"), cell_text(-0.5), cell_text(("a", "b")), cell_text(True)
    ("'=HYPERLINK(1)", '-0.5', 'a;b', 'true')
    >>> cell_text(("x", "=1+1"))
    "x;'=1+1"
    """
    cell = typed_cell(value)
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, int):
        return str(cell)
    if isinstance(cell, float):
        return exact_text(cell)
    return marked(cell)


def typed_cell(value: object) -> str | int | float | None:
    """A value as one cell of a workbook, where text is never a formula.

    >>> typed_cell("=1+1"), typed_cell(2.5), typed_cell(("a", "b")), typed_cell(())
    ('=1+1', 2.5, 'a;b', None)
    """
    if isinstance(value, tuple):
        return ";".join(map(str, value)) or None
    return value if isinstance(value, int | float) else str(value) if value else None


def _select(listed: Listed, query: ListQuery, most: int | None) -> list[Any]:
    if listed.find is not None:
        return listed.find(query, most)
    return query.select_in_order(tuple(listed.rows), most) if listed.is_in_order else query.select(listed.rows, most)


AT_ONCE = 1000
"""Rows of one read where only a page is needed. Source: a choice; some milliseconds."""
TIMES_AS_MANY = 8
"""Rows of one read where a whole read falls into one second. Source: a choice."""
SECOND = timedelta(seconds=1)

Read = Callable[[RowPart | None], Sequence[Any]]
"""Reads the rows of a part of the list; all rows, unordered, for None."""


def listed_in_parts(
    columns: Sequence[Column], read: Read, moment: str = "created_at", sort: str | None = None
) -> Listed:
    return Listed(columns, (), sort=sort, find=partial(_read_part, read, moment))


def _read_part(read: Read, moment: str, query: ListQuery, most: int | None) -> list[Any]:
    begin = None if most is None else _begin(moment, query, AT_ONCE if query.filters else most)
    if begin is None:
        return query.select(read(None), most)
    rows: Iterator[Any]
    if begin.newest_first:
        rows = (row for second in _by_seconds(read, begin, query.order.by[0][0]) for row in query.order.sorted(second))
    else:
        rows = _by_keys(read, begin, query.order.key)
    return [*islice(query.admitted(rows), most)]


def _begin(moment: str, query: ListQuery, most: int) -> RowPart | None:
    """The part at which a page begins; None where the database cannot order or seek it."""
    by = [(column.name, descends) for column, descends in query.order.by]
    after = query.after
    if not by:
        if after is None:
            return RowPart(most=most)
        key = after[-1]
        return RowPart(most=most, behind=key) if isinstance(key, str) and key.isascii() and key.isprintable() else None
    if by != [(moment, True)]:
        return None
    if after is None:
        return RowPart(most=most, newest_first=True)
    with suppress(ValueError, OverflowError):
        return RowPart(most=most, newest_first=True, before=_behind(str(after[0]).upper()))
    return None


def _by_keys(read: Read, part: RowPart, key: Column) -> Iterator[Any]:
    while rows := read(part):
        yield from rows
        if len(rows) < part.most:
            return
        part = RowPart(most=part.most, behind=key.value(rows[-1]))


def _by_seconds(read: Read, part: RowPart, moment: Column) -> Iterator[Sequence[Any]]:
    """Rows in groups of whole seconds, the newest first: within a second the list has another order than the database.

    SQLite compares moments as texts, of which the database writes three digits and Python six, so that it may give rows
    of the very moment that bounds the request.
    """
    while True:
        rows = read(part)
        selected = rows if part.before is None else [row for row in rows if moment.value(row) < utc_text(part.before)]
        if len(rows) < part.most:
            yield selected
            return
        last = moment.value(selected[-1]) if selected else None
        whole = [row for row in selected if moment.value(row) != last]
        if whole:
            yield whole
            part = RowPart(most=part.most, newest_first=True, before=_behind(str(last)))
        else:
            part = RowPart(most=TIMES_AS_MANY * part.most, newest_first=True, before=part.before)


def _behind(text: str) -> datetime:
    """The end of the second that contains a moment."""
    known = datetime.fromisoformat(text)
    if utc_text(known) != text:
        raise ValueError("a moment of a list is in UTC, to the second")
    return known + SECOND


@dataclass(frozen=True)
class _Described(ReadElsewhere):
    """A schema that is computed when the contract is written."""

    schema: Callable[[GetJsonSchemaHandler], JsonSchemaValue] = field(hash=False)

    def __get_pydantic_json_schema__(self, _schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return self.schema(handler)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTypes:
    """Types of a list's answers and of its query."""

    singular: str
    """Name of one row in schemas and operations."""
    row_meaning: str
    columns: Sequence[Column]
    """Columns, the key first."""
    sort: str | None = None
    """Order where the query gives none; that of the key where absent."""

    @property
    def row(self) -> Any:
        return Annotated[Any, _Described(lambda _: self._row())]

    @property
    def page(self) -> Any:
        """Some rows, and where the next page begins."""
        return Annotated[Any, _Described(lambda _: self._page())]

    def detail(self, name: str, meaning: str, more: type) -> Any:
        """One row with further fields, which a dataclass describes, as the component of a name."""
        return Annotated[Any, _Described(lambda handler: self._detail(name, meaning, more, handler))]

    @property
    def query(self) -> Any:
        """Filters, order, limit and cursor."""
        return Annotated[Any, _Described(lambda _: self._query())]

    @property
    def parameters(self) -> Any:
        """The same, each as a parameter of its own."""
        return Annotated[Any, _Described(lambda _: self._query() | {EACH: True})]

    def _row(self) -> JsonSchemaValue:
        fields = {column.name: dict(column.schema) for column in self.columns}
        return {
            COMPONENT: f"{self.singular}Row",
            **object_schema(f"{self.row_meaning}; null means not known, never zero.", fields, required=list(fields)),
        }

    def _detail(self, name: str, meaning: str, more: type, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        further = handler.resolve_ref_schema(described_as(more, handler))["properties"]
        fields = {column.name: dict(column.schema) for column in self.columns} | further
        return {COMPONENT: name, **object_schema(meaning, fields, required=list(fields))}

    def _page(self) -> JsonSchemaValue:
        items = {"type": "array", "description": "The rows.", "maxItems": MOST_ROWS, "items": self._row()}
        meaning = "Where the next page begins, for `cursor`; null after the last row."
        fields = {"items": items, "next_cursor": {"type": ["string", "null"], "description": meaning}}
        return {
            COMPONENT: f"{self.singular}Page",
            **object_schema("Some rows of a list.", fields, required=list(fields)),
        }

    def _query(self) -> JsonSchemaValue:
        key = self.columns[0].name
        order = (
            "Columns to sort by, the first one first, `-` before one that descends; what is not known comes last, and "
            f"rows that agree in all of them are in the order of {key}; {self.sort or key} where absent."
        )
        rows = f"Rows at most: of a page, {DEFAULT_ROWS} where absent; of a table, all of them where absent."
        cursor = "next_cursor of the page before, with the same sort; the first page where absent."
        fields = {
            **{column.name: _filter(column) for column in self.columns},
            "sort": {"type": "array", "items": {"type": "string"}, "description": order},
            "limit": {"type": "integer", "minimum": 1, "maximum": MOST_ROWS, "description": rows},
            "cursor": {"type": "string", "minLength": 1, "description": cursor},
        }
        return {
            COMPONENT: f"{self.singular}Query",
            **object_schema(f"Which rows, and in which order. {FILTERS}", fields),
        }


FILTERS = (
    "Each column is a filter of its own name: given twice, either value will do; empty, rows of which it is not known; "
    "a GPU by any of its names."
)


def _filter(column: Column) -> JsonSchemaValue:
    kind = next((name for name in ("integer", "number", "boolean") if name in column.types), "string")
    values = {"type": "array", "items": {"type": kind}, "description": f"Values of type {kind}."}
    return {COMPONENT: f"{kind.capitalize()}Filter", **values}
