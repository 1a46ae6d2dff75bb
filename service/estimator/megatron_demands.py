"""What does Megatron-LM refuse to combine, though it has each part of it?

Source: NVIDIA/Megatron-LM@d98e8a64 megatron/training/arguments.py validate_args, megatron/training/determinism.py,
megatron/core/transformer/transformer_config.py.
"""

from service.estimator.filled import filled
from service.estimator.job import Job
from service.estimator.question import Layout
from service.estimator.rules import Demand
from service.estimator.software import asked_of

_SHARDED_UPDATES = ("adamw", "sgd-momentum")
"""Optimizers of Megatron-FSDP, which shards gradients and weights."""

_FUSED_LOSSES = ("fused", "transformer-engine")


def _is_megatron(job: Job) -> bool:
    return job.software.name == "megatron-core"


def _has_sharded_update(job: Job) -> bool:
    return job.recipe.optimizer in _SHARDED_UPDATES


def _offloads_activations(layout: Layout) -> bool:
    return layout.offload in ("activations", "optimizer-and-activations")


def _offloads_optimizer(layout: Layout) -> bool:
    return layout.offload in ("optimizer", "optimizer-and-activations")


def _gathers_fp8(job: Job) -> bool:
    return _is_megatron(job) and job.recipe.fp8_weights


def _overlaps_experts(job: Job) -> bool:
    return asked_of(job.recipe).expert_overlap


def _reruns_experts(job: Job) -> bool:
    return job.recompute.granularity == "full" or "moe" in job.recompute.modules


def _redraws(job: Job) -> bool:
    """Whether modules that drop out run again."""
    is_dropped = {*job.recompute.modules} & {"core_attn", "mlp", "moe"}
    return job.recompute.granularity == "selective" and bool(is_dropped) and job.recipe.dropout_fraction > 0


def _is_deterministic(job: Job) -> bool:
    return _is_megatron(job) and job.software.deterministic


DEMANDS: tuple[Demand[Job], ...] = (
    Demand(
        "sharded_weights_have_an_update",
        "recipe.optimizer",
        lambda job, layout: not (_is_megatron(job) and filled(layout.zero_stage) >= 2) or _has_sharded_update(job),
        lambda job, layout: (
            f"megatron-core shards gradients and weights by Megatron-FSDP, which has no {job.recipe.optimizer}, and "
            f"zero_stage is {layout.zero_stage}",
            f"use {' or '.join(_SHARDED_UPDATES)}, or zero_stage 0 or 1",
        ),
    ),
    Demand(
        "offloaded_activations_are_the_engines",
        "layout.offload",
        lambda job, layout: (
            not (_is_megatron(job) and _offloads_activations(layout)) or job.implementation.uses_transformer_engine
        ),
        lambda job, _: (
            f"megatron-core with {job.software.implementation} operations keeps activations on the GPU until the "
            "backward pass",
            "use implementation transformer-engine, or offload the optimizer alone",
        ),
    ),
    Demand(
        "fp8_weights_are_gathered",
        "recipe.fp8_weights",
        lambda job, layout: not _gathers_fp8(job) or filled(layout.zero_stage) > 0,
        lambda _, __: (
            "fp8_weights are what megatron-core's distributed optimizer gathers, and zero_stage 0 shards nothing",
            "set zero_stage to 1, or leave fp8_weights out",
        ),
    ),
    Demand(
        "fp8_weights_are_updated_on_the_gpu",
        "layout.offload",
        lambda job, layout: not (_gathers_fp8(job) and _offloads_optimizer(layout)),
        lambda job, layout: (
            f"megatron-core updates no fp8 weights of {job.recipe.precision} from host memory, and offload is "
            f"{layout.offload}",
            "leave fp8_weights out, or keep the optimizer on the GPU",
        ),
    ),
    Demand(
        "deterministic_loss_is_not_fused",
        "recipe.stack.cross_entropy",
        lambda job, _: not (_is_deterministic(job) and asked_of(job.recipe).cross_entropy in _FUSED_LOSSES),
        lambda job, _: (
            f"megatron-core's {job.software.cross_entropy} cross entropy is not deterministic",
            "use vocab-parallel, or set deterministic to false",
        ),
    ),
    Demand(
        "deterministic_products_stand_alone",
        "recipe.stack.tensor_overlap",
        lambda job, _: not (_is_deterministic(job) and asked_of(job.recipe).tensor_overlap),
        lambda _, __: (
            "megatron-core's products are not deterministic where tensor ranks exchange beside them",
            "leave tensor_overlap out, or set deterministic to false",
        ),
    ),
    Demand(
        "overlapped_exchange_runs_once",
        "recipe.recompute",
        lambda job, _: not (_overlaps_experts(job) and _reruns_experts(job)),
        lambda _, __: (
            "layers whose experts run again in the backward pass cannot exchange tokens beside another micro-batch",
            "recompute nothing or modules other than moe, or leave expert_overlap out",
        ),
    ),
    Demand(
        "overlapped_exchange_is_direct",
        "recipe.stack.dispatcher",
        lambda job, _: not (_overlaps_experts(job) and job.software.dispatcher == "allgather"),
        lambda _, __: (
            "expert_overlap hides what is sent to each expert, and allgather sends all tokens to all of them",
            "use alltoall or flex, or leave expert_overlap out",
        ),
    ),
    Demand(
        "overlapped_exchange_is_in_mixed_precision",
        "recipe.precision",
        lambda job, _: not _overlaps_experts(job) or job.precision.is_mixed,
        lambda job, _: (
            f"megatron-core overlaps the exchange of tokens in mixed precision alone, not in {job.recipe.precision}",
            "use bf16-mixed, or leave expert_overlap out",
        ),
    ),
    Demand(
        "recompute_in_a_graph_draws_nothing",
        "recipe.dropout_fraction",
        lambda job, _: not (_is_megatron(job) and job.software.cuda_graphs and _redraws(job)),
        lambda job, _: (
            f"dropout of what {' and '.join(job.recompute.modules)} computes again cannot be drawn alike in a graph of "
            "the whole step",
            "set dropout_fraction to 0, or cuda_graphs to false",
        ),
    ),
)
