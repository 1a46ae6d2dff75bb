"""Which micro-batches of which chunks does a stage of an interleaved pipeline hold, once it is warm?"""

from collections.abc import Iterator

from service.estimator.degrees import Degrees
from service.estimator.numeric import Amount, both, ceil_div, floor_div, maximum, minimum, where


def steady_flights(degrees: Degrees, stage: Amount, chunks: int) -> Iterator[tuple[Amount, ...]]:
    """Micro-batches of each chunk that a stage holds at the moments when their mix changes, after its warm-up.

    Their sum stays the same, but the first chunk gains what the last one frees: where chunks are of different size,
    the fullest moment is one of these. Forward passes run group by group through the chunks from the first to the
    last, backward passes from the last to the first; a group's end of either is a moment.

    Formula:
        forward passes done of chunk j - backward passes done of it, at F = w + 1 + B passes forward and B backward,
        w = 2 (p - i - 1) + (v - 1) g;  none where the step has fewer than F

    Args:
        degrees: the layout: p stages, v chunks, m micro-batches, groups of g
        stage: stage, i, from 0 [1]
        chunks: the largest number of chunks of a stage in the column (of the one layout) [1]

    Yields:
        micro-batches of each chunk [1]

    Source:
        NVIDIA/Megatron-LM@d98e8a64 core/pipeline_parallel/schedules.py (forward_backward_pipelining_with_interleaving)

    >>> from service.estimator.samples import sample_degrees
    >>> two = sample_degrees(pipeline=4, virtual_pipeline=2, virtual_group=4, accumulation=16)
    >>> max(steady_flights(two, 0, 2))
    (8, 3)
    """
    rounds, group = degrees.virtual_pipeline, degrees.virtual_group
    warm_up = 2 * (degrees.pipeline - stage - 1) + (rounds - 1) * group
    period = group * rounds
    first_end = ceil_div(warm_up + 1, period) * period
    for place in range(chunks):
        for backward in (first_end + place * group - warm_up - 1, place * group):
            forward = warm_up + 1 + backward
            happens = both(rounds > 1, forward <= degrees.accumulation * rounds)
            yield tuple(
                where(
                    both(happens, rounds > chunk),
                    _done(forward, chunk, group, period) - _done(backward, rounds - 1 - chunk, group, period),
                    0,
                )
                for chunk in range(chunks)
            )


def _done(passes: Amount, place: Amount, group: Amount, period: Amount) -> Amount:
    """How many of the first passes are of the chunk whose turn comes at a place in each period."""
    whole = floor_div(passes, period)
    return whole * group + minimum(maximum(passes - whole * period - place * group, 0), group)
