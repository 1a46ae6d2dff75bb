"""Rules of software and GPU: operations, losses, versions, kernels, formats and power; choices without effect."""

from dataclasses import fields

from service.estimator.complete import CompleteLayout
from service.estimator.model.build import recurrences_of
from service.estimator.numeric import both, implies
from service.estimator.parallelism.pipeline import partition_layers
from service.estimator.question import AttentionName, Gpu, Software, Versions
from service.estimator.rule import LayoutRule, Rule, WorkloadRule
from service.estimator.software.precision import PRECISIONS, Precision, peak_flop_per_s
from service.estimator.software.stacks import CROSS_ENTROPIES, ENGINE_LOSS_SINCE, EVERY_AXIS, IMPLEMENTATIONS, STACKS
from service.estimator.software.versions import generation, is_version, is_year_and_month
from service.estimator.workload import Workload

FIRST_YEAR = 2023
"""The earliest year that a version of torchtitan may name: there was no torchtitan before."""


def _named(versions: Versions | None) -> dict[str, str]:
    """The versions that are named, by library."""
    every = {} if versions is None else {one.name: getattr(versions, one.name) for one in fields(Versions)}
    return {library: version for library, version in every.items() if version is not None}


def _unreadable(software: Software) -> list[str]:
    return [library for library, version in _named(software.versions).items() if not is_version(version)]


def _undated_torchtitan(software: Software) -> str | None:
    """A version of torchtitan that can be read, but is no month that torchtitan has seen."""
    version = _named(software.versions).get("torchtitan")
    is_undated = version is not None and is_version(version) and not is_year_and_month(version, FIRST_YEAR)
    return version if is_undated else None


VERSION_RULES: dict[str, Rule[Software, None]] = {
    "versions_are_readable": Rule(
        "recipe.stack.versions",
        lambda software, _: not _unreadable(software),
        lambda software, _: (
            f"the version of {' and '.join(_unreadable(software))} is not one: versions are compared number by number"
        ),
        "write numbers with dots between them, such as 2.11",
    ),
    "torchtitan_is_told_by_month": Rule(
        "recipe.stack.versions.torchtitan",
        lambda software, _: not _undated_torchtitan(software),
        lambda software, _: (
            f"torchtitan {_undated_torchtitan(software)} is no year from {FIRST_YEAR} on with a month of 1 to "
            "12: torchtitan is told by year and month, and any other number would be read as a very old or new one"
        ),
        "write the year and month of its commit, such as 2025.6",
    ),
}
"""What has to hold before anything else is read of a software."""


def _used(workload: Workload) -> tuple[str, ...]:
    """Libraries that the software is made of, as far as their versions change what it keeps."""
    engine = ("transformer_engine", "megatron_core") if workload.implementation.uses_transformer_engine else ()
    return (*engine, *(("torchtitan",) if workload.software.name == "torchtitan" else ()), "torch")


def _unused(workload: Workload) -> list[str]:
    return [library for library in _named(workload.versions) if library not in _used(workload)]


def _has_implementation(workload: Workload) -> bool:
    return workload.software.implementation in IMPLEMENTATIONS[workload.software.name]


def _offloads_activations(layout: CompleteLayout) -> bool:
    return layout.offload in ("activations", "optimizer-and-activations")


_SHARDED_UPDATES = ("adamw", "sgd-momentum")
"""Optimizers of Megatron-FSDP, which shards gradients and weights."""


def _is_megatron(workload: Workload) -> bool:
    return workload.software.name == "megatron-core"


SOFTWARE_RULES: dict[str, WorkloadRule] = {
    "stack_has_the_implementation": Rule(
        "recipe.stack.implementation",
        lambda w, _: _has_implementation(w),
        lambda w, _: f"{w.software.name} has no {w.software.implementation} operations",
        lambda w, _: f"use {' or '.join(IMPLEMENTATIONS[w.software.name])}, or leave implementation out",
    ),
    "implementation_computes_the_loss_so": Rule(
        "recipe.stack.cross_entropy",
        lambda w, _: (
            not _has_implementation(w) or w.software.cross_entropy in (None, *w.implementation.cross_entropies)
        ),
        lambda w, _: (
            f"{w.software.name} with {w.software.implementation} operations has no {w.software.cross_entropy} cross "
            "entropy"
        ),
        lambda w, _: f"use {', '.join(w.implementation.cross_entropies)}, or leave cross_entropy out",
    ),
    "libraries_have_the_loss": Rule(
        "recipe.stack.cross_entropy",
        lambda w, _: (
            w.software.cross_entropy != "transformer-engine"
            or "transformer-engine" not in w.implementation.cross_entropies
            or all(since.holds(getattr(w.versions, library)) for library, since in ENGINE_LOSS_SINCE.items())
        ),
        lambda w, _: (
            f"{CROSS_ENTROPIES['transformer-engine'].meaning} is not to be had with "
            + " and ".join(
                f"{name} {version}" for name, version in _named(w.versions).items() if name in ENGINE_LOSS_SINCE
            )
            + ": it came with transformer_engine 2.2 and megatron_core 0.12, and megatron_core 0.19 turned it off"
        ),
        "use vocab-parallel or fused, or leave cross_entropy out",
    ),
    "fused_gradients_need_megatron": Rule(
        "recipe.stack.gradient_fusion",
        lambda w, _: not w.requested.gradient_fusion or w.software.name == "megatron-core",
        lambda w, _: (
            f"{w.software.name} writes gradients of weights by themselves: only megatron-core's products add them up"
        ),
        "leave gradient_fusion out, or use megatron-core",
    ),
    "versions_are_of_the_stack": Rule(
        "recipe.stack.versions",
        lambda w, _: not _has_implementation(w) or not _unused(w),
        lambda w, _: (
            f"nothing that {w.software.name} with {w.software.implementation} operations keeps depends on "
            f"{' and '.join(_unused(w))}"
        ),
        lambda w, _: f"name versions of {' and '.join(_used(w))} alone",
    ),
    "experts_are_grouped_by_transformer_engine": Rule(
        "recipe.stack.grouped_experts",
        lambda w, _: (
            not w.requested.grouped_experts or (bool(w.model.num_experts) and w.implementation.uses_transformer_engine)
        ),
        lambda w, _: (
            f"grouped products of experts are Transformer Engine's, and here {w.model.num_experts} experts run with "
            f"{w.software.implementation} operations of {w.software.name}"
        ),
        "leave grouped_experts out, or use megatron-core with transformer-engine and a model with experts",
    ),
    "graphs_need_the_engine_or_a_compiler": Rule(
        "recipe.stack.cuda_graphs",
        lambda w, _: (
            not w.software.cuda_graphs
            or w.implementation.uses_transformer_engine
            or w.software.implementation == "compiled"
        ),
        lambda w, _: f"{w.software.name} with {w.software.implementation} operations launches kernels one by one",
        "leave cuda_graphs out, or use megatron-core with transformer-engine",
    ),
    "overlapped_exchange_needs_experts": Rule(
        "recipe.stack.expert_overlap",
        lambda w, _: (
            not w.software.expert_overlap or (w.implementation.uses_transformer_engine and bool(w.model.num_experts))
        ),
        lambda w, _: (
            f"expert_overlap hides what megatron-core's experts exchange, and here {w.model.num_experts} experts run "
            f"with {w.software.name}"
        ),
        "leave expert_overlap out, or use megatron-core and a model with experts",
    ),
    "tensor_overlap_is_of_the_stack": Rule(
        "recipe.stack.tensor_overlap",
        lambda w, _: (
            not w.requested.tensor_overlap
            or w.implementation.uses_transformer_engine
            or w.software.name == "torchtitan"
        ),
        lambda w, _: (
            f"tensor_overlap hides what tensor ranks of megatron-core or of torchtitan send, and {w.software.name} "
            "waits for it"
        ),
        "leave tensor_overlap out, or use one of those",
    ),
    "tokens_are_sent_to_experts": Rule(
        "recipe.stack.dispatcher",
        lambda w, _: (
            w.software.dispatcher is None or (bool(w.model.num_experts) and w.software.name == "megatron-core")
        ),
        lambda w, _: (
            f"a dispatcher is megatron-core's way to {w.model.num_experts} experts, and the stack is {w.software.name}"
        ),
        "leave dispatcher out, or use megatron-core and a model with experts",
    ),
    "imbalance_needs_experts": Rule(
        "recipe.expert_imbalance",
        lambda w, _: bool(w.model.num_experts) or w.recipe.expert_imbalance == 1,
        lambda w, _: (
            f"expert_imbalance {w.recipe.expert_imbalance:g} is about tokens of experts, and the model has none"
        ),
        "leave expert_imbalance out, or name a model with experts",
    ),
    "capacity_needs_experts": Rule(
        "recipe.expert_capacity_factor",
        lambda w, _: bool(w.model.num_experts) or w.recipe.expert_capacity_factor is None,
        lambda w, _: (
            f"expert_capacity_factor {w.recipe.expert_capacity_factor:g} is about tokens of experts, and the model "
            "has none"
        ),
        "leave expert_capacity_factor out, or name a model with experts",
    ),
    "recompute_by_operation_stands_alone": Rule(
        "recipe.recompute",
        lambda w, _: "op" not in w.recompute.modules or (w.stack.selects == "op" and w.recompute.modules == ("op",)),
        lambda w, _: (
            "op says for every operation of a layer whether it runs again, as torchtitan does; here "
            f"{w.software.name} is asked for {', '.join(w.recompute.modules)}"
        ),
        "use op alone with torchtitan, or name other modules",
    ),
    "stack_offloads_activations": Rule(
        "layout.offload",
        lambda w, layout: w.stack.offloads_activations or not _offloads_activations(layout),
        lambda w, _: f"{w.software.name} keeps activations on the GPU until the backward pass",
        lambda *_: (
            f"use {', '.join(name for name, row in STACKS.items() if row.offloads_activations)}, or offload the "
            "optimizer alone"
        ),
    ),
    "sharded_weights_have_an_update": Rule(
        "recipe.optimizer",
        lambda w, layout: not (_is_megatron(w) and layout.zero_stage >= 2) or w.recipe.optimizer in _SHARDED_UPDATES,
        lambda w, layout: (
            f"megatron-core shards gradients and weights by Megatron-FSDP, which has no {w.recipe.optimizer}, and "
            f"zero_stage is {layout.zero_stage}"
        ),
        f"use {' or '.join(_SHARDED_UPDATES)}, or zero_stage 0 or 1",
    ),
    "offloaded_activations_are_the_engines": Rule(
        "layout.offload",
        lambda w, layout: (
            not (_is_megatron(w) and _offloads_activations(layout)) or w.implementation.uses_transformer_engine
        ),
        lambda w, _: (
            f"megatron-core with {w.software.implementation} operations keeps activations on the GPU until the "
            "backward pass"
        ),
        "use implementation transformer-engine, or offload the optimizer alone",
    ),
    "fp8_weights_are_gathered": Rule(
        "recipe.fp8_weights",
        lambda w, layout: not (_is_megatron(w) and w.recipe.fp8_weights) or layout.zero_stage > 0,
        "fp8_weights are what megatron-core's distributed optimizer gathers, and zero_stage 0 shards nothing",
        "set zero_stage to 1, or leave fp8_weights out",
    ),
    "fp8_weights_are_updated_on_the_gpu": Rule(
        "layout.offload",
        lambda w, layout: (
            not (_is_megatron(w) and w.recipe.fp8_weights)
            or layout.offload not in ("optimizer", "optimizer-and-activations")
        ),
        lambda w, layout: (
            f"megatron-core updates no fp8 weights of {w.recipe.precision} from host memory, and offload is "
            f"{layout.offload}"
        ),
        "leave fp8_weights out, or keep the optimizer on the GPU",
    ),
    "deterministic_loss_is_not_fused": Rule(
        "recipe.stack.cross_entropy",
        lambda w, _: (
            not (
                _is_megatron(w)
                and w.software.deterministic
                and w.requested.cross_entropy in ("fused", "transformer-engine")
            )
        ),
        lambda w, _: f"megatron-core's {w.software.cross_entropy} cross entropy is not deterministic",
        "use vocab-parallel, or set deterministic to false",
    ),
    "deterministic_products_stand_alone": Rule(
        "recipe.stack.tensor_overlap",
        lambda w, _: not (_is_megatron(w) and w.software.deterministic and w.requested.tensor_overlap),
        "megatron-core's products are not deterministic where tensor ranks exchange beside them",
        "leave tensor_overlap out, or set deterministic to false",
    ),
    "overlapped_exchange_runs_once": Rule(
        "recipe.recompute",
        lambda w, _: (
            not (w.software.expert_overlap and (w.recompute.granularity == "full" or "moe" in w.recompute.modules))
        ),
        "layers whose experts run again in the backward pass cannot exchange tokens beside another micro-batch",
        "recompute nothing or modules other than moe, or leave expert_overlap out",
    ),
    "overlapped_exchange_is_direct": Rule(
        "recipe.stack.dispatcher",
        lambda w, _: not (w.software.expert_overlap and w.software.dispatcher == "allgather"),
        "expert_overlap hides what is sent to each expert, and allgather sends all tokens to all of them",
        "use alltoall or flex, or leave expert_overlap out",
    ),
    "overlapped_exchange_is_in_mixed_precision": Rule(
        "recipe.precision",
        lambda w, _: not w.software.expert_overlap or w.precision.is_mixed,
        lambda w, _: (
            f"megatron-core overlaps the exchange of tokens in mixed precision alone, not in {w.recipe.precision}"
        ),
        "use bf16-mixed, or leave expert_overlap out",
    ),
    "recompute_in_a_graph_draws_nothing": Rule(
        "recipe.dropout_fraction",
        lambda w, _: (
            not (
                _is_megatron(w)
                and w.software.cuda_graphs
                and w.recompute.granularity == "selective"
                and {*w.recompute.modules} & {"core_attn", "mlp", "moe"}
                and w.recipe.dropout_fraction > 0
            )
        ),
        lambda w, _: (
            f"dropout of what {' and '.join(w.recompute.modules)} computes again cannot be drawn alike in a graph of "
            "the whole step"
        ),
        "set dropout_fraction to 0, or cuda_graphs to false",
    ),
}


ORDER_RULES: dict[str, WorkloadRule] = {
    "stack_numbers_ranks_so": Rule(
        "layout.rank_order",
        lambda w, layout: layout.rank_order in w.stack.rank_orders,
        lambda w, layout: f"{w.software.name} cannot number ranks in the order {layout.rank_order}",
        lambda w, _: f"use {', '.join(w.stack.rank_orders)}, or leave rank_order out",
    ),
    "stack_reorders_ranks_so_sharded": Rule(
        "layout.rank_order",
        lambda w, layout: (
            layout.rank_order not in w.stack.rank_orders[1:] or layout.zero_stage in w.stack.reordered_zero_stages
        ),
        lambda w, layout: (
            f"{w.software.name} numbers ranks as {w.stack.rank_orders[0]} alone at ZeRO stage {layout.zero_stage}"
        ),
        lambda w, _: f"leave rank_order out, or use zero_stage {' or '.join(map(str, w.stack.reordered_zero_stages))}",
    ),
}


RULES: dict[str, LayoutRule] = {
    "loss_parallel_needs_tensor_ranks": Rule(
        "recipe.stack.cross_entropy",
        lambda w, d: implies(w.requested.cross_entropy == "loss-parallel", d.tensor > 1),
        "loss-parallel shares the vocabulary among tensor ranks, and there is one",
        "set layout.tensor above 1, or leave cross_entropy out",
    ),
    "tensor_overlap_needs_tensor_ranks": Rule(
        "recipe.stack.tensor_overlap",
        lambda w, d: implies(bool(w.requested.tensor_overlap), d.tensor > 1),
        lambda _, d: f"tensor_overlap hides what tensor ranks send to each other, and there is {d.tensor} tensor rank",
        "set layout.tensor above 1, or leave tensor_overlap out",
    ),
    "tensor_overlap_needs_split_norms": Rule(
        "recipe.stack.tensor_overlap",
        lambda w, d: implies(both(bool(w.requested.tensor_overlap), d.tensor > 1), d.sequence_parallel == 1),
        "tensor_overlap cuts what tensor ranks gather and scatter, and without sequence_parallel they do neither",
        "leave sequence_parallel or tensor_overlap out",
    ),
    "expert_overlap_needs_expert_ranks": Rule(
        "recipe.stack.expert_overlap",
        lambda w, d: implies(bool(w.model.num_experts) and w.software.expert_overlap, d.expert > 1),
        lambda _, d: f"expert_overlap hides what expert ranks send to each other, and there is {d.expert} expert rank",
        "set layout.expert above 1, or leave expert_overlap out",
    ),
}


_SELECTIVE_NEEDS = {"moe": "experts", "moe_act": "experts", "shared_experts": "shared experts", "mla_up_proj": "MLA"}


def _chunks(layout: CompleteLayout) -> int:
    return layout.pipeline * layout.virtual_pipeline


def _largest_chunk(workload: Workload, layout: CompleteLayout) -> int:
    return max(layout.stage_layers or (-(-workload.model.num_hidden_layers // _chunks(layout)),))


def _ends_in_split(layout: CompleteLayout) -> int:
    return layout.embedding_in_split + layout.loss_in_split


def _unusable_modules(workload: Workload) -> list[str]:
    names = {tag for ops in workload.ledger.kinds for op in ops for tag in op.modules}
    return [module for module in workload.recompute.modules if module not in names and module != "op"]


def _unknown_axes(workload: Workload, layout: CompleteLayout) -> list[str]:
    question = {axis: getattr(layout, axis) or 1 for axis in EVERY_AXIS}
    split_as_every_mlp = layout.expert == 1 and layout.expert_tensor == layout.tensor
    if split_as_every_mlp or not workload.model.num_experts:
        del question["expert_tensor"]
    return [axis for axis, degree in question.items() if degree > 1 and axis not in workload.stack.axes]


def _unknown_layers(workload: Workload) -> list[str]:
    return [mixer for mixer in recurrences_of(workload.model) if mixer not in workload.stack.recurrences]


def _missing_formats(gpu: Gpu, precision: Precision) -> list[str]:
    formats = dict.fromkeys((precision.matrix_format, precision.attention_format))
    return [number_format for number_format in formats if peak_flop_per_s(gpu, number_format) is None]


def _gradient_format_fits(workload: Workload) -> bool:
    wanted = workload.recipe.gradient_dtype
    casts_weights = workload.precision.is_mixed and workload.stack.mixed_weights == "fp32"
    own = "fp32" if casts_weights else workload.precision.attention_format
    return wanted in (None, "fp32", own)


ABILITY_RULES: dict[str, WorkloadRule] = {
    "gpu_has_the_format": Rule(
        "recipe.precision",
        lambda w, _: not _missing_formats(w.gpu, w.precision),
        lambda w, _: (
            f"the GPU has no published rate for {' and '.join(_missing_formats(w.gpu, w.precision))} arithmetic, "
            "so no time can be given"
        ),
        lambda w, _: (
            f"use {', '.join(name for name in w.stack.precisions if not _missing_formats(w.gpu, PRECISIONS[name]))}, "
            "or a GPU that has the format"
        ),
    ),
    "stack_runs_the_precision": Rule(
        "recipe.precision",
        lambda w, _: w.recipe.precision in w.stack.precisions,
        lambda w, _: f"{w.software.name} does not train in {w.recipe.precision}",
        lambda w, _: f"use {', '.join(w.stack.precisions)}",
    ),
    "stack_accumulates_in_the_format": Rule(
        "recipe.gradient_dtype",
        lambda w, _: _gradient_format_fits(w),
        lambda w, _: f"{w.software.name} under {w.recipe.precision} cannot keep gradients in {w.recipe.gradient_dtype}",
        "leave gradient_dtype out to take the stack's own",
    ),
    "stack_has_the_layers": Rule(
        "recipe.stack",
        lambda w, _: not _unknown_layers(w),
        lambda w, _: f"{w.software.name} has no {' and no '.join(_unknown_layers(w))} layers",
        lambda w, _: (
            "use "
            + " or ".join(name for name, row in STACKS.items() if {*recurrences_of(w.model)} <= {*row.recurrences})
        ),
    ),
    "stack_has_the_axis": Rule(
        "layout",
        lambda w, layout: not _unknown_axes(w, layout),
        lambda w, layout: f"{w.software.name} cannot split over {', '.join(_unknown_axes(w, layout))}",
        lambda w, _: f"it can split over data{''.join(', ' + axis for axis in w.stack.axes)}; or name another stack",
    ),
    "stack_shards_so": Rule(
        "layout.zero_stage",
        lambda w, layout: layout.zero_stage in w.stack.zero_stages,
        lambda w, layout: f"{w.software.name} has no ZeRO stage {layout.zero_stage}",
        lambda w, _: f"use {', '.join(map(str, sorted(w.stack.zero_stages)))}",
    ),
    "stack_shards_so_in_a_pipeline": Rule(
        "layout.zero_stage",
        lambda w, layout: layout.pipeline == 1 or layout.zero_stage in w.stack.pipeline_zero_stages,
        lambda w, layout: f"{w.software.name} cannot combine ZeRO stage {layout.zero_stage} with a pipeline",
        lambda w, _: f"use {' or '.join(map(str, w.stack.pipeline_zero_stages))} with it, or pipeline 1",
    ),
    "stack_exchanges_context_so": Rule(
        "layout.context_method",
        lambda w, layout: layout.context == 1 or layout.context_method in w.stack.context_methods,
        lambda w, layout: f"{w.software.name} cannot exchange keys and values by {layout.context_method}",
        lambda w, _: f"use {', '.join(w.stack.context_methods)}",
    ),
    "stack_splits_norms": Rule(
        "layout.sequence_parallel",
        lambda w, layout: w.stack.splits_norms or not layout.sequence_parallel,
        lambda w, _: f"{w.software.name} keeps norms whole on every tensor rank",
        "leave sequence_parallel out or set it to false",
    ),
    "expert_tensor_needs_experts": Rule(
        "layout.expert_tensor",
        lambda w, layout: bool(w.model.num_experts) or layout.expert_tensor in (1, layout.tensor),
        "expert_tensor splits experts, and the model has none",
        "leave expert_tensor out",
    ),
    "stack_runs_the_schedule": Rule(
        "layout.schedule",
        lambda w, layout: layout.schedule in w.stack.schedules,
        lambda w, layout: f"{w.software.name} cannot run the schedule {layout.schedule}",
        lambda w, _: f"use {', '.join(w.stack.schedules)}",
    ),
    "interleaving_has_chunks": Rule(
        "layout.schedule",
        lambda _, layout: (layout.schedule == "interleaved-1f1b") == (layout.virtual_pipeline > 1),
        lambda _, layout: (
            f"virtual_pipeline {layout.virtual_pipeline} and schedule {layout.schedule} do not belong together"
        ),
        "interleaved-1f1b needs virtual_pipeline above 1, and only it can use that",
    ),
    "stage_layers_cover_the_model": Rule(
        "layout.stage_layers",
        lambda w, layout: (
            layout.stage_layers is None
            or (len(layout.stage_layers) == _chunks(layout) and sum(layout.stage_layers) == w.model.num_hidden_layers)
        ),
        lambda w, layout: (
            f"stage_layers has {len(layout.stage_layers or ())} numbers and {sum(layout.stage_layers or ())} layers; "
            f"the layout has {_chunks(layout)} stages or virtual stages and the model {w.model.num_hidden_layers}"
        ),
        lambda w, layout: f"give {_chunks(layout)} numbers that sum to {w.model.num_hidden_layers}",
    ),
    "stage_layers_or_ends_in_split": Rule(
        "layout.stage_layers",
        lambda w, layout: (
            layout.stage_layers is None
            or not _ends_in_split(layout)
            or w.stack.partitions_by_cost
            or partition_layers(layout, w.model) == layout.stage_layers
        ),
        "stage_layers says how layers are dealt, and so do embedding_in_split and loss_in_split, and they differ",
        "give stage_layers alone, or leave it out",
    ),
    "stack_counts_ends_in_split": Rule(
        "layout.embedding_in_split",
        lambda w, layout: not (_ends_in_split(layout) and w.stack.partitions_by_cost),
        lambda w, _: f"{w.software.name} deals layers by their cost, whatever counts as a layer",
        "leave embedding_in_split and loss_in_split out, or give stage_layers instead",
    ),
    "ends_in_split_fill_the_stages": Rule(
        "layout.embedding_in_split",
        lambda _, layout: not _ends_in_split(layout) or layout.stage_layers is not None,
        lambda w, layout: (
            f"{w.model.num_hidden_layers} layers and {_ends_in_split(layout)} ends do not "
            f"fill {_chunks(layout)} stages or virtual stages evenly"
        ),
        "change pipeline or virtual_pipeline, or give stage_layers instead",
    ),
    "virtual_group_needs_virtual_stages": Rule(
        "layout.virtual_group",
        lambda _, layout: layout.virtual_pipeline > 1 or layout.virtual_group == layout.pipeline,
        "virtual_group orders the chunks of virtual stages, and there are none",
        "leave virtual_group out, or set virtual_pipeline above 1",
    ),
    "model_offload_needs_sharded_weights": Rule(
        "layout.offload",
        lambda _, layout: layout.offload != "model" or layout.zero_stage == 3,
        lambda _, layout: (
            f"a model leaves the device layer by layer, and ZeRO stage {layout.zero_stage} keeps every weight on it"
        ),
        "set zero_stage to 3, or offload the optimizer alone",
    ),
    "resharding_needs_sharded_weights": Rule(
        "layout.reshard_after_forward",
        lambda _, layout: layout.zero_stage == 3 or not layout.reshard_after_forward,
        lambda _, layout: (
            f"ZeRO stage {layout.zero_stage} keeps whole weights, so there is nothing to free after the forward pass"
        ),
        "use zero_stage 3, or leave reshard_after_forward out",
    ),
    "recompute_modules_exist": Rule(
        "recipe.recompute",
        lambda w, _: not _unusable_modules(w),
        lambda w, _: (
            f"the model has no {', '.join(_SELECTIVE_NEEDS.get(m, m) for m in _unusable_modules(w))} to recompute"
        ),
        lambda w, _: f"leave {', '.join(_unusable_modules(w))} out of modules",
    ),
    "recompute_layers_are_in_the_stage": Rule(
        "recipe.recompute",
        lambda w, layout: (w.recompute.layers or 1) <= _largest_chunk(w, layout),
        lambda w, layout: (
            f"recompute names {w.recompute.layers} layers, and a stage holds {_largest_chunk(w, layout)} at once"
        ),
        lambda w, layout: f"use at most {_largest_chunk(w, layout)}",
    ),
    "recompute_choices_fit_the_granularity": Rule(
        "recipe.recompute",
        lambda w, _: (
            not (w.recompute.modules and w.recompute.granularity != "selective")
            and not (w.recompute.layers and w.recompute.granularity != "full")
            and not (w.recompute.method == "block" and w.recompute.granularity != "full")
        ),
        "modules belong to selective recompute, method and layers to full recompute",
        "give only what the granularity uses",
    ),
    "padding_needs_document_lengths": Rule(
        "recipe.batching",
        lambda w, _: w.recipe.batching == "packed" or bool(w.recipe.document_lengths),
        "without document_lengths every sequence is one document, so nothing is padded",
        "give document_lengths, or leave batching out",
    ),
}


_WRITTEN_FOR: dict[AttentionName, str] = {"flash-3": "Hopper", "flash-4": "Blackwell"}
"""Generation that a kernel is written for, where it runs on no other."""


_RUNS_NOT_ON: dict[AttentionName, tuple[str, ...]] = {
    "flash-1": ("Pascal", "Volta"),
    "flash-2": ("Pascal", "Volta", "Turing"),
    "cudnn": ("Pascal", "Volta", "Turing", "CDNA2", "CDNA3", "CDNA4"),
}
"""Generations that lack the instructions of a kernel. Source: Dao-AILab/flash-attention README, CUDA support; NVIDIA
cuDNN support matrix (fused attention from Ampere on)."""


def _lacks_kernel(workload: Workload) -> str | None:
    """Reason why an attention kernel does not run on the GPU with the software; None where it runs."""
    kernel, architecture, software = workload.recipe.attention, generation(workload.gpu), workload.software
    if software.implementation not in IMPLEMENTATIONS[software.name]:
        return None
    if kernel in _WRITTEN_FOR:
        is_there = architecture == _WRITTEN_FOR[kernel]
        return None if is_there else f"{kernel} is written for {_WRITTEN_FOR[kernel]}, and the GPU is {architecture}"
    if architecture in _RUNS_NOT_ON.get(kernel, ()):
        return f"{kernel} does not run on {architecture}"
    calls_cudnn = workload.implementation.uses_transformer_engine or software.name == "torchtitan"
    if kernel != "cudnn" or calls_cudnn:
        return None
    return f"{software.name} with {software.implementation} operations does not call cuDNN's attention"


ATTENTION_RULES: dict[str, WorkloadRule] = {
    "kernel_runs_there": Rule(
        "recipe.attention",
        lambda w, _: _lacks_kernel(w) is None,
        lambda w, _: _lacks_kernel(w) or "",
        "use flash to take the kernel that runs there",
    ),
}


LEAST_LIMIT_FRACTION = 0.2
"""Least limit that a board takes over its rated power: 100 of 400 W for an A100 SXM, 200 of 700 W for an H100 SXM.
Source: nvidia-smi -q -d POWER of both (0.25, 0.29), and some room for others."""

MOST_RATIO = 10.0
"""Measured over predicted seconds of a step, or the other way round, beyond which one of them is of another
configuration or in another unit. Source: an assumption; a round figure."""


def _implausible(workload: Workload) -> str | None:
    """The first measured step that is too far from what was predicted, in words."""
    for index, step in enumerate(workload.cluster.measured_steps):
        if not 1 / MOST_RATIO <= step.measured_seconds / step.predicted_seconds <= MOST_RATIO:
            return f"step {index} took {step.measured_seconds:g} s, and {step.predicted_seconds:g} s predicted"
    return None


MEASURED_RULES: dict[str, WorkloadRule] = {
    "power_limit_in_range": Rule(
        "cluster.power_limit_watts",
        lambda w, _: (
            w.cluster.power_limit_watts is None
            or LEAST_LIMIT_FRACTION * w.gpu.board_watts <= w.cluster.power_limit_watts <= w.gpu.board_watts
        ),
        lambda w, _: (
            f"power_limit_watts {w.cluster.power_limit_watts:g} is outside what a board of {w.gpu.board_watts:g} W can "
            "be held to"
        ),
        lambda w, _: f"use {LEAST_LIMIT_FRACTION * w.gpu.board_watts:g} to {w.gpu.board_watts:g}, or leave it out",
    ),
    "measured_steps_plausible": Rule(
        "cluster.measured_steps",
        lambda w, _: _implausible(w) is None,
        lambda w, _: (
            f"measured {_implausible(w)}: more than {MOST_RATIO:g} times apart, so one of them is of another "
            "configuration or in another unit"
        ),
        "give seconds of the same step in both, or leave it out",
    ),
}
