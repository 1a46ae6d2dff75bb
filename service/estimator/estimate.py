"""The whole answer to one question."""

from dataclasses import replace

from service.estimator.advice.advice import assumptions_of, lost_time_warnings, warnings_of, warnings_of_memory
from service.estimator.answer import Estimate, MemoryEstimate
from service.estimator.memory.device import verdict_of
from service.estimator.question import Question
from service.estimator.resolve import configuration_of, resolve
from service.estimator.run.run import describe_stages, peak_stage_in
from service.estimator.run.totals import numbers_of, running_of


def estimate(question: Question) -> Estimate:
    """The whole answer to one question."""
    running = running_of(question, configuration_of(question))
    resolved, found = running.resolved, numbers_of(running)
    return replace(
        found,
        assumptions=(*assumptions_of(resolved), *describe_stages(resolved, running.known.fullest)),
        warnings=(*warnings_of(resolved, found.parameters.active), *lost_time_warnings(resolved, found.totals)),
    )


def estimate_memory(question: Question) -> MemoryEstimate:
    """Whether one configuration fits, and what its bytes are, without work, time and money."""
    resolved = resolve(question)
    fullest = peak_stage_in(resolved)
    return MemoryEstimate(
        resolved=resolved.question,
        verdict=verdict_of(fullest.memory.oom_probability_fraction),
        memory=fullest.memory,
        assumptions=(*assumptions_of(resolved), *describe_stages(resolved, fullest)),
        warnings=warnings_of_memory(resolved),
    )
