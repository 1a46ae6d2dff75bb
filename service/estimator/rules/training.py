"""Rules of the model, of what is trained, of number formats and of the run."""

from collections.abc import Iterator
from dataclasses import MISSING, fields
from functools import lru_cache
from itertools import chain

from service.errors import Problem
from service.estimator.model.build import (
    MIXER_FIELDS,
    MIXERS,
    MLP_FIELDS,
    MOST_CACHED_LEDGERS,
    is_target,
    layer_shapes,
    layer_type,
    mixers_of,
    mlp_type,
    part_of,
    trains_everything,
)
from service.estimator.model.ledger import Op, Weight
from service.estimator.question import Checkpointing, MatrixName, Method, Model, OwnedPrice, PartName, Question
from service.estimator.rule import Rule, WorkloadRule, divisors_of, problems_of
from service.estimator.software.precision import DTYPE_BYTES, MOMENT_BYTES
from service.estimator.software.stacks import STACKS
from service.estimator.workload import Workload, stacks_experts

_DEFAULTS = {field.name: field.default for field in fields(Model)}
_NOTHING = (None, 0, (), False)
"""Values that describe nothing where a field has no default."""

_SHARED = (
    ("mamba_n_heads", "mamba_d_ssm"),
    ("mamba_n_groups", "mamba_n_heads"),
    ("linear_num_key_heads", "linear_num_value_heads"),
    ("num_attention_heads", "lru_width"),
)
"""Fields of which the first divides the second, where both are given."""


def _gives(model: Model, name: str) -> bool:
    """Whether a field describes something that its absence would not."""
    value = getattr(model, name)
    return value not in _NOTHING if _DEFAULTS[name] is MISSING else value != _DEFAULTS[name]


def _missing(model: Model) -> list[str]:
    needed = dict.fromkeys(name for mixer in mixers_of(model) for name in MIXERS[mixer].required_fields)
    return [name for name in needed if not getattr(model, name)]


def _unread(model: Model) -> list[str]:
    read = {
        name for mixer in mixers_of(model) for name in (*MIXERS[mixer].required_fields, *MIXERS[mixer].optional_fields)
    }
    return [name for name in MIXER_FIELDS if name not in read and _gives(model, name)]


def _unread_by_mlps(model: Model) -> list[str]:
    """Fields of an MLP that are given where no layer has one."""
    shares = any(MIXERS[mixer].shares_block for mixer in mixers_of(model))
    has_mlp = shares or any(mlp != "none" for mlp in model.mlp_layer_types or ("dense",))
    return [] if has_mlp else [name for name in MLP_FIELDS if _gives(model, name)]


def _sharing_layers(model: Model) -> int:
    return sum(MIXERS[shape.mixer].shares_block for shape in layer_shapes(model))


def _uneven(model: Model) -> list[tuple[str, int, str, int]]:
    """Pairs of fields that do not divide, each with its number."""
    pairs = ((few, getattr(model, few), many, getattr(model, many)) for few, many in _SHARED)
    return [pair for pair in pairs if pair[1] and pair[3] and pair[3] % pair[1]]


_LATENT_FIELDS = ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")


def _has_layer(model: Model, wanted: str) -> bool:
    span = range(min(model.num_hidden_layers, max(1, len(model.layer_types))))
    return any(layer_type(model, layer) == wanted for layer in span)


_SPARSE_FIELDS = (
    "moe_intermediate_size", "shared_expert_intermediate_size", "shared_expert_gate", "router_bias",
    "first_k_dense_replace", "moe_latent_size", "zero_expert_num",
)  # fmt: skip
"""Fields that describe experts, whether or not a model has any."""


RULES: dict[str, Rule[Model, None]] = {
    "head_width_is_whole": Rule(
        lambda model, _: (
            model.kv_lora_rank is not None
            or model.head_dim is not None
            or model.hidden_size % max(1, model.num_attention_heads) == 0
        )
    ),
    "key_value_heads_divide_heads": Rule(
        lambda model, _: model.num_attention_heads % model.key_value_heads == 0,
        lambda model, _: {"divisors": divisors_of(model.num_attention_heads)},
    ),
    "dense_layers_have_a_width": Rule(
        lambda model, _: (
            model.intermediate_size is not None
            or not any("dense" in mlp_type(model, layer) for layer in range(model.num_hidden_layers))
        )
    ),
    "latent_attention_is_complete": Rule(
        lambda model, _: (
            all(getattr(model, name) is not None for name in _LATENT_FIELDS)
            if model.kv_lora_rank is not None
            else not any(getattr(model, name) for name in (*_LATENT_FIELDS, "q_lora_rank"))
        )
    ),
    "latent_attention_replaces_heads": Rule(
        lambda model, _: (
            model.kv_lora_rank is None
            or (model.qk_norm == model.attention_gate == "none" and model.key_value_heads == model.num_attention_heads)
        )
    ),
    "windows_have_a_length": Rule(
        lambda model, _: model.sliding_window is not None or not _has_layer(model, "sliding_attention")
    ),
    "chunks_have_a_length": Rule(
        lambda model, _: (model.attention_chunk_size is not None) == _has_layer(model, "chunked_attention")
    ),
    "window_is_used": Rule(lambda model, _: model.sliding_window is None or _has_layer(model, "sliding_attention")),
    "experts_are_visited": Rule(
        lambda model, _: min(1, model.num_experts) <= model.num_experts_per_tok <= model.num_experts,
        lambda model, _: {
            "fix": f"use 1 to {model.num_experts}" if model.num_experts else "leave it out, or give num_experts"
        },
    ),
    "experts_have_a_width": Rule(lambda model, _: not model.num_experts or model.expert_width > 0),
    "sparse_fields_need_experts": Rule(
        lambda model, _: (
            model.num_experts > 0
            or not (
                any(getattr(model, name) for name in _SPARSE_FIELDS)
                or any("sparse" in mlp for mlp in model.mlp_layer_types)
            )
        )
    ),
    "shared_gate_needs_shared_expert": Rule(
        lambda model, _: not model.shared_expert_gate or model.shared_expert_intermediate_size > 0
    ),
    "dense_layers_are_in_the_model": Rule(lambda model, _: model.first_k_dense_replace <= model.num_hidden_layers),
    "mixer_is_complete": Rule(
        lambda model, _: not _missing(model),
        lambda model, _: {"mixers": ", ".join(mixers_of(model)), "missing": ", ".join(_missing(model))},
    ),
    "mixer_fields_are_used": Rule(
        lambda model, _: not _unread(model), lambda model, _: {"unread": ", ".join(_unread(model))}
    ),
    "mlp_fields_have_an_mlp": Rule(
        lambda model, _: not _unread_by_mlps(model), lambda model, _: {"unread": " and ".join(_unread_by_mlps(model))}
    ),
    "shared_blocks_are_held": Rule(
        lambda model, _: not model.num_mem_blocks or model.num_mem_blocks <= _sharing_layers(model),
        lambda model, _: {"layers": _sharing_layers(model)},
    ),
    "mixer_heads_share_evenly": Rule(
        lambda model, _: not _uneven(model),
        lambda model, _: {
            "uneven": _uneven(model)[0],
            "divisors": divisors_of(_uneven(model)[0][3]),
        },
    ),
    "adapters_have_a_rank": Rule(lambda model, _: not model.shared_attention_adapter or model.adapter_rank > 0),
    "layers_mix_something": Rule(
        lambda model, _: (
            "none" not in model.layer_types or all(shape[:2] != ("none", "none") for shape in layer_shapes(model))
        )
    ),
}


@lru_cache(maxsize=MOST_CACHED_LEDGERS)
def problems_of_model(model: Model) -> tuple[Problem, ...]:
    """Problems of a model alone."""
    return problems_of(RULES, model, None)


_SPLIT_BACKWARD = ("zero-bubble", "dualpipe")
"""Schedules that fill the bubble with gradients of weights."""


def _weights(workload: Workload) -> Iterator[tuple[Op, Weight]]:
    """Every weight of the ledger with its operation."""
    return ((op, weight) for _, ops in workload.ledger.groups() for op in ops for weight in op.weights)


def _matrices(workload: Workload) -> tuple[MatrixName, ...]:
    weights = (weight for _, weight in _weights(workload) if weight.role in ("matrix", "head"))
    return tuple(dict.fromkeys(name for weight in weights for name in weight.matrices))


def _names_half_of_experts(workload: Workload) -> bool:
    """Whether adapters name one of the two matrices of experts that are one parameter."""
    halves = [name for name in ("gate_proj", "up_proj") if name in workload.method.targets]
    is_gated = bool(workload.model.num_experts) and workload.model.gated_mlp
    return is_gated and len(halves) == 1 and stacks_experts(workload.implementation, workload.versions)


def _missing_targets(workload: Workload) -> list[str]:
    known = (*_matrices(workload), "all-linear", *(("gate",) if workload.model.num_experts else ()))
    return [name for name in workload.method.targets if name not in known]


def _parts(workload: Workload) -> tuple[PartName, ...]:
    parts = dict.fromkeys(part_of(op, weight) for op, weight in _weights(workload))
    return tuple(part for part in parts if part is not None)


def _named_parts(workload: Workload) -> tuple[PartName, ...]:
    return (*workload.method.frozen, *workload.method.whole)


def _missing_parts(workload: Workload) -> list[str]:
    known = _parts(workload) if _named_parts(workload) else ()
    return [name for name in _named_parts(workload) if name not in known]


def _whole_targets(workload: Workload) -> dict[MatrixName, tuple[PartName, ...]]:
    """Targets that stand in no part but those that are trained whole, each with these parts."""
    if not workload.method.targets or not workload.method.whole:
        return {}
    parts: dict[MatrixName, set[PartName | None]] = {name: set() for name in workload.method.targets}
    for op, weight in _weights(workload):
        for name in parts.keys() & (weight.matrices if weight.role in ("matrix", "head") else ()):
            parts[name].add(part_of(op, weight))
    return {
        name: tuple(part for part in workload.method.whole if part in result)
        for name, result in parts.items()
        if result and result <= {*workload.method.whole}
    }


TRAINING_RULES: dict[str, WorkloadRule] = {
    "method_choices_fit_its_name": Rule(
        lambda w, _: (
            not (w.method.frozen or w.method.frozen_layers)
            if w.method.name != "full"
            else not any((w.method.rank, w.method.targets, w.method.joint, w.method.whole, w.method.dropout_fraction))
        )
    ),
    "quantization_belongs_to_qlora": Rule(lambda w, _: w.method.quantization is None or w.method.name == "qlora"),
    "stack_quantizes": Rule(
        lambda w, _: w.method.name != "qlora" or w.stack.quantizes,
        lambda *_: {"stacks": " or ".join(name for name, row in STACKS.items() if row.quantizes)},
    ),
    "adapters_have_targets": Rule(
        lambda w, _: not _missing_targets(w),
        lambda w, _: {"missing": ", ".join(_missing_targets(w)), "matrices": ", ".join(_matrices(w))},
    ),
    "joint_matrices_are_targets": Rule(
        lambda w, _: all(is_target(name, w.method) for name in w.method.joint),
        lambda w, _: {"others": ", ".join(name for name in w.method.joint if not is_target(name, w.method))},
    ),
    "adapters_stand_beside_frozen_matrices": Rule(
        lambda w, _: not _whole_targets(w),
        lambda w, _: {
            "matrices": " and ".join(
                f"{name} is a matrix of {' and '.join(parts)}" for name, parts in _whole_targets(w).items()
            ),
            "targets": ", ".join(_whole_targets(w)),
            "parts": ", ".join(dict.fromkeys(chain(*_whole_targets(w).values()))),
        },
    ),
    "adapters_take_gate_and_up": Rule(lambda w, _: not _names_half_of_experts(w)),
    "frozen_parts_exist": Rule(
        lambda w, _: not _missing_parts(w),
        lambda w, _: {"missing": ", ".join(_missing_parts(w)), "parts": ", ".join(_parts(w))},
    ),
    "frozen_layers_are_in_the_model": Rule(lambda w, _: w.method.frozen_layers <= w.model.num_hidden_layers),
    "shared_blocks_freeze_together": Rule(
        lambda w, _: w.method.frozen_layers in (0, w.model.num_hidden_layers) or not w.model.num_mem_blocks
    ),
    "tied_tables_freeze_together": Rule(
        lambda w, _: not w.model.tie_word_embeddings or ("embedding" in _named_parts(w)) == ("head" in _named_parts(w))
    ),
    "something_is_trained": Rule(
        lambda w, _: w.method.name != "full" or any(weight.trained for _, weight in _weights(w))
    ),
    "stack_trains_so": Rule(lambda w, _: w.stack.freezes or trains_everything(w.method)),
    "schedule_has_weight_gradients": Rule(
        lambda w, layout: trains_everything(w.method) or layout.schedule not in _SPLIT_BACKWARD
    ),
}


def _untrained(method: Method) -> tuple[str, str]:
    """What is not trained, and what would train it."""
    if method.name != "full":
        return f"method {method.name} trains adapters beside frozen weights", "use method full"
    layers = (f"the first {method.frozen_layers} layers",) if method.frozen_layers else ()
    fields = [name for name in ("frozen", "frozen_layers") if getattr(method, name)]
    return (
        f"not all weights are trained: {' and '.join((*method.frozen, *layers))} frozen",
        f"leave {' and '.join(fields)} out of method",
    )


def _moments_can_be(workload: Workload) -> list[str]:
    """Formats that moments may have: the precision recipe's own, and those that the stack lets choose."""
    own = [name for name, width in MOMENT_BYTES.items() if width == workload.precision.moment_bytes]
    return [name for name in MOMENT_BYTES if name in (*own, *workload.stack.moment_dtypes)]


def _masters_can_be(workload: Workload) -> list[str]:
    own = [name for name, width in DTYPE_BYTES.items() if width == workload.precision.master_bytes]
    return [name for name in DTYPE_BYTES if name in (*own, *workload.stack.master_dtypes)]


def _keeps_master(workload: Workload) -> bool:
    return workload.precision.is_mixed and workload.stack.mixed_weights == "compute"


FORMAT_RULES: dict[str, WorkloadRule] = {
    "fp8_weights_replace_copies": Rule(
        lambda w, _: (  # an fp8 copy beside each 16-bit weight, which can replace it
            not w.recipe.fp8_weights
            or (
                (w.precision.matrix_format == "fp8" and w.precision.copy_bytes > 0)
                and w.implementation.uses_transformer_engine
            )
        )
    ),
    "fp8_weights_are_all_trained": Rule(
        lambda w, _: not w.recipe.fp8_weights or trains_everything(w.method),
        lambda w, _: {"untrained": _untrained(w.method)},
    ),
    "master_copy_is_kept": Rule(lambda w, _: w.recipe.master_dtype is None or _keeps_master(w)),
    "stack_keeps_the_master_copy_so": Rule(
        lambda w, _: not _keeps_master(w) or w.recipe.master_dtype in (None, *_masters_can_be(w)),
        lambda w, _: {"formats": " or ".join(_masters_can_be(w))},
    ),
    "stack_keeps_the_moments_so": Rule(
        lambda w, _: w.optimizer.moment_bytes is not None or w.recipe.moment_dtype in (None, *_moments_can_be(w)),
        lambda w, _: {"formats": " or ".join(_moments_can_be(w))},
    ),
    "optimizer_leaves_the_moments_format_open": Rule(
        lambda w, _: w.recipe.moment_dtype is None or w.optimizer.moment_bytes is None
    ),
}


def _stall_words(checkpoint: Checkpointing) -> tuple[str, str]:
    if checkpoint.stall_seconds is not None:
        return (
            f"a checkpoint that is not asynchronous stalls for stall_seconds {checkpoint.stall_seconds:g}, and until "
            "it is written at write_bytes_per_s: both are told, and they may differ",
            "leave stall_seconds or write_bytes_per_s out",
        )
    return (
        "a checkpoint that is not asynchronous stalls until it is written, and how long that takes is not told",
        "give checkpoint.stall_seconds or checkpoint.write_bytes_per_s",
    )


RUN_RULES: dict[str, Rule[Question, Checkpointing]] = {
    "interval_is_told_once": Rule(lambda _, checkpoint: checkpoint.rule is None or checkpoint.interval_seconds is None),
    "stall_is_known": Rule(
        lambda _, checkpoint: (
            checkpoint.asynchronous or (checkpoint.stall_seconds is None) != (checkpoint.write_bytes_per_s is None)
        ),
        lambda _, checkpoint: {"words": _stall_words(checkpoint)},
    ),
    "purchase_price_is_known": Rule(
        lambda question, _: not isinstance(question.price, OwnedPrice) or question.price.purchase_usd is not None
    ),
}


def problems_of_run(question: Question) -> tuple[Problem, ...]:
    """What a question leaves open of its run, or gives twice, whatever its configuration."""
    return problems_of(RUN_RULES, question, question.recipe.checkpoint or Checkpointing())
