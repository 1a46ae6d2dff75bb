"""Demands on the training software: operations, losses, versions, and what Megatron-LM refuses to combine."""

from service.estimator.complete import CompleteLayout
from service.estimator.numeric import both, implies
from service.estimator.question import Software, Versions
from service.estimator.rule import Demand, Rule
from service.estimator.software.implementations import CROSS_ENTROPIES, IMPLEMENTATIONS
from service.estimator.software.stacks import ENGINE_LOSS_SINCE, STACKS, requested_software, version_of
from service.estimator.software.versions import is_version, is_year_and_month
from service.estimator.workload import Workload

_LIBRARIES = ("transformer_engine", "megatron_core", "torch", "torchtitan")
"""Fields of `Versions`."""

FIRST_YEAR = 2023
"""The earliest year that a version of torchtitan may name: there was no torchtitan before."""


def _named(versions: Versions | None) -> dict[str, str]:
    """The versions that are named, by library."""
    every = {} if versions is None else {library: getattr(versions, library) for library in _LIBRARIES}
    return {library: version for library, version in every.items() if version is not None}


def _unreadable(software: Software) -> list[str]:
    return [library for library, version in _named(software.versions).items() if not is_version(version)]


def _is_undated(software: Software) -> bool:
    """Whether torchtitan's version can be read, but is no month that torchtitan has seen."""
    version = version_of(software, "torchtitan")
    return version is not None and is_version(version) and not is_year_and_month(version, FIRST_YEAR)


VERSION_DEMANDS: tuple[Demand[Software], ...] = (
    Demand(
        "versions_are_readable",
        "recipe.stack.versions",
        lambda software, _: not _unreadable(software),
        lambda software, _: (
            f"the version of {' and '.join(_unreadable(software))} is not one: versions are compared number by number",
            "write numbers with dots between them, such as 2.11",
        ),
    ),
    Demand(
        "torchtitan_is_told_by_month",
        "recipe.stack.versions.torchtitan",
        lambda software, _: not _is_undated(software),
        lambda software, _: (
            f"torchtitan {version_of(software, 'torchtitan')} is no year from {FIRST_YEAR} on with a month of 1 to 12: "
            "torchtitan is told by year and month, and any other number would be read as a very old or new one",
            "write the year and month of its commit, such as 2025.6",
        ),
    ),
)
"""What has to hold before anything else is read of a software."""


def _used(workload: Workload) -> tuple[str, ...]:
    """Libraries that the software is made of, as far as their versions change what it keeps."""
    engine = ("transformer_engine", "megatron_core") if workload.implementation.uses_transformer_engine else ()
    return (*engine, *(("torchtitan",) if workload.software.name == "torchtitan" else ()), "torch")


def _unused(workload: Workload) -> list[str]:
    return [library for library in _named(workload.software.versions) if library not in _used(workload)]


def _engine_has_loss(workload: Workload) -> bool:
    if workload.software.cross_entropy != "transformer-engine":
        return True
    return all(since.holds(version_of(workload.software, library)) for library, since in ENGINE_LOSS_SINCE.items())


def _named_versions(workload: Workload) -> str:
    named = _named(workload.software.versions)
    return " and ".join(f"{library} {named[library]}" for library in ENGINE_LOSS_SINCE if library in named)


def _loss_in_implementation(workload: Workload) -> bool:
    return (
        workload.software.cross_entropy is None
        or workload.software.cross_entropy in workload.implementation.cross_entropies
    )


def _has_implementation(workload: Workload) -> bool:
    return workload.software.implementation in IMPLEMENTATIONS[workload.software.name]


def _op_stands_alone(workload: Workload) -> bool:
    if "op" not in workload.recompute.modules:
        return True
    return workload.stack.selects == "op" and workload.recompute.modules == ("op",)


def _offloads(workload: Workload, layout: CompleteLayout) -> bool:
    return layout.offload not in ("activations", "optimizer-and-activations") or workload.stack.offloads_activations


SOFTWARE_DEMANDS: tuple[Demand[Workload], ...] = (
    Demand(
        "stack_has_the_implementation",
        "recipe.stack.implementation",
        lambda workload, _: _has_implementation(workload),
        lambda workload, _: (
            f"{workload.software.name} has no {workload.software.implementation} operations",
            f"use {' or '.join(IMPLEMENTATIONS[workload.software.name])}, or leave implementation out",
        ),
    ),
    Demand(
        "implementation_computes_the_loss_so",
        "recipe.stack.cross_entropy",
        lambda workload, _: not _has_implementation(workload) or _loss_in_implementation(workload),
        lambda workload, _: (
            f"{workload.software.name} with {workload.software.implementation} operations has no "
            f"{workload.software.cross_entropy} "
            "cross entropy",
            f"use {', '.join(workload.implementation.cross_entropies)}, or leave cross_entropy out",
        ),
    ),
    Demand(
        "libraries_have_the_loss",
        "recipe.stack.cross_entropy",
        lambda workload, _: not _loss_in_implementation(workload) or _engine_has_loss(workload),
        lambda workload, _: (
            f"{CROSS_ENTROPIES['transformer-engine'].meaning} is not to be had with {_named_versions(workload)}: it "
            "came with "
            "transformer_engine 2.2 and megatron_core 0.12, and megatron_core 0.19 turned it off",
            "use vocab-parallel or fused, or leave cross_entropy out",
        ),
    ),
    Demand(
        "fused_gradients_need_megatron",
        "recipe.stack.gradient_fusion",
        lambda workload, _: (
            not requested_software(workload.recipe).gradient_fusion or workload.software.name == "megatron-core"
        ),
        lambda workload, _: (
            f"{workload.software.name} writes gradients of weights by themselves: only megatron-core's products add "
            "them up",
            "leave gradient_fusion out, or use megatron-core",
        ),
    ),
    Demand(
        "versions_are_of_the_stack",
        "recipe.stack.versions",
        lambda workload, _: not _has_implementation(workload) or not _unused(workload),
        lambda workload, _: (
            f"nothing that {workload.software.name} with {workload.software.implementation} operations keeps depends "
            "on "
            f"{' and '.join(_unused(workload))}",
            f"name versions of {' and '.join(_used(workload))} alone",
        ),
    ),
    Demand(
        "experts_are_grouped_by_transformer_engine",
        "recipe.stack.grouped_experts",
        lambda workload, _: (
            not requested_software(workload.recipe).grouped_experts
            or (bool(workload.model.num_experts) and workload.implementation.uses_transformer_engine)
        ),
        lambda workload, _: (
            f"grouped products of experts are Transformer Engine's, and here {workload.model.num_experts} experts run "
            "with "
            f"{workload.software.implementation} operations of {workload.software.name}",
            "leave grouped_experts out, or use megatron-core with transformer-engine and a model with experts",
        ),
    ),
    Demand(
        "graphs_need_the_engine_or_a_compiler",
        "recipe.stack.cuda_graphs",
        lambda workload, _: (
            not requested_software(workload.recipe).cuda_graphs
            or workload.implementation.uses_transformer_engine
            or workload.software.implementation == "compiled"
        ),
        lambda workload, _: (
            f"{workload.software.name} with {workload.software.implementation} operations launches kernels one by one",
            "leave cuda_graphs out, or use megatron-core with transformer-engine",
        ),
    ),
    Demand(
        "overlapped_exchange_needs_experts",
        "recipe.stack.expert_overlap",
        lambda workload, _: (
            not requested_software(workload.recipe).expert_overlap
            or (workload.implementation.uses_transformer_engine and bool(workload.model.num_experts))
        ),
        lambda workload, _: (
            f"expert_overlap hides what megatron-core's experts exchange, and here {workload.model.num_experts} "
            "experts run "
            f"with {workload.software.name}",
            "leave expert_overlap out, or use megatron-core and a model with experts",
        ),
    ),
    Demand(
        "tensor_overlap_is_of_the_stack",
        "recipe.stack.tensor_overlap",
        lambda workload, _: (
            not requested_software(workload.recipe).tensor_overlap
            or workload.implementation.uses_transformer_engine
            or workload.software.name == "torchtitan"
        ),
        lambda workload, _: (
            "tensor_overlap hides what tensor ranks of megatron-core or of torchtitan send, and "
            f"{workload.software.name} "
            "waits for it",
            "leave tensor_overlap out, or use one of those",
        ),
    ),
    Demand(
        "tokens_are_sent_to_experts",
        "recipe.stack.dispatcher",
        lambda workload, _: (
            workload.software.dispatcher is None
            or (bool(workload.model.num_experts) and workload.software.name == "megatron-core")
        ),
        lambda workload, _: (
            f"a dispatcher is megatron-core's way to {workload.model.num_experts} experts, and the stack is "
            f"{workload.software.name}",
            "leave dispatcher out, or use megatron-core and a model with experts",
        ),
    ),
    Demand(
        "imbalance_needs_experts",
        "recipe.expert_imbalance",
        lambda workload, _: bool(workload.model.num_experts) or workload.recipe.expert_imbalance == 1,
        lambda workload, _: (
            f"expert_imbalance {workload.recipe.expert_imbalance:g} is about tokens of experts, and the model has none",
            "leave expert_imbalance out, or name a model with experts",
        ),
    ),
    Demand(
        "capacity_needs_experts",
        "recipe.expert_capacity_factor",
        lambda workload, _: bool(workload.model.num_experts) or workload.recipe.expert_capacity_factor is None,
        lambda workload, _: (
            f"expert_capacity_factor {workload.recipe.expert_capacity_factor:g} is about tokens of experts, and the "
            "model "
            "has none",
            "leave expert_capacity_factor out, or name a model with experts",
        ),
    ),
    Demand(
        "recompute_by_operation_stands_alone",
        "recipe.recompute",
        lambda workload, _: _op_stands_alone(workload),
        lambda workload, _: (
            f"op says for every operation of a layer whether it runs again, as torchtitan does; here "
            f"{workload.software.name} is asked for {', '.join(workload.recompute.modules)}",
            "use op alone with torchtitan, or name other modules",
        ),
    ),
    Demand(
        "stack_offloads_activations",
        "layout.offload",
        _offloads,
        lambda workload, _: (
            f"{workload.software.name} keeps activations on the GPU until the backward pass",
            f"use {', '.join(name for name, row in STACKS.items() if row.offloads_activations)}, or offload the "
            "optimizer alone",
        ),
    ),
)


_SHARDED_UPDATES = ("adamw", "sgd-momentum")
"""Optimizers of Megatron-FSDP, which shards gradients and weights."""

_FUSED_LOSSES = ("fused", "transformer-engine")


def _is_megatron(workload: Workload) -> bool:
    return workload.software.name == "megatron-core"


def _has_sharded_update(workload: Workload) -> bool:
    return workload.recipe.optimizer in _SHARDED_UPDATES


def _offloads_activations(layout: CompleteLayout) -> bool:
    return layout.offload in ("activations", "optimizer-and-activations")


def _offloads_optimizer(layout: CompleteLayout) -> bool:
    return layout.offload in ("optimizer", "optimizer-and-activations")


def _gathers_fp8(workload: Workload) -> bool:
    return _is_megatron(workload) and workload.recipe.fp8_weights


def _overlaps_experts(workload: Workload) -> bool:
    return requested_software(workload.recipe).expert_overlap


def _reruns_experts(workload: Workload) -> bool:
    return workload.recompute.granularity == "full" or "moe" in workload.recompute.modules


def _redraws(workload: Workload) -> bool:
    """Whether modules that drop out run again."""
    is_dropped = {*workload.recompute.modules} & {"core_attn", "mlp", "moe"}
    return workload.recompute.granularity == "selective" and bool(is_dropped) and workload.recipe.dropout_fraction > 0


def _is_deterministic(workload: Workload) -> bool:
    return _is_megatron(workload) and workload.software.deterministic


MEGATRON_DEMANDS: tuple[Demand[Workload], ...] = (
    Demand(
        "sharded_weights_have_an_update",
        "recipe.optimizer",
        lambda workload, layout: (
            not (_is_megatron(workload) and layout.zero_stage >= 2) or _has_sharded_update(workload)
        ),
        lambda workload, layout: (
            f"megatron-core shards gradients and weights by Megatron-FSDP, which has no {workload.recipe.optimizer}, "
            "and "
            f"zero_stage is {layout.zero_stage}",
            f"use {' or '.join(_SHARDED_UPDATES)}, or zero_stage 0 or 1",
        ),
    ),
    Demand(
        "offloaded_activations_are_the_engines",
        "layout.offload",
        lambda workload, layout: (
            not (_is_megatron(workload) and _offloads_activations(layout))
            or workload.implementation.uses_transformer_engine
        ),
        lambda workload, _: (
            f"megatron-core with {workload.software.implementation} operations keeps activations on the GPU until the "
            "backward pass",
            "use implementation transformer-engine, or offload the optimizer alone",
        ),
    ),
    Demand(
        "fp8_weights_are_gathered",
        "recipe.fp8_weights",
        lambda workload, layout: not _gathers_fp8(workload) or layout.zero_stage > 0,
        lambda _, __: (
            "fp8_weights are what megatron-core's distributed optimizer gathers, and zero_stage 0 shards nothing",
            "set zero_stage to 1, or leave fp8_weights out",
        ),
    ),
    Demand(
        "fp8_weights_are_updated_on_the_gpu",
        "layout.offload",
        lambda workload, layout: not (_gathers_fp8(workload) and _offloads_optimizer(layout)),
        lambda workload, layout: (
            f"megatron-core updates no fp8 weights of {workload.recipe.precision} from host memory, and offload is "
            f"{layout.offload}",
            "leave fp8_weights out, or keep the optimizer on the GPU",
        ),
    ),
    Demand(
        "deterministic_loss_is_not_fused",
        "recipe.stack.cross_entropy",
        lambda workload, _: (
            not (_is_deterministic(workload) and requested_software(workload.recipe).cross_entropy in _FUSED_LOSSES)
        ),
        lambda workload, _: (
            f"megatron-core's {workload.software.cross_entropy} cross entropy is not deterministic",
            "use vocab-parallel, or set deterministic to false",
        ),
    ),
    Demand(
        "deterministic_products_stand_alone",
        "recipe.stack.tensor_overlap",
        lambda workload, _: not (_is_deterministic(workload) and requested_software(workload.recipe).tensor_overlap),
        lambda _, __: (
            "megatron-core's products are not deterministic where tensor ranks exchange beside them",
            "leave tensor_overlap out, or set deterministic to false",
        ),
    ),
    Demand(
        "overlapped_exchange_runs_once",
        "recipe.recompute",
        lambda workload, _: not (_overlaps_experts(workload) and _reruns_experts(workload)),
        lambda _, __: (
            "layers whose experts run again in the backward pass cannot exchange tokens beside another micro-batch",
            "recompute nothing or modules other than moe, or leave expert_overlap out",
        ),
    ),
    Demand(
        "overlapped_exchange_is_direct",
        "recipe.stack.dispatcher",
        lambda workload, _: not (_overlaps_experts(workload) and workload.software.dispatcher == "allgather"),
        lambda _, __: (
            "expert_overlap hides what is sent to each expert, and allgather sends all tokens to all of them",
            "use alltoall or flex, or leave expert_overlap out",
        ),
    ),
    Demand(
        "overlapped_exchange_is_in_mixed_precision",
        "recipe.precision",
        lambda workload, _: not _overlaps_experts(workload) or workload.precision.is_mixed,
        lambda workload, _: (
            "megatron-core overlaps the exchange of tokens in mixed precision alone, not in "
            f"{workload.recipe.precision}",
            "use bf16-mixed, or leave expert_overlap out",
        ),
    ),
    Demand(
        "recompute_in_a_graph_draws_nothing",
        "recipe.dropout_fraction",
        lambda workload, _: not (_is_megatron(workload) and workload.software.cuda_graphs and _redraws(workload)),
        lambda workload, _: (
            f"dropout of what {' and '.join(workload.recompute.modules)} computes again cannot be drawn alike in a "
            "graph of "
            "the whole step",
            "set dropout_fraction to 0, or cuda_graphs to false",
        ),
    ),
)


ORDER_DEMANDS: tuple[Demand[Workload], ...] = (
    Demand(
        "stack_numbers_ranks_so",
        "layout.rank_order",
        lambda workload, layout: layout.rank_order in workload.stack.rank_orders,
        lambda workload, layout: (
            f"{workload.software.name} cannot number ranks in the order {layout.rank_order}",
            f"use {', '.join(workload.stack.rank_orders)}, or leave rank_order out",
        ),
    ),
    Demand(
        "stack_reorders_ranks_so_sharded",
        "layout.rank_order",
        lambda workload, layout: (
            layout.rank_order not in workload.stack.rank_orders[1:]
            or layout.zero_stage in workload.stack.reordered_zero_stages
        ),
        lambda workload, layout: (
            f"{workload.software.name} numbers ranks as {workload.stack.rank_orders[0]} alone at ZeRO stage "
            f"{layout.zero_stage}",
            f"leave rank_order out, or use zero_stage {' or '.join(map(str, workload.stack.reordered_zero_stages))}",
        ),
    ),
)
"""What an order of ranks has to meet."""


RULES: tuple[Rule, ...] = (
    Rule(
        "loss_parallel_needs_tensor_ranks",
        "recipe.stack.cross_entropy",
        lambda workload, d: implies(requested_software(workload.recipe).cross_entropy == "loss-parallel", d.tensor > 1),
        lambda _, __: (
            "loss-parallel shares the vocabulary among tensor ranks, and there is one",
            "set layout.tensor above 1, or leave cross_entropy out",
        ),
    ),
    Rule(
        "tensor_overlap_needs_tensor_ranks",
        "recipe.stack.tensor_overlap",
        lambda workload, d: implies(bool(requested_software(workload.recipe).tensor_overlap), d.tensor > 1),
        lambda _, d: (
            f"tensor_overlap hides what tensor ranks send to each other, and there is {d.tensor} tensor rank",
            "set layout.tensor above 1, or leave tensor_overlap out",
        ),
    ),
    Rule(
        "tensor_overlap_needs_split_norms",
        "recipe.stack.tensor_overlap",
        lambda workload, d: implies(
            both(bool(requested_software(workload.recipe).tensor_overlap), d.tensor > 1), d.sequence_parallel == 1
        ),
        lambda _, __: (
            "tensor_overlap cuts what tensor ranks gather and scatter, and without sequence_parallel they do neither",
            "leave sequence_parallel or tensor_overlap out",
        ),
    ),
    Rule(
        "expert_overlap_needs_expert_ranks",
        "recipe.stack.expert_overlap",
        lambda workload, d: implies(
            bool(workload.model.num_experts) and requested_software(workload.recipe).expert_overlap, d.expert > 1
        ),
        lambda _, d: (
            f"expert_overlap hides what expert ranks send to each other, and there is {d.expert} expert rank",
            "set layout.expert above 1, or leave expert_overlap out",
        ),
    ),
)
