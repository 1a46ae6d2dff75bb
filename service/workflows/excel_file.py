"""How do sheets with formulas become an .xlsx file? Every cell by its kind: only what is a formula here runs there."""

from collections.abc import Sequence
from io import BytesIO
from typing import Any, NamedTuple

from service.workflows.formula_text import begins_formula
from service.workflows.sheets import Cell, Formula, Heading, Sheet, excel_formula
from service.workflows.workbook import CREATED, LONGEST_CELL


class _Styles(NamedTuple):
    """How cells are shown."""

    bold: Any
    text: Any
    """Keeps a text that begins like a formula a text when its cell is edited."""


def excel_file(sheets: Sequence[Sheet]) -> bytes:
    """Sheets as an .xlsx file.

    Args:
        sheets: the sheets, the one that is seen first at the front

    Returns:
        the file; the same sheets are the same bytes
    """
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
    return file.getvalue()


def _write(page: Any, place: tuple[int, int], cell: Cell, styles: _Styles) -> None:
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
