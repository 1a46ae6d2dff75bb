"""Batch schedule of a run, its steps and its GPU-hours."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil

from service.errors import Problem, Refused
from service.estimator.complete import CompleteLayout, CompleteQuestion, CompleteRecipe, CompleteStage, completed
from service.estimator.model.ledger import trained_tokens
from service.estimator.question import Layout, Recipe, RunStage
from service.estimator.refusals import refusal


def global_batch_of(recipe: Recipe, data: int) -> int:
    """Sequences in one optimizer step, given in either unit.

    Formula: B as given, or B_tokens / s; b x data where neither is
    Args:
        recipe: the recipe; s its sequence length, b its micro-batch
        data: replicas [1]
    Returns: sequences in one step [1]
    Source: definition

    >>> global_batch_of(Recipe(sequence_length=4096, global_batch_tokens=4_194_304), 8)
    1024
    """
    tokens, group = recipe.sequence_length, recipe.micro_batch * data
    batch, batch_tokens = recipe.global_batch, recipe.global_batch_tokens
    if batch is not None and batch_tokens is not None and batch * tokens != batch_tokens:
        words = {"batch": batch, "tokens": tokens, "both": batch * tokens, "batch_tokens": batch_tokens}
        raise Refused(refusal("batch_sizes_disagree", **words))
    if batch is None and batch_tokens is not None:
        if batch_tokens % tokens:
            near = _neighbours(batch_tokens, tokens)
            raise Refused(refusal("batch_is_whole_sequences", batch_tokens=batch_tokens, tokens=tokens, near=near))
        batch = batch_tokens // tokens
    if batch is None:
        batch = group
    if batch % group:
        raise Refused(_uneven_batch(batch, recipe.micro_batch, data))
    return batch


def _neighbours(number: int, group: int) -> str:
    """The multiples of a group beside a number, for a sentence."""
    below = number // group * group
    return f"{f'{below} or ' if below else ''}{below + group}"


def _uneven_batch(batch: int, micro_batch: int, data: int, field: str = "recipe.global_batch") -> Problem:
    group = micro_batch * data
    words = {"field": field, "batch": batch, "micro_batch": micro_batch, "data": data, "group": group}
    return refusal("accumulation_is_whole", **words, near=_neighbours(batch, group))


def steps_of(training_tokens: float, global_batch: int, tokens: float) -> int:
    """Optimizer steps of a run.

    Formula: ceil(D / (B s))
    Args:
        training_tokens: tokens of the run, D [token]
        global_batch: sequences in one step, B [1]
        tokens: trained tokens of one sequence, s [token]
    Returns: steps [1]
    Source: definition

    >>> steps_of(1.4e12, 2048, 2048)
    333787
    """
    return ceil(training_tokens / (global_batch * tokens))


def gpu_hours(steps: int, step_seconds: float, gpus: int, goodput: float) -> float:
    """GPU-hours of a run.

    Formula: steps x t_step x GPUs / 3600 / goodput
    Args:
        steps: optimizer steps [1]
        step_seconds: seconds of one step [s]
        gpus: GPUs in all [1]
        goodput: useful share of the wall time [1]
    Returns: GPU-hours [h]
    Source: definition

    >>> gpu_hours(3600, 2.0, 8, 1.0)
    16.0
    """
    return steps * step_seconds * gpus / 3600 / goodput


def run_days(gpu_hours_used: float, gpus: int) -> float:
    """Wall time of a run.

    Formula: GPU-hours / (24 GPUs)
    Args:
        gpu_hours_used: GPU-hours of the run [h]
        gpus: GPUs in all [1]
    Returns: days [d]
    Source: definition

    >>> run_days(384.0, 8)
    2.0
    """
    return gpu_hours_used / (24 * gpus)


def ideal_days(days: float, goodput: float) -> float:
    """Wall time of a run if nothing were lost to interruptions and checkpoints.

    Formula: days x goodput
    Args:
        days: wall time [d]
        goodput: useful share of the wall time [1]
    Returns: days [d]
    Source: definition

    >>> ideal_days(60.0, 0.9)
    54.0
    """
    return days * goodput


def spare_gpus(gpus: int, gpus_per_node: int, spare_fraction: float) -> int:
    """GPUs that wait, whole nodes of them, to stand in for failed ones.

    Formula: ceil(GPUs x share / GPUs of a node) x GPUs of a node
    Args:
        gpus: GPUs of the job [1]
        gpus_per_node: GPUs of one node [1]
        spare_fraction: spare GPUs over GPUs of the job [1]
    Returns: spare GPUs [1]
    Source: definition; a node is replaced as a whole (Llama 3, arXiv:2407.21783, section 3.3.4)

    >>> spare_gpus(1024, 8, 0.05)
    56
    """
    return ceil(gpus * spare_fraction / gpus_per_node) * gpus_per_node


def spare_gpu_hours(days: float, spares: int) -> float:
    """GPU-hours of spares during a run.

    Formula: 24 x days x spare GPUs
    Args:
        days: wall time [d]
        spares: spare GPUs [1]
    Returns: GPU-hours [h]
    Source: definition

    >>> spare_gpu_hours(2.0, 8)
    384.0
    """
    return 24 * days * spares


def billed_gpu_hours(gpu_hours_used: float, spare_gpu_hours: float) -> float:
    """GPU-hours that are paid for: those of the job and those of its spares.

    Formula: GPU-hours of the job + GPU-hours of the spares
    Args:
        gpu_hours_used: GPU-hours of the job [h]
        spare_gpu_hours: GPU-hours of the spares [h]
    Returns: GPU-hours [h]
    Source: definition

    >>> billed_gpu_hours(1000.0, 50.0)
    1050.0
    """
    return gpu_hours_used + spare_gpu_hours


def at_peak_gpu_hours(flop: int, peak_flop_per_s: float) -> float:
    """GPU-hours of some FLOP if every one ran at a stated rate.

    Formula: F / R / 3600
    Args:
        flop: the FLOP, F [FLOP]
        peak_flop_per_s: the rate, R [FLOP/s]
    Returns: GPU-hours [h]
    Source: definition

    >>> at_peak_gpu_hours(36 * 10**17, 1e15)
    1.0
    """
    return flop / peak_flop_per_s / 3600


MOST_BATCHES = 1024
"""Batches that a rising batch goes through at most. Source: a choice; finer steps change no hour of the run."""


@dataclass(frozen=True, slots=True)
class Phase:
    """The steps of one stage of a run."""

    tokens: float
    """Trained tokens of one sequence."""
    batches: tuple[int, ...]
    """Sequences in one step, in turn."""
    steps: tuple[int, ...]
    """Steps of each batch."""

    @property
    def sequences(self) -> int:
        """Sequences of all its steps [1]."""
        return sum(batch * steps for batch, steps in zip(self.batches, self.steps, strict=True))


@dataclass(frozen=True, slots=True)
class Schedule:
    """The steps of a whole run."""

    phases: tuple[Phase, ...]
    """Its stages; none where batch and length never change."""
    last_steps: int
    """Steps with the recipe's own values, after the last stage."""

    @property
    def steps(self) -> int:
        """Optimizer steps of the run [1]."""
        return self.last_steps + sum(sum(phase.steps) for phase in self.phases)


def batches_of(stage: CompleteStage) -> tuple[int, ...]:
    """Batches that one stage of a run goes through, in turn.

    Formula: B_first + k increment, as long as that is below B_final; B_first alone where the batch does not rise
    Returns: sequences in one step, in turn [1]
    Source: Megatron-LM num_microbatches_calculator.py, --rampup-batch-size start increment samples

    >>> ramp = {"global_batch": 3072, "final_global_batch": 15360, "batch_increment": 3072}
    >>> batches_of(CompleteStage(until_tokens=1e9, sequence_length=4096, **ramp))
    (3072, 6144, 9216, 12288)
    """
    first = stage.global_batch
    if stage.final_global_batch is None or stage.batch_increment is None:
        return (first,)
    return tuple(range(first, stage.final_global_batch, stage.batch_increment))


def steps_of_phases(trained: float, until_tokens: float, step_tokens: Sequence[float]) -> tuple[int, ...]:
    """Steps of each batch of a stage: each holds until its even share of the stage's tokens is trained.

    Formula: n_k = ceil((T_0 + (k + 1) (U - T_0) / n - T_k) / (B_k s)), at least 0,  T_k+1 = T_k + n_k B_k s
    Args:
        trained: tokens that the run trained before the stage, T_0 [token]
        until_tokens: tokens of the run at which the stage ends, U [token]
        step_tokens: trained tokens of one step of each of n batches, B_k s [token]
    Returns: steps of each batch [1]
    Source: Megatron-LM num_microbatches_calculator.py: the batch grows after equal numbers of samples

    >>> steps_of_phases(0.0, 100.0, [10.0])
    (10,)
    >>> steps_of_phases(0.0, 100.0, [10.0, 20.0])
    (5, 3)
    """
    share = (until_tokens - trained) / len(step_tokens)
    reached, results = trained, []
    for index, tokens in enumerate(step_tokens, start=1):
        end = until_tokens if index == len(step_tokens) else trained + index * share
        steps = max(0, ceil((end - reached) / tokens))
        reached += steps * tokens
        results.append(steps)
    return tuple(results)


def schedule_of(recipe: CompleteRecipe) -> Schedule | None:
    """The steps of a recipe's run, stage by stage. None without training_tokens."""
    if recipe.training_tokens is None:
        return None
    trained, phases = 0.0, []
    for stage in recipe.stages:
        tokens = trained_tokens(replace(recipe, sequence_length=stage.sequence_length))
        batches = batches_of(stage)
        steps = steps_of_phases(trained, stage.until_tokens, [batch * tokens for batch in batches])
        phases.append(Phase(tokens, batches, steps))
        trained += phases[-1].sequences * tokens
    left = max(0.0, recipe.training_tokens - trained)
    return Schedule(tuple(phases), steps_of(left, recipe.global_batch, trained_tokens(recipe)))


STAGES = "recipe.stages"
"""Place of the stages in a question."""


def complete_stages(stages: tuple[RunStage, ...], recipe: CompleteRecipe, layout: CompleteLayout) -> CompleteRecipe:
    """The recipe with the stages of its run, every field filled: even batches, and at least one step a stage."""
    if not stages:
        return recipe
    problems, results = _order_problems(stages, recipe.training_tokens), []
    for index, stage in enumerate(stages):
        results.append(_complete(stage, recipe, layout))
        wrong = _batch_problems(results[-1], recipe.micro_batch, layout)
        problems += [replace(one, field=f"{STAGES}.{index}.{one.field}") for one in wrong]
    if problems:
        raise Refused(*problems)
    whole = replace(recipe, stages=tuple(results))
    _refuse_stages_without_steps(whole)
    return whole


def questions_of(question: CompleteQuestion, index: int) -> tuple[CompleteQuestion, ...]:
    """What one stage of a run asks for: its first configuration, and its last one where its batch rises."""
    recipe, stage = question.recipe, question.recipe.stages[index]
    batches, length = batches_of(stage), stage.sequence_length
    return tuple(
        replace(
            question,
            recipe=replace(
                recipe, stages=(), sequence_length=length, global_batch=batch, global_batch_tokens=batch * length
            ),
        )
        for batch in dict.fromkeys((batches[0], batches[-1]))
    )


def placed(problems: Iterable[Problem], index: int) -> list[Problem]:
    """Problems of a stage's configuration, at the field of its stage; those of the recipe belong to none."""
    return [
        replace(one, field=f"{STAGES}.{index}.{'sequence_length' if one.field in _OF_LENGTH else 'global_batch'}")
        for one in problems
    ]


_OF_LENGTH = ("recipe.sequence_length", "layout.context", "layout.sequence_parallel", "model")
"""Fields that rules of the sequence length blame."""


def _order_problems(stages: tuple[RunStage, ...], training_tokens: float | None) -> list[Problem]:
    if training_tokens is None:
        return [refusal("stages_need_training_tokens")]
    problems, before = [], 0.0
    for index, stage in enumerate(stages):
        end, field = stage.until_tokens, f"{STAGES}.{index}.until_tokens"
        if end <= before:
            problems.append(refusal("stages_ascend", field=field, end=end, before=before))
        if end >= training_tokens:
            words = {"field": field, "end": end, "training_tokens": training_tokens}
            problems.append(refusal("stages_end_before_the_run", **words))
        before = end
    return problems


def _complete(stage: RunStage, recipe: CompleteRecipe, layout: CompleteLayout) -> CompleteStage:
    first, final, increment = stage.global_batch or recipe.global_batch, stage.final_global_batch, stage.batch_increment
    if final is not None and increment is None:
        group = recipe.micro_batch * layout.data * micro_batch_multiple(layout)
        increment = _least_increment(group, final - first)
    length = stage.sequence_length or recipe.sequence_length
    return completed(CompleteStage, stage, global_batch=first, batch_increment=increment, sequence_length=length)


def _batch_problems(stage: CompleteStage, micro_batch: int, layout: CompleteLayout) -> Iterator[Problem]:
    """What is wrong with the batches of one stage, by the stage's own fields."""
    first, final, increment = stage.global_batch, stage.final_global_batch, stage.batch_increment
    group = micro_batch * layout.data * micro_batch_multiple(layout)
    if first % (micro_batch * layout.data):
        yield _uneven_batch(first, micro_batch, layout.data, "global_batch")
    if increment is None:
        return
    if final is None:
        yield refusal("increment_needs_final_batch", increment=increment)
        return
    if final % (micro_batch * layout.data):
        yield _uneven_batch(final, micro_batch, layout.data, "final_global_batch")
    elif final <= first:
        yield refusal("batch_rises", first=first, final=final)
    if increment % group:
        yield refusal("increment_is_whole", group=group, increment=increment, near=_neighbours(increment, group))
    elif -(-(final - first) // increment) > MOST_BATCHES:
        words = {"increment": increment, "most": MOST_BATCHES, "first": first, "final": final}
        yield refusal("ramp_has_few_batches", **words, least=_least_increment(group, final - first))


def micro_batch_multiple(layout: Layout) -> int:
    """Micro-batches of which one step of a schedule takes a multiple.

    Formula: the group that interleaved stages run, 2 where DualPipe feeds both ends, else 1
    Returns: micro-batches [1]
    Source:
        Megatron-LM interleaved schedule, microbatch_group_size_per_vp_stage; DeepSeek-AI 2024,
        arXiv:2412.19437, section 3.2.1

    >>> micro_batch_multiple(Layout(pipeline=4, virtual_pipeline=2))
    4
    """
    if layout.virtual_pipeline > 1:
        return layout.virtual_group or layout.pipeline
    return 2 if layout.schedule == "dualpipe" and layout.pipeline > 1 else 1


def _least_increment(group: int, rise: int) -> int:
    """The fewest sequences that the layout shares, times what keeps the batches few."""
    return group * max(1, -(-rise // (group * MOST_BATCHES)))


def _refuse_stages_without_steps(recipe: CompleteRecipe) -> None:
    """Refuse a stage, or an end of the run, that the last step before it already reaches."""
    schedule = schedule_of(recipe)
    if schedule is None:
        return
    empty = [index for index, phase in enumerate(schedule.phases) if not sum(phase.steps)]
    fields = [f"{STAGES}.{index}.until_tokens" for index in empty]
    if not schedule.last_steps:
        fields.append("recipe.training_tokens")
    if fields:
        raise Refused(*(refusal("stage_has_a_step", field=field) for field in fields))
