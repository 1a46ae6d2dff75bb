"""Parquet files of lists, with typed columns.

pyarrow is imported at the first request: it takes longer to load than the rest of the service.
"""

import io
from collections.abc import Sequence
from typing import Any

from service.tabular.columns import Column

TYPES = ("boolean", "integer", "number", "array")
"""JSON types of columns that are no text."""


def parquet(columns: Sequence[Column], rows: Sequence[Any]) -> bytes:
    """Rows of a list as Parquet."""
    import pyarrow
    from pyarrow import parquet as written

    fields = [
        pyarrow.field(
            column.name, _type(pyarrow, column), metadata={"description": str(column.schema.get("description", ""))}
        )
        for column in columns
    ]
    values = [_values(column, rows) for column in columns]
    arrays = [pyarrow.array(cells, field.type) for cells, field in zip(values, fields, strict=True)]
    file = io.BytesIO()
    written.write_table(pyarrow.Table.from_arrays(arrays, schema=pyarrow.schema(fields)), file)
    return file.getvalue()


def _values(column: Column, rows: Sequence[Any]) -> list[Any]:
    values = (column.value(row) for row in rows)
    return [list(value) if isinstance(value, tuple) else value for value in values]


def _type(pyarrow: Any, column: Column) -> Any:
    kind = next((name for name in TYPES if name in column.types), "string")
    kinds = {
        "boolean": pyarrow.bool_(),
        "integer": pyarrow.int64(),
        "number": pyarrow.float64(),
        "array": pyarrow.list_(pyarrow.string()),
        "string": pyarrow.string(),
    }
    return kinds[kind]
