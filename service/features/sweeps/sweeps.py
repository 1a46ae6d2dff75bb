"""Stored sweeps: created once, computed by workers in shards, read while they grow."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from secrets import token_hex
from typing import Final, NamedTuple

from service.answers.estimates import Versions
from service.answers.sweeps import SweepAnswer, SweepColumnAnswer, SweepRow, SweepRows, SweepShards, SweepStatus
from service.errors import NotFound
from service.features.launch_checks.finished_jobs import KIND, on_end
from service.features.sweeps import store
from service.features.sweeps.axes import Sweep, SweepKind, sweep_to_bytes
from service.features.sweeps.columns import columns_of as table_columns
from service.features.sweeps.store import KeptSweep, NewSweep, ShardState
from service.jobs.ends import cancel_jobs, retry_jobs
from service.jobs.jobs import JobStatus, NewJob
from service.store import Engine, RowPart, utc_text
from service.store.keys import Caller
from service.tabular.columns import Column, columns_of
from service.tabular.lists import Listed, listed_in_parts

PATH = "/v1/sweeps"

MOST_REASONS = 10
"""Different reasons of failed pieces that are told. Source: a choice."""


def answer_of(kept: KeptSweep, shards: Sequence[ShardState]) -> SweepAnswer:
    """A sweep, as far as it is."""
    counts = Counter(shard.status for shard in shards)
    rows = _rows(kept, shards)
    status = status_of(counts)
    ended = [shard.finished_at for shard in shards if shard.finished_at is not None]
    return SweepAnswer(
        id=kept.id,
        name=kept.name,
        kind="plan" if kept.kind == "plan" else "estimate",
        status=status,
        rows=rows,
        shards=SweepShards(
            queued=counts["queued"],
            running=counts["running"],
            succeeded=counts["succeeded"],
            failed=counts["failed"],
            cancelled=counts["cancelled"],
        ),
        done_fraction=rows.done / rows.total,
        left_seconds=_left_seconds(shards, rows, counts["running"]),
        reasons=_reasons(shards),
        columns=tuple(SweepColumnAnswer(name=name, type=kind) for name, kind in kept.columns),  # type: ignore[arg-type]  # written by this service
        versions=Versions(formulas=kept.formulas, catalogue=kept.catalogue, calibration=kept.calibration),
        created_at=kept.created_at,
        finished_at=None if status in {"queued", "running"} or not ended else utc_text(max(ended)),
        links=_links(kept.id),
    )


def status_of(shards: Mapping[JobStatus, int]) -> SweepStatus:
    """Where a sweep is, by where its pieces are.

    >>> status_of({"succeeded": 3, "queued": 2}), status_of({"succeeded": 3, "cancelled": 2}), status_of({"queued": 5})
    ('running', 'cancelled', 'queued')
    """
    there = {status for status, count in shards.items() if count}
    if "running" in there or {"queued", "succeeded"} <= there:
        return "running"
    unfinished: tuple[SweepStatus, ...] = ("queued", "cancelled", "failed")
    return next((status for status in unfinished if status in there), "succeeded")


def _rows(kept: KeptSweep, shards: Sequence[ShardState]) -> SweepRows:
    whole = [shard.result for shard in shards if shard.status == "succeeded"]
    partly = [shard.progress or {} for shard in shards if shard.status == "running"]
    found = {name: sum(result[name] for result in whole) for name in ("rows", "answered", "refused", "fitting")}
    return SweepRows(
        total=kept.rows,
        done=found["rows"] + sum(progress.get("rows", 0) for progress in partly),
        kept=found["rows"],
        answered=found["answered"],
        refused=found["refused"],
        fitting=found["fitting"],
    )


def _left_seconds(shards: Sequence[ShardState], rows: SweepRows, running: int) -> float | None:
    spent = sum(_seconds(shard.started_at, shard.finished_at) for shard in shards if shard.status == "succeeded")
    if not rows.kept or not running:
        return None
    return spent / rows.kept * (rows.total - rows.done) / running


def _seconds(started: datetime | None, finished: datetime | None) -> float:
    return 0.0 if started is None or finished is None else (finished - started).total_seconds()


def _reasons(shards: Sequence[ShardState]) -> tuple[str, ...]:
    said = (str((shard.error or {}).get("message", "")) for shard in shards if shard.status == "failed")
    return tuple(filter(None, dict.fromkeys(said)))[:MOST_REASONS]


def _links(sweep_id: str) -> dict[str, str]:
    own = f"{PATH}/{sweep_id}"
    return {
        "self": own,
        "events": f"{own}/events",
        "parquet": f"{own}/rows.parquet",
        "csv": f"{own}/rows.csv",
        "cancel": f"{own}/cancel",
        "resume": f"{own}/resume",
    }


SHARD_ROWS: dict[SweepKind, int] = {"estimate": 20_000, "plan": 10}
"""Rows of one piece. Source: a choice; seconds of one core, where a process takes half a second to start."""


class Shard(NamedTuple):
    """Rows behind each other."""

    number: int
    """Which piece, from 0."""
    first: int
    """Its first row."""
    rows: int
    """How many rows."""


def shards_of(rows: int, each: int) -> tuple[Shard, ...]:
    """The pieces of a sweep; every row is in exactly one.

    >>> [(shard.first, shard.rows) for shard in shards_of(25, 10)]
    [(0, 10), (10, 10), (20, 5)]
    """
    firsts = range(0, rows, each)
    return tuple(Shard(number, first, min(each, rows - first)) for number, first in enumerate(firsts))


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
    """Have a sweep worked out."""
    charge(sweep.axes.rows)
    sweep_id = f"swp_{token_hex(RANDOM_BYTES)}"
    new, jobs = _new(sweep_id, sweep, caller.owner), _jobs(sweep_id, sweep, caller.owner)
    store.create_sweep(engine, new, sweep_to_bytes(sweep), jobs)
    return find_sweep(engine, caller, sweep_id)


def find_sweep(engine: Engine, caller: Caller, sweep_id: str) -> SweepAnswer:
    """One sweep, as far as it is."""
    kept = _kept(engine, caller, sweep_id)
    return answer_of(kept, store.read_shards(engine, sweep_id))


def sweeps_as_they_are(engine: Engine, sweep_ids: Sequence[str]) -> dict[str, SweepAnswer]:
    """Some sweeps, as far as each is, whoever owns them."""
    found = store.read_sweeps_and_shards(engine, sweep_ids)
    return {sweep.id: answer_of(sweep, shards) for sweep, shards in found}


def unknown_sweep() -> NotFound:
    """What somebody is told who has no such sweep."""
    return NotFound(f"there is no sweep of this id; GET {PATH} lists the ids")


def listed_sweeps(engine: Engine, caller: Caller) -> Listed:
    """The list of sweeps."""

    def rows(part: RowPart | None) -> list[SweepRow]:
        return [_row(kept, status_of(counts)) for kept, counts in store.read_sweeps(engine, caller.whose, part)]

    return listed_in_parts(COLUMNS, rows)


def cancel_sweep(engine: Engine, caller: Caller, sweep_id: str) -> SweepAnswer:
    """Stop a sweep; what is done of it stays."""
    _kept(engine, caller, sweep_id)
    cancel_jobs(engine, sweep_id, on_end)
    return find_sweep(engine, caller, sweep_id)


def resume_sweep(engine: Engine, caller: Caller, sweep_id: str) -> SweepAnswer:
    """Have done what is missing of a sweep that was cancelled, or failed in parts."""
    _kept(engine, caller, sweep_id)
    retry_jobs(engine, sweep_id)
    return find_sweep(engine, caller, sweep_id)


def content_of(engine: Engine, sweep_id: str) -> bytes:
    """Everything that the rows of a sweep depend on, for the workers that hold its pieces."""
    content = store.read_sweep_content(engine, sweep_id) if SWEEP_ID.fullmatch(sweep_id) else None
    if content is None:
        raise unknown_sweep()
    return content


def refuse_hidden(engine: Engine, caller: Caller, sweep_id: str) -> None:
    """Let nobody near a sweep of others."""
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
