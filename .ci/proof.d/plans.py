"""Layouts worked out in a second of one core, and whether each is what an estimate of it alone says."""

import resource
import sys
import time
from dataclasses import dataclass, field
from random import Random
from typing import Any

from service.catalogue import shipped_catalogue
from service.estimator import Cluster, Layout, Question, Recipe, estimate
from service.estimator.filled import filled
from service.planner.freedom import Freedom
from service.planner.search import Found, question_of, search

RUNS = 3
SAMPLE = 334
"""Random layouts of each model that are asked alone."""
MOST_APART = 1e-9
MOST_MEBIBYTES = 400
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
            model=filled(catalogue.find_model(self.model).row.model),
            recipe=Recipe(sequence_length=self.sequence_length, global_batch=self.global_batch),
            layout=Layout(),
            cluster=Cluster(gpu=row.slug, gpus=self.gpus),
            gpu=row.gpu,
        )


SPACES = (
    Space(
        model="gpt3-175b", gpu="a100-sxm4-80gb", gpus=1024, sequence_length=2048, global_batch=1536, least_per_s=1e6,
        restricted={
            "shard_group": (None, 0, 2, 4, 8, 16, 32, 64, 128),
            "schedule": ("1f1b", "interleaved-1f1b", "gpipe", "zero-bubble", "dualpipe"),
        },
    ),
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


def whole(space: Space, top: int) -> Found:
    *_, found = search(space.question(), Freedom(space.restricted), top)
    return found


def is_slow(space: Space) -> bool:
    """Print how fast a space is searched; whether that is slower than promised."""
    rates = []
    for _ in range(RUNS):
        started = time.process_time()
        found = whole(space, TOP)
        rates.append(found.scored / (time.process_time() - started))
    rate = max(rates)
    said = ", ".join(f"{name} of {values}" for name, values in space.restricted.items()) or "none"
    print(
        f"{space.model} on {space.gpus} {space.gpu}: {found.generated:,} generated, {found.scored:,} scored, "
        f"{found.fitting:,} fit; {rate:,.0f} scored in a second of one core, best of {RUNS} "
        f"(at least {space.least_per_s:,.0f}); fields told: {said}"
    )
    return rate < space.least_per_s


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
    missed = [space.model for space in SPACES if is_slow(space)]
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"the process took {used:.0f} MiB (at most {MOST_MEBIBYTES})")
    missed += ["memory"] if used > MOST_MEBIBYTES else []
    missed += [space.model for space in ASKED if apart(space) > MOST_APART]
    if missed:
        sys.exit(f"missed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
