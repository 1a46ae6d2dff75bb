"""The ledger of a model, built from its fields and the recipe's setting, and the table of mixers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from service.estimator.model.layers.attention import attention_ops
from service.estimator.model.layers.ends import depth_embedding_ops, depth_ops, embedding_ops, head_ops
from service.estimator.model.layers.experts import expert_ops
from service.estimator.model.layers.gated_delta_net import gated_delta_net_ops
from service.estimator.model.layers.latent_attention import latent_attention_ops
from service.estimator.model.layers.lightning_attention import lightning_attention_ops
from service.estimator.model.layers.linear_recurrence import linear_recurrence_ops
from service.estimator.model.layers.mamba import mamba_ops
from service.estimator.model.layers.mamba2 import mamba2_ops
from service.estimator.model.layers.shared_transformer import SHARED, shared_transformer_ops
from service.estimator.model.layers.short_convolution import short_convolution_ops
from service.estimator.model.ledger import GROUP, LayerShape, Ledger, Op, Ops, Setting
from service.estimator.model.operations import feed_forward_ops, norm_op, residual_op
from service.estimator.question import LayerType, MlpType, Model

LayerOps = Callable[[Model, LayerType, Setting], Ops]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixer:
    """A kind of layer that mixes tokens."""

    ops: tuple[LayerOps, ...] = ()
    """Functions that build its operations; several run side by side on the same input."""
    attends: bool = False
    """Whether it has attention, whose work grows with the square of the sequence."""
    carries_state: bool = False
    """Whether a state or a window passes along the sequence from token to token."""
    shares_block: bool = False
    """Whether its layers share the weights of a block."""
    branches: int = 1
    """Branches whose results the tensor-parallel ranks sum."""
    required_fields: tuple[str, ...] = ()
    """Required fields of Model."""
    optional_fields: tuple[str, ...] = ()
    """Optional fields of Model that change it."""
    tensor_split_fields: tuple[str, ...] = ()
    """Fields of Model that the tensor degree must divide, in addition to those of attention."""


def _attention_ops(model: Model, layer_type: LayerType, setting: Setting) -> Ops:
    """Latent attention where the model has a kv_lora_rank, else plain attention."""
    attend = attention_ops if model.kv_lora_rank is None else latent_attention_ops
    return attend(model, layer_type, setting)


_HEAD_FIELDS = ("num_key_value_heads", "head_dim", "attention_bias", "attention_out_bias")
_ATTENTION = Mixer(
    ops=(_attention_ops,),
    attends=True,
    required_fields=("num_attention_heads",),
    optional_fields=(*_HEAD_FIELDS, "qk_norm", "attention_gate", "attention_sinks"),
)
_STATE_FIELDS = ("mamba_d_ssm", "mamba_d_state", "conv_kernel")
_PROJECTION_FIELDS = ("conv_bias", "mixer_bias")
_MAMBA2 = Mixer(
    ops=(mamba2_ops,),
    carries_state=True,
    required_fields=(*_STATE_FIELDS, "mamba_n_heads", "mamba_n_groups"),
    optional_fields=(*_PROJECTION_FIELDS, "mixer_norm"),
    tensor_split_fields=("mamba_n_heads", "mamba_n_groups"),
)

MIXERS: Mapping[LayerType, Mixer] = {
    "full_attention": _ATTENTION,
    "sliding_attention": _ATTENTION,
    "chunked_attention": _ATTENTION,
    "lightning_attention": Mixer(
        ops=(lightning_attention_ops,), carries_state=True,
        required_fields=("num_attention_heads",), optional_fields=("head_dim", "mixer_bias"),
    ),
    "gated_delta_net": Mixer(
        ops=(gated_delta_net_ops,),
        carries_state=True,
        required_fields=(
            "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim",
            "conv_kernel",
        ),
        optional_fields=_PROJECTION_FIELDS,
        tensor_split_fields=("linear_num_key_heads", "linear_num_value_heads"),
    ),
    "mamba": Mixer(
        ops=(mamba_ops,),
        carries_state=True,
        required_fields=(*_STATE_FIELDS, "mamba_dt_rank"),
        optional_fields=(*_PROJECTION_FIELDS, "mixer_norm"),
        tensor_split_fields=("mamba_d_ssm",),
    ),
    "mamba2": _MAMBA2,
    "attention_and_mamba2": Mixer(
        ops=(_attention_ops, mamba2_ops), attends=True, carries_state=True,
        required_fields=(*_ATTENTION.required_fields, *_MAMBA2.required_fields),
        optional_fields=(*_ATTENTION.optional_fields, *_MAMBA2.optional_fields),
        tensor_split_fields=_MAMBA2.tensor_split_fields,
    ),
    "shared_attention_and_mamba2": Mixer(
        ops=(shared_transformer_ops, mamba2_ops), attends=True, carries_state=True, shares_block=True, branches=4,
        required_fields=("num_attention_heads", *_MAMBA2.required_fields, "num_mem_blocks", "intermediate_size"),
        optional_fields=(
            *_HEAD_FIELDS, "mlp_bias", "gated_mlp", *_MAMBA2.optional_fields, "adapter_rank",
            "shared_attention_adapter",
        ),
        tensor_split_fields=_MAMBA2.tensor_split_fields,
    ),
    "rg_lru": Mixer(
        ops=(linear_recurrence_ops,),
        carries_state=True,
        required_fields=("lru_width", "num_attention_heads", "conv_kernel"),
        optional_fields=_PROJECTION_FIELDS,
        tensor_split_fields=("num_attention_heads",),
    ),
    "short_convolution": Mixer(
        ops=(short_convolution_ops,),
        carries_state=True,
        required_fields=("conv_kernel",),
        optional_fields=_PROJECTION_FIELDS,
        tensor_split_fields=("hidden_size",),
    ),
    "none": Mixer(branches=0),
}  # fmt: skip

MLP_FIELDS = ("intermediate_size", "gated_mlp", "mlp_bias", "activation_parameters")
"""Fields of Model that describe an MLP. A shared block has its own MLP."""

MIXER_FIELDS = tuple(
    dict.fromkeys(
        name
        for mixer in MIXERS.values()
        for name in (*mixer.required_fields, *mixer.optional_fields)
        if name not in MLP_FIELDS
    )
)
"""Fields of Model that only mixers read."""


LEDGERS_KEPT = 256
"""Size of caches of ledgers: requests name few models, and many layouts of each. Source: a choice."""


def layer_type(model: Model, layer: int) -> LayerType:
    """Layer type of one layer: from the model's repeating pattern, else sliding if it has a window, else full."""
    if model.layer_types:
        return model.layer_types[layer % len(model.layer_types)]
    return "full_attention" if model.sliding_window is None else "sliding_attention"


def mlp_type(model: Model, layer: int) -> MlpType:
    """MLP of one layer: dense for the leading layers, then the model's pattern, else sparse if it has experts."""
    if layer < model.first_k_dense_replace:
        return "dense"
    if model.mlp_layer_types:
        return model.mlp_layer_types[layer % len(model.mlp_layer_types)]
    return "sparse" if model.num_experts else "dense"


def layer_ops(model: Model, shape: LayerShape, setting: Setting) -> Ops:
    """Operations of one whole layer."""
    mixer = tuple(op for ops in MIXERS[shape.mixer].ops for op in ops(model, shape.mixer, setting))
    mixed = _with_tied_block(mixer) if shape.is_reuse else mixer
    channels = _mlp_ops(model, shape.mlp, setting)
    attention_norm = norm_op("attention.norm", model, setting, readers=_readers(mixed))
    reads = (GROUP,) if model.parallel_attention else ()
    mlp_norm = norm_op("mlp.norm", model, setting, readers=_readers(channels), reads=reads)
    has_own_norm = model.norms_per_layer > 1 or not mixed
    ops = (
        *_branch("attention", (attention_norm, *mixed) if mixed else (), model, setting),
        *_branch("mlp", (mlp_norm, *channels) if channels and has_own_norm else channels, model, setting),
    )
    return _with_matrix_counts(ops) if setting.counts_products else ops


def _with_matrix_counts(ops: Ops) -> Ops:
    """The operations, each with the number of matrices before it in its layer."""
    counted: list[Op] = []
    before = 0
    for op in ops:
        counted.append(replace(op, products_before=before) if before else op)
        before += sum(len(weight.matrices) for weight in op.weights)
    return tuple(counted)


def _readers(ops: Ops) -> int:
    """Matrices of the first product of a branch, which read the norm before it."""
    first = next((op for op in ops if op.weights and op.kind == "gemm"), None)
    return max(1, sum(len(weight.matrices) for weight in first.weights)) if first else 1


def _mlp_ops(model: Model, mlp: MlpType, setting: Setting) -> Ops:
    dense = feed_forward_ops(model, setting, width=model.intermediate_size or 0) if "dense" in mlp else ()
    return (*dense, *(expert_ops(model, setting) if "sparse" in mlp else ()))


def _branch(name: str, ops: Ops, model: Model, setting: Setting) -> Ops:
    """One branch of a layer with its residual addition; empty where the layer lacks the branch."""
    if not ops:
        return ()
    has_norm = model.norms_per_layer == 4
    after = (norm_op(f"{name}.post_norm", model, setting, readers=0),) if has_norm else ()
    return (*ops, *after, residual_op(f"{name}.residual", model, setting))


def _with_tied_block(ops: Ops) -> Ops:
    """Operations of a layer that reuses the block of an earlier layer, whose weights are tied."""
    return tuple(
        replace(op, weights=tuple(replace(weight, tied=True) for weight in op.weights))
        if op.name.startswith(SHARED)
        else op
        for op in ops
    )


def layer_shapes(model: Model) -> list[LayerShape]:
    """The shape of every layer, first to last."""
    shapes: list[LayerShape] = []
    blocks = 0
    for layer in range(model.num_hidden_layers):
        mixer = layer_type(model, layer)
        shares = MIXERS[mixer].shares_block
        shapes.append(LayerShape(mixer, mlp_type(model, layer), shares and blocks >= model.num_mem_blocks))
        blocks += shares
    return shapes


@lru_cache(maxsize=LEDGERS_KEPT)
def build_ledger(model: Model, setting: Setting) -> Ledger:
    """Build the ledger of a model: the operations of each distinct kind of layer, once."""
    shapes = layer_shapes(model)
    kind_of = {shape: kind for kind, shape in enumerate(dict.fromkeys(shapes))}
    has_depths = model.num_nextn_predict_layers > 0
    return Ledger(
        embedding=embedding_ops(model, setting),
        kinds=tuple(layer_ops(model, shape, setting) for shape in kind_of),
        shapes=tuple(kind_of),
        layer_kinds=tuple(kind_of[shape] for shape in shapes),
        depths=model.num_nextn_predict_layers,
        depth=depth_ops(model, setting) if has_depths else (),
        depth_kind=kind_of[shapes[-1]],
        head=(*head_ops(model, setting), *(depth_embedding_ops(model) if has_depths else ())),
    )


def mixers_of(model: Model) -> tuple[LayerType, ...]:
    """Distinct mixers of the layers of a model."""
    return tuple(dict.fromkeys(model.layer_types[: model.num_hidden_layers])) or (layer_type(model, 0),)


def recurrences_of(model: Model) -> tuple[LayerType, ...]:
    """Distinct mixers of a model that carry a state along the sequence."""
    return tuple(mixer for mixer in mixers_of(model) if MIXERS[mixer].carries_state)
