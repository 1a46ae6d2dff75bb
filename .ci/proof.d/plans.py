"""Layouts worked out in a second of one core, beside Calculon, and whether an estimate alone gives the same.

CALCULON names a checkout of Calculon, whose search needs psutil; both search in turns, each in a process of its own.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from random import Random
from statistics import median
from typing import Any
from urllib.request import Request, urlopen

from others.runs import commit_of

from service.catalogue import shipped_catalogue
from service.estimator import Cluster, Layout, Question, Recipe, estimate
from service.planner.plans import SearchResult, question_of, search
from service.planner.space import Constraints, plain_workload, search_space
from tests.ask import known
from tests.live import serving

RUNS = 5
TASKS = 15
"""Of the tasks of Calculon's search; it tries some 500 executions in each."""
LEAST_TIMES_CALCULON = 500
SAMPLE = 334
"""Random layouts of each model that are asked alone."""
MOST_APART = 1e-9
MOST_MEGABYTES = 400
MOST_GROWTH = 1.3
"""Time of a layout among 10,000,000 over that among 100,000."""
REPEATS = 50
"""Searches of the small space beside one of the large, which then take about as long."""
MOST_SERVED_SECONDS = 1.0
LEAST_SERVED = 200_000
SERVED = 5
"""Requests after the first."""
TOP = 10


@dataclass(frozen=True, kw_only=True)
class Space:
    """One search, and how many layouts it has to work out in a second."""

    model: str
    gpu: str
    gpus: int
    sequence_length: int
    global_batch: int
    least_per_s: float
    restricted: dict[str, tuple[Any, ...]] = field(default_factory=dict)

    def question(self) -> Question:
        catalogue = shipped_catalogue()
        row = catalogue.find_gpu(self.gpu).row
        return Question(
            model=known(catalogue.find_model(self.model).row.model),
            recipe=Recipe(sequence_length=self.sequence_length, global_batch=self.global_batch),
            layout=Layout(),
            cluster=Cluster(gpu=row.slug, gpus=self.gpus),
            gpu=row.gpu,
        )


GPT = Space(
    model="gpt3-175b", gpu="a100-sxm4-80gb", gpus=1024, sequence_length=2048, global_batch=1536, least_per_s=1e6,
    restricted={
        "shard_group": (None, 0, 2, 4, 8, 16, 32, 64, 128),
        "schedule": ("1f1b", "interleaved-1f1b", "gpipe", "zero-bubble", "dualpipe"),
        "offload": ("none", "optimizer", "activations", "optimizer-and-activations"),
    },
)  # fmt: skip
FEW = replace(GPT, restricted={"shard_group": (None, 0, 2, 4, 8), "schedule": ("1f1b",), "recompute": ("none",)})

SPACES = (
    Space(model="deepseek-v3", gpu="h100", gpus=2048, sequence_length=4096, global_batch=15360, least_per_s=3e5),
    Space(model="llama-3.1-405b", gpu="h100", gpus=16384, sequence_length=8192, global_batch=2048, least_per_s=2e5),
)  # fmt: skip

ASKED = (
    Space(model="llama-3.1-8b", gpu="h100", gpus=64, sequence_length=8192, global_batch=96, least_per_s=0),
    Space(model="llama-3.1-70b", gpu="h100", gpus=256, sequence_length=8192, global_batch=512, least_per_s=0),
    Space(model="gpt3-13b", gpu="a100-sxm4-80gb", gpus=48, sequence_length=2048, global_batch=960, least_per_s=0),
    Space(model="mixtral-8x7b", gpu="h100", gpus=128, sequence_length=4096, global_batch=256, least_per_s=0),
    Space(model="deepseek-v2-lite", gpu="h100", gpus=32, sequence_length=4096, global_batch=128, least_per_s=0),
    Space(model="qwen3-0.6b", gpu="h100", gpus=8, sequence_length=4096, global_batch=64, least_per_s=0),
)


def whole(space: Space, top: int) -> SearchResult:
    *_, found = search(space.question(), Constraints(space.restricted), top)
    return found


def tell_axes(space: Space) -> None:
    """Print every axis of a space that has more values than one."""
    axes = asdict(search_space(plain_workload(space.question()), Constraints(space.restricted)))
    print(f"axes of {space.model} on {space.gpus} {space.gpu}, batch {space.global_batch} x {space.sequence_length}:")
    for name, values in axes.items():
        if isinstance(values, tuple) and len(values) > 1:
            print(f"    {name} ({len(values)}): {', '.join(map(str, values))}")
    print("    a shard group of None is everybody, one of 0 everybody inside a fast-link domain")


def rate_of(space: Space) -> tuple[SearchResult, float]:
    """A whole search, and how many layouts it scores in a CPU second."""
    started = time.process_time()
    found = whole(space, TOP)
    return found, found.scored / (time.process_time() - started)


def tell(space: Space, found: SearchResult, rates: list[float]) -> bool:
    """Print how fast a space is searched; whether that is slower than promised."""
    print(
        f"{space.model} on {space.gpus} {space.gpu}: {found.generated:,} generated, {found.scored:,} scored, "
        f"{found.fitting:,} fit; {max(rates):,.0f} scored in a second of one core "
        f"(at least {space.least_per_s:,.0f}), best of {', '.join(f'{rate:,.0f}' for rate in rates)}"
    )
    return max(rates) < space.least_per_s


def calculon(checkout: Path) -> dict[str, float]:
    """What Calculon's search tries and scores in how many CPU seconds."""
    command = [sys.executable, str(Path(__file__).parent / "others" / "calculon_search.py"), str(checkout), str(TASKS)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def beside_calculon() -> list[str]:
    """Search GPT-3 175B in turns with Calculon; what is missed."""
    checkout = os.environ.get("CALCULON")
    rates, theirs = [], []
    for _ in range(RUNS):
        found, rate = rate_of(GPT)
        rates.append(rate)
        theirs += [calculon(Path(checkout))] if checkout else []
    missed = [GPT.model] if tell(GPT, found, rates) else []
    if not checkout:
        print("not measured: CALCULON names no copy of that repository")
        return missed
    tried, scored = (max(one[name] / one["cpu_seconds"] for one in theirs) for name in ("tried", "scored"))
    print(
        f"Calculon {commit_of(Path(checkout))}, loggers quiet, {theirs[0]['tried']:,} executions of its search of the "
        f"same job: {tried:,.0f} tried in a second of one core, {scored:,.0f} of them scored, best of {RUNS}; "
        f"ours scores {max(rates) / tried:,.0f} times what it tries (at least {LEAST_TIMES_CALCULON}), "
        f"{max(rates) / scored:,.0f} times what it scores"
    )
    return [*missed, "times Calculon"] if max(rates) < LEAST_TIMES_CALCULON * tried else missed


def grows() -> bool:
    """Print the time of one layout in a small and in a large space; whether it grows more than promised."""
    seconds = {}
    for space, repeats in ((FEW, REPEATS), (GPT, 1)):
        started = time.process_time()
        for _ in range(repeats):
            scored = whole(space, TOP).scored
        seconds[scored] = (time.process_time() - started) / (repeats * scored)
    few, many = seconds.values()
    told = ", ".join(f"{1e6 * each:.3f} us among {scored:,}" for scored, each in seconds.items())
    print(f"{GPT.model}, time of one layout: {told}; ratio {many / few:.2f} (at most {MOST_GROWTH})")
    return many > MOST_GROWTH * few


def served(space: Space) -> bool:
    """Print how long a running service takes for a search, all axes free; whether that is longer than promised."""
    recipe = {"sequence_length": space.sequence_length, "global_batch": space.global_batch}
    body: Mapping[str, Any] = {
        "model": space.model,
        "recipe": recipe,
        "cluster": {"gpu": space.gpu, "gpus": space.gpus},
    }
    seconds = []
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as address:
        for _ in range(1 + SERVED):
            asked = Request(
                f"http://{address}/v1/plans", json.dumps(body).encode(), {"content-type": "application/json"}
            )
            started = time.perf_counter()
            with urlopen(asked, timeout=60) as response:
                answer = json.load(response)
            seconds.append(time.perf_counter() - started)
    first, *others = seconds
    scored, usual = answer["counts"]["scored"], median(others)
    print(
        f"{space.model} on {space.gpus} {space.gpu} over HTTP: {scored:,} scored (at least {LEAST_SERVED:,}), median "
        f"{usual:.2f} s (at most {MOST_SERVED_SECONDS:.0f}) of {', '.join(f'{each:.2f}' for each in others)}; "
        f"the first request took {first:.2f} s; {os.getloadavg()[0]:.1f} processes wait for {os.cpu_count()} cores"
    )
    return usual > MOST_SERVED_SECONDS or scored < LEAST_SERVED


def is_large() -> bool:
    """Print the memory of this process and of the largest that it started; whether one is larger than promised."""
    own, others = (
        1024 * resource.getrusage(who).ru_maxrss / 1e6 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    print(f"this process took {own:.0f} MB, the service at most {others:.0f} MB (at most {MOST_MEGABYTES})")
    return max(own, others) > MOST_MEGABYTES


def apart(space: Space) -> float:
    """The farthest that a random layout of a space lies from what an estimate of it alone says."""
    question, found = space.question(), whole(space, 10**6)
    sample = Random(1).sample(found.best, min(SAMPLE, len(found.best)))  # noqa: S311 - the same ones every time
    farthest = 0.0
    for candidate in sample:
        answer = estimate(question_of(question, candidate))
        if answer.verdict != "fits":
            return float("inf")
        pairs = (
            (candidate.step_seconds, answer.step.step_seconds.value),
            (candidate.reserved_bytes, answer.memory.reserved_peak_bytes.value),
        )
        farthest = max(farthest, *(abs(one / other - 1) for one, other in pairs))
    print(f"{space.model} on {space.gpus} {space.gpu}: {len(sample)} layouts asked alone, at most {farthest:.1e} apart")
    return farthest


def main() -> None:
    tell_axes(GPT)
    missed = beside_calculon()
    for space in SPACES:
        runs = [rate_of(space) for _ in range(RUNS)]
        missed += [space.model] if tell(space, runs[0][0], [rate for _, rate in runs]) else []
    missed += ["growth"] if grows() else []
    missed += ["HTTP"] if served(SPACES[-1]) else []
    missed += ["memory"] if is_large() else []
    missed += [space.model for space in ASKED if apart(space) > MOST_APART]
    if missed:
        sys.exit(f"missed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
