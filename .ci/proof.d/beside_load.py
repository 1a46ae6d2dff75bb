"""Time of /v1/check while one key asks for all that it may: searches, accuracies, comparisons, batches, and all of it.

A light process asks for checks at a steady rate under a key of its own. Another key sends each kind of load at once,
and what is refused again after `Retry-After`, until all of it is answered. Each kind meets a new service.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from select import select
from typing import Any

PER_SECOND = 25
"""Checks that are asked for in a second."""
IDLE_SECONDS = 20
MOST_P99_SECONDS = 0.020
CALLS = 64
ROWS = 1_000
QUESTIONS = 1_000
LONGEST_SECONDS = 1_500.0
"""Longest time that one kind of load may take."""
TIMEOUT_SECONDS = 300.0
REFUSED = {429, 503}
JSON = {"Content-Type": "application/json"}
CHECKED: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "recipe": {"sequence_length": 8192, "training_tokens": 1e12},
    "layout": {"tensor": 2, "zero_stage": 1},
    "cluster": {"gpu": "h100", "gpus": 64},
    "price": {"usd_per_gpu_hour": 2.5},
}


@dataclass(frozen=True)
class Call:
    """One request of the load."""

    method: str
    path: str
    body: bytes | None = None


@dataclass
class Came:
    """What came of a load."""

    statuses: Counter[int] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    finished: int = 0


def plan(number: int) -> Call:
    recipe = {"sequence_length": 4096 + 8 * number, "global_batch": 64}
    body = {"model": "llama-3.1-8b", "recipe": recipe, "layout": {}, "cluster": {"gpu": "h100", "gpus": 16}}
    return Call("POST", "/v1/plans", json.dumps(body).encode())


def comparison(number: int) -> Call:
    question = {name: part for name, part in CHECKED.items() if name not in {"cluster", "price"}}
    question["recipe"] = {"sequence_length": 4096 + 8 * number, "training_tokens": 1e12}
    clusters = [{"gpu": gpu, "gpus": 8 * n} for gpu in ("h100", "a100-sxm4-80gb") for n in (1, 2, 3, 4, 5)]
    prices = [{"usd_per_gpu_hour": 1 + 0.01 * n} for n in range(ROWS // len(clusters))]
    body = {"question": question, "clusters": clusters, "prices": prices}
    return Call("POST", "/v1/compare", json.dumps(body).encode())


def batch() -> Call:
    kinds = ("estimate", "memory", "flops", "gpu-hours", "check")
    questions = [
        {"kind": kinds[n % len(kinds)], "body": {**CHECKED, "recipe": {"sequence_length": 1024 + 8 * n}}}
        for n in range(QUESTIONS)
    ]
    return Call("POST", "/v1/batch", json.dumps({"questions": questions}).encode())


LOADS: dict[str, list[Call]] = {
    "64 plans": [plan(number) for number in range(CALLS)],
    "64 accuracies": [Call("GET", "/v1/accuracy")] * CALLS,
    "64 comparisons of 1,000 rows": [comparison(number) for number in range(CALLS)],
    "a batch of 1,000": [batch()],
}


def check_again(address: str, key: str) -> None:
    """Ask for checks until the input ends, and print how many seconds each took; for the light process."""
    seconds: list[float] = []
    connection = HTTPConnection(address, timeout=60)
    headers = {**JSON, "Authorization": f"Bearer {key}"}
    start, number = time.perf_counter(), 0
    while not select([0], [], [], 0)[0]:
        due = start + number / PER_SECOND
        time.sleep(max(0.0, due - time.perf_counter()))
        body = {**CHECKED, "recipe": {"sequence_length": 1024 + 8 * (number % 4_000), "training_tokens": 1e12}}
        sent = time.perf_counter()
        connection.request("POST", "/v1/check", json.dumps(body), headers)
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            sys.exit(f"a check was answered {answer.status}")
        seconds.append(time.perf_counter() - sent)
        number += 1
    print(json.dumps(seconds))


def sent(address: str, key: str, calls: Sequence[Call]) -> Came:
    """Send calls at once, and again where they are refused, until all are answered."""
    came, start = Came(), time.perf_counter()

    def one(call: Call) -> None:
        headers = {**JSON, "Authorization": f"Bearer {key}"}
        while time.perf_counter() - start < LONGEST_SECONDS:
            connection = HTTPConnection(address, timeout=TIMEOUT_SECONDS)
            connection.request(call.method, call.path, call.body, headers)
            answer = connection.getresponse()
            content = answer.read()
            connection.close()
            came.statuses[answer.status] += 1
            if answer.status == 200:
                came.finished += 1
                return
            came.refused[json.loads(content)["code"]] += 1
            if answer.status not in REFUSED:
                return
            time.sleep(float(answer.headers["Retry-After"]))

    with ThreadPoolExecutor(len(calls)) as callers:
        list(callers.map(one, calls))
    came.seconds = time.perf_counter() - start
    return came


class Checking:
    """The light process that asks for checks."""

    def __init__(self, address: str, key: str) -> None:
        words = [sys.executable, __file__, "--check", address, key]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ended(self) -> list[float]:
        """Seconds that each check took."""
        out, _ = self._process.communicate("\n")
        found: list[float] = json.loads(out)
        return sorted(found)


def percentile(seconds: Sequence[float], share: float) -> float:
    return seconds[min(len(seconds) - 1, int(share * len(seconds)))]


def shown(name: str, seconds: Sequence[float], idle: float) -> str:
    p50, p99 = percentile(seconds, 0.5), percentile(seconds, 0.99)
    return (
        f"{name:30} checks {len(seconds):5}, p50 {1e3 * p50:6.1f} ms, p99 {1e3 * p99:6.1f} ms, "
        f"worst {1e3 * seconds[-1]:7.1f} ms, {p99 / idle:5.1f} x idle"
    )


def keys_in(folder: Path) -> tuple[str, str]:
    """Keys of the one who checks, and of the one who asks for everything, whom no limit of requests holds back."""
    from service.api.access.key_rules import KeyLimits, KeyRequest, make_key
    from service.catalogue import shipped_catalogue
    from tests.databases import prepared

    engine = prepared(f"sqlite:///{folder}/traincost.db", shipped_catalogue())
    unlimited = KeyLimits(requests_per_minute=0, request_burst=None)
    made = [make_key(engine, KeyRequest(name=name, scopes=["write"], limits=unlimited)) for name in ("checks", "load")]
    engine.dispose()
    return made[0].presented, made[1].presented


def measure(name: str, calls: Sequence[Call]) -> bool:
    """Print what checks take beside a load, and what came of that; whether either is worse than promised."""
    from tests.live import serving

    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        checks, load = keys_in(folder)
        with serving(folder) as address:
            warm = Checking(address, checks)
            time.sleep(3)
            warm.ended()
            checking = Checking(address, checks)
            time.sleep(IDLE_SECONDS)
            idle = checking.ended()
            alone = sent(address, load, [plan(1_000)]) if "plans" in name else None
            checking = Checking(address, checks)
            came = sent(address, load, calls)
            time.sleep(1)
            beside = checking.ended()
    idle_p99 = percentile(idle, 0.99)
    print(shown("idle", idle, idle_p99))
    print(shown(name, beside, idle_p99))
    rate = f"{came.finished / came.seconds:.2f} a second"
    rate += f" (one alone: {1 / alone.seconds:.2f} a second)" if alone else ""
    finished = f"{came.finished} of {len(calls)} finished in {came.seconds:.0f} s"
    print(f"{'':30} {finished}, {rate}; refused {dict(came.refused)}")
    print(f"{'':30} load of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    return percentile(beside, 0.99) > MOST_P99_SECONDS or came.finished < len(calls)


def main(only: Sequence[str]) -> None:
    loads = {**LOADS, "all of it": [call for calls in LOADS.values() for call in calls]}
    chosen = {name: calls for name, calls in loads.items() if not only or any(word in name for word in only)}
    failed = [name for name, calls in chosen.items() if measure(name, calls)]
    if failed:
        sys.exit(f"slower than {1e3 * MOST_P99_SECONDS:.0f} ms, or not finished: {', '.join(failed)}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--check"]:
        check_again(*sys.argv[2:4])
    else:
        main(sys.argv[1:])
