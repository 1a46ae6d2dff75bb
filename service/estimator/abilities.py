"""Can the software and the GPU do what the question asks, and does every choice have an effect?"""

from service.estimator.job import Job
from service.estimator.precision import peak_flop_per_s
from service.estimator.question import Layout
from service.estimator.rules import Demand

_SELECTIVE_NEEDS = {"moe": "experts", "moe_act": "experts", "shared_experts": "shared experts", "mla_up_proj": "MLA"}


def _unusable_modules(job: Job) -> list[str]:
    names = {tag for ops in job.ledger.kinds for op in ops for tag in op.modules}
    return [module for module in job.recompute.modules if module not in names]


def _unknown_axes(job: Job, layout: Layout) -> list[str]:
    degrees = {
        "tensor": layout.tensor,
        "context": layout.context,
        "pipeline": layout.pipeline,
        "virtual_pipeline": layout.virtual_pipeline,
        "expert": layout.expert,
    }
    return [axis for axis, degree in degrees.items() if degree > 1 and axis not in job.stack.axes]


def _format_runs(job: Job) -> bool:
    formats = (job.precision.matrix_format, job.precision.attention_format)
    return all(peak_flop_per_s(job.gpu, number_format) is not None for number_format in formats)


def _gradient_format_fits(job: Job) -> bool:
    wanted = job.recipe.gradient_dtype
    if wanted is None:
        return True
    if job.precision.is_mixed and job.stack.mixed_weights == "fp32":
        return wanted == "fp32"
    halves = {"fp16": "bf16", "fp32": "none", "bf16": "fp16"}
    return wanted != halves.get(job.precision.attention_format)


DEMANDS: tuple[Demand[Job], ...] = (
    Demand(
        "gpu_has_the_format",
        "recipe.precision",
        lambda job, _: _format_runs(job),
        lambda job, _: (
            f"the GPU has no published rate for {job.precision.matrix_format} matrix products, so no time can be given",
            "use another precision, or a GPU that has the format",
        ),
    ),
    Demand(
        "stack_runs_the_precision",
        "recipe.precision",
        lambda job, _: job.recipe.precision in job.stack.precisions,
        lambda job, _: (
            f"{job.recipe.stack} does not train in {job.recipe.precision}",
            f"use {', '.join(job.stack.precisions)}",
        ),
    ),
    Demand(
        "stack_accumulates_in_the_format",
        "recipe.gradient_dtype",
        lambda job, _: _gradient_format_fits(job),
        lambda job, _: (
            f"{job.recipe.stack} under {job.recipe.precision} cannot keep gradients in {job.recipe.gradient_dtype}",
            "leave gradient_dtype out to take the stack's own",
        ),
    ),
    Demand(
        "stack_has_the_axis",
        "layout",
        lambda job, layout: not _unknown_axes(job, layout),
        lambda job, layout: (
            f"{job.recipe.stack} cannot split over {', '.join(_unknown_axes(job, layout))}",
            f"it can split over data{''.join(', ' + axis for axis in job.stack.axes)}; or name another stack",
        ),
    ),
    Demand(
        "stack_shards_so",
        "layout.zero_stage",
        lambda job, layout: layout.zero_stage in job.stack.zero_stages,
        lambda job, layout: (
            f"{job.recipe.stack} has no ZeRO stage {layout.zero_stage}",
            f"use {', '.join(map(str, sorted(job.stack.zero_stages)))}",
        ),
    ),
    Demand(
        "stack_runs_the_schedule",
        "layout.schedule",
        lambda job, layout: layout.schedule in job.stack.schedules,
        lambda job, layout: (
            f"{job.recipe.stack} cannot run the schedule {layout.schedule}",
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
            or (len(layout.stage_layers) == layout.pipeline and sum(layout.stage_layers) == job.model.num_hidden_layers)
        ),
        lambda job, layout: (
            f"stage_layers has {len(layout.stage_layers or ())} stages and {sum(layout.stage_layers or ())} layers; "
            f"the layout has {layout.pipeline} and the model {job.model.num_hidden_layers}",
            f"give {layout.pipeline} numbers that sum to {job.model.num_hidden_layers}",
        ),
    ),
    Demand(
        "stage_layers_without_chunks",
        "layout.stage_layers",
        lambda _, layout: layout.stage_layers is None or layout.virtual_pipeline == 1,
        lambda _, __: ("stage_layers says nothing of how virtual stages share them", "use virtual_pipeline 1"),
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
        "recompute_choices_fit_the_granularity",
        "recipe.recompute",
        lambda job, _: (
            not (job.recompute.modules and job.recompute.granularity != "selective")
            and not (job.recompute.layers and job.recompute.granularity != "full")
        ),
        lambda _, __: (
            "modules belong to selective recompute, and layers to full recompute",
            "give only what the granularity uses",
        ),
    ),
)
