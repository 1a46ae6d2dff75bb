"""How is a piece of a sweep kept? As Parquet, written some rows at a time, with what became of them in its footer.

Arrow is imported where a table is written or read: it takes a while, and the API starts without it.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.answers.estimates import Versions
from service.workflows.sweeps.axes import Sweep
from service.workflows.sweeps.columns import columns_of
from service.workflows.sweeps.rows import Counts, Rows
from service.workflows.sweeps.shards import Shard

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 2_000
"""Rows that are held as Python values before they become a table. Source: a choice; a few megabytes."""

COMPRESSION = "zstd"
"""Source: a choice; every reader of Parquet knows it."""

WRITTEN_BY = b"traincost"
"""Entry of a file's footer that says what became of its rows."""


def write_shard(path: Path, rows: Rows, shard: Shard, told: Callable[[int], None]) -> None:
    """Work out a piece of a sweep and write it.

    Args:
        path: file to write; one of this name is replaced once the piece is whole
        rows: the rows of the sweep; its counts go on
        shard: which of them
        told: is called with the rows that are done, now and then
    """
    import pyarrow.parquet as pq

    before, schema = Counts(**asdict(rows.counts)), schema_of(rows.sweep)
    unfinished = path.with_name(f"{path.name}.unfinished")
    cells = rows.of(shard.first, shard.rows)
    with pq.ParquetWriter(unfinished, schema, compression=COMPRESSION) as writer:
        while batch := list(islice(cells, BATCH_ROWS)):
            writer.write_table(_table(batch, schema))
            told(rows.counts.rows - before.rows)
        writer.add_key_value_metadata({WRITTEN_BY: json.dumps(asdict(_since(before, rows.counts)))})
    unfinished.replace(path)


def counts_in(path: Path, shard: Shard) -> Counts | None:
    """What became of the rows of a piece that was written before.

    Args:
        path: of `write_shard`
        shard: the piece that it should hold

    Returns:
        the counts; None where there is no such piece, or not the whole of it
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        known = pq.read_metadata(path)
        counts = Counts(**json.loads(known.metadata[WRITTEN_BY]))
    except (OSError, pa.ArrowInvalid, KeyError, TypeError, ValueError):
        return None
    return counts if known.num_rows == counts.rows == shard.rows else None


def schema_of(sweep: Sweep) -> "pa.Schema":
    """The columns of a sweep as Arrow names them, with what the rows rest on.

    Args:
        sweep: the sweep

    Returns:
        the schema; every column but the first may hold nulls
    """
    import pyarrow as pa

    fields = [pa.field(name, pa.type_for_alias(kind), nullable=name != "row") for name, kind in columns_of(sweep)]
    return pa.schema(fields, metadata=_versions(sweep.versions))


def as_parquet(parts: Iterable[bytes], sweep: Sweep) -> Iterator[bytes]:
    """Pieces as one Parquet file, a piece at a time.

    Args:
        parts: content of each piece, in order
        sweep: the sweep

    Yields:
        the file, from its beginning to its end
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink, schema = BytesIO(), schema_of(sweep)
    with pq.ParquetWriter(pa.PythonFile(sink, mode="w"), schema, compression=COMPRESSION) as writer:
        for part in parts:
            writer.write_table(pq.read_table(pa.BufferReader(part), schema=schema))
            yield _drained(sink)
    yield _drained(sink)


def _table(batch: list[tuple[Any, ...]], schema: "pa.Schema") -> "pa.Table":
    import pyarrow as pa

    columns = zip(*batch, strict=True)
    return pa.table([pa.array(cells, kind) for cells, kind in zip(columns, schema.types, strict=True)], schema=schema)


def _since(before: Counts, now: Counts) -> Counts:
    return Counts(**{name: count - getattr(before, name) for name, count in asdict(now).items()})


def _versions(versions: Versions) -> dict[str, str]:
    return {name: str(value) for name, value in asdict(versions).items() if value is not None}


def _drained(sink: BytesIO) -> bytes:
    """What was written since it was last asked for."""
    content = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return content
