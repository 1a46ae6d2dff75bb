"""How is a piece of a sweep worked out? In a process of its own, whose rows are handed in before the job ends."""

from typing import Any

from service.worker.claimed import Desk, Ending, FoundFile
from service.worker.errands import Errand, record_of

SHARD_PROCESS = "service.features.sweeps.shard_process"
"""The module that works out a piece: it reads the sweep in its folder, and leaves the rows there."""

SWEEP_FILE, ROWS_FILE = "sweep.json", "rows.parquet"
"""What it reads, and what it leaves."""

PARQUET = "application/vnd.apache.parquet"

MOST_KEPT = 4
"""Sweeps that are remembered, so that each is read once for all its pieces. Source: a choice; some megabytes each."""

_kept: dict[str, bytes] = {}


async def carry_out(desk: Desk) -> Ending:
    """Work out a piece of a sweep.

    Args:
        desk: the job, and what is at hand for it

    Returns:
        what became of its rows
    """
    folder = desk.folder / "shard"
    folder.mkdir()
    (folder / SWEEP_FILE).write_bytes(await _sweep(desk))
    errand = Errand(task=desk.job.payload, folder=folder, module=SHARD_PROCESS, most_seconds=desk.job.timeout_seconds)
    record = await record_of(desk.runner, errand, lambda told: desk.tell({"rows": told.get("rows", 0)}))
    if record is None:
        return _failed("timed_out", f"the piece takes longer than {errand.most_seconds:.0f} s")
    if record["status"] != "succeeded":
        return _failed("shard_failed", record["reason"], is_final=bool(record.get("final")))
    refused = await desk.hand_in(FoundFile(name=ROWS_FILE, path=folder / ROWS_FILE, media_type=PARQUET))
    if refused is not None:
        return _failed("file_refused", refused)
    return Ending(outcome="succeeded", result=record["counts"])


def _failed(code: str, reason: str, *, is_final: bool = False) -> Ending:
    error: dict[str, Any] = {"code": code, "message": reason, "final": is_final}
    return Ending(outcome="failed", error=error)


async def _sweep(desk: Desk) -> bytes:
    """What the rows of the sweep are made of; a sweep never changes."""
    sweep_id = str(desk.job.payload["sweep"])
    if sweep_id not in _kept:
        content = await desk.read(f"/v1/worker/sweeps/{sweep_id}")
        while len(_kept) >= MOST_KEPT:
            del _kept[next(iter(_kept))]
        _kept[sweep_id] = content
    return _kept[sweep_id]
