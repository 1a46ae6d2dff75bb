"""Why is each line of the memory answer what it is?"""

from collections.abc import Callable
from typing import Any

from service.estimator.allocator import reserved_bytes, reserved_shares
from service.estimator.answer import Memory
from service.estimator.backward import layer_buffer_bytes
from service.estimator.degrees import Degrees, divisors, padded_vocabulary
from service.estimator.device import (
    allocator_room,
    beside_allocator,
    device_interval,
    headroom_bytes,
    usable_bytes,
)
from service.estimator.explanation import Explanation, Inputs, explained
from service.estimator.filled import filled
from service.estimator.gathered import REDUCTION_BYTES, gathered_weights
from service.estimator.load import StageLoad
from service.estimator.logits import logits_bytes
from service.estimator.memory import BETWEEN_STEPS, stage_bytes
from service.estimator.names import ScheduleName
from service.estimator.parallelism.context import exchanged_bytes, key_value_bytes
from service.estimator.parallelism.data import expert_shards, shards
from service.estimator.parallelism.pipeline import in_flight
from service.estimator.pipeline_buffers import received_bytes
from service.estimator.placeholders import placeholder_bytes
from service.estimator.recompute import kept_bytes, stage_activations
from service.estimator.residuals import allocated_interval
from service.estimator.resolve import Resolved
from service.estimator.sharded import Sharded, sharded_bytes, sharded_lines
from service.estimator.software import version_of
from service.estimator.stage_answers import LoadedStage
from service.estimator.standing import standing_bytes
from service.estimator.stream import sequence_stream_bytes
from service.estimator.verdict import oom_probability_fraction

Told = tuple[Callable[..., Any], Inputs]
"""The formula of a line, and what it read."""


def memory_explanations(resolved: Resolved, stages: list[LoadedStage], memory: Memory) -> list[Explanation]:
    """Explanations of every line of every stage, and of the peaks.

    Args:
        resolved: the question
        stages: its stages
        memory: the memory part of the answer

    Returns:
        one explanation a number
    """
    said: list[Explanation] = []
    for position, one in enumerate(stages):
        held = stage_bytes(resolved.job, resolved.degrees, one.stage, one.load, resolved.question.layout)
        told = memory.stages[position]
        place = f"memory.stages[{position}]"
        for index, line in enumerate(told.lines):
            formula, inputs = _told(resolved, one, line.kind)
            said.append(explained(f"{place}.lines[{index}].bytes", float(getattr(held, line.kind)), formula, inputs))
        flying: Inputs = {"stage": told.stage, "accumulation": float(resolved.degrees.accumulation)}
        said.append(explained(f"{place}.micro_batches_in_flight", told.micro_batches_in_flight, in_flight, flying))
        lines: Inputs = {line.kind: line.bytes for line in told.lines}
        said.append(explained(f"{place}.allocated_peak_bytes", told.allocated_peak_bytes, allocated_interval, lines))
        beside: Inputs = {"allocated_bytes": told.allocated_peak_bytes, "held_bytes": float(held.held)}
        said.append(explained(f"{place}.reserved_peak_bytes", told.reserved_peak_bytes, reserved_bytes, beside))
        kept: Inputs = {kind: live for kind in BETWEEN_STEPS if (live := float(getattr(held, kind)))}
        said.append(explained(f"{place}.idle_bytes", told.idle_bytes, stage_bytes, kept))
    fullest = stages[memory.peak_stage]
    holds = stage_bytes(resolved.job, resolved.degrees, fullest.stage, fullest.load, resolved.question.layout).held
    return [*said, *_peaks(resolved, memory, float(holds))]


def _told(resolved: Resolved, one: LoadedStage, kind: str) -> Told:
    """The formula of a line and what it read: one for all that the data group may shard, one for each other."""
    line = sharded_lines(resolved.job, one.load).get(kind)
    return _FORMULAS[kind](resolved, one) if line is None else _spread(resolved.degrees, line)


def _spread(degrees: Degrees, line: Sharded) -> Told:
    return sharded_bytes, {
        "dense": float(line.dense),
        "dense_shards": float(shards(degrees, line.kind)),
        "expert": float(line.expert),
        "expert_shards": float(expert_shards(degrees, line.kind)),
        "bytes_each": line.each_bytes,
    }


def _gathered(resolved: Resolved, one: LoadedStage) -> Told:
    load: StageLoad = one.load
    return gathered_weights, {
        "every_weight": float(load.held.dense + load.held.expert),
        "largest_layer": float(load.largest_layer),
        "largest_end": float(load.largest_end),
        "weight_bytes": resolved.job.state.gathered_bytes,
        "reduction_bytes": REDUCTION_BYTES,
        "reshard_after_forward": float(resolved.degrees.reshard_after_forward),
    }


def _buffers(resolved: Resolved, one: LoadedStage) -> Told:  # noqa: ARG001 - one shape for all
    return exchanged_bytes, {
        "key_value_bytes": float(key_value_bytes(resolved.job, resolved.degrees)),
        "context": float(resolved.degrees.context),
        "context_method": resolved.question.layout.context_method,
    }


def _kept_by_operation(resolved: Resolved) -> Inputs:
    """Bytes that each operation of one layer keeps of one micro-batch on one rank, by kind of layer."""
    job, degrees = resolved.job, resolved.degrees
    split = divisors(degrees, job.model, job.vocabulary_multiple)
    scale = degrees.micro_batch / degrees.context
    return {
        f"layer_kind_{kind}.{op.name}": float(kept_bytes((op,), job.recompute, split) * scale)
        for kind, ops in enumerate(job.ledger.kinds)
        for op in ops
        if op.saved
    }


def _activations(resolved: Resolved, one: LoadedStage) -> Told:
    schedule: ScheduleName = filled(resolved.question.layout.schedule)
    flying = in_flight(schedule, resolved.degrees, one.stage.index, len(one.stage.chunk_counts))
    return stage_activations, {
        **_kept_by_operation(resolved),
        "layers": float(one.stage.layers),
        **{f"chunk_{place}.bytes_each_micro_batch": float(kept) for place, kept in enumerate(one.load.kept_bytes)},
        **{f"chunk_{place}.micro_batches_in_flight": float(count) for place, count in enumerate(flying)},
        "recomputing_bytes": float(one.load.recomputed_bytes),
        "micro_batch": float(resolved.degrees.micro_batch),
        "context": float(resolved.degrees.context),
        "recompute": resolved.job.recompute.granularity,
    }


def _logits(resolved: Resolved, one: LoadedStage) -> Told:  # noqa: ARG001 - one shape for all
    job, degrees = resolved.job, resolved.degrees
    return logits_bytes, {
        "losses": 1 + job.ledger.depths,
        "tokens": job.recipe.sequence_length * float(degrees.micro_batch) / float(degrees.context),
        "padded_vocabulary": float(padded_vocabulary(job.model, job.vocabulary_multiple, degrees.tensor)),
        "tensor": float(degrees.tensor),
        "logit_bytes": job.cross_entropy.logit_bytes(job.precision.element_bytes),
        "cross_entropy": job.software.cross_entropy,
    }


def _workspace(resolved: Resolved, one: LoadedStage) -> Told:  # noqa: ARG001 - one shape for all
    software = resolved.job.software
    return standing_bytes, {
        "architecture": resolved.job.gpu.architecture,
        "implementation": software.implementation,
        "deterministic": software.deterministic,
    }


def _placeholders(resolved: Resolved, one: LoadedStage) -> Told:  # noqa: ARG001 - one shape for all
    software = resolved.job.software
    return placeholder_bytes, {
        "transformer_engine": version_of(software, "transformer_engine"),
        "megatron_core": version_of(software, "megatron_core"),
        "tensor": float(resolved.degrees.tensor),
    }


def _stream(resolved: Resolved) -> Inputs:
    return {"stream_bytes": float(sequence_stream_bytes(resolved.job, resolved.degrees))}


def _received(resolved: Resolved, one: LoadedStage) -> Told:
    return received_bytes, {"stage": float(one.stage.index), **_stream(resolved)}


def _layer_buffers(resolved: Resolved, one: LoadedStage) -> Told:  # noqa: ARG001 - one shape for all
    return layer_buffer_bytes, _stream(resolved)


_FORMULAS: dict[str, Callable[[Resolved, LoadedStage], Told]] = {
    "gathered_weights": _gathered,
    "context_buffers": _buffers,
    "pipeline_buffers": _received,
    "activations": _activations,
    "recomputed_activations": _activations,
    "layer_buffers": _layer_buffers,
    "logits": _logits,
    "gradient_placeholders": _placeholders,
    "workspace": _workspace,
}


def _peaks(resolved: Resolved, memory: Memory, held_bytes: float) -> list[Explanation]:
    lines: Inputs = {line.kind: line.bytes for line in memory.stages[memory.peak_stage].lines}
    allocated, reserved, device = memory.allocated_peak_bytes, memory.reserved_peak_bytes, memory.device_peak_bytes
    exceeding: Inputs = {"device_bytes": device.value, "high_bytes": device.high, "usable_bytes": memory.usable_bytes}
    communicating: Inputs = {
        "reserved_bytes": reserved.value,
        "context_and_communicator_bytes": beside_allocator(resolved.job)[1],
        "gpus": resolved.job.cluster.gpus,
    }
    job = resolved.job
    holding: Inputs = {
        "allocated_bytes": allocated.value,
        "share": reserved_shares(job)[1],
        "room_bytes": allocator_room(job),
        "held_bytes": held_bytes,
    }
    gpu: Inputs = {"gpu": resolved.job.gpu.slug}
    left: Inputs = {"usable_bytes": memory.usable_bytes, "device_bytes": device.value}
    away: Inputs = {"offload": resolved.question.layout.offload}
    probability = memory.oom_probability_fraction
    return [
        explained("memory.allocated_peak_bytes.value", allocated.value, allocated_interval, lines),
        explained("memory.reserved_peak_bytes.value", reserved.value, reserved_bytes, holding),
        explained("memory.device_peak_bytes.value", device.value, device_interval, communicating),
        explained("memory.oom_probability_fraction", probability, oom_probability_fraction, exceeding),
        explained("memory.usable_bytes", memory.usable_bytes, usable_bytes, gpu),
        explained("memory.headroom_bytes", memory.headroom_bytes, headroom_bytes, left),
        explained("memory.host_bytes", memory.host_bytes, sharded_bytes, away),
    ]
