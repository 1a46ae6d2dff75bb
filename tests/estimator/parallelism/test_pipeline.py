"""Passes that a stage of an interleaved pipeline holds, checked by simulating its order."""

from hypothesis import given, settings
from hypothesis import strategies as st

from service.estimator.parallelism.pipeline import in_flight, interleaved_bytes
from service.estimator.samples import sample_degrees


def played_through(stages: int, chunks: int, batches: int, stage: int, sizes: list[int]) -> int:
    """The most that a stage holds, its passes one after another: warm-up, one forward and one backward, the rest."""
    turns = [chunk for chunk in range(chunks) for _ in range(stages)]
    order = turns * (batches // stages)
    backward = [chunks - 1 - chunk for chunk in order]
    warm_up = min(len(order), 2 * (stages - stage - 1) + (chunks - 1) * stages)
    held = [0] * chunks
    for chunk in order[:warm_up]:
        held[chunk] += 1
    most = sum(count * size for count, size in zip(held, sizes, strict=True))
    for turn, chunk in enumerate(order[warm_up:]):
        held[chunk] += 1
        most = max(most, sum(count * size for count, size in zip(held, sizes, strict=True)))
        held[backward[turn]] -= 1
    return most


@settings(max_examples=300)
@given(st.sampled_from((2, 3, 4, 8)), st.integers(2, 5), st.integers(1, 5), st.data())
def test_fullest_moment_is_found(stages: int, chunks: int, groups: int, data: st.DataObject) -> None:
    stage = data.draw(st.integers(0, stages - 1))
    sizes = data.draw(st.lists(st.integers(0, 9), min_size=chunks, max_size=chunks))
    batches = stages * groups
    degrees = sample_degrees(pipeline=stages, virtual_pipeline=chunks, virtual_group=stages, accumulation=batches)
    warming = in_flight("interleaved-1f1b", degrees, stage, chunks)
    warm = sum(count * size for count, size in zip(warming, sizes, strict=True))
    assert max(warm, interleaved_bytes(degrees, stage, tuple(sizes))) == played_through(
        stages, chunks, batches, stage, sizes
    )


def test_equal_chunks_hold_the_same_at_every_moment() -> None:
    degrees = sample_degrees(pipeline=4, virtual_pipeline=2, virtual_group=4, accumulation=16)
    warm = sum(in_flight("interleaved-1f1b", degrees, 1, 2))
    assert interleaved_bytes(degrees, 1, (3.0, 3.0)) == 3 * warm
