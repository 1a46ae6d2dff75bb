"""No field is accepted and ignored: changing it changes a number of some answer, or its docstring calls it descriptive.

The search is blind on purpose: a new field is tried with every kind of value its type allows, in every
one of a few quite different questions, and has to be noticed by the estimator in one of them.
"""

from collections.abc import Iterator
from dataclasses import fields
from itertools import permutations
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from service.catalogue import Catalogue
from service.errors import Refused
from service.estimator.question import (
    Checkpointing,
    Cluster,
    Egress,
    Layout,
    Method,
    Model,
    OwnedPrice,
    Price,
    Recipe,
    Recompute,
    RunStage,
    Software,
    Storage,
    Versions,
)
from service.features.estimates.answers import answer
from service.validation.question_parts import QUERY_FIELDS, CardPrice, CataloguePrice, Nodes
from service.validation.questions import read_question
from service.validation.reading import schema_of, to_bytes

DENSE = {
    "vocab_size": 32000, "hidden_size": 2048, "num_hidden_layers": 8, "num_attention_heads": 16,
    "num_key_value_heads": 8, "intermediate_size": 8192, "sliding_window": 512, "attention_chunk_size": 1024,
    "layer_types": ["full_attention", "sliding_attention", "chunked_attention"],
}  # fmt: skip
WINDOWED = {name: value for name, value in DENSE.items() if name not in {"attention_chunk_size", "layer_types"}}
SPARSE = {
    "vocab_size": 32000, "hidden_size": 2048, "num_hidden_layers": 8, "num_attention_heads": 16,
    "intermediate_size": 8192, "num_experts": 16, "num_experts_per_tok": 2, "moe_intermediate_size": 1024,
    "shared_expert_intermediate_size": 1024, "num_nextn_predict_layers": 1,
}  # fmt: skip
LATENT = {
    **SPARSE, "kv_lora_rank": 512, "q_lora_rank": 768, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}  # fmt: skip
RECURRENT = {
    "vocab_size": 32000, "hidden_size": 2048, "num_hidden_layers": 8, "num_attention_heads": 16,
    "intermediate_size": 8192, "conv_kernel": 4,
    "layer_types": ["mamba", "mamba2", "gated_delta_net", "rg_lru"],
    "mamba_d_ssm": 4096, "mamba_d_state": 64, "mamba_dt_rank": 128, "mamba_n_heads": 64, "mamba_n_groups": 4,
    "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
    "lru_width": 2048,
}  # fmt: skip
REUSING = {
    "vocab_size": 32000, "hidden_size": 2048, "num_hidden_layers": 8, "num_attention_heads": 16, "head_dim": 256,
    "intermediate_size": 8192, "conv_kernel": 4, "mlp_layer_types": ["none"],
    "layer_types": ["mamba2", "shared_attention_and_mamba2"], "num_mem_blocks": 1, "adapter_rank": 64,
    "mamba_d_ssm": 4096, "mamba_d_state": 64, "mamba_n_heads": 64, "mamba_n_groups": 4,
}  # fmt: skip
RECIPE = {"sequence_length": 4096, "micro_batch": 1, "global_batch": 128, "training_tokens": 1e12}
CLUSTER = {"gpu": "h100-sxm5-80gb", "gpus": 16}
OLDER = {"gpu": "a100-sxm4-80gb", "gpus": 16}
NEWER = {"gpu": "b200-sxm-180gb", "gpus": 16}
SPLIT = {"tensor": 2, "pipeline": 2}
SHARDED = {**RECIPE, "stack": "torchtitan", "recompute": {"granularity": "full"}}

DOCUMENTS = (
    [{"tokens": 512, "count": 3}],
    [{"tokens": 512, "count": 3}, {"tokens": 8192, "count": 1}],
    [{"tokens": 512, "count": 3}, {"tokens": 8192, "count": 2}],
)
STAGES = ([{"until_tokens": 1e11, "global_batch": 64}], [{"until_tokens": 2e11, "global_batch": 64}])


def question(model: Any, recipe: dict[str, Any], layout: dict[str, Any]) -> dict[str, Any]:
    price = {"usd_per_gpu_hour": 2.0}
    return {"model": model, "recipe": recipe, "layout": layout, "cluster": CLUSTER, "price": price}


QUESTIONS = [
    question(DENSE, RECIPE, {}),
    question(WINDOWED, RECIPE, {}),
    question(DENSE, {**RECIPE, "attention": "eager", "recompute": {"granularity": "selective"}}, SPLIT),
    question(SPARSE, RECIPE, {"expert": 4, "tensor": 2}),
    question(LATENT, {**RECIPE, "recompute": {"granularity": "full", "method": "block", "layers": 2}}, {"pipeline": 2}),
    question(DENSE, SHARDED, {"zero_stage": 3, "shard_group": 8}),
    question(DENSE, {**RECIPE, "stack": "deepspeed"}, {"zero_stage": 2, "context": 4}),
    question(DENSE, RECIPE, {"context": 4}),
    question(DENSE, {"sequence_length": 4096, "training_tokens": 1e12}, {"tensor": 4}),
    question(RECURRENT, RECIPE, {}),
    question(REUSING, RECIPE, {}),
    question("llama-3.1-70b", RECIPE, {"tensor": 8, "pipeline": 2}),
    question(DENSE, {**RECIPE, "method": {"name": "lora"}}, {}),
    question(DENSE, {**RECIPE, "method": {"name": "full"}, "document_lengths": DOCUMENTS[0]}, {}),
    question(DENSE, {**RECIPE, "stack": "transformers", "method": {"name": "qlora"}}, {}),
    question(DENSE, {**RECIPE, "precision": "fp8-tensorwise"}, {}),
    question(DENSE, RECIPE, {"pipeline": 2, "virtual_pipeline": 2}),
    question(SPARSE, {**RECIPE, "stack": {"name": "megatron-core", "versions": {}}}, {"expert": 4}),
    question(DENSE, {**RECIPE, "stack": {"name": "torchtitan", "versions": {}}}, {}),
    question(DENSE, {**RECIPE, "sequence_length": 64, "stack": {"name": "transformers"}}, {}),
    question(DENSE, {**RECIPE, "method": {"name": "qlora"}, "stack": {"name": "transformers", "versions": {}}}, {}),
]
QUESTIONS.append({**question(DENSE, {**RECIPE, "stack": {"name": "fsdp1"}}, {}), "cluster": OLDER})
QUESTIONS.append(question(DENSE, {**RECIPE, "stack": {"name": "megatron-core"}}, {"tensor": 4}))
NARROW = {**RECIPE, "precision": "mxfp8", "stack": {"name": "megatron-core"}}
QUESTIONS.append({**question(SPARSE, NARROW, {"expert": 4}), "cluster": NEWER})
QUESTIONS.append({**question(DENSE, RECIPE, {"zero_stage": 0}), "cluster": {**CLUSTER, "gpus": 32}})
NARROW = {**RECIPE, "gradient_dtype": "bf16", "moment_dtype": "bf16"}
QUESTIONS.append(question(DENSE, {**NARROW, "stack": {"name": "megatron-core"}}, {}))
CHUNKED = {"pipeline": 2, "virtual_pipeline": 2, "zero_stage": 2}
QUESTIONS.append(question(DENSE, {**RECIPE, "stack": {"name": "megatron-core"}}, CHUNKED))
QUESTIONS.append(question(DENSE, {**RECIPE, "global_batch": 16, "stack": {"name": "torchtitan"}}, {}))
QUESTIONS.append(question(DENSE, {**RECIPE, "stack": {"name": "deepspeed"}}, {"zero_stage": 3}))
GRAPHED = {"name": "megatron-core", "dispatcher": "flex", "cuda_graphs": True}
QUESTIONS.append(question(SPARSE, {**RECIPE, "sequence_length": 512, "stack": GRAPHED}, {"expert": 16}))
STORED = {"usd_per_gb_month": 0.02, "data_bytes": 1e12}
RENTED = {"usd_per_gpu_hour": 2.0, "storage": STORED, "egress": {"bytes": 1e12, "usd_per_gb": 0.02}}
OWNED = {"amortisation_years": 4.0, "purchase_usd": 3e4, "maintenance_fraction": 0.05, "usd_per_kwh": 0.1}
KEPT: dict[str, Any] = {**RECIPE, "checkpoint": {"write_bytes_per_s": 1e10}}
PRICED = [
    {**question(DENSE, KEPT, {}), "price": RENTED},
    {**question(DENSE, {**RECIPE, "checkpoint": {}}, {}), "price": {**OWNED, "usd_per_kw_month": 100.0}},
]
QUESTIONS += PRICED

WHOLE = (0, 1, 2, 3, 4, 8, 12, 16, 64, 128, 256, 1024, 4096, 1 << 18, 1 << 22)
REAL = (0.0, 0.1, 0.5, 1.5, 1e9, 1e11, 1e13)
WRITTEN: dict[str, tuple[Any, ...]] = {
    "gpu": ("h100-sxm5-80gb", "a100-sxm4-80gb"),
    "preset": ("dgx-h100", "dgx-a100"),
    "power_limit_watts": (350.0, 500.0),
    "document_lengths": DOCUMENTS,
    "measured_steps": tuple([{"predicted_seconds": 2.0, "measured_seconds": took}] for took in (2.2, 2.4)),
    "stages": STAGES,
    "until_tokens": (1e11, 2e11),
    "stage_layers": ([4, 4], [3, 5], [2, 6]),
    "expert_imbalance": (1.0, 1.5),
    "network_oversubscription": (1.0, 7.0),
    "checkpoint": ({"stall_seconds": 10.0}, {"stall_seconds": 60.0}),
    "interval_seconds": (600.0, 6000.0),
    "write_bytes_per_s": (1e5, 1e6),
    "purchase_usd": (2e4, 3e4),
    "grid_region": ("gcp:us-central1", "gcp:europe-north1"),
    "pue": (1.1, 1.2),
    "storage": ({"usd_per_gb_month": 0.02}, {"usd_per_gb_month": 0.03}),
    "egress": ({"bytes": 1e12, "usd_per_gb": 0.02}, {"bytes": 1e12, "usd_per_gb": 0.03}),
    "versions": ({"torch": "1.10"}, {"torch": "2.9"}),
    "transformer_engine": ("2.1", "2.9", "2.11"),
    "megatron_core": ("0.11", "0.14"),
    "torch": ("1.10", "2.1", "2.9"),
    "torchtitan": ("2024.11", "2025.9"),
    "transformers": ("4.53", "5.0"),
    "bitsandbytes": ("0.42", "0.46"),
}
"""Values of fields whose types say too little."""

DETERMINED = {("layout", "data")}
"""Fields whose only right value follows from others; any other value is refused."""

ENDS: dict[tuple[str, ...], list[int]] = {
    ("layout", "embedding_in_split"): [1, 2, 2, 2],
    ("layout", "loss_in_split"): [2, 2, 2, 1],
}
"""Fields that are legal only where the layers could not be dealt without them, and how seven layers fall with them."""

PLACES: tuple[tuple[type, tuple[str, ...]], ...] = (
    (Model, ("model",)),
    (Recipe, ("recipe",)),
    (Recompute, ("recipe", "recompute")),
    (Method, ("recipe", "method")),
    (Software, ("recipe", "stack")),
    (Versions, ("recipe", "stack", "versions")),
    (Layout, ("layout",)),
    (Cluster, ("cluster",)),
    (Checkpointing, ("recipe", "checkpoint")),
    (Price, ("price",)),
    (OwnedPrice, ("price",)),
    (Storage, ("price", "storage")),
    (Egress, ("price", "egress")),
)


def candidates(name: str, hint: Any) -> list[Any]:
    """Values of many sizes that a type allows."""
    if name in WRITTEN:
        return list(WRITTEN[name])
    if hint is bool:
        return [True, False]
    if hint in {int, float}:
        return list(WHOLE if hint is int else REAL)
    if get_origin(hint) is Literal:
        return list(get_args(hint))
    if get_origin(hint) is tuple:
        inner = candidates(name, get_args(hint)[0])
        return [*([value] for value in inner), *(list(pair) for pair in permutations(inner, 2))]
    return [value for option in get_args(hint) for value in candidates(name, option)]


def changed(body: dict[str, Any], place: tuple[str, ...], name: str, value: Any) -> dict[str, Any] | None:
    """The body with one field changed; None where it has no such object."""
    first, *deeper = place
    part = body[first]
    if not isinstance(part, dict):
        return None
    inner = changed(part, tuple(deeper), name, value) if deeper and deeper[0] in part else {**part, name: value}
    return None if deeper and deeper[0] not in part else {**body, first: inner}


def numbers_of(body: dict[str, Any] | None, catalogue: Catalogue) -> bytes | None:
    """Every number of the answer; None where the question is refused."""
    if body is None:
        return None
    try:
        found = answer(read_question(body, catalogue), catalogue, advise=False)
    except Refused:
        return None
    return to_bytes([found.verdict, found.parameters, found.memory, found.flop, found.step, found.totals])


def is_noticed(place: tuple[str, ...], name: str, values: list[Any], catalogue: Catalogue) -> bool:
    for body in QUESTIONS:
        seen: set[bytes] = set()
        for value in values:
            numbers = numbers_of(changed(body, place, name, value), catalogue)
            seen |= {numbers} if numbers else set()
            if len(seen) > 1:
                return True
    return False


def every_field() -> Iterator[Any]:
    for noun, place in PLACES:
        hints = get_type_hints(noun)
        for field in fields(noun):
            yield pytest.param(noun, place, field.name, hints[field.name], id=f"{noun.__name__}.{field.name}")


@pytest.mark.parametrize(("noun", "place", "name", "hint"), list(every_field()))
def test_a_field_changes_a_number_or_is_descriptive(
    catalogue: Catalogue, noun: type, place: tuple[str, ...], name: str, hint: Any
) -> None:
    meaning = schema_of(noun)["properties"][name]["description"]
    if (*place, name) in DETERMINED:
        answered = {value for value in WHOLE if numbers_of(changed(QUESTIONS[0], place, name, value), catalogue)}
        assert answered == {CLUSTER["gpus"]}
        return
    if (*place, name) in ENDS:
        seven = {**QUESTIONS[0], "model": {**DENSE, "num_hidden_layers": 7}}
        dealt, listed = (
            numbers_of({**seven, "layout": {"pipeline": 4, **layout}}, catalogue)
            for layout in ({name: True}, {"stage_layers": ENDS[*place, name]})
        )
        assert (
            dealt == listed != numbers_of({**seven, "layout": {"pipeline": 4, "stage_layers": [2, 2, 1, 2]}}, catalogue)
        )
        return
    noticed = is_noticed(place, name, candidates(name, hint), catalogue)
    assert noticed != ("descriptive" in meaning), "noticed" if noticed else "accepted, and ignored by every answer"


@pytest.mark.parametrize("name", [field.name for field in fields(RunStage)])
def test_every_field_of_a_stage_of_a_run_changes_a_total(catalogue: Catalogue, name: str) -> None:
    stage = {"until_tokens": 1e11, "global_batch": 32, "final_global_batch": 128, "batch_increment": 32}
    values = {"until_tokens": 2e11, "global_batch": 64, "sequence_length": 8192, "final_global_batch": 96,
              "batch_increment": 16}  # fmt: skip
    answers = [
        numbers_of({**QUESTIONS[0], "recipe": {**RECIPE, "stages": [one]}}, catalogue)
        for one in (stage, {**stage, name: values[name]})
    ]
    assert None not in answers
    assert answers[0] != answers[1]


def test_every_question_is_answered(catalogue: Catalogue) -> None:
    assert all(numbers_of(body, catalogue) for body in QUESTIONS)


def test_nodes_and_presets_change_a_number(catalogue: Catalogue) -> None:
    assert [field.name for field in fields(Nodes)] == ["nodes"]
    body = {**QUESTIONS[0], "cluster": {"preset": "dgx-h100", "nodes": 2}}
    larger = {**body, "cluster": {"preset": "dgx-h100", "nodes": 4}}
    other = {**body, "cluster": {"preset": "dgx-a100", "nodes": 2}}
    assert len({numbers_of(b, catalogue) for b in (body, larger, other)} - {None}) == 3


@pytest.mark.parametrize("name", QUERY_FIELDS)
def test_every_part_of_a_price_look_up_changes_the_cost(catalogue: Catalogue, name: str) -> None:
    """Of the rows of one GPU, some two differ in this column and in price, and in no other column that is asked for."""
    others = [column for column in QUERY_FIELDS if column != name]
    groups: dict[tuple[Any, ...], dict[Any, float]] = {}
    for row in catalogue.prices:
        if row.gpu == CLUSTER["gpu"]:
            key = tuple(getattr(row, column) for column in others)
            groups.setdefault(key, {})[getattr(row, name)] = row.usd_per_gpu_hour
    for key, rows in groups.items():
        prices = [{**dict(zip(others, key, strict=True)), name: value} for value in rows]
        costs = {numbers_of({**QUESTIONS[0], "price": price}, catalogue) for price in prices}
        if len(costs - {None}) > 1:
            return
    pytest.fail(f"{name} changes no cost")


def test_what_is_paid_beside_a_price_of_the_catalogue_is_the_same_field_as_beside_a_stated_one() -> None:
    for kind in (CataloguePrice, CardPrice):
        names = [field.name for field in fields(kind) if field.name not in {*QUERY_FIELDS, "rate_card"}]
        assert names == ["discount_fraction", "preemptions_per_instance_hour", "storage", "egress"]
        assert all(get_type_hints(kind)[name] == get_type_hints(Price)[name] for name in names)
