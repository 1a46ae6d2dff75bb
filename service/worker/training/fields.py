"""Fields of a model that torch can build. What cannot be built is refused by its field, never approximated."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from service.errors import Problem, Refused

MIXERS = ("full_attention", "sliding_attention", "chunked_attention")
"""Supported token mixers."""

CHANNELS = ("dense", "sparse")
"""Supported channel mixers."""

NORMALIZATIONS = ("rmsnorm", "layernorm", "layernorm_no_bias", "nonparametric")

QUERY_KEY_NORMS = ("none", "per_head_dim", "per_head_dim_biased", "full", "l2")

IGNORED = ("max_position_embeddings",)
"""Descriptive fields."""

_EMPTY = (None, False, 0, "none", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFields:
    """The supported fields of a model, with the names and presets of the estimator's model."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int | None = None
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    gated_mlp: bool = True
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    attention_out_bias: bool | None = None
    mlp_bias: bool = False
    lm_head_bias: bool = False
    normalization: str = "rmsnorm"
    norms_per_layer: int = 2
    final_norm: bool = True
    embedding_norm: bool = False
    position_embedding_rows: int = 0
    qk_norm: str = "none"
    parallel_attention: bool = False
    layer_types: tuple[str, ...] = ()
    sliding_window: int | None = None
    attention_chunk_size: int | None = None
    word_embed_proj_dim: int | None = None
    num_experts: int = 0
    num_experts_per_tok: int = 0
    moe_intermediate_size: int | None = None
    shared_expert_intermediate_size: int = 0
    shared_expert_gate: bool = False
    router_bias: bool = False
    first_k_dense_replace: int = 0
    mlp_layer_types: tuple[str, ...] = ()

    @property
    def heads(self) -> int:
        """Query heads [1]."""
        return self.num_attention_heads

    @property
    def key_value_heads(self) -> int:
        """Key and value heads [1]."""
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def head_width(self) -> int:
        """Numbers of one head [1]."""
        return self.head_dim or self.hidden_size // self.num_attention_heads

    @property
    def expert_width(self) -> int:
        """Numbers inside one routed expert [1]."""
        return self.moe_intermediate_size or self.intermediate_size or 0

    @property
    def out_bias(self) -> bool:
        """Whether the projection after attention has a bias."""
        return self.attention_bias if self.attention_out_bias is None else self.attention_out_bias

    @property
    def is_gpt2(self) -> bool:
        """Whether transformers runs it by modeling_gpt2: fused projection, learned positions, GELU written out."""
        return (
            self.normalization == "layernorm"
            and self.position_embedding_rows > 0
            and self.attention_bias
            and not self.gated_mlp
            and self.key_value_heads == self.heads
        )

    def mixer(self, layer: int) -> str:
        """How one layer mixes tokens."""
        if self.layer_types:
            return self.layer_types[layer % len(self.layer_types)]
        return "full_attention" if self.sliding_window is None else "sliding_attention"

    def channels(self, layer: int) -> str:
        """How one layer mixes channels."""
        if layer < self.first_k_dense_replace:
            return "dense"
        if self.mlp_layer_types:
            return self.mlp_layer_types[layer % len(self.mlp_layer_types)]
        return "sparse" if self.num_experts else "dense"


def model_fields(model: Mapping[str, Any], depth: int | None = None) -> ModelFields:
    """The fields of a model, at full width and any depth."""
    built = {field.name for field in fields(ModelFields)}
    alien = [name for name, value in model.items() if name not in built and not _is_empty(name, value)]
    if alien:
        raise Refused(*(_problem(name, f"{name} = {model[name]!r} is not built by this probe") for name in alien))
    given: dict[str, Any] = {name: value for name, value in model.items() if name in built}
    given |= {name: tuple(value) for name, value in given.items() if isinstance(value, list)}
    found = ModelFields(**given | ({} if depth is None else {"num_hidden_layers": depth}))
    problems = _problems(found)
    if problems:
        raise Refused(*problems)
    return found


def _is_empty(name: str, value: Any) -> bool:
    return name in IGNORED or value in _EMPTY or value in ((), [])


def _problem(field: str, message: str) -> Problem:
    return Problem(
        field=f"model.{field}",
        code="model_not_built",
        message=message,
        fix="take this probe out, or check a model of dense or sparse layers with attention",
    )


def _problems(model: ModelFields) -> list[Problem]:
    """Unsupported fields of a model."""
    layers = range(model.num_hidden_layers)
    if not model.num_attention_heads:
        return [_problem("num_attention_heads", "a model without attention is not built by this probe")]
    named = {
        "layer_types": (sorted({model.mixer(layer) for layer in layers}), MIXERS),
        "mlp_layer_types": (sorted({model.channels(layer) for layer in layers}), CHANNELS),
        "normalization": ([model.normalization], NORMALIZATIONS),
        "qk_norm": ([model.qk_norm], QUERY_KEY_NORMS),
    }
    found = [
        _problem(name, f"{value} is not built by this probe, which knows {', '.join(known)}")
        for name, (values, known) in named.items()
        for value in values
        if value not in known
    ]
    if model.head_width % 2 and not model.position_embedding_rows:
        found.append(_problem("head_dim", f"rotary positions turn pairs of numbers, and {model.head_width} is odd"))
    if model.norms_per_layer == 1 and not model.parallel_attention:
        found.append(_problem("norms_per_layer", "one norm a layer is built for parallel branches only"))
    if model.router_bias or (model.mlp_bias and model.num_experts):
        found.append(_problem("router_bias", "biases of routers and experts are not built by this probe"))
    return found
