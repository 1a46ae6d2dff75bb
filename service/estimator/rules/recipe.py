"""Demands on what is trained, on number formats and on the run."""

from service.estimator.complete import CompleteLayout
from service.estimator.model.training import part_of, trains_everything
from service.estimator.names import MatrixName, PartName
from service.estimator.question import OwnedPrice, Question
from service.estimator.rule import Demand
from service.estimator.software.optimizers import MOMENT_BYTES
from service.estimator.software.precision import DTYPE_BYTES
from service.estimator.software.stacks import STACKS
from service.estimator.workload import Workload

_SPLIT_BACKWARD = ("zero-bubble", "dualpipe")
"""Schedules that fill the bubble with gradients of weights."""


def _matrices(workload: Workload) -> tuple[MatrixName, ...]:
    groups = (ops for _, ops in workload.ledger.groups())
    weights = (weight for ops in groups for op in ops for weight in op.weights if weight.role in ("matrix", "head"))
    return tuple(dict.fromkeys(name for weight in weights for name in weight.matrices))


def _parts(workload: Workload) -> tuple[PartName, ...]:
    pairs = ((op, weight) for _, ops in workload.ledger.groups() for op in ops for weight in op.weights)
    return tuple(part for part in dict.fromkeys(part_of(op, weight) for op, weight in pairs) if part is not None)


def _missing_targets(workload: Workload) -> list[str]:
    known = _matrices(workload)
    return [name for name in workload.method.targets if name not in known]


def _missing_parts(workload: Workload) -> list[str]:
    named = (*workload.method.frozen, *workload.method.whole)
    known = _parts(workload) if named else ()
    return [name for name in named if name not in known]


def _something_trains(workload: Workload) -> bool:
    return any(weight.trained for _, ops in workload.ledger.groups() for op in ops for weight in op.weights)


def _tied_tables_agree(workload: Workload) -> bool:
    named = (*workload.method.frozen, *workload.method.whole)
    return not workload.model.tie_word_embeddings or ("embedding" in named) == ("head" in named)


def _whole_targets(workload: Workload) -> dict[MatrixName, tuple[PartName, ...]]:
    """Targets that stand in no part but those that are trained whole, each with these parts."""
    if not workload.method.targets or not workload.method.whole:
        return {}
    parts: dict[MatrixName, set[PartName | None]] = {name: set() for name in workload.method.targets}
    pairs = ((op, weight) for _, ops in workload.ledger.groups() for op in ops for weight in op.weights)
    for op, weight in pairs:
        for name in parts.keys() & (weight.matrices if weight.role in ("matrix", "head") else ()):
            parts[name].add(part_of(op, weight))
    return {
        name: tuple(part for part in workload.method.whole if part in result)
        for name, result in parts.items()
        if result and result <= {*workload.method.whole}
    }


def _adapted_parts(workload: Workload) -> str:
    return ", ".join(dict.fromkeys(part for parts in _whole_targets(workload).values() for part in parts))


def _twice(workload: Workload) -> str:
    return " and ".join(
        f"{name} is a matrix of {' and '.join(parts)}" for name, parts in _whole_targets(workload).items()
    )


TRAINING_DEMANDS: tuple[Demand[Workload], ...] = (
    Demand(
        "method_choices_fit_its_name",
        "recipe.method",
        lambda workload, _: (
            not (workload.method.frozen or workload.method.frozen_layers)
            if workload.method.name != "full"
            else not (workload.method.rank or workload.method.targets or workload.method.whole)
        ),
        lambda workload, _: (
            f"{workload.method.name} does not use all that is given: rank, targets and whole belong to lora and qlora, "
            "which freeze all else, and frozen and frozen_layers to full",
            "give only what the method uses",
        ),
    ),
    Demand(
        "quantization_belongs_to_qlora",
        "recipe.method.quantization",
        lambda workload, _: workload.method.quantization is None or workload.method.name == "qlora",
        lambda workload, _: (
            f"{workload.method.name} keeps frozen matrices in the compute format, so none is quantised",
            "use method qlora, or leave quantization out",
        ),
    ),
    Demand(
        "stack_quantizes",
        "recipe.method",
        lambda workload, _: workload.method.name != "qlora" or workload.stack.quantizes,
        lambda workload, _: (
            f"{workload.software.name} multiplies by no 4-bit matrices",
            f"use {' or '.join(name for name, row in STACKS.items() if row.quantizes)}, or method lora",
        ),
    ),
    Demand(
        "adapters_have_targets",
        "recipe.method.targets",
        lambda workload, _: not _missing_targets(workload),
        lambda workload, _: (
            f"the model has no {', '.join(_missing_targets(workload))} to put adapters beside",
            f"use {', '.join(_matrices(workload))}",
        ),
    ),
    Demand(
        "adapters_stand_beside_frozen_matrices",
        "recipe.method.targets",
        lambda workload, _: not _whole_targets(workload),
        lambda workload, _: (
            f"targets and whole name the same part: {_twice(workload)}, which is trained whole, so an adapter beside "
            "it "
            "would add nothing",
            f"leave {', '.join(_whole_targets(workload))} out of targets, or {_adapted_parts(workload)} out of whole",
        ),
    ),
    Demand(
        "adapters_train_no_depths",
        "recipe.method",
        lambda workload, _: workload.method.name == "full" or not workload.model.num_nextn_predict_layers,
        lambda workload, _: (
            f"the {workload.model.num_nextn_predict_layers} multi-token-prediction depth(s) would run without being "
            "trained",
            "set model.num_nextn_predict_layers to 0, or use method full",
        ),
    ),
    Demand(
        "frozen_parts_exist",
        "recipe.method.frozen",
        lambda workload, _: not _missing_parts(workload),
        lambda workload, _: (
            f"the model has no {', '.join(_missing_parts(workload))} to freeze or to train",
            f"use {', '.join(_parts(workload))}",
        ),
    ),
    Demand(
        "frozen_layers_are_in_the_model",
        "recipe.method.frozen_layers",
        lambda workload, _: workload.method.frozen_layers <= workload.model.num_hidden_layers,
        lambda workload, _: (
            f"{workload.method.frozen_layers} layers cannot be frozen in a model of {workload.model.num_hidden_layers}",
            f"use at most {workload.model.num_hidden_layers}",
        ),
    ),
    Demand(
        "shared_blocks_freeze_together",
        "recipe.method.frozen_layers",
        lambda workload, _: (
            workload.method.frozen_layers in (0, workload.model.num_hidden_layers) or not workload.model.num_mem_blocks
        ),
        lambda workload, _: (
            f"layers share {workload.model.num_mem_blocks} blocks, so the first {workload.method.frozen_layers} "
            "layers cannot be "
            "frozen while later ones train the same numbers",
            f"freeze all {workload.model.num_hidden_layers} layers or none",
        ),
    ),
    Demand(
        "tied_tables_freeze_together",
        "recipe.method.frozen",
        lambda workload, _: _tied_tables_agree(workload),
        lambda _, __: (
            "embedding and head are the same numbers in this model, so one cannot be frozen while the other is trained",
            "name both or neither",
        ),
    ),
    Demand(
        "something_is_trained",
        "recipe.method.frozen",
        lambda workload, _: workload.method.name != "full" or _something_trains(workload),
        lambda _, __: ("every part of the model is frozen, so a step would change nothing", "leave a part out"),
    ),
    Demand(
        "stack_trains_so",
        "recipe.method",
        lambda workload, _: workload.stack.freezes or trains_everything(workload.method),
        lambda workload, _: (
            f"{workload.software.name} trains whole models only: it has no frozen parameters and no adapters",
            "use method full with nothing frozen, or another stack",
        ),
    ),
    Demand(
        "schedule_has_weight_gradients",
        "layout.schedule",
        lambda workload, layout: trains_everything(workload.method) or layout.schedule not in _SPLIT_BACKWARD,
        lambda _, layout: (
            f"{layout.schedule} fills its bubble with gradients of weights, which frozen weights do not have",
            "use 1f1b, or interleaved-1f1b with virtual stages",
        ),
    ),
)


def _keeps_fp8_weights(workload: Workload) -> bool:
    """Whether a 16-bit weight with an fp8 copy beside it can be replaced by that copy."""
    has_copies = workload.precision.matrix_format == "fp8" and workload.precision.copy_bytes > 0
    return has_copies and workload.implementation.uses_transformer_engine


def _untrained(workload: Workload) -> str:
    """What is not trained, in words."""
    if workload.method.name != "full":
        return f"method {workload.method.name} trains adapters beside frozen weights"
    layers = (f"the first {workload.method.frozen_layers} layers",) if workload.method.frozen_layers else ()
    return f"not all weights are trained: {' and '.join((*workload.method.frozen, *layers))} frozen"


def _trained_mends(workload: Workload) -> str:
    if workload.method.name != "full":
        return "use method full"
    given = {"frozen": workload.method.frozen, "frozen_layers": workload.method.frozen_layers}
    return f"leave {' and '.join(name for name, value in given.items() if value)} out of method"


def _moments_can_be(workload: Workload) -> list[str]:
    """Formats that moments may have: the precision recipe's own, and those that the stack lets choose."""
    own = [name for name, width in MOMENT_BYTES.items() if width == workload.precision.moment_bytes]
    return [name for name in MOMENT_BYTES if name in (*own, *workload.stack.moment_dtypes)]


def _masters_can_be(workload: Workload) -> list[str]:
    own = [name for name, width in DTYPE_BYTES.items() if width == workload.precision.master_bytes]
    return [name for name in DTYPE_BYTES if name in (*own, *workload.stack.master_dtypes)]


def _keeps_master(workload: Workload) -> bool:
    return workload.precision.is_mixed and workload.stack.mixed_weights == "compute"


FORMAT_DEMANDS: tuple[Demand[Workload], ...] = (
    Demand(
        "fp8_weights_replace_copies",
        "recipe.fp8_weights",
        lambda workload, _: not workload.recipe.fp8_weights or _keeps_fp8_weights(workload),
        lambda workload, _: (
            f"fp8_weights leaves Transformer Engine's fp8 copies as the only weights; here {workload.software.name} "
            "with "
            f"{workload.software.implementation} operations trains in {workload.recipe.precision}",
            "use megatron-core with transformer-engine and one of fp8-tensorwise, fp8-blockwise and mxfp8, or leave "
            "fp8_weights out",
        ),
    ),
    Demand(
        "fp8_weights_are_all_trained",
        "recipe.fp8_weights",
        lambda workload, _: not workload.recipe.fp8_weights or trains_everything(workload.method),
        lambda workload, _: (
            f"fp8_weights keeps every weight in fp8 and trains it, and here {_untrained(workload)}",
            f"{_trained_mends(workload)}, or leave fp8_weights out",
        ),
    ),
    Demand(
        "master_copy_is_kept",
        "recipe.master_dtype",
        lambda workload, _: workload.recipe.master_dtype is None or _keeps_master(workload),
        lambda workload, _: (
            f"{workload.software.name} in {workload.recipe.precision} updates the weights themselves, so there is no "
            "master copy",
            "leave master_dtype out, or use a mixed precision with a stack that keeps a master copy",
        ),
    ),
    Demand(
        "stack_keeps_the_master_copy_so",
        "recipe.master_dtype",
        lambda workload, _: (
            not _keeps_master(workload) or workload.recipe.master_dtype in (None, *_masters_can_be(workload))
        ),
        lambda workload, _: (
            f"{workload.software.name} in {workload.recipe.precision} keeps no master copy in "
            f"{workload.recipe.master_dtype}",
            f"use {' or '.join(_masters_can_be(workload))}, or leave master_dtype out",
        ),
    ),
    Demand(
        "stack_keeps_the_moments_so",
        "recipe.moment_dtype",
        lambda workload, _: (
            workload.optimizer.moment_bytes is not None
            or workload.recipe.moment_dtype in (None, *_moments_can_be(workload))
        ),
        lambda workload, _: (
            f"{workload.software.name} in {workload.recipe.precision} keeps no moments in "
            f"{workload.recipe.moment_dtype}",
            f"use {' or '.join(_moments_can_be(workload))}, or leave moment_dtype out",
        ),
    ),
    Demand(
        "optimizer_leaves_the_moments_format_open",
        "recipe.moment_dtype",
        lambda workload, _: workload.recipe.moment_dtype is None or workload.optimizer.moment_bytes is None,
        lambda workload, _: (
            f"{workload.recipe.optimizer} keeps moments in a format of its own, not in {workload.recipe.moment_dtype}",
            "leave moment_dtype out, or use another optimizer",
        ),
    ),
)


def _interval_given_once(question: Question, _: CompleteLayout) -> bool:
    checkpoint = question.recipe.checkpoint
    return checkpoint is None or checkpoint.rule is None or checkpoint.interval_seconds is None


def _interval_words(question: Question, _: CompleteLayout) -> tuple[str, str]:
    checkpoint = question.recipe.checkpoint
    given = "" if checkpoint is None else f"interval_seconds {checkpoint.interval_seconds:g} and rule {checkpoint.rule}"
    return (
        f"the time between checkpoints is told twice, by {given}, and they may differ",
        "leave rule or interval_seconds out",
    )


def _stall_known(question: Question, _: CompleteLayout) -> bool:
    checkpoint = question.recipe.checkpoint
    return (
        checkpoint is None
        or checkpoint.asynchronous
        or (checkpoint.stall_seconds is None) != (checkpoint.write_bytes_per_s is None)
    )


def _stall_words(question: Question, _: CompleteLayout) -> tuple[str, str]:
    checkpoint = question.recipe.checkpoint
    if checkpoint is not None and checkpoint.stall_seconds is not None:
        return (
            f"a checkpoint that is not asynchronous stalls for stall_seconds {checkpoint.stall_seconds:g}, and until "
            "it is "
            "written at write_bytes_per_s: both are told, and they may differ",
            "leave stall_seconds or write_bytes_per_s out",
        )
    return (
        "a checkpoint that is not asynchronous stalls until it is written, and how long that takes is not told",
        "give checkpoint.stall_seconds or checkpoint.write_bytes_per_s",
    )


def _purchase_known(question: Question, _: CompleteLayout) -> bool:
    return not isinstance(question.price, OwnedPrice) or question.price.purchase_usd is not None


def _purchase_words(question: Question, _: CompleteLayout) -> tuple[str, str]:
    return (
        f"own hardware is written off from its purchase price, and the price of {question.gpu.slug} is not known",
        "give purchase_usd, what one GPU costs with its share of server and network",
    )


RUN_DEMANDS = (
    Demand("interval_is_told_once", "recipe.checkpoint.rule", _interval_given_once, _interval_words),
    Demand("stall_is_known", "recipe.checkpoint.asynchronous", _stall_known, _stall_words),
    Demand("purchase_price_is_known", "price.purchase_usd", _purchase_known, _purchase_words),
)
"""What a run has to meet, whatever configuration it runs."""
