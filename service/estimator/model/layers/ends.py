"""The ends of a model: token embedding and positions, the head, and the parts of multi-token-prediction depths."""

from service.estimator.model.ledger import GROUP, Op, Ops, Saved, Setting, Split, Weight
from service.estimator.model.operations import embedding_width_op, norm_op
from service.estimator.question import Model


def embedding_ops(model: Model, setting: Setting) -> Ops:
    """Look-up of tokens and positions, and what some models do with it before the first layer.

    Source:
        Vaswani et al. 2017, arXiv:1706.03762, section 3.4; projected embedding: transformers modeling_opt.OPTDecoder;
        norm after it: BLOOM, arXiv:2211.05100, section 3.2
    """
    width, numbers = model.embedding_width, setting.tokens * model.hidden_size
    positions = (Weight(model.position_embedding_rows, model.hidden_size, role="embedding"),)
    tensor_bytes = (numbers if setting.drops_out else 0) + (
        setting.element_bytes * numbers if setting.keeps_embedding else 0
    )
    lookup = Op(
        name="embedding.lookup",
        kind="elementwise",
        split=Split.SEQUENCE,
        weights=(
            Weight(model.vocab_size, width, Split.VOCABULARY, role="embedding"),
            *(positions if model.position_embedding_rows else ()),
        ),
        saved=(Saved(tensor_bytes, Split.SEQUENCE),) if tensor_bytes else (),
        moved_bytes=2 * setting.element_bytes * numbers,
    )
    widening = embedding_width_op("embedding.projection", model, setting, rows=width, columns=model.hidden_size)
    projection = (widening,) if model.word_embed_proj_dim else ()
    norm = (norm_op("embedding.norm", model, setting),) if model.embedding_norm else ()
    return (lookup, *projection, *norm)


def head_ops(model: Model, setting: Setting) -> Ops:
    """Final norm and the projection to logits; the loss over the logits is counted by `logits`.

    Source:
        Vaswani et al. 2017, arXiv:1706.03762, section 3.4; projected embedding: transformers modeling_opt.OPTDecoder
    """
    norm = (norm_op("head.norm", model, setting),) if model.final_norm else ()
    width, hidden = model.embedding_width, model.hidden_size
    narrowing = embedding_width_op("head.projection", model, setting, rows=hidden, columns=width)
    projected = (narrowing,) if model.word_embed_proj_dim else ()
    return (*norm, *projected, _logits(model, setting))


def _logits(model: Model, setting: Setting) -> Op:
    width, vocabulary = model.embedding_width, model.vocab_size
    matrix = Weight(
        width, vocabulary, Split.VOCABULARY, role="head", tied=model.tie_word_embeddings, matrices=("lm_head",)
    )
    bias = (Weight(1, vocabulary, Split.VOCABULARY, role="vector"),) if model.lm_head_bias else ()
    return Op(
        name="head.logits",
        keeps_precision=True,
        kind="gemm",
        split=Split.VOCABULARY,
        weights=(matrix, *bias),
        flop=2 * setting.tokens * width * vocabulary,
        moved_bytes=setting.element_bytes * setting.tokens * vocabulary,
        whole_bytes=setting.element_bytes * setting.tokens * width,
    )


def depth_ops(model: Model, setting: Setting) -> Ops:
    """One multi-token-prediction depth beside its layer: two norms, their joint projection, a norm, the shared head.

    Embedding and head are shared with the main model.

    Source:
        DeepSeek-V3, arXiv:2412.19437, section 2.2
    """
    hidden, tensor_bytes = model.hidden_size, setting.element_bytes * setting.tokens
    joint = Op(
        name="mtp.projection",
        kind="gemm",
        split=Split.TENSOR,
        weights=(Weight(2 * hidden, hidden, Split.TENSOR),),
        flop=4 * setting.tokens * hidden**2,
        moved_bytes=3 * tensor_bytes * hidden,
        reads=("mtp.token_norm", "mtp.hidden_norm"),
    )
    shared_head = _logits(model, setting)
    logits = Op(
        name="mtp.logits",
        keeps_precision=True,
        kind="gemm",
        split=Split.VOCABULARY,
        flop=shared_head.flop,
        moved_bytes=shared_head.moved_bytes,
        whole_bytes=shared_head.whole_bytes,
        reads=("mtp.head_norm",),
    )
    norms = tuple(
        norm_op(f"mtp.{name}", model, setting, reads=(GROUP,)) for name in ("token_norm", "hidden_norm", "head_norm")
    )
    return (*norms, joint, logits)


def depth_embedding_ops(model: Model) -> Ops:
    """The token embedding that multi-token-prediction depths read: the model's own, or a copy on another stage.

    Nothing where a tied head is that copy already.

    Source:
        Megatron-LM gpt_model.py (embedding on the stage of the depths)
    """
    if model.tie_word_embeddings:
        return ()
    table = Weight(model.vocab_size, model.embedding_width, Split.VOCABULARY, role="embedding", tied=True)
    return (Op(name="mtp.embedding", kind="elementwise", split=Split.SEQUENCE, weights=(table,)),)
