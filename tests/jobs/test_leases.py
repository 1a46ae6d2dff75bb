"""A job goes to one worker that can run it."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from time import monotonic
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, update

from service.answers.workers import Requirements
from service.errors import AlreadyFinished
from service.jobs import leases
from service.jobs.jobs import Job, NewJob, create_jobs
from service.jobs.leases import (
    JobFile,
    Outcome,
    cancel_job,
    cancel_jobs,
    claim_job,
    expire_leases,
    finish_job,
    heartbeat_job,
    read_file,
    read_file_names,
    read_queued_work,
    retry_jobs,
    store_file,
)
from service.store.engine import later
from service.store.tables import JOBS
from tests.jobs.small import (
    DONE,
    LEASE_SECONDS,
    change,
    claimed,
    job_counts,
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

    def timed_claim(number: int) -> tuple[float, Job, float]:
        began = monotonic()
        return began, claimed(queue, f"w{number}")[0], monotonic()

    with ThreadPoolExecutor(6) as threads:
        claims = list(threads.map(timed_claim, range(30)))
    assert len({job.id for _, job, _ in claims}) == 30
    assert len({job.owner for _, job, _ in claims}) == 7
    for began in (began for began, job, _ in claims if job.owner != "many"):
        earlier = sum(ended < began for _, _, ended in claims)  # a claim that is under way may take as long as it likes
        assert earlier < 7 + 6, "each claim that is under way may pass over one owner"


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


BROKEN = Outcome(ending="failed", error={"code": "probe_failed", "message": "broke"})


def test_a_lease_that_ran_out_is_taken_and_its_worker_refused(queue: Engine) -> None:
    zombie = running(queue)
    lapse(queue)
    assert expire_leases(queue) == 1
    assert (job_of(queue).status, job_of(queue).worker) == ("queued", None)
    assert not finish_job(queue, zombie, DONE)
    job, held = claimed(queue, "w2")
    assert job.attempt == 2
    assert heartbeat_job(queue, zombie, LEASE_SECONDS) == "lost"
    assert not finish_job(queue, zombie, DONE)
    assert not store_file(queue, zombie, JobFile(name="trace", media_type="text/plain", content=b"x"))
    assert finish_job(queue, held, Outcome(ending="succeeded", result="of w2"))
    assert job_of(queue).result == "of w2"
    assert not finish_job(queue, zombie, DONE)


def test_the_same_worker_under_its_old_claim_is_refused_too(queue: Engine) -> None:
    old = running(queue)
    lapse(queue)
    expire_leases(queue)
    _, new = claimed(queue, "w1")
    assert old.token != new.token
    assert heartbeat_job(queue, old, LEASE_SECONDS) == "lost"
    assert not finish_job(queue, old, DONE)
    assert heartbeat_job(queue, new, LEASE_SECONDS) == "run"


def test_a_late_heartbeat_keeps_a_lease_that_nobody_took(queue: Engine) -> None:
    held = running(queue)
    lapse(queue)
    assert heartbeat_job(queue, held, LEASE_SECONDS) == "run"
    assert expire_leases(queue) == 0
    assert finish_job(queue, held, DONE)


def test_a_result_that_is_sent_again_is_taken_once(queue: Engine) -> None:
    written: list[str] = []

    def also(_connection: Connection, job: Job) -> None:
        written.append(job.status)

    held = running(queue)
    assert [finish_job(queue, held, DONE, also) for _ in range(3)] == [True, True, True]
    assert written == ["succeeded"]
    assert names(queue).count("succeeded") == 1


def test_another_outcome_is_refused_and_changes_nothing(queue: Engine) -> None:
    held = running(queue)
    assert finish_job(queue, held, BROKEN)
    before = job_of(queue)
    for other in (
        DONE,
        Outcome(ending="failed", error={"code": "other", "message": "broke"}),
        Outcome(ending="released"),
    ):
        with pytest.raises(AlreadyFinished):
            finish_job(queue, held, other)
    assert job_of(queue) == before
    assert finish_job(queue, held, BROKEN)


def test_what_else_is_written_when_a_job_ends_is_undone_with_it(queue: Engine) -> None:
    def also(connection: Connection, job: Job) -> None:
        connection.execute(update(JOBS).where(JOBS.c.id == job.id).values(owner="changed"))
        raise ValueError("no such probe")

    held = running(queue)
    with pytest.raises(ValueError, match="no such probe"):
        finish_job(queue, held, DONE, also)
    assert (job_of(queue).status, job_of(queue).owner, names(queue)) == ("running", "", ["queued", "running"])


def test_a_failed_job_is_tried_again_later_until_its_attempts_are_used_up(
    queue: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "FIRST_WAIT_SECONDS", 60.0)  # a busy machine takes longer than a second to claim
    held = running(queue, max_attempts=2)
    assert finish_job(queue, held, BROKEN)
    job = job_of(queue)
    assert (job.status, job.error) == ("queued", BROKEN.error)
    assert claim_job(queue, seeker(), LEASE_SECONDS) is None
    assert finish_job(queue, held, BROKEN)
    assert job_of(queue) == job
    change(queue, available_at=later(-1.0))
    _, held = claimed(queue)
    assert job_of(queue).error is None
    assert finish_job(queue, held, BROKEN)
    assert (job_of(queue).status, job_of(queue).error) == ("failed", BROKEN.error)
    assert names(queue) == ["queued", "running", "queued", "running", "failed"]


def test_a_failure_that_would_come_again_is_final(queue: Engine) -> None:
    held = running(queue, max_attempts=5)
    assert finish_job(queue, held, Outcome(ending="failed", error={"code": "x", "message": "y", "final": True}))
    assert job_of(queue).status == "failed"


def test_a_job_that_kills_its_workers_stops(queue: Engine) -> None:
    ended: list[Job] = []
    create_jobs(queue, [new_job(max_attempts=3)])
    for _ in range(3):
        claimed(queue)
        lapse(queue)
        assert expire_leases(queue, lambda _, job: ended.append(job)) == 1
    job = job_of(queue)
    assert (job.status, job.attempt, job.error and job.error["code"]) == ("failed", 3, "worker_lost")
    assert ended == [job]


def test_giving_a_job_back_costs_no_attempt_and_ends_the_claim(queue: Engine) -> None:
    create_jobs(queue, [new_job(max_attempts=1)])
    for attempt in (1, 2, 3):
        job, held = claimed(queue)
        assert (job.attempt, job.attempts_used) == (attempt, 1)
        assert finish_job(queue, held, Outcome(ending="released"))
        assert heartbeat_job(queue, held, LEASE_SECONDS) == "lost"
    _, held = claimed(queue)
    assert finish_job(queue, held, BROKEN)
    assert job_of(queue).status == "failed"


def test_a_worker_that_holds_a_job_for_too_long_loses_it(queue: Engine) -> None:
    held = running(queue, timeout_seconds=10.0, max_attempts=1)
    change(queue, started_at=later(-55.0))
    assert expire_leases(queue) == 0
    change(queue, started_at=later(-71.0))
    assert expire_leases(queue) == 1
    assert (job_of(queue).status, (job_of(queue).error or {})["code"]) == ("failed", "timed_out")
    assert heartbeat_job(queue, held, LEASE_SECONDS) == "lost"


def test_reaping_by_many_at_once_takes_each_job_once(queue: Engine) -> None:
    create_jobs(queue, [new_job(f"job_{n}") for n in range(10)])
    for n in range(10):
        claimed(queue, f"w{n}")
        lapse(queue, f"job_{n}")
    with ThreadPoolExecutor(4) as threads:
        taken = list(threads.map(lambda _: expire_leases(queue), range(4)))
    assert sum(taken) == 10
    assert all(names(queue, f"job_{n}") == ["queued", "running", "queued"] for n in range(10))


def test_a_waiting_job_is_cancelled_at_once(queue: Engine) -> None:
    create_jobs(queue, [new_job()])
    ended: list[str] = []
    for _ in range(2):
        job = cancel_job(queue, "job_a", lambda _, job: ended.append(job.status))
        assert job is not None
        assert job.status == "cancelled"
    assert ended == ["cancelled"]
    assert claim_job(queue, seeker(), LEASE_SECONDS) is None
    assert cancel_job(queue, "job_z") is None


@pytest.mark.parametrize("ending", ["cancelled", "failed", "released"])
def test_a_running_job_is_cancelled_by_its_worker(queue: Engine, ending: Any) -> None:
    held = running(queue)
    job = cancel_job(queue, "job_a")
    assert job is not None
    assert (job.status, job.cancel_requested) == ("running", True)
    assert heartbeat_job(queue, held, LEASE_SECONDS) == "cancel"
    assert finish_job(queue, held, Outcome(ending=ending, result=[1]))
    assert job_of(queue).status == "cancelled"


def test_a_cancelled_job_whose_worker_is_gone_is_cancelled(queue: Engine) -> None:
    running(queue)
    cancel_job(queue, "job_a")
    lapse(queue)
    assert expire_leases(queue) == 1
    assert job_of(queue).status == "cancelled"


def test_what_was_found_before_the_cancel_arrived_is_kept(queue: Engine) -> None:
    held = running(queue)
    cancel_job(queue, "job_a")
    assert finish_job(queue, held, DONE)
    assert (job_of(queue).status, job_of(queue).result) == ("succeeded", DONE.result)


def test_parts_are_counted_cancelled_and_done_again(queue: Engine) -> None:
    create_jobs(queue, [new_job(f"job_{n}", parent="swp_1") for n in range(3)])
    create_jobs(queue, [new_job("job_z")])
    _, first = claimed(queue)
    assert finish_job(queue, first, DONE)
    _, second = claimed(queue)
    cancel_jobs(queue, "swp_1")
    assert finish_job(queue, second, Outcome(ending="cancelled"))
    assert job_counts(queue, "swp_1") == {"succeeded": 1, "cancelled": 2}
    assert retry_jobs(queue, "swp_1") == 2
    assert job_counts(queue, "swp_1") == {"queued": 2, "succeeded": 1}
    assert job_of(queue, second.job_id).attempts_used == 0
    assert not finish_job(queue, second, DONE)
    assert job_ids(queue, parent="swp_1", status="queued") == {"job_1", "job_2"}
    assert job_ids(queue, kind="count", parent=None) == {"job_z"}


@pytest.mark.parametrize("has_heard", [True, False])
def test_parts_that_are_about_to_stop_go_on_once_they_are_wanted_again(queue: Engine, has_heard: bool) -> None:
    held = running(queue, parent="swp_1")
    cancel_jobs(queue, "swp_1")
    if has_heard:
        assert heartbeat_job(queue, held, LEASE_SECONDS) == "cancel"
    assert retry_jobs(queue, "swp_1") == 1
    assert heartbeat_job(queue, held, LEASE_SECONDS) == "run"
    assert finish_job(queue, held, Outcome(ending="cancelled") if has_heard else DONE)
    assert job_of(queue).status == ("queued" if has_heard else "succeeded")
    assert job_of(queue).attempts_used == (0 if has_heard else 1)
    if has_heard:
        assert finish_job(queue, claimed(queue)[1], DONE)
        assert job_of(queue).status == "succeeded"


def test_what_one_job_s_end_fails_at_keeps_no_other_job_waiting(queue: Engine) -> None:
    create_jobs(queue, [new_job(f"job_{n}", max_attempts=1) for n in range(3)])

    def also(_connection: Connection, job: Job) -> None:
        if job.id == "job_1":
            raise KeyError(job.id)

    for n in range(3):
        claimed(queue, f"w{n}")
        lapse(queue, f"job_{n}")
    with pytest.raises(KeyError, match="job_1"):
        expire_leases(queue, also)
    assert [job_of(queue, f"job_{n}").status for n in range(3)] == ["failed", "running", "failed"]
    assert expire_leases(queue) == 1
