"""A GPU and a model with their sources, for worked examples."""

from dataclasses import fields

from service.estimator.degrees import Degrees
from service.estimator.memory.activations import RankLoad, rank_load_of
from service.estimator.parallelism.stages import stage_at
from service.estimator.question import Cluster, Gpu, Layout, Model, Question, Recipe
from service.estimator.resolve import ResolvedQuestion, resolve
from service.estimator.workload import Workload

H100 = Gpu(
    slug="h100-sxm5-80gb",
    architecture="Hopper",
    memory_bytes=80 * 2**30,
    usable_bytes=79.1 * 2**30,
    memory_bytes_per_s=3.35e12,
    fp32_flop_per_s=494.7e12,
    bf16_flop_per_s=989.4e12,
    fp16_flop_per_s=989.4e12,
    fp8_flop_per_s=1978.9e12,
    int8_flop_per_s=1978.9e12,
    link_bytes_per_s=450e9,
    scale_up_gpus=8,
    inter_node_bytes_per_s=50e9,
    host_bytes_per_s=63e9,
    board_watts=700.0,
)
"""NVIDIA H100 SXM5 80 GB, data sheet, read 2026-08."""

LLAMA_3_8B = Model(
    vocab_size=128256,
    hidden_size=4096,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=8,
    intermediate_size=14336,
    max_position_embeddings=131072,
)
"""Llama 3.1 8B, config.json of the release."""


def sample_degrees(**degrees: float) -> Degrees:
    """One GPU, one micro-batch of one sequence, but for the given degrees; shard_group follows data and context."""
    ones = {field.name: 1 for field in fields(Degrees)}
    filled = {**ones, "zero_stage": 0, "sequence_parallel": 0, "reshard_after_forward": 0, "rank_order": 0, **degrees}
    group = degrees.get("shard_group", filled["data"] * filled["context"])
    return Degrees(**{**filled, "shard_group": group})


def sample_resolved() -> ResolvedQuestion:
    """Llama 3.1 8B with 8,192-token sequences on one H100, every choice at its default."""
    question = Question(
        model=LLAMA_3_8B,
        recipe=Recipe(sequence_length=8192),
        layout=Layout(),
        cluster=Cluster(gpu=H100.slug, gpus=1),
        gpu=H100,
    )
    return resolve(question)


def sample_workload() -> Workload:
    """The job of that question."""
    return sample_resolved().workload


def sample_rank_load(degrees: Degrees | None = None) -> RankLoad:
    """The load of the sample job on its one GPU, or on the first of some."""
    workload, degrees = sample_workload(), degrees or sample_degrees()
    return rank_load_of(workload, degrees, stage_at(workload, degrees, 0, None, 1))
