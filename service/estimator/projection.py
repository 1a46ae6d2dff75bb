"""What do the matrix products do that several kinds of layer share?"""

from service.estimator.ledger import LAST_NORM, Op, Saved, Split, Weight
from service.estimator.model import Model
from service.estimator.setting import Setting


def query_key_value_op(model: Model, setting: Setting, *, inputs: int, gates: int = 0) -> Op:
    """The projection to all heads' queries, keys and values, and to the gate on their output.

    Args:
        model: the model
        setting: how operations are carried out
        inputs: numbers that it reads a token [1]
        gates: numbers of the gate [1]

    Returns:
        the operation; what it reads is the norm's to keep, what it writes the kernel's

    Source:
        Korthikanti et al. 2022, arXiv:2205.05198, section 4.1; grouped heads: Ainslie et al. 2023, arXiv:2305.13245
    """
    queries = model.num_attention_heads * model.head_width + gates
    key_values = 2 * model.key_value_heads * model.head_width
    weights = [
        Weight(inputs, queries, Split.TENSOR, matrices=("q_proj",)),
        Weight(inputs, key_values, Split.KEY_VALUE, matrices=("k_proj", "v_proj")),
    ]
    if model.attention_bias:
        weights += [Weight(1, queries, Split.TENSOR, role="vector")]
        weights += [Weight(1, key_values, Split.KEY_VALUE, role="vector")]
    tokens, element = setting.tokens, setting.element_bytes
    return Op(
        name="attention.qkv",
        kind="gemm",
        split=Split.TENSOR,
        weights=tuple(weights),
        flop=2 * tokens * inputs * (queries + key_values),
        moved_bytes=element * tokens * (queries + key_values),
        whole_bytes=element * tokens * inputs,
    )


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
    inputs = model.num_attention_heads * model.value_width
    kept = Saved(
        setting.element_bytes * setting.tokens * inputs,
        Split.TENSOR,
        serves="own_weights" if setting.keeps_scores else "backward",
    )
    matrix = Weight(inputs, model.hidden_size, Split.TENSOR, matrices=("o_proj",))
    return _output_op("attention.out", matrix, setting, has_bias=model.out_bias, saved=(kept,))


def mixer_input_op(model: Model, setting: Setting, *, outputs: int, reads: tuple[str, ...] = (LAST_NORM,)) -> Op:
    """The projection of the residual stream to all that a recurrence or convolution reads; its input is the norm's.

    Args:
        model: the model
        setting: how operations are carried out
        outputs: numbers that it writes a token [1]
        reads: operations whose results it reads, where that is more than the last norm

    Returns:
        the operation; what it writes is kept by those who read it

    Source:
        Gu and Dao 2023, arXiv:2312.00752, figure 3 (the linear projections of the block)
    """
    bias = (Weight(1, outputs, Split.TENSOR, role="vector"),) if model.mixer_bias else ()
    kept = setting.element_bytes * setting.tokens
    return Op(
        name="mixer.in",
        kind="gemm",
        split=Split.TENSOR,
        weights=(Weight(model.hidden_size, outputs, Split.TENSOR, matrices=("in_proj",)), *bias),
        flop=2 * setting.tokens * model.hidden_size * outputs,
        moved_bytes=kept * outputs,
        whole_bytes=kept * model.hidden_size,
        reads=reads,
    )


def mixer_output_op(model: Model, setting: Setting, *, inputs: int, keeps_input: bool) -> Op:
    """The projection of what a recurrence or convolution found back to the residual stream.

    Args:
        model: the model
        setting: how operations are carried out
        inputs: numbers that it reads a token [1]
        keeps_input: whether they stay for the backward pass, or are computed again from what the kernel kept

    Returns:
        the operation

    Source:
        Gu and Dao 2023, arXiv:2312.00752, figure 3 (the linear projections of the block)
    """
    kept = Saved(setting.element_bytes * setting.tokens * inputs, Split.TENSOR, serves="own_weights")
    matrix = Weight(inputs, model.hidden_size, Split.TENSOR, matrices=("out_proj",))
    return _output_op("mixer.out", matrix, setting, has_bias=model.mixer_bias, saved=(kept,) if keeps_input else ())


def _output_op(name: str, matrix: Weight, setting: Setting, *, has_bias: bool, saved: tuple[Saved, ...]) -> Op:
    """The projection of what mixed tokens, split over tensor ranks, back to the residual stream."""
    inputs, hidden = matrix.rows, matrix.columns
    return Op(
        name=name,
        kind="gemm",
        split=Split.TENSOR,
        sums_in_parts=True,
        weights=(matrix, Weight(1, hidden, role="vector")) if has_bias else (matrix,),
        flop=2 * setting.tokens * inputs * hidden,
        saved=saved,
        moved_bytes=setting.element_bytes * setting.tokens * inputs,
        whole_bytes=setting.element_bytes * setting.tokens * hidden,
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
