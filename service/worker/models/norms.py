"""How does torch run a norm? A root mean square in six passes, as transformers does; a layer norm in one kernel."""

import torch
from torch import nn

EPSILON = 1e-5
"""Number that keeps a norm from dividing by zero; it changes no size. Source: transformers LlamaConfig, GPT2Config."""


class RmsNorm(nn.Module):
    """Root mean square in fp32, cast back and weighed: transformers' LlamaRMSNorm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """The normed numbers."""
        given = hidden.dtype
        hidden = hidden.to(torch.float32)
        variance = hidden.pow(2).mean(-1, keepdim=True)
        hidden = hidden * torch.rsqrt(variance + EPSILON)
        return self.weight * hidden.to(given)


class LengthNorm(nn.Module):
    """The same without weights, on queries and keys: transformers' Llama4TextL2Norm."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """The normed numbers."""
        wide = hidden.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPSILON)).type_as(hidden)


def norm_of(normalization: str, width: int) -> nn.Module:
    """One norm over the residual stream.

    Args:
        normalization: rmsnorm, layernorm, layernorm_no_bias or nonparametric
        width: numbers that it norms [1]

    Returns:
        the module
    """
    if normalization == "rmsnorm":
        return RmsNorm(width)
    if normalization == "nonparametric":
        return nn.LayerNorm(width, eps=EPSILON, elementwise_affine=False)
    return nn.LayerNorm(width, eps=EPSILON, bias=normalization == "layernorm")


def query_key_norm(kind: str, heads: int, width: int) -> nn.Module | None:
    """The norm on queries, or that on keys.

    Args:
        kind: as the model's qk_norm
        heads: heads of the projection [1]
        width: numbers of a head [1]

    Returns:
        the module; None where there is none
    """
    if kind == "none":
        return None
    if kind == "l2":
        return LengthNorm()
    if kind == "per_head_dim_biased":
        return nn.LayerNorm(width, eps=EPSILON)
    return RmsNorm(heads * width if kind == "full" else width)
