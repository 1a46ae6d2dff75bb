"""Rules of the GPU and the software together: kernels, formats, power, and choices without effect."""

from service.estimator.complete import CompleteLayout
from service.estimator.model.build import recurrences_of
from service.estimator.parallelism.pipeline import partition_layers
from service.estimator.question import AttentionName, Gpu
from service.estimator.rule import Rule, WorkloadRule
from service.estimator.software.implementations import IMPLEMENTATIONS
from service.estimator.software.precision import PRECISIONS, Precision, peak_flop_per_s
from service.estimator.software.stacks import EVERY_AXIS, STACKS
from service.estimator.software.versions import generation
from service.estimator.workload import Workload

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


def _has_formats(gpu: Gpu, precision: Precision) -> bool:
    formats = (precision.matrix_format, precision.attention_format)
    return all(peak_flop_per_s(gpu, number_format) is not None for number_format in formats)


def _missing_formats(workload: Workload) -> str:
    formats = dict.fromkeys((workload.precision.matrix_format, workload.precision.attention_format))
    return " and ".join(name for name in formats if peak_flop_per_s(workload.gpu, name) is None)


def _gradient_format_fits(workload: Workload) -> bool:
    wanted = workload.recipe.gradient_dtype
    casts_weights = workload.precision.is_mixed and workload.stack.mixed_weights == "fp32"
    own = "fp32" if casts_weights else workload.precision.attention_format
    return wanted in (None, "fp32", own)


ABILITY_RULES: dict[str, WorkloadRule] = {
    "gpu_has_the_format": Rule(
        "recipe.precision",
        lambda w, _: _has_formats(w.gpu, w.precision),
        lambda w, _: f"the GPU has no published rate for {_missing_formats(w)} arithmetic, so no time can be given",
        lambda w, _: (
            f"use {', '.join(name for name in w.stack.precisions if _has_formats(w.gpu, PRECISIONS[name]))}, "
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


def _limit_fits(workload: Workload) -> bool:
    limit, rated = workload.cluster.power_limit_watts, workload.gpu.board_watts
    return limit is None or LEAST_LIMIT_FRACTION * rated <= limit <= rated


def _implausible(workload: Workload) -> str | None:
    """The first measured step that is too far from what was predicted, in words."""
    for index, step in enumerate(workload.cluster.measured_steps):
        if not 1 / MOST_RATIO <= step.measured_seconds / step.predicted_seconds <= MOST_RATIO:
            return f"step {index} took {step.measured_seconds:g} s, and {step.predicted_seconds:g} s predicted"
    return None


MEASURED_RULES: dict[str, WorkloadRule] = {
    "power_limit_in_range": Rule(
        "cluster.power_limit_watts",
        lambda w, _: _limit_fits(w),
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
"""Rules of the power limit and of measured steps."""
