"""Which constants of the estimator were read off measurements of which source?

A source that gave a constant cannot judge it: its groups are marked `in_sample`, with the constants by name. Every
other source is judged by formulas and constants that never saw it.
"""

from collections.abc import Mapping

READ_OFF_ALL = ("residuals.LEAST_RESIDUAL", "residuals.RESIDUALS", "run_residuals.RUN_RESIDUALS")
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
"""Constants, or formulas, of the estimator as topic.NAME, by the source that they were read off. Of the stacks it is
DeepSpeed's step gradients that live on (bloom); of the cross entropies the hole of the eager one (torchtitan) and the
copies of the fused one (megatron_functional)."""


STEPS_READ_OFF = ("step_constants.STEP_CONSTANTS", "step_residuals.RESIDUALS", "step_residuals.WAITING_WEIGHT")
"""Constants that the published steps of every source of FITTED_SOURCES gave a part of; what would be predicted without
a source's own part, its held-out figures say."""

STEPS_READ_OFF_ONE: Mapping[str, tuple[str, ...]] = {
    "torchtitan": ("clock.CLOCK_EXPONENT", "exposed.TENSOR_OVERLAP_FRACTION"),
}
"""Constants of step time that one source gave by pairs of its rows; its held-out figures have seen these."""

FITTED_SOURCES = (
    "bloom",
    "internevo",
    "korthikanti2022_t5",
    "llmfoundry",
    "mbridge",
    "mbridge_skills",
    "megatron2021_t1",
    "megatron2021_t2",
    "mtnlg",
    "nanotron",
    "torchtitan",
)
"""Sources of published steps that the constants of step time are fitted on."""

ONLY_JUDGED = ("new GPU", "old GPU")
"""Classes of steps that no constant is fitted on, whatever their source."""


def constants_read_off(source_key: str, quantity: str = "peak", figure_class: str = "") -> tuple[str, ...]:
    """The constants that rows of a source gave.

    Args:
        source_key: the source
        quantity: what the rows measured; step for the time of a step
        figure_class: the class of their figures

    Returns:
        their names; none for a source that was only ever judged

    >>> constants_read_off("qwen_readme"), constants_read_off("mbridge", "step", "new GPU")
    ((), ())
    """
    if quantity != "step":
        return READ_OFF.get(source_key, ())
    gave = source_key in FITTED_SOURCES and figure_class not in ONLY_JUDGED
    return (*STEPS_READ_OFF, *STEPS_READ_OFF_ONE.get(source_key, ())) if gave else ()
