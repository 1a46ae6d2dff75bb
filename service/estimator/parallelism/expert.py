"""Expert parallelism: experts placed on ranks, and their all-to-all."""

from math import inf

from service.estimator.degrees import NEXT_TO_EACH_OTHER, Degrees, Spacing, Transfer, evaluated_once, stages_are_first
from service.estimator.numeric import Amount, Condition, both, divides, either, implies, where
from service.estimator.parallelism.stages import stream_bytes
from service.estimator.rule import LayoutRule, Rule, divisors_of
from service.estimator.workload import Workload


def is_grouped(degrees: Degrees) -> Condition:
    """Whether experts have groups of their own, so that tokens travel to them."""
    return either(degrees.expert > 1, degrees.expert_tensor != degrees.tensor)


RULES: dict[str, LayoutRule] = {
    "expert_needs_experts": Rule(lambda w, d: implies(d.expert > 1, w.model.num_experts > 0)),
    "expert_divides_experts": Rule(
        lambda w, d: divides(d.expert, w.model.num_experts),
        lambda w, _: {"divisors": divisors_of(w.model.num_experts or 1)},
    ),
    "imbalance_is_possible": Rule(
        lambda w, d: implies(w.model.num_experts > 0, w.recipe.expert_imbalance <= d.expert),
        lambda _, d: {
            "fix": "leave expert_imbalance out, or set layout.expert above 1"
            if d.expert == 1
            else f"use 1 to {d.expert}, or a larger layout.expert"
        },
    ),
    "expert_tensor_divides_expert": Rule(
        lambda w, d: divides(d.expert_tensor, w.model.expert_width),
        lambda w, _: {"divisors": divisors_of(w.model.expert_width or 1)},
    ),
    "expert_grid_fits": Rule(
        lambda _, d: divides(d.expert * d.expert_tensor, d.data * d.context * d.tensor),
        lambda _, d: {"divisors": divisors_of(int(d.data * d.context * d.tensor))},
    ),
    "expert_fits_rank_order": Rule(
        lambda w, d: implies(
            both(stages_are_first(d), d.pipeline > 1),
            either(d.expert * d.expert_tensor == d.tensor * d.context, w.model.num_experts == 0),
        ),
        lambda _, d: {"ranks": d.tensor * d.context},
    ),
    "expert_with_tensor_needs_sequence_parallel": Rule(
        lambda _, d: implies(both(is_grouped(d), d.tensor > 1), d.sequence_parallel == 1),
        lambda w, _: {
            "fix": "leave sequence_parallel out or set it to true"
            if w.stack.splits_norms
            else f"set tensor to 1, or leave expert and expert_tensor out: {w.software.name} splits no norms"
        },
    ),
}


@evaluated_once
def layer_transfers(workload: Workload, degrees: Degrees, forwards: Amount, backwards: Amount) -> tuple[Transfer, ...]:
    """What one rank sends for one sparse layer and micro-batch: dispatch and combine, forward and backward.

    Formula:
        2 (f + r) all-to-alls of k E / (E + Z) s b h_e / c elements, over t where sequence parallelism is on; half of
        them, tokens on their way to experts and gradients of experts' results, narrower where the precision recipe has
        a format for them, so that the mean is sent;
        expert-tensor ranks gather and reduce the same tokens f + r times; the flex dispatcher sends a token once to
        each domain, of DeepSeek-V3's kind of routing to routed_nodes at most, and there once to each rank; the
        allgather dispatcher gathers the tokens of all E t_e ranks and reduces them back, f + r times
    Args:
        forwards: forward passes of the mean layer's experts, f [1]
        backwards: backward passes of the mean layer, r [1]
    Returns: the transfers
    Source:
        Lepikhin et al. 2020, arXiv:2006.16668; Megatron-Core moe README; DeepSeek-V3, arXiv:2412.19437, section 3.3.3
        (dispatch in fp8 either way, combine in bf16)
    """
    shared = where(degrees.sequence_parallel == 1, degrees.tensor, 1)
    over, under = workload.model.visits
    narrowed = workload.model.expert_input_width / workload.model.hidden_size
    visits = over / max(1, under) * narrowed * stream_bytes(workload, degrees) / shared
    split = where(is_grouped(degrees), degrees.expert_tensor, 1)
    if workload.software.dispatcher == "allgather":
        ranks = degrees.expert * split
        every = narrowed * stream_bytes(workload, degrees) / shared * ranks
        return (
            Transfer("all_gather", every, forwards + backwards, ranks, NEXT_TO_EACH_OTHER, "tokens"),
            Transfer("reduce_scatter", every, forwards + backwards, ranks, NEXT_TO_EACH_OTHER, "tokens"),
        )
    narrow = workload.precision.dispatch_bytes or workload.precision.element_bytes
    mean = (1 + narrow / workload.precision.element_bytes) / 2
    copies = over / max(1, under) if workload.software.dispatcher == "flex" else 1.0
    nodes = workload.software.routed_nodes
    reach = inf if nodes is None else nodes * max(1.0, workload.cluster.gpus_per_node / workload.cluster.scale_up_gpus)
    spacing, passes = Spacing(degrees.expert_tensor), 2 * (forwards + backwards)
    return (
        Transfer("all_to_all", visits * mean, passes, degrees.expert, spacing, "tokens", copies, reach),
        Transfer("all_gather", visits * split, forwards + backwards, split, NEXT_TO_EACH_OTHER, "tokens"),
        Transfer("reduce_scatter", visits * split, forwards + backwards, split, NEXT_TO_EACH_OTHER, "tokens"),
    )
