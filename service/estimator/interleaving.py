"""Which micro-batches of which chunks does a stage of an interleaved pipeline hold, once it is warm?"""

from collections.abc import Iterator

from service.estimator.degrees import Degrees
from service.estimator.numeric import Amount, ceil_div, equal_everywhere, floor_div, maximum, minimum, where

Moment = tuple[Amount, tuple[Amount, ...]]
"""Forward passes done, and micro-batches held of each chunk of unusual size."""


def warm_passes(degrees: Degrees, stage: Amount) -> Amount:
    """Forward passes of chunks that a stage of an interleaved pipeline has run, none of them backward, once it is warm.

    Formula:
        n = min(m v, 2 (p - i - 1) + (v - 1) g + 1)

    Args:
        degrees: the layout: p stages, v chunks, m micro-batches, groups of g
        stage: stage, i, from 0 [1]

    Returns:
        passes of chunks [1]

    Source:
        Megatron-LM schedules.py (warm-up count)

    >>> from service.estimator.samples import sample_degrees
    >>> warm_passes(sample_degrees(pipeline=4, virtual_pipeline=2, virtual_group=4, accumulation=16), 3)
    5
    """
    rounds, group = degrees.virtual_pipeline, degrees.virtual_group
    return minimum(degrees.accumulation * rounds, 2 * (degrees.pipeline - stage - 1) + (rounds - 1) * group + 1)


def warm_flights(degrees: Degrees, warm: Amount, chunk: int) -> Amount:
    """Those of the passes that are of one chunk: groups of micro-batches go through the chunks in turn.

    Formula:
        min(g, n - j g) + min(g, n - (v + j) g), each at least 0; 0 beyond the last chunk

    Args:
        degrees: the layout: v chunks, groups of g
        warm: passes of all chunks, n [1]
        chunk: the chunk, j, from 0 [1]

    Returns:
        micro-batches of the chunk [1]

    Source:
        Megatron-LM schedules.py (groups)

    >>> from service.estimator.samples import sample_degrees
    >>> two = sample_degrees(pipeline=4, virtual_pipeline=2, virtual_group=4, accumulation=16)
    >>> warm_flights(two, 5, 0), warm_flights(two, 5, 1)
    (4, 1)
    """
    rounds, group = degrees.virtual_pipeline, degrees.virtual_group
    dealt = _within(warm - chunk * group, group) + _within(warm - (rounds + chunk) * group, group)
    return where(rounds > chunk, dealt, 0)


def _within(count: Amount, most: Amount) -> Amount:
    return minimum(maximum(count, 0), most)


def interleaved_bytes(degrees: Degrees, stage: Amount, kept_bytes: tuple[Amount, ...]) -> Amount:
    """Activations of a stage of an interleaved pipeline at its fullest: when it is warm, or when the mix changes later.

    The micro-batches in flight stay as many, but the first chunk gains what the last one frees: where chunks are of
    different size, the fullest moment is one of these. Forward passes run group by group through the chunks from the
    first to the last, backward passes from the last to the first; a group's end of either is a moment.

    Formula:
        max over the moments of n k + sum over chunks of n_j (k_j - k),  k any one chunk's bytes; warm: warm_passes;
        later: n = w + 1, n_j = forward passes done of chunk j - backward passes done of it, at F = w + 1 + B passes
        forward and B backward,  w = 2 (p - i - 1) + (v - 1) g;  none where the step has fewer than F

    Args:
        degrees: the layout: p stages, v chunks, m micro-batches, groups of g
        stage: stage, i, from 0 [1]
        kept_bytes: activations that one micro-batch keeps in each chunk, k_j; as many as the largest number of chunks
            of a stage in the column (of the one layout) [byte]

    Returns:
        bytes of one rank [byte]

    Source:
        NVIDIA/Megatron-LM@d98e8a64 core/pipeline_parallel/schedules.py (forward_backward_pipelining_with_interleaving)

    >>> from service.estimator.samples import sample_degrees
    >>> two = sample_degrees(pipeline=4, virtual_pipeline=2, virtual_group=4, accumulation=16)
    >>> interleaved_bytes(two, 0, (1.0, 0.0)), interleaved_bytes(two, 0, (1.0, 1.0))
    (8.0, 11.0)
    """
    rounds, group = degrees.virtual_pipeline, degrees.virtual_group
    usual = kept_bytes[len(kept_bytes) // 2]
    unusual = [chunk for chunk, kept in enumerate(kept_bytes) if not equal_everywhere(kept, usual)]
    warm, warm_up = warm_passes(degrees, stage), 2 * (degrees.pipeline - stage - 1) + (rounds - 1) * group
    fullest = warm * usual
    for chunk in unusual:
        fullest = fullest + warm_flights(degrees, warm, chunk) * (kept_bytes[chunk] - usual)
    for forward, held in _held_later(degrees, warm_up, len(kept_bytes), unusual) if unusual else ():
        total = (warm_up + 1) * usual
        for chunk, flights in zip(unusual, held, strict=True):
            total = total + flights * (kept_bytes[chunk] - usual)
        fullest = maximum(fullest, where(forward <= degrees.accumulation * rounds, total, 0.0))
    return fullest


def _held_later(degrees: Degrees, warm_up: Amount, chunks: int, unusual: list[int]) -> Iterator[Moment]:
    """The moments that hold anything else than those before them."""
    rounds, group = degrees.virtual_pipeline, degrees.virtual_group
    told: list[Moment] = []
    for forward, backward in _moments(degrees, warm_up, chunks):
        held = []
        for chunk in unusual:
            undone = _done(forward, chunk, group, group * rounds)
            undone = undone - _done(backward, rounds - 1 - chunk, group, group * rounds)
            held.append(where(rounds > chunk, undone, 0))
        moment = forward, tuple(held)
        if not any(_includes(earlier, moment) for earlier in told):
            told.append(moment)
            yield moment


def _includes(earlier: Moment, later: Moment) -> bool:
    """Whether the same is held by the earlier moment, in whatever layout the later one comes to pass."""
    is_same = all(equal_everywhere(one, other) for one, other in zip(earlier[1], later[1], strict=True))
    return is_same and equal_everywhere(minimum(earlier[0], later[0]), earlier[0])


def _moments(degrees: Degrees, warm_up: Amount, chunks: int) -> Iterator[tuple[Amount, Amount]]:
    """Forward and backward passes done at each moment when a group's forward or backward passes end."""
    group = degrees.virtual_group
    period = group * degrees.virtual_pipeline
    first_end = ceil_div(warm_up + 1, period) * period
    for place in range(chunks):
        for backward in (place * group, first_end + place * group - warm_up - 1):
            yield warm_up + 1 + backward, backward


def _done(passes: Amount, place: Amount, group: Amount, period: Amount) -> Amount:
    """How many of the first passes are of the chunk whose turn comes at a place in each period."""
    whole = floor_div(passes, period)
    return whole * group + minimum(maximum(passes - whole * period - place * group, 0), group)
