"""The process of one measurement.

    python -m service.worker.probe_process TASK.json FOLDER

It writes `record.json` to the folder, a ProbeRecord, and `progress.json` while it runs. Where a task asks for many
ranks, the process starts them, unless torchrun did; the first rank's record counts, or that of the first that
failed.
"""

import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

from service.calibration.records import HELD_BACK, ProbeName, ProbeRecord, ProbeTask
from service.errors import Refused
from service.worker.devices import EnvironmentWatch, chosen_device, make_current, missing_torch, refuse_busy, watched
from service.worker.probing import CannotRun, ProbeContext, ProbeResult, is_out_of_memory
from service.worker.ranks import RENDEZVOUS, Place, place_of, start_ranks
from service.worker.runners import PROGRESS, RECORD
from service.worker.supervisor import end_with_starter

RESERVED_FRACTION = 0.1
"""Share of a task's time that is reserved for writing the record. Source: a choice."""

MOST_RESERVED_SECONDS = 3.0
"""Upper bound of that time. Source: a choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTask:
    """One task at one place."""

    task: ProbeTask
    folder: Path
    """Folder of its files."""
    place: Place
    """Rank of this process."""
    started_seconds: float
    """Start, by the monotonic clock."""


def main(words: Sequence[str]) -> int:
    """Measure as a task asks, and write the record."""
    started = time.monotonic()
    end_with_starter()
    file, folder = map(Path, words)
    task = ProbeTask(**json.loads(file.read_text(encoding="utf-8")))
    place = place_of(task.ranks, os.environ)
    if place is None:
        return _run_ranks(task, folder, (sys.executable, "-m", "service.worker.probe_process", *words))
    record = measured(RankTask(task=task, folder=folder, place=place, started_seconds=started))
    write_record(record, folder / _name(place.rank))
    return int(record.status != "succeeded")


def write_record(record: ProbeRecord, path: Path) -> None:
    """Write a record, whole or not at all."""
    write_json(asdict(record), path)


def write_json(content: Any, path: Path) -> None:
    """Write a file atomically."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(json.dumps(content, allow_nan=False), encoding="utf-8")
    part.replace(path)


def measured(job: RankTask) -> ProbeRecord:
    """Run the probe of a task."""
    record = ProbeRecord(probe=job.task.probe, status="skipped")
    watches: list[EnvironmentWatch] = []
    try:
        result = _result(job, watches)
        record = replace(
            record, status="succeeded", reason=result.reason, measurements=result.measurements, summary=result.summary
        )
    except (CannotRun, Refused) as error:
        record = replace(record, reason=str(error))
    except Exception as error:  # any error is the record's reason, not an unread traceback
        record = replace(record, status="failed", reason=_reason(error))
    environment = watches[0].environment if watches else None
    flags = (record.reason, *_quality_flags(watches))
    return replace(
        record,
        reason="; ".join(filter(None, flags)) or None,
        environment=environment,
        seconds=time.monotonic() - job.started_seconds,
    )


def _result(job: RankTask, watches: list[EnvironmentWatch]) -> ProbeResult:
    """The result of a probe; its environment is appended to the list as soon as it is known."""
    if lacking := missing_torch():
        raise CannotRun(lacking)
    place, task = job.place, job.task
    if task.probe not in get_args(ProbeName):
        raise CannotRun(f"no probe {task.probe} in this release of the worker; it has {', '.join(get_args(ProbeName))}")
    context = ProbeContext(
        device=chosen_device(place.local_rank),
        folder=job.folder,
        end_seconds=job.started_seconds + _usable_seconds(task),
        report=_reporter(job.folder) if place.rank == 0 else lambda _fraction, _note: None,
        rank=place.rank,
        ranks=place.ranks,
    )
    own_folder = job.folder / f"rank-{place.rank}"
    own_folder.mkdir(exist_ok=True)
    with watched(context.device, own_folder) as watch:
        watches.append(watch)
        refuse_busy(watch.gpu, watch.environment.other_processes)
        make_current(context.device)
        probe = importlib.import_module(f"service.worker.probes.{task.probe}")
        context.report(0.0, f"measuring on {watch.environment.device}")
        result: ProbeResult = probe.run(task.parameters, context)
    return result


def _usable_seconds(task: ProbeTask) -> float:
    """Time that a probe may use: the budget in its parameters, and less than its timeout."""
    hard = task.timeout_seconds - min(MOST_RESERVED_SECONDS, RESERVED_FRACTION * task.timeout_seconds)
    return min(hard, float(task.parameters.get("seconds", hard)))


def _reporter(folder: Path) -> Callable[[float, str], None]:
    def report(done_fraction: float, note: str) -> None:
        write_json({"done_fraction": done_fraction, "note": note}, folder / PROGRESS)

    return report


def _reason(error: Exception) -> str:
    """Why a probe failed, with the remedy where it is known."""
    message = str(error).strip().partition("\n")[0]
    if is_out_of_memory(error):
        return f"out of memory: {message}; ask for a smaller micro-batch or sequence, or for a device with more memory"
    return f"{type(error).__name__}: {message}"


def _quality_flags(watches: Sequence[EnvironmentWatch]) -> tuple[str, ...]:
    """Quality flags of a measurement."""
    flags = []
    for one in watches:
        if one.environment.is_partition:
            flags.append("measured on a slice of a GPU (MIG): the figures hold for the slice, not for the whole GPU")
        if slow := sorted(HELD_BACK.keys() & set(one.environment.throttle_reasons)):
            flags.append(f"the driver held the clock down ({', '.join(slow)}): cool or power the GPU, then ask again")
    return tuple(flags)


def _run_ranks(task: ProbeTask, folder: Path, words: Sequence[str]) -> int:
    """Start every rank of a task; the record of the first that fails is that of all."""
    for left_behind in (RENDEZVOUS, *(_name(rank) for rank in range(task.ranks))):
        (folder / left_behind).unlink(missing_ok=True)
    failed = start_ranks(task.ranks, words)
    if failed is None:
        return 0
    own = folder / _name(failed)
    if not own.is_file():
        reason = f"rank {failed} of {task.ranks} ended without a word; the worker's log has what it printed last"
        write_record(ProbeRecord(probe=task.probe, status="failed", reason=reason), folder / RECORD)
    elif failed:
        own.replace(folder / RECORD)
    return 1


def _name(rank: int) -> str:
    return RECORD if rank == 0 else f"rank-{rank}.json"


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main(sys.argv[1:]))
