"""Processor time of 1,000 different questions over HTTP beside an empty endpoint; 1,000 keep-alive clients for 60 s."""

import argparse
import asyncio
import json
import multiprocessing
import os
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import cycle
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import uvicorn
from check import questions
from fastapi import FastAPI
from pydantic import BaseModel

from service.answers.estimates import Answer
from service.catalogue import shipped_catalogue
from service.features.estimates.answers import answer_of
from tests.load import Request, all_asked, asked, keep_asking, post, processor_seconds, serving

MOST_TIMES, MOST_TIMES_IN_A_BATCH = 1.2, 1.3
TOGETHER = 100
CLIENTS = 8
"""Who ask at the same time, so that a process has always something to do."""


class Recipe(BaseModel):
    sequence_length: int
    micro_batch: int
    training_tokens: float
    recompute: str


class Layout(BaseModel):
    tensor: int
    pipeline: int
    zero_stage: int


class Machine(BaseModel):
    gpu: str
    gpus: int


class Price(BaseModel):
    usd_per_gpu_hour: float


class Body(BaseModel):
    """A body of the same shape."""

    model: str
    recipe: Recipe
    layout: Layout
    cluster: Machine
    price: Price


def run_empty(listener: socket.socket, answer: dict[str, Any]) -> None:
    """An endpoint that reads such a body and answers such an answer, as FastAPI makes it."""
    app = FastAPI()

    @app.post("/empty")
    async def empty(body: Body) -> dict[str, Any]:
        return answer if body.model else {}

    uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[listener])


@contextmanager
def empty_endpoint(answer: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """Host and port of the empty endpoint, and its process."""
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listener:
        process = multiprocessing.get_context("fork").Process(target=run_empty, args=(listener, answer))
        process.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}", process.pid or 0
        finally:
            process.terminate()
            process.join()


def spent(process: int, work: Callable[[], object]) -> float:
    """Processor time that a process spends on something [second]."""
    before = processor_seconds(process)
    work()
    return processor_seconds(process) - before


def in_process(bodies: Sequence[dict[str, Any]]) -> float:
    """Processor time of the answers alone, one after the other [second]."""
    catalogue, started = shipped_catalogue(), time.process_time()
    for body in bodies:
        answer_of(Answer, body, catalogue)
    return time.process_time() - started


def batch_of(bodies: Sequence[dict[str, Any]]) -> Request:
    """The same questions in one request."""
    return post("/v1/batch", {"questions": [{"kind": "estimate", "body": body} for body in bodies]})


def all_answered(address: str, bodies: Sequence[dict[str, Any]]) -> None:
    """Ask a batch, and see that none is refused."""
    answers = json.loads(asked(address, batch_of(bodies)))["answers"]
    if {answer["status"] for answer in answers} != {200}:
        sys.exit("questions of a batch are refused")


def costs(address: str, process: int, bodies: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Processor time of one question in milliseconds, asked in each way by turns."""
    alone = [post("/v1/estimates", body) for body in bodies]
    answer = asked(address, alone[0])
    found = Counter[str]()
    with empty_endpoint(json.loads(answer)) as (empty, empty_process):
        nothing = [post("/empty", body) for body in bodies]
        for at in range(-TOGETHER, len(bodies), TOGETHER):  # by turns, for the machine is not always as fast
            part = slice(at, at + TOGETHER) if at >= 0 else slice(TOGETHER)
            once = {
                "empty": spent(empty_process, partial(all_asked, empty, nothing[part], CLIENTS)),
                "estimates": spent(process, partial(all_asked, address, alone[part], CLIENTS)),
                "in process": in_process(bodies[part]),
                "batch": spent(process, partial(all_answered, address, bodies[part])),
            }
            if at >= 0:  # what a process does once is not what a question takes
                found.update(once)
    return {name: 1e3 * seconds / len(bodies) for name, seconds in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    given = parser.parse_args()
    bodies = [{name: part for name, part in one.items() if name != "limits"} for one in questions()]
    faults = []
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as replica:
        cost = costs(replica.address, replica.process.pid, bodies)
        requests = cycle([post("/v1/check", body) for body in bodies])
        before = processor_seconds(replica.process.pid)
        held = asyncio.run(keep_asking(replica.address, given.clients, given.seconds, lambda: next(requests)))
        busy = processor_seconds(replica.process.pid) - before
    bound = cost["empty"] + MOST_TIMES * cost["in process"]
    ratio = cost["batch"] / cost["in process"]
    print(
        f"{len(bodies)} different questions, milliseconds of a processor each: "
        f"POST /v1/estimates {cost['estimates']:.3f}, an empty endpoint {cost['empty']:.3f}, "
        f"in process {cost['in process']:.3f}, so at most {bound:.3f}; "
        f"{TOGETHER} in a batch {cost['batch']:.3f} each, {ratio:.2f} times that in process"
    )
    seconds = [one for _, one in held.seconds]
    print(
        f"{given.clients} clients that keep their connections, POST /v1/check for {given.seconds:.0f} s: "
        f"{len(seconds)} answers, {len(seconds) / given.seconds:.0f}/s, {sum(held.faults.values())} faults "
        f"{dict(held.faults) or ''}; p50 {median(seconds):.2f} s, p99 {quantiles(seconds, n=100)[-1]:.2f} s; "
        f"{1e3 * busy / len(seconds):.2f} ms of a processor each; "
        f"load of the machine {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores"
    )
    faults += ["a question over HTTP costs too much"] if cost["estimates"] > bound else []
    faults += ["a question in a batch costs too much"] if ratio > MOST_TIMES_IN_A_BATCH else []
    faults += ["requests failed"] if held.faults else []
    if faults:
        sys.exit("; ".join(faults))


if __name__ == "__main__":
    main()
