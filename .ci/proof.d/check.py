"""Time of /v1/check over HTTP, 50 different questions a second from one process; what Slurm's hooks add to sbatch."""

import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from statistics import median, quantiles
from threading import local
from typing import Any

import httpx

from service.catalogue import shipped_catalogue
from service.features.checks.check import check
from tests.live import serving
from tests.needing import lacks
from tests.slurm import running

QUESTIONS = 1_000
PER_SECOND = 50
CALLERS = 16
MOST_MEDIAN_SECONDS, MOST_P99_SECONDS = 0.005, 0.020
MOST_ADDED_SECONDS = {"there": 0.012, "down": 0.010, "silent": 0.200}
"""Most that a hook adds to a submission in the median, by what the service does."""
RUNS = 9
PLUGINS = {"job_submit.lua": "JobSubmitPlugins=lua", "cli_filter.lua": "CliFilterPlugins=lua"}
SCRIPT = (
    "#!/bin/bash\n#SBATCH --gpus-per-node=8\nsrun torchrun pretrain_gpt.py --num-layers 32 --hidden-size 4096 "
    "--num-attention-heads 32 --ffn-hidden-size 14336 --vocab-size 128256 --swiglu --normalization RMSNorm "
    "--disable-bias-linear --bf16 --position-embedding-type rope --untie-embeddings-and-output-weights "
    "--seq-length 4096 --micro-batch-size 1 --global-batch-size 32 --tensor-model-parallel-size 8\n"
)
MODELS = ("llama-3.1-8b", "llama-3.1-70b", "llama-3.2-3b", "qwen2.5-7b", "mixtral-8x7b", "llama-2-7b")


def questions() -> Iterator[dict[str, Any]]:
    """Jobs that fit, that may not and that do not, no two alike, none refused."""
    choose = random.Random(1)  # noqa: S311 - the same questions each time
    for number in range(QUESTIONS):
        yield {
            "model": choose.choice(MODELS),
            "recipe": {
                "sequence_length": 1024 + 8 * number,
                "micro_batch": choose.choice((1, 1, 2)),
                "training_tokens": 1e11 + number,
                "recompute": choose.choice(("none", "selective", "full")),
            },
            "layout": {"tensor": choose.choice((1, 2, 4)), "zero_stage": 1, "pipeline": choose.choice((1, 2))},
            "cluster": {"gpu": choose.choice(("h100", "a100-sxm4-80gb", "b200")), "gpus": choose.choice((16, 64, 256))},
            "price": {"usd_per_gpu_hour": 2.5},
            "limits": {"days": choose.choice((1, 30, 300))},
        }


def answered(address: str, bodies: list[bytes]) -> list[tuple[float, float, int, dict[str, Any]]]:
    """Seconds by which each question was sent late, seconds until its answer came, its status, and the answer."""
    own = local()
    start = time.perf_counter() + 0.5

    def one(number: int) -> tuple[float, float, int, dict[str, Any]]:
        if not hasattr(own, "connection"):
            own.connection = HTTPConnection(address, timeout=30)
            own.connection.connect()
        due = start + number / PER_SECOND
        time.sleep(max(0.0, due - time.perf_counter()))
        sent = time.perf_counter()
        own.connection.request("POST", "/v1/check", bodies[number], {"content-type": "application/json"})
        answer = own.connection.getresponse()
        content = answer.read()
        return sent - due, time.perf_counter() - sent, answer.status, json.loads(content)

    with ThreadPoolExecutor(CALLERS) as callers:
        return list(callers.map(one, range(len(bodies))))


def is_check_slow() -> bool:
    """Print how long checks take; whether that is longer than promised."""
    bodies = [json.dumps(question).encode() for question in questions()]
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[:1])  # the service inherits it
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as address:
        os.sched_setaffinity(0, cores[1:] or cores)
        answered(address, bodies[-50:])  # what a process does once is not what a question takes
        found = answered(address, bodies)
    os.sched_setaffinity(0, cores)
    late = max(one for one, _, _, _ in found)
    seconds = [one for _, one, _, _ in found]
    verdicts = Counter(answer.get("verdict", str(status)) for _, _, status, answer in found)
    alternatives = sum(len(answer.get("alternatives", ())) for _, _, _, answer in found)
    p99 = quantiles(seconds, n=100)[-1]
    print(
        f"/v1/check, {QUESTIONS} different questions, {PER_SECOND}/s, one process: p50 {1e3 * median(seconds):.1f} ms, "
        f"p99 {1e3 * p99:.1f} ms, worst {1e3 * max(seconds):.1f} ms; {dict(verdicts)}, {alternatives} alternatives; "
        f"questions were sent up to {1e3 * late:.0f} ms late; "
        f"load of the machine {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores"
    )
    return median(seconds) > MOST_MEDIAN_SECONDS or p99 > MOST_P99_SECONDS


def print_own_time() -> None:
    """Print what a check takes of a core, without HTTP and whatever else the machine does."""
    catalogue, found = shipped_catalogue(), []
    for question in questions():
        started = time.process_time()
        check(question, catalogue)
        found.append(time.process_time() - started)
    print(
        f"the same in process: {1e3 * median(found):.1f} ms of a core, p99 {1e3 * quantiles(found, n=100)[-1]:.1f} ms"
    )


def submit_seconds(slurm: Mapping[str, str], script: Path) -> float:
    """Median time of a submission that is accepted."""
    found = []
    for _ in range(RUNS):
        started = time.perf_counter()
        subprocess.run(
            ["sbatch", "--hold", "--partition=many", str(script)],  # noqa: S607 - of this Slurm
            env=slurm,
            check=True,
            capture_output=True,
        )
        found.append(time.perf_counter() - started)
    return median(found)


def is_hook_slow() -> bool:
    """Print what hooks add where the service is there, is not, and does not answer; whether that is too much."""
    if reason := lacks("slurm"):
        print(f"hooks not measured: {reason}")
        return False
    slow = False
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(Path(folder)) as address,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        silent = f"127.0.0.1:{listener.getsockname()[1]}"
        script = Path(folder) / "train.sbatch"
        script.write_text(SCRIPT, encoding="utf-8")
        with running() as slurm:
            without = submit_seconds(slurm, script)
        hooks = {name: httpx.get(f"http://{address}/v1/adapters/slurm/{name}?gpu=h100").text for name in PLUGINS}
        for name, hook in hooks.items():
            for place, where in (("there", address), ("down", "127.0.0.1:9"), ("silent", silent)):
                with running(PLUGINS[name], files={name: hook.replace(address, where)}) as slurm:
                    added = submit_seconds(slurm, script) - without
                print(
                    f"{name}, service {place}: sbatch takes {1e3 * added:.1f} ms more than {1e3 * without:.1f} ms; "
                    f"load of the machine {os.getloadavg()[0]:.2f}"
                )
                slow |= added > MOST_ADDED_SECONDS[place]
    return slow


def main() -> None:
    print_own_time()
    slow = [name for name, judge in (("/v1/check", is_check_slow), ("a hook", is_hook_slow)) if judge()]
    if slow:
        sys.exit(f"slower than promised: {', '.join(slow)}")


if __name__ == "__main__":
    main()
