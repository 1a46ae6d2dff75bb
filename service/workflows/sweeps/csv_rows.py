"""How is the table of a sweep told to a spreadsheet or a script? As CSV, a piece at a time."""

from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import TYPE_CHECKING

from service.workflows.listed import cell_text
from service.workflows.sweeps.axes import Sweep
from service.workflows.sweeps.columns import columns_of
from service.workflows.sweeps.parquet import schema_of

if TYPE_CHECKING:
    import pyarrow as pa


def as_csv(parts: Iterable[bytes], sweep: Sweep) -> Iterator[bytes]:
    """Pieces as one CSV, no cell of which a spreadsheet runs as a formula.

    Args:
        parts: content of each piece, as Parquet, in order
        sweep: the sweep

    Yields:
        its header, then the rows of each piece
    """
    import pyarrow as pa
    import pyarrow.csv as pc
    import pyarrow.parquet as pq

    schema = schema_of(sweep)
    yield ",".join(column.name for column in columns_of(sweep)).encode() + b"\n"
    for part in parts:
        table = pq.read_table(pa.BufferReader(part), schema=schema)
        content = BytesIO()
        pc.write_csv(_harmless(table), content, pc.WriteOptions(include_header=False, quoting_style="needed"))
        yield content.getvalue()


def _harmless(table: "pa.Table") -> "pa.Table":
    """A table without texts that a spreadsheet would run."""
    import pyarrow as pa

    for place, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            texts = table.column(place).combine_chunks().dictionary_encode()
            marked = pa.array([cell_text(text) for text in texts.dictionary.to_pylist()], pa.string())
            table = table.set_column(place, field, marked.take(texts.indices))
    return table
