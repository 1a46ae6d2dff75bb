"""The whole answer to one question."""

from service.estimator.advice import assumptions_of, lost_time_warnings, warnings_of, warnings_of_memory
from service.estimator.answer import Estimate, MemoryEstimate
from service.estimator.memory.device import verdict_of
from service.estimator.question import Question
from service.estimator.resolve import configuration_of, resolve
from service.estimator.run.run import describe_stages, peak_stage_in
from service.estimator.run.totals import compute_run, numbers_of, totals_at


def estimate(question: Question) -> Estimate:
    """Answer one question in full."""
    running = compute_run(question, configuration_of(question))
    resolved, known, totals = running.resolved, running.known, totals_at(running)
    return numbers_of(
        running,
        totals,
        assumptions=(*assumptions_of(question, resolved), *describe_stages(resolved, known.peak)),
        warnings=(*warnings_of(resolved, known.parameters.active), *lost_time_warnings(resolved, totals)),
    )


def estimate_memory(question: Question) -> MemoryEstimate:
    """Memory and verdict of one configuration, without FLOP, time and cost."""
    resolved = resolve(question)
    peak = peak_stage_in(resolved)
    return MemoryEstimate(
        resolved=resolved.question,
        verdict=verdict_of(peak.memory.oom_probability_fraction),
        memory=peak.memory,
        assumptions=(*assumptions_of(question, resolved), *describe_stages(resolved, peak)),
        warnings=warnings_of_memory(resolved),
    )
