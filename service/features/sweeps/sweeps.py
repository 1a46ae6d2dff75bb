"""Stored sweeps: created once, computed by workers in shards, read while they grow."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from secrets import token_hex
from typing import Final, NamedTuple, get_args

from service.answers.estimates import Versions
from service.answers.sweeps import SweepAnswer, SweepColumnAnswer, SweepRow, SweepRows, SweepShards, SweepStatus
from service.errors import NotFound
from service.features.launch_checks.finished_jobs import SWEEP_SHARD, on_end
from service.features.sweeps import store
from service.features.sweeps.rows import Sweep, SweepKind, sweep_to_bytes
from service.features.sweeps.rows import columns_of as table_columns
from service.features.sweeps.store import NewSweep, ShardState, StoredSweep
from service.jobs.jobs import JobStatus, NewJob
from service.jobs.leases import cancel_jobs, retry_jobs
from service.store import Engine
from service.store.engine import RowPart, utc_text
from service.store.keys import Caller
from service.tabular.lists import Column, Listed, columns_of, listed_in_parts

PATH = "/v1/sweeps"

LINKS = {
    "events": "events", "parquet": "rows.parquet", "csv": "rows.csv", "cancel": "cancel", "resume": "resume",
}  # fmt: skip
"""Paths below that of a sweep."""

MOST_REASONS = 10
"""Most reasons of failed shards in an answer. Source: a choice."""


def answer_of(sweep: StoredSweep, shards: Sequence[ShardState]) -> SweepAnswer:
    messages = (str((shard.error or {}).get("message", "")) for shard in shards if shard.status == "failed")
    counts = Counter(shard.status for shard in shards)
    rows = _rows(sweep, shards)
    status = status_of(counts)
    own = f"{PATH}/{sweep.id}"
    ended = [shard.finished_at for shard in shards if shard.finished_at is not None]
    return SweepAnswer(
        id=sweep.id,
        name=sweep.name,
        kind="plan" if sweep.kind == "plan" else "estimate",
        status=status,
        rows=rows,
        shards=SweepShards(**{status: counts[status] for status in get_args(SweepStatus)}),
        done_fraction=rows.done / rows.total,
        left_seconds=_left_seconds(shards, rows, counts["running"]),
        reasons=tuple(filter(None, dict.fromkeys(messages)))[:MOST_REASONS],
        columns=tuple(SweepColumnAnswer(name=name, type=kind) for name, kind in sweep.columns),  # type: ignore[arg-type]  # written by this service
        versions=Versions(formulas=sweep.formulas, catalogue=sweep.catalogue, calibration=sweep.calibration),
        created_at=sweep.created_at,
        finished_at=None if status in {"queued", "running"} or not ended else utc_text(max(ended)),
        links={"self": own, **{name: f"{own}/{path}" for name, path in LINKS.items()}},
    )


def status_of(shards: Mapping[JobStatus, int]) -> SweepStatus:
    """Status of a sweep from the statuses of its shards.

    >>> status_of({"succeeded": 3, "queued": 2}), status_of({"succeeded": 3, "cancelled": 2}), status_of({"queued": 5})
    ('running', 'cancelled', 'queued')
    """
    there = {status for status, count in shards.items() if count}
    if "running" in there or {"queued", "succeeded"} <= there:
        return "running"
    unfinished: tuple[SweepStatus, ...] = ("queued", "cancelled", "failed")
    return next((status for status in unfinished if status in there), "succeeded")


def _rows(sweep: StoredSweep, shards: Sequence[ShardState]) -> SweepRows:
    whole = [shard.result for shard in shards if shard.status == "succeeded"]
    partly = sum((shard.progress or {}).get("rows", 0) for shard in shards if shard.status == "running")
    sums = {name: sum(result[name] for result in whole) for name in ("answered", "refused", "fitting")}
    kept = sum(result["rows"] for result in whole)
    return SweepRows(total=sweep.rows, done=kept + partly, kept=kept, **sums)


def _left_seconds(shards: Sequence[ShardState], rows: SweepRows, running: int) -> float | None:
    if not rows.kept or not running:
        return None
    spent = sum(
        (shard.finished_at - shard.started_at).total_seconds()
        for shard in shards
        if shard.status == "succeeded" and shard.started_at is not None and shard.finished_at is not None
    )
    return spent / rows.kept * (rows.total - rows.done) / running


SHARD_ROWS: dict[SweepKind, int] = {"estimate": 20_000, "plan": 10}
"""Rows of one shard. Source: a choice; seconds of one core, where a process takes half a second to start."""


class Shard(NamedTuple):
    """Consecutive rows."""

    number: int
    first: int
    rows: int


def shards_of(rows: int, each: int) -> tuple[Shard, ...]:
    """Shards of a sweep; every row is in exactly one.

    >>> [(shard.first, shard.rows) for shard in shards_of(25, 10)]
    [(0, 10), (10, 10), (20, 5)]
    """
    firsts = range(0, rows, each)
    return tuple(Shard(number, first, min(each, rows - first)) for number, first in enumerate(firsts))


RANDOM_BYTES = 16
"""Random bytes of an id: 128 bits cannot be guessed."""

SWEEP_ID = re.compile(r"swp_[0-9a-f]{32}")
"""Pattern of ids; any other id is not found without a query."""

SHARD_SECONDS = 3600.0
"""Timeout of a shard. Source: a choice; a hundred times the usual duration."""

COLUMNS: Final[tuple[Column, ...]] = tuple(sorted(columns_of(SweepRow), key=lambda column: column.name != "id"))
SHARED = tuple(column.name for column in COLUMNS if column.name != "status")
"""Columns that a stored sweep has too."""


def create_sweep(engine: Engine, caller: Caller, sweep: Sweep, charge: Callable[[int], None]) -> SweepAnswer:
    charge(sweep.axes.rows)
    sweep_id = f"swp_{token_hex(RANDOM_BYTES)}"
    new = NewSweep(
        id=sweep_id,
        name=sweep.name,
        kind=sweep.kind,
        owner=caller.owner,
        rows=sweep.axes.rows,
        columns=[list(column) for column in table_columns(sweep)],
        **asdict(sweep.versions),
    )
    jobs = [
        NewJob(
            id=f"{sweep_id}-{shard.number:06}",
            kind=SWEEP_SHARD,
            payload={"sweep": sweep_id, **shard._asdict()},
            timeout_seconds=SHARD_SECONDS,
            parent=sweep_id,
            owner=caller.owner,
        )
        for shard in shards_of(sweep.axes.rows, SHARD_ROWS[sweep.kind])
    ]
    store.create_sweep(engine, new, sweep_to_bytes(sweep), jobs)
    return find_sweep(engine, caller, sweep_id)


def find_sweep(engine: Engine, caller: Caller, sweep_id: str) -> SweepAnswer:
    sweep = visible_sweep(engine, caller, sweep_id)
    return answer_of(sweep, store.read_shards(engine, sweep_id))


def current_sweeps(engine: Engine, sweep_ids: Sequence[str]) -> list[SweepAnswer]:
    """Current state of some sweeps of any owner."""
    return [answer_of(sweep, shards) for sweep, shards in store.read_sweeps_and_shards(engine, sweep_ids)]


def unknown_sweep() -> NotFound:
    return NotFound(f"there is no sweep of this id; GET {PATH} lists the ids")


def listed_sweeps(engine: Engine, caller: Caller) -> Listed:
    def rows(part: RowPart | None) -> list[SweepRow]:
        return [
            SweepRow(status=status_of(counts), **{name: getattr(sweep, name) for name in SHARED})
            for sweep, counts in store.read_sweeps(engine, caller.visible_owner, part)
        ]

    return listed_in_parts(COLUMNS, rows)


def cancel_sweep(engine: Engine, caller: Caller, sweep_id: str) -> SweepAnswer:
    """Cancel a sweep; finished shards remain."""
    visible_sweep(engine, caller, sweep_id)
    cancel_jobs(engine, sweep_id, on_end)
    return find_sweep(engine, caller, sweep_id)


def resume_sweep(engine: Engine, caller: Caller, sweep_id: str) -> SweepAnswer:
    """Queue the missing shards of a sweep that was cancelled or failed in parts."""
    visible_sweep(engine, caller, sweep_id)
    retry_jobs(engine, sweep_id)
    return find_sweep(engine, caller, sweep_id)


def content_of(engine: Engine, sweep_id: str) -> bytes:
    """Serialized inputs of a sweep, for workers with one of its shards."""
    content = store.read_sweep_content(engine, sweep_id) if SWEEP_ID.fullmatch(sweep_id) else None
    if content is None:
        raise unknown_sweep()
    return content


def visible_sweep(engine: Engine, caller: Caller, sweep_id: str) -> StoredSweep:
    sweep = store.read_sweep(engine, sweep_id) if SWEEP_ID.fullmatch(sweep_id) else None
    if sweep is None or not caller.may_access(sweep.owner):
        raise unknown_sweep()
    return sweep
