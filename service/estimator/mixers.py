"""How may a layer mix its tokens? One row a kind: its operations, the fields that it needs, and what may split it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from service.estimator.layers.attention import attention_ops
from service.estimator.layers.gated_delta_net import gated_delta_net_ops
from service.estimator.layers.latent_attention import latent_attention_ops
from service.estimator.layers.lightning_attention import lightning_attention_ops
from service.estimator.layers.linear_recurrence import linear_recurrence_ops
from service.estimator.layers.mamba import mamba_ops
from service.estimator.layers.mamba2 import mamba2_ops
from service.estimator.layers.shared_transformer import shared_transformer_ops
from service.estimator.layers.short_convolution import short_convolution_ops
from service.estimator.ledger import Ops
from service.estimator.model import Model
from service.estimator.names import LayerType
from service.estimator.setting import Setting

LayerOps = Callable[[Model, LayerType, Setting], Ops]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixer:
    """One way to mix tokens."""

    ops: tuple[LayerOps, ...] = ()
    """Its operations; several run side by side on the same input."""
    attends: bool = False
    """It has attention, whose work grows with the square of the sequence."""
    carries_state: bool = False
    """A state or a window passes along the sequence from token to token."""
    shares_block: bool = False
    """Layers of it hold weights in common."""
    branches: int = 1
    """Parts of it whose results tensor ranks join."""
    needs: tuple[str, ...] = ()
    """Fields of Model without which it is not described."""
    takes: tuple[str, ...] = ()
    """Fields of Model that change it and may be absent."""
    heads: tuple[str, ...] = ()
    """Fields whose numbers a tensor degree has to divide, beside those of attention."""


def _heads_ops(model: Model, layer_type: LayerType, setting: Setting) -> Ops:
    """Attention with heads of its own, or through latents where the model has them."""
    attend = attention_ops if model.kv_lora_rank is None else latent_attention_ops
    return attend(model, layer_type, setting)


_OWN_HEADS = ("num_key_value_heads", "head_dim", "attention_bias", "attention_out_bias")
_ATTENTION = Mixer(
    ops=(_heads_ops,),
    attends=True,
    needs=("num_attention_heads",),
    takes=(*_OWN_HEADS, "qk_norm", "attention_gate", "attention_sinks"),
)
_STATE = ("mamba_d_ssm", "mamba_d_state", "conv_kernel")
_PROJECTED = ("conv_bias", "mixer_bias")
_MAMBA2 = Mixer(
    ops=(mamba2_ops,),
    carries_state=True,
    needs=(*_STATE, "mamba_n_heads", "mamba_n_groups"),
    takes=(*_PROJECTED, "mixer_norm"),
    heads=("mamba_n_heads", "mamba_n_groups"),
)

MIXERS: Mapping[LayerType, Mixer] = {
    "full_attention": _ATTENTION,
    "sliding_attention": _ATTENTION,
    "chunked_attention": _ATTENTION,
    "lightning_attention": Mixer(
        ops=(lightning_attention_ops,), carries_state=True,
        needs=("num_attention_heads",), takes=("head_dim", "mixer_bias"),
    ),
    "gated_delta_net": Mixer(
        ops=(gated_delta_net_ops,),
        carries_state=True,
        needs=(
            "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim",
            "conv_kernel",
        ),
        takes=_PROJECTED,
        heads=("linear_num_key_heads", "linear_num_value_heads"),
    ),
    "mamba": Mixer(
        ops=(mamba_ops,),
        carries_state=True,
        needs=(*_STATE, "mamba_dt_rank"),
        takes=(*_PROJECTED, "mixer_norm"),
        heads=("mamba_d_ssm",),
    ),
    "mamba2": _MAMBA2,
    "attention_and_mamba2": Mixer(
        ops=(_heads_ops, mamba2_ops), attends=True, carries_state=True,
        needs=(*_ATTENTION.needs, *_MAMBA2.needs), takes=(*_ATTENTION.takes, *_MAMBA2.takes), heads=_MAMBA2.heads,
    ),
    "shared_attention_and_mamba2": Mixer(
        ops=(shared_transformer_ops, mamba2_ops), attends=True, carries_state=True, shares_block=True, branches=4,
        needs=("num_attention_heads", *_MAMBA2.needs, "num_mem_blocks", "intermediate_size"),
        takes=(*_OWN_HEADS, "mlp_bias", "gated_mlp", *_MAMBA2.takes, "adapter_rank", "shared_attention_adapter"),
        heads=_MAMBA2.heads,
    ),
    "rg_lru": Mixer(
        ops=(linear_recurrence_ops,),
        carries_state=True,
        needs=("lru_width", "num_attention_heads", "conv_kernel"),
        takes=_PROJECTED,
        heads=("num_attention_heads",),
    ),
    "short_convolution": Mixer(
        ops=(short_convolution_ops,),
        carries_state=True,
        needs=("conv_kernel",),
        takes=_PROJECTED,
        heads=("hidden_size",),
    ),
    "none": Mixer(branches=0),
}  # fmt: skip

MLP_FIELDS = ("intermediate_size", "gated_mlp", "mlp_bias", "activation_parameters")
"""Fields of Model that describe an MLP; a shared block has one of its own."""

MIXER_FIELDS = tuple(
    dict.fromkeys(name for mixer in MIXERS.values() for name in (*mixer.needs, *mixer.takes) if name not in MLP_FIELDS)
)
"""Fields of Model that some mixers read, and nothing else does."""
