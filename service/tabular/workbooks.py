"""Excel workbooks of one sheet with typed cells, byte for byte the same each time.

Every cell is written by its kind, so no text is taken for a formula, a number or a link. A text that would be one if
someone entered it has the prefix of Excel that keeps it a text when its cell is edited.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from io import BytesIO

from service.tabular.cell_text import begins_formula

Cell = str | int | float | None

LONGEST_CELL = 32_767
"""Characters that Excel takes in one cell."""
NARROWEST, WIDEST = 8, 60
"""Characters that a column shows."""
CREATED = datetime(2000, 1, 1, tzinfo=UTC)
"""Date in every workbook: another one each time would be another file each time."""


def workbook(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> bytes:
    """A table as an .xlsx file, its header bold, frozen and with filters."""
    from xlsxwriter import Workbook  # type: ignore[import-untyped]  # the library ships no types

    file = BytesIO()
    with Workbook(file, {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False}) as book:
        book.set_properties({"created": CREATED})
        sheet = book.add_worksheet()
        bold, text = book.add_format({"bold": True}), book.add_format({"quote_prefix": True})
        write = {bool: sheet.write_boolean, int: sheet.write_number, float: sheet.write_number}
        for column, name in enumerate(header):
            sheet.write_string(0, column, name, bold)
            sheet.set_column(column, column, _width(name, [row[column] for row in rows]))
        for place, row in enumerate(rows, start=1):
            for column, cell in enumerate(row):
                if isinstance(cell, str):
                    sheet.write_string(place, column, cell[:LONGEST_CELL], text if begins_formula(cell) else None)
                elif cell is not None:
                    write[type(cell)](place, column, cell)
        sheet.freeze_panes(1, 0)
        sheet.autofilter(0, 0, len(rows), len(header) - 1)
    return file.getvalue()


def _width(name: str, cells: Sequence[Cell]) -> int:
    """Characters that a column needs, with room for the arrow of its filter."""
    longest = max([len(name) + 2, *(len(str(cell)) + 1 for cell in cells if cell is not None)])
    return min(max(longest, NARROWEST), WIDEST)
