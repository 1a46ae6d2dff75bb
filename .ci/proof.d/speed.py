"""Time of one answer of each kind in process, every preset on 8 and on 1,024 GPUs; of commands, as whole processes."""

import gc
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import median, quantiles

from service.catalogue import Catalogue, shipped_catalogue
from service.estimator import Cluster, Layout, Price, Question, Recipe, estimate, estimate_memory
from service.estimator.advice import with_advice
from service.estimator.resolve import resolve
from service.estimator.run.run import timeline

GPUS = (8, 1024)
RUNS = 5
MOST_IMPORT_SECONDS = 0.150
IMPORT = "import time; t = time.perf_counter(); import service.estimator; print(time.perf_counter() - t)"

COMMANDS = {
    "--version": 0.150,
    "--help": 0.200,
    "estimate -h": 0.200,
    "plan -h": 0.200,
    "estimate llama-3.1-8b --seq 8k --gbs 512 --training-tokens 200B --tp 2 --gpu h100 --gpus 8": 0.350,
    "estimate llama-3.1-8b --seq 8k --gpu h100 --gpus 8": None,
    "models llama": None,
    "estimate --help-all": None,
}
"""Most seconds of a command, from its start to its end; None where none are promised."""

MEMO = type(lru_cache(lambda: None))
MEMOS = [o for o in gc.get_objects() if isinstance(o, MEMO) and o.__module__.startswith("service.estimator")]


def questions(catalogue: Catalogue) -> Iterator[Question]:
    gpu = catalogue.find_gpu("h100-sxm5-80gb").row.gpu
    for model in (row.model for row in catalogue.models.values() if row.model):
        for gpus in GPUS:
            yield Question(
                model=model,
                recipe=Recipe(sequence_length=4096, training_tokens=1e12),
                layout=Layout(),
                cluster=Cluster(gpu=gpu.slug, gpus=gpus),
                gpu=gpu,
                price=Price(usd_per_gpu_hour=2.5),
            )


@dataclass(frozen=True)
class Answer:
    """One kind of answer, and how long it may take."""

    name: str
    gives: Callable[[Question], object]
    most_median_seconds: float
    most_p95_seconds: float


ANSWERS = (
    Answer("memory alone", estimate_memory, 0.5e-3, 2e-3),
    Answer("memory timeline", lambda question: timeline(resolve(question)), 10e-3, 10e-3),
    Answer(
        "memory with changes",
        lambda question: with_advice(estimate_memory(question).memory, question),
        10e-3,
        25e-3,
    ),
    Answer("full estimate, with intervals and cost", estimate, 1e-3, 2e-3),
)


def timed_seconds(answer: Answer, question: Question, *, forgets: bool) -> float:
    """Time of one answer, which may profit from calls before it or not."""
    if forgets:
        for memo in MEMOS:
            memo.cache_clear()
    started = time.perf_counter()
    answer.gives(question)
    return time.perf_counter() - started


def import_seconds() -> float:
    """Time of an import in a fresh process."""
    return float(subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, check=True).stdout)


def is_slow(answer: Answer, asked: Sequence[Question]) -> bool:
    """Print how long an answer takes; whether that is longer than promised."""
    seconds, first = (
        [median(timed_seconds(answer, question, forgets=forgets) for _ in range(RUNS)) for question in asked]
        for forgets in (False, True)
    )
    p95 = quantiles(seconds, n=20)[-1]
    print(
        f"{answer.name}, {len(seconds)} questions: median {1e3 * median(seconds):.2f} ms, p95 {1e3 * p95:.2f} ms, "
        f"worst {1e3 * max(seconds):.2f} ms; profiting from no call before: {1e3 * median(first):.2f} ms, "
        f"{1e3 * quantiles(first, n=20)[-1]:.2f} ms, {1e3 * max(first):.2f} ms"
    )
    return median(seconds) > answer.most_median_seconds or p95 > answer.most_p95_seconds


def command_seconds(words: str) -> float:
    """Time of a command in a process of its own."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-m", "service", *words.split()], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


def slow_commands() -> list[str]:
    """Print how long each command takes; those that take longer than promised."""
    medians = {words: median(command_seconds(words) for _ in range(9)) for words in COMMANDS}
    for words, seconds in medians.items():
        promised = "" if COMMANDS[words] is None else f" (promised: {COMMANDS[words]:.2f})"
        print(f"traincost {words}: median of 9 processes {seconds:.3f} s{promised}")
    return [f"traincost {words}" for words, most in COMMANDS.items() if most is not None and medians[words] > most]


def main() -> None:
    asked = list(questions(shipped_catalogue()))
    slow = [answer.name for answer in ANSWERS if is_slow(answer, asked)]
    imports = [import_seconds() for _ in range(9)]
    print(f"import of service.estimator in a fresh process: median of {len(imports)} {1e3 * median(imports):.0f} ms")
    slow += slow_commands()
    if slow or median(imports) > MOST_IMPORT_SECONDS:
        sys.exit(f"slower than promised: {', '.join(slow) or 'the import'}")


if __name__ == "__main__":
    main()
