"""The process of one measurement.

    python -m service.worker.probe_process TASK.json FOLDER

It writes `record.json` to the folder, a ProbeRecord, and `progress.json` while it runs. For a task of many ranks, the
process starts them, unless torchrun did. The record of the task is that of the first rank, or that of the first rank
that failed.
"""

import importlib
import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, get_args

from service.calibration.records import SLOWDOWNS, ProbeName, ProbeRecord, ProbeTask
from service.errors import Refused
from service.worker import probing
from service.worker.devices import EnvironmentWatch, chosen_device, missing_torch, refuse_busy, watched
from service.worker.runners import PROGRESS, RECORD
from service.worker.supervisor import end_with_starter

RESERVED_FRACTION = 0.1
"""Share of a task's time that is reserved for writing the record. Source: a choice."""
MOST_RESERVED_SECONDS = 3.0
"""Upper bound of that time. Source: a choice."""


def main(arguments: Sequence[str]) -> int:
    """Run a task, and write its record."""
    started = time.monotonic()
    end_with_starter()
    file, folder = map(Path, arguments)
    task = ProbeTask(**json.loads(file.read_text(encoding="utf-8")))
    place = probing.place_of(task.ranks, os.environ)
    if place is None:
        return _run_ranks(task, folder, (sys.executable, "-m", "service.worker.probe_process", *arguments))
    record = run_task(task, folder, place, started)
    write_json(asdict(record), folder / _record_name(place.rank))
    return int(record.status != "succeeded")


def write_json(content: Any, path: Path) -> None:
    """Write a file atomically."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_text(json.dumps(content, allow_nan=False), encoding="utf-8")
    unfinished.replace(path)


def run_task(task: ProbeTask, folder: Path, place: probing.Place, started_seconds: float) -> ProbeRecord:
    """Run the probe of a task as one rank, from its start by the monotonic clock."""
    record = ProbeRecord(probe=task.probe, status="skipped")
    watches: list[EnvironmentWatch] = []
    try:
        result = _result(task, folder, place, started_seconds, watches)
        record = replace(
            record, status="succeeded", reason=result.reason, measurements=result.measurements, summary=result.summary
        )
    except (probing.CannotRun, Refused) as error:
        record = replace(record, reason=str(error))
    except Exception as error:  # any error becomes the reason of the record
        record = replace(record, status="failed", reason=_reason(error))
    reasons = [record.reason]
    for watch in watches:
        if watch.environment.is_partition:
            reasons.append("measured on a slice of a GPU (MIG): the figures hold for the slice, not for the whole GPU")
        if held_back := ", ".join(sorted(SLOWDOWNS.keys() & set(watch.environment.throttle_reasons))):
            reasons.append(f"the driver held the clock down ({held_back}): cool or power the GPU, then ask again")
    return replace(
        record,
        reason="; ".join(filter(None, reasons)) or None,
        environment=watches[0].environment if watches else None,
        seconds=time.monotonic() - started_seconds,
    )


def _result(
    task: ProbeTask, folder: Path, place: probing.Place, started_seconds: float, watches: list[EnvironmentWatch]
) -> probing.ProbeResult:
    """The result of a probe; its environment is appended to the list as soon as it is known."""
    if lacking := missing_torch():
        raise probing.CannotRun(lacking)
    if task.probe not in get_args(ProbeName):
        raise probing.CannotRun(
            f"no probe {task.probe} in this release of the worker; it has {', '.join(get_args(ProbeName))}"
        )

    def report(done_fraction: float, note: str) -> None:
        if place.rank == 0:
            write_json({"done_fraction": done_fraction, "note": note}, folder / PROGRESS)

    most_seconds = task.timeout_seconds - min(MOST_RESERVED_SECONDS, RESERVED_FRACTION * task.timeout_seconds)
    context = probing.ProbeContext(
        device=chosen_device(place.local_rank),
        folder=folder,
        end_seconds=started_seconds + min(most_seconds, float(task.parameters.get("seconds", most_seconds))),
        report=report,
        rank=place.rank,
        ranks=place.ranks,
    )
    own_folder = folder / f"rank-{place.rank}"
    own_folder.mkdir(exist_ok=True)
    with watched(context.device, own_folder) as watch:
        watches.append(watch)
        refuse_busy(watch.gpu, watch.environment.other_processes)
        if context.device != "cpu":
            import torch

            torch.cuda.set_device(context.device)
        probe = importlib.import_module(f"service.worker.probes.{task.probe}")
        context.report(0.0, f"measuring on {watch.environment.device}")
        result: probing.ProbeResult = probe.run(task.parameters, context)
    return result


def _reason(error: Exception) -> str:
    message = str(error).strip().partition("\n")[0]
    if probing.is_out_of_memory(error):
        return f"out of memory: {message}; ask for a smaller micro-batch or sequence, or for a device with more memory"
    return f"{type(error).__name__}: {message}"


def _run_ranks(task: ProbeTask, folder: Path, command: Sequence[str]) -> int:
    """Start every rank of a task; the record of the first rank that fails becomes that of the task."""
    for name in (probing.RENDEZVOUS, *(_record_name(rank) for rank in range(task.ranks))):
        (folder / name).unlink(missing_ok=True)
    failed = probing.start_ranks(task.ranks, command)
    if failed is None:
        return 0
    own = folder / _record_name(failed)
    if not own.is_file():
        reason = f"rank {failed} of {task.ranks} ended without a word; the worker's log has what it printed last"
        write_json(asdict(ProbeRecord(probe=task.probe, status="failed", reason=reason)), folder / RECORD)
    elif failed:
        own.replace(folder / RECORD)
    return 1


def _record_name(rank: int) -> str:
    return RECORD if rank == 0 else f"rank-{rank}.json"


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main(sys.argv[1:]))
