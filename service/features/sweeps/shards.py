"""Shards of a sweep as files, joined to Parquet or CSV: computed on local cores or by a worker process."""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from functools import lru_cache
from io import BytesIO
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.errors import TraincostError
from service.estimator import FORMULAS_VERSION
from service.features.launch_checks.finished_jobs import ROWS_FILE
from service.features.sweeps import store
from service.features.sweeps.rows import Counts, Rows, Sweep, columns_of, sweep_from_bytes, sweep_to_bytes
from service.features.sweeps.sweeps import SHARD_ROWS, Shard, content_of, shards_of, visible_sweep
from service.jobs.leases import read_file
from service.store import Engine
from service.store.keys import Caller
from service.tabular.lists import cell_text
from service.validation.reading import digest_of

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 2_000
"""Rows converted to a table at once. Source: a choice; a few megabytes."""

COMPRESSION = "zstd"
"""Source: a choice; every reader of Parquet supports it."""

COUNTS_KEY = b"traincost"
"""Key of the row counts in a file's footer."""


def write_shard(path: Path, sweep: Sweep, shard: Shard, report: Callable[[int], None]) -> Counts:
    """Compute a shard and write it; reports the number of its rows so far."""
    import pyarrow.parquet as pq

    rows, schema = Rows(sweep), schema_of(sweep)
    unfinished = path.with_name(f"{path.name}.unfinished")
    cells = rows.of(shard.first, shard.rows)
    with pq.ParquetWriter(unfinished, schema, compression=COMPRESSION) as writer:
        while batch := list(islice(cells, BATCH_ROWS)):
            writer.write_table(_table(batch, schema))
            report(rows.counts.rows)
        writer.add_key_value_metadata({COUNTS_KEY: json.dumps(asdict(rows.counts))})
    unfinished.replace(path)
    return rows.counts


def counts_in(path: Path, shard: Shard) -> Counts | None:
    """Row counts of an existing shard file; None if it is missing or incomplete."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        known = pq.read_metadata(path)
        counts = Counts(**json.loads(known.metadata[COUNTS_KEY]))
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


def table_of(
    engine: Engine, caller: Caller, sweep_id: str, form: Callable[[Iterable[bytes], Sweep], Iterator[bytes]]
) -> tuple[str, Iterator[bytes]]:
    """The digest of a sweep's finished shards and the bytes of their table, as `as_parquet` or `as_csv` writes it."""
    visible_sweep(engine, caller, sweep_id)
    sweep = sweep_from_bytes(content_of(engine, sweep_id))
    done = [shard.id for shard in store.read_shards(engine, sweep_id) if shard.status == "succeeded"]
    identity = "\n".join([form.__name__, sweep_id, *done])
    files = (read_file(engine, job_id, ROWS_FILE) for job_id in done)
    contents = (file.content for file in files if file is not None)
    return digest_of(identity.encode()), form(contents, sweep)


SUFFIXES = (".parquet", ".csv")

SWEEP_FILE = "sweep.json"


class UnknownFormat(TraincostError):
    """The suffix of a table file names no known format."""


class TableExists(TraincostError):
    """The table file exists, and overwriting was not requested."""


def run_locally(sweep: Sweep, file: Path, processes: int, report: Callable[[Counts], None]) -> Counts:
    """Compute a sweep and write its table."""
    if file.suffix not in SUFFIXES:
        raise UnknownFormat(f"the file name must end in {' or '.join(SUFFIXES)}")
    content = sweep_to_bytes(sweep)
    parts_folder = file.with_name(f"{file.name}.parts")
    folder = parts_folder / digest_of(content)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SWEEP_FILE).write_bytes(content)
    shards = shards_of(sweep.axes.rows, SHARD_ROWS[sweep.kind])
    counts = _compute(folder, shards, processes, report)
    parts = (_part_of(folder, shard).read_bytes() for shard in shards)
    unfinished = file.with_name(f"{file.name}.unfinished")  # renamed when complete
    with unfinished.open("wb") as table:
        for chunk in as_csv(parts, sweep) if file.suffix == ".csv" else as_parquet(parts, sweep):
            table.write(chunk)
    unfinished.replace(file)
    shutil.rmtree(parts_folder)
    return counts


def _part_of(folder: Path, shard: Shard) -> Path:
    return folder / f"part-{shard.number:06}.parquet"


def _compute(folder: Path, shards: tuple[Shard, ...], processes: int, report: Callable[[Counts], None]) -> Counts:
    counts, missing = Counts(), []
    for shard in shards:
        known = counts_in(_part_of(folder, shard), shard)
        if known is None:
            missing.append(shard)
        else:
            counts.add(known)
    report(counts)
    for done in _each(folder, missing, min(processes, len(missing))):
        counts.add(done)
        report(counts)
    return counts


def _each(folder: Path, shards: Sequence[Shard], processes: int) -> Iterator[Counts]:
    """Row counts of each shard as it finishes; `processes` of 1 means this process."""
    if processes <= 1:
        yield from (_compute_shard(folder, shard) for shard in shards)
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for done in as_completed([pool.submit(_compute_shard, folder, shard) for shard in shards]):
            yield done.result()


def _compute_shard(folder: Path, shard: Shard) -> Counts:
    return write_shard(_part_of(folder, shard), sweep_in(folder), shard, lambda _: None)


def sweep_in(folder: Path) -> Sweep:
    """The sweep of a folder, parsed once for all shards of a process."""
    return _parsed((folder / SWEEP_FILE).read_bytes())


_parsed = lru_cache(maxsize=2)(sweep_from_bytes)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


RECORD, PROGRESS = "record.json", "progress.json"


def main(arguments: Sequence[str]) -> int:
    """Compute a shard and write its rows and its record."""
    task, folder = map(Path, arguments)
    payload = json.loads(task.read_text(encoding="utf-8"))
    record = run_task(payload, folder)
    _write_json(record, folder / RECORD)
    return int(record["status"] != "succeeded")


def run_task(payload: Any, folder: Path) -> dict[str, Any]:
    """Compute the shard of a job in this process."""
    return compute_shard(sweep_in(folder), payload, folder)


def compute_shard(sweep: Sweep, payload: Any, folder: Path) -> dict[str, Any]:
    if sweep.versions.formulas != FORMULAS_VERSION:
        reason = (
            f"this worker has formulas {FORMULAS_VERSION}, and the sweep was created with "
            f"{sweep.versions.formulas}: resume it on workers of that version, or create it again"
        )
        return {"status": "failed", "reason": reason, "final": True}
    shard = Shard(**{name: payload[name] for name in Shard._fields})
    counts = write_shard(folder / ROWS_FILE, sweep, shard, lambda done: _write_json({"rows": done}, folder / PROGRESS))
    return {"status": "succeeded", "reason": None, "counts": asdict(counts)}


def _write_json(content: Any, path: Path) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(json.dumps(content), encoding="utf-8")
    part.replace(path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
