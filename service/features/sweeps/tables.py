"""Tables of sweeps: finished shards in row order, as Parquet or CSV.

Arrow loads slowly, so functions import it.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.features.launch_checks.finished_jobs import ROWS_FILE
from service.features.sweeps import store
from service.features.sweeps.axes import Sweep, sweep_from_bytes
from service.features.sweeps.rows import Counts, columns_of, rows_of
from service.features.sweeps.sweeps import Shard, content_of, visible_sweep
from service.jobs.leases import read_file
from service.store import Engine
from service.store.keys import Caller
from service.tabular.lists import cell_text
from service.validation.serialization import digest_of

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 2_000
"""Rows converted to a table at once. Source: a choice; a few megabytes."""

COMPRESSION = "zstd"
"""Source: a choice; every reader of Parquet knows it."""

WRITTEN_BY = b"traincost"
"""Key of the row counts in the footer of a file."""


def write_shard(path: Path, sweep: Sweep, shard: Shard, report: Callable[[int], None]) -> Counts:
    """Compute a shard and write it; reports the number of its rows so far."""
    import pyarrow.parquet as pq

    rows, schema = rows_of(sweep), schema_of(sweep)
    unfinished = path.with_name(f"{path.name}.unfinished")
    cells = rows.of(shard.first, shard.rows)
    with pq.ParquetWriter(unfinished, schema, compression=COMPRESSION) as writer:
        while batch := list(islice(cells, BATCH_ROWS)):
            writer.write_table(_table(batch, schema))
            report(rows.counts.rows)
        writer.add_key_value_metadata({WRITTEN_BY: json.dumps(asdict(rows.counts))})
    unfinished.replace(path)
    return rows.counts


def counts_in(path: Path, shard: Shard) -> Counts | None:
    """Row counts of an existing shard file; None if it is missing or incomplete."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        known = pq.read_metadata(path)
        counts = Counts(**json.loads(known.metadata[WRITTEN_BY]))
    except (OSError, pa.ArrowInvalid, KeyError, TypeError, ValueError):
        return None
    return counts if known.num_rows == counts.rows == shard.rows else None


def schema_of(sweep: Sweep) -> "pa.Schema":
    """Arrow schema of a sweep, with its versions."""
    import pyarrow as pa

    fields = [pa.field(name, pa.type_for_alias(kind), nullable=name != "row") for name, kind in columns_of(sweep)]
    versions = {name: str(value) for name, value in asdict(sweep.versions).items() if value is not None}
    return pa.schema(fields, metadata=versions)


def as_parquet(parts: Iterable[bytes], sweep: Sweep) -> Iterator[bytes]:
    """Join shards to one Parquet file, streamed by shard."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink, schema = BytesIO(), schema_of(sweep)
    with pq.ParquetWriter(pa.PythonFile(sink, mode="w"), schema, compression=COMPRESSION) as writer:
        for part in parts:
            writer.write_table(pq.read_table(pa.BufferReader(part), schema=schema))
            yield _drain(sink)
    yield _drain(sink)


def _table(batch: list[tuple[Any, ...]], schema: "pa.Schema") -> "pa.Table":
    import pyarrow as pa

    columns = zip(*batch, strict=True)
    return pa.table([pa.array(cells, kind) for cells, kind in zip(columns, schema.types, strict=True)], schema=schema)


def _drain(sink: BytesIO) -> bytes:
    """Take the bytes written since the last call."""
    content = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return content


def as_csv(parts: Iterable[bytes], sweep: Sweep) -> Iterator[bytes]:
    """Join shards to one CSV without cells that a spreadsheet runs as formulas."""
    import pyarrow as pa
    import pyarrow.csv as pc
    import pyarrow.parquet as pq

    schema = schema_of(sweep)
    yield ",".join(column.name for column in columns_of(sweep)).encode() + b"\n"
    for part in parts:
        table = pq.read_table(pa.BufferReader(part), schema=schema)
        content = BytesIO()
        pc.write_csv(_without_formulas(table), content, pc.WriteOptions(include_header=False, quoting_style="needed"))
        yield content.getvalue()


def _without_formulas(table: "pa.Table") -> "pa.Table":
    """Escape texts that a spreadsheet would run."""
    import pyarrow as pa

    for place, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            texts = table.column(place).combine_chunks().dictionary_encode()
            marked = pa.array([cell_text(text) for text in texts.dictionary.to_pylist()], pa.string())
            table = table.set_column(place, field, marked.take(texts.indices))
    return table


@dataclass(frozen=True, slots=True)
class Table:
    """Table of the finished rows of a sweep."""

    digest: str
    """Digest of its shards."""
    chunks: Iterator[bytes]
    """Its bytes."""


def table_of(
    engine: Engine, caller: Caller, sweep_id: str, form: Callable[[Iterable[bytes], Sweep], Iterator[bytes]]
) -> Table:
    """The table of a sweep that the caller may see, as `as_parquet` or `as_csv` writes it."""
    visible_sweep(engine, caller, sweep_id)
    sweep = sweep_from_bytes(content_of(engine, sweep_id))
    done = [shard.id for shard in store.read_shards(engine, sweep_id) if shard.status == "succeeded"]
    identity = "\n".join([form.__name__, sweep_id, *done])
    return Table(digest_of(identity.encode()), form(_contents(engine, done), sweep))


def _contents(engine: Engine, jobs: Iterable[str]) -> Iterator[bytes]:
    for job_id in jobs:
        file = read_file(engine, job_id, ROWS_FILE)
        if file is not None:
            yield file.content
