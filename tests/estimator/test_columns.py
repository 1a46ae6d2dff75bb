"""One formula serves plain numbers and columns: both give the same numbers, over random legal layouts."""

from dataclasses import fields, replace
from importlib import import_module
from itertools import product
from pathlib import Path
from random import Random
from typing import get_args

import numpy as np
import pytest

from service.errors import Refused
from service.estimator import parallelism
from service.estimator.complete import CompleteLayout, CompleteQuestion
from service.estimator.degrees import Degrees, degrees_of
from service.estimator.memory.activations import RankLoad, rank_load_of
from service.estimator.memory.memory import StageBytes, stage_bytes
from service.estimator.parallelism.pipeline import in_flight
from service.estimator.parallelism.stages import Stage, stage_at
from service.estimator.question import (
    Cluster,
    DocumentLength,
    Layout,
    Method,
    Model,
    OffloadName,
    Question,
    Recipe,
    Software,
    Versions,
)
from service.estimator.resolve import resolve, rules_of
from service.estimator.samples import H100, LLAMA_3_8B
from service.estimator.software.stacks import STACKS
from service.estimator.time.step import (
    StepOverhead,
    StepSeconds,
    busy_seconds,
    ledger_seconds,
    micro_batch_seconds,
    step_seconds,
)
from service.estimator.workload import Workload, workload_of
from tests.amounts import amount
from tests.estimator.small_models import HYBRID

SPARSE = Model(
    vocab_size=32000,
    hidden_size=4096,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=8,
    intermediate_size=14336,
    num_experts=16,
    num_experts_per_tok=2,
    moe_intermediate_size=2048,
    shared_expert_intermediate_size=2048,
    first_k_dense_replace=2,
    mlp_layer_types=("dense", "sparse"),
    layer_types=("sliding_attention", "sliding_attention", "full_attention"),
    sliding_window=1024,
)
LATENT = Model(
    vocab_size=129280,
    hidden_size=2048,
    num_hidden_layers=16,
    num_attention_heads=16,
    intermediate_size=8192,
    kv_lora_rank=512,
    qk_nope_head_dim=128,
    qk_rope_head_dim=64,
    v_head_dim=128,
    tie_word_embeddings=True,
)
DEEP_HYBRID = replace(HYBRID, num_hidden_layers=16)
RECIPES = {
    "plain": Recipe(sequence_length=4096, global_batch=256),
    "selective": Recipe(sequence_length=4096, global_batch=256, recompute="selective", attention="eager"),
    "frozen": Recipe(
        sequence_length=4096,
        global_batch=256,
        recompute="selective",
        method=Method(name="full", frozen=("embedding", "head", "attention"), frozen_layers=9),
        document_lengths=(DocumentLength(tokens=700, count=3), DocumentLength(tokens=9000, count=1)),
        batching="padded",
    ),
    "full, factored": Recipe(sequence_length=8192, global_batch=256, recompute="full", optimizer="adafactor"),
    "whole matrices, narrow moments": Recipe(
        sequence_length=4096, global_batch=256, optimizer="muon", moment_dtype="bf16", ema=True, dropout_fraction=0.1
    ),
}
SOFTWARE = {
    "engine 2.1": Software(
        name="megatron-core", versions=Versions(transformer_engine="2.1"), grouped_experts=False, attention_mask=True
    ),
    "local": Software(name="megatron-core", implementation="local", dispatcher="allgather"),
    "torchtitan": Software(name="torchtitan"),
    "torchtitan 2024": Software(name="torchtitan", implementation="eager", versions=Versions(torchtitan="2024.11")),
    "deepspeed": Software(name="deepspeed"),
    "fsdp1": Software(name="fsdp1"),
    "transformers": Software(name="transformers", cross_entropy="chunked"),
}
"""Every stack but nanotron, whose layers are dealt by a list that no two layouts share."""
GPUS = 64
AXES_ROOM = Path(parallelism.__file__).parent
SIZES = (1, 2, 4, 8, 16)


def legal_layouts(model: Model, recipe: Recipe, wanted: int) -> list[CompleteQuestion]:
    """Random questions that break no rule, every axis and ZeRO stage among them."""
    random = Random(11)  # noqa: S311 - the same layouts every time
    axes = list(product(SIZES, SIZES, SIZES, (1, 2), (1, 2, 4), (0, 1, 2, 3), (1, 2, 4)))
    found: list[CompleteQuestion] = []
    stack = STACKS[recipe.stack.name if isinstance(recipe.stack, Software) else "megatron-core"]
    for tensor, context, pipeline, virtual, expert, zero, micro in random.sample(axes, len(axes)):
        degrees = {"tensor": tensor, "context": context, "pipeline": pipeline, "virtual_pipeline": virtual}
        if any(degree > 1 and axis not in stack.axes for axis, degree in degrees.items()):
            continue
        layout = Layout(
            **degrees,  # type: ignore[arg-type]  # degrees by name
            expert=expert,
            virtual_group=random.choice((1, 2)) * pipeline if virtual > 1 else None,
            zero_stage=zero,  # type: ignore[arg-type]
            rank_order=random.choice(stack.rank_orders),
        )
        asked = Question(
            model=model,
            recipe=replace(recipe, micro_batch=micro),
            layout=layout,
            cluster=Cluster(gpu=H100.slug, gpus=GPUS),
            gpu=H100,
        )
        try:
            found.append(resolve(asked).question)
        except Refused:
            continue
        if len(found) == wanted:
            break
    return found


def columns_of(questions: list[CompleteQuestion]) -> Degrees:
    """The degrees of many layouts, one float64 column a field."""
    rows = [degrees_of(question.recipe, question.layout) for question in questions]
    return Degrees(
        **{field.name: np.array([float(getattr(row, field.name)) for row in rows]) for field in fields(Degrees)}
    )


def same(column: object, index: int, one: object) -> bool:
    """Whether a column's entry is the number that the single path gave, to the last bit."""
    entry = column[index] if isinstance(column, np.ndarray) else column
    return float(entry) == float(one)  # type: ignore[arg-type]


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
@pytest.mark.parametrize(
    "model", [LLAMA_3_8B, SPARSE, LATENT, DEEP_HYBRID], ids=["dense", "sparse", "latent", "hybrid"]
)
def test_single_and_columns_agree_to_the_last_bit(model: Model, recipe: Recipe) -> None:
    questions = legal_layouts(model, recipe, amount(24, 150))
    assert sum(q.layout.virtual_pipeline == 1 for q in questions) > 8
    compare(questions)


@pytest.mark.parametrize("stack", SOFTWARE.values(), ids=SOFTWARE)
@pytest.mark.parametrize("model", [LLAMA_3_8B, SPARSE], ids=["dense", "sparse"])
def test_columns_of_every_stack(model: Model, stack: Software) -> None:
    dispatcher = stack.dispatcher if model.num_experts else None
    recipe = Recipe(sequence_length=4096, global_batch=256, stack=replace(stack, dispatcher=dispatcher))
    questions = legal_layouts(model, recipe, amount(30, 60))
    assert len(questions) >= 6
    assert len({q.layout.zero_stage for q in questions}) > 1
    compare(questions)


@pytest.mark.parametrize("offload", get_args(OffloadName))
def test_columns_of_every_offload(offload: OffloadName) -> None:
    found = legal_layouts(SPARSE, RECIPES["selective"], amount(30, 60))
    sharded = [q for q in found if q.layout.zero_stage == 3] if offload == "model" else found
    compare([replace(q, layout=replace(q.layout, offload=offload)) for q in sharded])


def test_a_column_holds_layouts_with_chunks_and_without() -> None:
    found = legal_layouts(SPARSE, RECIPES["plain"], 150)
    assert {q.layout.virtual_pipeline for q in found} == {1, 2}
    groups = {(q.layout.virtual_group or 0) // q.layout.pipeline for q in found if q.layout.virtual_pipeline > 1}
    assert groups == {1, 2}


def step_of(workload: Workload, degrees: Degrees, stage: Stage, load: RankLoad, layout: CompleteLayout) -> StepSeconds:
    """The step of one stage of which the whole pipeline is made."""
    micro = micro_batch_seconds(
        workload, degrees, stage, load, layout, ledger_seconds(workload, degrees, layout.context_method)
    )
    overhead = StepOverhead(stage_seconds=micro.sent_seconds)
    busy = busy_seconds(workload, degrees, load, layout, micro, overhead)
    return step_seconds(workload, degrees, micro, busy, overhead)


def compare(questions: list[CompleteQuestion]) -> None:
    degrees = columns_of(questions)
    workload = workload_of(questions[0])
    layout = questions[0].layout
    chunks = int(max(q.layout.virtual_pipeline for q in questions))
    with np.errstate(all="raise"):
        for last in (False, True):
            index = degrees.pipeline - 1 if last else degrees.pipeline * 0
            stage = stage_at(workload, degrees, index, None, chunks)
            load = rank_load_of(workload, degrees, stage)
            held = stage_bytes(workload, degrees, stage, load, layout)
            step = step_of(workload, degrees, stage, load, layout)
            for row, question in enumerate(questions):
                one = degrees_of(question.recipe, question.layout)
                position = question.layout.pipeline - 1 if last else 0
                single = stage_at(workload, one, position, None, question.layout.virtual_pipeline)
                carried = rank_load_of(workload, one, single)
                alone = stage_bytes(workload, one, single, carried, layout)
                took = step_of(workload, one, single, carried, layout)
                for field in fields(StageBytes):
                    assert same(getattr(held, field.name), row, getattr(alone, field.name)), field.name
                for field in fields(StepSeconds):
                    assert same(getattr(step, field.name), row, getattr(took, field.name)), field.name


def test_rules_agree_on_columns() -> None:
    questions = legal_layouts(SPARSE, RECIPES["plain"], 60)
    broken = [replace(q, layout=replace(q.layout, tensor=3, data=7)) for q in questions[:20]]
    every = questions + broken
    degrees, workload = columns_of(every), workload_of(every[0])
    for name, rule in rules_of(every[0].layout).items():
        held = np.broadcast_to(rule.holds(workload, degrees), (len(every),))
        alone = [bool(rule.holds(workload, degrees_of(q.recipe, q.layout))) for q in every]
        assert held.tolist() == alone, name


def test_every_degree_is_a_field_of_layout_or_batch() -> None:
    batch = {"micro_batch", "accumulation"}
    named = {field.name for field in fields(Layout)}
    choices = {"schedule", "context_method", "stage_layers", "offload", "embedding_in_split", "loss_in_split"}
    assert {field.name for field in fields(Degrees)} - batch == named - choices


def test_every_axis_has_a_file_and_every_file_is_an_axis() -> None:
    files = {Path(path).stem for path in AXES_ROOM.glob("[a-z]*.py")} - {"stages", "buckets"}
    choices = {"virtual_pipeline", "virtual_group", "expert_tensor", "zero_stage", "shard_group"}
    other = {"rank_order", "reshard_after_forward", "sequence_parallel", "micro_batch", "accumulation"}
    assert files == {field.name for field in fields(Degrees)} - choices - other
    for name in files:
        axis = import_module(f"service.estimator.parallelism.{name}")
        assert any(constant.endswith("RULES") for constant in vars(axis))
        assert any(function.endswith("transfers") for function in vars(axis))


def test_dualpipe_and_gpipe_columns() -> None:
    degrees = columns_of(legal_layouts(LLAMA_3_8B, RECIPES["plain"], 40))
    (gpipe,), (dualpipe,) = (in_flight(schedule, degrees, 0) for schedule in ("gpipe", "dualpipe"))
    every = np.where(np.asarray(degrees.pipeline) > 1, np.asarray(degrees.accumulation), 1)
    assert np.array_equal(np.asarray(gpipe), every)
    assert bool(np.all(np.asarray(dualpipe) <= np.asarray(degrees.pipeline) + 1))
