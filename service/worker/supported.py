"""Models and recipes that torch can train by itself; others are refused by field, without importing torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from service.errors import Problem, Refused
from service.estimator.model.build import layer_type, mlp_type
from service.estimator.question import Model

BUILT = frozenset({
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
    "num_key_value_heads", "head_dim", "gated_mlp", "tie_word_embeddings", "attention_bias", "attention_out_bias",
    "mlp_bias", "lm_head_bias", "normalization", "norms_per_layer", "final_norm", "embedding_norm",
    "position_embedding_rows", "qk_norm", "parallel_attention", "layer_types", "sliding_window",
    "attention_chunk_size", "word_embed_proj_dim", "num_experts", "num_experts_per_tok", "moe_intermediate_size",
    "shared_expert_intermediate_size", "shared_expert_gate", "router_bias", "first_k_dense_replace",
    "mlp_layer_types",
})  # fmt: skip
"""Fields of a model that the decoder builds."""

MIXERS = ("full_attention", "sliding_attention", "chunked_attention")

CHANNELS = ("dense", "sparse")

NORMALIZATIONS = ("rmsnorm", "rmsnorm_1p", "layernorm", "layernorm_no_bias", "nonparametric")

QUERY_KEY_NORMS = ("none", "per_head_dim", "per_head_dim_biased", "full", "l2")

DESCRIPTIVE = ("max_position_embeddings",)
"""Fields of a model that nothing is built from."""

_EMPTY: tuple[Any, ...] = (None, False, 0, "none", "", (), [])


def step_model(model: Mapping[str, Any], depth: int | None = None) -> Model:
    """A model that torch can build, at full width and any depth. Other fields are refused, never approximated."""
    other = [name for name, value in model.items() if name not in (*BUILT, *DESCRIPTIVE) and value not in _EMPTY]
    if other:
        raise Refused(*(_model_problem(name, f"{name} = {model[name]!r} is not built by this probe") for name in other))
    given: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in model.items() if name in BUILT
    }
    built = Model(**given | ({} if depth is None else {"num_hidden_layers": depth}))
    problems = _model_problems(built)
    if problems:
        raise Refused(*problems)
    return built


def _model_problem(field: str, message: str) -> Problem:
    return Problem(
        field=f"model.{field}",
        code="model_not_built",
        message=message,
        fix="take this probe out, or check a model of dense or sparse layers with attention",
    )


def _model_problems(model: Model) -> list[Problem]:
    layers = range(model.num_hidden_layers)
    if not model.num_attention_heads:
        return [_model_problem("num_attention_heads", "a model without attention is not built by this probe")]
    values: dict[str, tuple[list[Any], tuple[str, ...]]] = {
        "layer_types": (sorted({layer_type(model, layer) for layer in layers}), MIXERS),
        "mlp_layer_types": (sorted({mlp_type(model, layer) for layer in layers}), CHANNELS),
        "normalization": ([model.normalization], NORMALIZATIONS),
        "qk_norm": ([model.qk_norm], QUERY_KEY_NORMS),
    }
    problems = [
        _model_problem(name, f"{value} is not built by this probe, which knows {', '.join(supported)}")
        for name, (own, supported) in values.items()
        for value in own
        if value not in supported
    ]
    if model.head_width % 2 and not model.position_embedding_rows:
        message = f"rotary positions turn pairs of numbers, and {model.head_width} is odd"
        problems.append(_model_problem("head_dim", message))
    if model.norms_per_layer == 1 and not model.parallel_attention:
        problems.append(_model_problem("norms_per_layer", "one norm a layer is built for parallel branches only"))
    if model.router_bias or (model.mlp_bias and model.num_experts):
        problems.append(_model_problem("router_bias", "biases of routers and experts are not built by this probe"))
    return problems


KERNELS = ("eager", "flash", "flash-2", "cudnn")
"""Attention kernels of torch, by their names in recipes."""

OPTIMIZERS = ("adamw", "sgd-momentum")

WEIGHTS = {
    "fp32": "float32",
    "fp16-pure": "float16",
    "bf16-pure": "bfloat16",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp16-mixed": "float32",
    "bf16-mixed": "float32",
}
"""torch's format of the weights under each supported precision recipe; a service of before 2026.11.7 names pure ones
by their format alone."""

_REQUIRED = {"method": "full", "offload": "none", "batching": "packed", "expert_imbalance": 1.0, "checkpoint": None}
"""Values of a recipe that one device without data parallelism requires."""

_NO_EFFECT = (
    "global_batch", "global_batch_tokens", "training_tokens", "stages", "checkpoint", "vocabulary_multiple",
    "expert_imbalance", "gradient_dtype",
)  # fmt: skip
"""Fields without effect in one step of one micro-batch on one device, or that restate the precision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecipe:
    sequence_length: int
    micro_batch: int
    precision: str
    optimizer: str
    fused_update: bool
    """The optimizer is one kernel; else each operation runs over lists of tensors."""
    kernel: str
    recompute: tuple[str, int | None]
    """`none` or `full`, and for a block of layers how many."""
    dropout_fraction: float

    @property
    def compute(self) -> str | None:
        """Format of autocast; None where there is none."""
        return self.precision.removesuffix("-mixed") if self.precision.endswith("-mixed") else None

    def recomputed_layers(self, layers: int) -> int:
        """Layers, from the first, that run again in the backward pass [1]."""
        granularity, block = self.recompute
        return 0 if granularity == "none" else layers if block is None else min(block, layers)


def step_recipe(recipe: Mapping[str, Any]) -> StepRecipe:
    """A recipe that torch can run by itself. Other fields are refused by name, never ignored."""
    left = dict(recipe)
    step = StepRecipe(
        precision=_one_of("precision", left.pop("precision", None) or "bf16-mixed", tuple(WEIGHTS)),
        optimizer=_one_of("optimizer", left.pop("optimizer", None) or "adamw", OPTIMIZERS),
        kernel=_one_of("attention", left.pop("attention", None) or "flash", KERNELS),
        fused_update=_fuses(left.pop("stack", None)),
        recompute=_recompute(left.pop("recompute", None) or "none"),
        sequence_length=left.pop("sequence_length", 1),
        micro_batch=left.pop("micro_batch", 1),
        dropout_fraction=left.pop("dropout_fraction", 0.0),
    )
    problems = [
        _recipe_problem(name, f"{name} = {value!r} is not run by this probe")
        for name, value in left.items()
        if name not in _NO_EFFECT and value not in _EMPTY and value != _REQUIRED.get(name)
    ]
    if problems:
        raise Refused(*problems)
    return step


def _one_of(field: str, value: Any, known: tuple[str, ...]) -> str:
    if value not in known:
        raise Refused(_recipe_problem(field, f"{value} is not run by this probe, which knows {', '.join(known)}"))
    return str(value)


def _recipe_problem(field: str, message: str) -> Problem:
    return Problem(
        field=f"recipe.{field}", code="recipe_not_run", message=message, fix="take this probe out, or change the field"
    )


def _fuses(stack: Any) -> bool:
    """Whether the update is one kernel, from the software; it has to be transformers' eager operations."""
    software = {"name": stack} if isinstance(stack, str) else dict(stack or {})
    for name, value in {"name": "transformers", "implementation": "eager", "cross_entropy": "eager"}.items():
        if software.get(name, value) not in (value, None):
            message = f"{software[name]} is not run by this probe, which runs {value}"
            raise Refused(_recipe_problem(f"stack.{name}", message))
    return bool(software.get("fused_update"))


def _recompute(rule: Any) -> tuple[str, int | None]:
    """Granularity and size of the block."""
    fields: dict[str, Any] = {"granularity": rule} if isinstance(rule, str) else dict(rule)
    granularity = _one_of("recompute.granularity", fields["granularity"], ("none", "full"))
    layers = fields.get("layers")
    if fields.get("method", "uniform") == "block":
        return granularity, layers
    if layers not in (None, 1):
        raise Refused(_recipe_problem("recompute.layers", f"groups of {layers} layers are not run by this probe"))
    return granularity, None
