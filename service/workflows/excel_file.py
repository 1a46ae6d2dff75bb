"""How do sheets with formulas become an .xlsx file? Every cell by its kind: only what is a formula here runs there."""

from collections.abc import Sequence
from io import BytesIO
from typing import Any

from service.workflows.sheets import Cell, Formula, Heading, Sheet, excel_formula
from service.workflows.workbook import CREATED, LONGEST_CELL


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
        bold = book.add_format({"bold": True})
        for sheet in sheets:
            page = book.add_worksheet(sheet.name)
            for column, width in enumerate(sheet.widths):
                page.set_column(column, column, width)
            for row, cells in enumerate(sheet.rows):
                for column, cell in enumerate(cells):
                    _write(page, (row, column), cell, bold)
    return file.getvalue()


def _write(page: Any, place: tuple[int, int], cell: Cell, bold: Any) -> None:
    if isinstance(cell, Formula):
        page.write_formula(*place, excel_formula(cell.text), None, cell.value)
    elif isinstance(cell, Heading):
        page.write_string(*place, cell.text[:LONGEST_CELL], bold)
    elif isinstance(cell, str):
        page.write_string(*place, cell[:LONGEST_CELL])
    elif isinstance(cell, bool):
        page.write_boolean(*place, cell)
    elif cell is not None:
        page.write_number(*place, cell)
