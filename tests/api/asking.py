"""A request in one call, and a question that every estimating route answers."""

from typing import Any, Protocol

import httpx


class Ask(Protocol):
    """Sends one request and returns its answer."""

    def __call__(self, method: str, path: str, **request: Any) -> httpx.Response: ...


class AskTogether(Protocol):
    """Sends requests at the same moment and returns their answers, in order."""

    def __call__(self, requests: list[dict[str, Any]]) -> list[httpx.Response]: ...


QUESTION: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "recipe": {"sequence_length": 8192, "micro_batch": 1, "global_batch": 128, "training_tokens": 15e12},
    "layout": {"tensor": 2},
    "cluster": {"gpu": "h100-sxm5-80gb", "gpus": 8},
    "price": {"usd_per_gpu_hour": 2.5},
}
