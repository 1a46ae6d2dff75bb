"""How does torch run a dense MLP: gated by a SiLU, or plain with a GELU?"""

import math

import torch
from torch import nn
from torch.nn import functional

from service.worker.models.fields import ModelFields

CUBIC = 0.044715
"""Weight of the cube in GELU's approximation. Source: Hendrycks and Gimpel 2016, arXiv:1606.08415."""


def written_gelu(hidden: torch.Tensor) -> torch.Tensor:
    """GELU in single operations, each of which keeps what it needs: transformers' NewGELUActivation."""
    inner = math.sqrt(2.0 / math.pi) * (hidden + CUBIC * torch.pow(hidden, 3.0))
    return 0.5 * hidden * (1.0 + torch.tanh(inner))


class FeedForward(nn.Module):
    """A dense MLP: transformers' LlamaMLP where it is gated, GPT2MLP or one with torch's GELU where not."""

    def __init__(self, model: ModelFields, width: int) -> None:
        super().__init__()
        hidden, has_bias = model.hidden_size, model.mlp_bias
        self.gate_proj = nn.Linear(hidden, width, bias=has_bias) if model.gated_mlp else None
        self.up_proj = nn.Linear(hidden, width, bias=has_bias)
        self.down_proj = nn.Linear(width, hidden, bias=has_bias)
        self.activation = written_gelu if model.is_gpt2 else functional.gelu

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """What it adds to the stream."""
        if self.gate_proj is None:
            active = self.activation(self.up_proj(hidden))
        else:
            active = functional.silu(self.gate_proj(hidden)) * self.up_proj(hidden)
        found: torch.Tensor = self.down_proj(active)
        return found
