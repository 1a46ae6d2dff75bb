"""Which shape does a matrix product have on one rank?"""

from dataclasses import dataclass

from service.estimator.degrees import Degrees
from service.estimator.ledger import Op, Split
from service.estimator.model import Model
from service.estimator.numeric import Amount


@dataclass(slots=True, kw_only=True)
class ProductShape:
    """The forward product of one operation on one rank; the backward ones have the same three numbers, in turn."""

    rows: Amount
    """Tokens of one product, m."""
    columns: Amount
    """Numbers that it writes for each token, n."""
    inner: Amount
    """Numbers that each of them sums over, k."""
    copies: Amount
    """Products of this shape that run as one kernel: the experts of a rank."""

    @property
    def input_gradient(self) -> "ProductShape":
        """The product that gives the gradient of the input: the result's gradient times the weights, transposed."""
        return ProductShape(rows=self.rows, columns=self.inner, inner=self.columns, copies=self.copies)

    @property
    def weight_gradient(self) -> "ProductShape":
        """The product that gives the gradient of the weights: the input, transposed, times the result's gradient."""
        return ProductShape(rows=self.inner, columns=self.columns, inner=self.rows, copies=self.copies)


def product_shape(op: Op, model: Model, degrees: Degrees, split: tuple[Amount, ...]) -> ProductShape:
    """The shape of an operation's forward product on one rank, for one micro-batch.

    Formula:
        columns / t, or inner / t where tensor ranks sum in parts; experts / e copies, their inner widths / e_t;
        rows = tokens b / c, over t where ranks share out tokens, over the copies

    Args:
        op: the operation, a matrix product
        model: the model
        degrees: the layout
        split: divisor of each split [1]

    Returns:
        the shape [1]

    Source:
        Shoeybi et al. 2019, arXiv:1909.08053, section 3; Megatron-Core moe README (experts)

    >>> from service.estimator.ledger import Weight
    >>> from service.estimator.samples import LLAMA_3_8B, sample_degrees
    >>> weight = Weight(64, 32, Split.TENSOR)
    >>> op = Op(name="o", kind="gemm", split=Split.TENSOR, weights=(weight,), flop=2 * 8 * 64 * 32, sums_in_parts=True)
    >>> shape = product_shape(op, LLAMA_3_8B, sample_degrees(tensor=4), (1, 4))
    >>> shape.rows, shape.columns, shape.inner, shape.copies
    (8.0, 32, 16.0, 1)
    """
    inner: Amount = max((weight.rows for weight in op.weights), default=model.hidden_size)
    columns: Amount = sum(weight.columns for weight in op.weights if weight.rows == inner) or model.vocab_size
    rows = op.flop // (2 * inner * columns) * degrees.micro_batch / degrees.context
    copies: Amount = 1
    divisor: Amount = 1
    if op.holds_experts:
        copies, divisor = op.weights[0].copies / degrees.expert, degrees.expert_tensor
        rows = rows / split[Split.EXPERT_TOKENS] / copies
    elif op.split in (Split.TENSOR, Split.VOCABULARY):
        divisor = split[op.split]
    else:
        rows = rows / split[op.split]
    if op.sums_in_parts:
        inner = inner / divisor
    else:
        columns = columns / divisor
    return ProductShape(rows=rows, columns=columns, inner=inner, copies=copies)
