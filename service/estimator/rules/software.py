"""Rules of software and GPU: operations, losses, versions, kernels, formats and power; choices without effect."""

from dataclasses import fields
from typing import Literal

from service.estimator.complete import CompleteLayout
from service.estimator.degrees import GRADIENTS, OPTIMIZER_STATES, WEIGHTS
from service.estimator.model.build import recurrences_of
from service.estimator.numeric import both, implies
from service.estimator.parallelism.pipeline import partition_layers
from service.estimator.question import AttentionName, Gpu, Software, Versions
from service.estimator.rule import LayoutRule, Rule, WorkloadRule
from service.estimator.software.precision import PRECISIONS, Precision, fp8_attention_gains, peak_flop_per_s
from service.estimator.software.stacks import (
    BEFORE_AMPERE,
    CROSS_ENTROPIES,
    ENGINE_LOSS_SINCE,
    EVERY_AXIS,
    IMPLEMENTATIONS,
    STACKS,
)
from service.estimator.software.versions import generation, is_version, is_year_and_month
from service.estimator.workload import Workload

FIRST_YEAR = 2023
"""The earliest year that a version of torchtitan may name: there was no torchtitan before."""


def _versions(versions: Versions | None) -> dict[str, str]:
    """The versions that are named, by library."""
    every = {} if versions is None else {one.name: getattr(versions, one.name) for one in fields(Versions)}
    return {library: version for library, version in every.items() if version is not None}


def _unreadable(software: Software) -> list[str]:
    return [library for library, version in _versions(software.versions).items() if not is_version(version)]


def _undated_torchtitan(software: Software) -> str | None:
    """A readable version of torchtitan that is not a month since FIRST_YEAR."""
    version = _versions(software.versions).get("torchtitan")
    is_undated = version is not None and is_version(version) and not is_year_and_month(version, FIRST_YEAR)
    return version if is_undated else None


VERSION_RULES: dict[str, Rule[Software, None]] = {
    "versions_are_readable": Rule(
        lambda software, _: not _unreadable(software),
        lambda software, _: {"libraries": " and ".join(_unreadable(software))},
    ),
    "torchtitan_is_told_by_month": Rule(
        lambda software, _: not _undated_torchtitan(software),
        lambda software, _: {"version": _undated_torchtitan(software), "first_year": FIRST_YEAR},
    ),
}
"""Rules of versions, which are checked before all other rules of software."""


def _relevant_libraries(workload: Workload) -> tuple[str, ...]:
    """Libraries of the stack whose versions change what it keeps in memory."""
    engine = ("transformer_engine", "megatron_core") if workload.implementation.uses_transformer_engine else ()
    titan = ("torchtitan",) if workload.software.name == "torchtitan" else ()
    hugging = ("transformers",) if workload.implementation.runs_transformers else ()
    return (*engine, *titan, *hugging, *(("bitsandbytes",) if workload.method.name == "qlora" else ()), "torch")


def _irrelevant_libraries(workload: Workload) -> list[str]:
    return [library for library in _versions(workload.versions) if library not in _relevant_libraries(workload)]


def _has_implementation(workload: Workload) -> bool:
    return workload.software.implementation in IMPLEMENTATIONS[workload.software.name]


def _offloads_activations(layout: CompleteLayout) -> bool:
    return layout.offload in ("activations", "optimizer-and-activations")


_FSDP_OPTIMIZERS = ("adamw", "sgd-momentum")
"""Optimizers of Megatron-FSDP, which shards gradients and weights."""


def _is_megatron(workload: Workload) -> bool:
    return workload.software.name == "megatron-core"


def _choosing(transfer: Literal["reduce", "gather"]) -> str:
    """The stacks whose overlap of a transfer can be chosen."""
    return " or ".join(name for name, row in STACKS.items() if transfer in row.chooses_overlap)


def _reduces_beside(workload: Workload) -> bool:
    """Whether Megatron-Core reduces gradients beside the backward pass, in any layout."""
    chosen = workload.requested.overlap_reduce
    return workload.implementation.overlap.hides_gradients if chosen is None else chosen


SOFTWARE_RULES: dict[str, WorkloadRule] = {
    "stack_has_the_implementation": Rule(
        lambda w, _: _has_implementation(w),
        lambda w, _: {"implementations": " or ".join(IMPLEMENTATIONS[w.software.name])},
    ),
    "implementation_computes_the_loss_so": Rule(
        lambda w, _: (
            not _has_implementation(w) or w.software.cross_entropy in (None, *w.implementation.cross_entropies)
        ),
        lambda w, _: {"losses": ", ".join(w.implementation.cross_entropies)},
    ),
    "libraries_have_the_loss": Rule(
        lambda w, _: (
            w.software.cross_entropy != "transformer-engine"
            or "transformer-engine" not in w.implementation.cross_entropies
            or all(since.holds(getattr(w.versions, library)) for library, since in ENGINE_LOSS_SINCE.items())
        ),
        lambda w, _: {
            "meaning": CROSS_ENTROPIES["transformer-engine"].meaning,
            "versions": " and ".join(
                f"{name} {version}" for name, version in _versions(w.versions).items() if name in ENGINE_LOSS_SINCE
            ),
        },
    ),
    "fused_gradients_need_megatron": Rule(
        lambda w, _: not w.requested.gradient_fusion or w.software.name == "megatron-core"
    ),
    "gradients_are_decoupled_by_the_stack": Rule(
        lambda w, _: w.requested.decoupled_gradients is None or w.stack.decouples_gradients
    ),
    "decoupled_gradients_are_read_by_adamw": Rule(
        lambda w, _: not w.requested.decoupled_gradients or (w.recipe.optimizer == "adamw" and w.state.master_bytes > 0)
    ),
    "narrow_masters_decouple_gradients": Rule(
        lambda w, _: w.requested.decoupled_gradients is not False or w.recipe.master_dtype != "fp16"
    ),
    "versions_are_of_the_stack": Rule(
        lambda w, _: not _has_implementation(w) or not _irrelevant_libraries(w),
        lambda w, _: {"unused": " and ".join(_irrelevant_libraries(w)), "used": " and ".join(_relevant_libraries(w))},
    ),
    "experts_are_grouped_by_transformer_engine": Rule(
        lambda w, _: (
            not w.requested.grouped_experts or (bool(w.model.num_experts) and w.implementation.uses_transformer_engine)
        )
    ),
    "graphs_need_the_engine_or_a_compiler": Rule(
        lambda w, _: (
            not w.software.cuda_graphs
            or w.implementation.uses_transformer_engine
            or w.software.implementation == "compiled"
        )
    ),
    "overlapped_exchange_needs_experts": Rule(
        lambda w, _: (
            not w.software.expert_overlap or (w.implementation.uses_transformer_engine and bool(w.model.num_experts))
        )
    ),
    "partial_graphs_leave_experts": Rule(
        lambda w, _: not w.software.partial_graphs or (w.software.cuda_graphs and bool(w.model.num_experts))
    ),
    "routed_nodes_need_experts": Rule(lambda w, _: w.software.routed_nodes is None or bool(w.model.num_experts)),
    "fp8_attention_has_a_kernel": Rule(
        lambda w, _: not w.software.fp8_attention or _runs_fp8_attention(w),
        lambda w, _: {"kernel": w.kernel, "generation": generation(w.gpu)},
    ),
    "fused_experts_have_a_kernel": Rule(
        lambda w, _: not w.software.fused_experts or _fuses_experts(w),
        lambda w, _: {"generation": generation(w.gpu)},
    ),
    "fp8_activation_inputs_are_of_the_stack": Rule(
        lambda w, _: not w.software.fp8_activation_inputs or (_is_megatron(w) and w.model.gated_mlp)
    ),
    "tensor_overlap_is_of_the_stack": Rule(
        lambda w, _: (
            not w.requested.tensor_overlap
            or w.implementation.overlap.overlaps_tensor
            or w.software.name == "torchtitan"
        )
    ),
    "overlapped_reduction_is_chosen": Rule(
        lambda w, _: w.requested.overlap_reduce is None or "reduce" in w.stack.chooses_overlap,
        lambda *_: {"stacks": _choosing("reduce")},
    ),
    "overlapped_gather_is_chosen": Rule(
        lambda w, _: w.requested.overlap_gather is None or "gather" in w.stack.chooses_overlap,
        lambda *_: {"stacks": _choosing("gather")},
    ),
    "overlapped_gather_needs_overlapped_reduction": Rule(
        lambda w, _: not (w.requested.overlap_gather and _is_megatron(w) and not _reduces_beside(w))
    ),
    "bucket_serves_overlap": Rule(
        lambda w, _: (
            w.requested.reduce_bucket_numbers is None or not w.stack.buckets_serve_overlap or _reduces_beside(w)
        )
    ),
    "tokens_are_sent_to_experts": Rule(
        lambda w, _: w.software.dispatcher is None or (bool(w.model.num_experts) and w.software.name == "megatron-core")
    ),
    "imbalance_needs_experts": Rule(lambda w, _: bool(w.model.num_experts) or w.recipe.expert_imbalance == 1),
    "capacity_needs_experts": Rule(lambda w, _: bool(w.model.num_experts) or w.recipe.expert_capacity_factor is None),
    "recompute_by_operation_stands_alone": Rule(
        lambda w, _: "op" not in w.recompute.modules or (w.stack.selects == "op" and w.recompute.modules == ("op",)),
        lambda w, _: {"modules": ", ".join(w.recompute.modules)},
    ),
    "stack_offloads_activations": Rule(
        lambda w, layout: w.stack.offloads_activations or not _offloads_activations(layout),
        lambda *_: {"stacks": ", ".join(name for name, row in STACKS.items() if row.offloads_activations)},
    ),
    "moments_alone_are_megatrons": Rule(lambda w, layout: layout.offload != "moments" or _is_megatron(w)),
    "sharded_weights_have_an_update": Rule(
        lambda w, layout: not (_is_megatron(w) and layout.zero_stage >= 2) or w.recipe.optimizer in _FSDP_OPTIMIZERS,
        lambda *_: {"optimizers": " or ".join(_FSDP_OPTIMIZERS)},
    ),
    "offloaded_activations_are_the_engines": Rule(
        lambda w, layout: (
            not (_is_megatron(w) and _offloads_activations(layout)) or w.implementation.uses_transformer_engine
        )
    ),
    "fp8_weights_are_gathered": Rule(
        lambda w, layout: not (_is_megatron(w) and w.recipe.fp8_weights) or layout.zero_stage > 0
    ),
    "fp8_weights_are_updated_on_the_gpu": Rule(
        lambda w, layout: (
            not (_is_megatron(w) and w.recipe.fp8_weights)
            or layout.offload not in ("moments", "optimizer", "optimizer-and-activations")
        )
    ),
    "deterministic_loss_is_not_fused": Rule(
        lambda w, _: (
            not (
                _is_megatron(w)
                and w.software.deterministic
                and w.requested.cross_entropy in ("fused", "transformer-engine")
            )
        )
    ),
    "deterministic_products_stand_alone": Rule(
        lambda w, _: not (_is_megatron(w) and w.software.deterministic and w.requested.tensor_overlap)
    ),
    "overlapped_exchange_runs_once": Rule(
        lambda w, _: (
            not (w.software.expert_overlap and (w.recompute.granularity == "full" or "moe" in w.recompute.modules))
        )
    ),
    "overlapped_exchange_is_direct": Rule(
        lambda w, _: not (w.software.expert_overlap and w.software.dispatcher == "allgather")
    ),
    "overlapped_exchange_is_in_mixed_precision": Rule(
        lambda w, _: not w.software.expert_overlap or w.precision.is_mixed
    ),
    "recompute_in_a_graph_draws_nothing": Rule(
        lambda w, _: (
            not (
                _is_megatron(w)
                and w.software.cuda_graphs
                and w.recompute.granularity == "selective"
                and {*w.recompute.modules} & {"core_attn", "mlp", "moe"}
                and w.recipe.dropout_fraction > 0
            )
        ),
        lambda w, _: {"modules": " and ".join(w.recompute.modules)},
    ),
}


ORDER_RULES: dict[str, WorkloadRule] = {
    "stack_numbers_ranks_so": Rule(
        lambda w, layout: layout.rank_order in w.stack.rank_orders,
        lambda w, _: {"orders": ", ".join(w.stack.rank_orders)},
    ),
    "stack_reorders_ranks_so_sharded": Rule(
        lambda w, layout: (
            layout.rank_order not in w.stack.rank_orders[1:] or layout.zero_stage in w.stack.reordered_zero_stages
        ),
        lambda w, _: {"stages": " or ".join(map(str, w.stack.reordered_zero_stages))},
    ),
}


RULES: dict[str, LayoutRule] = {
    "loss_parallel_needs_tensor_ranks": Rule(
        lambda w, d: implies(w.requested.cross_entropy == "loss-parallel", d.tensor > 1)
    ),
    "tensor_overlap_needs_tensor_ranks": Rule(lambda w, d: implies(bool(w.requested.tensor_overlap), d.tensor > 1)),
    "tensor_overlap_needs_split_norms": Rule(
        lambda w, d: implies(both(bool(w.requested.tensor_overlap), d.tensor > 1), d.sequence_parallel == 1)
    ),
    "grouped_reductions_need_virtual_stages": Rule(
        lambda w, d: implies(w.software.grouped_reductions, both(d.zero_stage == GRADIENTS, d.virtual_pipeline > 1))
    ),
    "step_in_backward_takes_one_micro_batch": Rule(
        lambda w, d: implies(w.software.step_in_backward, both(d.accumulation == 1, not w.stack.keeps_gradients))
    ),
    "overlapped_gather_needs_shards": Rule(
        lambda w, d: implies(bool(w.requested.overlap_gather), d.zero_stage >= OPTIMIZER_STATES)
    ),
    "overlapped_reduction_needs_shards_and_no_stages": Rule(
        lambda w, d: implies(
            bool(w.requested.overlap_reduce) and w.software.name == "deepspeed",
            both(d.pipeline == 1, d.zero_stage >= OPTIMIZER_STATES),
        )
    ),
    "reductions_fill_buckets": Rule(
        lambda w, d: implies(
            w.requested.reduce_bucket_numbers is not None,
            d.zero_stage <= (-1 if w.stack.bucket_stage is None else w.stack.bucket_stage),
        )
    ),
    "gathers_fill_buckets": Rule(
        lambda w, d: implies(
            w.requested.gather_bucket_numbers is not None,
            both(bool(w.stack.gather_bucket_numbers), d.zero_stage == WEIGHTS),
        )
    ),
    "expert_overlap_needs_expert_ranks": Rule(
        lambda w, d: implies(bool(w.model.num_experts) and w.software.expert_overlap, d.expert > 1)
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
    names = {"layernorm", *(tag for ops in workload.ledger.kinds for op in ops for tag in op.modules)}
    return [module for module in workload.recompute.modules if module not in names and module != "op"]


def _unsupported_axes(workload: Workload, layout: CompleteLayout) -> list[str]:
    question = {axis: getattr(layout, axis) or 1 for axis in EVERY_AXIS}
    split_as_every_mlp = layout.expert == 1 and layout.expert_tensor == layout.tensor
    if split_as_every_mlp or not workload.model.num_experts:
        del question["expert_tensor"]
    return [axis for axis, degree in question.items() if degree > 1 and axis not in workload.stack.axes]


def _unsupported_layers(workload: Workload) -> list[str]:
    return [mixer for mixer in recurrences_of(workload.model) if mixer not in workload.stack.recurrences]


def _missing_formats(gpu: Gpu, precision: Precision) -> list[str]:
    formats = dict.fromkeys((precision.matrix_format, precision.attention_format))
    return [number_format for number_format in formats if peak_flop_per_s(gpu, number_format) is None]


def _lacks_kernels(gpu: Gpu, precision: Precision) -> bool:
    """Whether a GPU that has the formats lacks the products that scale their operands as a recipe does."""
    return bool(precision.generations) and generation(gpu) not in precision.generations


def _runnable_precisions(workload: Workload) -> str:
    rows = {name: PRECISIONS[name] for name in workload.stack.precisions}
    gpu = workload.gpu
    return ", ".join(n for n, row in rows.items() if not (_missing_formats(gpu, row) or _lacks_kernels(gpu, row)))


def _gradient_format_fits(workload: Workload) -> bool:
    requested = workload.recipe.gradient_dtype
    casts_weights = workload.precision.is_mixed and workload.stack.mixed_weights == "fp32"
    own = "fp32" if casts_weights else workload.precision.attention_format
    return requested in (None, "fp32", own)


ABILITY_RULES: dict[str, WorkloadRule] = {
    "gpu_has_the_format": Rule(
        lambda w, _: not _missing_formats(w.gpu, w.precision),
        lambda w, _: {
            "missing": " and ".join(_missing_formats(w.gpu, w.precision)),
            "precisions": _runnable_precisions(w),
        },
    ),
    "gpu_scales_the_format_so": Rule(
        lambda w, _: bool(_missing_formats(w.gpu, w.precision)) or not _lacks_kernels(w.gpu, w.precision),
        lambda w, _: {
            "precisions": _runnable_precisions(w),
            "architecture": generation(w.gpu),
            "generations": " or ".join(w.precision.generations),
        },
    ),
    "stack_runs_the_precision": Rule(
        lambda w, _: w.recipe.precision in w.stack.precisions,
        lambda w, _: {"precisions": ", ".join(w.stack.precisions)},
    ),
    "stack_accumulates_in_the_format": Rule(lambda w, _: _gradient_format_fits(w)),
    "stack_has_the_layers": Rule(
        lambda w, _: not _unsupported_layers(w),
        lambda w, _: {
            "layers": " and no ".join(_unsupported_layers(w)),
            "stacks": " or ".join(
                name for name, row in STACKS.items() if {*recurrences_of(w.model)} <= {*row.recurrences}
            ),
        },
    ),
    "stack_has_the_axis": Rule(
        lambda w, layout: not _unsupported_axes(w, layout),
        lambda w, layout: {
            "unknown": ", ".join(_unsupported_axes(w, layout)),
            "axes": "".join(f", {axis}" for axis in w.stack.axes),
        },
    ),
    "stack_shards_so": Rule(
        lambda w, layout: layout.zero_stage in w.stack.zero_stages,
        lambda w, _: {"stages": ", ".join(map(str, sorted(w.stack.zero_stages)))},
    ),
    "stack_shards_so_in_a_pipeline": Rule(
        lambda w, layout: layout.pipeline == 1 or layout.zero_stage in w.stack.pipeline_zero_stages,
        lambda w, _: {"stages": " or ".join(map(str, w.stack.pipeline_zero_stages))},
    ),
    "stack_exchanges_context_so": Rule(
        lambda w, layout: layout.context == 1 or layout.context_method in w.stack.context_methods,
        lambda w, _: {"methods": ", ".join(w.stack.context_methods)},
    ),
    "stack_splits_norms": Rule(lambda w, layout: w.stack.splits_norms or not layout.sequence_parallel),
    "expert_tensor_needs_experts": Rule(
        lambda w, layout: bool(w.model.num_experts) or layout.expert_tensor in (1, layout.tensor)
    ),
    "stack_runs_the_schedule": Rule(
        lambda w, layout: layout.schedule in w.stack.schedules, lambda w, _: {"schedules": ", ".join(w.stack.schedules)}
    ),
    "interleaving_has_chunks": Rule(
        lambda _, layout: (layout.schedule == "interleaved-1f1b") == (layout.virtual_pipeline > 1)
    ),
    "stage_layers_cover_the_model": Rule(
        lambda w, layout: (
            layout.stage_layers is None
            or (len(layout.stage_layers) == _chunks(layout) and sum(layout.stage_layers) == w.model.num_hidden_layers)
        ),
        lambda _, layout: {
            "count": len(layout.stage_layers or ()),
            "layers": sum(layout.stage_layers or ()),
            "chunks": _chunks(layout),
        },
    ),
    "stage_layers_or_ends_in_split": Rule(
        lambda w, layout: (
            layout.stage_layers is None
            or not _ends_in_split(layout)
            or w.stack.partitions_by_cost
            or partition_layers(layout, w.model) == layout.stage_layers
        )
    ),
    "stack_counts_ends_in_split": Rule(lambda w, layout: not (_ends_in_split(layout) and w.stack.partitions_by_cost)),
    "ends_in_split_fill_the_stages": Rule(
        lambda _, layout: not _ends_in_split(layout) or layout.stage_layers is not None,
        lambda _, layout: {"ends": _ends_in_split(layout), "chunks": _chunks(layout)},
    ),
    "virtual_group_needs_virtual_stages": Rule(
        lambda _, layout: layout.virtual_pipeline > 1 or layout.virtual_group == layout.pipeline
    ),
    "model_offload_needs_sharded_weights": Rule(lambda _, layout: layout.offload != "model" or layout.zero_stage == 3),
    "resharding_needs_sharded_weights": Rule(
        lambda _, layout: layout.zero_stage == 3 or not layout.reshard_after_forward
    ),
    "recompute_modules_exist": Rule(
        lambda w, _: not _unusable_modules(w),
        lambda w, _: {
            "needs": ", ".join(_SELECTIVE_NEEDS.get(m, m) for m in _unusable_modules(w)),
            "modules": ", ".join(_unusable_modules(w)),
        },
    ),
    "recompute_layers_are_in_the_stage": Rule(
        lambda w, layout: (w.recompute.layers or 1) <= _largest_chunk(w, layout),
        lambda w, layout: {"layers": _largest_chunk(w, layout)},
    ),
    "recompute_choices_fit_the_granularity": Rule(
        lambda w, _: (
            not (w.recompute.modules and w.recompute.granularity != "selective")
            and not (w.recompute.layers and w.recompute.granularity != "full")
            and not (w.recompute.method == "block" and w.recompute.granularity != "full")
        )
    ),
    "padding_needs_document_lengths": Rule(
        lambda w, _: w.recipe.batching == "packed" or bool(w.recipe.document_lengths)
    ),
}


_ONLY_ON: dict[AttentionName, str] = {"flash-3": "Hopper", "flash-4": "Blackwell"}
"""The only generation that a kernel runs on."""


_NOT_ON: dict[AttentionName, tuple[str, ...]] = {
    "flash-1": ("Pascal", "Volta"),
    "flash-2": BEFORE_AMPERE,
    "cudnn": (*BEFORE_AMPERE, "CDNA2", "CDNA3", "CDNA4"),
}
"""Generations that lack the instructions of a kernel. Source: Dao-AILab/flash-attention README, CUDA support; NVIDIA
cuDNN support matrix (fused attention from Ampere on)."""


def _runs_fp8_attention(workload: Workload) -> bool:
    """Whether a measured kernel runs attention in fp8."""
    gains = fp8_attention_gains(workload.recipe.precision, workload.gpu, workload.model.head_width)
    return gains is not None and workload.kernel == "cudnn" and workload.implementation.uses_transformer_engine


def _fuses_experts(workload: Workload) -> bool:
    """Whether a kernel for both products of experts exists: in MXFP8 on Blackwell, for gated MLPs."""
    is_there = generation(workload.gpu).startswith("Blackwell") and workload.recipe.precision == "mxfp8"
    grouped = bool(workload.model.num_experts) and workload.software.grouped_experts
    return is_there and bool(grouped) and workload.model.gated_mlp and workload.implementation.uses_transformer_engine


def _kernel_problem(workload: Workload) -> str | None:
    """Reason why an attention kernel does not run on the GPU with the software; None where it runs."""
    kernel, architecture, software = workload.recipe.attention, generation(workload.gpu), workload.software
    if software.implementation not in IMPLEMENTATIONS[software.name]:
        return None
    if kernel in _ONLY_ON:
        is_there = architecture == _ONLY_ON[kernel]
        return None if is_there else f"{kernel} is written for {_ONLY_ON[kernel]}, and the GPU is {architecture}"
    if architecture in _NOT_ON.get(kernel, ()):
        return f"{kernel} does not run on {architecture}"
    calls_cudnn = workload.implementation.uses_transformer_engine or software.name == "torchtitan"
    if kernel != "cudnn" or calls_cudnn:
        return None
    return f"{software.name} with {software.implementation} operations does not call cuDNN's attention"


ATTENTION_RULES: dict[str, WorkloadRule] = {
    "kernel_runs_there": Rule(lambda w, _: _kernel_problem(w) is None, lambda w, _: {"reason": _kernel_problem(w)}),
}


LEAST_LIMIT_FRACTION = 0.2
"""Lowest power limit of a board over its rated power: 100 of 400 W for an A100 SXM, 200 of 700 W for an H100 SXM.
Source: nvidia-smi -q -d POWER of both (0.25, 0.29), and some room for others."""

MOST_RATIO = 10.0
"""Largest ratio of measured to predicted seconds of a step, or the reverse; beyond it one of them is of another
configuration or in another unit. Source: an assumption; a round figure."""


def _implausible(workload: Workload) -> str | None:
    """Text on the first measured step that is too far from its prediction; None where there is none."""
    for index, step in enumerate(workload.cluster.measured_steps):
        if not 1 / MOST_RATIO <= step.measured_seconds / step.predicted_seconds <= MOST_RATIO:
            return f"step {index} took {step.measured_seconds:g} s, and {step.predicted_seconds:g} s predicted"
    return None


MEASURED_RULES: dict[str, WorkloadRule] = {
    "power_limit_in_range": Rule(
        lambda w, _: (
            w.cluster.power_limit_watts is None
            or LEAST_LIMIT_FRACTION * w.gpu.board_watts <= w.cluster.power_limit_watts <= w.gpu.board_watts
        ),
        lambda w, _: {"watts": LEAST_LIMIT_FRACTION * w.gpu.board_watts},
    ),
    "measured_steps_plausible": Rule(
        lambda w, _: _implausible(w) is None, lambda w, _: {"reason": _implausible(w), "most_ratio": MOST_RATIO}
    ),
}
