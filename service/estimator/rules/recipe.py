"""Demands on what is trained, on number formats and on the run."""

from service.estimator.model.training import part_of, trains_everything
from service.estimator.names import MatrixName, PartName
from service.estimator.question import Layout, OwnedPrice, Question
from service.estimator.rule import Demand
from service.estimator.software.optimizers import MOMENT_BYTES
from service.estimator.software.precision import DTYPE_BYTES
from service.estimator.software.stacks import STACKS
from service.estimator.workload import Job

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


TRAINING_DEMANDS: tuple[Demand[Job], ...] = (
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


def _keeps_fp8_weights(job: Job) -> bool:
    """Whether a 16-bit weight with an fp8 copy beside it can be replaced by that copy."""
    has_copies = job.precision.matrix_format == "fp8" and job.precision.copy_bytes > 0
    return has_copies and job.implementation.uses_transformer_engine


def _untrained(job: Job) -> str:
    """What is not trained, in words."""
    if job.method.name != "full":
        return f"method {job.method.name} trains adapters beside frozen weights"
    layers = (f"the first {job.method.frozen_layers} layers",) if job.method.frozen_layers else ()
    return f"not all weights are trained: {' and '.join((*job.method.frozen, *layers))} frozen"


def _trained_mends(job: Job) -> str:
    if job.method.name != "full":
        return "use method full"
    given = {"frozen": job.method.frozen, "frozen_layers": job.method.frozen_layers}
    return f"leave {' and '.join(name for name, value in given.items() if value)} out of method"


def _moments_can_be(job: Job) -> list[str]:
    """Formats that moments may have: the precision recipe's own, and those that the stack lets choose."""
    own = [name for name, width in MOMENT_BYTES.items() if width == job.precision.moment_bytes]
    return [name for name in MOMENT_BYTES if name in (*own, *job.stack.moment_dtypes)]


def _masters_can_be(job: Job) -> list[str]:
    own = [name for name, width in DTYPE_BYTES.items() if width == job.precision.master_bytes]
    return [name for name in DTYPE_BYTES if name in (*own, *job.stack.master_dtypes)]


def _keeps_master(job: Job) -> bool:
    return job.precision.is_mixed and job.stack.mixed_weights == "compute"


FORMAT_DEMANDS: tuple[Demand[Job], ...] = (
    Demand(
        "fp8_weights_replace_copies",
        "recipe.fp8_weights",
        lambda job, _: not job.recipe.fp8_weights or _keeps_fp8_weights(job),
        lambda job, _: (
            f"fp8_weights leaves Transformer Engine's fp8 copies as the only weights; here {job.software.name} with "
            f"{job.software.implementation} operations trains in {job.recipe.precision}",
            "use megatron-core with transformer-engine and one of fp8-tensorwise, fp8-blockwise and mxfp8, or leave "
            "fp8_weights out",
        ),
    ),
    Demand(
        "fp8_weights_are_all_trained",
        "recipe.fp8_weights",
        lambda job, _: not job.recipe.fp8_weights or trains_everything(job.method),
        lambda job, _: (
            f"fp8_weights keeps every weight in fp8 and trains it, and here {_untrained(job)}",
            f"{_trained_mends(job)}, or leave fp8_weights out",
        ),
    ),
    Demand(
        "master_copy_is_kept",
        "recipe.master_dtype",
        lambda job, _: job.recipe.master_dtype is None or _keeps_master(job),
        lambda job, _: (
            f"{job.software.name} in {job.recipe.precision} updates the weights themselves, so there is no master copy",
            "leave master_dtype out, or use a mixed precision with a stack that keeps a master copy",
        ),
    ),
    Demand(
        "stack_keeps_the_master_copy_so",
        "recipe.master_dtype",
        lambda job, _: not _keeps_master(job) or job.recipe.master_dtype in (None, *_masters_can_be(job)),
        lambda job, _: (
            f"{job.software.name} in {job.recipe.precision} keeps no master copy in {job.recipe.master_dtype}",
            f"use {' or '.join(_masters_can_be(job))}, or leave master_dtype out",
        ),
    ),
    Demand(
        "stack_keeps_the_moments_so",
        "recipe.moment_dtype",
        lambda job, _: (
            job.optimizer.moment_bytes is not None or job.recipe.moment_dtype in (None, *_moments_can_be(job))
        ),
        lambda job, _: (
            f"{job.software.name} in {job.recipe.precision} keeps no moments in {job.recipe.moment_dtype}",
            f"use {' or '.join(_moments_can_be(job))}, or leave moment_dtype out",
        ),
    ),
    Demand(
        "optimizer_leaves_the_moments_format_open",
        "recipe.moment_dtype",
        lambda job, _: job.recipe.moment_dtype is None or job.optimizer.moment_bytes is None,
        lambda job, _: (
            f"{job.recipe.optimizer} keeps moments in a format of its own, not in {job.recipe.moment_dtype}",
            "leave moment_dtype out, or use another optimizer",
        ),
    ),
)


def _interval_told_once(asked: Question, _: Layout) -> bool:
    told = asked.recipe.checkpoint
    return told is None or told.rule is None or told.interval_seconds is None


def _interval_words(asked: Question, _: Layout) -> tuple[str, str]:
    told = asked.recipe.checkpoint
    said = "" if told is None else f"interval_seconds {told.interval_seconds:g} and rule {told.rule}"
    return (
        f"the time between checkpoints is told twice, by {said}, and they may differ",
        "leave rule or interval_seconds out",
    )


def _stall_known(asked: Question, _: Layout) -> bool:
    told = asked.recipe.checkpoint
    return told is None or told.asynchronous or (told.stall_seconds is None) != (told.write_bytes_per_s is None)


def _stall_words(asked: Question, _: Layout) -> tuple[str, str]:
    told = asked.recipe.checkpoint
    if told is not None and told.stall_seconds is not None:
        return (
            f"a checkpoint that is not asynchronous stalls for stall_seconds {told.stall_seconds:g}, and until it is "
            "written at write_bytes_per_s: both are told, and they may differ",
            "leave stall_seconds or write_bytes_per_s out",
        )
    return (
        "a checkpoint that is not asynchronous stalls until it is written, and how long that takes is not told",
        "give checkpoint.stall_seconds or checkpoint.write_bytes_per_s",
    )


def _purchase_known(asked: Question, _: Layout) -> bool:
    return not isinstance(asked.price, OwnedPrice) or asked.price.purchase_usd is not None


def _purchase_words(asked: Question, _: Layout) -> tuple[str, str]:
    return (
        f"own hardware is written off from its purchase price, and the price of {asked.gpu.slug} is not known",
        "give purchase_usd, what one GPU costs with its share of server and network",
    )


RUN_DEMANDS = (
    Demand("interval_is_told_once", "recipe.checkpoint.rule", _interval_told_once, _interval_words),
    Demand("stall_is_known", "recipe.checkpoint.asynchronous", _stall_known, _stall_words),
    Demand("purchase_price_is_known", "price.purchase_usd", _purchase_known, _purchase_words),
)
"""What a run has to meet, whatever configuration it runs."""
