"""What does the attention kernel itself do: scores, softmax, weighted values, and what of it is kept?"""

from functools import partial

from service.estimator.documents import document_pairs_twice, sequence_pairs_twice
from service.estimator.ledger import Gradient, Op, Ops, Saved, Split, Weight
from service.estimator.model import Model
from service.estimator.names import LayerType, MatrixName, RecomputeModule
from service.estimator.setting import Setting


def visible_pairs_twice(tokens: int, layer_type: LayerType, window: int | None, chunk: int | None) -> int:
    """Twice the query-key pairs that a causal mask lets through in one document.

    Twice, so that the half of a causal square stays a whole number.

    Formula:
        full: s^2        sliding, w < s: 2 w s - w^2        chunked, c < s: (s // c) c^2 + (s mod c)^2

    Args:
        tokens: tokens of the document, s [token]
        layer_type: full, sliding or chunked
        window: keys that a sliding layer sees, w [token]
        chunk: length of a block, c [token]

    Returns:
        twice the visible pairs [1]

    Source:
        definition; the diagonal counts half, as in Megatron-LM's causal FLOP count (training/training.py)

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


def core_attention_ops(
    model: Model,
    layer_type: LayerType,
    setting: Setting,
    *,
    query_width: int,
    value_width: int,
    input_modules: tuple[RecomputeModule, ...] = (),
) -> Ops:
    """Scores, softmax and weighted values of one layer.

    Flash attention keeps one fp32 number a query (the log-sum-exp) and computes the scores again in
    its backward pass; eager attention keeps the scores: once, or with dropout before it, its mask, and after; that of
    transformers keeps their softmax in fp32 beside what it multiplies values by.

    Args:
        model: the model
        layer_type: full, sliding or chunked
        setting: how operations are carried out
        query_width: width of a query and key head [1]
        value_width: width of a value head [1]
        input_modules: selective recompute of these drops queries, keys and values too

    Returns:
        one operation; its scores go under selective recompute of core_attn, its inputs stay

    Source:
        Korthikanti et al. 2022, arXiv:2205.05198, section 4.1 (5 a s^2 b, 4 of 11 s b h for q, k, v);
        Dao 2023, arXiv:2307.08691, section 3.1 (log-sum-exp, scores again in the backward pass); transformers 5.23.0
        modeling_llama.eager_attention_forward, modeling_gpt2.eager_attention_forward (fp32 under autocast alone)
    """
    heads, tokens, element = model.num_attention_heads, setting.tokens, setting.element_bytes
    pairs_twice, document_pairs = _pairs_twice(model, layer_type, setting)
    repeated = setting.repeats_key_values or model.kv_lora_rank is not None
    key_heads = heads if repeated else model.key_value_heads
    queries = element * tokens * heads * query_width
    keys_values = element * tokens * key_heads * (query_width + value_width)
    result = element * tokens * heads * value_width
    op = Op(
        name="attention.core",
        kind="attention",
        split=Split.TENSOR,
        score_width=heads * (query_width + value_width),
        weights=(Weight(1, heads, Split.TENSOR, role="vector"),) if model.attention_sinks else (),
        flop=heads * (query_width + value_width) * pairs_twice,
        full_flop=2 * heads * (query_width + value_width) * tokens**2,
        document_flop=heads * (query_width + value_width) * document_pairs,
        kernel_rerun_flop=0 if setting.keeps_scores else heads * query_width * pairs_twice,
        result_bytes=result + 4 * heads * tokens,
        saved=(
            Saved(queries, Split.TENSOR, input_modules),
            Saved(keys_values, Split.TENSOR if repeated else Split.KEY_VALUE, input_modules),
            Saved(_kept_score_bytes(model, setting), Split.TENSOR, ("core_attn",)),
            *((Saved(result, Split.BATCHED),) if setting.copies_result and model.kv_lora_rank is None else ()),
        ),
        passing=_gradients(model, setting, query_width, value_width, key_heads),
        moved_bytes=queries + keys_values + result + _streamed_score_bytes(model, setting),
        modules=("core_attn",),
        reads=_inputs(model),
        products=_products(model, heads * query_width, heads * value_width, pairs_twice, tokens),
    )
    return (op,)


def _streamed_score_bytes(model: Model, setting: Setting) -> int:
    """Traffic of scores: passes of products, mask and softmax, fewer where fused, and dropout with its mask."""
    if not setting.keeps_scores:
        return 0
    passes = 4 if setting.fused_activation else 10
    dropped = 2 * setting.element_bytes + 1 if setting.drops_out else 0
    return (passes * setting.element_bytes + dropped) * model.num_attention_heads * setting.tokens**2


def _kept_score_bytes(model: Model, setting: Setting) -> int:
    """Scores of one layer: once, or with dropout before it, its mask and after; else the log-sum-exp of each query."""
    heads, tokens, element = model.num_attention_heads, setting.tokens, setting.element_bytes
    if not setting.keeps_scores:
        return 4 * heads * tokens
    is_wide = setting.runs_transformers and (setting.casts_each_input or not model.is_gpt2)
    softmax = 4 if is_wide else element
    after = 1 + element if setting.drops_out else element if softmax > element else 0
    return (softmax + after) * heads * tokens**2


def _gradients(model: Model, setting: Setting, query_width: int, value_width: int, key_heads: int) -> tuple[Saved, ...]:
    """What its backward pass holds: gradients of all it read and wrote, and of kept scores or fp32 sums of queries'."""
    heads, tokens, element = model.num_attention_heads, setting.tokens, setting.element_bytes
    numbers = heads * (query_width + value_width) + key_heads * (query_width + value_width)
    inner = 2 * element * heads * tokens**2 if setting.keeps_scores else 4 * tokens * heads * query_width
    return (Saved(element * tokens * numbers, Split.TENSOR), Saved(inner, Split.TENSOR))


def _pairs_twice(model: Model, layer_type: LayerType, setting: Setting) -> tuple[int, int]:
    """Twice the query-key pairs of one sequence, as computed and without padding."""
    visible = partial(
        visible_pairs_twice, layer_type=layer_type, window=model.sliding_window, chunk=model.attention_chunk_size
    )
    return (
        sequence_pairs_twice(setting.documents, setting.tokens, visible),
        document_pairs_twice(setting.documents, setting.tokens, visible),
    )


def _inputs(model: Model) -> tuple[MatrixName, MatrixName, MatrixName]:
    """The matrices that queries, keys and values come from."""
    if model.kv_lora_rank is None:
        return ("q_proj", "k_proj", "v_proj")
    return ("q_proj" if model.q_lora_rank is None else "q_b_proj", "kv_b_proj", "kv_b_proj")


def _products(model: Model, query_width: int, value_width: int, pairs_twice: int, tokens: int) -> tuple[Gradient, ...]:
    """The backward pass: gradients of queries and of keys, of values, and of the softmax before both."""
    query, key, value = _inputs(model)
    widths = ((query_width, (query,)), (query_width, (key,)), (value_width, (value,)), (value_width, (query, key)))
    return tuple(Gradient(width * pairs_twice, 2 * width * tokens**2, serves) for width, serves in widths)
