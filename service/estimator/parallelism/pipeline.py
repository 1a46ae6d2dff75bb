"""Pipeline parallelism: layers of each stage, micro-batches in flight, transfers and the bubble."""

from collections.abc import Iterator
from dataclasses import dataclass

from service.estimator.degrees import Degrees, Transfer, evaluated_once, stage_spacing
from service.estimator.numeric import (
    Amount,
    Condition,
    both,
    ceil_div,
    divides,
    equal_everywhere,
    floor_div,
    implies,
    maximum,
    minimum,
    where,
)
from service.estimator.parallelism.stages import stream_bytes
from service.estimator.question import Layout, Model, ScheduleName
from service.estimator.rule import LayoutRule, Rule, divisors_of
from service.estimator.workload import Workload

Moment = tuple[Amount, tuple[Amount, ...]]
"""Forward passes done, and micro-batches held of each chunk of unusual size."""


def warm_passes(degrees: Degrees, stage: Amount) -> Amount:
    """Forward passes of chunks that a stage of an interleaved pipeline has run, none of them backward, once it is warm.

    Formula: n = min(m v, 2 (p - i - 1) + (v - 1) g + 1)
    Args:
        degrees: the layout: p stages, v chunks, m micro-batches, groups of g
        stage: stage, i, from 0 [1]
    Returns: passes of chunks [1]
    Source: Megatron-LM schedules.py (warm-up count)

    >>> from service.estimator.samples import sample_degrees
    >>> warm_passes(sample_degrees(pipeline=4, virtual_pipeline=2, virtual_group=4, accumulation=16), 3)
    5
    """
    rounds, group = degrees.virtual_pipeline, degrees.virtual_group
    return minimum(degrees.accumulation * rounds, 2 * (degrees.pipeline - stage - 1) + (rounds - 1) * group + 1)


def warm_flights(degrees: Degrees, warm: Amount, chunk: int) -> Amount:
    """Those of the passes that are of one chunk: groups of micro-batches go through the chunks in turn.

    Formula: min(g, n - j g) + min(g, n - (v + j) g), each at least 0; 0 beyond the last chunk
    Args:
        degrees: the layout: v chunks, groups of g
        warm: passes of all chunks, n [1]
        chunk: the chunk, j, from 0 [1]
    Returns: micro-batches of the chunk [1]
    Source: Megatron-LM schedules.py (groups)

    >>> from service.estimator.samples import sample_degrees
    >>> two = sample_degrees(pipeline=4, virtual_pipeline=2, virtual_group=4, accumulation=16)
    >>> warm_flights(two, 5, 0), warm_flights(two, 5, 1)
    (4, 1)
    """
    rounds, group = degrees.virtual_pipeline, degrees.virtual_group
    layers = _within(warm - chunk * group, group) + _within(warm - (rounds + chunk) * group, group)
    return where(rounds > chunk, layers, 0)


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
    Returns: bytes of one rank [byte]
    Source:
        NVIDIA/Megatron-LM@d98e8a64 core/pipeline_parallel/schedules.py (forward_backward_pipelining_with_interleaving)

    >>> from service.estimator.samples import sample_degrees
    >>> two = sample_degrees(pipeline=4, virtual_pipeline=2, virtual_group=4, accumulation=16)
    >>> interleaved_bytes(two, 0, (1.0, 0.0)), interleaved_bytes(two, 0, (1.0, 1.0))
    (8.0, 11.0)
    """
    first, *later = held_moments(degrees, stage, kept_bytes)
    peak = first.held_bytes(kept_bytes)
    for moment in later:
        peak = maximum(peak, where(moment.happens, moment.held_bytes(kept_bytes), 0.0))
    return peak


def loss_bytes(degrees: Degrees, stage: Amount, kept_bytes: tuple[Amount, ...]) -> Amount:
    """Activations of the last stage of an interleaved pipeline when a micro-batch has its loss, in the last chunk.

    Each loss finds what the first one does, when the stage is warm: a micro-batch runs backward through the last chunk
    before the next one runs forward there, and whole groups wait in all the other chunks.

    Formula: n k + sum over chunks of n_j (k_j - k) with n_j = g micro-batches, of the last chunk 1;  n = (v - 1) g + 1
    Args:
        degrees: the layout: v chunks, groups of g
        stage: the last stage, from 0 [1]
        kept_bytes: activations that one micro-batch keeps in each chunk, k_j; k any one of them [byte]
    Returns: bytes of one rank [byte]
    Source:
        NVIDIA/Megatron-LM@d98e8a64 core/pipeline_parallel/schedules.py (forward_backward_pipelining_with_interleaving)

    >>> from service.estimator.samples import sample_degrees
    >>> two = sample_degrees(pipeline=4, virtual_pipeline=2, virtual_group=4, accumulation=16)
    >>> loss_bytes(two, 3, (1.0, 0.0)), interleaved_bytes(two, 3, (1.0, 0.0))
    (4.0, 5.0)
    """
    return next(held_moments(degrees, stage, kept_bytes)).held_bytes(kept_bytes)


@dataclass(slots=True, kw_only=True)
class HeldMoment:
    """A moment at which a stage of an interleaved pipeline may be fullest."""

    happens: Condition
    """Whether the step has enough micro-batches for it."""
    passes: Amount
    """Micro-batches of all chunks in flight."""
    flights: dict[int, Amount]
    """Those of each chunk whose bytes are not the usual ones."""

    def held_bytes(self, kept_bytes: tuple[Amount, ...]) -> Amount:
        """Activations at the moment, by what one micro-batch keeps in each chunk [byte]."""
        usual = kept_bytes[len(kept_bytes) // 2]
        total = self.passes * usual
        for chunk, flights in self.flights.items():
            total = total + flights * (kept_bytes[chunk] - usual)
        return total


def held_moments(degrees: Degrees, stage: Amount, kept_bytes: tuple[Amount, ...]) -> Iterator[HeldMoment]:
    """The moments of `interleaved_bytes`, the one when the stage is warm first."""
    rounds, group = degrees.virtual_pipeline, degrees.virtual_group
    usual = kept_bytes[len(kept_bytes) // 2]
    unusual = [chunk for chunk, saved_bytes in enumerate(kept_bytes) if not equal_everywhere(saved_bytes, usual)]
    warm, warm_up = warm_passes(degrees, stage), 2 * (degrees.pipeline - stage - 1) + (rounds - 1) * group
    flights = {chunk: warm_flights(degrees, warm, chunk) for chunk in unusual}
    yield HeldMoment(happens=True, passes=warm, flights=flights)
    for forward, in_flight in _held_later(degrees, warm_up, len(kept_bytes), unusual) if unusual else ():
        yield HeldMoment(
            happens=forward <= degrees.accumulation * rounds,
            passes=warm_up + 1,
            flights=dict(zip(unusual, in_flight, strict=True)),
        )


def _held_later(degrees: Degrees, warm_up: Amount, chunks: int, unusual: list[int]) -> Iterator[Moment]:
    """The moments that hold anything else than those before them."""
    rounds, group = degrees.virtual_pipeline, degrees.virtual_group
    moments: list[Moment] = []
    for forward, backward in _moments(degrees, warm_up, chunks):
        in_flight = []
        for chunk in unusual:
            undone = _done(forward, chunk, group, group * rounds)
            undone = undone - _done(backward, rounds - 1 - chunk, group, group * rounds)
            in_flight.append(where(rounds > chunk, undone, 0))
        moment = forward, tuple(in_flight)
        if not any(_includes(earlier, moment) for earlier in moments):
            moments.append(moment)
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
    """Passes of one chunk among the first passes, by the chunk's place in each period."""
    whole = floor_div(passes, period)
    return whole * group + minimum(maximum(passes - whole * period - place * group, 0), group)


RULES: dict[str, LayoutRule] = {
    "virtual_pipeline_needs_pipeline": Rule(lambda _, d: implies(d.virtual_pipeline > 1, d.pipeline > 1)),
    "pipeline_needs_unshared_layers": Rule(lambda w, d: implies(bool(w.model.num_mem_blocks), d.pipeline == 1)),
    "interleaving_divides_micro_batches": Rule(
        lambda _, d: implies(d.virtual_pipeline > 1, divides(d.virtual_group, d.accumulation))
    ),
    "virtual_group_fills_the_pipeline": Rule(
        lambda _, d: implies(d.virtual_pipeline > 1, d.virtual_group >= d.pipeline)
    ),
}

EVEN_RULES: dict[str, LayoutRule] = {
    "pipeline_divides_layers": Rule(
        lambda w, d: divides(d.pipeline * d.virtual_pipeline, w.model.num_hidden_layers),
        lambda w, _: {"divisors": divisors_of(w.model.num_hidden_layers)},
    ),
}

DUALPIPE_RULES: dict[str, LayoutRule] = {
    "dualpipe_needs_even_stages": Rule(lambda _, d: divides(2, d.pipeline)),
    "dualpipe_needs_micro_batches": Rule(
        lambda _, d: both(divides(2, d.accumulation), d.accumulation >= 2 * d.pipeline),
        lambda _, d: {"least": 2 * d.pipeline},
    ),
}


def partition_layers(layout: Layout, model: Model) -> tuple[int, ...] | None:
    """Layers of each chunk where embedding or head count as a layer of the split.

    Formula: (L + embedding + head) / (p v) a chunk, one fewer in the first and in the last chunk for each that counts
    Args:
        model: the model, of L layers
    Returns:
        layers of each chunk in the order of the model; None where neither counts, or they cannot be dealt evenly [1]
    Source: Megatron-LM account-for-embedding-in-pipeline-split, account-for-loss-in-pipeline-split

    >>> from service.estimator.samples import LLAMA_3_8B
    >>> partition_layers(Layout(pipeline=11, embedding_in_split=True), LLAMA_3_8B)
    (2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3)
    """
    chunks = layout.pipeline * layout.virtual_pipeline
    counted = model.num_hidden_layers + layout.embedding_in_split + layout.loss_in_split
    if not (layout.embedding_in_split or layout.loss_in_split) or counted % chunks:
        return None
    layers = [counted // chunks] * chunks
    layers[0] -= layout.embedding_in_split
    layers[-1] -= layout.loss_in_split
    return tuple(layers) if min(layers) >= 0 else None


def partition_layers_by_cost(stages: int, model: Model) -> tuple[int, ...]:
    """Layers of each stage where they are dealt by cost: a stage is full once it has its share or more.

    Formula:
        layer 4 h^2 + 3 h f, head V h; stage i ends with the layer that brings the sum above (i + 1) / p of the whole
    Args:
        stages: stages, p [1]
    Returns: layers of each stage, first to last [1]
    Source: huggingface/nanotron@67c5ebb6 models/base.py build_model, models/llama.py get_block_compute_costs

    >>> from service.estimator.samples import LLAMA_3_8B
    >>> partition_layers_by_cost(2, LLAMA_3_8B)
    (18, 14)
    """
    hidden, width = model.hidden_size, model.intermediate_size or 0
    each = 4 * hidden**2 + 3 * hidden * width
    whole = each * model.num_hidden_layers + model.vocab_size * hidden
    layers = [0] * stages
    stage = done = 0
    for _ in range(model.num_hidden_layers):
        layers[stage] += 1
        done += each
        if stage < stages - 1 and done * stages > (stage + 1) * whole:
            stage += 1
    return tuple(layers)


def in_flight(schedule: ScheduleName, degrees: Degrees, stage: Amount, chunks: int = 1) -> tuple[Amount, ...]:
    """Micro-batches whose activations one rank of a stage keeps at once, of each of its chunks.

    Formula:
        gpipe: m, 1 without a pipeline        1f1b, zero-bubble: min(m, p - i)        dualpipe: min(m, p + 1)
        interleaved-1f1b: n = min(m v, 2 (p - i - 1) + (v - 1) g + 1) chunk by chunk, g micro-batches of each in turn
    Args:
        degrees: the layout: p stages, v chunks, m micro-batches, groups of g
        stage: stage, i, from 0 [1]
        chunks: the largest number of chunks of a stage in the column (of the one layout) [1]
    Returns: micro-batches of each chunk [1]
    Source:
        Narayanan et al. 2021, arXiv:2104.04473, section 2.2; Megatron-LM schedules.py (warm-up count, groups);
        Qi et al. 2024, arXiv:2401.10241 (ZB-H1); DeepSeek-V3, arXiv:2412.19437, table 2

    >>> from service.estimator.samples import sample_degrees
    >>> in_flight("1f1b", sample_degrees(pipeline=4, accumulation=16), 0)
    (4,)
    >>> two = sample_degrees(pipeline=4, virtual_pipeline=2, virtual_group=4, accumulation=16)
    >>> in_flight("interleaved-1f1b", two, 3, 2)
    (4, 1)
    """
    micro_batches, stages = degrees.accumulation, degrees.pipeline
    if schedule == "gpipe":
        return (where(stages > 1, micro_batches, 1),)
    if schedule == "dualpipe":
        return (where(stages > 1, minimum(micro_batches, stages + 1), 1),)
    plain = minimum(micro_batches, stages - stage)
    if chunks == 1:
        return (plain,)
    warm = warm_passes(degrees, stage)
    several = degrees.virtual_pipeline > 1
    return tuple(
        where(several, warm_flights(degrees, warm, chunk), plain if chunk == 0 else 0) for chunk in range(chunks)
    )


def bubble_micro_batches(schedule: ScheduleName, degrees: Degrees) -> Amount:
    """Idle time of a stage in one step, in units of one micro-batch's forward and backward pass.

    Formula:
        gpipe, 1f1b: p - 1        interleaved-1f1b: (p - 1) / v        zero-bubble: (p - 1) / 3
        dualpipe: 2/3 (p/2 - 1),  with backward = input gradient + weight gradient = 2 forward
    Args:
        degrees: the layout: p stages, v chunks
    Returns: micro-batches [1]
    Source:
        Narayanan et al. 2021, arXiv:2104.04473, section 2.2; Qi et al. 2024, arXiv:2401.10241, table 2 (ZB-H1);
        DeepSeek-V3, arXiv:2412.19437, table 2

    >>> from service.estimator.samples import sample_degrees
    >>> four = sample_degrees(pipeline=4)
    >>> bubble_micro_batches("1f1b", four), bubble_micro_batches("zero-bubble", four)
    (3.0, 1.0)
    """
    stages, chunks = degrees.pipeline, degrees.virtual_pipeline
    if schedule == "dualpipe":
        return 2 / 3 * maximum(0, stages / 2 - 1)
    if schedule == "zero-bubble":
        return (stages - 1) / 3
    return (stages - 1) / chunks


@evaluated_once
def micro_batch_transfers(workload: Workload, degrees: Degrees) -> tuple[Transfer, ...]:
    """What one stage sends for one micro-batch: activations forward, their gradients backward.

    Formula: 2 v sends of s b h / c elements, over t where sequence parallelism is on or the stack splits what it sends
    Returns: the transfers
    Source: Narayanan et al. 2021, arXiv:2104.04473, section 4.1
    """
    splits_sends = workload.implementation.overlap.splits_sends
    shared = degrees.tensor if splits_sends else where(degrees.sequence_parallel == 1, degrees.tensor, 1)
    stream = stream_bytes(workload, degrees) / shared
    return (Transfer("send", stream, 2 * degrees.virtual_pipeline, degrees.pipeline, stage_spacing(degrees)),)
