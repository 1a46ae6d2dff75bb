"""How many bytes does one rank of a stage need, kind by kind, and when is its peak?"""

from dataclasses import dataclass
from functools import reduce

from service.estimator.answer import Phase
from service.estimator.degrees import Degrees
from service.estimator.filled import filled
from service.estimator.gathered import gathered_bytes
from service.estimator.job import Job
from service.estimator.load import StageLoad
from service.estimator.names import ScheduleName
from service.estimator.numeric import Amount, maximum, where
from service.estimator.parallelism.context import exchanged_bytes
from service.estimator.parallelism.pipeline import in_flight
from service.estimator.question import Layout
from service.estimator.sharded import sharded_bytes, sharded_lines
from service.estimator.stages import Stage
from service.estimator.standing import standing_bytes
from service.estimator.stream import sequence_stream_bytes


@dataclass(slots=True, kw_only=True)
class StageBytes:
    """Bytes of one rank of one stage by kind; which of them are live when, `LIVE` says."""

    weights: Amount
    frozen_weights: Amount
    """Weights that are not trained, in the compute format."""
    weight_copies: Amount
    gradients: Amount
    master_weights: Amount
    optimizer_states: Amount
    optimizer_scales: Amount
    moving_average: Amount
    """A moving average of the weights."""
    step_gradients: Amount
    """fp32 gradients made inside the optimizer step; live only there."""
    gathered_weights: Amount
    """Weights and gradients of layers that are gathered from the data group, or cast on the fly."""
    context_buffers: Amount
    """Keys and values of other context ranks."""
    pipeline_buffers: Amount
    """What a stage has received of its neighbours beside what it keeps."""
    activations: Amount
    """Activations of all micro-batches in flight; gone by the optimizer step."""
    recomputed_activations: Amount
    """Activations of layers being computed again."""
    layer_buffers: Amount
    """Gradients inside the layer that runs backward."""
    logits: Amount
    gradient_placeholders: Amount
    """Empty gradients that the libraries keep."""
    workspace: Amount
    in_flight: Amount
    """Micro-batches in flight."""
    host: Amount
    """Bytes that live in host memory instead."""

    def at(self, phase: Phase) -> Amount:
        """Live bytes in one phase of a later step [byte]."""
        total: Amount = 0.0
        for kind in LIVE[phase]:
            total = total + getattr(self, kind)
        return total

    @property
    def resident(self) -> Amount:
        """Bytes that live through the whole step [byte]."""
        total: Amount = 0.0
        for kind in RESIDENT:
            total = total + getattr(self, kind)
        return total

    @property
    def peak(self) -> Amount:
        """Bytes at the peak [byte]."""
        return reduce(maximum, [self.at(phase) for phase in LIVE])


RESIDENT = (
    "weights", "frozen_weights", "weight_copies", "gradients", "master_weights", "optimizer_states", "optimizer_scales",
    "moving_average", "gradient_placeholders", "workspace",
)  # fmt: skip
"""Kinds that live through the whole of a later step."""

_COMPUTING = (*RESIDENT, "gathered_weights", "context_buffers", "pipeline_buffers", "activations")

LIVE: dict[Phase, tuple[str, ...]] = {
    "loss": (*_COMPUTING, "logits"),
    "backward": (*_COMPUTING, "recomputed_activations", "layer_buffers"),
    "optimizer": (*RESIDENT, "step_gradients"),
}
"""Kinds that are live at the fullest moment of each phase."""

OFF_DEVICE: dict[str, tuple[str, ...]] = {
    "none": (),
    "optimizer": ("master_weights", "optimizer_states", "optimizer_scales", "step_gradients", "moving_average"),
    "activations": ("activations",),
}
"""Kinds that leave the device when they are offloaded."""


def stage_bytes(job: Job, degrees: Degrees, stage: Stage, load: StageLoad, layout: Layout) -> StageBytes:
    """Bytes of one rank of one stage, kind by kind.

    Formula:
        each kind's own

    Args:
        job: the job
        degrees: the layout's degrees
        stage: the stage
        load: its load
        layout: the layout's choices: schedule, context method, offload

    Returns:
        the bytes by kind [byte]

    Source:
        each kind's own function
    """
    schedule: ScheduleName = filled(layout.schedule)
    flying = in_flight(schedule, degrees, stage.index, len(stage.chunk_counts))
    losses = flying[0] if schedule == "gpipe" else 1
    spread = {
        name: sharded_bytes(line.dense, line.expert, degrees, line.each_bytes, line.kind)
        for name, line in sharded_lines(job, load).items()
    }
    host: Amount = 0.0
    if layout.offload == "optimizer":
        away = OFF_DEVICE["optimizer"]
        for name in away:
            host = host + (0.0 if name == "step_gradients" else spread[name])
        spread |= dict.fromkeys(away, 0.0)
    return StageBytes(
        **spread,
        gathered_weights=gathered_bytes(job, degrees, load),
        context_buffers=exchanged_bytes(job, degrees, filled(layout.context_method)),
        pipeline_buffers=received_bytes(job, degrees, stage),
        activations=_flying_bytes(flying, load.kept_bytes),
        recomputed_activations=load.recomputed_bytes,
        layer_buffers=load.layer_buffer_bytes,
        logits=losses * load.logits_bytes,
        gradient_placeholders=load.placeholder_bytes,
        workspace=standing_bytes(job, degrees, stage),
        in_flight=_mean_flying(flying, degrees),
        host=host,
    )


def _flying_bytes(flying: tuple[Amount, ...], kept: tuple[Amount, ...]) -> Amount:
    total: Amount = 0.0
    for count, one in zip(flying, kept, strict=True):
        total = total + count * one
    return total


def _mean_flying(flying: tuple[Amount, ...], degrees: Degrees) -> Amount:
    """Whole micro-batches in flight: those of each chunk, over the chunks."""
    total: Amount = 0.0
    for count in flying:
        total = total + count
    return total / degrees.virtual_pipeline


def received_bytes(job: Job, degrees: Degrees, stage: Stage) -> Amount:
    """Bytes that a stage has received of its neighbours beside what it keeps, while it computes.

    Formula:
        the gradient of the micro-batch before, b s h / (c t) elements, after the first stage; two more with chunks

    Args:
        job: the job
        degrees: the layout
        stage: the stage

    Returns:
        bytes of one rank [byte]

    Source:
        NVIDIA/Megatron-LM@23e00ed0 core/pipeline_parallel/schedules.py (input_tensor_grad stays bound; with chunks the
        next input and gradient are received ahead)

    >>> from service.estimator.samples import sample_degrees, sample_job
    >>> stage = Stage(index=1, chunk_counts=((8,),), depths=0, is_first=False, is_last=False)
    >>> received_bytes(sample_job(), sample_degrees(pipeline=4), stage)
    67108864.0
    """
    streams = where(stage.is_first, 0, 1) + where(degrees.virtual_pipeline > 1, 2, 0)
    return sequence_stream_bytes(job, degrees) * streams
