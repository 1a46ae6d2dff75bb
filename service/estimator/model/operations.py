"""Operations that several kinds of layer share: projections, norms, core attention, MLPs, convolutions."""

from dataclasses import replace
from functools import partial
from typing import Any

from service.estimator.model.ledger import (
    EVERYTHING,
    LAST_NORM,
    WIDE_BYTES,
    Gradient,
    Op,
    Ops,
    Saved,
    SavedFor,
    SequenceSettings,
    Split,
    Weight,
    document_pairs_twice,
    sequence_pairs_twice,
)
from service.estimator.question import LayerType, MatrixName, Model, Normalization, RecomputeModule


def product_op(
    name: str,
    setting: SequenceSettings,
    *weights: Weight,
    moved: int,
    whole: int = 0,
    split: Split = Split.TENSOR,
    **tags: Any,
) -> Op:
    """A product of every token with some matrices; each rank moves a share of `moved` and all of `whole`."""
    return Op(
        name=name,
        kind="gemm",
        split=split,
        weights=weights,
        flop=2 * setting.tokens * sum(weight.parameters for weight in weights if weight.role in ("matrix", "head")),
        moved_bytes=setting.tensor_bytes(moved),
        whole_bytes=setting.tensor_bytes(whole),
        **tags,
    )


def bias_of(width: int, split: Split = Split.WHOLE, copies: int = 1, *, given: bool) -> tuple[Weight, ...]:
    """The bias of a product, where the model has one."""
    return (Weight(1, width, split, copies, "vector"),) if given else ()


def query_key_value_op(model: Model, setting: SequenceSettings, *, inputs: int, gates: int = 0) -> Op:
    """The projection to queries, keys, values and gate of all heads; norm and kernel save its input and result."""
    # Source: Korthikanti et al. 2022, arXiv:2205.05198, section 4.1; heads in groups: Ainslie 2023, arXiv:2305.13245
    queries = model.num_attention_heads * model.head_width + gates
    key_values = 2 * model.key_value_heads * model.head_width
    return product_op(
        "attention.qkv",
        setting,
        Weight(inputs, queries, Split.TENSOR, matrices=("q_proj",)),
        Weight(inputs, key_values, Split.KEY_VALUE, matrices=("k_proj", "v_proj")),
        *bias_of(queries, Split.TENSOR, given=model.attention_bias),
        *bias_of(key_values, Split.KEY_VALUE, given=model.attention_bias),
        moved=queries + key_values,
        whole=inputs,
    )


def attention_output_op(model: Model, setting: SequenceSettings) -> Op:
    """The projection of all heads' values to the residual stream; it saves its input, as flash attention does too."""
    # Source: Korthikanti et al. 2022, arXiv:2205.05198, section 4.1 (2 s b h for its input)
    inputs = model.num_attention_heads * model.value_width
    each = setting.element_bytes if setting.result_bytes is None else setting.result_bytes
    serves: SavedFor = "own_weights" if setting.keeps_scores else "backward"
    saved = Saved(round(setting.tokens * inputs * each), Split.TENSOR, serves=serves)
    copy = replace(saved, serves="own_weights")
    return product_op(
        "attention.out",
        setting,
        Weight(inputs, model.hidden_size, Split.TENSOR, matrices=("o_proj",)),
        *bias_of(model.hidden_size, given=model.out_bias),
        moved=inputs,
        whole=model.hidden_size,
        is_row_parallel=True,
        saved=(saved, copy) if setting.copies_heads and not setting.keeps_scores else (saved,),
    )


def mixer_input_op(
    model: Model, setting: SequenceSettings, *, outputs: int, reads: tuple[str, ...] = (LAST_NORM,)
) -> Op:
    """The projection to the inputs of a recurrence or convolution; the norm saves its input, readers its result."""
    # Source: Gu and Dao 2023, arXiv:2312.00752, figure 3 (the linear projections of the block)
    return product_op(
        "mixer.in",
        setting,
        Weight(model.hidden_size, outputs, Split.TENSOR, matrices=("in_proj",)),
        *bias_of(outputs, Split.TENSOR, given=model.mixer_bias),
        moved=outputs,
        whole=model.hidden_size,
        reads=reads,
    )


def mixer_output_op(model: Model, setting: SequenceSettings, *, inputs: int, keeps_input: bool) -> Op:
    """The projection of the result of a recurrence or convolution to the residual stream. Source: as mixer_input_op."""
    saved = Saved(setting.tensor_bytes(inputs), Split.TENSOR, serves="own_weights")
    return product_op(
        "mixer.out",
        setting,
        Weight(inputs, model.hidden_size, Split.TENSOR, matrices=("out_proj",)),
        *bias_of(model.hidden_size, given=model.mixer_bias),
        moved=inputs,
        whole=model.hidden_size,
        is_row_parallel=True,
        saved=(saved,) if keeps_input else (),
    )


def embedding_width_op(name: str, model: Model, setting: SequenceSettings, *, rows: int, columns: int) -> Op:
    """The projection between a narrower token embedding and the residual stream; it saves the narrow side."""
    # Source: transformers modeling_opt.OPTDecoder (project_in, project_out)
    serves: SavedFor = "own_weights" if rows == model.embedding_width else "next_weights"
    return product_op(
        name,
        setting,
        Weight(rows, columns),
        moved=rows + columns,
        split=Split.WHOLE,
        keeps_precision=True,
        saved=(Saved(setting.tensor_bytes(model.embedding_width), Split.SEQUENCE, serves=serves),),
    )


_VECTORS: dict[Normalization, int] = {
    "rmsnorm": 1, "rmsnorm_1p": 1, "layernorm": 2, "layernorm_no_bias": 1, "nonparametric": 0,
}  # fmt: skip


def norm_weights(normalization: Normalization, width: int) -> tuple[Weight, ...]:
    """Trained vectors of one norm: a scale, a shift, both or none."""
    return tuple(Weight(1, width, role="norm") for _ in range(_VECTORS[normalization]))


def norm_op(
    name: str,
    model: Model,
    setting: SequenceSettings,
    *,
    readers: int = 1,
    reads: tuple[str, ...] = (),
    is_apart: bool = True,
) -> Op:
    """One norm over the residual stream; saves its input, and the input of a product, which `layernorm` recomputes.

    `is_apart` tells a module of its own from a part of the next product's, which no recompute drops.
    """
    # Unfused, six fp32 passes run, and a root mean square saves an fp32 copy more: cast, square, mean, scale, cast
    # back, weigh. A layer norm is one kernel of torch's everywhere; autocast hands it an fp32 stream.
    # Source: Korthikanti et al. 2022, arXiv:2205.05198, section 4.1 (4 s b h for two norms' inputs);
    # transformers modeling_llama.LlamaRMSNorm for the unfused form: in fp32 the input and what is weighed, in half
    # precision the input in fp32 and what is weighed, under autocast all in fp32; torch.nn.LayerNorm
    numbers, tensor_bytes = setting.tokens * model.hidden_size, setting.tensor_bytes(model.hidden_size)
    passes = 0 if setting.fused_norm else 6
    copies = readers if setting.casts_each_input else 1
    input_bytes = setting.product_input_bytes(numbers, readers)
    modules: tuple[RecomputeModule, ...] = ("layernorm",) if is_apart or not setting.joins_norms else ()
    output = (Saved(input_bytes, Split.SEQUENCE, modules, "next_weights", copies),) if readers else ()
    return Op(
        name=name,
        kind="elementwise",
        split=Split.SEQUENCE,
        weights=norm_weights(model.normalization, model.hidden_size),
        saved=(*_norm_input(model, setting, numbers), *output),
        moved_bytes=2 * tensor_bytes + passes * 4 * numbers,
        modules=modules,
        reads=reads,
    )


def is_unfused(model: Model, setting: SequenceSettings) -> bool:
    """Whether norms run in single operations, each of which saves an fp32 copy of its own."""
    return not setting.fused_norm and model.normalization in ("rmsnorm", "rmsnorm_1p")


def _norm_input(model: Model, setting: SequenceSettings, numbers: int) -> tuple[Saved, ...]:
    """What a norm saves of so many numbers of its input."""
    if is_unfused(model, setting):
        is_wide = setting.wide_stream or model.normalization == "rmsnorm_1p"
        return unfused_norm(setting, numbers, setting.tokens, Split.SEQUENCE, is_wide=is_wide)
    is_wide = setting.wide_stream if setting.fused_norm else setting.casts_each_input
    each = WIDE_BYTES if is_wide else setting.element_bytes
    return (Saved(numbers * each, Split.SEQUENCE),)


def unfused_norm(
    setting: SequenceSettings, numbers: int, rows: int, split: Split, *, is_wide: bool = False
) -> tuple[Saved, ...]:
    """What a root mean square in single operations saves: its input in fp32, a scale a row, and what it weighs."""
    # Source: transformers modeling_llama.LlamaRMSNorm; modeling_gemma2.Gemma2RMSNorm (weighs by 1 + w in fp32)
    weighed = numbers * (WIDE_BYTES if is_wide else setting.element_bytes)
    return Saved((numbers + rows) * WIDE_BYTES, split, serves="input"), Saved(weighed, split, serves="own_norm")


def residual_op(name: str, model: Model, setting: SequenceSettings) -> Op:
    """The addition of a branch to the residual stream, with its dropout, of which it saves a one-byte mask."""
    # Source: Korthikanti et al. 2022, arXiv:2205.05198, section 4.1 (s b h for each dropout mask)
    mask = (Saved(setting.tokens * model.hidden_size, Split.SEQUENCE),) if setting.drops_out else ()
    return Op(
        name=name,
        kind="elementwise",
        split=Split.SEQUENCE,
        saved=mask,
        moved_bytes=setting.tensor_bytes(3 * model.hidden_size),
        reads=(EVERYTHING,),
    )


def visible_pairs_twice(tokens: int, layer_type: LayerType, window: int | None, chunk: int | None) -> int:
    """Twice the query-key pairs that a causal mask lets through in one document.

    Twice, so that the half of a causal square stays a whole number.

    Formula: full: s^2        sliding, w < s: 2 w s - w^2        chunked, c < s: (s // c) c^2 + (s mod c)^2
    Args:
        tokens: tokens of the document, s [token]
        layer_type: full, sliding or chunked
        window: keys that a sliding layer sees, w [token]
        chunk: length of a block, c [token]
    Returns: twice the visible pairs [1]
    Source: definition; the diagonal counts half, as in Megatron-LM's causal FLOP count (training/training.py)

    >>> visible_pairs_twice(8, "full_attention", None, None)
    64
    >>> visible_pairs_twice(8, "sliding_attention", 2, None)
    28
    >>> visible_pairs_twice(8, "chunked_attention", None, 4)
    32
    """
    if layer_type == "sliding_attention" and window is not None and window < tokens:
        return 2 * window * tokens - window**2
    if layer_type == "chunked_attention" and chunk is not None and chunk < tokens:
        return (tokens // chunk) * chunk**2 + (tokens % chunk) ** 2
    return tokens**2


def core_attention_op(
    model: Model,
    layer_type: LayerType,
    setting: SequenceSettings,
    *,
    query_width: int,
    value_width: int,
    input_modules: tuple[RecomputeModule, ...] = (),
) -> Op:
    """Scores, softmax and weighted values of one layer; selective recompute of core_attn drops its scores alone."""
    # Flash attention saves one fp32 number a query (the log-sum-exp), and its backward pass computes the scores again.
    # Source: Korthikanti et al. 2022, arXiv:2205.05198, section 4.1 (5 a s^2 b, 4 of 11 s b h for q, k, v);
    # Dao 2023, arXiv:2307.08691, section 3.1 (log-sum-exp, scores again in the backward pass); transformers 5.23.0
    # modeling_llama.eager_attention_forward, modeling_gpt2.eager_attention_forward (fp32 under autocast alone);
    # integrations/sdpa_attention.py (a mask of a window in the format of the queries, and keys repeated beside it)
    heads, tokens = model.num_attention_heads, setting.tokens
    visible = partial(
        visible_pairs_twice, layer_type=layer_type, window=model.sliding_window, chunk=model.attention_chunk_size
    )
    pairs_twice = sequence_pairs_twice(setting.documents, tokens, visible)
    is_masked = setting.masks_windows and visible(tokens) != tokens**2
    repeated = setting.repeats_key_values or is_masked or model.kv_lora_rank is not None
    key_heads = heads if repeated else model.key_value_heads
    queries, result = setting.tensor_bytes(heads * query_width), setting.tensor_bytes(heads * value_width)
    keys_values = setting.tensor_bytes(key_heads * (query_width + value_width))
    # Latent values are views of a projection's result, half of which eager attention copies.
    # Source: transformers 5.24.0 modeling_deepseek_v3.DeepseekV3Attention.expand_kv
    is_view = model.kv_lora_rank is not None and setting.runs_transformers and not setting.keeps_scores
    beside_values = setting.tensor_bytes(heads * (model.qk_nope_head_dim or 0)) if is_view else 0
    if setting.joins_projections and model.key_value_heads == heads:  # queries and keys of the joint result
        beside_values = setting.tensor_bytes(2 * heads * query_width)
    return Op(
        name="attention.core",
        kind="attention",
        split=Split.TENSOR,
        score_width=heads * (query_width + value_width),
        weights=(Weight(1, heads, Split.TENSOR, role="vector"),) if model.attention_sinks else (),
        flop=heads * (query_width + value_width) * pairs_twice,
        full_flop=2 * heads * (query_width + value_width) * tokens**2,
        document_flop=heads * (query_width + value_width) * document_pairs_twice(setting.documents, tokens, visible),
        kernel_rerun_flop=0 if setting.keeps_scores else heads * query_width * pairs_twice,
        result_bytes=result + 4 * heads * tokens,
        saved=(
            Saved(queries, Split.TENSOR, input_modules),
            Saved(keys_values + beside_values, Split.TENSOR if repeated else Split.KEY_VALUE, input_modules),
            Saved(_saved_score_bytes(model, setting), Split.TENSOR, ("core_attn",)),
            *((Saved(result, Split.BATCHED),) if setting.copies_result and model.kv_lora_rank is None else ()),
            *((Saved(setting.element_bytes * tokens**2, Split.WHOLE),) if is_masked else ()),
        ),
        transient=_gradients(model, setting, query_width, value_width, key_heads),
        moved_bytes=queries + keys_values + result + _streamed_score_bytes(model, setting),
        modules=("core_attn",),
        reads=_inputs(model),
        products=_products(model, heads * query_width, heads * value_width, pairs_twice, tokens)
        if setting.keeps_scores
        else (),  # a fused kernel computes all gradients or none
    )


def _streamed_score_bytes(model: Model, setting: SequenceSettings) -> int:
    """Traffic of scores: passes of products, mask and softmax, fewer where fused, and dropout with its mask."""
    if not setting.keeps_scores:
        return 0
    dropped = 2 * setting.element_bytes + 1 if setting.drops_out else 0
    passes = 4 if setting.fused_activation else 10
    return (passes * setting.element_bytes + dropped) * model.num_attention_heads * setting.tokens**2


def _saved_score_bytes(model: Model, setting: SequenceSettings) -> int:
    """Saved scores of one layer, with dropout also its mask and result; else the log-sum-exp of each query."""
    heads, tokens, element = model.num_attention_heads, setting.tokens, setting.element_bytes
    if not setting.keeps_scores:
        return 4 * heads * tokens
    # transformers keeps the softmax in fp32 beside what it multiplies values by; its GPT-2 does so under autocast alone
    is_wide = setting.runs_transformers and (setting.casts_each_input or not model.is_gpt2)
    if setting.caps_scores:
        return (element + WIDE_BYTES + element) * heads * tokens**2  # tanh, softmax, and the latter in the own format
    softmax = 4 if is_wide else element
    after = 1 + element if setting.drops_out else element if softmax > element else 0
    return (softmax + after) * heads * tokens**2


def _gradients(
    model: Model, setting: SequenceSettings, query_width: int, value_width: int, key_heads: int
) -> tuple[Saved, ...]:
    """Tensors of its backward pass: gradients of inputs and results, and of kept scores or fp32 sums of queries'."""
    heads, tokens, element = model.num_attention_heads, setting.tokens, setting.element_bytes
    read = Saved(setting.tensor_bytes((heads + key_heads) * (query_width + value_width)), Split.TENSOR)
    inner = 2 * element * heads * tokens**2 if setting.keeps_scores else 4 * tokens * heads * query_width
    return (read, Saved(inner, Split.TENSOR))


def _inputs(model: Model) -> tuple[MatrixName, MatrixName, MatrixName]:
    """The matrices that queries, keys and values come from."""
    if model.kv_lora_rank is None:
        return ("q_proj", "k_proj", "v_proj")
    return ("q_proj" if model.q_lora_rank is None else "q_b_proj", "kv_b_proj", "kv_b_proj")


def _products(model: Model, query_width: int, value_width: int, pairs_twice: int, tokens: int) -> tuple[Gradient, ...]:
    """Products of the backward pass: gradients of queries, keys, values, and of the softmax before queries and keys."""
    query, key, value = _inputs(model)
    widths = ((query_width, (query,)), (query_width, (key,)), (value_width, (value,)), (value_width, (query, key)))
    return tuple(Gradient(width * pairs_twice, 2 * width * tokens**2, serves) for width, serves in widths)


_GELU_PASSES = 14
"""Numbers that a GELU of eight operations reads and writes for each of its inputs, beside input and result.
Source: transformers activations.NewGELUActivation."""


def feed_forward_ops(
    model: Model,
    setting: SequenceSettings,
    *,
    width: int,
    name: str = "mlp",
    modules: tuple[RecomputeModule, ...] = ("mlp",),
) -> Ops:
    """Up-projection, activation and down-projection of one layer."""
    # Source: Korthikanti et al. 2022, arXiv:2205.05198, section 4.1 (19 s b h: 8 before, 8 after the activation);
    # gated form: Shazeer 2020, arXiv:2002.05202; transformers modeling_llama.LlamaMLP for the unfused form;
    # trained activation (xIELU): Huang and Schlag 2024, arXiv:2411.13010;
    # transformers activations.NewGELUActivation (GPT-2: GELU in single operations)
    hidden, inner = model.hidden_size, (2 if model.gated_mlp else 1) * width
    up = product_op(
        f"{name}.up",
        setting,
        Weight(hidden, inner, Split.TENSOR, matrices=up_matrices(model)),
        *bias_of(inner, Split.TENSOR, given=model.mlp_bias),
        moved=inner,
        whole=hidden,
        reads=(LAST_NORM,),
        modules=modules,
    )
    fed_bytes = setting.product_input_bytes(setting.tokens * width)
    gradients = Saved(setting.tensor_bytes(width), Split.TENSOR), Saved(setting.tensor_bytes(hidden), Split.GATHERED)
    down = product_op(
        f"{name}.down",
        setting,
        Weight(width, hidden, Split.TENSOR, matrices=("down_proj",)),
        *bias_of(hidden, given=model.mlp_bias),
        moved=width,
        whole=hidden,
        is_row_parallel=True,
        saved=(Saved(fed_bytes, Split.TENSOR, modules, "own_weights"),),
        transient=gradients,
        modules=modules,
    )
    return up, _activation_op(model, setting, width, name, modules), down


def up_matrices(model: Model) -> tuple[MatrixName, ...]:
    """The matrices that an MLP or an expert reads its input with, side by side."""
    return ("gate_proj", "up_proj") if model.gated_mlp else ("up_proj",)


def _activation_op(
    model: Model, setting: SequenceSettings, width: int, name: str, modules: tuple[RecomputeModule, ...]
) -> Op:
    inner, tensor_bytes = (2 if model.gated_mlp else 1) * width, setting.tensor_bytes(1)
    unfused = width if model.gated_mlp and not setting.fused_activation else 0
    gelu = width if setting.runs_transformers and model.is_gpt2 else 0
    # A GELU in single operations saves x / 2, tanh and 1 + tanh of each number beside its input x; autocast runs the
    # power, and what follows from it, in fp32.
    gelu_bytes = (2 + 2 + 4 + 4 if setting.casts_each_input else 3 * setting.element_bytes) * setting.tokens
    input_bytes = setting.activation_bytes(setting.tokens * inner)
    return Op(
        name=f"{name}.activation",
        kind="elementwise",
        split=Split.TENSOR,
        weights=(Weight(1, model.activation_parameters, role="vector"),) if model.activation_parameters else (),
        saved=(Saved(input_bytes + tensor_bytes * unfused + gelu_bytes * gelu, Split.TENSOR, modules),),
        transient=(Saved(tensor_bytes * (inner + width + gelu), Split.TENSOR),),
        moved_bytes=tensor_bytes * (inner + width + 2 * unfused + _GELU_PASSES * gelu),
        modules=modules,
    )


def elementwise_op(
    name: str, setting: SequenceSettings, *weights: Weight, saved: int, moved: int, reads: tuple[str, ...] = ()
) -> Op:
    """An operation on channels that tensor ranks split; `saved` and `moved` count activations of each token."""
    return Op(
        name=name,
        kind="elementwise",
        split=Split.TENSOR,
        weights=weights,
        saved=(Saved(setting.tensor_bytes(saved), Split.TENSOR),),
        moved_bytes=setting.tensor_bytes(moved),
        reads=reads,
    )


def scan_op(name: str, *weights: Weight, flop: int, saved: int, moved: int) -> Op:
    """A recurrence whose backward kernel runs its forward pass again; `saved` and `moved` are bytes."""
    return Op(
        name=name,
        kind="attention",
        split=Split.TENSOR,
        weights=weights,
        flop=flop,
        kernel_rerun_flop=flop,
        saved=(Saved(saved, Split.TENSOR),),
        moved_bytes=moved,
    )


def convolution_op(model: Model, setting: SequenceSettings, *, channels: int) -> Op:
    """A depthwise convolution over the last conv_kernel tokens of each channel; its neighbours save its tensors."""
    # Source: Gu and Dao 2023, arXiv:2312.00752, section 3.4 and figure 3
    taps = model.conv_kernel or 0
    return Op(
        name="mixer.convolution",
        kind="elementwise",
        split=Split.TENSOR,
        weights=(
            Weight(1, channels * taps, Split.TENSOR, role="vector"),
            *bias_of(channels, Split.TENSOR, given=model.conv_bias),
        ),
        flop=2 * setting.tokens * channels * taps,
        moved_bytes=setting.tensor_bytes(2 * channels),
    )
