"""Workbooks: sheets of typed cells with formulas, inputs, names and charts, and their .xlsx file."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import cache
from html import escape
from io import BytesIO
from typing import Any, Literal, TypeAlias

from service.tabular.csv_text import begins_formula

LONGEST_CELL = 32_767
"""Characters that Excel takes in one cell."""
NARROWEST, WIDEST = 8, 60
"""Characters that a column shows."""
CREATED = datetime(2000, 1, 1, tzinfo=UTC)
"""Date in every workbook: another one each time would be another file each time."""


NEW_FUNCTIONS = frozenset({"WEBSERVICE", "ENCODEURL", "NUMBERVALUE"})
"""Functions that Excel files mark, because they are newer than the form of the file."""

MICROSOFT_FUNCTIONS = frozenset({"WEBSERVICE", "ENCODEURL"})
"""Functions that OpenFormula does not name, and spells with their maker."""

TOKEN = re.compile(
    r"""
    (?P<text>"[^"]*")
    | (?P<reference>(?:(?P<sheet>\w+)!)?(?P<place>\$?[A-Z]{1,2}\$?[0-9]+)(?P<end>:\$?[A-Z]{1,2}\$?[0-9]+)?)(?!\w)
    | (?P<name>[a-z_]+)
    | (?P<function>[A-Z]+)(?=\()
    | (?P<comma>,)
    """,
    re.VERBOSE,
)


Plain: TypeAlias = str | int | float
"""Contents of a cell that is not computed."""


@dataclass(frozen=True, slots=True)
class Formula:
    """A cell that is computed."""

    text: str
    """The formula without its equals sign, as Excel shows it in English."""
    value: Plain = ""
    """Its result, shown until it is computed again."""


@dataclass(frozen=True, slots=True)
class Heading:
    """A bold text."""

    text: str
    is_over_numbers: bool = False
    """Whether it stands on the right, as numbers do."""


NumberForm = Literal["general", "count", "number", "rate", "money", "percent", "scientific", "date", "month"]
"""How a number is shown."""

EXCEL_FORMS: Mapping[NumberForm, str] = {
    "general": "General", "count": "#,##0_ ", "number": "#,##0.00_ ", "rate": "#,##0.0000_ ", "money": "#,##0.00_ ",
    "percent": "0.0%_ ", "scientific": "0.000E+00_ ", "date": "yyyy-mm-dd_ ", "month": "mmm yyyy_ ",
}  # fmt: skip
"""Formats of numbers in Excel; each ends with the width of a blank, so that a unit beside a number stands apart."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A value or a formula with its form."""

    value: Plain | Formula
    form: NumberForm = "general"
    is_input: bool = False
    """Whether people are to change it."""
    is_bold: bool = False


SheetCell: TypeAlias = Plain | Formula | Heading | Shown | None

DAY_ZERO = date(1899, 12, 30)
"""Day 0 of dates in cells."""


def day_number(day: date) -> int:
    """A date as the number that a cell holds.

    >>> day_number(date(2026, 11, 28))
    46354
    """
    return (day - DAY_ZERO).days


ValidationRule = Literal["fraction", "positive", "date"]


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of some columns of a sheet, drawn beside them."""

    kind: Literal["line", "column"]
    title: str
    place: str
    """Cell at its upper left corner."""
    categories: str
    """Range of the labels, as A5:A40."""
    series: Mapping[str, str]
    """Ranges of the values by name; the cell above each holds the same name."""
    unit: str
    """Title of the axis of values."""
    width: int = 640
    height: int = 320


@dataclass(frozen=True, slots=True)
class Sheet:
    """One sheet."""

    name: str
    """Its name; letters only, so that formulas can name it as it is."""
    rows: Sequence[Sequence[SheetCell]]
    widths: Sequence[int]
    """Characters that each column shows."""
    is_table: bool = False
    """Whether the first row is a header, which stays in sight and has filters."""
    frozen_rows: int = 0
    """Rows that stay in sight."""
    is_one_page: bool = False
    """Whether it prints on one page; any sheet prints one page wide."""
    rules: Mapping[str, ValidationRule] = field(default_factory=dict)
    """What inputs take, by their cells."""
    charts: Sequence[Chart] = ()


Names = Mapping[str, str]
"""Cells by the name that formulas call them, such as Rates!$B$5."""


def workbook(header: Sequence[str], rows: Sequence[Sequence[Plain | None]]) -> bytes:
    """A table as an .xlsx file, its header bold, frozen and with filters."""
    lengths = [
        max([len(name) + 2, *(len(str(row[column])) + 1 for row in rows if row[column] is not None)])
        for column, name in enumerate(header)
    ]  # with room for the arrow of a filter
    widths = [min(max(length, NARROWEST), WIDEST) for length in lengths]
    return excel_file([Sheet("Sheet1", [[Heading(name) for name in header], *rows], widths, is_table=True)])


def excel_formula(formula: str) -> str:
    """A formula as .xlsx files hold it.

    >>> excel_formula('NUMBERVALUE(WEBSERVICE(Inputs!$B$4&"/x, y"),".",",")')
    '=_xlfn.NUMBERVALUE(_xlfn.WEBSERVICE(Inputs!$B$4&"/x, y"),".",",")'
    """

    def spell(token: re.Match[str]) -> str:
        return f"_xlfn.{token[0]}" if token["function"] in NEW_FUNCTIONS else token[0]

    return f"={TOKEN.sub(spell, formula)}"


FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Source: XML 1.0, fifth edition, production 2."""


def xml_text(text: str) -> str:
    r"""A text as the content of an element or an attribute.

    >>> xml_text('a < "b"\ufffe\0')
    'a &lt; &quot;b&quot;'
    """
    return escape(FORBIDDEN.sub("", text))


INPUT_COLOUR, LINE_COLOUR = "#FFF8DC", "#BFBFBF"
"""Ground of inputs, and the line around them."""

PAPER_A4 = 9


def excel_file(sheets: Sequence[Sheet], names: Names = {}) -> bytes:  # noqa: B006 - a mapping is read only
    from xlsxwriter import Workbook  # type: ignore[import-untyped]  # the library ships no types

    file = BytesIO()
    with Workbook(file, {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False}) as book:
        book.set_properties({"created": CREATED})
        styles = _styles_of(book)
        pages = [book.add_worksheet(sheet.name) for sheet in sheets]
        for name, place in names.items():
            book.define_name(name, f"={place}")
        for sheet, page in zip(sheets, pages, strict=True):
            _lay_out(page, sheet)
            for row, cells in enumerate(sheet.rows):
                for column, cell in enumerate(cells):
                    _write(page, (row, column), cell, styles)
            for place, rule in sheet.rules.items():
                page.data_validation(place, _EXCEL_RULES[rule])
            for chart in sheet.charts:
                page.insert_chart(chart.place, _excel_chart(book, sheet.name, chart))
    return file.getvalue()


def _styles_of(book: Any) -> Any:
    """The format of each look of a cell, made at its first use."""

    @cache
    def style(
        form: NumberForm, *, is_input: bool = False, is_bold: bool = False, is_quoted: bool = False, align: str = ""
    ) -> Any:
        look: dict[str, Any] = {"num_format": EXCEL_FORMS[form]} if form != "general" else {}
        if is_input:
            look |= {"bg_color": INPUT_COLOUR, "border": 1, "border_color": LINE_COLOUR}
        if is_bold:
            look |= {"bold": True}
        if align:
            look |= {"align": align}
        if is_quoted:
            look |= {"quote_prefix": True}  # keeps a text that begins like a formula a text when its cell is edited
        return book.add_format(look) if look else None

    return style


def _lay_out(page: Any, sheet: Sheet) -> None:
    for column, width in enumerate(sheet.widths):
        page.set_column(column, column, width)
    if sheet.is_table:
        page.freeze_panes(1, 0)
        page.autofilter(0, 0, len(sheet.rows) - 1, len(sheet.widths) - 1)
    else:
        page.freeze_panes(sheet.frozen_rows, 0)
    page.set_landscape()
    page.set_paper(PAPER_A4)
    page.fit_to_pages(1, 1 if sheet.is_one_page else 0)
    page.set_footer("&L&A&RPage &P of &N")


_EXCEL_RULES: Mapping[ValidationRule, dict[str, Any]] = {
    "fraction": {
        "validate": "decimal", "criteria": "between", "minimum": 0, "maximum": 1,
        "error_title": "A share", "error_message": "Give a share from 0 % to 100 %.",
    },
    "positive": {
        "validate": "decimal", "criteria": ">=", "value": 0,
        "error_title": "An amount", "error_message": "Give a number of 0 or more.",
    },
    "date": {
        "validate": "date", "criteria": ">=", "value": date(2000, 1, 1),
        "error_title": "A date", "error_message": "Give a date from 2000 on.",
    },
}  # fmt: skip


def _excel_chart(book: Any, sheet: str, chart: Chart) -> Any:
    drawn = book.add_chart({"type": chart.kind})
    for name, values in chart.series.items():
        drawn.add_series(
            {
                "name": name,
                "categories": f"={sheet}!{absolute(chart.categories)}",
                "values": f"={sheet}!{absolute(values)}",
            }
        )
    drawn.set_title({"name": chart.title, "name_font": {"size": 12}})
    drawn.set_y_axis({"name": chart.unit, "num_format": EXCEL_FORMS["count"]})
    drawn.set_x_axis({"num_format": EXCEL_FORMS["month"]} if chart.kind == "line" else {})
    drawn.set_legend({"position": "bottom"} if len(chart.series) > 1 else {"none": True})
    drawn.set_size({"width": chart.width, "height": chart.height})
    return drawn


def absolute(cells: str) -> str:
    """A range that does not move when its formula is copied.

    >>> absolute("A5:B40")
    '$A$5:$B$40'
    """
    return re.sub(r"([A-Z]+)([0-9]+)", r"$\1$\2", cells)


def _write(page: Any, place: tuple[int, int], cell: SheetCell, styles: Any) -> None:
    look: dict[str, Any] = {}
    form: NumberForm = "general"
    if isinstance(cell, Shown):
        look, form, cell = {"is_input": cell.is_input, "is_bold": cell.is_bold}, cell.form, cell.value
    if isinstance(cell, Formula):
        page.write_formula(*place, excel_formula(cell.text), styles(form, **look), cell.value)
    elif isinstance(cell, Heading):
        align = "right" if cell.is_over_numbers else ""
        page.write_string(*place, cell.text[:LONGEST_CELL], styles(form, is_bold=True, align=align))
    elif isinstance(cell, str):
        page.write_string(*place, cell[:LONGEST_CELL], styles(form, is_quoted=begins_formula(cell), **look))
    elif isinstance(cell, bool):
        page.write_boolean(*place, cell, styles(form, **look))
    elif cell is not None:
        page.write_number(*place, cell, styles(form, **look))
