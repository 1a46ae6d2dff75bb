"""Calculon's own search, in one process, its loggers quiet, on a random sample of its tasks.

Asked as `calculon_search.py CHECKOUT TASKS`; prints one line of JSON. An execution is scored where its memory and time
were computed: that is counted where Calculon looks whether it fits, so those that do not fit count too.
"""

import argparse
import importlib
import json
import logging
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

GPUS = 1024
BATCH = 1536
DTYPE = "float16"
TOP = 10


class Sampled:
    """Stands in for a pool of processes: it runs a sample of the tasks, here, the same every time."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.found: list[Any] = []

    def __enter__(self) -> "Sampled":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def starmap(self, search: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> list[Any]:
        chosen = Random(1).sample(tasks, self.count)  # noqa: S311 - not a secret
        self.found = [search(*task) for task in chosen]
        return self.found


def arguments(search: Any, checkout: Path, folder: Path) -> argparse.Namespace:
    """The words of its command: its GPT-3 175B on its A100 80GB, with no second memory to offload to."""
    machine = json.loads((checkout / "systems" / "a100_80g.json").read_text(encoding="utf-8"))
    machine["mem2"]["GiB"] = 0
    system = folder / "system.json"
    system.write_text(json.dumps(machine), encoding="utf-8")
    parser = argparse.ArgumentParser()
    search.create_parser(parser.add_subparsers())
    model, found = checkout / "models" / "gpt3-175B.json", folder / "found.json"
    words = [search.NAME, model, GPUS, BATCH, DTYPE, system, found, "--noneok", "--top-n", TOP, "--cpus", 1]
    return parser.parse_args([str(word) for word in words])


def measured(checkout: Path, tasks: int) -> dict[str, float]:
    """Executions tried and scored, and CPU seconds of the whole command."""
    llm: Any = importlib.import_module("calculon.llm")
    pool = Sampled(tasks)
    importlib.import_module("calculon.llm.optimal_execution").mp.Pool = lambda _: pool
    scored, looks_whether_it_fits = 0, llm.Llm._check_mem_caps

    def count(model: Any) -> None:
        nonlocal scored
        scored += 1
        looks_whether_it_fits(model)

    llm.Llm._check_mem_caps = count
    with tempfile.TemporaryDirectory() as folder:
        asked = arguments(llm.OptimalExecution, checkout, Path(folder))
        started = time.process_time()
        llm.OptimalExecution.run_command(logging.getLogger("calculon"), asked)
        seconds = time.process_time() - started
    tried = sum(count for _, count, *_ in pool.found)
    return {"tried": tried, "scored": scored, "cpu_seconds": seconds}


def main() -> None:
    checkout, tasks = Path(sys.argv[1]), int(sys.argv[2])
    sys.path.insert(0, str(checkout))
    sys.modules["pandas"] = ModuleType("pandas")  # another of its commands writes tables with it
    logging.disable(logging.CRITICAL)
    print(json.dumps(measured(checkout, tasks)))


if __name__ == "__main__":
    main()
