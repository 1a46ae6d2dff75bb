"""Tensor parallelism: rules for its degree, and the transfers of its ranks."""

from math import gcd

from service.estimator.degrees import NEXT_TO_EACH_OTHER, Degrees, Transfer, evaluated_once
from service.estimator.model.build import MIXERS
from service.estimator.model.ledger import LayerShape
from service.estimator.numeric import Amount, Condition, divides, either, implies, where
from service.estimator.parallelism.stages import stream_bytes
from service.estimator.question import Model
from service.estimator.rule import LayoutRule, Rule, divisors_of
from service.estimator.workload import Workload


def _widths(workload: Workload) -> tuple[int, ...]:
    """Widths of the dense and the shared MLPs that the model has."""
    model = workload.model
    has_dense = any("dense" in shape.mlp or MIXERS[shape.mixer].shares_block for shape in workload.ledger.shapes)
    dense = model.intermediate_size or 0 if has_dense else 0
    return tuple(width for width in (dense, model.shared_expert_intermediate_size) if width)


def _mixer_heads(workload: Workload) -> tuple[int, ...]:
    """Heads, groups or channels of recurrent and convolution mixers, which tensor ranks split."""
    names = {name for shape in workload.ledger.shapes for name in MIXERS[shape.mixer].tensor_split_fields}
    return tuple(getattr(workload.model, name) or 0 for name in sorted(names))


RULES: dict[str, LayoutRule] = {
    "tensor_divides_heads": Rule(
        lambda w, d: divides(d.tensor, w.model.num_attention_heads),
        lambda w, _: {"divisors": divisors_of(w.model.num_attention_heads)},
    ),
    "tensor_divides_key_value_heads": Rule(
        lambda w, d: either(divides(w.model.key_value_heads, d.tensor), divides(d.tensor, w.model.key_value_heads)),
        lambda w, _: {"divisors": divisors_of(w.model.key_value_heads)},
    ),
    "tensor_divides_mlp": Rule(
        lambda w, d: divides(d.tensor, gcd(*_widths(w))),
        lambda w, _: {"widths": " or ".join(map(str, _widths(w))), "divisors": divisors_of(gcd(*_widths(w)))},
    ),
    "tensor_divides_mixer": Rule(
        lambda w, d: divides(d.tensor, gcd(*_mixer_heads(w))),
        lambda w, _: {"heads": " and ".join(map(str, _mixer_heads(w))), "divisors": divisors_of(gcd(*_mixer_heads(w)))},
    ),
    "sequence_parallel_needs_tensor": Rule(lambda _, d: implies(d.sequence_parallel == 1, d.tensor > 1)),
    "sequence_parallel_divides_sequence": Rule(
        lambda w, d: implies(d.sequence_parallel == 1, divides(d.tensor * d.context, w.recipe.sequence_length)),
        lambda _, d: {"ranks": d.tensor * d.context},
    ),
}


@evaluated_once
def layer_transfers(
    workload: Workload, degrees: Degrees, forwards: Amount, backwards: Amount, branches: Amount
) -> tuple[Transfer, ...]:
    """Transfers of one tensor rank for one layer and micro-batch, forward and backward.

    Formula:
        n (f + r) all-reduces of s b h / c elements; with sequence parallelism as many all-gathers and
        reduce-scatters, and n r more all-gathers for the weight gradients; gathered in the products' format where the
        stack does so
    Args:
        forwards: forward passes of the mean layer, f [1]
        backwards: backward passes of the mean layer, r [1]
        branches: branches of the layer that tensor ranks split, n [1]
    Returns: the transfers
    Source: Shoeybi et al. 2019, arXiv:1909.08053, section 3; Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.2
    """
    stream, stream_width = stream_bytes(workload, degrees), workload.precision.element_bytes
    gather_bytes = where(degrees.sequence_parallel == 1, stream, 0.0)
    reduce_bytes = stream - gather_bytes
    gathers_narrow = workload.implementation.overlap.gathers_narrow
    width_ratio = (workload.precision.product_bytes or stream_width) / stream_width if gathers_narrow else 1.0
    narrow_bytes = gather_bytes * width_ratio
    return (
        Transfer("all_reduce", reduce_bytes, (forwards + backwards) * branches, degrees.tensor, NEXT_TO_EACH_OTHER),
        Transfer("all_gather", narrow_bytes, (forwards + 2 * backwards) * branches, degrees.tensor, NEXT_TO_EACH_OTHER),
        Transfer("reduce_scatter", gather_bytes, (forwards + backwards) * branches, degrees.tensor, NEXT_TO_EACH_OTHER),
    )


def layer_branches(model: Model, shape: LayerShape, *, grouped: Condition) -> Amount:
    """Branches of a layer that tensor ranks split and join.

    Formula:
        those of what mixes tokens, one for a dense MLP, one for
        experts without groups of their own, else one for shared experts; one less where both run side by side
    Args:
        shape: what mixes tokens and channels in the layer
        grouped: whether tokens travel to experts in groups of their own
    Returns: branches [1]
    Source:
        Shoeybi et al. 2019, arXiv:1909.08053, section 3; Chowdhery et al. 2022, arXiv:2204.02311, section 2;
        Megatron-Core moe README

    >>> from service.estimator.samples import LLAMA_3_8B
    >>> layer_branches(LLAMA_3_8B, LayerShape("full_attention", "dense", False), grouped=False)
    2
    """
    mixers = MIXERS[shape.mixer].branches
    dense = 1 if "dense" in shape.mlp else 0
    shared = 1 if model.shared_expert_intermediate_size else 0
    joint = 1 if model.parallel_attention and mixers and shape.mlp != "none" else 0
    return mixers + dense - joint + (where(grouped, shared + joint, 1) if shape.is_sparse else 0)
