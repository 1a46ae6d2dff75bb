"""How long does each part of a run take? Steps, tokens, FLOP and seconds of every stage, and of what follows them."""

from dataclasses import dataclass, replace

from service.estimator.numeric import column
from service.estimator.ramp import Stretch, schedule_of
from service.estimator.resolve import Resolved
from service.estimator.stage_answers import LoadedStage, slowest_seconds, stages_of
from service.estimator.work import run_flop, sequence_flop


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRun:
    """One stage of a run, before its last one."""

    steps: int
    """Optimizer steps."""
    tokens: float
    """Tokens that they train."""
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
        """Seconds of one step on average over the run, of those of one step of its last stage [s]."""
        if not self.stages:
            return last_seconds
        return (self.last_steps * last_seconds + sum(stage.seconds for stage in self.stages)) / self.steps


def loads_of(resolved: Resolved, own: list[LoadedStage]) -> tuple[list[LoadedStage], ...]:
    """The pipeline stages of each stage of a run with their loads, which its batch does not change.

    Args:
        resolved: the question
        own: those of the recipe's own length

    Returns:
        pipeline stages, one list a stage of the run; stages of one length share theirs
    """
    known = {resolved.question.recipe.sequence_length: own}
    for first, *_ in resolved.run_stages:
        length = first.question.recipe.sequence_length
        if length not in known:
            known[length] = stages_of(first.job, first.degrees, first.question.layout)
    return tuple(known[first.question.recipe.sequence_length] for first, *_ in resolved.run_stages)


def run_of(resolved: Resolved, loads: tuple[list[LoadedStage], ...], filled: tuple[float, ...]) -> Run | None:
    """What a question's run consists of.

    Args:
        resolved: the question
        loads: pipeline stages of each stage of the run
        filled: share of the fullest device that is in use, of each stage [1]

    Returns:
        the run; None without training_tokens
    """
    schedule = schedule_of(resolved.question.recipe)
    if schedule is None:
        return None
    stages = zip(resolved.run_stages, schedule.stretches, loads, filled[:-1], strict=True)
    return Run(
        stages=tuple(_stage_run(first, stretch, loaded, in_use) for (first, *_), stretch, loaded, in_use in stages),
        last_steps=schedule.last_steps,
    )


def _stage_run(first: Resolved, stretch: Stretch, loaded: list[LoadedStage], filled_fraction: float) -> StageRun:
    return StageRun(
        steps=sum(stretch.steps),
        tokens=stretch.sequences * stretch.tokens,
        flop=run_flop(sequence_flop(first.job.ledger, first.job.recompute).training, stretch.sequences),
        seconds=stretch_seconds(first, stretch, loaded, filled_fraction),
    )


def stretch_seconds(
    first: Resolved, stretch: Stretch, loaded: list[LoadedStage], filled_fraction: float = 0.0
) -> float:
    """Seconds of all steps of one stage of a run, each batch's step taken once.

    Formula:
        sum over its batches of steps x seconds of one step

    Args:
        first: its first configuration
        stretch: its batches, and the steps of each
        loaded: its pipeline stages
        filled_fraction: share of the fullest device that is in use [1]

    Returns:
        seconds of the stage [s]

    Source:
        step_time.step_seconds

    >>> from service.estimator.samples import sample_resolved
    >>> first = sample_resolved()
    >>> loaded = stages_of(first.job, first.degrees, first.question.layout)
    >>> one, both = (stretch_seconds(first, Stretch(8192.0, (1, 2), steps), loaded) for steps in ((1, 0), (1, 1)))
    >>> 2 < both / one < 3
    True
    """
    layout = first.question.layout
    group = first.degrees.micro_batch * first.degrees.data
    if len(stretch.batches) == 1:
        return stretch.steps[0] * float(slowest_seconds(first.job, first.degrees, layout, loaded, filled_fraction))
    degrees = replace(first.degrees, accumulation=column(stretch.batches) / group)
    return float((slowest_seconds(first.job, degrees, layout, loaded, filled_fraction) * column(stretch.steps)).sum())
