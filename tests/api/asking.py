"""A request in one call, lists read whole, and a question that every estimating route answers."""

from typing import Any, Protocol

import httpx

from service.api.openapi import request_bodies


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

ADMISSION_TOKEN = "a-token-that-only-tests-have"  # noqa: S105 - nothing real answers to it
"""Secret of the webhook's address."""


def example_of(operation: str) -> Any:
    """The first example of the body of an operation."""
    return next(iter(request_bodies(operation).values()))["value"]


RECORDS: dict[str, Any] = example_of("importMeasurements")
PRODUCTS: list[dict[str, Any]] = RECORDS["records"][0]["measurements"]
"""Records of a probe, and the products that they measure."""
NCCL_TESTS: str = example_of("importMeasurementFile")
CHOSEN: dict[str, Any] = example_of("createCalibration")
"""The calibration of those products."""

KEYS = {"models": "slug", "gpus": "slug", "clusters": "slug", "prices": "id"}
"""Lists of the catalogue, each with the column that tells its items apart."""


def items_of(ask: Ask, path: str) -> list[dict[str, Any]]:
    """Items of one page of a list."""
    answer = ask("GET", path)
    assert answer.status_code == 200, answer.text
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


def paged_items(ask: Ask, path: str) -> list[dict[str, Any]]:
    """Items of all pages of a list, each page asked for with the cursor of the last; the path has a query."""
    items: list[dict[str, Any]] = []
    cursor = ""
    while True:
        page = ask("GET", f"{path}{cursor}").json()
        items += page["items"]
        if page["next_cursor"] is None:
            return items
        cursor = f"&cursor={page['next_cursor']}"
