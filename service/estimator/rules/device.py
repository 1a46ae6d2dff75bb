"""Demands on the GPU and the software together: kernels, formats, power, and choices without effect."""

from service.estimator.model.build import recurrences_of
from service.estimator.names import AttentionName
from service.estimator.parallelism.pipeline import dealt_layers
from service.estimator.question import Gpu, Layout, MeasuredStep
from service.estimator.rule import Demand
from service.estimator.software.implementations import IMPLEMENTATIONS
from service.estimator.software.precision import PRECISIONS, Precision, peak_flop_per_s
from service.estimator.software.stacks import STACKS, Stack
from service.estimator.software.versions import generation
from service.estimator.workload import Job

AXES = ("tensor", "context", "pipeline", "virtual_pipeline", "expert", "expert_tensor")
"""Axes that a stack may lack; `Stack.axes` names those it has."""

_SELECTIVE_NEEDS = {"moe": "experts", "moe_act": "experts", "shared_experts": "shared experts", "mla_up_proj": "MLA"}


def _largest_chunk(job: Job, layout: Layout) -> int:
    if layout.stage_layers is not None:
        return max(layout.stage_layers)
    return -(-job.model.num_hidden_layers // (layout.pipeline * layout.virtual_pipeline))


def _chunks(layout: Layout) -> int:
    return layout.pipeline * layout.virtual_pipeline


def _counts_ends(layout: Layout) -> bool:
    return layout.embedding_in_split or layout.loss_in_split


def _unusable_modules(job: Job) -> list[str]:
    names = {tag for ops in job.ledger.kinds for op in ops for tag in op.modules}
    return [module for module in job.recompute.modules if module not in names and module != "op"]


def _unknown_axes(job: Job, layout: Layout) -> list[str]:
    asked = {axis: getattr(layout, axis) or 1 for axis in AXES}
    split_as_every_mlp = layout.expert == 1 and layout.expert_tensor == layout.tensor
    if split_as_every_mlp or not job.model.num_experts:
        del asked["expert_tensor"]
    return [axis for axis, degree in asked.items() if degree > 1 and axis not in job.stack.axes]


def _unknown_layers(job: Job) -> list[str]:
    return [mixer for mixer in recurrences_of(job.model) if mixer not in job.stack.recurrences]


def _lacks_no_layer(job: Job, stack: Stack) -> bool:
    return set(recurrences_of(job.model)) <= set(stack.recurrences)


def _has_formats(gpu: Gpu, precision: Precision) -> bool:
    formats = (precision.matrix_format, precision.attention_format)
    return all(peak_flop_per_s(gpu, number_format) is not None for number_format in formats)


def _runnable(job: Job) -> list[str]:
    """Precision recipes that both the GPU and the stack can run."""
    return [name for name in job.stack.precisions if _has_formats(job.gpu, PRECISIONS[name])]


def _missing_formats(job: Job) -> str:
    formats = dict.fromkeys((job.precision.matrix_format, job.precision.attention_format))
    return " and ".join(name for name in formats if peak_flop_per_s(job.gpu, name) is None)


def _gradient_format_fits(job: Job) -> bool:
    wanted = job.recipe.gradient_dtype
    casts_weights = job.precision.is_mixed and job.stack.mixed_weights == "fp32"
    own = "fp32" if casts_weights else job.precision.attention_format
    return wanted in (None, "fp32", own)


ABILITY_DEMANDS: tuple[Demand[Job], ...] = (
    Demand(
        "gpu_has_the_format",
        "recipe.precision",
        lambda job, _: _has_formats(job.gpu, job.precision),
        lambda job, _: (
            f"the GPU has no published rate for {_missing_formats(job)} arithmetic, so no time can be given",
            f"use {', '.join(_runnable(job))}, or a GPU that has the format",
        ),
    ),
    Demand(
        "stack_runs_the_precision",
        "recipe.precision",
        lambda job, _: job.recipe.precision in job.stack.precisions,
        lambda job, _: (
            f"{job.software.name} does not train in {job.recipe.precision}",
            f"use {', '.join(job.stack.precisions)}",
        ),
    ),
    Demand(
        "stack_accumulates_in_the_format",
        "recipe.gradient_dtype",
        lambda job, _: _gradient_format_fits(job),
        lambda job, _: (
            f"{job.software.name} under {job.recipe.precision} cannot keep gradients in {job.recipe.gradient_dtype}",
            "leave gradient_dtype out to take the stack's own",
        ),
    ),
    Demand(
        "stack_has_the_layers",
        "recipe.stack",
        lambda job, _: not _unknown_layers(job),
        lambda job, _: (
            f"{job.software.name} has no {' and no '.join(_unknown_layers(job))} layers",
            f"use {' or '.join(name for name, row in STACKS.items() if _lacks_no_layer(job, row))}",
        ),
    ),
    Demand(
        "stack_has_the_axis",
        "layout",
        lambda job, layout: not _unknown_axes(job, layout),
        lambda job, layout: (
            f"{job.software.name} cannot split over {', '.join(_unknown_axes(job, layout))}",
            f"it can split over data{''.join(', ' + axis for axis in job.stack.axes)}; or name another stack",
        ),
    ),
    Demand(
        "stack_shards_so",
        "layout.zero_stage",
        lambda job, layout: layout.zero_stage in job.stack.zero_stages,
        lambda job, layout: (
            f"{job.software.name} has no ZeRO stage {layout.zero_stage}",
            f"use {', '.join(map(str, sorted(job.stack.zero_stages)))}",
        ),
    ),
    Demand(
        "stack_shards_so_in_a_pipeline",
        "layout.zero_stage",
        lambda job, layout: layout.pipeline == 1 or layout.zero_stage in job.stack.pipeline_zero_stages,
        lambda job, layout: (
            f"{job.software.name} cannot combine ZeRO stage {layout.zero_stage} with a pipeline",
            f"use {' or '.join(map(str, job.stack.pipeline_zero_stages))} with it, or pipeline 1",
        ),
    ),
    Demand(
        "stack_exchanges_context_so",
        "layout.context_method",
        lambda job, layout: layout.context == 1 or layout.context_method in job.stack.context_methods,
        lambda job, layout: (
            f"{job.software.name} cannot exchange keys and values by {layout.context_method}",
            f"use {', '.join(job.stack.context_methods)}",
        ),
    ),
    Demand(
        "stack_splits_norms",
        "layout.sequence_parallel",
        lambda job, layout: job.stack.splits_norms or not layout.sequence_parallel,
        lambda job, _: (
            f"{job.software.name} keeps norms whole on every tensor rank",
            "leave sequence_parallel out or set it to false",
        ),
    ),
    Demand(
        "expert_tensor_needs_experts",
        "layout.expert_tensor",
        lambda job, layout: bool(job.model.num_experts) or layout.expert_tensor in (1, layout.tensor),
        lambda _, __: ("expert_tensor splits experts, and the model has none", "leave expert_tensor out"),
    ),
    Demand(
        "stack_runs_the_schedule",
        "layout.schedule",
        lambda job, layout: layout.schedule in job.stack.schedules,
        lambda job, layout: (
            f"{job.software.name} cannot run the schedule {layout.schedule}",
            f"use {', '.join(job.stack.schedules)}",
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
        lambda job, layout: (
            layout.stage_layers is None
            or (len(layout.stage_layers) == _chunks(layout) and sum(layout.stage_layers) == job.model.num_hidden_layers)
        ),
        lambda job, layout: (
            f"stage_layers has {len(layout.stage_layers or ())} numbers and {sum(layout.stage_layers or ())} layers; "
            f"the layout has {_chunks(layout)} stages or virtual stages and the model {job.model.num_hidden_layers}",
            f"give {_chunks(layout)} numbers that sum to {job.model.num_hidden_layers}",
        ),
    ),
    Demand(
        "stage_layers_or_ends_in_split",
        "layout.stage_layers",
        lambda job, layout: (
            layout.stage_layers is None
            or not _counts_ends(layout)
            or job.stack.deals_by_cost
            or dealt_layers(layout, job.model) == layout.stage_layers
        ),
        lambda _, __: (
            "stage_layers says how layers are dealt, and so do embedding_in_split and loss_in_split, and they differ",
            "give stage_layers alone, or leave it out",
        ),
    ),
    Demand(
        "stack_counts_ends_in_split",
        "layout.embedding_in_split",
        lambda job, layout: not (_counts_ends(layout) and job.stack.deals_by_cost),
        lambda job, _: (
            f"{job.software.name} deals layers by their cost, whatever counts as a layer",
            "leave embedding_in_split and loss_in_split out, or give stage_layers instead",
        ),
    ),
    Demand(
        "ends_in_split_fill_the_stages",
        "layout.embedding_in_split",
        lambda _, layout: not _counts_ends(layout) or layout.stage_layers is not None,
        lambda job, layout: (
            f"{job.model.num_hidden_layers} layers and {layout.embedding_in_split + layout.loss_in_split} ends do not "
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
        lambda job, _: not _unusable_modules(job),
        lambda job, _: (
            f"the model has no {', '.join(_SELECTIVE_NEEDS.get(m, m) for m in _unusable_modules(job))} to recompute",
            f"leave {', '.join(_unusable_modules(job))} out of modules",
        ),
    ),
    Demand(
        "recompute_layers_are_in_the_stage",
        "recipe.recompute",
        lambda job, layout: (job.recompute.layers or 1) <= _largest_chunk(job, layout),
        lambda job, layout: (
            f"recompute names {job.recompute.layers} layers, and a stage holds {_largest_chunk(job, layout)} at once",
            f"use at most {_largest_chunk(job, layout)}",
        ),
    ),
    Demand(
        "recompute_choices_fit_the_granularity",
        "recipe.recompute",
        lambda job, _: (
            not (job.recompute.modules and job.recompute.granularity != "selective")
            and not (job.recompute.layers and job.recompute.granularity != "full")
            and not (job.recompute.method == "block" and job.recompute.granularity != "full")
        ),
        lambda _, __: (
            "modules belong to selective recompute, method and layers to full recompute",
            "give only what the granularity uses",
        ),
    ),
    Demand(
        "padding_needs_document_lengths",
        "recipe.batching",
        lambda job, _: job.recipe.batching == "packed" or bool(job.recipe.document_lengths),
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


def _lacks_no_kernel(job: Job, _: Layout) -> bool:
    if job.software.implementation not in IMPLEMENTATIONS[job.software.name]:
        return True
    if job.recipe.attention in _WRITTEN_FOR:
        return generation(job.gpu) == _WRITTEN_FOR[job.recipe.attention]
    if generation(job.gpu) in _RUNS_NOT_ON.get(job.recipe.attention, ()):
        return False
    return job.recipe.attention != "cudnn" or _runs_cudnn(job)


def _runs_cudnn(job: Job) -> bool:
    return job.implementation.uses_transformer_engine or job.software.name == "torchtitan"


def _missing_kernel(job: Job, _: Layout) -> tuple[str, str]:
    if written := _WRITTEN_FOR.get(job.recipe.attention):
        message = f"{job.recipe.attention} is written for {written}, and the GPU is {generation(job.gpu)}"
    elif generation(job.gpu) in _RUNS_NOT_ON.get(job.recipe.attention, ()):
        message = f"{job.recipe.attention} does not run on {generation(job.gpu)}"
    else:
        run = job.software
        message = f"{run.name} with {run.implementation} operations does not call cuDNN's attention"
    return message, "use flash to take the kernel that runs there"


ATTENTION_DEMANDS = (Demand("kernel_runs_there", "recipe.attention", _lacks_no_kernel, _missing_kernel),)
"""What the attention kernel of a job has to meet."""


LEAST_LIMIT_FRACTION = 0.2
"""Least limit that a board takes over its rated power: 100 of 400 W for an A100 SXM, 200 of 700 W for an H100 SXM.
Source: nvidia-smi -q -d POWER of both (0.25, 0.29), and some room for others."""


def _in_range(job: Job, _: Layout) -> bool:
    limit, rated = job.cluster.power_limit_watts, job.gpu.board_watts
    return limit is None or LEAST_LIMIT_FRACTION * rated <= limit <= rated


def _words(job: Job, _: Layout) -> tuple[str, str]:
    rated = job.gpu.board_watts
    return (
        f"power_limit_watts {job.cluster.power_limit_watts:g} is outside what a board of {rated:g} W can be held to",
        f"use {LEAST_LIMIT_FRACTION * rated:g} to {rated:g}, or leave it out",
    )


POWER_DEMANDS = (Demand("power_limit_in_range", "cluster.power_limit_watts", _in_range, _words),)
"""What the power of a job has to meet."""


MOST_RATIO = 10.0
"""Measured over predicted seconds of a step, or the other way round, beyond which one of them is of another
configuration or in another unit. Source: an assumption; a round figure."""


def _implausible(job: Job) -> list[tuple[int, MeasuredStep]]:
    return [
        (index, step)
        for index, step in enumerate(job.cluster.measured_steps)
        if not 1 / MOST_RATIO <= step.measured_seconds / step.predicted_seconds <= MOST_RATIO
    ]


def _plausible(job: Job, _: Layout) -> bool:
    return not (job.cluster.measured_steps and _implausible(job))


def _measured_words(job: Job, _: Layout) -> tuple[str, str]:
    index, step = _implausible(job)[0]
    return (
        f"measured step {index} took {step.measured_seconds:g} s, and {step.predicted_seconds:g} s predicted: more "
        f"than {MOST_RATIO:g} times apart, so one of them is of another configuration or in another unit",
        "give seconds of the same step in both, or leave it out",
    )


MEASURED_DEMANDS = (Demand("measured_steps_plausible", "cluster.measured_steps", _plausible, _measured_words),)
"""What measured steps have to meet."""
