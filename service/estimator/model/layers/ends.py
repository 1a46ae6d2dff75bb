"""The ends of a model: token embedding and positions, the head, and the parts of multi-token-prediction depths."""

from dataclasses import replace

from service.estimator.model.ledger import GROUP, Op, Ops, Saved, SequenceSettings, Split, Weight
from service.estimator.model.operations import bias_of, embedding_width_op, norm_op, product_op
from service.estimator.question import Model


def embedding_ops(model: Model, setting: SequenceSettings) -> Ops:
    """Look-up of tokens and positions, and what some models do with it before the first layer."""
    # Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.4; projected embedding: transformers
    # modeling_opt.OPTDecoder; norm after it: BLOOM, arXiv:2211.05100, section 3.2
    width, numbers = model.embedding_width, setting.tokens * model.hidden_size
    positions = (Weight(model.position_embedding_rows, model.hidden_size, role="embedding"),)
    saved_bytes = numbers * (setting.drops_out + setting.keeps_embedding * setting.element_bytes)
    lookup = Op(
        name="embedding.lookup",
        kind="elementwise",
        split=Split.SEQUENCE,
        weights=(
            Weight(model.vocab_size, width, Split.VOCABULARY, role="embedding"),
            *(positions if model.position_embedding_rows else ()),
        ),
        saved=(Saved(saved_bytes, Split.SEQUENCE),) if saved_bytes else (),
        moved_bytes=2 * setting.element_bytes * numbers,
    )
    widening = embedding_width_op("embedding.projection", model, setting, rows=width, columns=model.hidden_size)
    projection = (widening,) if model.word_embed_proj_dim else ()
    norm = (norm_op("embedding.norm", model, setting),) if model.embedding_norm else ()
    return (lookup, *projection, *norm)


def head_ops(model: Model, setting: SequenceSettings) -> Ops:
    """Final norm and the projection to logits or a score, whose loss memory and time of logits count."""
    # Source: as embedding_ops
    norm = (norm_op("head.norm", model, setting),) if model.final_norm else ()
    narrowing = embedding_width_op(
        "head.projection", model, setting, rows=model.hidden_size, columns=model.embedding_width
    )
    return (*norm, *((narrowing,) if model.word_embed_proj_dim else ()), _logits(model, setting))


def _logits(model: Model, setting: SequenceSettings) -> Op:
    width, vocabulary, tied = model.embedding_width, model.vocab_size, model.tie_word_embeddings
    if model.scalar_head:  # Source: transformers modeling_layers.GenericForSequenceClassification (score, without bias)
        score, split = Weight(width, 1), Split.SEQUENCE
        return product_op("head.score", setting, score, moved=width, split=split, keeps_precision=True)
    return product_op(
        "head.logits",
        setting,
        Weight(width, vocabulary, Split.VOCABULARY, role="head", tied=tied, matrices=("lm_head",)),
        *bias_of(vocabulary, Split.VOCABULARY, given=model.lm_head_bias),
        moved=vocabulary,
        whole=width,
        split=Split.VOCABULARY,
        keeps_precision=True,
    )


def depth_ops(model: Model, setting: SequenceSettings) -> Ops:
    """One multi-token-prediction depth beside its layer: two norms, their joint projection, a norm, the shared head."""
    # Embedding and head are the main model's. Source: DeepSeek-V3, arXiv:2412.19437, section 2.2
    hidden = model.hidden_size
    matrix, reads = Weight(2 * hidden, hidden, Split.TENSOR), ("mtp.token_norm", "mtp.hidden_norm")
    joint = product_op("mtp.projection", setting, matrix, moved=3 * hidden, reads=reads)
    logits = replace(_logits(model, setting), name="mtp.logits", weights=(), reads=("mtp.head_norm",))
    norms = tuple(
        norm_op(f"mtp.{name}", model, setting, reads=(GROUP,)) for name in ("token_norm", "hidden_norm", "head_norm")
    )
    return (*norms, joint, logits)


def depth_embedding_ops(model: Model) -> Ops:
    """The copy of the token embedding that depths on another stage read; nothing where a tied head is that copy."""
    # Source: Megatron-LM gpt_model.py (embedding on the stage of the depths)
    if model.tie_word_embeddings:
        return ()
    table = Weight(model.vocab_size, model.embedding_width, Split.VOCABULARY, role="embedding", tied=True)
    return (Op(name="mtp.embedding", kind="elementwise", split=Split.SEQUENCE, weights=(table,)),)
