"""Workbooks: one sheet of typed cells as .xlsx, the same bytes each time, or sheets with formulas as .xlsx or .ods."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from io import BytesIO
from typing import Any, NamedTuple, TypeAlias
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

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
    | (?P<reference>(?:(?P<sheet>\w+)!)?(?P<place>\$?[A-Z]{1,2}\$?[0-9]+))
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


SheetCell: TypeAlias = Plain | Formula | Heading | None


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


def open_formula(formula: str) -> str:
    """A formula as OpenDocument files hold it.

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


FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Source: XML 1.0, fifth edition, production 2."""


def xml_text(text: str) -> str:
    r"""A text as the content of an element or an attribute.

    >>> xml_text('a < "b"\ufffe\0')
    'a &lt; &quot;b&quot;'
    """
    return escape(FORBIDDEN.sub("", text))


class _Styles(NamedTuple):
    bold: Any
    text: Any
    """Keeps a text that begins like a formula a text when its cell is edited."""


def excel_file(sheets: Sequence[Sheet]) -> bytes:
    from xlsxwriter import Workbook  # type: ignore[import-untyped]  # the library ships no types

    file = BytesIO()
    with Workbook(file, {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False}) as book:
        book.set_properties({"created": CREATED})
        styles = _Styles(book.add_format({"bold": True}), book.add_format({"quote_prefix": True}))
        for sheet in sheets:
            page = book.add_worksheet(sheet.name)
            for column, width in enumerate(sheet.widths):
                page.set_column(column, column, width)
            for row, cells in enumerate(sheet.rows):
                for column, cell in enumerate(cells):
                    _write(page, (row, column), cell, styles)
            if sheet.is_table:
                page.freeze_panes(1, 0)
                page.autofilter(0, 0, len(sheet.rows) - 1, len(sheet.widths) - 1)
    return file.getvalue()


def _write(page: Any, place: tuple[int, int], cell: SheetCell, styles: _Styles) -> None:
    if isinstance(cell, Formula):
        page.write_formula(*place, excel_formula(cell.text), None, cell.value)
    elif isinstance(cell, Heading):
        page.write_string(*place, cell.text[:LONGEST_CELL], styles.bold)
    elif isinstance(cell, str):
        page.write_string(*place, cell[:LONGEST_CELL], styles.text if begins_formula(cell) else None)
    elif isinstance(cell, bool):
        page.write_boolean(*place, cell)
    elif cell is not None:
        page.write_number(*place, cell)


MEDIA_TYPE = "application/vnd.oasis.opendocument.spreadsheet"

_NAMESPACES = " ".join(
    f'xmlns:{prefix}="urn:oasis:names:tc:opendocument:xmlns:{name}"'
    for prefix, name in (
        ("office", "office:1.0"),
        ("style", "style:1.0"),
        ("fo", "xsl-fo-compatible:1.0"),
        ("table", "table:1.0"),
        ("text", "text:1.0"),
        ("of", "of:1.2"),
    )
)
_HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
_MANIFEST = (
    f'{_HEAD}<manifest:manifest xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0" '
    f'manifest:version="1.3"><manifest:file-entry manifest:full-path="/" manifest:media-type="{MEDIA_TYPE}"/>'
    '<manifest:file-entry manifest:full-path="content.xml" manifest:media-type="text/xml"/></manifest:manifest>'
)
_BOLD = (
    '<style:style style:name="bold" style:family="table-cell">'
    '<style:text-properties fo:font-weight="bold"/></style:style>'
)
_MILLIMETRES = 2.2
"""Width of one character."""


def open_document_file(sheets: Sequence[Sheet]) -> bytes:
    file = BytesIO()
    with ZipFile(file, "w") as archive:
        for name, text, compression in (
            ("mimetype", MEDIA_TYPE, ZIP_STORED),
            ("META-INF/manifest.xml", _MANIFEST, ZIP_DEFLATED),
            ("content.xml", _content(sheets), ZIP_DEFLATED),
        ):
            entry = ZipInfo(name, CREATED.timetuple()[:6])
            entry.compress_type = compression
            archive.writestr(entry, text)
    return file.getvalue()


def _content(sheets: Sequence[Sheet]) -> str:
    widths = sorted({width for sheet in sheets for width in sheet.widths})
    columns = "".join(
        f'<style:style style:name="w{width}" style:family="table-column"><style:table-column-properties '
        f'style:column-width="{width * _MILLIMETRES:.1f}mm"/></style:style>'
        for width in widths
    )
    return (
        f'{_HEAD}<office:document-content {_NAMESPACES} office:version="1.3">'
        f"<office:automatic-styles>{_BOLD}{columns}</office:automatic-styles>"
        f"<office:body><office:spreadsheet>{''.join(map(_table, sheets))}</office:spreadsheet></office:body>"
        "</office:document-content>"
    )


def _table(sheet: Sheet) -> str:
    columns = "".join(f'<table:table-column table:style-name="w{width}"/>' for width in sheet.widths)
    rows = "".join(
        f"<table:table-row>{''.join(map(_cell, cells)) or '<table:table-cell/>'}</table:table-row>"
        for cells in sheet.rows
    )
    return f'<table:table table:name="{xml_text(sheet.name)}">{columns}{rows}</table:table>'


def _cell(cell: SheetCell) -> str:
    if cell is None:
        return "<table:table-cell/>"
    if isinstance(cell, Heading):
        return f'<table:table-cell table:style-name="bold"{_typed(cell.text)}</table:table-cell>'
    if isinstance(cell, Formula):
        formula = xml_text(open_formula(cell.text))
        return f'<table:table-cell table:formula="{formula}"{_typed(cell.value)}</table:table-cell>'
    return f"<table:table-cell{_typed(cell)}</table:table-cell>"


def _typed(value: Plain) -> str:
    """The rest of the opening tag of a cell, and what the cell shows."""
    if isinstance(value, bool):
        return f' office:value-type="boolean" office:boolean-value="{str(value).lower()}">'
    if isinstance(value, str):
        paragraphs = "".join(f"<text:p>{xml_text(line)}</text:p>" for line in value.splitlines())
        return f' office:value-type="string">{paragraphs}'
    return f' office:value-type="float" office:value="{value!r}">'
