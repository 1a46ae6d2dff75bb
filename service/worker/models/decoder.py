"""How does torch run a whole model: embedding, layers, head and loss?"""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from service.worker.models.attention import Attention, Positions, causal_mask, rotary_positions
from service.worker.models.experts import Experts
from service.worker.models.feed_forward import FeedForward
from service.worker.models.fields import ModelFields
from service.worker.models.norms import norm_of

DEVIATION = 0.02
"""Spread of an embedding's numbers; it changes no size. Source: transformers LlamaConfig.initializer_range."""

NO_TARGET = -100
"""Label of a token without a next one. Source: torch.nn.functional.cross_entropy, ignore_index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """How the operations of a model are carried out."""

    kernel: str
    """eager, or a name of attention.BACKENDS."""
    dropout_fraction: float = 0.0
    """Dropout of embedding, attention and both branches."""
    recomputed_layers: int = 0
    """Layers, from the first, that keep their input alone and run again in the backward pass."""


class Layer(nn.Module):
    """One layer: attention and an MLP, one after the other or side by side."""

    def __init__(self, model: ModelFields, running: Running, layer: int) -> None:
        super().__init__()
        self.mixer, self.is_parallel = model.mixer(layer), model.parallel_attention
        norms = [norm_of(model.normalization, model.hidden_size) for _ in range(model.norms_per_layer)]
        self.norms = nn.ModuleList(norms)
        self.attention = Attention(model, running.kernel, running.dropout_fraction)
        is_sparse = model.channels(layer) == "sparse"
        self.mlp = Experts(model) if is_sparse else FeedForward(model, model.intermediate_size or 0)
        self.dropout = nn.Dropout(running.dropout_fraction)

    def forward(self, hidden: torch.Tensor, positions: Positions | None, mask: torch.Tensor | None) -> torch.Tensor:
        """The stream after the layer."""
        if self.is_parallel:
            read = self.norms[0](hidden)
            beside = self.norms[1](hidden) if len(self.norms) > 1 else read
            mixed = self.dropout(self.attention(read, positions, mask))
            return hidden + mixed + self.dropout(self.mlp(beside))
        hidden = hidden + self._after(1, self.dropout(self.attention(self.norms[0](hidden), positions, mask)))
        before = self.norms[2 if len(self.norms) == 4 else 1]
        return hidden + self._after(3, self.dropout(self.mlp(before(hidden))))

    def _after(self, norm: int, branch: torch.Tensor) -> torch.Tensor:
        """A branch, normed where layers have norms after branches too."""
        normed: torch.Tensor = self.norms[norm](branch) if len(self.norms) == 4 else branch
        return normed


class Decoder(nn.Module):
    """A decoder-only model with its loss: transformers' LlamaForCausalLM and GPT2LMHeadModel."""

    def __init__(self, model: ModelFields, running: Running) -> None:
        super().__init__()
        self.model, self.running = model, running
        width, hidden = model.word_embed_proj_dim or model.hidden_size, model.hidden_size
        self.embedding = _table(model.vocab_size, width)
        rows = model.position_embedding_rows
        self.positions = _table(rows, hidden) if rows else None
        self.widening = nn.Linear(width, hidden, bias=False) if model.word_embed_proj_dim else None
        self.embedding_norm = norm_of(model.normalization, hidden) if model.embedding_norm else None
        self.dropout = nn.Dropout(running.dropout_fraction)
        self.layers = nn.ModuleList(Layer(model, running, layer) for layer in range(model.num_hidden_layers))
        self.final_norm = norm_of(model.normalization, hidden) if model.final_norm else None
        self.narrowing = nn.Linear(hidden, width, bias=False) if model.word_embed_proj_dim else None
        self.head = _head(model, width, self.embedding.weight if model.tie_word_embeddings else None)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """The loss of predicting each token from those before it; logits are gone when it is known."""
        return causal_loss(self.logits(tokens), tokens, self.model.vocab_size)

    def logits(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits of every token."""
        hidden = self._embedded(tokens)
        length, device = tokens.shape[1], hidden.device
        turns = None
        if self.positions is None:
            turns = rotary_positions(length, self.model.head_width, hidden.dtype, device)
        masks = {layer.mixer: self._mask(layer.mixer, length, hidden) for layer in self.layers}
        for index, layer in enumerate(self.layers):
            if index < self.running.recomputed_layers:
                hidden = checkpoint(layer, hidden, turns, masks[layer.mixer], use_reentrant=False)
            else:
                hidden = layer(hidden, turns, masks[layer.mixer])
        hidden = hidden if self.final_norm is None else self.final_norm(hidden)
        hidden = hidden if self.narrowing is None else self.narrowing(hidden)
        found: torch.Tensor = self.head(hidden)
        return found

    def _embedded(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(tokens)
        hidden = hidden if self.widening is None else self.widening(hidden)
        if self.positions is not None:
            hidden = hidden + self.positions(torch.arange(tokens.shape[1], device=tokens.device)[None])
        hidden = hidden if self.embedding_norm is None else self.embedding_norm(hidden)
        dropped: torch.Tensor = self.dropout(hidden)
        return dropped

    def _mask(self, mixer: str, length: int, hidden: torch.Tensor) -> torch.Tensor | None:
        """The mask of eager attention, and of windows that the fused kernels do not know."""
        window = {
            "sliding_attention": self.model.sliding_window,
            "chunked_attention": self.model.attention_chunk_size,
        }.get(mixer)
        is_causal = window is None or window >= length
        if self.running.kernel != "eager" and is_causal:
            return None
        return causal_mask(length, self.model, mixer, hidden.dtype, hidden.device)


def _table(rows: int, width: int) -> nn.Embedding:
    """A table of small random rows."""
    return nn.Embedding.from_pretrained(nn.init.normal_(torch.empty(rows, width), std=DEVIATION), freeze=False)


def _head(model: ModelFields, width: int, shared: nn.Parameter | None) -> nn.Linear:
    """The projection to logits, its matrix the embedding's where that is shared."""
    if shared is None:
        return nn.Linear(width, model.vocab_size, bias=model.lm_head_bias)
    with torch.device("meta"):
        head = nn.Linear(width, model.vocab_size, bias=False)
    head.weight = shared
    if model.lm_head_bias:
        head.bias = nn.Parameter(torch.zeros(model.vocab_size))
    return head


def causal_loss(logits: torch.Tensor, tokens: torch.Tensor, vocabulary: int) -> torch.Tensor:
    """The mean cross entropy of the next token, in fp32: transformers' ForCausalLMLoss.

    Args:
        logits: of every token
        tokens: the tokens
        vocabulary: logits of one token [1]

    Returns:
        the loss
    """
    wide = logits.float()
    targets = functional.pad(tokens, (0, 1), value=NO_TARGET)[..., 1:].contiguous()
    return functional.cross_entropy(wide.view(-1, vocabulary), targets.view(-1), ignore_index=NO_TARGET)
