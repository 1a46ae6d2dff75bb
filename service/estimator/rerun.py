"""Which operations does recompute run a second time, and which products does it keep?"""

from dataclasses import replace

from service.estimator.ledger import Op, Weight
from service.estimator.question import Recompute


def is_rerun(op: Op, rule: Recompute) -> bool:
    """Whether an operation of a recomputing layer runs its forward pass a second time.

    Args:
        op: the operation
        rule: the recompute rule

    Returns:
        True under full recompute, and under selective recompute of one of its modules; False where no backward pass
        reaches its layer
    """
    if rule.granularity == "none" or not op.in_trained_layer:
        return False
    if by_operation(rule):
        return op.kind != "attention"
    if rule.granularity == "selective":
        return any(module in rule.modules for module in op.modules)
    return rule.granularity == "full"


def by_operation(rule: Recompute) -> bool:
    """Whether selective recompute goes by single operations: every second matrix product and attention are kept.

    Args:
        rule: the recompute rule

    Returns:
        True under module op

    Source:
        pytorch/torchtitan distributed/activation_checkpoint.py (selective op)
    """
    return rule.granularity == "selective" and "op" in rule.modules


def kept_matrices(op: Op) -> list[Weight]:
    """Matrices of an operation whose products recompute by operation keeps: the first of a layer and every second one.

    Args:
        op: the operation

    Returns:
        the matrices, one weight each
    """
    named = [(weight, name) for weight in op.weights for name in weight.matrices]
    kept = [pair for place, pair in enumerate(named) if (op.products_before + place) % 2 == 0]
    return [replace(weight, columns=weight.columns // len(weight.matrices), matrices=(name,)) for weight, name in kept]


def rerun_flop(op: Op, rule: Recompute) -> int:
    """Forward FLOP over visible keys that recompute repeats of an operation of a layer.

    Formula:
        all of it where the operation runs again; by operation, that of the matrices whose products are not kept

    Args:
        op: the operation
        rule: the recompute rule

    Returns:
        FLOP of one sequence [FLOP]

    Source:
        Korthikanti et al. 2022, arXiv:2205.05198, section 5; by_operation

    >>> from service.estimator.ledger import Split
    >>> rerun_flop(Op(name="n", kind="gemm", split=Split.WHOLE, flop=8), Recompute(granularity="full"))
    8
    """
    if not is_rerun(op, rule):
        return 0
    columns = sum(weight.columns for weight in op.weights if weight.matrices)
    if not by_operation(rule) or not columns:
        return op.flop
    return op.flop * (columns - sum(weight.columns for weight in kept_matrices(op))) // columns
