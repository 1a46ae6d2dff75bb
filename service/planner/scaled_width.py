"""How does a model look whose residual stream is wider or narrower, in the proportions of another one?"""

from dataclasses import replace
from math import gcd

from service.estimator.question import Model

SCALED = (
    "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "word_embed_proj_dim",
    "moe_intermediate_size", "shared_expert_intermediate_size", "moe_latent_size", "kv_lora_rank", "q_lora_rank",
    "mamba_d_ssm", "mamba_dt_rank", "mamba_n_heads", "linear_num_key_heads", "linear_num_value_heads", "lru_width",
)  # fmt: skip
"""Fields that grow as the residual stream does: widths and numbers of heads, not the width of a head."""

PROPORTIONS = (
    "heads, widths of the MLP and of mixers grow with hidden_size in the model's own proportions; the width of a head, "
    "the number of layers and of experts stay, as does a single key and value head"
)
"""What is assumed of a wider model, in words."""


def width_unit(model: Model) -> int:
    """The narrowest residual stream that keeps a model's proportions; others are multiples of it.

    Args:
        model: the model

    Returns:
        a divisor of hidden_size

    >>> from service.estimator.samples import sample_job
    >>> width_unit(sample_job().model)
    512
    """
    return model.hidden_size // gcd(*_scaled(model).values())


def with_width(model: Model, hidden_size: int) -> Model:
    """A model with another residual stream.

    Args:
        model: the model
        hidden_size: a multiple of its width unit

    Returns:
        the same in proportion

    >>> from service.estimator.samples import sample_job
    >>> wide = with_width(sample_job().model, 8192)
    >>> wide.num_attention_heads, wide.num_key_value_heads, wide.intermediate_size, wide.head_width
    (64, 16, 28672, 128)
    """
    grown = {name: width * hidden_size // model.hidden_size for name, width in _scaled(model).items()}
    return replace(model, **grown)  # type: ignore[arg-type]  # all of them are whole numbers


def _scaled(model: Model) -> dict[str, int]:
    """The fields that grow, but for those that are absent, and but for one key and value head (multi-query)."""
    widths = {name: getattr(model, name) for name in SCALED if getattr(model, name)}
    return {name: width for name, width in widths.items() if (name, width) != ("num_key_value_heads", 1)}
