"""Local sweeps: shards computed on every core, without a service; existing shards are reused."""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path

from service.errors import TraincostError
from service.features.sweeps.axes import Sweep, sweep_from_bytes, sweep_to_bytes
from service.features.sweeps.rows import Counts
from service.features.sweeps.sweeps import SHARD_ROWS, Shard, shards_of
from service.features.sweeps.tables import as_csv, as_parquet, counts_in, write_shard
from service.validation.serialization import digest_of

SUFFIXES = (".parquet", ".csv")
"""Table formats by file suffix."""

SWEEP_FILE = "sweep.json"
"""File with the sweep, beside its shards."""


class UnknownForm(TraincostError):
    """Unknown suffix of a table file."""


class TableExists(TraincostError):
    """The table file exists, and overwriting was not requested."""


def run_locally(sweep: Sweep, file: Path, processes: int, report: Callable[[Counts], None]) -> Counts:
    """Compute a sweep and write its table."""
    if file.suffix not in SUFFIXES:
        raise UnknownForm(f"a sweep is written as {' or '.join(SUFFIXES)}, and the name of the file ends otherwise")
    content = sweep_to_bytes(sweep)
    every = file.with_name(f"{file.name}.parts")
    folder = every / digest_of(content)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SWEEP_FILE).write_bytes(content)
    shards = shards_of(sweep.axes.rows, SHARD_ROWS[sweep.kind])
    counts = _compute(folder, shards, processes, report)
    _write(sweep, file, (part_of(folder, shard).read_bytes() for shard in shards))
    shutil.rmtree(every)
    return counts


def part_of(folder: Path, shard: Shard) -> Path:
    """File of a shard."""
    return folder / f"part-{shard.number:06}.parquet"


def _compute(folder: Path, shards: tuple[Shard, ...], processes: int, report: Callable[[Counts], None]) -> Counts:
    """Compute the missing shards."""
    counts, missing = Counts(), []
    for shard in shards:
        known = counts_in(part_of(folder, shard), shard)
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
    """Row counts of each shard as it finishes; one process means this one."""
    if processes <= 1:
        yield from (_compute_shard(folder, shard) for shard in shards)
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for done in as_completed([pool.submit(_compute_shard, folder, shard) for shard in shards]):
            yield done.result()


def _compute_shard(folder: Path, shard: Shard) -> Counts:
    """Compute one shard, in a process that may compute several."""
    return write_shard(part_of(folder, shard), sweep_in(folder), shard, lambda _: None)


def sweep_in(folder: Path) -> Sweep:
    """The sweep of a folder, parsed once for all shards of a process."""
    return _parsed((folder / SWEEP_FILE).read_bytes())


_parsed = lru_cache(maxsize=2)(sweep_from_bytes)


def _write(sweep: Sweep, file: Path, parts: Iterator[bytes]) -> None:
    """Write the shards as one table, renamed into place when complete."""
    unfinished = file.with_name(f"{file.name}.unfinished")
    with unfinished.open("wb") as table:
        for chunk in as_csv(parts, sweep) if file.suffix == ".csv" else as_parquet(parts, sweep):
            table.write(chunk)
    unfinished.replace(file)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
