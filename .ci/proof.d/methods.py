"""Memory by other tools' formulas against the tools themselves, run beside on 100 random questions each."""

import contextlib
import io
import os
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from others.questions import configs, questions
from others.runs import Numbers, Run, accelerate, cookbook, deepspeed, megatron

from service.catalogue.huggingface import import_config
from service.errors import Refused
from service.estimator import Cluster, Layout, Question, Recipe
from service.estimator.other_tools.comparison import TOOLS, unsupported
from service.estimator.question import PrecisionName, ToolName
from service.estimator.resolve import ResolvedQuestion, resolve
from service.estimator.samples import H100

QUESTIONS = 100
MOST_DIFFERENCE_FRACTION = 1e-3
SEED = 20261121

HELP = """Megatron-LM and the cookbook are read from checkouts, accelerate and deepspeed from the Python that runs this:
MEGATRON_LM=folder COOKBOOK=folder PYTHON=python .ci/proof methods, that python after
pip install accelerate deepspeed torch transformers annotated-types numpy pydantic"""

Asked = Iterator[tuple[Question, Any]]
"""Questions, with a config where the tool is given one."""


@dataclass(frozen=True)
class Peer:
    """One tool: how it is run, and questions for it."""

    runs: Callable[[], tuple[str, Run]]
    asks: Callable[[random.Random], Asked]


def of_configs(chance: random.Random, layouts: tuple[Layout, ...], *, gpus: tuple[int, ...]) -> Asked:
    """Questions by config.json, for a tool that is given a model."""
    precisions: tuple[PrecisionName, ...] = ("bf16-mixed", "fp16-mixed", "fp32")
    for config in configs(chance):
        question = Question(
            model=import_config(config).model,
            recipe=Recipe(sequence_length=1024, precision=chance.choice(precisions), stack="deepspeed"),
            layout=chance.choice(layouts),
            cluster=Cluster(gpu=H100.slug, gpus=chance.choice(gpus)),
            gpu=H100,
        )
        yield question, config


ZERO_3 = (Layout(zero_stage=3), Layout(zero_stage=3, offload="optimizer"))

PEERS: dict[ToolName, Peer] = {
    "megatron-theoretical": Peer(
        lambda: megatron(_checkout("MEGATRON_LM")), lambda chance: questions(chance, "megatron-theoretical")
    ),
    "accelerate": Peer(accelerate, lambda chance: of_configs(chance, (Layout(zero_stage=0),), gpus=(1,))),
    "zero3-estimator": Peer(deepspeed, lambda chance: of_configs(chance, ZERO_3, gpus=(1, 8, 64))),
    "eleutherai-cookbook": Peer(
        lambda: cookbook(_checkout("COOKBOOK")), lambda chance: questions(chance, "eleutherai-cookbook")
    ),
}


def _checkout(variable: str) -> Path:
    if variable not in os.environ:
        raise ImportError(f"{variable} is not set")
    return Path(os.environ[variable])


def ours(name: ToolName, resolved: ResolvedQuestion) -> Numbers:
    """Every number of a method's answer by its name."""
    found = TOOLS[name].answer(resolved)
    numbers = {term.name: term.bytes for term in found.terms} | {line.name: line.bytes for line in found.totals}
    for row in found.variants:
        numbers |= {f"{row.name}, GPU": row.gpu_bytes, f"{row.name}, CPU": row.cpu_bytes}
    return numbers | {"peak": found.peak_bytes}


def expressible(name: ToolName, asked: Asked) -> Iterator[tuple[ResolvedQuestion, Any]]:
    """The questions that the estimator answers and the tool can express."""
    for question, config in asked:
        with contextlib.suppress(Refused):
            resolved = resolve(question)
            if not unsupported(TOOLS[name], resolved):
                yield resolved, config


@dataclass
class Compared:
    """How a method stands beside its tool."""

    version: str
    count: int = 0
    worst: float = 0.0
    where: str = "nowhere"

    @property
    def is_equal(self) -> bool:
        return self.count == QUESTIONS and self.worst <= MOST_DIFFERENCE_FRACTION

    def take(self, own: Numbers, theirs: Numbers) -> None:
        """Take in one question: every number by its name."""
        self.count += 1
        for line in own.keys() | theirs.keys():
            pair = own.get(line, float("inf")), theirs.get(line, 0.0)
            off = abs(pair[0] - pair[1]) / max(abs(pair[1]), 1.0)
            if off > self.worst:
                self.worst, self.where = off, line


def compared(name: ToolName, peer: Peer) -> Compared:
    """A method beside its tool on random questions."""
    version, run = peer.runs()
    found = Compared(version)
    for resolved, config in expressible(name, peer.asks(random.Random(SEED))):  # noqa: S311 - no secret
        found.take(ours(name, resolved), run(resolved, config))
        if found.count == QUESTIONS:
            break
    return found


def main() -> None:
    failed = False
    for name, peer in PEERS.items():
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                found = compared(name, peer)
        except (ImportError, FileNotFoundError) as missing:
            print(f"{name:<22} tool not found: {missing}")
            failed = True
            continue
        said = f"{found.count} questions, worst difference {found.worst:.1e} ({found.where})"
        print(f"{name:<22} {found.version:<12} {said}")
        failed = failed or not found.is_equal
    if failed:
        sys.exit(f"not every method equals its tool within {MOST_DIFFERENCE_FRACTION:.1%}\n{HELP}")


if __name__ == "__main__":
    main()
