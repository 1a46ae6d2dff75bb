"""Which constants of the estimator were read off measurements of which source?

A source that gave a constant cannot judge it: its groups are marked `in_sample`, with the constants by name. Every
other source is judged by formulas and constants that never saw it.
"""

from collections.abc import Mapping

READ_OFF_ALL = ("residuals.LEAST_RESIDUAL", "residuals.RESIDUALS")
"""Constants that every shipped source gave a part of: they widen intervals and move no prediction. What coverage would
be without a source's own part, `coverage80_left_out_fraction` says."""

READ_OFF: Mapping[str, tuple[str, ...]] = {
    "bloom": ("device.CONTEXT_BYTES", "stacks.STACKS"),
    "nanotron": ("allocator.HELD_ROOM",),
    "torchtitan": ("allocator.EXPANDABLE_SHARE", "allocator.HELD_SHARE", "cross_entropy.CROSS_ENTROPIES"),
    "megatron_functional": (
        "cross_entropy.CROSS_ENTROPIES",
        "memory.LAYERS_ON_DEVICE",
        "pipeline_buffers.left_bytes",
    ),
}
"""Constants, or formulas, as module.NAME of the estimator, by the source that they were read off. Of the stacks it is
DeepSpeed's step gradients that live on (bloom); of the cross entropies the hole of the eager one (torchtitan) and the
copies of the fused one (megatron_functional)."""


STEPS_READ_OFF: Mapping[str, tuple[str, ...]] = {}
"""Constants of step time by the source of published steps that they were fitted on; what they would be without its
own part, the held-out figures of a source say."""


def constants_read_off(source_key: str, quantity: str = "peak") -> tuple[str, ...]:
    """The constants that rows of a source gave.

    Args:
        source_key: the source
        quantity: what the rows measured; step for the time of a step

    Returns:
        their names; none for a source that was only ever judged

    >>> constants_read_off("qwen_readme")
    ()
    """
    return (STEPS_READ_OFF if quantity == "step" else READ_OFF).get(source_key, ())
