"""Worker keys that forge, guess, steal and replay leases, flood the queue, and look at other owners' jobs."""

import base64
import json
from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any

import httpx
from attacks.record import Report, expect
from attacks.service import QUESTION, Service, Target, changed, serving
from attacks.worker import LEASE, FalseWorker

FAMILY, LINE = "workers", 3
CHECK = {
    "question": changed(QUESTION, model="smollm2-135m", recipe={"sequence_length": 2048}, layout={}),
    "probes": ["gemm"], "on": "any",
}  # fmt: skip
NAMES = 500
"""Workers that one key may have, as the service under attack is set up."""
RIVALS = 300
"""Jobs of one owner against one of another."""
LONGEST_QUEUE_PLACE = 4
REFUSED = (400, 401, 403, 404, 405, 409, 413, 415, 422, 429)


def taken(worker: FalseWorker, check_id: str) -> dict[str, Any]:
    """The job of one launch check, whatever else stands in the queue."""
    for _ in range(20):
        job = worker.claim("launch-check")
        if job is None:
            break
        if job["id"] == check_id:
            return job
    raise RuntimeError("the worker was not given the job")


class Stage:
    """The callers of this family, and a job that is held."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.alpha, self.beta = service.caller("alpha", "write"), service.caller("beta", "write")
        self.beta_reader = service.caller("beta", "read")
        self.holder = FalseWorker(service.caller("alpha", "worker"))
        self.thief = FalseWorker(service.caller("alpha", "worker"))
        self.stranger = FalseWorker(service.caller("beta", "worker"))

    def held(self) -> dict[str, Any]:
        """A job of alpha's that alpha's worker holds."""
        made = self.alpha.made("/v1/launch-checks", CHECK)["id"]
        return taken(self.holder, made)

    def status(self, job: Mapping[str, Any]) -> str:
        """Status of a job, as its owner reads it."""
        return str(self.alpha.get(f"/v1/launch-checks/{job['id']}").json()["status"])

    def let_go(self, job: Mapping[str, Any]) -> None:
        """End a job, so that it stands in no one's way."""
        self.alpha.post(f"/v1/launch-checks/{job['id']}/cancel")
        self.holder.finish(job, "cancelled")


def withheld(answer: httpx.Response, *allowed: int) -> None:
    """Expect a refusal."""
    expect(answer.status_code in (allowed or REFUSED), f"answered {answer.status_code}: {answer.text[:160]}")


def forged(stage: Stage, job: Mapping[str, Any], rng: Random) -> dict[str, dict[str, Any]]:
    """Proofs that another holder might try, by name."""
    real = str(job.get("lease", ""))
    flipped = real[:-1] + ("A" if real[-1:] != "A" else "B")
    return {
        "the worker's name and attempt": {"worker": stage.holder.name, "attempt": job["attempt"]},
        "its own name": {"worker": stage.thief.name, "attempt": 1, "lease": ""},
        "an empty lease": {"lease": ""},
        "no lease": {"lease": None},
        "a guessed lease": {"lease": base64.urlsafe_b64encode(rng.randbytes(32)).rstrip(b"=").decode()},
        "the id as a lease": {"lease": job["id"]},
        "all but the last letter": {"lease": flipped or "x"},
        "the lease in capitals": {"lease": real.upper() or "x"},
        "the lease with a full stop": {"lease": f"{real}."},
        "a long lease": {"lease": "A" * 10_000},
        "a list of leases": {"lease": [real, "x"]},
        "a number": {"lease": 0},
        "true": {"lease": True},
        "a pattern": {"lease": "%"},
    }


def stealing(report: Report, stage: Stage, rng: Random) -> None:
    """Other keys speak for a job that is held."""
    job = stage.held()
    thieves = {"another key of the owner": stage.thief, "a key of another owner": stage.stranger}
    real = stage.holder.proof(job)
    for who, thief in thieves.items():
        proofs = {**forged(stage, job, rng), "the stolen lease itself": real}
        for name, proof in proofs.items():
            with report.attempt(FAMILY, LINE, f"{who} with {name}"):
                steal(thief, job, proof)
                expect(stage.status(job) == "running", f"the job is {stage.status(job)}")
    for name, proof in forged(stage, job, rng).items():
        with report.attempt(FAMILY, LINE, f"the holder's own key with {name}"):
            if proof == real or ("lease" not in job and name == "the worker's name and attempt"):
                expect("lease" in job, "name and attempt are all that a worker proves")
            path = f"/v1/worker/jobs/{job['id']}/finish"
            withheld(stage.holder.caller.post(path, {**proof, "outcome": "failed"}))
            expect(stage.status(job) == "running", f"the job is {stage.status(job)}")
    with report.attempt(FAMILY, LINE, "a lease is random and long"):
        lease = str(job.get("lease", ""))
        expect(len(lease) >= 40, f"a lease of {len(lease)} letters")
        other = stage.held()
        expect(other.get("lease") != lease, "two jobs have one lease")
        stage.let_go(other)
    with report.attempt(FAMILY, LINE, "the lease is not told to readers"):
        texts = [
            stage.alpha.get(path).text
            for path in (f"/v1/launch-checks/{job['id']}", "/v1/launch-checks", "/v1/workers")
        ]
        expect("lease" not in job or not any(str(job["lease"]) in text for text in texts), "a reader sees the lease")
        expect("lease" in job, "there is no lease")
        expect(str(job["lease"]) not in stage.service.log, "the log holds the lease")
    stage.let_go(job)


def steal(thief: FalseWorker, job: Mapping[str, Any], proof: Mapping[str, Any]) -> None:
    """Speak for a job in every way."""
    path = f"/v1/worker/jobs/{job['id']}"
    withheld(thief.caller.post(f"{path}/heartbeat", {**proof, "progress": {"done_fraction": 0.9}}))
    withheld(
        thief.caller.post(f"{path}/finish", {**proof, "outcome": "failed", "error": {"code": "x", "message": "x"}})
    )
    lease = proof.get("lease")
    headers = {LEASE: lease} if isinstance(lease, str) and lease.isascii() else {}
    query = {name: str(proof[name]) for name in ("worker", "attempt") if name in proof}
    withheld(thief.caller.ask("PUT", f"{path}/files/trace.json.gz", params=query, content=b"x", headers=headers))


def ending(report: Report, stage: Stage) -> None:
    """A result counts once, and the end of a lease is its end."""
    with report.attempt(FAMILY, LINE, "a second, different outcome is 409"):
        job = stage.held()
        result = stage.holder.records(job, 1e-3)
        first = stage.holder.finish(job, result=result)
        expect(first.status_code == 204, f"finish was answered {first.status_code}")
        before = stage.alpha.get(f"/v1/launch-checks/{job['id']}").text
        other = stage.holder.finish(job, "failed", error={"code": "x", "message": "x"})
        expect(other.status_code == 409, f"the second outcome was answered {other.status_code}")
        expect(stage.alpha.get(f"/v1/launch-checks/{job['id']}").text == before, "the second outcome changed the job")
    with report.attempt(FAMILY, LINE, "a second, different result changes nothing"):
        other = stage.holder.finish(job, result=stage.holder.records(job, 2e-3))
        expect(other.status_code in (204, 409), f"the second result was answered {other.status_code}")
        expect(stage.alpha.get(f"/v1/launch-checks/{job['id']}").text == before, "the second result changed the job")
    with report.attempt(FAMILY, LINE, "the same result again is taken once"):
        again = stage.holder.finish(job, result=result)
        expect(again.status_code in (204, 409), f"answered {again.status_code}")
        expect(stage.alpha.get(f"/v1/launch-checks/{job['id']}").text == before, "it changed the job")
    with report.attempt(FAMILY, LINE, "a finished job takes no heartbeat and no file"):
        withheld(stage.holder.heartbeat(job, {"done_fraction": 0.1}), 409)
        withheld(stage.holder.upload(job, "late.json.gz", b"x"), 409)
    with report.attempt(FAMILY, LINE, "a replayed lease of an earlier attempt is refused"):
        job = stage.held()
        released = stage.holder.finish(job, "released")
        expect(released.status_code == 204, f"release was answered {released.status_code}: {released.text[:120]}")
        anew = taken(stage.holder, job["id"])
        withheld(stage.holder.heartbeat(job), 409)
        withheld(stage.holder.finish(job, "failed"), 409)
        expect(stage.status(anew) == "running", f"the job is {stage.status(anew)}")
        stage.let_go(anew)


def flooding(report: Report, stage: Stage) -> None:
    """More and larger messages than any worker has to send."""
    job = stage.held()
    with report.attempt(FAMILY, LINE, "a heartbeat of 17 KB"):
        withheld(stage.holder.heartbeat(job, {"note": "x" * 17_000}), 413, 422)
    with report.attempt(FAMILY, LINE, "a heartbeat of 900 KB"):
        withheld(stage.holder.heartbeat(job, {"note": "x" * 900_000}), 413, 422)
    with report.attempt(FAMILY, LINE, "a heartbeat of 5,000 levels"):
        path = f"/v1/worker/jobs/{job['id']}/heartbeat"
        text = json.dumps(stage.holder.proof(job))[:-1] + ', "progress": {"a": ' + "[" * 5_000 + "]" * 5_000 + "}}"
        withheld(stage.holder.caller.ask("POST", path, content=text, headers={"content-type": "application/json"}))
    with report.attempt(FAMILY, LINE, "3,000 events of 12 KB of one job"):
        statuses = Counter(stage.holder.heartbeat(job, {"n": n, "x": "x" * 12_000}).status_code for n in range(3_000))
        expect(set(statuses) - {200}, f"all were taken: {dict(statuses)}")
        expect(max(statuses) < 500, f"answered {dict(statuses)}")
    stage.let_go(job)
    job = stage.held()
    with report.attempt(FAMILY, LINE, "300 files of one job"):
        statuses = Counter(stage.holder.upload(job, f"f{n}", b"x").status_code for n in range(300))
        expect(set(statuses) - {204}, f"all were taken: {dict(statuses)}")
        expect(max(statuses) < 500, f"answered {dict(statuses)}")
    stage.let_go(job)
    job = stage.held()
    with report.attempt(FAMILY, LINE, "600 MB of files of one job"):
        part = b"x" * (30 << 20)
        statuses = Counter(stage.holder.upload(job, f"f{n}", part).status_code for n in range(20))
        expect(set(statuses) - {204}, f"all were taken: {dict(statuses)}")
        expect(max(statuses) < 500, f"answered {dict(statuses)}")
    stage.let_go(job)
    with report.attempt(FAMILY, LINE, "1,500 names of workers"):
        statuses = Counter()
        for number in range(3 * NAMES):
            body = {"worker": f"flood-{number}", "kinds": ["none"]}
            statuses[stage.stranger.caller.post("/v1/worker/claim", body).status_code] += 1
        expect(max(statuses) < 500, f"answered {dict(statuses)}")
        listed = [one["id"] for one in stage.alpha.get("/v1/workers").json()["items"]]
        flood = sum(name.startswith("flood-") for name in listed)
        expect(flood <= NAMES, f"{flood} invented workers are listed to another owner")
    with report.attempt(FAMILY, LINE, "names of files that leave their folder"):
        job = stage.held()
        for name in ("..", "%2e%2e%2fx", "a%2fb", "%00", "x" * 5_000, "a\\b", "é"):
            withheld(stage.holder.upload(job, name, b"x"))
        stage.let_go(job)


def looking(report: Report, stage: Stage) -> None:
    """What read keys and worker keys see of other owners' jobs."""
    job = stage.held()
    with report.attempt(FAMILY, LINE, "a read key sees no ids of other owners' jobs"):
        text = stage.beta_reader.get("/v1/workers").text
        expect(job["id"] not in text, "GET /v1/workers shows the id of another owner's job")
    with report.attempt(FAMILY, LINE, "a worker key reads no lists and no jobs"):
        paths = (
            f"/v1/launch-checks/{job['id']}", "/v1/launch-checks", "/v1/sweeps", "/v1/measurements", "/v1/scenarios",
            "/v1/workers", "/v1/calibrations", "/v1/prices", "/v1/audit", "/metrics", "/v1/estimates/x",
        )  # fmt: skip
        open_paths = [path for path in paths if stage.stranger.caller.get(path).status_code < 400]
        expect(not open_paths, f"open to a worker key: {', '.join(open_paths)}")
    stage.let_go(job)
    sweep = {
        "models": ["qwen3-0.6b"], "clusters": ["dgx-h100"],
        "recipes": [{"sequence_length": 4096, "training_tokens": 1e10}],
    }  # fmt: skip
    made = stage.alpha.made("/v1/sweeps", sweep)["id"]
    with report.attempt(FAMILY, LINE, "a worker key that holds no job reads no sweep"):
        for worker in (stage.stranger, stage.thief):
            for headers in ({}, {LEASE: "x" * 43}, {LEASE: made}):
                withheld(worker.caller.ask("GET", f"/v1/worker/sweeps/{made}", headers=headers))
    with report.attempt(FAMILY, LINE, "a lease of another job reads no sweep"):
        job = stage.held()
        withheld(
            stage.holder.caller.ask("GET", f"/v1/worker/sweeps/{made}", headers={LEASE: str(job.get("lease", "x"))})
        )
        stage.let_go(job)
    stage.alpha.post(f"/v1/sweeps/{made}/cancel")


def sharing_out(report: Report, stage: Stage) -> None:
    """One owner's flood of jobs does not hold up the one job of another."""
    with report.attempt(FAMILY, LINE, f"one job behind {RIVALS} of another owner"):
        statuses = Counter(stage.beta.post("/v1/launch-checks", CHECK).status_code for _ in range(RIVALS))
        made = stage.alpha.made("/v1/launch-checks", CHECK)["id"]
        place, worker = 0, stage.holder
        while (job := worker.claim("launch-check")) is not None and job["id"] != made:
            place += 1
            if place > LONGEST_QUEUE_PLACE:
                break
        expect(job is not None, "the job was never handed out")
        expect(
            place <= LONGEST_QUEUE_PLACE, f"more than {LONGEST_QUEUE_PLACE} of {statuses[202]} were handed out first"
        )
    with report.attempt(FAMILY, LINE, "a key's own limit holds for the routes of workers"):
        limited = stage.service.caller(
            "beta", "worker", options=("--requests-per-minute", "60", "--request-burst", "20")
        )
        body = {"worker": "busy", "kinds": ["none"]}
        statuses = Counter(limited.post("/v1/worker/claim", body).status_code for _ in range(100))
        expect(429 in statuses, f"{dict(statuses)}")


def run(target: Target, report: Report, seed: int) -> None:
    """Attack the protocol of workers."""
    rng = Random(seed)  # noqa: S311 - repeatable
    with serving(target, TRAINCOST_WORKERS_PER_KEY=str(NAMES)) as service:
        stage = Stage(service)
        stealing(report, stage, rng)
        ending(report, stage)
        looking(report, stage)
        flooding(report, stage)
        sharing_out(report, stage)
