"""What do the matrix products do that several kinds of layer share?"""

from service.estimator.ledger import Op, Saved, Split, Weight
from service.estimator.model import Model
from service.estimator.setting import Setting


def attention_output_op(model: Model, setting: Setting) -> Op:
    """The projection of all heads' values back to the residual stream; it keeps its input, as flash attention does too.

    Args:
        model: the model
        setting: how operations are carried out

    Returns:
        the operation

    Source:
        Korthikanti et al. 2022, arXiv:2205.05198, section 4.1 (2 s b h for its input)
    """
    hidden, inputs = model.hidden_size, model.num_attention_heads * model.value_width
    bias = (Weight(1, hidden, role="vector"),) if model.out_bias else ()
    kept = setting.element_bytes * setting.tokens
    return Op(
        name="attention.out",
        kind="gemm",
        split=Split.TENSOR,
        weights=(Weight(inputs, hidden, Split.TENSOR, matrices=("o_proj",)), *bias),
        flop=2 * setting.tokens * inputs * hidden,
        saved=(Saved(kept * inputs, Split.TENSOR, serves="own_weights" if setting.keeps_scores else "backward"),),
        moved_bytes=kept * inputs,
        whole_bytes=kept * hidden,
    )


def embedding_width_op(name: str, model: Model, setting: Setting, *, rows: int, columns: int) -> Op:
    """The projection between a narrower token embedding and the residual stream; it keeps the narrow side.

    Args:
        name: where it stands
        model: the model
        setting: how operations are carried out
        rows: numbers it reads a token [1]
        columns: numbers it writes a token [1]

    Returns:
        the operation, the same on every tensor rank

    Source:
        transformers modeling_opt.OPTDecoder (project_in, project_out)
    """
    return Op(
        name=name,
        kind="gemm",
        keeps_precision=True,
        split=Split.WHOLE,
        weights=(Weight(rows, columns),),
        flop=2 * setting.tokens * rows * columns,
        saved=(
            Saved(
                setting.element_bytes * setting.tokens * model.embedding_width,
                Split.SEQUENCE,
                serves="own_weights" if rows == model.embedding_width else "next_weights",
            ),
        ),
        moved_bytes=setting.element_bytes * setting.tokens * (rows + columns),
    )
