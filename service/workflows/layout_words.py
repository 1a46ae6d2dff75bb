"""How does a person call a layout? By its degrees, its schedule and what it shards."""

from service.estimator.question import Layout

DEGREES = ("data", "tensor", "context", "pipeline", "expert")


def degrees_in_words(layout: Layout) -> list[str]:
    """The degrees of a layout that divide something.

    Args:
        layout: the layout

    Returns:
        a word and a number each

    >>> degrees_in_words(Layout(data=8, tensor=2))
    ['data 8', 'tensor 2']
    """
    degrees = [(name, getattr(layout, name)) for name in DEGREES]
    return [f"{name} {degree}" for name, degree in degrees if degree and degree > 1]


def layout_in_words(layout: Layout) -> str:
    """A whole layout, but for what goes without saying.

    Args:
        layout: the layout, every field filled

    Returns:
        its parts, separated by commas

    >>> layout_in_words(Layout(data=8, tensor=2, pipeline=4, virtual_pipeline=2, zero_stage=1, shard_group=8,
    ...                        schedule="interleaved-1f1b", sequence_parallel=True))
    'data 8, tensor 2, pipeline 4, 2 virtual stages, interleaved-1f1b, sequence parallel, ZeRO 1'
    """
    parts = degrees_in_words(layout) or ["one GPU"]
    if layout.virtual_pipeline > 1:
        parts.append(f"{layout.virtual_pipeline} virtual stages")
    if layout.pipeline > 1 and layout.schedule is not None:
        parts.append(layout.schedule)
    if layout.sequence_parallel:
        parts.append("sequence parallel")
    if layout.context > 1 and layout.context_method is not None:
        parts.append(f"context by {layout.context_method}")
    parts.append(_sharding(layout))
    if layout.offload != "none":
        parts.append(f"{layout.offload} on the host")
    return ", ".join(parts)


def _sharding(layout: Layout) -> str:
    replicas = (layout.data or 1) * layout.context
    words = f"ZeRO {layout.zero_stage}"
    if layout.zero_stage and layout.shard_group not in (None, replicas):
        words += f" over {layout.shard_group}"
    return f"{words}, weights stay gathered" if layout.zero_stage == 3 and not layout.reshard_after_forward else words
