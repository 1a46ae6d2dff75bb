"""How do sheets with formulas become an .ods file? As OpenDocument 1.3 has it, every cell by its kind."""

from collections.abc import Sequence
from io import BytesIO
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

from service.workflows.sheets import Cell, Formula, Heading, Plain, Sheet, open_formula
from service.workflows.workbook import CREATED
from service.workflows.xml_text import xml_text

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
    """Sheets as an .ods file.

    Args:
        sheets: the sheets, the one that is seen first at the front

    Returns:
        the file; the same sheets are the same bytes
    """
    file = BytesIO()
    with ZipFile(file, "w") as archive:
        _put(archive, "mimetype", MEDIA_TYPE, ZIP_STORED)
        _put(archive, "META-INF/manifest.xml", _MANIFEST, ZIP_DEFLATED)
        _put(archive, "content.xml", _content(sheets), ZIP_DEFLATED)
    return file.getvalue()


def _put(archive: ZipFile, name: str, text: str, compression: int) -> None:
    entry = ZipInfo(name, CREATED.timetuple()[:6])
    entry.compress_type = compression
    archive.writestr(entry, text)


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


def _cell(cell: Cell) -> str:
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
