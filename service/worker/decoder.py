"""A decoder-only model in plain eager torch, operation by operation as in transformers, and its training step."""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from service.estimator.model.build import layer_type, mlp_type
from service.estimator.question import Model
from service.worker.supported import WEIGHTS, StepRecipe

GELU_CUBIC_WEIGHT = 0.044715
"""Weight of the cube in GELU's approximation. Source: Hendrycks and Gimpel 2016, arXiv:1606.08415."""


def unfused_gelu(hidden: torch.Tensor) -> torch.Tensor:
    """GELU in single operations, each of which saves its inputs: transformers' NewGELUActivation."""
    inner = math.sqrt(2.0 / math.pi) * (hidden + GELU_CUBIC_WEIGHT * torch.pow(hidden, 3.0))
    return 0.5 * hidden * (1.0 + torch.tanh(inner))


class FeedForward(nn.Module):
    """A dense MLP: transformers' LlamaMLP if gated, else its GPT2MLP or one with torch's GELU."""

    def __init__(self, model: Model, width: int) -> None:
        super().__init__()
        hidden, has_bias = model.hidden_size, model.mlp_bias
        self.gate_proj = nn.Linear(hidden, width, bias=has_bias) if model.gated_mlp else None
        self.up_proj = nn.Linear(hidden, width, bias=has_bias)
        self.down_proj = nn.Linear(width, hidden, bias=has_bias)
        self.activation = unfused_gelu if model.is_gpt2 else functional.gelu

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """The branch's output."""
        if self.gate_proj is None:
            active = self.activation(self.up_proj(hidden))
        else:
            active = functional.silu(self.gate_proj(hidden)) * self.up_proj(hidden)
        return self.down_proj(active)


EPSILON = 1e-5
"""Epsilon of norms; no effect on tensor sizes. Source: transformers LlamaConfig, GPT2Config."""


class RmsNorm(nn.Module):
    """Root mean square in fp32, cast back and scaled: transformers' LlamaRMSNorm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Normalize the last dimension."""
        number_format = hidden.dtype
        hidden = hidden.to(torch.float32)
        variance = hidden.pow(2).mean(-1, keepdim=True)
        hidden = hidden * torch.rsqrt(variance + EPSILON)
        return self.weight * hidden.to(number_format)


class RmsNorm1p(nn.Module):
    """Root mean square in fp32, scaled by 1 + weight and cast back: transformers' Gemma2RMSNorm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Normalize the last dimension."""
        wide = hidden.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPSILON)
        return (wide * (1.0 + self.weight.float())).type_as(hidden)


class L2Norm(nn.Module):
    """Root mean square norm of queries or keys without weights: transformers' Llama4TextL2Norm."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Normalize the last dimension."""
        wide = hidden.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPSILON)).type_as(hidden)


def norm_of(normalization: str, width: int) -> nn.Module:
    """One norm over the residual stream."""
    if normalization == "rmsnorm":
        return RmsNorm(width)
    if normalization == "rmsnorm_1p":
        return RmsNorm1p(width)
    if normalization == "nonparametric":
        return nn.LayerNorm(width, eps=EPSILON, elementwise_affine=False)
    return nn.LayerNorm(width, eps=EPSILON, bias=normalization == "layernorm")


def query_key_norm(model: Model, heads: int, width: int) -> nn.Module | None:
    """The norm on queries or on keys; None if the model has none."""
    kind = model.qk_norm
    if kind == "none":
        return None
    if kind == "l2":
        return L2Norm()
    if kind == "per_head_dim_biased":
        return nn.LayerNorm(width, eps=EPSILON)
    root = RmsNorm1p if model.normalization == "rmsnorm_1p" else RmsNorm
    return root(heads * width if kind == "full" else width)


BACKENDS = {
    "flash": (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION),
    "flash-2": (SDPBackend.FLASH_ATTENTION,),
    "cudnn": (SDPBackend.CUDNN_ATTENTION,),
}
"""torch's backends by kernel name; flash falls back to the memory-efficient one for other formats."""

ROTARY_BASE = 10_000.0
"""Base of the rotary frequencies; no effect on tensor sizes. Source: Su et al. 2021, arXiv:2104.09864."""

Positions = tuple[torch.Tensor, torch.Tensor]


def rotary_positions(tokens: int, width: int, dtype: torch.dtype, device: torch.device) -> Positions:
    """Cosines and sines of every position, for all layers."""
    with torch.no_grad():
        frequencies = 1.0 / ROTARY_BASE ** (torch.arange(0, width, 2, device=device, dtype=torch.float) / width)
        angles = torch.arange(tokens, device=device, dtype=torch.float)[None, :, None] * frequencies
        twice = torch.cat((angles, angles), dim=-1)
        return twice.cos().to(dtype), twice.sin().to(dtype)


def _rotated(states: torch.Tensor, positions: Positions) -> torch.Tensor:
    """Queries or keys rotated by their positions: transformers' apply_rotary_pos_emb."""
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
    """Multi-head or grouped-query attention: transformers' LlamaAttention and GPT2Attention."""

    def __init__(self, model: Model, kernel: str, dropout_fraction: float) -> None:
        super().__init__()
        self.model, self.kernel, self.dropout_fraction = model, kernel, dropout_fraction
        width, heads, key_value_heads = model.head_width, model.num_attention_heads, model.key_value_heads
        self.sizes = (heads * width, key_value_heads * width, key_value_heads * width)
        if model.is_gpt2:
            self.qkv_proj = nn.Linear(model.hidden_size, sum(self.sizes), bias=model.attention_bias)
        else:
            self.q_proj, self.k_proj, self.v_proj = (
                nn.Linear(model.hidden_size, size, bias=model.attention_bias) for size in self.sizes
            )
        self.q_norm = query_key_norm(model, heads, width)
        self.k_norm = query_key_norm(model, key_value_heads, width)
        self.o_proj = nn.Linear(heads * width, model.hidden_size, bias=model.out_bias)

    def forward(self, hidden: torch.Tensor, positions: Positions | None, mask: torch.Tensor | None) -> torch.Tensor:
        """The heads' output, projected to the hidden size."""
        queries, keys, values = self._heads(hidden)
        if positions is not None:
            queries, keys = _rotated(queries, positions), _rotated(keys, positions)
        mixed = (
            self._eager(queries, keys, values, mask)
            if self.kernel == "eager"
            else self._fused(queries, keys, values, mask)
        )
        return self.o_proj(mixed.reshape(*hidden.shape[:-1], -1).contiguous())

    def _heads(self, hidden: torch.Tensor) -> list[torch.Tensor]:
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
        return norm(part).view(shape) if self.model.qk_norm == "full" else norm(part.view(shape))

    def _eager(
        self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        """Scores, softmax and weighted values one by one: transformers' eager_attention_forward."""
        times = self.model.num_attention_heads // self.model.key_value_heads
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
        times = self.model.num_attention_heads // self.model.key_value_heads
        repeats = times > 1 and mask is not None
        if repeats:
            keys, values = _repeated(keys, times), _repeated(values, times)
        with sdpa_kernel(list(BACKENDS[self.kernel])) if queries.is_cuda else nullcontext():
            mixed = functional.scaled_dot_product_attention(
                queries,
                keys,
                values,
                attn_mask=mask,
                dropout_p=self.dropout_fraction if self.training else 0.0,
                is_causal=mask is None,
                enable_gqa=times > 1 and not repeats,
            )
        return mixed.transpose(1, 2).contiguous()


INIT_STD = 0.02
"""Standard deviation of weights; no effect on tensor sizes. Source: transformers Qwen3MoeConfig.initializer_range."""


class GroupedProduct(torch.autograd.Function):
    """Rows times the matrix of their group, one group at a time; saves only rows and matrices."""

    @staticmethod
    def forward(context: Any, rows: torch.Tensor, matrices: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        """The products, in the order of the rows."""
        context.save_for_backward(rows, matrices, ends)
        products = rows.new_empty(rows.shape[0], matrices.shape[1])
        for group, (start, end) in enumerate(_spans(ends)):
            torch.mm(rows[start:end], matrices[group].t(), out=products[start:end])
        return products

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        """Gradients of the rows and of the matrices."""
        rows, matrices, ends = context.saved_tensors
        (upstream,) = gradients
        row_gradients, matrix_gradients = torch.empty_like(rows), torch.zeros_like(matrices)
        for group, (start, end) in enumerate(_spans(ends)):
            torch.mm(upstream[start:end], matrices[group], out=row_gradients[start:end])
            torch.mm(upstream[start:end].t(), rows[start:end], out=matrix_gradients[group])
        return row_gradients, matrix_gradients, None


def _spans(ends: torch.Tensor) -> list[tuple[int, int]]:
    last = ends.tolist()
    return list(zip([0, *last[:-1]], last, strict=True))


def grouped_product(rows: torch.Tensor, matrices: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Rows times the matrix of their group: by torch's kernel if there is one, as transformers' grouped_mm does.

    It is no operation of autocast: rows come in the format of the matrices.
    """
    rows = rows.to(matrices.dtype)
    kernel = getattr(functional, "grouped_mm", None)
    if kernel is not None and rows.is_cuda and rows.dtype is torch.bfloat16:
        return kernel(rows, matrices.transpose(1, 2), offs=ends)
    return GroupedProduct.apply(rows, matrices, ends)


class Router(nn.Module):
    """Choice of each token's experts, with their weights: transformers' Qwen3MoeTopKRouter."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.top_k = model.num_experts_per_tok
        self.weight = nn.Parameter(torch.empty(model.num_experts, model.hidden_size))
        nn.init.normal_(self.weight, std=INIT_STD)

    def forward(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Weights and indices of the chosen experts, tokens x top-k."""
        logits = functional.linear(hidden, self.weight)
        probabilities = functional.softmax(logits, dtype=torch.float, dim=-1)
        weights, chosen = torch.topk(probabilities, self.top_k, dim=-1)
        return (weights / weights.sum(dim=-1, keepdim=True)).to(logits.dtype), chosen


class Experts(nn.Module):
    """Routed experts, with shared ones beside them: transformers' Qwen2MoeSparseMoeBlock with grouped products."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        hidden, width, count = model.hidden_size, model.expert_width, model.num_experts
        inner = 2 * width if model.gated_mlp else width
        self.is_gated, self.count = model.gated_mlp, count
        self.router = Router(model)
        self.up_proj = nn.Parameter(torch.empty(count, inner, hidden))
        self.down_proj = nn.Parameter(torch.empty(count, hidden, width))
        shared = model.shared_expert_intermediate_size
        self.shared = FeedForward(model, shared) if shared else None
        self.shared_gate = nn.Linear(hidden, 1, bias=False) if model.shared_expert_gate else None
        for matrices in (self.up_proj, self.down_proj):
            nn.init.normal_(matrices, std=INIT_STD)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """The experts' output."""
        flat = hidden.reshape(-1, hidden.shape[-1])
        shared_output = None if self.shared is None else self.shared(flat)
        weights, chosen = self.router(flat)
        out = self._routed(flat, weights, chosen)
        if shared_output is not None:
            if self.shared_gate is not None:
                shared_output = functional.sigmoid(self.shared_gate(flat)) * shared_output
            out = out + shared_output
        return out.reshape(hidden.shape)

    def _routed(self, flat: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        """Outputs of the chosen experts, weighted and summed: transformers' grouped_mm_experts_forward."""
        copies = chosen.shape[-1]
        sorted_experts, order = torch.sort(chosen.reshape(-1))
        rows = flat[order // copies]
        shares = weights.reshape(-1)[order]
        ends = torch.searchsorted(sorted_experts, torch.arange(self.count, device=flat.device), right=True).int()
        inner = grouped_product(rows, self.up_proj, ends)
        if self.is_gated:
            gate, up = inner.chunk(2, dim=-1)
            active = functional.silu(gate) * up
        else:
            active = functional.gelu(inner)
        weighted = grouped_product(active, self.down_proj, ends) * shares.unsqueeze(-1)
        inverse = torch.empty_like(order)
        inverse[order] = torch.arange(order.numel(), device=flat.device)
        return weighted[inverse].view(-1, copies, flat.shape[-1]).sum(dim=1).to(flat.dtype)


NO_TARGET = -100
"""Label of a token without a next one. Source: torch.nn.functional.cross_entropy, ignore_index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderOptions:
    """How the decoder runs: attention kernel, dropout and recomputation."""

    kernel: str
    """eager, or a name of BACKENDS."""
    dropout_fraction: float = 0.0
    """Dropout of embedding, attention and both branches."""
    recomputed_layers: int = 0
    """Number of leading layers that save only their input and run again in the backward pass."""


class Layer(nn.Module):
    """One layer: attention and an MLP, one after the other or side by side."""

    def __init__(self, model: Model, options: DecoderOptions, layer: int) -> None:
        super().__init__()
        self.mixer, self.is_parallel = layer_type(model, layer), model.parallel_attention
        norms = [norm_of(model.normalization, model.hidden_size) for _ in range(model.norms_per_layer)]
        self.norms = nn.ModuleList(norms)
        self.attention = Attention(model, options.kernel, options.dropout_fraction)
        is_sparse = mlp_type(model, layer) == "sparse"
        self.mlp = Experts(model) if is_sparse else FeedForward(model, model.intermediate_size or 0)
        self.dropout = nn.Dropout(options.dropout_fraction)

    def forward(self, hidden: torch.Tensor, positions: Positions | None, mask: torch.Tensor | None) -> torch.Tensor:
        """The residual stream after the layer."""
        if self.is_parallel:
            attention_input = self.norms[0](hidden)
            mlp_input = self.norms[1](hidden) if len(self.norms) > 1 else attention_input
            mixed = self.dropout(self.attention(attention_input, positions, mask))
            return hidden + mixed + self.dropout(self.mlp(mlp_input))
        hidden = hidden + self._after(1, self.dropout(self.attention(self.norms[0](hidden), positions, mask)))
        mlp_norm = self.norms[2 if len(self.norms) == 4 else 1]
        return hidden + self._after(3, self.dropout(self.mlp(mlp_norm(hidden))))

    def _after(self, norm: int, branch: torch.Tensor) -> torch.Tensor:
        """A branch, normalized if layers have norms after branches too."""
        return self.norms[norm](branch) if len(self.norms) == 4 else branch


class Decoder(nn.Module):
    """A decoder-only model with its loss: transformers' LlamaForCausalLM and GPT2LMHeadModel."""

    def __init__(self, model: Model, options: DecoderOptions) -> None:
        super().__init__()
        self.model, self.options = model, options
        width, hidden = model.word_embed_proj_dim or model.hidden_size, model.hidden_size
        self.embedding = _table(model.vocab_size, width)
        rows = model.position_embedding_rows
        self.positions = _table(rows, hidden) if rows else None
        self.project_in = nn.Linear(width, hidden, bias=False) if model.word_embed_proj_dim else None
        self.embedding_norm = norm_of(model.normalization, hidden) if model.embedding_norm else None
        self.dropout = nn.Dropout(options.dropout_fraction)
        self.layers = nn.ModuleList(Layer(model, options, layer) for layer in range(model.num_hidden_layers))
        self.final_norm = norm_of(model.normalization, hidden) if model.final_norm else None
        self.project_out = nn.Linear(hidden, width, bias=False) if model.word_embed_proj_dim else None
        self.head = _head(model, width, self.embedding.weight if model.tie_word_embeddings else None)

    def logits(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self._embedded(tokens)
        length, device = tokens.shape[1], hidden.device
        rotary = None
        if self.positions is None:
            rotary = rotary_positions(length, self.model.head_width, hidden.dtype, device)
        masks = {layer.mixer: self._mask(layer.mixer, length, hidden) for layer in self.layers}
        for index, layer in enumerate(self.layers):
            if index < self.options.recomputed_layers:
                hidden = checkpoint(layer, hidden, rotary, masks[layer.mixer], use_reentrant=False)
            else:
                hidden = layer(hidden, rotary, masks[layer.mixer])
        hidden = hidden if self.final_norm is None else self.final_norm(hidden)
        hidden = hidden if self.project_out is None else self.project_out(hidden)
        return self.head(hidden)

    def _embedded(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(tokens)
        hidden = hidden if self.project_in is None else self.project_in(hidden)
        if self.positions is not None:
            hidden = hidden + self.positions(torch.arange(tokens.shape[1], device=tokens.device)[None])
        hidden = hidden if self.embedding_norm is None else self.embedding_norm(hidden)
        return self.dropout(hidden)

    def _mask(self, mixer: str, length: int, hidden: torch.Tensor) -> torch.Tensor | None:
        """Additive mask for eager attention and for windows, which fused kernels lack: 0 or the lowest number."""
        model, device, dtype = self.model, hidden.device, hidden.dtype
        window = {
            "sliding_attention": model.sliding_window, "chunked_attention": model.attention_chunk_size,
        }.get(mixer)  # fmt: skip
        if self.options.kernel != "eager" and (window is None or window >= length):
            return None
        with torch.no_grad():
            position = torch.arange(length, device=device)
            visible = position[:, None] >= position
            if mixer == "sliding_attention" and window:
                visible &= position[:, None] - position < window
            if mixer == "chunked_attention" and window:
                chunk = position // window
                visible &= chunk[:, None] == chunk
            zero = torch.tensor(0.0, dtype=dtype, device=device)
            return torch.where(visible, zero, torch.finfo(dtype).min)[None, None]


def _table(rows: int, width: int) -> nn.Embedding:
    return nn.Embedding.from_pretrained(nn.init.normal_(torch.empty(rows, width), std=INIT_STD), freeze=False)


def _head(model: Model, width: int, tied: nn.Parameter | None) -> nn.Linear:
    """The projection to logits; its matrix is the embedding's if `tied` is given."""
    if tied is None:
        return nn.Linear(width, model.vocab_size, bias=model.lm_head_bias)
    with torch.device("meta"):
        head = nn.Linear(width, model.vocab_size, bias=False)
    head.weight = tied
    if model.lm_head_bias:
        head.bias = nn.Parameter(torch.zeros(model.vocab_size))
    return head


def causal_loss(logits: torch.Tensor, tokens: torch.Tensor, vocabulary: int) -> torch.Tensor:
    """The mean cross entropy of the next token, in fp32: transformers' ForCausalLMLoss."""
    wide = logits.float()
    targets = functional.pad(tokens, (0, 1), value=NO_TARGET)[..., 1:].contiguous()
    return functional.cross_entropy(wide.view(-1, vocabulary), targets.view(-1), ignore_index=NO_TARGET)


def build(model: Model, options: DecoderOptions, precision: str, device: str) -> Decoder:
    previous_dtype = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, WEIGHTS[precision]))
    try:
        with torch.device(device):
            decoder = Decoder(model, options)
            decoder.train()
            return decoder
    finally:
        torch.set_default_dtype(previous_dtype)


MAX_GRADIENT_NORM = 1.0
"""Norm to which gradients are clipped. Source: transformers 5.23.0 TrainingArguments.max_grad_norm."""
LEARNING_RATE = 1e-4
"""Step size; no effect on tensor sizes. Source: a choice."""

FORMATS = {"fp16": torch.float16, "bf16": torch.bfloat16}


Mark = Callable[[str, int | None], None]
"""Called at each moment of a step, with its name and its layer."""


class Trainer:
    """A model in training on one device."""

    def __init__(self, model: nn.Module, vocabulary: int, recipe: StepRecipe, device: str) -> None:
        self.model, self.vocabulary, self.recipe, self.device = model, vocabulary, recipe, torch.device(device)
        self.parameters: list[nn.Parameter] = list(model.parameters())
        options: dict[str, Any] = {"lr": LEARNING_RATE, ("fused" if recipe.fused_update else "foreach"): True}
        if recipe.optimizer == "sgd-momentum":
            self.optimizer: Any = torch.optim.SGD(self.parameters, momentum=0.9, **options)
        else:
            self.optimizer = torch.optim.AdamW(self.parameters, weight_decay=0.1, **options)
        self.scaler = torch.amp.GradScaler(self.device.type) if recipe.compute == "fp16" else None
        shape = (recipe.micro_batch, recipe.sequence_length)
        self.tokens = torch.randint(vocabulary, shape, device=self.device)

    def step(self, mark: Mark | None = None) -> None:
        """Train on the batch once."""
        hooks = list(self._hooks(mark)) if mark else []
        mark_moment = mark or (lambda _moment, _layer: None)
        mark_moment("start", None)
        loss = self._loss(mark_moment)
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()
        mark_moment("backward", None)
        self._update(mark_moment)
        mark_moment("end", None)
        for hook in hooks:
            hook.remove()

    def _loss(self, mark: Mark) -> torch.Tensor:
        with self._autocast():
            logits = self.model.logits(self.tokens)
            mark("forward", None)
            loss = causal_loss(logits, self.tokens, self.vocabulary)
        mark("loss", None)
        return loss

    def _autocast(self) -> AbstractContextManager[Any]:
        compute = self.recipe.compute
        return nullcontext() if compute is None else torch.autocast(self.device.type, FORMATS[compute])

    def _update(self, mark: Mark) -> None:
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.parameters, MAX_GRADIENT_NORM, foreach=True)
        mark("clip", None)
        if self.scaler is None:
            self.optimizer.step()
        else:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        mark("optimizer", None)
        self.optimizer.zero_grad(set_to_none=True)

    def _hooks(self, mark: Mark) -> Iterator[Any]:
        """Hooks that mark the end of each layer's forward pass, and of its backward pass at its first weights."""
        for index, layer in enumerate(self.model.layers):
            yield layer.register_forward_hook(lambda *_, at=index: mark("forward", at))
            first = next(layer.parameters())
            yield first.register_post_accumulate_grad_hook(lambda _, at=index: mark("backward", at))

    def tensor_bytes(self) -> dict[str, int]:
        states = [value for state in self.optimizer.state.values() for value in state.values()]
        tensors = {
            "parameters_bytes": self.parameters,
            "gradients_bytes": [one.grad for one in self.parameters if one.grad is not None],
            "optimizer_states_bytes": [one for one in states if isinstance(one, torch.Tensor)],
            "input_bytes": [self.tokens],
        }
        return {category: sum(tensor.nbytes for tensor in own) for category, own in tensors.items()}


def trainer_of(model: Model, recipe: StepRecipe, device: str) -> Trainer:
    options = DecoderOptions(
        kernel=recipe.kernel,
        dropout_fraction=recipe.dropout_fraction,
        recomputed_layers=recipe.recomputed_layers(model.num_hidden_layers),
    )
    return Trainer(build(model, options, recipe.precision, device), model.vocab_size, recipe, device)
