"""When in a run is the fullest GPU fullest? The memory of the stage of the run that takes most."""

from dataclasses import dataclass, replace

from service.estimator.memory_answer import filled_fraction, memory_of
from service.estimator.memory_parts import Memory
from service.estimator.resolve import Resolved
from service.estimator.run import loads_of
from service.estimator.stage_answers import LoadedStage, stages_of


@dataclass(frozen=True, slots=True)
class Fullest:
    """The configuration of a run that takes most memory."""

    resolved: Resolved
    """It, as a question of its own; the question itself where batch and length never change."""
    stages: list[LoadedStage]
    """Its pipeline stages."""
    memory: Memory
    """What they hold."""
    run_stage: int | None = None
    """Its place in recipe.stages; None for the recipe's own batch and length."""
    filled_fraction: tuple[float, ...] = ()
    """Share of the device that each stage of the run fills, the recipe's own batch and length last."""


def fullest_of(resolved: Resolved, own: list[LoadedStage], loads: tuple[list[LoadedStage], ...]) -> Fullest:
    """The fullest configuration of a run: each length with the smallest and the largest batch of every stage.

    Args:
        resolved: the question
        own: its pipeline stages, at its own length
        loads: those of each stage of the run

    Returns:
        the configuration and its memory
    """
    found = Fullest(resolved, own, memory_of(resolved, own))
    filled = []
    last = filled_fraction(found.memory)
    for index, (configurations, loaded) in enumerate(zip(resolved.run_stages, loads, strict=True)):
        memories = [memory_of(one, loaded) for one in configurations]
        filled.append(max(map(filled_fraction, memories)))
        for one, memory in zip(configurations, memories, strict=True):
            if memory.device_peak_bytes.value > found.memory.device_peak_bytes.value:
                found = Fullest(one, loaded, memory, index)
    return replace(found, filled_fraction=(*filled, last))


def fullest_in(resolved: Resolved) -> Fullest:
    """The fullest configuration of a run, from the question alone.

    Args:
        resolved: the question

    Returns:
        the configuration and its memory
    """
    own = stages_of(resolved.job, resolved.degrees, resolved.question.layout)
    return fullest_of(resolved, own, loads_of(resolved, own))


def said_of_stages(resolved: Resolved, fullest: Fullest) -> tuple[str, ...]:
    """What an answer takes for granted of a run whose batch or length changes.

    Args:
        resolved: the question
        fullest: its fullest configuration

    Returns:
        one sentence each; none where they never change
    """
    stages, recipe = resolved.question.recipe.stages, fullest.resolved.question.recipe
    if not stages:
        return ()
    which = "after the last stage" if fullest.run_stage is None else f"in stage {fullest.run_stage}"
    said = [
        "step, and FLOP of a token and of a step, are those of the recipe's own batch and length, after the last of "
        f"{len(stages)} stage(s)",
        f"memory and verdict are those {which}, the fullest of the run: {recipe.global_batch} sequences of "
        f"{recipe.sequence_length} tokens",
    ]
    if any(stage.final_global_batch for stage in stages):
        said.append("a rising batch grows after equal shares of its stage's tokens, as Megatron-LM's rampup does")
    return tuple(said)
