"""Demands on the GPU and the software together: kernels, formats, power, and choices without effect."""

from service.estimator.complete import CompleteLayout
from service.estimator.model.build import recurrences_of
from service.estimator.names import AttentionName
from service.estimator.parallelism.pipeline import partition_layers
from service.estimator.question import Gpu, MeasuredStep
from service.estimator.rule import Demand
from service.estimator.software.implementations import IMPLEMENTATIONS
from service.estimator.software.precision import PRECISIONS, Precision, peak_flop_per_s
from service.estimator.software.stacks import STACKS, Stack
from service.estimator.software.versions import generation
from service.estimator.workload import Workload

AXES = ("tensor", "context", "pipeline", "virtual_pipeline", "expert", "expert_tensor")
"""Axes that a stack may lack; `Stack.axes` names those it has."""

_SELECTIVE_NEEDS = {"moe": "experts", "moe_act": "experts", "shared_experts": "shared experts", "mla_up_proj": "MLA"}


def _largest_chunk(workload: Workload, layout: CompleteLayout) -> int:
    if layout.stage_layers is not None:
        return max(layout.stage_layers)
    return -(-workload.model.num_hidden_layers // (layout.pipeline * layout.virtual_pipeline))


def _chunks(layout: CompleteLayout) -> int:
    return layout.pipeline * layout.virtual_pipeline


def _counts_ends(layout: CompleteLayout) -> bool:
    return layout.embedding_in_split or layout.loss_in_split


def _unusable_modules(workload: Workload) -> list[str]:
    names = {tag for ops in workload.ledger.kinds for op in ops for tag in op.modules}
    return [module for module in workload.recompute.modules if module not in names and module != "op"]


def _unknown_axes(workload: Workload, layout: CompleteLayout) -> list[str]:
    question = {axis: getattr(layout, axis) or 1 for axis in AXES}
    split_as_every_mlp = layout.expert == 1 and layout.expert_tensor == layout.tensor
    if split_as_every_mlp or not workload.model.num_experts:
        del question["expert_tensor"]
    return [axis for axis, degree in question.items() if degree > 1 and axis not in workload.stack.axes]


def _unknown_layers(workload: Workload) -> list[str]:
    return [mixer for mixer in recurrences_of(workload.model) if mixer not in workload.stack.recurrences]


def _lacks_no_layer(workload: Workload, stack: Stack) -> bool:
    return set(recurrences_of(workload.model)) <= set(stack.recurrences)


def _has_formats(gpu: Gpu, precision: Precision) -> bool:
    formats = (precision.matrix_format, precision.attention_format)
    return all(peak_flop_per_s(gpu, number_format) is not None for number_format in formats)


def _runnable(workload: Workload) -> list[str]:
    """Precision recipes that both the GPU and the stack can run."""
    return [name for name in workload.stack.precisions if _has_formats(workload.gpu, PRECISIONS[name])]


def _missing_formats(workload: Workload) -> str:
    formats = dict.fromkeys((workload.precision.matrix_format, workload.precision.attention_format))
    return " and ".join(name for name in formats if peak_flop_per_s(workload.gpu, name) is None)


def _gradient_format_fits(workload: Workload) -> bool:
    wanted = workload.recipe.gradient_dtype
    casts_weights = workload.precision.is_mixed and workload.stack.mixed_weights == "fp32"
    own = "fp32" if casts_weights else workload.precision.attention_format
    return wanted in (None, "fp32", own)


ABILITY_DEMANDS: tuple[Demand[Workload], ...] = (
    Demand(
        "gpu_has_the_format",
        "recipe.precision",
        lambda workload, _: _has_formats(workload.gpu, workload.precision),
        lambda workload, _: (
            f"the GPU has no published rate for {_missing_formats(workload)} arithmetic, so no time can be given",
            f"use {', '.join(_runnable(workload))}, or a GPU that has the format",
        ),
    ),
    Demand(
        "stack_runs_the_precision",
        "recipe.precision",
        lambda workload, _: workload.recipe.precision in workload.stack.precisions,
        lambda workload, _: (
            f"{workload.software.name} does not train in {workload.recipe.precision}",
            f"use {', '.join(workload.stack.precisions)}",
        ),
    ),
    Demand(
        "stack_accumulates_in_the_format",
        "recipe.gradient_dtype",
        lambda workload, _: _gradient_format_fits(workload),
        lambda workload, _: (
            f"{workload.software.name} under {workload.recipe.precision} cannot keep gradients in "
            f"{workload.recipe.gradient_dtype}",
            "leave gradient_dtype out to take the stack's own",
        ),
    ),
    Demand(
        "stack_has_the_layers",
        "recipe.stack",
        lambda workload, _: not _unknown_layers(workload),
        lambda workload, _: (
            f"{workload.software.name} has no {' and no '.join(_unknown_layers(workload))} layers",
            f"use {' or '.join(name for name, row in STACKS.items() if _lacks_no_layer(workload, row))}",
        ),
    ),
    Demand(
        "stack_has_the_axis",
        "layout",
        lambda workload, layout: not _unknown_axes(workload, layout),
        lambda workload, layout: (
            f"{workload.software.name} cannot split over {', '.join(_unknown_axes(workload, layout))}",
            f"it can split over data{''.join(', ' + axis for axis in workload.stack.axes)}; or name another stack",
        ),
    ),
    Demand(
        "stack_shards_so",
        "layout.zero_stage",
        lambda workload, layout: layout.zero_stage in workload.stack.zero_stages,
        lambda workload, layout: (
            f"{workload.software.name} has no ZeRO stage {layout.zero_stage}",
            f"use {', '.join(map(str, sorted(workload.stack.zero_stages)))}",
        ),
    ),
    Demand(
        "stack_shards_so_in_a_pipeline",
        "layout.zero_stage",
        lambda workload, layout: layout.pipeline == 1 or layout.zero_stage in workload.stack.pipeline_zero_stages,
        lambda workload, layout: (
            f"{workload.software.name} cannot combine ZeRO stage {layout.zero_stage} with a pipeline",
            f"use {' or '.join(map(str, workload.stack.pipeline_zero_stages))} with it, or pipeline 1",
        ),
    ),
    Demand(
        "stack_exchanges_context_so",
        "layout.context_method",
        lambda workload, layout: layout.context == 1 or layout.context_method in workload.stack.context_methods,
        lambda workload, layout: (
            f"{workload.software.name} cannot exchange keys and values by {layout.context_method}",
            f"use {', '.join(workload.stack.context_methods)}",
        ),
    ),
    Demand(
        "stack_splits_norms",
        "layout.sequence_parallel",
        lambda workload, layout: workload.stack.splits_norms or not layout.sequence_parallel,
        lambda workload, _: (
            f"{workload.software.name} keeps norms whole on every tensor rank",
            "leave sequence_parallel out or set it to false",
        ),
    ),
    Demand(
        "expert_tensor_needs_experts",
        "layout.expert_tensor",
        lambda workload, layout: bool(workload.model.num_experts) or layout.expert_tensor in (1, layout.tensor),
        lambda _, __: ("expert_tensor splits experts, and the model has none", "leave expert_tensor out"),
    ),
    Demand(
        "stack_runs_the_schedule",
        "layout.schedule",
        lambda workload, layout: layout.schedule in workload.stack.schedules,
        lambda workload, layout: (
            f"{workload.software.name} cannot run the schedule {layout.schedule}",
            f"use {', '.join(workload.stack.schedules)}",
        ),
    ),
    Demand(
        "interleaving_has_chunks",
        "layout.schedule",
        lambda _, layout: (layout.schedule == "interleaved-1f1b") == (layout.virtual_pipeline > 1),
        lambda _, layout: (
            f"virtual_pipeline {layout.virtual_pipeline} and schedule {layout.schedule} do not belong together",
            "interleaved-1f1b needs virtual_pipeline above 1, and only it can use that",
        ),
    ),
    Demand(
        "stage_layers_cover_the_model",
        "layout.stage_layers",
        lambda workload, layout: (
            layout.stage_layers is None
            or (
                len(layout.stage_layers) == _chunks(layout)
                and sum(layout.stage_layers) == workload.model.num_hidden_layers
            )
        ),
        lambda workload, layout: (
            f"stage_layers has {len(layout.stage_layers or ())} numbers and {sum(layout.stage_layers or ())} layers; "
            f"the layout has {_chunks(layout)} stages or virtual stages and the model "
            f"{workload.model.num_hidden_layers}",
            f"give {_chunks(layout)} numbers that sum to {workload.model.num_hidden_layers}",
        ),
    ),
    Demand(
        "stage_layers_or_ends_in_split",
        "layout.stage_layers",
        lambda workload, layout: (
            layout.stage_layers is None
            or not _counts_ends(layout)
            or workload.stack.partitions_by_cost
            or partition_layers(layout, workload.model) == layout.stage_layers
        ),
        lambda _, __: (
            "stage_layers says how layers are dealt, and so do embedding_in_split and loss_in_split, and they differ",
            "give stage_layers alone, or leave it out",
        ),
    ),
    Demand(
        "stack_counts_ends_in_split",
        "layout.embedding_in_split",
        lambda workload, layout: not (_counts_ends(layout) and workload.stack.partitions_by_cost),
        lambda workload, _: (
            f"{workload.software.name} deals layers by their cost, whatever counts as a layer",
            "leave embedding_in_split and loss_in_split out, or give stage_layers instead",
        ),
    ),
    Demand(
        "ends_in_split_fill_the_stages",
        "layout.embedding_in_split",
        lambda _, layout: not _counts_ends(layout) or layout.stage_layers is not None,
        lambda workload, layout: (
            f"{workload.model.num_hidden_layers} layers and {layout.embedding_in_split + layout.loss_in_split} ends "
            "do not "
            f"fill {_chunks(layout)} stages or virtual stages evenly",
            "change pipeline or virtual_pipeline, or give stage_layers instead",
        ),
    ),
    Demand(
        "virtual_group_needs_virtual_stages",
        "layout.virtual_group",
        lambda _, layout: layout.virtual_pipeline > 1 or layout.virtual_group == layout.pipeline,
        lambda _, __: (
            "virtual_group orders the chunks of virtual stages, and there are none",
            "leave virtual_group out, or set virtual_pipeline above 1",
        ),
    ),
    Demand(
        "model_offload_needs_sharded_weights",
        "layout.offload",
        lambda _, layout: layout.offload != "model" or layout.zero_stage == 3,
        lambda _, layout: (
            f"a model leaves the device layer by layer, and ZeRO stage {layout.zero_stage} keeps every weight on it",
            "set zero_stage to 3, or offload the optimizer alone",
        ),
    ),
    Demand(
        "resharding_needs_sharded_weights",
        "layout.reshard_after_forward",
        lambda _, layout: layout.zero_stage == 3 or not layout.reshard_after_forward,
        lambda _, layout: (
            f"ZeRO stage {layout.zero_stage} keeps whole weights, so there is nothing to free after the forward pass",
            "use zero_stage 3, or leave reshard_after_forward out",
        ),
    ),
    Demand(
        "recompute_modules_exist",
        "recipe.recompute",
        lambda workload, _: not _unusable_modules(workload),
        lambda workload, _: (
            f"the model has no {', '.join(_SELECTIVE_NEEDS.get(m, m) for m in _unusable_modules(workload))} to "
            "recompute",
            f"leave {', '.join(_unusable_modules(workload))} out of modules",
        ),
    ),
    Demand(
        "recompute_layers_are_in_the_stage",
        "recipe.recompute",
        lambda workload, layout: (workload.recompute.layers or 1) <= _largest_chunk(workload, layout),
        lambda workload, layout: (
            f"recompute names {workload.recompute.layers} layers, and a stage holds "
            f"{_largest_chunk(workload, layout)} at once",
            f"use at most {_largest_chunk(workload, layout)}",
        ),
    ),
    Demand(
        "recompute_choices_fit_the_granularity",
        "recipe.recompute",
        lambda workload, _: (
            not (workload.recompute.modules and workload.recompute.granularity != "selective")
            and not (workload.recompute.layers and workload.recompute.granularity != "full")
            and not (workload.recompute.method == "block" and workload.recompute.granularity != "full")
        ),
        lambda _, __: (
            "modules belong to selective recompute, method and layers to full recompute",
            "give only what the granularity uses",
        ),
    ),
    Demand(
        "padding_needs_document_lengths",
        "recipe.batching",
        lambda workload, _: workload.recipe.batching == "packed" or bool(workload.recipe.document_lengths),
        lambda _, __: (
            "without document_lengths every sequence is one document, so nothing is padded",
            "give document_lengths, or leave batching out",
        ),
    ),
)


_WRITTEN_FOR: dict[AttentionName, str] = {"flash-3": "Hopper", "flash-4": "Blackwell"}
"""Generation that a kernel is written for, where it runs on no other."""


_RUNS_NOT_ON: dict[AttentionName, tuple[str, ...]] = {
    "flash-1": ("Pascal", "Volta"),
    "flash-2": ("Pascal", "Volta", "Turing"),
    "cudnn": ("Pascal", "Volta", "Turing", "CDNA2", "CDNA3", "CDNA4"),
}
"""Generations that lack the instructions of a kernel. Source: Dao-AILab/flash-attention README, CUDA support; NVIDIA
cuDNN support matrix (fused attention from Ampere on)."""


def _lacks_no_kernel(workload: Workload, _: CompleteLayout) -> bool:
    if workload.software.implementation not in IMPLEMENTATIONS[workload.software.name]:
        return True
    if workload.recipe.attention in _WRITTEN_FOR:
        return generation(workload.gpu) == _WRITTEN_FOR[workload.recipe.attention]
    if generation(workload.gpu) in _RUNS_NOT_ON.get(workload.recipe.attention, ()):
        return False
    return workload.recipe.attention != "cudnn" or _runs_cudnn(workload)


def _runs_cudnn(workload: Workload) -> bool:
    return workload.implementation.uses_transformer_engine or workload.software.name == "torchtitan"


def _missing_kernel(workload: Workload, _: CompleteLayout) -> tuple[str, str]:
    if written := _WRITTEN_FOR.get(workload.recipe.attention):
        message = f"{workload.recipe.attention} is written for {written}, and the GPU is {generation(workload.gpu)}"
    elif generation(workload.gpu) in _RUNS_NOT_ON.get(workload.recipe.attention, ()):
        message = f"{workload.recipe.attention} does not run on {generation(workload.gpu)}"
    else:
        run = workload.software
        message = f"{run.name} with {run.implementation} operations does not call cuDNN's attention"
    return message, "use flash to take the kernel that runs there"


ATTENTION_DEMANDS = (Demand("kernel_runs_there", "recipe.attention", _lacks_no_kernel, _missing_kernel),)
"""What the attention kernel of a job has to meet."""


LEAST_LIMIT_FRACTION = 0.2
"""Least limit that a board takes over its rated power: 100 of 400 W for an A100 SXM, 200 of 700 W for an H100 SXM.
Source: nvidia-smi -q -d POWER of both (0.25, 0.29), and some room for others."""


def _in_range(workload: Workload, _: CompleteLayout) -> bool:
    limit, rated = workload.cluster.power_limit_watts, workload.gpu.board_watts
    return limit is None or LEAST_LIMIT_FRACTION * rated <= limit <= rated


def _words(workload: Workload, _: CompleteLayout) -> tuple[str, str]:
    rated = workload.gpu.board_watts
    return (
        f"power_limit_watts {workload.cluster.power_limit_watts:g} is outside what a board of {rated:g} W can be held "
        "to",
        f"use {LEAST_LIMIT_FRACTION * rated:g} to {rated:g}, or leave it out",
    )


POWER_DEMANDS = (Demand("power_limit_in_range", "cluster.power_limit_watts", _in_range, _words),)
"""What the power of a job has to meet."""


MOST_RATIO = 10.0
"""Measured over predicted seconds of a step, or the other way round, beyond which one of them is of another
configuration or in another unit. Source: an assumption; a round figure."""


def _implausible(workload: Workload) -> list[tuple[int, MeasuredStep]]:
    return [
        (index, step)
        for index, step in enumerate(workload.cluster.measured_steps)
        if not 1 / MOST_RATIO <= step.measured_seconds / step.predicted_seconds <= MOST_RATIO
    ]


def _plausible(workload: Workload, _: CompleteLayout) -> bool:
    return not (workload.cluster.measured_steps and _implausible(workload))


def _measured_words(workload: Workload, _: CompleteLayout) -> tuple[str, str]:
    index, step = _implausible(workload)[0]
    return (
        f"measured step {index} took {step.measured_seconds:g} s, and {step.predicted_seconds:g} s predicted: more "
        f"than {MOST_RATIO:g} times apart, so one of them is of another configuration or in another unit",
        "give seconds of the same step in both, or leave it out",
    )


MEASURED_DEMANDS = (Demand("measured_steps_plausible", "cluster.measured_steps", _plausible, _measured_words),)
"""What measured steps have to meet."""
