"""What does LoRA put beside a matrix? Two thin matrices, each one operation more."""

from service.estimator.ledger import Op, Ops, Saved, Split, Weight
from service.estimator.names import MatrixName
from service.estimator.setting import Setting

DEFAULT_RANK = 8
"""Rank of an adapter where none is given. Source: huggingface/peft LoraConfig (r = 8)."""

DEFAULT_TARGETS: tuple[MatrixName, ...] = ("q_proj", "v_proj")
"""Adapted matrices where none are named.
Source: Hu et al. 2021, arXiv:2106.09685, section 7.1; huggingface/peft default targets of Llama."""

_JOINING: tuple[MatrixName, ...] = ("o_proj", "down_proj", "x_proj", "out_proj")
"""Matrices whose inputs tensor ranks share out; of the others they share out the outputs."""


def adapter_ops(op: Op, weight: Weight, targets: tuple[MatrixName, ...], rank: int, setting: Setting) -> Ops:
    """The adapters beside the matrices of one weight, each as the two products that it runs.

    An adapter reads what its matrix reads, and adds to what it writes. Tensor ranks hold whole the side of it that
    they do not share out of the matrix; routed experts have an adapter each.

    Args:
        op: the operation that multiplies by the weight
        weight: the weight, one or more matrices side by side
        targets: matrices that get an adapter
        rank: rank of each adapter, r [1]
        setting: how operations are carried out

    Returns:
        two operations for each target in the weight, with 2 r (n_in + n_out) FLOP a token together

    Ignores:
        dropout before an adapter; the narrow side that tensor ranks exchange, r numbers a token

    Source:
        Hu et al. 2021, arXiv:2106.09685, section 4.1; tensor ranks: huggingface/peft tuners/lora/tp_layer.py
    """
    wanted = [matrix for matrix in weight.matrices if matrix in targets]
    return tuple(half for matrix in wanted for half in _halves(op, weight, matrix, rank, setting))


def _halves(op: Op, weight: Weight, matrix: MatrixName, rank: int, setting: Setting) -> Ops:
    columns, copies = weight.columns // len(weight.matrices), weight.copies
    uses = op.flop // sum(2 * each.rows * each.columns for each in op.weights if each.matrices)
    kept = setting.element_bytes * uses
    narrow_side = Split.EXPERT_TOKENS if weight.split is Split.EXPERT else Split.WHOLE
    (first_held, first_done), (second_held, second_done) = _splits(op, weight, matrix)
    first = Op(
        name=f"{op.name}.{matrix}.lora_a",
        kind="gemm",
        split=first_done,
        weights=(Weight(weight.rows, rank, first_held, copies, "adapter"),),
        flop=2 * uses * weight.rows * rank,
        moved_bytes=kept * weight.rows,
        whole_bytes=kept * rank,
        modules=op.modules,
        keeps_precision=True,
    )
    second = Op(
        name=f"{op.name}.{matrix}.lora_b",
        kind="gemm",
        split=second_done,
        weights=(Weight(rank, columns, second_held, copies, "adapter"),),
        flop=2 * uses * rank * columns,
        saved=(Saved(kept * rank, narrow_side, op.modules, "own_weights"),),
        moved_bytes=2 * kept * columns,
        whole_bytes=kept * rank,
        modules=op.modules,
        keeps_precision=True,
    )
    return (first, second)


def _splits(op: Op, weight: Weight, matrix: MatrixName) -> tuple[tuple[Split, Split], tuple[Split, Split]]:
    """Who divides the numbers and the work of the first and of the second half of an adapter."""
    shared, whole = (weight.split, op.split), (Split.WHOLE, Split.WHOLE)
    if weight.split in (Split.WHOLE, Split.EXPERT):
        return shared, shared
    return (shared, whole) if matrix in _JOINING else (whole, shared)
