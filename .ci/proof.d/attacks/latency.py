"""Searches, comparisons and accuracies of one key beside the checks of another; a light version of the full bars."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from typing import Any, TypeVar

from attacks.poisoning import at_peak, product
from attacks.record import Attempt, Report, expect
from attacks.service import (
    QUESTION,
    Beside,
    Caller,
    HttpError,
    Service,
    Target,
    changed,
    percentile,
    processor_seconds,
    serving,
)
from attacks.worker import ENVIRONMENT

FAMILY, LINE = "latency", 4
MOST_SECONDS = 0.020
"""The bar of p99; on a machine that is busy with other things, MOST_RATIO times the idle p99 counts instead."""
MOST_RATIO = 3.0
AT_ONCE = 16
IDLE_SECONDS = 3.0
MOST_KIND_SECONDS = 120.0
HANG_UP_SECONDS = 6.0
MOST_CORES_AFTER = 0.3

Asked = tuple[str, str, Any]
"""Method, path and body."""
_numbers = count(1)
Found = TypeVar("Found")


def plan() -> Asked:
    """A search that no one asked before."""
    question = changed(
        QUESTION, layout={}, cluster={"gpu": "h100", "gpus": 64}, price={"usd_per_gpu_hour": 2 + next(_numbers) / 1e4}
    )
    return "POST", "/v1/plans", {**question, "top": 3}


def accuracy() -> Asked:
    """Predictions of every published run."""
    return "GET", "/v1/accuracy", None


def comparison() -> Asked:
    """About a thousand rows."""
    clusters = [{"gpu": gpu, "gpus": gpus} for gpu in ("h100", "a100-sxm4-80gb") for gpus in (8, 16, 32, 64, 128)]
    body = {
        "question": {"model": "llama-3.1-8b", "recipe": QUESTION["recipe"], "layout": {"tensor": 2}},
        "clusters": clusters, "prices": [{"usd_per_gpu_hour": 1 + next(_numbers) / 1e6} for _ in range(90)],
    }  # fmt: skip
    return "POST", "/v1/compare", body


def batch() -> Asked:
    """A thousand questions."""
    asked = [
        {"kind": "estimate", "body": changed(QUESTION, price={"usd_per_gpu_hour": 1 + next(_numbers) / 1e6})}
        for _ in range(1_000)
    ]
    return "POST", "/v1/batch", {"questions": asked}


def patient_check() -> Asked:
    """A check that lets alternatives be tried for a minute."""
    free = [
        {"gpu": gpu, "gpus": gpus} for gpu in ("h100", "a100-sxm4-80gb", "b200", "h200") for gpus in (64, 128, 256, 512)
    ]
    body = changed(QUESTION, model="llama-3.1-405b", cluster={"gpu": "h100", "gpus": 8}, layout={})
    return (
        "POST",
        "/v1/check",
        {**body, "free_pool": free, "deadline_seconds": 60, "price": {"usd_per_gpu_hour": 1 + next(_numbers) / 1e6}},
    )


def sensitivity() -> Asked:
    """All combinations of many values."""
    vary = {
        "recipe.micro_batch": [1, 2, 4, 8],
        "recipe.recompute": ["none", "selective", "full"],
        "layout.zero_stage": [0, 1, 2, 3],
    }
    question = changed(QUESTION, price={"usd_per_gpu_hour": 2 + next(_numbers) / 1e4}, recipe={"sequence_length": 8192})
    return "POST", "/v1/sensitivity", {"question": question, "vary": vary, "combine": "all"}


def solving() -> Asked:
    """The fewest GPUs for a deadline."""
    question = changed(QUESTION, cluster={"gpu": "h100"}, price={"usd_per_gpu_hour": 2 + next(_numbers) / 1e4})
    return "POST", "/v1/solve", {"unknown": "cluster.gpus", "question": question, "limits": {"days": 14}}


def diagnosis() -> Asked:
    """Why a job ran out of memory."""
    message = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
        "79.10 GiB of which 1.25 GiB is free. Of the allocated memory 75.02 GiB is allocated by PyTorch."
    )
    return (
        "POST",
        "/v1/diagnose",
        {**QUESTION, "price": {"usd_per_gpu_hour": 2 + next(_numbers) / 1e4}, "message": message},
    )


def table_of_cells() -> Asked:
    """A thousand rows of a sheet."""
    lengths = ";".join(str(512 * n) for n in range(1, 41))
    batches = ";".join(str(128 * n) for n in range(1, 26))
    query = f"model=llama-3.1-8b&gpu=h100&gpus=8&sequence_length={lengths}&global_batch={batches}&training_tokens=1e12"
    price = 2 + next(_numbers) / 1e4
    return "GET", f"/v1/cell/table.csv?metrics=gpu_hours;cost_usd&{query}&usd_per_gpu_hour={price}", None


def timeline() -> Asked:
    """The bytes of every stage over two steps."""
    body = changed(
        QUESTION, model="llama-3.1-405b", layout={"tensor": 8, "pipeline": 16}, cluster={"gpu": "h100", "gpus": 1024},
        recipe={"sequence_length": 8192, "global_batch": 2048}, price={"usd_per_gpu_hour": 2 + next(_numbers) / 1e4},
    )  # fmt: skip
    return "POST", "/v1/memory/timeline", body


def workbook() -> Asked:
    """Every price as a workbook."""
    return "GET", f"/v1/prices.xlsx?limit={1000 + next(_numbers) % 9}", None


def trial_import() -> Asked:
    """Twenty thousand prices, tried only."""
    rows = "".join(f"p{next(_numbers)}-{n},h100,all,on-demand,{1 + n / 1e4}\n" for n in range(20_000))
    return "POST", "/v1/prices/import?dry_run=true", f"provider,gpu,region,price_model,usd_per_gpu_hour\n{rows}"


def fit() -> Asked:
    """A calibration on all of the owner's measurements."""
    body = {"gpu": "h100-sxm5-80gb", "runs": RUNS[: 1 + next(_numbers) % len(RUNS)], "note": f"{next(_numbers)}"}
    return "POST", "/v1/calibrations", body


RUNS = [f"run-{number}" for number in range(40)]
"""Runs of 64 measurements each that the load's owner has, for fits and accuracies."""

KINDS: Mapping[str, tuple[Callable[[], Asked], int]] = {
    "plans": (plan, AT_ONCE), "accuracies": (accuracy, AT_ONCE), "compares of 900 rows": (comparison, AT_ONCE),
    "batches of 1,000": (batch, 2), "checks that wait a minute": (patient_check, AT_ONCE),
    "sensitivities": (sensitivity, AT_ONCE), "solves": (solving, AT_ONCE), "diagnoses": (diagnosis, AT_ONCE),
    "tables of 1,000 cells": (table_of_cells, AT_ONCE), "timelines": (timeline, AT_ONCE),
    "workbooks": (workbook, AT_ONCE),
    "imports of 20,000 prices": (trial_import, 6), "fits of 2,500 measurements": (fit, AT_ONCE),
}  # fmt: skip


def with_measurements(caller: Caller) -> None:
    """Give an owner some thousand measurements, 64 a run."""
    for number, run in enumerate(RUNS):
        measurements = [
            product(
                (1024 + 64 * row, 4096, 4096 + 64 * number), 1.3 * at_peak((1024 + 64 * row, 4096, 4096 + 64 * number))
            )
            for row in range(64)
        ]
        record = {
            "probe": "gemm", "status": "succeeded", "seconds": 1.0, "environment": ENVIRONMENT,
            "measurements": measurements,
        }  # fmt: skip
        caller.made("/v1/measurements", {"source": "a probe", "run": run, "records": [record]})


def sent_as(body: Any) -> dict[str, Any]:
    """A body as httpx sends it: a text is a table."""
    return {"content": body, "headers": {"content-type": "text/csv"}} if isinstance(body, str) else {"json": body}


def insistent(caller: Caller, asked: Asked, until: float, statuses: Counter[int]) -> bool:
    """Ask until the answer is none of `too many`; whether it came, and every refusal said when to come again."""
    method, path, body = asked
    while time.monotonic() < until:
        try:
            answer = caller.http.request(method, path, **sent_as(body), timeout=max(1.0, until - time.monotonic()))
        except HttpError:
            statuses[0] += 1
            return False
        statuses[answer.status_code] += 1
        if answer.status_code not in (429, 503):
            return answer.status_code < 500
        if "retry-after" not in answer.headers:
            statuses[-1] += 1
            return False
        time.sleep(min(float(answer.headers["retry-after"]), 5.0))
    return False


def all_at_once(service: Service, key: str, asked: list[Asked]) -> tuple[float, Counter[int], int]:
    """Send all requests at once, each on a connection of its own; seconds, statuses and how many were answered."""
    statuses: Counter[int] = Counter()
    started = time.monotonic()
    until = started + MOST_KIND_SECONDS

    def one(request: Asked) -> bool:
        return insistent(Caller(service.address, key), request, until, statuses)

    with ThreadPoolExecutor(len(asked)) as pool:
        answered = sum(pool.map(one, asked))
    return time.monotonic() - started, statuses, answered


def hang_up(service: Service, key: str, asked: Asked) -> None:
    """Send a request and leave before it is answered."""
    method, path, body = asked
    try:
        Caller(service.address, key).http.request(method, path, json=body, timeout=0.5)
    except HttpError:
        return


def cores_used(service: Service, seconds: float) -> float:
    """Cores that the service uses for a while."""
    root = service.process.pid if service.process else 0
    before, started = processor_seconds(root), time.monotonic()
    time.sleep(seconds)
    return (processor_seconds(root) - before) / (time.monotonic() - started)


def run(target: Target, report: Report, seed: int) -> None:  # noqa: ARG001 - nothing here is random
    """Load the service by one key and time the checks of another."""
    with serving(target) as service:
        loader = service.caller("alpha", "write")
        with_measurements(loader)
        keys = loader.key, service.caller("beta", "read").key
        mixed = [make() for make, times in KINDS.values() for _ in range(max(1, times // 4))]
        rounds = {name: [make() for _ in range(times)] for name, (make, times) in KINDS.items()}
        for name, asked in {**rounds, "all kinds together": mixed}.items():
            with report.attempt(FAMILY, LINE, f"{len(asked)} {name} of one key beside checks of another") as attempt:
                beside(service, report, attempt, (name, asked), keys)
            service.revive(always=bool(attempt.failure))  # what was abandoned may go on
        abandoned(report, service, keys[0])


def beside(
    service: Service, report: Report, attempt: Attempt, load: tuple[str, list[Asked]], keys: tuple[str, str]
) -> None:
    """Time the checks of one key while another asks for what is costly."""
    name, asked = load
    checker = Caller(service.address, keys[1])
    idle, _ = timed(checker, partial(time.sleep, IDLE_SECONDS))
    seconds, (took, statuses, answered) = timed(checker, partial(all_at_once, service, keys[0], asked))
    before, attempt.seconds = percentile(idle, 0.99), percentile(seconds, 0.99)
    ratio = attempt.seconds / before
    report.note(
        f"latency: {name}: check p99 {1e3 * attempt.seconds:.1f} ms of {len(seconds)}, {ratio:.1f} times the "
        f"{1e3 * before:.1f} ms when idle, longest {1e3 * max(seconds):.0f} ms; {answered} of {len(asked)} in "
        f"{took:.1f} s, {answered / took:.2f} a second, {dict(statuses)}"
    )
    expect(answered == len(asked), f"{answered} of {len(asked)} were answered: {dict(statuses)}")
    expect(attempt.seconds <= max(MOST_SECONDS, MOST_RATIO * before), f"check p99 {ratio:.1f} times that when idle")


def abandoned(report: Report, service: Service, key: str) -> None:
    """A client's hang-up ends its work."""
    for name, make in (("accuracies", accuracy), ("plans", plan)):
        with report.attempt(FAMILY, LINE, f"{name} whose clients hang up"):
            threads = [threading.Thread(target=hang_up, args=(service, key, make())) for _ in range(12)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            time.sleep(1.0)
            cores = cores_used(service, HANG_UP_SECONDS)
            report.note(
                f"latency: {cores:.2f} cores used in the {HANG_UP_SECONDS:.0f} s after 12 {name} were abandoned"
            )
            expect(cores <= MOST_CORES_AFTER, f"{cores:.2f} cores used after all clients left")


def timed(caller: Caller, meanwhile: Callable[[], Found]) -> tuple[list[float], Found]:
    """Seconds of checks while something else goes on, and what that found."""
    with Beside(caller) as beside:
        found = meanwhile()
    expect(not beside.faults, f"{len(beside.faults)} checks failed, first: {beside.faults[:1]}")
    return beside.seconds, found
