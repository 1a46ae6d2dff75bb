"""Time of one full estimate in process, every preset on 8 and on 1,024 GPUs; time to import the estimator."""

import gc
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import lru_cache
from statistics import median, quantiles

from service.catalogue import Catalogue, shipped_catalogue
from service.errors import Refused
from service.estimator import Cluster, Layout, Question, Recipe, estimate

GPUS = (8, 1024)
RUNS = 5
MOST_ESTIMATE_SECONDS = 2e-3
MOST_IMPORT_SECONDS = 0.150
IMPORT = "import time; t = time.perf_counter(); import service.estimator; print(time.perf_counter() - t)"

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
            )


def timed_seconds(question: Question) -> float:
    """Time of one estimate that profits from no call before it."""
    for memo in MEMOS:
        memo.cache_clear()
    started = time.perf_counter()
    estimate(question)
    return time.perf_counter() - started


def import_seconds() -> float:
    """Time of an import in a fresh process."""
    return float(subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, check=True).stdout)


def main() -> None:
    seconds: list[float] = []
    refused: list[str] = []
    for question in questions(shipped_catalogue()):
        try:
            seconds.append(median(timed_seconds(question) for _ in range(RUNS)))
        except Refused as error:
            refused.append(str(error))
    imports = [import_seconds() for _ in range(9)]
    print(
        f"full estimate, {len(seconds)} questions: median {1e3 * median(seconds):.2f} ms, "
        f"p95 {1e3 * quantiles(seconds, n=20)[-1]:.2f} ms, worst {1e3 * max(seconds):.2f} ms"
    )
    print(f"import of service.estimator in a fresh process: median of {len(imports)} {1e3 * median(imports):.0f} ms")
    if refused:
        sys.exit(f"{len(refused)} questions are refused, the first because {refused[0]}")
    if median(seconds) > MOST_ESTIMATE_SECONDS or median(imports) > MOST_IMPORT_SECONDS:
        sys.exit("slower than promised: 2 ms an estimate, 150 ms an import")


if __name__ == "__main__":
    main()
