"""How does torch run attention? Eager, with scores and mask in memory, or by one of torch's fused kernels."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from service.worker.models.fields import ModelFields
from service.worker.models.norms import query_key_norm

BACKENDS = {
    "flash": (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION),
    "flash-2": (SDPBackend.FLASH_ATTENTION,),
    "cudnn": (SDPBackend.CUDNN_ATTENTION,),
}
"""torch's kernels of each name; flash takes the memory-efficient one where numbers are too wide for FlashAttention."""

ROTARY_BASE = 10_000.0
"""Longest wave of rotary positions; it changes no size. Source: Su et al. 2021, arXiv:2104.09864."""

Positions = tuple[torch.Tensor, torch.Tensor]


def rotary_positions(tokens: int, width: int, dtype: torch.dtype, device: torch.device) -> Positions:
    """Cosines and sines of every position, for all layers.

    Args:
        tokens: tokens of a sequence [1]
        width: numbers of a head [1]
        dtype: their format
        device: where they lie

    Returns:
        both, 1 x tokens x width
    """
    with torch.no_grad():
        waves = 1.0 / ROTARY_BASE ** (torch.arange(0, width, 2, device=device, dtype=torch.float) / width)
        angles = torch.arange(tokens, device=device, dtype=torch.float)[None, :, None] * waves
        twice = torch.cat((angles, angles), dim=-1)
        return twice.cos().to(dtype), twice.sin().to(dtype)


def causal_mask(tokens: int, model: ModelFields, mixer: str, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """What eager attention adds to scores: 0 for keys that a query sees, the lowest number for others.

    Args:
        tokens: tokens of a sequence [1]
        model: its window and chunk
        mixer: how the layer mixes tokens
        dtype: format of the scores
        device: where it lies

    Returns:
        1 x 1 x tokens x tokens
    """
    with torch.no_grad():
        place = torch.arange(tokens, device=device)
        seen = place[:, None] >= place
        if mixer == "sliding_attention" and model.sliding_window:
            seen &= place[:, None] - place < model.sliding_window
        if mixer == "chunked_attention" and model.attention_chunk_size:
            chunk = place // model.attention_chunk_size
            seen &= chunk[:, None] == chunk
        lowest = torch.finfo(dtype).min
        return torch.where(seen, torch.tensor(0.0, dtype=dtype, device=device), lowest)[None, None]


def _turned(states: torch.Tensor, positions: Positions) -> torch.Tensor:
    """Queries or keys with their positions: transformers' apply_rotary_pos_emb."""
    cosines, sines = (part[:, None] for part in positions)
    half = states.shape[-1] // 2
    rotated = torch.cat((-states[..., half:], states[..., :half]), dim=-1)
    return (states * cosines) + (rotated * sines)


def _repeated(states: torch.Tensor, times: int) -> torch.Tensor:
    """Keys or values copied to every query head: transformers' repeat_kv."""
    if times == 1:
        return states
    batch, heads, tokens, width = states.shape
    wide = states[:, :, None].expand(batch, heads, times, tokens, width)
    return wide.reshape(batch, heads * times, tokens, width)


class Attention(nn.Module):
    """Attention with heads of its own, as transformers' LlamaAttention and GPT2Attention."""

    def __init__(self, model: ModelFields, kernel: str, dropout_fraction: float) -> None:
        super().__init__()
        self.model, self.kernel, self.dropout_fraction = model, kernel, dropout_fraction
        width, heads, pairs = model.head_width, model.heads, model.key_value_heads
        self.sizes = (heads * width, pairs * width, pairs * width)
        if model.is_gpt2:
            self.qkv_proj = nn.Linear(model.hidden_size, sum(self.sizes), bias=model.attention_bias)
        else:
            self.q_proj, self.k_proj, self.v_proj = (
                nn.Linear(model.hidden_size, size, bias=model.attention_bias) for size in self.sizes
            )
        self.q_norm = query_key_norm(model.qk_norm, heads, width)
        self.k_norm = query_key_norm(model.qk_norm, pairs, width)
        self.o_proj = nn.Linear(heads * width, model.hidden_size, bias=model.out_bias)

    def forward(self, hidden: torch.Tensor, positions: Positions | None, mask: torch.Tensor | None) -> torch.Tensor:
        """What the heads found, projected back to the stream."""
        queries, keys, values = self._heads(hidden)
        if positions is not None:
            queries, keys = _turned(queries, positions), _turned(keys, positions)
        found = (
            self._eager(queries, keys, values, mask)
            if self.kernel == "eager"
            else self._fused(queries, keys, values, mask)
        )
        projected: torch.Tensor = self.o_proj(found.reshape(*hidden.shape[:-1], -1).contiguous())
        return projected

    def _heads(self, hidden: torch.Tensor) -> list[torch.Tensor]:
        """Queries, keys and values, head by head."""
        if self.model.is_gpt2:
            parts = list(self.qkv_proj(hidden).split(self.sizes, dim=-1))
        else:
            parts = [self.q_proj(hidden), self.k_proj(hidden), self.v_proj(hidden)]
        shape = (*hidden.shape[:-1], -1, self.model.head_width)
        norms = (self.q_norm, self.k_norm, None)
        return [self._normed(part, norm, shape).transpose(1, 2) for part, norm in zip(parts, norms, strict=True)]

    def _normed(self, part: torch.Tensor, norm: nn.Module | None, shape: tuple[int, ...]) -> torch.Tensor:
        if norm is None:
            return part.view(shape)
        whole: torch.Tensor = norm(part).view(shape) if self.model.qk_norm == "full" else norm(part.view(shape))
        return whole

    def _eager(
        self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        """Scores, softmax and weighted values one by one: transformers' eager_attention_forward."""
        times = self.model.heads // self.model.key_value_heads
        keys, values = _repeated(keys, times), _repeated(values, times)
        scores = torch.matmul(queries, keys.transpose(2, 3)) * self.model.head_width**-0.5
        if mask is not None:
            scores = scores + mask
        wide = None if self.model.is_gpt2 else torch.float32
        scores = functional.softmax(scores, dim=-1, dtype=wide).to(values.dtype)
        scores = functional.dropout(scores, p=self.dropout_fraction, training=self.training)
        return torch.matmul(scores, values).transpose(1, 2).contiguous()

    def _fused(
        self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        """One of torch's kernels: transformers' sdpa_attention_forward."""
        times = self.model.heads // self.model.key_value_heads
        repeats = times > 1 and (mask is not None or not queries.is_cuda)
        if repeats:
            keys, values = _repeated(keys, times), _repeated(values, times)
        with _backends(self.kernel, queries):
            found = functional.scaled_dot_product_attention(
                queries,
                keys,
                values,
                attn_mask=mask,
                dropout_p=self.dropout_fraction if self.training else 0.0,
                is_causal=mask is None,
                enable_gqa=times > 1 and not repeats,
            )
        return found.transpose(1, 2).contiguous()


def _backends(kernel: str, queries: torch.Tensor) -> AbstractContextManager[None]:
    """The kernels that may run; a processor has one of its own."""
    if not queries.is_cuda:
        return nullcontext()
    chosen: AbstractContextManager[None] = sdpa_kernel(list(BACKENDS[kernel]))
    return chosen
