"""Pipeline stages of a configuration and stages of a run: memory, step time, timeline of bytes, FLOP and the peak."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from functools import lru_cache, partial, reduce
from math import ceil
from operator import add
from typing import get_args

from service.estimator.answer import (
    Communication,
    Conventions,
    Flop,
    Interval,
    Memory,
    MemoryLine,
    Parameters,
    StageMemory,
    StageParameters,
    Step,
    StepPart,
)
from service.estimator.answer import Phase as StepPhase
from service.estimator.memory.activations import RankLoad, mirrored, rank_load_of, recomputed_layers, trained_layers
from service.estimator.memory.device import (
    allocated_interval,
    allocator_room_bytes,
    beside_allocator,
    cached_parts,
    device_interval,
    fits_beside,
    headroom_bytes,
    memory_basis,
    oom_probability_fraction,
    reserved_bytes,
    reserved_interval,
    reserved_shares,
    settled_reserved_bytes,
    usable_bytes,
)
from service.estimator.memory.memory import (
    BETWEEN_STEPS,
    LIVE,
    MOMENTS,
    PERSISTENT,
    Moment,
    StageBytes,
    StepName,
    first_step_peak_bytes,
    live_bytes,
    missing_kinds,
    stage_bytes,
)
from service.estimator.memory.states import checkpoint_bytes
from service.estimator.model.counts import (
    ParameterCounts,
    hardware_flop,
    korthikanti_fraction,
    padding_flop,
    palm_flop,
    parameter_counts,
    per_token_flop,
    recompute_flop,
    recompute_fraction,
    run_flop,
    sequence_flop,
    six_n_flop,
    step_flop,
)
from service.estimator.model.ledger import padding_fraction, step_tokens, trained_share, trained_tokens
from service.estimator.numeric import Amount, column, maximum
from service.estimator.parallelism.stages import Stage, stage_at, stage_total
from service.estimator.resolve import MOST_CACHED_CONFIGURATIONS, ResolvedQuestion
from service.estimator.schedule import Phase, schedule_of
from service.estimator.software.precision import highest_peak_flop_per_s
from service.estimator.time.communication import communication_rows
from service.estimator.time.step import (
    BusySeconds,
    MicroBatchSeconds,
    StepOverhead,
    StepSeconds,
    busy_seconds,
    ledger_seconds,
    micro_batch_seconds,
    step_communication,
    step_interval,
    step_seconds,
    waiting_fraction,
)
from service.estimator.workload import Workload


@dataclass(slots=True)
class LoadedStage:
    """One stage of a single layout, and the load of a rank of it."""

    stage: Stage
    load: RankLoad
    shape: tuple[Amount, ...]
    """Key of its load and its step; stages with equal keys share both."""


def stages_of(resolved: ResolvedQuestion) -> list[LoadedStage]:
    """Every stage of a layout with its load; stages of equal shape share one."""
    workload, degrees, layout = resolved.workload, resolved.degrees, resolved.question.layout
    loads: dict[tuple[Amount, ...], RankLoad] = {}
    loaded = []
    for index in range(layout.pipeline):
        stage = stage_at(workload, degrees, index, layout.stage_layers, layout.virtual_pipeline)
        shape = stage.shape
        if shape not in loads:
            loads[shape] = rank_load_of(workload, degrees, stage)
        loaded.append(LoadedStage(stage, loads[shape], shape))
    if layout.schedule == "dualpipe" and layout.pipeline > 1:
        pairs = zip(loaded, reversed(loaded), strict=True)
        return [
            LoadedStage(first.stage, mirrored(first.load, mirror.load, degrees), (*first.shape, *mirror.shape))
            for first, mirror in pairs
        ]
    return loaded


def rank_bytes_of(resolved: ResolvedQuestion, loaded: LoadedStage) -> StageBytes:
    """Bytes of one rank of a stage, kind by kind."""
    layout = resolved.question.layout
    return stage_bytes(resolved.workload, resolved.degrees, loaded.stage, loaded.load, layout)


def _stage_memory(resolved: ResolvedQuestion, loaded: LoadedStage) -> tuple[StageMemory, float]:
    """StageMemory of one rank of a stage, and its bytes in host memory."""
    stage, workload, rank_bytes = loaded.stage, resolved.workload, rank_bytes_of(resolved, loaded)
    phases = rank_bytes.phases
    phase = max(LIVE, key=lambda name: float(phases[name]))
    lines = tuple(MemoryLine(kind=kind, bytes=live) for kind, live in live_bytes(rank_bytes, LIVE[phase], ()).items())
    peak = sum(line.bytes for line in lines)
    share, room = reserved_shares(workload)[1], allocator_room_bytes(workload)
    first = first_step_peak_bytes(rank_bytes, several=float(resolved.degrees.accumulation) > 1)
    return (
        StageMemory(
            stage=int(float(stage.index)),
            layers=int(float(stage.layers - stage.depths)),
            micro_batches_in_flight=float(rank_bytes.in_flight),
            peak_phase=phase,
            allocated_peak_bytes=peak,
            cached_bytes=float(rank_bytes.cached),
            reserved_peak_bytes=float(reserved_bytes(peak, rank_bytes.cached, share, room)),
            settled_reserved_bytes=float(settled_reserved_bytes(peak, rank_bytes.settled_cached, share, room)),
            first_step_peak_bytes=first,
            first_step_reserved_bytes=float(reserved_bytes(first, rank_bytes.cached_beside(first), share, room)),
            idle_bytes=float(phases["idle"]),
            lines=lines,
        ),
        float(rank_bytes.host),
    )


def stage_parameters(resolved: ResolvedQuestion, stages: list[LoadedStage]) -> tuple[StageParameters, ...]:
    """Parameters of each stage: of the whole stage, and of one rank before data-parallel sharding."""
    return tuple(
        StageParameters(
            stage=int(float(one.stage.index)),
            total=stage_total(resolved.workload, resolved.degrees, one.stage),
            per_rank=round(float(one.load.parameters.dense + one.load.parameters.expert)),
        )
        for one in stages
    )


def slowest_step(resolved: ResolvedQuestion, stages: list[LoadedStage], filled_fraction: float = 0.0) -> StepSeconds:
    """The step of the slowest stage."""
    return slowest_work(resolved, stages, filled_fraction).step(resolved)


@dataclass(slots=True)
class StageWork:
    """What one rank of a stage does in a step, and what it waits for."""

    loaded: LoadedStage
    micro: MicroBatchSeconds
    busy: BusySeconds
    overhead: StepOverhead

    def step(self, resolved: ResolvedQuestion) -> StepSeconds:
        """The step of the stage, were it the slowest."""
        return step_seconds(resolved.workload, resolved.degrees, self.micro, self.busy, self.overhead)


def slowest_work(resolved: ResolvedQuestion, stages: list[LoadedStage], filled_fraction: float) -> StageWork:
    """The work of the busiest stage: all else that lengthens a step grows with it."""
    return max(works_of(resolved, stages, filled_fraction), key=lambda work: float(work.busy.total))


def works_of(resolved: ResolvedQuestion, stages: list[LoadedStage], filled_fraction: float) -> list[StageWork]:
    """The work of each distinct stage; in bubbles all stages wait for the mean micro-batch time of the stages."""
    workload, degrees, layout = resolved.workload, resolved.degrees, resolved.question.layout
    distinct = {one.shape: one for one in stages}
    op_seconds = ledger_seconds(workload, degrees, layout.context_method)
    micro = {
        shape: micro_batch_seconds(workload, degrees, one.stage, one.load, layout, op_seconds)
        for shape, one in distinct.items()
    }
    mean = reduce(add, [micro[one.shape].sent_seconds for one in stages]) / len(stages)
    overhead = StepOverhead(stage_seconds=mean, filled_fraction=filled_fraction)
    works = []
    for shape, one in distinct.items():
        busy = busy_seconds(workload, degrees, one.load, layout, micro[shape], overhead)
        works.append(StageWork(one, micro[shape], busy, overhead))
    return works


def slowest_seconds(resolved: ResolvedQuestion, stages: list[LoadedStage], filled_fraction: float = 0.0) -> Amount:
    """Seconds of one step on the slowest stage, for one batch or a column of them.

    Formula: max over the stages of the sum of their parts
    Args:
        resolved: the configuration; accumulation may be a column
        stages: the stages, whose loads no batch changes
        filled_fraction: reserved memory of the fullest device over what it has [1]
    Returns: seconds of one step [s]
    Source: definition

    >>> from service.estimator.samples import sample_resolved
    >>> resolved = sample_resolved()
    >>> stages = stages_of(resolved)
    >>> slowest_seconds(resolved, stages) == total_seconds(slowest_step(resolved, stages))
    True
    """
    steps = [work.step(resolved) for work in works_of(resolved, stages, filled_fraction)]
    parts = ([getattr(step, field.name) for field in fields(StepSeconds)] for step in steps)
    slowest: Amount = reduce(maximum, (reduce(add, seconds) for seconds in parts))
    return slowest


def total_seconds(step: StepSeconds) -> float:
    """Seconds of one step: the sum of its parts.

    Formula: sum of the fields
    Returns: seconds of one step [s]
    Source: definition

    >>> total_seconds(StepSeconds(**{field.name: 1.0 for field in fields(StepSeconds)}))
    19.0
    """
    return sum(float(getattr(step, field.name)) for field in fields(StepSeconds))


def memory_of(resolved: ResolvedQuestion, stages: list[LoadedStage]) -> Memory:
    """The memory part of an answer; `with_advice` adds changes and suggestions."""
    workload = resolved.workload
    answers = [_stage_memory(resolved, stage) for stage in stages]
    peak, _ = max(answers, key=lambda answer: answer[0].reserved_peak_bytes)
    allocated = allocated_interval(workload, peak.allocated_peak_bytes)
    reserved = reserved_interval(allocated, peak.reserved_peak_bytes, reserved_shares(workload))
    device = device_interval(reserved, beside_allocator(workload), memory_basis(workload.gpu))
    usable = usable_bytes(workload.gpu)
    return Memory(
        allocated_peak_bytes=allocated,
        reserved_peak_bytes=reserved,
        device_peak_bytes=device,
        usable_bytes=usable,
        headroom_bytes=headroom_bytes(usable, device),
        host_bytes=max(host_bytes for _, host_bytes in answers),
        oom_probability_fraction=oom_probability_fraction(device, usable),
        peak_stage=peak.stage,
        peak_phase=peak.peak_phase,
        biggest_line=max(peak.lines, key=lambda line: line.bytes).kind,
        checkpoint_bytes=checkpoint_bytes(workload),
        changes=(),
        suggestions=(),
        stages=tuple(stage for stage, _ in answers),
    )


def filled_fraction(memory: Memory) -> float:
    """Share of the device's room that the allocator holds at the peak.

    Formula: reserved / usable
    Returns: share [1]
    Source: definition

    >>> from service.estimator.samples import sample_resolved
    >>> resolved = sample_resolved()
    >>> filled_fraction(memory_of(resolved, stages_of(resolved))) > 1
    True
    """
    return memory.reserved_peak_bytes.value / memory.usable_bytes


LiveMoment = tuple[StepName, Moment, int, dict[str, float]]
"""Step, moment, micro-batches in flight, and live bytes by kind."""

MOST_FORWARDS = 32
"""Most points of a timeline for the forward passes that fill a stage; more micro-batches share points.
Source: a choice; a plot needs no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Live and reserved bytes of one rank of a stage at one moment."""

    step: StepName
    """The first step, or any later one."""
    moment: Moment
    """Moment of the step."""
    micro_batches: int
    """Micro-batches whose activations are kept."""
    allocated_bytes: float
    """Sum of the series at this point."""
    reserved_bytes: float
    """What the allocator has reserved by then: it keeps what it once held."""
    frees_cache: bool
    """The device is full here, and the allocator frees what it has cached."""
    series_bytes: tuple[float, ...]
    """Bytes of each kind, in the order of the stage's kinds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The moment of a stage with the most live bytes."""

    step: StepName
    """The first step, or any later one."""
    moment: Moment
    """Moment of the step."""
    allocated_bytes: float
    """Live bytes."""
    lines: tuple[MemoryLine, ...]
    """Which tensors hold them, largest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTimeline:
    """One stage over the first and over a later step."""

    stage: int
    """Stage, from 0."""
    first_step_peak_bytes: float
    """Peak of the first step."""
    later_step_peak_bytes: float
    """Peak of any later step."""
    first_step_reserved_bytes: float
    """The most that is reserved in the first step."""
    reserved_peak_bytes: float
    """The most that is ever reserved."""
    peak: Peak
    """The higher of both."""
    kinds: tuple[str, ...]
    """Kinds of tensors that the stage ever holds, in the order of the points' series."""
    points: tuple[Point, ...]
    """The moments of both steps, in order."""


def timeline(resolved: ResolvedQuestion) -> tuple[StageTimeline, ...]:
    """The timeline of every stage."""
    return tuple(_stage_timeline(resolved, one) for one in stages_of(resolved))


def _stage_timeline(resolved: ResolvedQuestion, loaded: LoadedStage) -> StageTimeline:
    rank_bytes, several = rank_bytes_of(resolved, loaded), float(resolved.degrees.accumulation) > 1
    moments = [moment for step in ("first", "later") for moment in _step_moments(rank_bytes, step, several=several)]
    kinds = tuple(dict.fromkeys(kind for *_, live in moments for kind in live))
    held = _reserved_over(resolved, loaded.load, rank_bytes, moments)
    points = tuple(
        Point(
            step=step,
            moment=moment,
            micro_batches=count,
            allocated_bytes=sum(live.values()),
            reserved_bytes=reserved,
            frees_cache=frees_cache,
            series_bytes=tuple(live.get(kind, 0.0) for kind in kinds),
        )
        for (step, moment, count, live), (reserved, frees_cache) in zip(moments, held, strict=True)
    )
    highest = max(points, key=lambda point: point.allocated_bytes)
    pairs = sorted(zip(kinds, highest.series_bytes, strict=True), key=lambda pair: -pair[1])
    return StageTimeline(
        stage=int(float(loaded.stage.index)),
        first_step_peak_bytes=max(point.allocated_bytes for point in points if point.step == "first"),
        later_step_peak_bytes=max(point.allocated_bytes for point in points if point.step == "later"),
        first_step_reserved_bytes=max(point.reserved_bytes for point in points if point.step == "first"),
        reserved_peak_bytes=max(point.reserved_bytes for point in points),
        peak=Peak(
            step=highest.step,
            moment=highest.moment,
            allocated_bytes=highest.allocated_bytes,
            lines=tuple(MemoryLine(kind=kind, bytes=amount) for kind, amount in pairs if amount),
        ),
        kinds=kinds,
        points=points,
    )


def _reserved_over(
    resolved: ResolvedQuestion, load: RankLoad, rank_bytes: StageBytes, moments: Iterable[LiveMoment]
) -> Iterator[tuple[float, bool]]:
    """What the allocator has reserved by each moment, and whether it frees its cache there.

    Pools and holes open one after the other in the first step, flat copies at its update. What a full device has freed
    once, later moments open again only where all of it fits beside the highest peak.
    """
    workload, settled, peak = resolved.workload, float(rank_bytes.settled_cached), float(rank_bytes.peak)
    share, room = reserved_shares(workload)[1], allocator_room_bytes(workload)
    opened: dict[Moment, float] = dict.fromkeys(get_args(Moment), 0.0)
    for when, part in cached_parts(workload, resolved.degrees, load, rank_bytes.gradients).items():
        opened[when] = float(part)
    shown = list(get_args(Moment))
    highest, is_updated, is_freed = 0.0, False, False
    for _, moment, _, live in moments:
        highest = max(highest, sum(live.values()))
        is_updated = is_updated or moment == "optimizer"
        so_far = sum(opened[one] for one in shown[: shown.index(moment) + 1])
        held = float(rank_bytes.cached_beside(highest)) if is_updated else so_far
        if is_freed:
            held = settled if fits_beside(peak, settled, share, room) else 0.0
        frees_cache = not is_freed and held > 0 and not fits_beside(highest, held, share, room)
        is_freed = is_freed or frees_cache
        yield float(reserved_bytes(highest, held, share, room)), frees_cache


def _step_moments(rank_bytes: StageBytes, step: StepName, *, several: bool) -> Iterator[LiveMoment]:
    """The moments of one step: its start, the forward passes that fill the stage, and the phases that follow."""
    in_flight = ceil(float(rank_bytes.in_flight))
    held = (*PERSISTENT, "buffered_gradients")
    yield step, "start", 0, live_bytes(rank_bytes, held, missing_kinds(step, "start", several=False))
    shown = min(in_flight, MOST_FORWARDS)
    for index in range(shown):
        count = ceil(in_flight * (index + 1) / shown)
        live = live_bytes(rank_bytes, LIVE["loss"], missing_kinds(step, "forward", several=several and index > 0))
        live.pop("logits", None)
        live["activations"] = float(rank_bytes.activations) * count / in_flight
        yield step, "forward", count, {kind: amount for kind, amount in live.items() if amount}
    counts: dict[StepPhase, int] = {
        "loss": in_flight, "backward": in_flight, "reduction": in_flight - 1, "optimizer": 0,
    }  # fmt: skip
    for phase, count in counts.items():
        if phase != "loss" or float(rank_bytes.logits):
            live = live_bytes(rank_bytes, LIVE[phase], missing_kinds(step, MOMENTS[phase], several=several))
            yield step, MOMENTS[phase], count, live
    yield step, "end", 0, live_bytes(rank_bytes, BETWEEN_STEPS, ())


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRun:
    """One stage of a run that is not its last."""

    steps: int
    """Optimizer steps."""
    tokens: float
    flop: int
    """Their model FLOP."""
    seconds: float
    """Seconds of all its steps together, as predicted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A whole run."""

    stages: tuple[StageRun, ...]
    """Its stages before the last one; none where batch and length never change."""
    last_steps: int
    """Steps with the recipe's own batch and length."""

    @property
    def steps(self) -> int:
        """Optimizer steps [1]."""
        return self.last_steps + sum(stage.steps for stage in self.stages)

    @property
    def earlier_flop(self) -> int:
        """Model FLOP of the stages before the last one [FLOP]."""
        return sum(stage.flop for stage in self.stages)

    def mean_step_seconds(self, last_seconds: float) -> float:
        """Mean seconds of a step over the run, given those of a step of its last stage [s]."""
        if not self.stages:
            return last_seconds
        return (self.last_steps * last_seconds + sum(stage.seconds for stage in self.stages)) / self.steps


def loads_of(resolved: ResolvedQuestion, own: list[LoadedStage]) -> tuple[list[LoadedStage], ...]:
    """Pipeline stages with their loads, for each stage of a run; those of one sequence length share them."""
    known = {resolved.question.recipe.sequence_length: own}
    for first, *_ in resolved.run_stages:
        length = first.question.recipe.sequence_length
        if length not in known:
            known[length] = stages_of(first)
    return tuple(known[first.question.recipe.sequence_length] for first, *_ in resolved.run_stages)


def run_of(resolved: ResolvedQuestion, loads: tuple[list[LoadedStage], ...], filled: tuple[float, ...]) -> Run | None:
    """The run of a question; None without training_tokens."""
    schedule = schedule_of(resolved.question.recipe)
    if schedule is None:
        return None
    stages = zip(resolved.run_stages, schedule.phases, loads, filled[:-1], strict=True)
    return Run(
        stages=tuple(
            StageRun(
                steps=sum(phase.steps),
                tokens=phase.sequences * phase.tokens,
                flop=run_flop(sequence_flop(first.workload.ledger, first.workload.recompute).training, phase.sequences),
                seconds=phase_seconds(first, phase, loaded, in_use),
            )
            for (first, *_), phase, loaded, in_use in stages
        ),
        last_steps=schedule.last_steps,
    )


def phase_seconds(
    first: ResolvedQuestion, phase: Phase, loaded: list[LoadedStage], filled_fraction: float = 0.0
) -> float:
    """Seconds of all steps of one stage of a run, each batch's step taken once.

    Formula: sum over its batches of steps x seconds of one step
    Args:
        first: its first configuration
        phase: its batches, and the steps of each
        loaded: its pipeline stages
        filled_fraction: share of the fullest device that is in use [1]
    Returns: seconds of the stage [s]
    Source: step.step_seconds

    >>> from service.estimator.samples import sample_resolved
    >>> first = sample_resolved()
    >>> loaded = stages_of(first)
    >>> one, both = (phase_seconds(first, Phase(8192.0, (1, 2), steps), loaded) for steps in ((1, 0), (1, 1)))
    >>> 2 < both / one < 3
    True
    """
    if len(phase.batches) == 1:
        return phase.steps[0] * float(slowest_seconds(first, loaded, filled_fraction))
    group = first.degrees.micro_batch * first.degrees.data
    batches = replace(first, degrees=replace(first.degrees, accumulation=column(phase.batches) / group))
    return float((slowest_seconds(batches, loaded, filled_fraction) * column(phase.steps)).sum())


def tokens_per_s_per_gpu(batch_tokens: float, gpus: int, step_seconds: float) -> float:
    """Trained tokens a second on one GPU.

    Formula: B s / (t_step GPUs)
    Args:
        batch_tokens: trained tokens of one step, B s [token]
        gpus: GPUs in all [1]
        step_seconds: seconds of one step, t_step [s]
    Returns: tokens a second on one GPU [token/s]
    Source: definition

    >>> tokens_per_s_per_gpu(80_000, 8, 2.0)
    5000.0
    """
    return batch_tokens / gpus / step_seconds


def utilisation_fraction(flop: int, gpus: int, peak_flop_per_s: float, step_seconds: float) -> float:
    """FLOP of one step over what the GPUs could do in its time: MFU of model FLOP, HFU of hardware FLOP.

    Formula: F / (t_step GPUs R_peak)
    Args:
        flop: FLOP of one step, F [FLOP]
        gpus: GPUs in all [1]
        peak_flop_per_s: dense peak of one GPU, R_peak [FLOP/s]
        step_seconds: seconds of one step, t_step [s]
    Returns: share of the peak [1]
    Source: Chowdhery et al. 2022, arXiv:2204.02311, appendix B

    >>> utilisation_fraction(4 * 10**15, 8, 1e15, 1.0)
    0.5
    """
    return flop / (peak_flop_per_s * gpus) / step_seconds


def falling(seconds: Interval, quantity: Callable[[float], float]) -> Interval:
    """Interval of a quantity that falls as time grows, its ends swapped."""
    return Interval(quantity(seconds.high), quantity(seconds.value), quantity(seconds.low), seconds.basis)


def rising(seconds: Interval, quantity: Callable[[float], float]) -> Interval:
    """Interval of a quantity that grows with time."""
    return Interval(quantity(seconds.low), quantity(seconds.value), quantity(seconds.high), seconds.basis)


@dataclass(frozen=True, slots=True)
class PeakStage:
    """The configuration of a run that takes most memory."""

    resolved: ResolvedQuestion
    stages: list[LoadedStage]
    memory: Memory
    run_stage: int | None = None
    """Index in recipe.stages; None for the recipe's own batch and length."""
    filled_fraction: tuple[float, ...] = ()
    """Share of the device that each stage of the run fills, the recipe's own batch and length last."""


def peak_stage_of(
    resolved: ResolvedQuestion, own: list[LoadedStage], loads: tuple[list[LoadedStage], ...]
) -> PeakStage:
    """The fullest configuration of a run: each length with the smallest and the largest batch of every stage."""
    result = PeakStage(resolved, own, memory_of(resolved, own))
    filled = []
    last = filled_fraction(result.memory)
    for index, (configurations, loaded) in enumerate(zip(resolved.run_stages, loads, strict=True)):
        memories = [memory_of(one, loaded) for one in configurations]
        filled.append(max(map(filled_fraction, memories)))
        for one, memory in zip(configurations, memories, strict=True):
            if memory.device_peak_bytes.value > result.memory.device_peak_bytes.value:
                result = PeakStage(one, loaded, memory, index)
    return replace(result, filled_fraction=(*filled, last))


def peak_stage_in(resolved: ResolvedQuestion) -> PeakStage:
    """The fullest configuration of a run, from the question alone."""
    own = stages_of(resolved)
    return peak_stage_of(resolved, own, loads_of(resolved, own))


def describe_stages(resolved: ResolvedQuestion, peak: PeakStage) -> tuple[str, ...]:
    """Assumptions about a run whose batch or length changes; empty where they never change."""
    stages, recipe = resolved.question.recipe.stages, peak.resolved.question.recipe
    if not stages:
        return ()
    which = "after the last stage" if peak.run_stage is None else f"in stage {peak.run_stage}"
    lines = [
        "step, and FLOP of a token and of a step, are those of the recipe's own batch and length, after the last of "
        f"{len(stages)} stage(s)",
        f"memory and verdict are those {which}, the fullest of the run: {recipe.global_batch} sequences of "
        f"{recipe.sequence_length} tokens",
    ]
    if any(stage.final_global_batch for stage in stages):
        lines.append("a rising batch grows after equal shares of its stage's tokens, as Megatron-LM's rampup does")
    return tuple(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """Memory, parameters, FLOP and step time of one configuration."""

    loads: tuple[list[LoadedStage], ...]
    """Pipeline stages of each stage of the run before its last one; none where batch and length never change."""
    peak: PeakStage
    """The stage of the run that takes most memory."""
    parameters: Parameters
    """Parameter counts."""
    flop: Flop
    step: Step
    communication: tuple[Communication, ...]
    """What one rank sends in that step."""


@lru_cache(maxsize=MOST_CACHED_CONFIGURATIONS)
def compute_configuration(resolved: ResolvedQuestion) -> Configuration:
    """Compute a configuration; questions that differ only in their run share it."""
    stages = stages_of(resolved)
    loads = loads_of(resolved, stages)
    peak = peak_stage_of(resolved, stages, loads)
    counts = parameter_counts(resolved.workload.model, resolved.workload.ledger)
    flop = _flop_of(resolved.workload, counts, rerun_fraction(resolved, stages))
    parameters = Parameters(
        **{name: getattr(counts, name) for name in ParameterCounts.__slots__ if name != "active"},
        active=counts.active.total,
        active_by_definition=counts.active,
        total_with_multi_token_prediction=counts.total + counts.multi_token_prediction,
        stages=stage_parameters(resolved, stages),
    )
    slowest = slowest_work(resolved, stages, peak.filled_fraction[-1])
    sent = step_communication(resolved.workload, resolved.degrees, slowest.micro, slowest.busy)
    return Configuration(
        loads=loads,
        peak=peak,
        parameters=parameters,
        flop=flop,
        step=_step(resolved, slowest.step(resolved), flop),
        communication=communication_rows(slowest.loaded.load, sent),
    )


def rerun_fraction(resolved: ResolvedQuestion, stages: list[LoadedStage]) -> float:
    """Share of the layers that recompute reaches.

    Formula: full: recomputed layers / layers; else 1
    Returns: share of the layers [1]
    Source: activations.recomputed_layers

    >>> from service.estimator.samples import sample_resolved
    >>> rerun_fraction(sample_resolved(), stages_of(sample_resolved()))
    1.0
    """
    workload, chunks = resolved.workload, resolved.question.layout.virtual_pipeline
    if workload.recompute.granularity != "full":
        return 1.0
    layers = [trained_layers(workload, one.stage.kind_counts) for one in stages]
    recomputed = sum(float(recomputed_layers(workload.recompute, count, chunks)) for count in layers)
    return recomputed / max(1.0, sum(map(float, layers)))


def _step(resolved: ResolvedQuestion, parts: StepSeconds, flop: Flop) -> Step:
    workload, gpus = resolved.workload, resolved.question.cluster.gpus
    kinds = {field.name: float(getattr(parts, field.name)) for field in fields(StepSeconds)}
    seconds = step_interval(workload, total_seconds(parts), waiting_fraction(kinds))
    peak = highest_peak_flop_per_s(workload.gpu, workload.precision)
    return Step(
        step_seconds=seconds,
        tokens_per_s_per_gpu=falling(seconds, partial(tokens_per_s_per_gpu, flop.per_step_tokens, gpus)),
        mfu_fraction=falling(seconds, partial(utilisation_fraction, flop.per_step_flop, gpus, peak)),
        hfu_fraction=falling(seconds, partial(utilisation_fraction, flop.hardware_per_step_flop, gpus, peak)),
        peak_flop_per_s=peak,
        parts=tuple(StepPart(kind=kind, seconds=spent) for kind, spent in kinds.items()),
    )


def _flop_of(workload: Workload, counts: ParameterCounts, rerun_fraction: float) -> Flop:
    """The FLOP part of the answer, without a run."""
    one, tokens = sequence_flop(workload.ledger, workload.recompute), trained_tokens(workload.recipe)
    batch, length = workload.recipe.global_batch, workload.recipe.sequence_length
    model = step_flop(one.training, batch)
    rerun = recompute_flop(one.rerun, batch, rerun_fraction)
    return Flop(
        per_token_flop=per_token_flop(one.training, tokens),
        per_step_tokens=step_tokens(tokens, batch),
        forward_per_step_flop=step_flop(one.causal, batch),
        backward_per_step_flop=step_flop(one.backward, batch),
        per_step_flop=model,
        recompute_per_step_flop=rerun,
        hardware_per_step_flop=hardware_flop(model, rerun),
        padding_per_step_flop=padding_flop(workload.ledger, trained_share(workload.recipe), batch),
        padding_fraction=padding_fraction(workload.recipe),
        total_flop=None,
        total_pflop_days=None,
        recompute_fraction=recompute_fraction(one.rerun, rerun_fraction, one.training),
        recompute_full_fraction=recompute_fraction(one.full_rerun, rerun_fraction, one.full_training),
        recompute_korthikanti_fraction=korthikanti_fraction(workload.model.hidden_size, length)
        if workload.recompute.modules == ("core_attn",)
        else None,
        conventions=Conventions(
            causal=per_token_flop(one.training, tokens),
            full=per_token_flop(one.full_training, tokens),
            palm=palm_flop(workload.model, counts.active.total, length),
            six_n=six_n_flop(counts.active.total),
        ),
    )
