"""How far is a sweep? What its pieces tell, added up."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

from service.answers.estimates import Versions
from service.answers.sweeps import SweepAnswer, SweepColumnAnswer, SweepRows, SweepShards, SweepStatus
from service.store import JobStatus, KeptSweep, ShardState, utc_text

PATH = "/v1/sweeps"

MOST_REASONS = 10
"""Different reasons of failed pieces that are told. Source: a choice."""


def answer_of(kept: KeptSweep, shards: Sequence[ShardState]) -> SweepAnswer:
    """A sweep, as far as it is.

    Args:
        kept: the sweep
        shards: its pieces

    Returns:
        what callers read of it
    """
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

    Args:
        shards: pieces by status

    Returns:
        its status

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
