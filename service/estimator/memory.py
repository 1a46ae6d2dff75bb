"""How many bytes does one rank of a stage need, kind by kind, and when is its peak?"""

from dataclasses import dataclass

from service.estimator.degrees import Degrees
from service.estimator.filled import filled
from service.estimator.job import Job
from service.estimator.load import StageLoad
from service.estimator.names import ScheduleName
from service.estimator.numeric import Amount, maximum, where
from service.estimator.optimizers import moment_bytes
from service.estimator.parallelism.context import exchanged_bytes
from service.estimator.parallelism.data import GRADIENTS, OPTIMIZER_STATES, WEIGHTS, expert_shards, shards
from service.estimator.parallelism.pipeline import in_flight
from service.estimator.question import Layout
from service.estimator.stages import Stage

WORKSPACE_BYTES = 0.10e9
"""Library workspaces and masks that live beside the model's tensors.
Source: NVIDIA/Megatron-LM@d98e8a64 functional tests, read off one golden memory value and used for all."""

REDUCTION_BYTES = 4.0
"""Bytes of one gradient while ZeRO-3 reduces it. Source: torch FSDP MixedPrecision, reduce_dtype float32."""


@dataclass(slots=True, kw_only=True)
class StageBytes:
    """Bytes of one rank of one stage at its peak, by kind."""

    weights: Amount
    frozen_weights: Amount
    """Weights that are not trained, in the compute format."""
    weight_copies: Amount
    gradients: Amount
    master_weights: Amount
    optimizer_states: Amount
    optimizer_scales: Amount
    step_gradients: Amount
    """fp32 gradients made inside the optimizer step; live only there."""
    gathered_weights: Amount
    """Weights and gradients of layers that are gathered from the data group, or cast on the fly."""
    context_buffers: Amount
    """Keys and values of other context ranks."""
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
            + self.frozen_weights
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
        return self.resident + self.gathered_weights + self.context_buffers + self.activations + moving

    @property
    def optimizer_peak(self) -> Amount:
        """Bytes inside the optimizer step [byte]."""
        return self.resident + self.step_gradients

    @property
    def peak(self) -> Amount:
        """Bytes at the peak [byte]."""
        return maximum(self.backward_peak, self.optimizer_peak)


def sharded_bytes(dense: Amount, expert: Amount, degrees: Degrees, bytes_each: float, kind: int) -> Amount:
    """Bytes of one rank for some numbers, spread over the data group where ZeRO reaches their kind.

    Formula:
        (N_dense / z + N_expert / z_expert) b

    Args:
        dense: numbers outside the routed experts before sharding, N_dense [1]
        expert: numbers of the routed experts before sharding, N_expert [1]
        degrees: the layout
        bytes_each: bytes of one number, b [byte]
        kind: OPTIMIZER_STATES, GRADIENTS or WEIGHTS [1]

    Returns:
        bytes of one rank [byte]

    Source:
        Rajbhandari et al. 2020, arXiv:1910.02054, figure 1

    >>> from service.estimator.samples import sample_degrees
    >>> sharded_bytes(1000, 0, sample_degrees(data=4, zero_stage=1), 12, OPTIMIZER_STATES)
    3000.0
    """
    return dense * bytes_each / shards(degrees, kind) + expert * bytes_each / expert_shards(degrees, kind)


def gathered_bytes(job: Job, degrees: Degrees, load: StageLoad) -> Amount:
    """Bytes of weights and gradients in the compute format that one rank holds beside its own shard or copy.

    Formula:
        ZeRO-3, freed after use: the larger of two layers, one with its gradient and reduction, and the head or
        embedding with both and one layer ahead
        ZeRO-3, kept: every weight, and one layer's gradient and reduction, or with a pipeline every fp32 gradient
        below ZeRO-3: every trained weight, where fp32 weights are cast on the fly; else nothing
        (gradients of trained parameters only)

    Args:
        job: the job
        degrees: the layout
        load: load of the rank

    Returns:
        bytes of one rank [byte]

    Source:
        Zhao et al. 2023, arXiv:2304.11277, section 3.3 (one layer ahead); torchtitan with a pipeline: weights and
        gradients stay unsharded between micro-batches; torch.amp: autocast keeps each weight's cast until it ends

    >>> from service.estimator.samples import sample_degrees, sample_job, sample_load
    >>> zero = sample_degrees(data=8, zero_stage=3, reshard_after_forward=1)
    >>> gathered_bytes(sample_job(), zero, sample_load()) == 128_256 * 4096 * 8 + 4096 * 8 + 218_112_000 * 2
    True
    """
    every, trained = load.held.dense + load.held.expert, load.held.dense_trained + load.held.expert_trained
    layer, end, weight = load.largest_layer, load.largest_end, job.state.gathered_bytes
    reducing = weight + REDUCTION_BYTES
    in_layer, in_end = load.largest_trained_layer * reducing, load.largest_trained_end * reducing
    freed = maximum(layer * 2 * weight + in_layer, end * weight + in_end + layer * weight)
    kept = every * weight + where(degrees.pipeline > 1, trained * REDUCTION_BYTES, in_layer)
    live = where(degrees.reshard_after_forward == 1, freed, kept)
    cast = trained * weight if job.state.casts_weights else 0.0
    sharded = where(degrees.shard_group > 1, live, cast)
    return where(degrees.zero_stage >= WEIGHTS, sharded, cast)


@dataclass(slots=True)
class Sharded:
    """The operands of one line that the data group may shard."""

    dense: Amount
    """Numbers outside the routed experts, before sharding."""
    expert: Amount
    """Numbers of the routed experts, before sharding."""
    each_bytes: float
    """Bytes of one number."""
    kind: int
    """OPTIMIZER_STATES, GRADIENTS or WEIGHTS."""


def sharded_lines(job: Job, load: StageLoad) -> dict[str, Sharded]:
    """The lines of `StageBytes` that the data group may shard, with what each is made of.

    Args:
        job: the job
        load: load of the rank

    Returns:
        the operands of `sharded_bytes` by line
    """
    held, updated, state = load.held, load.updated, job.state
    moment = moment_bytes(job.optimizer, job.precision)
    moments = (updated.dense_states, updated.expert_states)
    trained, renewed = (held.dense_trained, held.expert_trained), (updated.dense_trained, updated.expert_trained)
    frozen = (held.dense - held.dense_trained, held.expert - held.expert_trained)
    return {
        "weights": Sharded(*trained, state.weight_bytes, WEIGHTS),
        "frozen_weights": Sharded(*frozen, state.frozen_bytes, WEIGHTS),
        "weight_copies": Sharded(held.dense_products, held.expert_products, state.copy_bytes, WEIGHTS),
        "gradients": Sharded(*trained, state.gradient_bytes, GRADIENTS),
        "master_weights": Sharded(*renewed, state.master_bytes, OPTIMIZER_STATES),
        "optimizer_states": Sharded(*moments, moment, OPTIMIZER_STATES),
        "optimizer_scales": Sharded(*moments, job.optimizer.scale_bytes, OPTIMIZER_STATES),
        "step_gradients": Sharded(*renewed, state.step_bytes, OPTIMIZER_STATES),
    }


OFF_DEVICE = ("master_weights", "optimizer_states", "optimizer_scales", "step_gradients")
"""Lines that leave the device when the optimizer is offloaded."""


def stage_bytes(job: Job, degrees: Degrees, stage: Stage, load: StageLoad, layout: Layout) -> StageBytes:
    """Bytes of one rank of one stage at its peak.

    Formula:
        each kind's own; the workspace is a constant

    Args:
        job: the job
        degrees: the layout's degrees
        stage: the stage
        load: its load
        layout: the layout's choices: schedule, context method, offload

    Returns:
        the bytes by kind [byte]

    Source:
        each kind's own function; WORKSPACE_BYTES
    """
    schedule: ScheduleName = filled(layout.schedule)
    flying = in_flight(schedule, degrees, stage.index)
    losses = flying if schedule == "gpipe" else 1
    spread = {
        name: sharded_bytes(line.dense, line.expert, degrees, line.each_bytes, line.kind)
        for name, line in sharded_lines(job, load).items()
    }
    host: Amount = 0.0
    if layout.offload == "optimizer":
        host = spread["master_weights"] + spread["optimizer_states"] + spread["optimizer_scales"]
        spread |= dict.fromkeys(OFF_DEVICE, 0.0)
    return StageBytes(
        **spread,
        gathered_weights=gathered_bytes(job, degrees, load),
        context_buffers=exchanged_bytes(job, degrees, filled(layout.context_method)),
        activations=flying * load.kept_bytes,
        recomputed_activations=load.recomputed_bytes,
        logits=losses * load.logits_bytes,
        workspace=WORKSPACE_BYTES,
        in_flight=flying,
        host=host,
    )
