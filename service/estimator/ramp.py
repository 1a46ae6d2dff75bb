"""Which batches does a run go through, and how many steps of each?"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from service.estimator.cost import steps_of
from service.estimator.documents import trained_tokens
from service.estimator.filled import filled
from service.estimator.question import Recipe
from service.estimator.run_stage import RunStage

MOST_BATCHES = 1024
"""Batches that a rising batch goes through at most. Source: a choice; finer steps change no hour of the run."""


@dataclass(frozen=True, slots=True)
class Stretch:
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

    stretches: tuple[Stretch, ...]
    """Its stages; none where batch and length never change."""
    last_steps: int
    """Steps with the recipe's own values, after the last stage."""

    @property
    def steps(self) -> int:
        """Optimizer steps of the run [1]."""
        return self.last_steps + sum(sum(stretch.steps) for stretch in self.stretches)


def batches_of(stage: RunStage) -> tuple[int, ...]:
    """Batches that one stage of a run goes through, in turn.

    Formula:
        B_first + k increment, as long as that is below B_final; B_first alone where the batch does not rise

    Args:
        stage: the stage, filled

    Returns:
        sequences in one step, in turn [1]

    Source:
        Megatron-LM num_microbatches_calculator.py, --rampup-batch-size start increment samples

    >>> batches_of(RunStage(until_tokens=1e9, global_batch=3072, final_global_batch=15360, batch_increment=3072))
    (3072, 6144, 9216, 12288)
    """
    first = filled(stage.global_batch)
    if stage.final_global_batch is None:
        return (first,)
    return tuple(range(first, stage.final_global_batch, filled(stage.batch_increment)))


def steps_in_turn(trained: float, until_tokens: float, step_tokens: Sequence[float]) -> tuple[int, ...]:
    """Steps of each batch of a stage: each holds until its even share of the stage's tokens is trained.

    Formula:
        n_k = ceil((T_0 + (k + 1) (U - T_0) / n - T_k) / (B_k s)), at least 0,  T_k+1 = T_k + n_k B_k s

    Args:
        trained: tokens that the run trained before the stage, T_0 [token]
        until_tokens: tokens of the run at which the stage ends, U [token]
        step_tokens: trained tokens of one step of each of n batches, B_k s [token]

    Returns:
        steps of each batch [1]

    Source:
        Megatron-LM num_microbatches_calculator.py: the batch grows after equal numbers of samples

    >>> steps_in_turn(0.0, 100.0, [10.0])
    (10,)
    >>> steps_in_turn(0.0, 100.0, [10.0, 20.0])
    (5, 3)
    """
    share = (until_tokens - trained) / len(step_tokens)
    reached, found = trained, []
    for index, tokens in enumerate(step_tokens, start=1):
        end = until_tokens if index == len(step_tokens) else trained + index * share
        steps = max(0, ceil((end - reached) / tokens))
        reached += steps * tokens
        found.append(steps)
    return tuple(found)


def schedule_of(recipe: Recipe) -> Schedule | None:
    """The steps of a recipe's run, stage by stage.

    Args:
        recipe: the recipe, its batch and its stages filled

    Returns:
        the steps; None without training_tokens
    """
    if recipe.training_tokens is None:
        return None
    trained, stretches = 0.0, []
    for stage in recipe.stages:
        tokens = trained_tokens(replace(recipe, sequence_length=filled(stage.sequence_length)))
        batches = batches_of(stage)
        steps = steps_in_turn(trained, stage.until_tokens, [batch * tokens for batch in batches])
        stretches.append(Stretch(tokens, batches, steps))
        trained += stretches[-1].sequences * tokens
    left = max(0.0, recipe.training_tokens - trained)
    return Schedule(tuple(stretches), steps_of(left, filled(recipe.global_batch), trained_tokens(recipe)))
