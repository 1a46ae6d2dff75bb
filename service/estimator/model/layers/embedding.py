"""Token embedding, learned positions and their norm."""

from service.estimator.model.ledger import Op, Ops, Saved, Setting, Split, Weight
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
