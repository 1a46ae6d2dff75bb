"""Can these parts be trained so: are there such parts, does something train, can the stack and the schedule do it?"""

from service.estimator.job import Job
from service.estimator.names import MatrixName, PartName
from service.estimator.rules import Demand
from service.estimator.stacks import STACKS
from service.estimator.training import part_of, trains_everything

_SPLIT_BACKWARD = ("zero-bubble", "dualpipe")
"""Schedules that fill the bubble with gradients of weights."""


def _matrices(job: Job) -> tuple[MatrixName, ...]:
    groups = (ops for _, ops in job.ledger.groups())
    weights = (weight for ops in groups for op in ops for weight in op.weights if weight.role in ("matrix", "head"))
    return tuple(dict.fromkeys(name for weight in weights for name in weight.matrices))


def _parts(job: Job) -> tuple[PartName, ...]:
    pairs = ((op, weight) for _, ops in job.ledger.groups() for op in ops for weight in op.weights)
    return tuple(part for part in dict.fromkeys(part_of(op, weight) for op, weight in pairs) if part is not None)


def _missing_targets(job: Job) -> list[str]:
    known = _matrices(job)
    return [name for name in job.method.targets if name not in known]


def _missing_parts(job: Job) -> list[str]:
    named = (*job.method.frozen, *job.method.whole)
    known = _parts(job) if named else ()
    return [name for name in named if name not in known]


def _something_trains(job: Job) -> bool:
    return any(weight.trained for _, ops in job.ledger.groups() for op in ops for weight in op.weights)


def _tied_tables_agree(job: Job) -> bool:
    named = (*job.method.frozen, *job.method.whole)
    return not job.model.tie_word_embeddings or ("embedding" in named) == ("head" in named)


def _whole_targets(job: Job) -> dict[MatrixName, tuple[PartName, ...]]:
    """Targets that stand in no part but those that are trained whole, each with these parts."""
    if not job.method.targets or not job.method.whole:
        return {}
    parts: dict[MatrixName, set[PartName | None]] = {name: set() for name in job.method.targets}
    pairs = ((op, weight) for _, ops in job.ledger.groups() for op in ops for weight in op.weights)
    for op, weight in pairs:
        for name in parts.keys() & (weight.matrices if weight.role in ("matrix", "head") else ()):
            parts[name].add(part_of(op, weight))
    return {
        name: tuple(part for part in job.method.whole if part in found)
        for name, found in parts.items()
        if found and found <= {*job.method.whole}
    }


def _adapted_parts(job: Job) -> str:
    return ", ".join(dict.fromkeys(part for parts in _whole_targets(job).values() for part in parts))


def _twice(job: Job) -> str:
    return " and ".join(f"{name} is a matrix of {' and '.join(parts)}" for name, parts in _whole_targets(job).items())


DEMANDS: tuple[Demand[Job], ...] = (
    Demand(
        "method_choices_fit_its_name",
        "recipe.method",
        lambda job, _: (
            not (job.method.frozen or job.method.frozen_layers)
            if job.method.name != "full"
            else not (job.method.rank or job.method.targets or job.method.whole)
        ),
        lambda job, _: (
            f"{job.method.name} does not use all that is given: rank, targets and whole belong to lora and qlora, "
            "which freeze all else, and frozen and frozen_layers to full",
            "give only what the method uses",
        ),
    ),
    Demand(
        "quantization_belongs_to_qlora",
        "recipe.method.quantization",
        lambda job, _: job.method.quantization is None or job.method.name == "qlora",
        lambda job, _: (
            f"{job.method.name} keeps frozen matrices in the compute format, so none is quantised",
            "use method qlora, or leave quantization out",
        ),
    ),
    Demand(
        "stack_quantizes",
        "recipe.method",
        lambda job, _: job.method.name != "qlora" or job.stack.quantizes,
        lambda job, _: (
            f"{job.software.name} multiplies by no 4-bit matrices",
            f"use {' or '.join(name for name, row in STACKS.items() if row.quantizes)}, or method lora",
        ),
    ),
    Demand(
        "adapters_have_targets",
        "recipe.method.targets",
        lambda job, _: not _missing_targets(job),
        lambda job, _: (
            f"the model has no {', '.join(_missing_targets(job))} to put adapters beside",
            f"use {', '.join(_matrices(job))}",
        ),
    ),
    Demand(
        "adapters_stand_beside_frozen_matrices",
        "recipe.method.targets",
        lambda job, _: not _whole_targets(job),
        lambda job, _: (
            f"targets and whole name the same part: {_twice(job)}, which is trained whole, so an adapter beside it "
            "would add nothing",
            f"leave {', '.join(_whole_targets(job))} out of targets, or {_adapted_parts(job)} out of whole",
        ),
    ),
    Demand(
        "adapters_train_no_depths",
        "recipe.method",
        lambda job, _: job.method.name == "full" or not job.model.num_nextn_predict_layers,
        lambda job, _: (
            f"the {job.model.num_nextn_predict_layers} multi-token-prediction depth(s) would run without being trained",
            "set model.num_nextn_predict_layers to 0, or use method full",
        ),
    ),
    Demand(
        "frozen_parts_exist",
        "recipe.method.frozen",
        lambda job, _: not _missing_parts(job),
        lambda job, _: (
            f"the model has no {', '.join(_missing_parts(job))} to freeze or to train",
            f"use {', '.join(_parts(job))}",
        ),
    ),
    Demand(
        "frozen_layers_are_in_the_model",
        "recipe.method.frozen_layers",
        lambda job, _: job.method.frozen_layers <= job.model.num_hidden_layers,
        lambda job, _: (
            f"{job.method.frozen_layers} layers cannot be frozen in a model of {job.model.num_hidden_layers}",
            f"use at most {job.model.num_hidden_layers}",
        ),
    ),
    Demand(
        "shared_blocks_freeze_together",
        "recipe.method.frozen_layers",
        lambda job, _: job.method.frozen_layers in (0, job.model.num_hidden_layers) or not job.model.num_mem_blocks,
        lambda job, _: (
            f"layers share {job.model.num_mem_blocks} blocks, so the first {job.method.frozen_layers} layers cannot be "
            "frozen while later ones train the same numbers",
            f"freeze all {job.model.num_hidden_layers} layers or none",
        ),
    ),
    Demand(
        "tied_tables_freeze_together",
        "recipe.method.frozen",
        lambda job, _: _tied_tables_agree(job),
        lambda _, __: (
            "embedding and head are the same numbers in this model, so one cannot be frozen while the other is trained",
            "name both or neither",
        ),
    ),
    Demand(
        "something_is_trained",
        "recipe.method.frozen",
        lambda job, _: job.method.name != "full" or _something_trains(job),
        lambda _, __: ("every part of the model is frozen, so a step would change nothing", "leave a part out"),
    ),
    Demand(
        "stack_trains_so",
        "recipe.method",
        lambda job, _: job.stack.freezes or trains_everything(job.method),
        lambda job, _: (
            f"{job.software.name} trains whole models only: it has no frozen parameters and no adapters",
            "use method full with nothing frozen, or another stack",
        ),
    ),
    Demand(
        "schedule_has_weight_gradients",
        "layout.schedule",
        lambda job, layout: trains_everything(job.method) or layout.schedule not in _SPLIT_BACKWARD,
        lambda _, layout: (
            f"{layout.schedule} fills its bubble with gradients of weights, which frozen weights do not have",
            "use 1f1b, or interleaved-1f1b with virtual stages",
        ),
    ),
)
