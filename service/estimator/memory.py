"""How many bytes does one rank of a stage need, kind by kind, and when is its peak?"""

from dataclasses import dataclass

from service.estimator.degrees import Degrees, divisors
from service.estimator.job import Job
from service.estimator.logits import logits_bytes
from service.estimator.names import OffloadName, ScheduleName
from service.estimator.numeric import Amount, maximum, where
from service.estimator.optimizers import moment_bytes
from service.estimator.parallelism.data import GRADIENTS, OPTIMIZER_STATES, WEIGHTS, expert_shards, shards
from service.estimator.parallelism.pipeline import in_flight, weight_copies
from service.estimator.recompute import kept_bytes, stage_activation_bytes
from service.estimator.stages import RankParameters, Stage, rank_parameters

WORKSPACE_BYTES = 0.10e9
"""Library workspaces and masks that live beside the model's tensors.
Source: NVIDIA/Megatron-LM@d98e8a64 functional tests, read off one golden memory value and used for all."""


@dataclass(slots=True, kw_only=True)
class StageBytes:
    """Bytes of one rank of one stage at its peak, by kind; `phase_is_optimizer` says when that is."""

    weights: Amount
    weight_copies: Amount
    gradients: Amount
    master_weights: Amount
    optimizer_states: Amount
    optimizer_scales: Amount
    step_gradients: Amount
    """fp32 gradients made inside the optimizer step; live only there."""
    gathered_weights: Amount
    """Weights and gradients of layers that are gathered from the data group."""
    activations: Amount
    """Activations of all micro-batches in flight; gone by the optimizer step."""
    recomputed_activations: Amount
    """Activations of layers being computed again."""
    logits: Amount
    workspace: Amount
    in_flight: Amount
    """Micro-batches in flight."""
    host: Amount
    """Bytes that live in host memory instead."""

    @property
    def resident(self) -> Amount:
        """Bytes that live through the whole step [byte]."""
        return (
            self.weights
            + self.weight_copies
            + self.gradients
            + self.master_weights
            + self.optimizer_states
            + self.optimizer_scales
            + self.workspace
        )

    @property
    def backward_peak(self) -> Amount:
        """Bytes when the backward pass starts: the loss is live on the last stage, recompute elsewhere [byte]."""
        moving = maximum(self.logits, self.recomputed_activations)
        return self.resident + self.gathered_weights + self.activations + moving

    @property
    def optimizer_peak(self) -> Amount:
        """Bytes inside the optimizer step [byte]."""
        return self.resident + self.step_gradients

    @property
    def peak(self) -> Amount:
        """Bytes at the peak [byte]."""
        return maximum(self.backward_peak, self.optimizer_peak)


def sharded_bytes(held: RankParameters, degrees: Degrees, bytes_each: float, kind: int) -> Amount:
    """Bytes of one rank for a tensor kept for each parameter, spread over the data group where ZeRO reaches it.

    Formula:
        N_dense b / z + N_expert b / z_expert

    Args:
        held: parameters of the rank before sharding, N
        degrees: the layout
        bytes_each: bytes for one parameter, b [byte]
        kind: OPTIMIZER_STATES, GRADIENTS or WEIGHTS [1]

    Returns:
        bytes of one rank [byte]

    Source:
        Rajbhandari et al. 2020, arXiv:1910.02054, figure 1

    >>> from service.estimator.samples import sample_degrees
    >>> held = RankParameters(dense=1000, expert=0, dense_states=2000, expert_states=0)
    >>> sharded_bytes(held, sample_degrees(data=4, zero_stage=1), 12, 1)
    3000.0
    """
    return held.dense * bytes_each / shards(degrees, kind) + held.expert * bytes_each / expert_shards(degrees, kind)


def state_number_bytes(held: RankParameters, degrees: Degrees, bytes_each: float) -> Amount:
    """Bytes of one rank for the numbers of optimizer state.

    Formula:
        S_dense b / z + S_expert b / z_expert

    Args:
        held: numbers of optimizer state of the rank before sharding, S
        degrees: the layout
        bytes_each: bytes of one number, b [byte]

    Returns:
        bytes of one rank [byte]

    Source:
        Rajbhandari et al. 2020, arXiv:1910.02054, figure 1

    >>> from service.estimator.samples import sample_degrees
    >>> held = RankParameters(dense=1000, expert=0, dense_states=2000, expert_states=0)
    >>> state_number_bytes(held, sample_degrees(data=4, zero_stage=1), 4)
    2000.0
    """
    dense = held.dense_states * bytes_each / shards(degrees, OPTIMIZER_STATES)
    return dense + held.expert_states * bytes_each / expert_shards(degrees, OPTIMIZER_STATES)


def gathered_bytes(job: Job, degrees: Degrees, held: RankParameters, layers: Amount) -> Amount:
    """Bytes of weights and gradients in the compute format that one rank holds beside its own shard or copy.

    Formula:
        ZeRO-3, freed after use: two layers' weights, one layer's gradient and its fp32 reduction
        ZeRO-3, kept: every weight and its fp32 gradient
        below ZeRO-3: every weight, where fp32 weights are cast on the fly; else nothing

    Args:
        job: the job
        degrees: the layout
        held: parameters of the rank before sharding
        layers: layers of the stage [1]

    Returns:
        bytes of one rank [byte]

    Source:
        Zhao et al. 2023, arXiv:2304.11277, section 3.3 (one layer ahead); torchtitan with a pipeline: weights and
        gradients stay unsharded between micro-batches; torch.amp: autocast keeps each weight's cast until it ends

    >>> from service.estimator.samples import sample_degrees, sample_job
    >>> held = RankParameters(dense=32e9, expert=0, dense_states=0, expert_states=0)
    >>> zero = sample_degrees(data=8, zero_stage=3, reshard_after_forward=1)
    >>> gathered_bytes(sample_job(), zero, held, 32)
    10000000000.0
    """
    every = held.dense + held.expert
    one = every / maximum(layers, 1)
    weight, reduced = job.state.gathered_bytes, 4.0
    freed = one * (2 * weight + weight + reduced)
    kept = every * (weight + reduced)
    live = where(degrees.reshard_after_forward == 1, freed, kept)
    cast = every * weight if job.state.casts_weights else 0.0
    sharded = where(degrees.shard_group > 1, live, cast)
    return where(degrees.zero_stage >= WEIGHTS, sharded, cast)


def end_activation_bytes(job: Job, degrees: Degrees, stage: Stage) -> Amount:
    """Bytes that embedding, head and depths keep of one micro-batch on one rank of a stage, their layers apart.

    Formula:
        sum of what their operations keep, on the stages that have them

    Args:
        job: the job
        degrees: the layout
        stage: the stage

    Returns:
        bytes of one micro-batch [byte]

    Source:
        Korthikanti et al. 2022, arXiv:2205.05198, section 4.3

    >>> from service.estimator.samples import sample_degrees, sample_job
    >>> stage = Stage(index=0, kind_counts=(32,), depths=0, is_first=True, is_last=True)
    >>> end_activation_bytes(sample_job(), sample_degrees(), stage) == 2 * (2 * 8192 * 4096)
    True
    """
    split = divisors(degrees, job.model, job.vocabulary_multiple)
    scale = degrees.micro_batch / degrees.context
    embedding = kept_bytes(job.ledger.embedding, job.recompute, split)
    head = kept_bytes(job.ledger.head, job.recompute, split)
    depths = stage.depths * kept_bytes(job.ledger.depth, job.recompute, split)
    return (where(stage.is_first, embedding, 0.0) + where(stage.is_last, head, 0.0) + depths) * scale


def stage_bytes(job: Job, degrees: Degrees, stage: Stage, schedule: ScheduleName, offload: OffloadName) -> StageBytes:
    """Bytes of one rank of one stage at its peak.

    Args:
        job: the job
        degrees: the layout
        stage: the stage
        schedule: the pipeline schedule
        offload: what lives in host memory

    Returns:
        the bytes by kind [byte]

    Source:
        each kind's own function
    """
    held = rank_parameters(job, degrees, stage)
    state, copies = job.state, weight_copies(schedule, degrees)
    kept, again = stage_activation_bytes(job, degrees, stage)
    flying = in_flight(schedule, degrees, stage.index)
    master = sharded_bytes(held, degrees, state.master_bytes, OPTIMIZER_STATES)
    states = state_number_bytes(held, degrees, moment_bytes(job.optimizer, job.precision))
    scales = state_number_bytes(held, degrees, job.optimizer.scale_bytes)
    away = offload == "optimizer"
    return StageBytes(
        weights=copies * sharded_bytes(held, degrees, state.weight_bytes, WEIGHTS),
        weight_copies=copies * sharded_bytes(held, degrees, state.copy_bytes, WEIGHTS),
        gradients=sharded_bytes(held, degrees, state.gradient_bytes, GRADIENTS),
        master_weights=0.0 if away else master,
        optimizer_states=0.0 if away else states,
        optimizer_scales=0.0 if away else scales,
        step_gradients=0.0 if away else sharded_bytes(held, degrees, state.step_bytes, OPTIMIZER_STATES),
        gathered_weights=gathered_bytes(job, degrees, held, stage.layers),
        activations=flying * (kept + end_activation_bytes(job, degrees, stage)),
        recomputed_activations=again,
        logits=where(stage.is_last, logits_bytes(job, degrees), 0.0),
        workspace=WORKSPACE_BYTES,
        in_flight=flying,
        host=master + states + scales if away else 0.0,
    )
