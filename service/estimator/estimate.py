"""What does it take to train this model this way? One question in, the whole answer out."""

from dataclasses import fields
from functools import partial

from service.estimator.advice import assumptions_of, warnings_of, warnings_of_memory
from service.estimator.answer import Estimate, Flop, MemoryEstimate, Parameters, Step, StepPart
from service.estimator.fullest import fullest_in, fullest_of, said_of_stages
from service.estimator.parameters import ParameterCounts, parameter_counts
from service.estimator.precision import highest_peak_flop_per_s
from service.estimator.question import Question
from service.estimator.recompute import recomputed_layers, trained_layers
from service.estimator.resolve import Resolved, resolve
from service.estimator.run import Run, loads_of, run_of
from service.estimator.run_advice import lost_time_warnings
from service.estimator.stage_answers import (
    LoadedStage,
    slowest_step,
    stage_parameters,
    stages_of,
    total_seconds,
)
from service.estimator.step_residuals import step_interval, waiting_fraction
from service.estimator.step_time import StepSeconds
from service.estimator.throughput import falling, tokens_per_s_per_gpu, utilisation_fraction
from service.estimator.totals import totals_of
from service.estimator.verdict import verdict_of
from service.estimator.work import flop_of


def estimate(question: Question) -> Estimate:
    """The whole answer to one question.

    Args:
        question: the question, names already looked up

    Returns:
        parameters, memory, FLOP, step time and totals, with intervals

    Raises:
        Refused: the question breaks a rule
    """
    resolved = resolve(question)
    job, degrees, full = resolved.job, resolved.degrees, resolved.question
    stages = stages_of(job, degrees, full.layout)
    loads = loads_of(resolved, stages)
    fullest = fullest_of(resolved, stages, loads)
    run = run_of(resolved, loads, fullest.filled_fraction)
    counts = parameter_counts(job.model, job.ledger)
    parameters = _parameters(resolved, stages, counts)
    flop = _flop(resolved, stages, counts, run)
    step = _step(resolved, stages, flop, fullest.filled_fraction[-1])
    totals = totals_of(resolved, step, flop, run)
    return Estimate(
        resolved=full,
        verdict=verdict_of(fullest.memory.oom_probability_fraction),
        parameters=parameters,
        memory=fullest.memory,
        flop=flop,
        step=step,
        totals=totals,
        assumptions=(*assumptions_of(resolved), *said_of_stages(resolved, fullest)),
        warnings=(*warnings_of(resolved, parameters.active), *lost_time_warnings(resolved, totals)),
    )


def estimate_memory(question: Question) -> MemoryEstimate:
    """Whether one configuration fits, and what its bytes are, without work, time and money.

    Args:
        question: the question, names already looked up

    Returns:
        the memory of every stage, with intervals and a verdict

    Raises:
        Refused: the question breaks a rule
    """
    resolved = resolve(question)
    fullest = fullest_in(resolved)
    return MemoryEstimate(
        resolved=resolved.question,
        verdict=verdict_of(fullest.memory.oom_probability_fraction),
        memory=fullest.memory,
        assumptions=(*assumptions_of(resolved), *said_of_stages(resolved, fullest)),
        warnings=warnings_of_memory(resolved),
    )


def _parameters(resolved: Resolved, stages: list[LoadedStage], counts: ParameterCounts) -> Parameters:
    return Parameters(
        total=counts.total,
        trained=counts.trained,
        adapters=counts.adapters,
        active=counts.active.total,
        active_by_definition=counts.active,
        non_embedding=counts.non_embedding,
        input_embedding=counts.input_embedding,
        position_embedding=counts.position_embedding,
        lm_head=counts.lm_head,
        routed_experts=counts.routed_experts,
        shared_experts=counts.shared_experts,
        multi_token_prediction=counts.multi_token_prediction,
        total_with_multi_token_prediction=counts.total + counts.multi_token_prediction,
        stages=stage_parameters(resolved.job, resolved.degrees, stages),
    )


def _flop(resolved: Resolved, stages: list[LoadedStage], counts: ParameterCounts, run: Run | None) -> Flop:
    job = resolved.job
    chunks = resolved.question.layout.virtual_pipeline
    layers = [trained_layers(job, one.stage.kind_counts) for one in stages]
    again = sum(float(recomputed_layers(job.recompute, count, chunks)) for count in layers)
    share = again / max(1.0, sum(map(float, layers))) if job.recompute.granularity == "full" else 1.0
    steps, earlier_flop = (None, 0) if run is None else (run.last_steps, run.earlier_flop)
    return flop_of(job, counts, steps, share, earlier_flop)


def _step(resolved: Resolved, stages: list[LoadedStage], flop: Flop, in_use: float) -> Step:
    job, gpus = resolved.job, resolved.question.cluster.gpus
    parts = slowest_step(job, resolved.degrees, resolved.question.layout, stages, in_use)
    kinds = {field.name: float(getattr(parts, field.name)) for field in fields(StepSeconds)}
    seconds = step_interval(job, total_seconds(parts), waiting_fraction(kinds))
    peak = highest_peak_flop_per_s(job.gpu, job.precision)
    return Step(
        step_seconds=seconds,
        tokens_per_s_per_gpu=falling(seconds, partial(tokens_per_s_per_gpu, flop.per_step_tokens, gpus)),
        mfu_fraction=falling(seconds, partial(utilisation_fraction, flop.per_step_flop, gpus, peak)),
        hfu_fraction=falling(seconds, partial(utilisation_fraction, flop.hardware_per_step_flop, gpus, peak)),
        peak_flop_per_s=peak,
        parts=tuple(StepPart(kind=kind, seconds=spent) for kind, spent in kinds.items()),
    )
