"""How is a launch check done? Probe after probe, each in a process of its own; what was found by then is not lost."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from service.worker.claimed import Desk, Ending, FoundFile
from service.worker.errands import Errand, record_of

LATE_SECONDS = 5.0
"""How long after its time a probe is ended: it may just be writing down what it has. Source: a choice."""

MEDIA_TYPES: Mapping[str, str] = {
    ".gz": "application/gzip", ".json": "application/json", ".csv": "text/csv", ".txt": "text/plain",
}  # fmt: skip
"""What a file holds, by the end of its name."""

LONGEST_SHOWN = 300
"""Characters of a reason or a note that are shown on the way, so that heartbeats stay short; the record has all."""

WITHOUT_TORCH = "torch_missing"

Record = dict[str, Any]
"""A ProbeRecord as JSON."""


async def carry_out(desk: Desk) -> Ending:
    """Do a launch check.

    Args:
        desk: the job, and what is at hand for it

    Returns:
        the records of its probes, in order
    """
    tasks: list[Mapping[str, Any]] = list(desk.job.payload["tasks"])
    shown = [_shown(task, status="queued") for task in tasks]
    records: list[Record] = []
    desk.result = {"records": records}

    def show(number: int, **told: Any) -> None:
        shown[number] = _shown(tasks[number], **told)
        desk.tell({"probes": list(shown)})

    lacking = desk.runner.lacking()
    for number, task in enumerate(tasks):
        if lacking is None:
            folder = desk.folder / f"{number}"
            folder.mkdir()
            show(number, status="running")
            record = await _measured(desk, task, folder, partial(show, number, status="running"))
            record = await _handed_in(desk, record, folder)
        else:
            record = {"probe": task["probe"], "status": "skipped", "reason": lacking}
        records.append(record)
        show(number, status=record["status"], reason=record.get("reason"), done_fraction=1.0)
    if lacking is not None:
        error = {"code": WITHOUT_TORCH, "message": lacking, "final": True}
        return Ending(outcome="failed", result=desk.result, error=error)
    return Ending(outcome="succeeded", result=desk.result)


async def _measured(desk: Desk, task: Mapping[str, Any], folder: Path, show: Any) -> Record:
    """The record of one probe."""
    seconds = float(task["timeout_seconds"])
    errand = Errand(task=task, folder=folder, most_seconds=seconds + LATE_SECONDS, device=desk.job.device)
    record = await record_of(desk.runner, errand, lambda told: show(**told))
    if record is None:
        reason = f"ended after {errand.most_seconds:.0f} s: it may take {seconds:.0f} s; ask for a larger time budget"
        return {"probe": task["probe"], "status": "failed", "reason": reason, "seconds": errand.most_seconds}
    return record


async def _handed_in(desk: Desk, record: Record, folder: Path) -> Record:
    """A record that names those of its files that the service has."""
    summary = record.get("summary") or {}
    kept, reasons = [], []
    for name in summary.get("files", ()):
        reason = await _kept(desk, folder, name)
        if reason is None:
            kept.append(name)
        else:
            reasons.append(f"the file {name} is not kept: {reason}")
    if not reasons:
        return record
    doubts = "; ".join(filter(None, (record.get("reason"), *reasons)))
    return {**record, "reason": doubts, "summary": {**summary, "files": kept}}


async def _kept(desk: Desk, folder: Path, name: str) -> str | None:
    """Why the service has not got a file; None where it has."""
    path = folder / name
    if path.parent != folder or not path.is_file():
        return "it is not there"
    media_type = MEDIA_TYPES.get(path.suffix, "application/octet-stream")
    return await desk.hand_in(FoundFile(name=name, path=path, media_type=media_type))


def _shown(task: Mapping[str, Any], **told: Any) -> dict[str, Any]:
    """What callers are shown of a probe."""
    shown = {name: value[:LONGEST_SHOWN] if isinstance(value, str) else value for name, value in told.items()}
    return {"probe": task["probe"], "reason": None, "done_fraction": 0.0, "note": None, **shown}
