"""Passes that a stage of an interleaved pipeline holds, checked by simulating its order."""

from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from service.estimator.parallelism.pipeline import in_flight, interleaved_bytes, loss_bytes
from service.estimator.samples import sample_degrees


def played_through(stages: int, chunks: int, batches: int, stage: int) -> Iterator[tuple[int, list[int]]]:
    """The chunk of each forward pass of a stage, and the passes that each chunk holds then: warm-up, then in turns."""
    turns = [chunk for chunk in range(chunks) for _ in range(stages)]
    order = turns * (batches // stages)
    warm_up = min(len(order), 2 * (stages - stage - 1) + (chunks - 1) * stages)
    held = [0] * chunks
    for index, chunk in enumerate(order):
        held[chunk] += 1
        yield chunk, held
        if index >= warm_up:
            held[chunks - 1 - order[index - warm_up]] -= 1


@settings(max_examples=300)
@given(st.sampled_from((2, 3, 4, 8)), st.integers(2, 5), st.integers(1, 5), st.data())
def test_fullest_moment_is_found(stages: int, chunks: int, groups: int, data: st.DataObject) -> None:
    stage = data.draw(st.integers(0, stages - 1))
    sizes = tuple(data.draw(st.lists(st.integers(0, 9), min_size=chunks, max_size=chunks)))
    batches = stages * groups
    degrees = sample_degrees(pipeline=stages, virtual_pipeline=chunks, virtual_group=stages, accumulation=batches)
    warming = in_flight("interleaved-1f1b", degrees, stage, chunks)
    warm = sumprod(warming, sizes)
    moments = [(chunk, sumprod(held, sizes)) for chunk, held in played_through(stages, chunks, batches, stage)]
    assert max(warm, interleaved_bytes(degrees, stage, sizes)) == max(held for _, held in moments)
    if stage == stages - 1:
        losses = {held for chunk, held in moments if chunk == chunks - 1}
        assert losses == {loss_bytes(degrees, stage, sizes)}


def sumprod(counts: Sequence[Any], sizes: Sequence[int]) -> Any:
    """The bytes of passes, by how many there are of each chunk and what one keeps."""
    return sum(count * size for count, size in zip(counts, sizes, strict=True))


def test_equal_chunks_hold_the_same_at_every_moment() -> None:
    degrees = sample_degrees(pipeline=4, virtual_pipeline=2, virtual_group=4, accumulation=16)
    warm = sum(in_flight("interleaved-1f1b", degrees, 1, 2))
    assert interleaved_bytes(degrees, 1, (3.0, 3.0)) == 3 * warm
