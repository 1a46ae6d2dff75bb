"""Sweeps that the service has worked out: kept once, their pieces handed to workers, their tables read as they grow."""

import re
from collections.abc import Callable, Sequence
from secrets import token_hex
from typing import Final

from service import store
from service.answers.sweeps import SweepAnswer, SweepRow, SweepStatus
from service.errors import NotFound
from service.store import Engine, KeptSweep, NewJob, NewSweep, RowPart
from service.workflows.callers import Caller
from service.workflows.columns import Column, columns_of
from service.workflows.ended_shards import KIND
from service.workflows.finished_jobs import on_end
from service.workflows.list_parts import listed_in_parts
from service.workflows.listed import Listed
from service.workflows.sweeps.axes import Sweep, sweep_to_bytes
from service.workflows.sweeps.columns import columns_of as table_columns
from service.workflows.sweeps.progress import PATH, answer_of, status_of
from service.workflows.sweeps.shards import SHARD_ROWS, shards_of

RANDOM_BYTES = 16
"""Of an id: 128 bits, which nobody guesses."""

SWEEP_ID = re.compile(r"swp_[0-9a-f]{32}")
"""What ids look like; for anything else no database is asked."""

SHARD_SECONDS = 3600.0
"""Longest time that one piece may take. Source: a choice; a hundred times what one usually takes."""

_KEYED = {column.name: column for column in columns_of(SweepRow)}
COLUMNS: Final[tuple[Column, ...]] = (_KEYED.pop("id"), *_KEYED.values())
"""Columns of the list, the key first."""


def create_sweep(engine: Engine, caller: Caller, sweep: Sweep, charge: Callable[[int], None]) -> SweepAnswer:
    """Have a sweep worked out.

    Args:
        engine: the database
        caller: whose it is
        sweep: what is to be worked out
        charge: called with its rows before anything is kept; refuses it where they are too many for its caller

    Returns:
        the sweep, all of its pieces waiting for workers
    """
    charge(sweep.axes.rows)
    sweep_id = f"swp_{token_hex(RANDOM_BYTES)}"
    new, jobs = _new(sweep_id, sweep, caller.owner), _jobs(sweep_id, sweep, caller.owner)
    store.create_sweep(engine, new, sweep_to_bytes(sweep), jobs)
    return find_sweep(engine, caller, sweep_id)


def find_sweep(engine: Engine, caller: Caller, sweep_id: str) -> SweepAnswer:
    """One sweep, as far as it is.

    Args:
        engine: the database
        caller: who asks
        sweep_id: its id

    Returns:
        the sweep

    Raises:
        NotFound: the caller has no such sweep
    """
    kept = _kept(engine, caller, sweep_id)
    return answer_of(kept, store.read_shards(engine, sweep_id))


def sweeps_as_they_are(engine: Engine, sweep_ids: Sequence[str]) -> dict[str, SweepAnswer]:
    """Some sweeps, as far as each is, whoever owns them.

    Args:
        engine: the database
        sweep_ids: ids of the sweeps

    Returns:
        those that are there, by their ids

    Raises:
        Unreachable: the database does not answer
    """
    found = store.read_sweeps_and_shards(engine, sweep_ids)
    return {sweep.id: answer_of(sweep, shards) for sweep, shards in found}


def unknown_sweep() -> NotFound:
    """What somebody is told who has no such sweep.

    Returns:
        the error
    """
    return NotFound(f"there is no sweep of this id; GET {PATH} lists the ids")


def listed_sweeps(engine: Engine, caller: Caller) -> Listed:
    """The list of sweeps.

    Args:
        engine: the database
        caller: who asks for it

    Returns:
        its rows and how they are asked for
    """

    def rows(part: RowPart | None) -> list[SweepRow]:
        return [_row(kept, status_of(counts)) for kept, counts in store.read_sweeps(engine, caller.whose, part)]

    return listed_in_parts(COLUMNS, rows)


def cancel_sweep(engine: Engine, caller: Caller, sweep_id: str) -> SweepAnswer:
    """Stop a sweep; what is done of it stays.

    Args:
        engine: the database
        caller: who asks
        sweep_id: its id

    Returns:
        the sweep afterwards; workers stop within a heartbeat

    Raises:
        NotFound: the caller has no such sweep
    """
    _kept(engine, caller, sweep_id)
    store.cancel_jobs(engine, sweep_id, on_end)
    return find_sweep(engine, caller, sweep_id)


def resume_sweep(engine: Engine, caller: Caller, sweep_id: str) -> SweepAnswer:
    """Have done what is missing of a sweep that was cancelled, or failed in parts.

    Args:
        engine: the database
        caller: who asks
        sweep_id: its id

    Returns:
        the sweep afterwards

    Raises:
        NotFound: the caller has no such sweep
    """
    _kept(engine, caller, sweep_id)
    store.retry_jobs(engine, sweep_id)
    return find_sweep(engine, caller, sweep_id)


def content_of(engine: Engine, sweep_id: str) -> bytes:
    """Everything that the rows of a sweep depend on, for the workers that hold its pieces.

    Args:
        engine: the database
        sweep_id: its id

    Returns:
        JSON, of `sweep_to_bytes`

    Raises:
        NotFound: the caller has no such sweep
    """
    content = store.read_sweep_content(engine, sweep_id) if SWEEP_ID.fullmatch(sweep_id) else None
    if content is None:
        raise unknown_sweep()
    return content


def refuse_hidden(engine: Engine, caller: Caller, sweep_id: str) -> None:
    """Let nobody near a sweep of others.

    Args:
        engine: the database
        caller: who asks
        sweep_id: its id

    Raises:
        NotFound: the caller has no such sweep
    """
    _kept(engine, caller, sweep_id)


def _kept(engine: Engine, caller: Caller, sweep_id: str) -> KeptSweep:
    found = store.read_sweep(engine, sweep_id) if SWEEP_ID.fullmatch(sweep_id) else None
    if found is None or not caller.reaches(found.owner):
        raise unknown_sweep()
    return found


def _new(sweep_id: str, sweep: Sweep, owner: str) -> NewSweep:
    return NewSweep(
        id=sweep_id,
        name=sweep.name,
        kind=sweep.kind,
        owner=owner,
        rows=sweep.axes.rows,
        columns=[list(column) for column in table_columns(sweep)],
        formulas=sweep.versions.formulas,
        catalogue=sweep.versions.catalogue,
        calibration=sweep.versions.calibration,
    )


def _jobs(sweep_id: str, sweep: Sweep, owner: str) -> list[NewJob]:
    return [
        NewJob(
            id=f"{sweep_id}-{shard.number:06}",
            kind=KIND,
            payload={"sweep": sweep_id, **shard._asdict()},
            timeout_seconds=SHARD_SECONDS,
            parent=sweep_id,
            owner=owner,
        )
        for shard in shards_of(sweep.axes.rows, SHARD_ROWS[sweep.kind])
    ]


def _row(kept: KeptSweep, status: SweepStatus) -> SweepRow:
    return SweepRow(
        id=kept.id,
        name=kept.name,
        kind=kept.kind,
        owner=kept.owner,
        status=status,
        rows=kept.rows,
        formulas=kept.formulas,
        catalogue=kept.catalogue,
        calibration=kept.calibration,
        created_at=kept.created_at,
    )
