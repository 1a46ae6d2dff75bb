"""How is the table of a sweep handed out? The pieces that are done, one after another, never all at once."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from service import store
from service.store import Engine
from service.workflows.callers import Caller
from service.workflows.ended_shards import ROWS_FILE
from service.workflows.sweeps.axes import Sweep, sweep_from_bytes
from service.workflows.sweeps.csv_rows import as_csv
from service.workflows.sweeps.kept import content_of, refuse_hidden
from service.workflows.sweeps.parquet import as_parquet
from service.workflows.wire import digest_of


@dataclass(frozen=True, slots=True)
class Table:
    """The table of a sweep, as far as it is done."""

    digest: str
    """What tells it from the same with other pieces."""
    chunks: Iterator[bytes]
    """Its bytes."""


def parquet_of(engine: Engine, caller: Caller, sweep_id: str) -> Table:
    """The table of a sweep as Parquet.

    Args:
        engine: the database
        caller: who asks for it
        sweep_id: its id

    Returns:
        the file

    Raises:
        NotFound: the caller has no such sweep
    """
    refuse_hidden(engine, caller, sweep_id)
    return _table(engine, sweep_id, as_parquet)


def csv_of(engine: Engine, caller: Caller, sweep_id: str) -> Table:
    """The table of a sweep as CSV.

    Args:
        engine: the database
        caller: who asks for it
        sweep_id: its id

    Returns:
        the file

    Raises:
        NotFound: the caller has no such sweep
    """
    refuse_hidden(engine, caller, sweep_id)
    return _table(engine, sweep_id, as_csv)


def _table(engine: Engine, sweep_id: str, form: Callable[[Iterable[bytes], Sweep], Iterator[bytes]]) -> Table:
    sweep = sweep_from_bytes(content_of(engine, sweep_id))
    done = [shard.id for shard in store.read_shards(engine, sweep_id) if shard.status == "succeeded"]
    said = "\n".join([form.__name__, sweep_id, *done])
    return Table(digest_of(said.encode()), form(_contents(engine, done), sweep))


def _contents(engine: Engine, jobs: Iterable[str]) -> Iterator[bytes]:
    for job_id in jobs:
        file = store.read_file(engine, job_id, ROWS_FILE)
        if file is not None:
            yield file.content
