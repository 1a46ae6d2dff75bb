"""The resolved question of an answer is a question with the same answer."""

import json
from typing import Any, get_args

import pytest

from service.answers.estimates import Answer
from service.catalogue import GpuRow, ModelRow, shipped_catalogue
from service.estimator.question import StackName
from service.features.estimates.answers import answer
from service.validation.question_parts import PARTS
from service.validation.questions import read_question
from service.validation.reading import to_bytes

FACTS = shipped_catalogue()
GPUS = list(FACTS.gpus.values())
MODELS = [row for row in FACTS.models.values() if row.model]

MANY_GPUS = 8192
"""More than any machine but a TPU pod has on one fast link."""

RECIPES_AND_LAYOUTS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"global_batch_tokens": 1 << 20, "training_tokens": 15e12}, {"zero_stage": 1}),
    ({"global_batch": 64, "recompute": "full"}, {"zero_stage": 3, "data": 16}),
    ({"global_batch": 64, "recompute": {"granularity": "selective", "modules": ["moe"]}}, {"tensor": 4, "context": 2}),
    ({"global_batch": 64}, {"tensor": 2, "pipeline": 2, "virtual_pipeline": 2, "expert": 4}),
]
"""Each leaves other fields to be derived."""


def _answer(
    recipe: dict[str, Any] | None = None,
    model: str = "llama-3.1-8b",
    cluster: dict[str, Any] | None = None,
    **parts: Any,
) -> Answer:
    body = {
        "model": model,
        "recipe": {"sequence_length": 4096, **(recipe or {})},
        "cluster": cluster or {"gpu": "h100-sxm5-80gb", "gpus": 16},
        **parts,
    }
    return answer(read_question(body, FACTS), FACTS, advise=False)


def _is_the_same_asked_again(first: Answer) -> bool:
    resolved = json.loads(to_bytes(first.resolved))
    again = answer(read_question({part: resolved[part] for part in PARTS}, FACTS), FACTS, advise=False)
    return again.id == first.id


@pytest.mark.parametrize("row", GPUS, ids=lambda row: row.slug)
def test_every_gpu(row: GpuRow) -> None:
    precision = "bf16-mixed" if row.gpu.bf16_flop_per_s else "fp16-mixed"
    for gpus in (1, row.gpu.scale_up_gpus, MANY_GPUS):
        cluster = {"gpu": row.slug, "gpus": gpus}
        assert _is_the_same_asked_again(_answer({"precision": precision}, cluster=cluster))


@pytest.mark.parametrize("row", MODELS, ids=lambda row: row.slug)
def test_every_model(row: ModelRow) -> None:
    assert _is_the_same_asked_again(_answer(model=row.slug))


@pytest.mark.parametrize("slug", FACTS.clusters)
def test_every_cluster(slug: str) -> None:
    cluster = {"preset": slug, "nodes": 2}
    assert _is_the_same_asked_again(_answer(cluster=cluster, price={"usd_per_gpu_hour": 2.5}))


@pytest.mark.parametrize("stack", get_args(StackName))
def test_every_stack(stack: str) -> None:
    assert _is_the_same_asked_again(_answer({"stack": stack}))


@pytest.mark.parametrize(("recipe", "layout"), RECIPES_AND_LAYOUTS)
def test_what_recipe_and_layout_leave_open(recipe: dict[str, Any], layout: dict[str, Any]) -> None:
    assert _is_the_same_asked_again(_answer(recipe, model="mixtral-8x7b", layout=layout))
