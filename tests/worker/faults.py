"""Rounds of killed processes, and the state of jobs afterwards; few in the tests, many in .ci/proof.

A round kills at a moment of its own: the moments of all rounds divide a job's life evenly, so that no part of it is
passed over that is longer than one of these pieces.
"""

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Event

import httpx
from sqlalchemy import select

from service.store.engine import reading
from service.store.tables import JOBS
from tests.jobs.small import read_events
from tests.prestarted import Process
from tests.worker.processes import NOTE, SLEEP, seconds_until_gone
from tests.worker.scene import JOB_SECONDS, LEASE_SECONDS, Scene, end, wanted

MOST_SECONDS = LEASE_SECONDS + 5.0
"""Time in which a job whose worker is gone has to be another's, or ended."""
LIFE_SECONDS = JOB_SECONDS + 0.6
"""A job's life, from its claim until after its end."""

PAUSE_SECONDS = 0.15


@dataclass
class Figures:
    """What was counted."""

    rounds: int = 0
    acknowledged: int = 0
    lost: int = 0
    doubled: int = 0
    unfinished: int = 0
    kept_running: int = 0
    """Jobs whose worker went on with them while the service was killed."""
    released_seconds: list[float] = field(default_factory=list)
    """From a kill, or from when a killed service answered again, until the job was another's, or ended."""
    away_seconds: list[float] = field(default_factory=list)
    """From a kill of the service until the next one answered."""
    gone_seconds: list[float] = field(default_factory=list)
    """From a kill until nothing was left running of what the worker had started."""

    def wrong(self, *, timed: bool = True) -> list[str]:
        """What must not be; how late jobs are released counts where it is measured."""
        late = [seconds for seconds in self.released_seconds if timed and seconds > MOST_SECONDS]
        found = {"lost": self.lost, "doubled": self.doubled, "unfinished": self.unfinished, "released late": len(late)}
        return [f"{count} {name}" for name, count in found.items() if count]

    def said(self) -> str:
        """In one line."""
        return (
            f"{self.rounds} kills, {self.acknowledged} jobs acknowledged, {self.lost} lost, {self.doubled} with two "
            f"results, {self.unfinished} unfinished; another worker's or ended after {_spread(self.released_seconds)} "
            f"(at most {MOST_SECONDS:.0f}), nothing left running after {_spread(self.gone_seconds)}, "
            f"the service away for {_spread(self.away_seconds)}, {self.kept_running} jobs went on meanwhile"
        )


def _spread(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    return f"{ordered[len(ordered) // 2]:.2f} s (median) to {ordered[-1]:.2f} s" if ordered else "-"


def kill_workers(scene: Scene, rounds: int, lanes: int = 1) -> Figures:
    """Kill the worker in mid-measurement, again and again; another one waits meanwhile. Lanes do so side by side."""
    figures = Figures(rounds=rounds, acknowledged=rounds)

    def run(lane: int) -> None:
        kind = f"{SLEEP}-{lane}"
        workers = {scene.worker(kind), scene.worker(kind, has_jumping_clock=True)}
        for number in range(lane, rounds, lanes):
            for name in workers:
                scene.until_seen(name)
            workers.remove(_kill_one(scene, figures, f"{kind}-{number}", LIFE_SECONDS * (number + 0.5) / rounds))
            workers.add(scene.worker(kind, has_jumping_clock=number % 2 == 0))
        for name in workers:
            scene.kill(name)
        _count(scene, figures, [f"{kind}-{number}" for number in range(lane, rounds, lanes)])

    with ThreadPoolExecutor(lanes) as threads:
        list(threads.map(run, range(lanes)))
    return figures


def _kill_one(scene: Scene, figures: Figures, job_id: str, moment_seconds: float) -> str:
    """Have a job done and kill the worker that is at it; its name."""
    scene.add_sleep(job_id, job_id.rpartition("-")[0])
    job, _ = scene.until(job_id, lambda job: job.status != "queued")
    assert job.worker is not None
    time.sleep(moment_seconds)
    scene.kill(job.worker)
    killed = time.monotonic()
    if (pids := scene.noted(job_id)) is not None:
        figures.gone_seconds.append(seconds_until_gone(pids))
    scene.until(job_id, lambda now: now.attempt > job.attempt or now.status == "succeeded")
    figures.released_seconds.append(time.monotonic() - killed)
    scene.until(job_id, lambda job: job.status not in {"queued", "running"})
    return job.worker


def kill_services(
    scene: Scene, service: Process, rounds: int, clients: int, *, workers_too: bool = False
) -> tuple[Figures, Process]:
    """Kill the service while clients write and a worker measures, again and again; where asked, the worker with it."""
    figures, acknowledged, stop = Figures(rounds=rounds), list[str](), Event()
    name = "both" if workers_too else "service"
    at_work, notes = scene.worker(), scene.worker(NOTE)
    with ThreadPoolExecutor(clients) as threads:
        for client in range(clients):
            threads.submit(_write, scene, f"{name}-client{client}", acknowledged, stop)
        try:
            for number in range(rounds):
                job_id = f"{name}-{number}"
                scene.add_sleep(job_id)
                acknowledged.append(job_id)
                job, _ = scene.until(job_id, lambda job: job.status == "running")
                time.sleep(LIFE_SECONDS * (number + 0.5) / rounds)
                end(service)
                killed = time.monotonic()
                if workers_too:
                    scene.kill(at_work)
                    if (pids := scene.noted(job_id)) is not None:
                        figures.gone_seconds.append(seconds_until_gone(pids))
                    at_work = scene.worker()
                service = scene.service()
                figures.away_seconds.append(time.monotonic() - killed)
                answered = time.monotonic()
                ended, _ = scene.until(job_id, lambda job: job.status not in {"queued", "running"})
                figures.kept_running += ended.attempt == job.attempt
                if workers_too:
                    figures.released_seconds.append(_second_claim_seconds(scene, job_id, answered))
        finally:
            stop.set()
    for job_id in acknowledged:
        scene.until(job_id, lambda job: job.status not in {"queued", "running"}, 60.0)
    figures.acknowledged = len(acknowledged)
    _count(scene, figures, acknowledged)
    scene.kill(at_work)
    scene.kill(notes)
    return figures, service


def suspend_workers(scene: Scene, rounds: int) -> Figures:
    """Stop a worker for longer than its lease, then let it go on: what it then says is refused."""
    figures = Figures(rounds=rounds, acknowledged=rounds)
    for number in range(rounds):
        job_id, workers = f"zombie-{number}", [scene.worker(), scene.worker()]
        for name in workers:
            scene.until_seen(name)
        scene.add_sleep(job_id)
        job, _ = scene.until(job_id, lambda job: job.status == "running")
        zombie = str(job.worker)
        scene.signal(zombie, signal.SIGSTOP)
        stopped = time.monotonic()
        scene.until(job_id, lambda job: job.attempt > 1)
        figures.released_seconds.append(time.monotonic() - stopped)
        scene.signal(zombie, signal.SIGCONT)
        ended, _ = scene.until(job_id, lambda job: job.status == "succeeded")
        log = scene.folder / f"{zombie}.log"
        ends = time.monotonic() + 60
        while "has a new worker" not in log.read_text(encoding="utf-8"):
            assert time.monotonic() < ends, "nobody told the worker that its job is another's"
            time.sleep(0.02)
        figures.doubled += ended.worker == zombie
        for name in workers:
            scene.kill(name)
    _count(scene, figures, [f"zombie-{number}" for number in range(rounds)])
    return figures


def _write(scene: Scene, name: str, acknowledged: list[str], stop: Event) -> None:
    """Have jobs made, one after the other; what is not acknowledged may be there or not."""
    number = 0
    with httpx.Client(base_url=scene.address, timeout=5) as http:
        while not stop.is_set():
            number += 1
            job_id = f"{name}-{number}"
            try:
                answer = http.post("/tests/jobs", json=wanted(job_id, NOTE, 100, {}))
            except httpx.RequestError:
                time.sleep(PAUSE_SECONDS)
                continue
            if answer.status_code == 201:
                acknowledged.append(job_id)
            time.sleep(PAUSE_SECONDS)


def _second_claim_seconds(scene: Scene, job_id: str, since: float) -> float:
    """From a moment until a job was handed out again, or had ended: by its events, whose clock is the database's."""
    events = read_events(scene.engine, job_id)
    claims = [event for event in events if event.name == "running"]
    then = (claims[1] if len(claims) > 1 else events[-1]).at
    assert then is not None
    return max(then.timestamp() - (time.time() - (time.monotonic() - since)), 0.0)


def _count(scene: Scene, figures: Figures, jobs: list[str]) -> None:
    """What became of jobs that were acknowledged."""
    with reading(scene.engine) as connection:
        rows = connection.execute(select(JOBS.c.id, JOBS.c.status, JOBS.c.attempt, JOBS.c.result)).all()
    found = {row.id: row.status for row in rows}
    told = {row.id: (row.result or {}).get("attempt", row.attempt) for row in rows}
    stale = {row.id for row in rows if told[row.id] != row.attempt}
    for job_id in jobs:
        results = [event for event in read_events(scene.engine, job_id) if event.name == "succeeded"]
        figures.lost += job_id not in found
        figures.unfinished += found.get(job_id) != "succeeded"
        figures.doubled += len(results) > 1 or job_id in stale  # a result of an attempt that another had taken over
