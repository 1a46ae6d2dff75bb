"""Searches, comparisons and accuracies of one key beside the checks of another; a light version of the full bars."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import count
from multiprocessing import get_context
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
LEAST_SECONDS = 5.0
"""Least time for which a kind is asked for."""
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
    return "POST", "/v1/sensitivity", {"question": question, "vary": vary, "mode": "grid"}


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
    """Two hundred rows of a sheet, the most that one takes."""
    lengths = ";".join(str(512 * n) for n in range(1, 21))
    batches = ";".join(str(128 * n) for n in range(1, 11))
    query = f"model=llama-3.1-8b&gpu=h100&gpus=8&sequence_length={lengths}&global_batch={batches}&training_tokens=1e12"
    price = 2 + next(_numbers) / 1e4
    return "GET", f"/v1/cell/table.csv?metrics=gpu_hours;cost_usd&{query}&usd_per_gpu_hour={price}", None


def timeline() -> Asked:
    """The bytes of every stage over two steps."""
    body = changed(
        QUESTION, model="llama-3.1-405b", layout={"tensor": 8, "pipeline": 18}, cluster={"gpu": "h100", "gpus": 1152},
        recipe={"sequence_length": 8192, "global_batch": 2048}, price={"usd_per_gpu_hour": 2 + next(_numbers) / 1e4},
    )  # fmt: skip
    return "POST", "/v1/memory/timeline", body


def workbook() -> Asked:
    """Every price as a workbook."""
    return "GET", f"/v1/prices.xlsx?limit={1000 - next(_numbers) % 9}", None


def trial_import() -> Asked:
    """Ten thousand prices, tried only."""
    rows = "".join(f"p{next(_numbers)}-{n},h100,all,on-demand,{1 + n / 1e4}\n" for n in range(10_000))
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
    "tables of 200 rows": (table_of_cells, AT_ONCE), "timelines": (timeline, AT_ONCE),
    "workbooks": (workbook, AT_ONCE),
    "imports of 10,000 prices": (trial_import, 6), "fits of 2,500 measurements": (fit, AT_ONCE),
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
            return answer.status_code < 300
        if "retry-after" not in answer.headers:
            statuses[-1] += 1
            return False
        time.sleep(min(float(answer.headers["retry-after"]), 5.0))
    return False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a load."""

    seconds: float
    statuses: dict[int, int]
    sent: int
    answered: int


def all_at_once(address: str, key: str, kinds: Sequence[str], number: int) -> Outcome:
    """Ask for each kind on a connection of its own, again and again for some seconds; runs in a process of its own.

    Args:
        address: where the service is
        key: who asks
        kinds: names of kinds, one for each connection
        number: where numbers begin that make each request a new one
    """
    global _numbers  # noqa: PLW0603 - this process makes its own requests
    _numbers = count(number)
    statuses: Counter[int] = Counter()
    started = time.monotonic()

    def one(kind: str) -> tuple[int, int]:
        caller, sent, answered = Caller(address, key), 0, 0
        while not sent or time.monotonic() - started < LEAST_SECONDS:
            answered += insistent(caller, KINDS[kind][0](), started + MOST_KIND_SECONDS, statuses)
            sent += 1
        return sent, answered

    with ThreadPoolExecutor(len(kinds)) as pool:
        found = list(pool.map(one, kinds))
    sent, answered = (sum(one[place] for one in found) for place in (0, 1))
    return Outcome(time.monotonic() - started, dict(statuses), sent, answered)


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
    rounds = {f"{times} times {name}": [name] * times for name, (_, times) in KINDS.items()}
    rounds["all kinds together"] = [name for name, (_, times) in KINDS.items() for _ in range(max(1, times // 4))]
    with serving(target) as service, ProcessPoolExecutor(1, get_context("spawn")) as load:
        loader = service.caller("alpha", "write")
        with_measurements(loader)
        keys = loader.key, service.caller("beta", "read").key
        load.submit(time.monotonic).result()  # it has started
        for name, kinds in rounds.items():
            with report.attempt(FAMILY, LINE, f"{name} by one key beside checks of another") as attempt:
                asking = partial(load.submit, all_at_once, service.address, keys[0], kinds, next(_numbers) * 100_000)
                beside(report, attempt, name, Caller(service.address, keys[1]), asking)
            service.revive(always=bool(attempt.failure))  # what was abandoned may go on
        abandoned(report, service, keys[0])


def beside(
    report: Report, attempt: Attempt, name: str, checker: Caller, asking: Callable[[], "Future[Outcome]"]
) -> None:
    """Time the checks of one key while another asks for what is costly."""
    idle, _ = timed(checker, partial(time.sleep, IDLE_SECONDS))
    seconds, found = timed(checker, lambda: asking().result())
    before, attempt.seconds = percentile(idle, 0.99), percentile(seconds, 0.99)
    ratio = attempt.seconds / before
    report.note(
        f"latency: {name}: check p99 {1e3 * attempt.seconds:.1f} ms of {len(seconds)}, {ratio:.1f} times the "
        f"{1e3 * before:.1f} ms when idle, longest {1e3 * max(seconds):.0f} ms; {found.answered} of {found.sent} in "
        f"{found.seconds:.1f} s, {found.answered / found.seconds:.2f} a second, {found.statuses}"
    )
    expect(found.answered == found.sent, f"{found.answered} of {found.sent} were answered: {found.statuses}")
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
