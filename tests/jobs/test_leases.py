"""Does a job go to a worker that can do it, and to one alone?"""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import Engine

from service.answers.workers import Requirements
from service.jobs.ends import Outcome, expire_leases, finish_job
from service.jobs.jobs import NewJob, create_jobs
from service.jobs.leases import (
    JobFile,
    claim_job,
    heartbeat_job,
    read_file,
    read_file_names,
    read_queued_work,
    store_file,
)
from service.store.engine import later
from tests.jobs.small import (
    DONE,
    LEASE_SECONDS,
    change,
    claimed,
    job_ids,
    job_of,
    lapse,
    names,
    new_job,
    read_events,
    running,
    seeker,
    with_gpus,
)


def test_a_job_goes_to_a_worker_and_ends_with_its_result(queue: Engine) -> None:
    create_jobs(queue, [new_job(parent="swp_1", owner="team")])
    job, held = claimed(queue)
    assert (job.status, job.worker, job.attempt, job.payload) == ("running", "w1", 1, {"to": 3})
    assert heartbeat_job(queue, held, LEASE_SECONDS, {"done_fraction": 0.5}) == "run"
    assert finish_job(queue, held, DONE)
    ended = job_of(queue)
    assert (ended.status, ended.result, ended.progress) == ("succeeded", DONE.result, {"done_fraction": 0.5})
    assert (ended.parent, ended.owner, ended.lease_until) == ("swp_1", "team", None)
    assert names(queue) == ["queued", "running", "progress", "succeeded"]
    assert claim_job(queue, seeker("w2"), LEASE_SECONDS) is None


def test_moments_are_those_of_the_database_in_utc(queue: Engine) -> None:
    before = datetime.now(UTC)
    running(queue, lease_seconds=30.0)
    job, after = job_of(queue), datetime.now(UTC)
    assert job.started_at is not None
    assert job.lease_until is not None
    assert before.timestamp() - 0.01 <= job.created_at.timestamp() <= job.started_at.timestamp() <= after.timestamp()
    assert 29.9 < (job.lease_until - job.started_at).total_seconds() < 31.0


def test_events_are_numbered_without_gaps_and_read_from_any(queue: Engine) -> None:
    held = running(queue)
    for done in (0.1, 0.1, 0.2):
        heartbeat_job(queue, held, LEASE_SECONDS, {"done_fraction": done})
    events = read_events(queue, "job_a")
    assert [event.number for event in events] == [1, 2, 3, 4]
    assert [event.data for event in events[2:]] == [{"done_fraction": 0.1}, {"done_fraction": 0.2}]
    assert read_events(queue, "job_a", after=3) == events[3:]
    assert read_events(queue, "job_z") == []


def test_openings_come_with_the_time_until_the_next_one(queue: Engine) -> None:
    create_jobs(queue, [new_job("job_a"), new_job("job_b"), new_job("job_c", kind="sweep")])
    change(queue, "job_b", available_at=later(100.0))
    change(queue, "job_c", available_at=later(50.0))
    openings, seconds = read_queued_work(queue)
    assert [opening.kind for opening in openings] == [new_job("job_a").kind]
    assert seconds is not None
    assert 40.0 < seconds <= 50.0


def test_urgent_jobs_come_first_then_the_oldest(queue: Engine) -> None:
    for job_id, priority in (("job_a", 0), ("job_b", 0), ("job_c", 5), ("job_d", -1)):
        create_jobs(queue, [new_job(job_id, priority=priority)])
        change(queue, job_id, created_at=later(-10.0 if job_id == "job_b" else 0.0))
    assert [claimed(queue, f"w{n}")[0].id for n in range(4)] == ["job_c", "job_b", "job_a", "job_d"]


def test_a_worker_gets_only_what_it_can_do(queue: Engine) -> None:
    wanted = {
        "two_h100": Requirements(gpu="h100", gpus=2, memory_bytes=79e9),
        "rack_7": Requirements(labels={"rack": "7"}),
        "measured": Requirements(measures=True),
        "any_gpu": Requirements(gpus=1),
    }
    create_jobs(queue, [new_job(name, requires=requires) for name, requires in wanted.items()])
    create_jobs(queue, [new_job("other_kind", kind="sweep")])
    openings, seconds = read_queued_work(queue)
    assert (len(openings), seconds) == (5, None)

    def gets(worker: Any) -> set[str]:
        found = set()
        while (claim := claim_job(queue, worker, LEASE_SECONDS)) is not None:
            found.add(claim.job.id)
            assert finish_job(queue, claim.lease, Outcome(ending="released"))
            change(queue, claim.job.id, available_at=later(60.0))
        for name in found:
            change(queue, name, available_at=later(-1.0))
        return found

    assert gets(seeker()) == set()
    assert gets(seeker(measures=True, labels={"rack": "7", "row": "1"})) == {"measured", "rack_7"}
    assert gets(seeker(devices=with_gpus("h100", 1))) == {"any_gpu"}
    assert gets(seeker(devices=with_gpus("a100", 8), labels={"rack": "8"})) == {"any_gpu"}
    assert gets(seeker(devices=with_gpus("h100", 2, 40e9))) == {"any_gpu"}
    assert gets(seeker(devices=with_gpus("h100", 2))) == {"any_gpu", "two_h100"}
    assert gets(seeker(kinds=("sweep",))) == {"other_kind"}


def test_many_workers_at_once_get_different_jobs(queue: Engine) -> None:
    create_jobs(queue, [new_job(f"job_{n:02}") for n in range(30)])
    with ThreadPoolExecutor(8) as threads:
        got = list(threads.map(lambda n: claim_job(queue, seeker(f"w{n}"), LEASE_SECONDS), range(36)))
    ids = [claim.job.id for claim in got if claim is not None]
    assert sorted(ids) == [f"job_{n:02}" for n in range(30)]


def test_owners_take_turns_and_the_newest_is_next(queue: Engine) -> None:
    create_jobs(queue, [new_job(f"many_{n:03}", owner="many", priority=5) for n in range(200)])
    owners = [claimed(queue, f"w{n}")[0].owner for n in range(3)]
    for owner in ("few", "late"):
        create_jobs(queue, [new_job(f"{owner}_{n}", owner=owner) for n in range(2)])
        owners += [claimed(queue, f"{owner}{n}")[0].owner for n in range(3)]
    assert owners == ["many", "many", "many", "few", "many", "few", "late", "many", "late"]


def test_claims_at_the_same_moment_serve_every_owner(queue: Engine) -> None:
    create_jobs(queue, [new_job(f"many_{n:03}", owner="many") for n in range(60)])
    create_jobs(queue, [new_job(f"few_{n}", owner=f"few_{n}") for n in range(6)])
    with ThreadPoolExecutor(6) as threads:
        got = list(threads.map(lambda n: claim_job(queue, seeker(f"w{n}"), LEASE_SECONDS), range(30)))
    jobs = [claim.job for claim in got if claim is not None]
    assert len({job.id for job in jobs}) == 30
    assert len({job.owner for job in jobs}) == 7
    started = sorted(jobs, key=lambda job: str(job.started_at))
    first = [job.owner for job in started].index
    assert max(first(f"few_{n}") for n in range(6)) < 7 + 6, "each claim that is under way may pass over one owner"


def test_a_lease_is_random_stored_as_a_digest_and_bound_to_its_key(queue: Engine) -> None:
    create_jobs(queue, [new_job("job_a")])
    claim = claim_job(queue, seeker("w1", key="tck_a"), LEASE_SECONDS)
    assert claim is not None
    assert len(claim.lease.token) >= 22
    assert claim.lease.token.encode() not in (claim.job.lease_digest or b"")
    for wrong in (claim.lease._replace(key="tck_b"), claim.lease._replace(key=""), claim.lease._replace(token="")):
        assert heartbeat_job(queue, wrong, LEASE_SECONDS) == "lost"
        assert not finish_job(queue, wrong, DONE)
    assert heartbeat_job(queue, claim.lease, LEASE_SECONDS) == "run"


def test_a_claim_of_an_earlier_release_is_refused_and_costs_no_attempt(queue: Engine) -> None:
    lease = running(queue, max_attempts=1)
    change(queue, lease_digest=None)
    assert heartbeat_job(queue, lease, LEASE_SECONDS) == "lost"
    assert not finish_job(queue, lease, DONE)
    lapse(queue)
    assert expire_leases(queue) == 1
    job = job_of(queue)
    assert (job.status, job.attempts_used) == ("queued", 0)
    assert finish_job(queue, claimed(queue)[1], DONE)


def test_files_belong_to_the_last_attempt(queue: Engine) -> None:
    held = running(queue)
    trace = JobFile(name="trace.json", media_type="application/json", content=b"\x00[1]" * 1000)
    assert store_file(queue, held, JobFile(name="trace.json", media_type="text/plain", content=b"old"))
    assert store_file(queue, held, trace)
    assert store_file(queue, held, JobFile(name="log", media_type="text/plain", content=b""))
    assert read_file(queue, "job_a", "trace.json") == trace
    assert read_file_names(queue, "job_a") == ["log", "trace.json"]
    lapse(queue)
    expire_leases(queue)
    claimed(queue)
    assert read_file_names(queue, "job_a") == []
    assert read_file(queue, "job_a", "trace.json") is None


def test_jobs_are_made_with_what_they_belong_to_or_not_at_all(queue: Engine) -> None:
    with pytest.raises(Exception, match=r"(?i)unique"):
        create_jobs(queue, [NewJob(id="job_a", kind="count", payload={}, timeout_seconds=1.0)] * 2)
    assert job_ids(queue) == set()
    create_jobs(queue, [])
