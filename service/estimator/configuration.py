"""What does one configuration hold, do and take, whatever the tokens, the price and the failures of its run?"""

from dataclasses import dataclass, fields
from functools import lru_cache, partial

from service.estimator.answer import Conventions, Flop, Parameters, Step, StepPart
from service.estimator.conventions import korthikanti_fraction, palm_flop, six_n_flop
from service.estimator.documents import padding_fraction, step_tokens, trained_share, trained_tokens
from service.estimator.filled import filled
from service.estimator.fullest import Fullest, fullest_of
from service.estimator.job import Job
from service.estimator.parameters import ParameterCounts, parameter_counts
from service.estimator.precision import highest_peak_flop_per_s
from service.estimator.recompute import recomputed_layers, trained_layers
from service.estimator.resolve import CONFIGURATIONS_KEPT, Resolved
from service.estimator.run import loads_of
from service.estimator.stage_answers import LoadedStage, slowest_step, stage_parameters, stages_of, total_seconds
from service.estimator.step_residuals import step_interval, waiting_fraction
from service.estimator.step_time import StepSeconds
from service.estimator.throughput import falling, tokens_per_s_per_gpu, utilisation_fraction
from service.estimator.work import padding_flop, per_token_flop, recompute_flop, sequence_flop, step_flop


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """What one configuration holds, does and takes."""

    loads: tuple[list[LoadedStage], ...]
    """Pipeline stages of each stage of the run before its last one; none where batch and length never change."""
    fullest: Fullest
    """Memory, of the stage of the run that takes most."""
    parameters: Parameters
    """Parameter counts."""
    flop: Flop
    """Operations, the run's left open."""
    step: Step
    """Seconds."""


@lru_cache(maxsize=CONFIGURATIONS_KEPT)
def worked_out(resolved: Resolved) -> Configuration:
    """What a configuration holds, does and takes; questions that differ in their run alone share it.

    Args:
        resolved: the configuration, as `configuration_of` gives it

    Returns:
        its memory, parameters, FLOP and step
    """
    stages = stages_of(resolved.job, resolved.degrees, resolved.question.layout)
    loads = loads_of(resolved, stages)
    fullest = fullest_of(resolved, stages, loads)
    counts = parameter_counts(resolved.job.model, resolved.job.ledger)
    flop = _flop_of(resolved.job, counts, _rerun_fraction(resolved, stages))
    return Configuration(
        loads=loads,
        fullest=fullest,
        parameters=_parameters(resolved, stages, counts),
        flop=flop,
        step=_step(resolved, stages, flop, fullest.filled_fraction[-1]),
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


def _rerun_fraction(resolved: Resolved, stages: list[LoadedStage]) -> float:
    """Share of the layers that recompute reaches."""
    job, chunks = resolved.job, resolved.question.layout.virtual_pipeline
    if job.recompute.granularity != "full":
        return 1.0
    layers = [trained_layers(job, one.stage.kind_counts) for one in stages]
    again = sum(float(recomputed_layers(job.recompute, count, chunks)) for count in layers)
    return again / max(1.0, sum(map(float, layers)))


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


def _flop_of(job: Job, counts: ParameterCounts, rerun_fraction: float) -> Flop:
    """The FLOP part of the answer, without a run.

    Args:
        job: the job, its batch resolved
        counts: parameters of the model
        rerun_fraction: share of the layers that recompute reaches [1]

    Returns:
        FLOP of a token and a step
    """
    one, tokens = sequence_flop(job.ledger, job.recompute), trained_tokens(job.recipe)
    batch, length = filled(job.recipe.global_batch), job.recipe.sequence_length
    model = step_flop(one.training, batch)
    rerun = recompute_flop(one.rerun, batch, rerun_fraction)
    return Flop(
        per_token_flop=per_token_flop(one.training, tokens),
        per_step_tokens=step_tokens(tokens, batch),
        forward_per_step_flop=step_flop(one.causal, batch),
        backward_per_step_flop=step_flop(one.backward, batch),
        per_step_flop=model,
        recompute_per_step_flop=rerun,
        hardware_per_step_flop=model + rerun,
        padding_per_step_flop=padding_flop(job.ledger, trained_share(job.recipe), batch),
        padding_fraction=padding_fraction(job.recipe),
        total_flop=None,
        total_pflop_days=None,
        recompute_fraction=one.rerun * rerun_fraction / one.training,
        recompute_full_fraction=one.full_rerun * rerun_fraction / one.full_training,
        recompute_korthikanti_fraction=korthikanti_fraction(job.model.hidden_size, length)
        if job.recompute.modules == ("core_attn",)
        else None,
        conventions=Conventions(
            causal=per_token_flop(one.training, tokens),
            full=per_token_flop(one.full_training, tokens),
            palm=palm_flop(job.model, counts.active.total, length),
            six_n=six_n_flop(counts.active.total),
        ),
    )
