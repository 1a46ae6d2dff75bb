"""Are the products that are measured all those of a step, each as often as the step has it, and none else?"""

from collections.abc import Mapping
from typing import Any

import pytest

from service.estimator.resolve import ResolvedQuestion
from service.features.launch_checks.kernels import product_items
from tests.features.launch_checks.sizing import NODE, asked, worked_out

DENSE: Mapping[str, Any] = {
    "vocab_size": 4096, "hidden_size": 512, "num_hidden_layers": 3, "num_attention_heads": 8,
    "intermediate_size": 1024,
}  # fmt: skip
GROUPED = {**DENSE, "num_key_value_heads": 2}
TIED = {**DENSE, "tie_word_embeddings": True}
SPARSE = {
    **GROUPED, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 256,
    "shared_expert_intermediate_size": 512,
}  # fmt: skip
LORA = {"method": {"name": "lora", "targets": ["q_proj", "down_proj"]}}

CASES: Mapping[str, tuple[Any, dict[str, Any]]] = {
    "dense": (DENSE, {"gpus": 1}),
    "dense, tied": (TIED, {"gpus": 1}),
    "grouped queries": (GROUPED, {"gpus": 2}),
    "accumulated": (GROUPED, {"gpus": 2, "recipe": {"global_batch": 8, "micro_batch": 2}}),
    "tensor ranks": (GROUPED, {"gpus": 4, "tensor": 2, "sequence_parallel": False}),
    "tensor ranks that split the sequence": (GROUPED, {"gpus": 2, "tensor": 2, "sequence_parallel": True}),
    "context ranks": (DENSE, {"gpus": 2, "context": 2}),
    "stages": (DENSE, {"gpus": 3, "pipeline": 3, "recipe": {"global_batch": 4}}),
    "experts": (SPARSE, {"gpus": 1}),
    "experts on ranks of their own": (SPARSE, {"gpus": 4, "expert": 4}),
    "experts one after another": (SPARSE, {"gpus": 1, "recipe": {"stack": "transformers"}}),
    "a model of the catalogue": ("llama-3.1-8b", {"gpus": 8, "tensor": 2, "length": 4096}),
    "adapters": (GROUPED, {"gpus": 1, "recipe": LORA}),
    "first layers frozen": (GROUPED, {"gpus": 1, "recipe": {"method": {"name": "full", "frozen_layers": 2}}}),
}


def resolved_case(name: str) -> ResolvedQuestion:
    model, said = CASES[name]
    return worked_out(asked(model, **said))


def step_product_flop(resolved: ResolvedQuestion) -> int:
    """FLOP of all matrix products of one step, by the ledger."""
    batch = resolved.question.recipe.global_batch or 0
    each = sum(
        times * (op.flop + op.backward_flop)
        for times, ops in resolved.workload.ledger.groups()
        for op in ops
        if op.kind == "gemm"
    )
    return each * batch


def ranks(resolved: ResolvedQuestion) -> int:
    """Ranks that divide a micro-batch of one stage, and replicas."""
    layout = resolved.question.layout
    return (layout.data or 1) * layout.context * layout.tensor


@pytest.mark.parametrize("name", CASES)
def test_flop_of_all_ranks_are_those_of_the_ledger(name: str) -> None:
    resolved = resolved_case(name)
    items, left_out = product_items(resolved, NODE)
    measured = sum(
        2 * one.shape["rows"] * one.shape["columns"] * one.shape["inner"] * one.shape["copies"] * (one.count or 0)
        for item in items
        for one in item.expected
    )
    assert left_out == ()
    assert measured * ranks(resolved) == step_product_flop(resolved)


@pytest.mark.parametrize("name", CASES)
def test_equal_products_are_measured_once(name: str) -> None:
    items, _ = product_items(resolved_case(name), NODE)
    entries = [{key: value for key, value in item.entry.items() if key != "name"} for item in items]
    assert len({tuple(entry.items()) for entry in entries}) == len(entries)


def test_the_three_products_of_a_matrix_have_the_shapes_of_its_gradients() -> None:
    items, _ = product_items(resolved_case("tensor ranks"), NODE)
    up = {item.entry["operation"]: item.entry for item in items if item.entry["name"] == "mlp.up"}
    sizes = {name: (entry["rows"], entry["columns"], entry["inner"]) for name, entry in up.items()}
    assert sizes == {
        "forward": (2048, 1024, 512), "input_gradient": (2048, 512, 1024), "weight_gradient": (512, 1024, 2048),
    }  # fmt: skip


def test_only_gradients_that_are_needed_are_measured() -> None:
    items, _ = product_items(resolved_case("adapters"), NODE)
    assert {item.entry["operation"] for item in items if item.entry["name"] == "mlp.up"} == {
        "forward",
        "input_gradient",
    }


def test_formats_without_kernels_are_left_out_and_said() -> None:
    question = asked("llama-3.1-8b", recipe={"precision": "bf16-mixed"})
    items, left_out = product_items(worked_out(question), NODE)
    assert (left_out, {item.entry["dtype"] for item in items}) == ((), {"bf16"})
    narrow = asked("llama-3.1-8b", recipe={"precision": "fp8-tensorwise"})
    items, _ = product_items(worked_out(narrow), NODE)
    assert {item.entry["dtype"] for item in items} == {"bf16", "fp8"}
