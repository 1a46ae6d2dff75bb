"""Context parallelism: how is one sequence split over c ranks, and what do they exchange for attention?"""

from service.estimator.collectives import Transfer
from service.estimator.degrees import Degrees
from service.estimator.job import Job
from service.estimator.names import ContextMethod
from service.estimator.numeric import Condition, divides, minimum, where
from service.estimator.rules import Rule, divisors_of


def _blocks_fit(job: Job, degrees: Degrees) -> Condition:
    blocks = where(degrees.context > 1, 2 * degrees.context, 1)
    return divides(blocks, job.recipe.sequence_length)


RULES: tuple[Rule, ...] = (
    Rule(
        "context_divides_sequence",
        "layout.context",
        _blocks_fit,
        lambda job, d: (
            f"context degree {d.context} needs {2 * d.context} equal blocks (two a rank, to balance the causal mask), "
            f"which do not divide {job.recipe.sequence_length} tokens",
            f"make the sequence a multiple of {2 * d.context}, or lower context",
        ),
    ),
)

HEAD_RULES: tuple[Rule, ...] = (
    Rule(
        "ulysses_divides_heads",
        "layout.context",
        lambda job, d: divides(d.context * d.tensor, job.model.num_attention_heads),
        lambda job, d: (
            f"Ulysses deals {job.model.num_attention_heads} heads out to {d.context} context x {d.tensor} tensor ranks",
            f"use context x tensor of {divisors_of(job.model.num_attention_heads)}, or context_method ring",
        ),
    ),
)
"""Rules of context_method ulysses."""


def layer_transfers(job: Job, degrees: Degrees, method: ContextMethod) -> tuple[Transfer, ...]:
    """What one context rank sends for one layer and micro-batch, forward and backward.

    Formula:
        ring, all-gather: keys and values once forward; again, and their gradients, backward (3 all-gathers' worth)
        ulysses: queries, keys, values and output by all-to-all, forward and backward

    Args:
        job: the job
        degrees: the layout
        method: how keys and values are exchanged

    Returns:
        the transfers

    Source:
        Liu et al. 2023, arXiv:2310.01889 (ring); Llama 3, arXiv:2407.21783, section 3.3.2 (all-gather);
        Jacobs et al. 2023, arXiv:2309.14509 (Ulysses)
    """
    model = job.model
    tokens = job.recipe.sequence_length * degrees.micro_batch * job.precision.element_bytes
    if model.kv_lora_rank is None:
        query = value = model.head_width
    else:
        query = (model.qk_nope_head_dim or 0) + (model.qk_rope_head_dim or 0)
        value = model.v_head_dim or 0
    key_heads = model.key_value_heads if model.kv_lora_rank is None else model.num_attention_heads
    group, stride = degrees.context, degrees.tensor
    if method == "ulysses":
        own = model.num_attention_heads * (query + value) + key_heads * (query + value)
        return (Transfer("all_to_all", tokens * own / degrees.tensor / degrees.context, 2, group, stride),)
    key_value_bytes = tokens * key_heads * (query + value) / minimum(degrees.tensor, key_heads)
    return (
        Transfer("all_gather", key_value_bytes, 2, group, stride),
        Transfer("reduce_scatter", key_value_bytes, 1, group, stride),
    )
