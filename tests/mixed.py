"""What a service is asked in a day, in turns: questions that are never the same, lists, cells, batches, scenarios."""

import random
from collections.abc import Iterator
from itertools import count
from typing import Any
from urllib.parse import urlencode

from tests.load import Request, post

MODELS = ("llama-3.1-8b", "llama-3.1-70b", "llama-3.2-3b", "qwen2.5-7b", "mixtral-8x7b", "llama-2-7b")
GPUS = ("h100", "a100-sxm4-80gb", "b200")
LISTS = ("/v1/gpus", "/v1/models?limit=20", "/v1/prices?limit=50", "/v1/clusters", "/v1/scenarios?limit=5")


def questions() -> Iterator[dict[str, Any]]:
    """Questions without end, no two alike."""
    choose = random.Random(1)  # noqa: S311 - the same questions each time
    for number in count():
        yield {
            "model": choose.choice(MODELS),
            "recipe": {
                "sequence_length": choose.choice((2048, 4096, 8192)),
                "training_tokens": 1e11 + 1e3 * number,
                "recompute": choose.choice(("none", "selective", "full")),
            },
            "layout": {"tensor": choose.choice((1, 2, 4)), "zero_stage": 1, "pipeline": choose.choice((1, 2))},
            "cluster": {"gpu": choose.choice(GPUS), "gpus": choose.choice((16, 64, 256))},
            "price": {"usd_per_gpu_hour": 2.5},
        }


PLANNED = {"gpu": "h100-sxm5-80gb", "gpus": 16}
HOSTILE = (b'{"model": ' * 50, b"\xff\xfe", b'{"model": NaN}', b'{"model": 1, "model": 2}')
DEEPSPEED = '{"train_micro_batch_size_per_gpu": %d, "zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}'


def heavy(number: int, question: dict[str, Any]) -> Iterator[Request]:
    """Searches, tables, imports and launch checks."""
    searched = {**question, "recipe": {**question["recipe"], "global_batch": 512}}
    compared = {name: part for name, part in question.items() if name not in ("cluster", "price")}
    yield post("/v1/plans", {**searched, "layout": {}, "cluster": PLANNED, "top": 3})
    yield post("/v1/compare", {"question": compared, "clusters": ["dgx-h100", "dgx-a100"]})
    yield post("/v1/sensitivity", {"question": question, "vary": {"recipe.micro_batch": [1, 2, 4]}})
    yield post("/v1/solve", {"question": question, "unknown": "recipe.micro_batch"})
    yield post("/v1/imports/deepspeed", {"content": DEEPSPEED % (1 + number % 7)})
    yield Request("POST", "/v1/estimates", HOSTILE[number % len(HOSTILE)], (400, 422))
    yield post("/v1/launch-checks", {"question": question, "probes": ["bandwidth"], "on": "any"}, 202)
    yield Request("GET", "/v1/launch-checks?limit=5")
    yield Request("GET", "/v1/accuracy")


def requests() -> Iterator[Request]:
    """Requests without end, of every kind in turn."""
    asked = questions()
    for number in count():
        yield post("/v1/estimates", next(asked))
        yield post("/v1/check", next(asked))
        yield Request("GET", LISTS[number % len(LISTS)])
        yield post("/v1/memory", next(asked))
        yield Request("GET", f"/v1/cell/gpu_hours?{urlencode(flat(next(asked)))}")
        yield post("/v1/batch", {"questions": [{"kind": "flops", "body": next(asked)} for _ in range(5)]})
        yield post("/v1/estimates", {**next(asked), "model": f"no-model-{number}"}, 422)
        if number % 10 == 0:
            yield post("/v1/scenarios", {"name": f"number {number}", "question": next(asked)}, 201)
            yield Request("GET", "/readyz")
            yield from heavy(number, next(asked))


def flat(question: dict[str, Any]) -> dict[str, Any]:
    parts = (part if isinstance(part, dict) else {name: part} for name, part in question.items())
    return {name: value for part in parts for name, value in part.items()}
