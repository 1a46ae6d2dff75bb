"""Explanations of the lines of the memory answer."""

from collections.abc import Callable, Iterator
from typing import Any

from service.estimator.answer import Memory, StageMemory
from service.estimator.degrees import divisors, padded_vocabulary
from service.estimator.explain.explanation import Explanation, Inputs, explained
from service.estimator.memory.activations import (
    RankLoad,
    kept_bytes,
    lasting_gradient_bytes,
    layer_buffer_bytes,
    logits_bytes,
    placeholder_bytes,
    stage_activations,
)
from service.estimator.memory.device import (
    allocated_interval,
    allocator_room_bytes,
    beside_allocator,
    device_interval,
    headroom_bytes,
    oom_probability_fraction,
    reserved_bytes,
    reserved_shares,
    usable_bytes,
)
from service.estimator.memory.memory import (
    BETWEEN_STEPS,
    StageBytes,
    first_step_lines,
    first_step_peak_bytes,
    left_bytes,
    live_bytes,
    mask_bytes,
    persistent_buffer_bytes,
    received_bytes,
    stage_bytes,
)
from service.estimator.memory.states import (
    REDUCTION_BYTES,
    Sharded,
    all_gathered_weights,
    bucket_bytes,
    checkpoint_bytes,
    sharded_bytes,
    sharded_lines,
    undivided_share,
)
from service.estimator.parallelism.context import exchanged_bytes, key_value_bytes
from service.estimator.parallelism.data import expert_shards, shards
from service.estimator.parallelism.pipeline import in_flight
from service.estimator.parallelism.stages import handed_stream_bytes, sequence_stream_bytes
from service.estimator.resolve import ResolvedQuestion
from service.estimator.run.stages import LoadedStage
from service.estimator.workload import Workload

FormulaInputs = tuple[Callable[..., Any], Inputs]
"""The formula of a line, and what it read."""


def memory_explanations(resolved: ResolvedQuestion, stages: list[LoadedStage], memory: Memory) -> list[Explanation]:
    """Explanations of every line of every stage, and of the peaks."""
    workload, degrees, layout = resolved.workload, resolved.degrees, resolved.question.layout
    every = [stage_bytes(workload, degrees, one.stage, one.load, layout) for one in stages]
    explanations: list[Explanation] = []
    for position, (one, rank_bytes) in enumerate(zip(stages, every, strict=True)):
        explanations += _stage(resolved, one, rank_bytes, memory.stages[position], f"memory.stages[{position}]")
    return [*explanations, *_peaks(resolved, memory, float(every[memory.peak_stage].held))]


def _stage(
    resolved: ResolvedQuestion, one: LoadedStage, rank_bytes: StageBytes, given: StageMemory, place: str
) -> Iterator[Explanation]:
    for index, line in enumerate(given.lines):
        formula, inputs = _formula_of(resolved, one, line.kind)
        yield explained(f"{place}.lines[{index}].bytes", line.bytes, formula, inputs)
    flying: Inputs = {"stage": given.stage, "accumulation": float(resolved.degrees.accumulation)}
    yield explained(f"{place}.micro_batches_in_flight", given.micro_batches_in_flight, in_flight, flying)
    lines: Inputs = {line.kind: line.bytes for line in given.lines}
    yield explained(f"{place}.allocated_peak_bytes", given.allocated_peak_bytes, allocated_interval, lines)
    beside: Inputs = {"allocated_bytes": given.allocated_peak_bytes, "held_bytes": float(rank_bytes.held)}
    yield explained(f"{place}.reserved_peak_bytes", given.reserved_peak_bytes, reserved_bytes, beside)
    first: Inputs = {**first_step_lines(rank_bytes, several=float(resolved.degrees.accumulation) > 1)}
    yield explained(f"{place}.first_step_peak_bytes", given.first_step_peak_bytes, first_step_peak_bytes, first)
    idle: Inputs = {**live_bytes(rank_bytes, BETWEEN_STEPS, ())}
    yield explained(f"{place}.idle_bytes", given.idle_bytes, stage_bytes, idle)


def _formula_of(resolved: ResolvedQuestion, one: LoadedStage, kind: str) -> FormulaInputs:
    """The formula of a line and what it read: one for all that the data group may shard, one for each other."""
    line = sharded_lines(resolved.workload, one.load).get(kind)
    return _FORMULAS[kind](resolved, one) if line is None else _spread(resolved, one, line)


def _spread(resolved: ResolvedQuestion, one: LoadedStage, line: Sharded) -> FormulaInputs:
    workload, degrees = resolved.workload, resolved.degrees
    inputs: Inputs = {
        "dense": float(line.dense),
        "dense_shards": float(shards(degrees, line.kind)),
        "expert": float(line.expert),
        "expert_shards": float(expert_shards(degrees, line.kind)),
        "bytes_each": line.each_bytes,
    }
    undivided = float(undivided_share(workload, degrees, one.load))
    return sharded_bytes, {**inputs, "undivided": undivided} if undivided else inputs


def _gathered(resolved: ResolvedQuestion, one: LoadedStage) -> FormulaInputs:
    load: RankLoad = one.load
    return all_gathered_weights, {
        "every_weight": float(load.held.dense + load.held.expert),
        "largest_layer": float(load.largest_layer),
        "gathered_ends": float(load.gathered_ends),
        "trained_weights": float(load.held.dense_trained + load.held.expert_trained),
        "largest_trained_layer": float(load.largest_trained_layer),
        "largest_trained_end": float(load.largest_trained_end),
        "embedding_table": float(load.embedding_table),
        "weight_bytes": resolved.workload.state.gathered_bytes,
        "reduction_bytes": REDUCTION_BYTES,
        "zero_stage": float(resolved.degrees.zero_stage),
        "reshard_after_forward": float(resolved.degrees.reshard_after_forward),
    }


def _buckets(resolved: ResolvedQuestion, one: LoadedStage) -> FormulaInputs:
    return bucket_bytes, {
        "trained_weights": float(one.load.held.dense_trained + one.load.held.expert_trained),
        "largest_table": float(one.load.largest_table),
        "bucket_numbers": float(resolved.workload.stack.bucket_numbers),
        "bytes_each": resolved.workload.state.gradient_bytes,
        "zero_stage": float(resolved.degrees.zero_stage),
        "data": float(resolved.degrees.data),
    }


def _exchanged(resolved: ResolvedQuestion, one: LoadedStage) -> FormulaInputs:  # noqa: ARG001 - one shape for all
    return exchanged_bytes, {
        "key_value_bytes": float(key_value_bytes(resolved.workload, resolved.degrees)),
        "context": float(resolved.degrees.context),
        "context_method": resolved.question.layout.context_method,
    }


def _mask(resolved: ResolvedQuestion, one: LoadedStage) -> FormulaInputs:  # noqa: ARG001 - one shape for all
    return mask_bytes, {
        "sequence_length": resolved.workload.recipe.sequence_length,
        "micro_batch": float(resolved.degrees.micro_batch),
        "context": float(resolved.degrees.context),
    }


def _kept_by_operation(resolved: ResolvedQuestion) -> Inputs:
    """Bytes that each operation of one layer keeps of one micro-batch on one rank, by kind of layer."""
    workload, degrees = resolved.workload, resolved.degrees
    split = divisors(degrees, workload.model, workload.vocabulary_multiple)
    scale = degrees.micro_batch / degrees.context
    return {
        f"layer_kind_{kind}.{op.name}": float(kept_bytes((op,), workload.recompute, split) * scale)
        for kind, ops in enumerate(workload.ledger.kinds)
        for op in ops
        if op.saved
    }


def _activations(resolved: ResolvedQuestion, one: LoadedStage) -> FormulaInputs:
    layout = resolved.question.layout
    schedule = layout.schedule
    flying = in_flight(schedule, resolved.degrees, one.stage.index, len(one.stage.chunk_counts))
    return stage_activations, {
        **_kept_by_operation(resolved),
        "layers": float(one.stage.layers),
        **{
            f"chunk_{place}.bytes_each_micro_batch": float(saved_bytes)
            for place, saved_bytes in enumerate(one.load.kept_bytes)
        },
        **{f"chunk_{place}.micro_batches_in_flight": float(count) for place, count in enumerate(flying)},
        "recomputing_bytes": float(one.load.recomputed_bytes),
        "micro_batch": float(resolved.degrees.micro_batch),
        "context": float(resolved.degrees.context),
        "recompute": resolved.workload.recompute.granularity,
        "offload": layout.offload,
    }


def _logits(resolved: ResolvedQuestion, one: LoadedStage) -> FormulaInputs:  # noqa: ARG001 - one shape for all
    workload, degrees = resolved.workload, resolved.degrees
    return logits_bytes, {
        "losses": 1 + workload.ledger.depths,
        "tokens": workload.recipe.sequence_length * float(degrees.micro_batch) / float(degrees.context),
        "padded_vocabulary": float(padded_vocabulary(workload.model, workload.vocabulary_multiple, degrees.tensor)),
        "tensor": float(degrees.tensor),
        "logit_bytes": workload.cross_entropy.logit_bytes(workload.precision.element_bytes),
        "cross_entropy": workload.software.cross_entropy,
    }


def _workspace(resolved: ResolvedQuestion, one: LoadedStage) -> FormulaInputs:  # noqa: ARG001 - one shape for all
    software = resolved.workload.software
    return persistent_buffer_bytes, {
        "architecture": resolved.workload.gpu.architecture,
        "implementation": software.implementation,
        "deterministic": software.deterministic,
    }


def _placeholders(resolved: ResolvedQuestion, one: LoadedStage) -> FormulaInputs:  # noqa: ARG001 - one shape for all
    versions = resolved.workload.versions
    return placeholder_bytes, {
        "transformer_engine": versions.transformer_engine,
        "megatron_core": versions.megatron_core,
        "tensor": float(resolved.degrees.tensor),
    }


def _stream(resolved: ResolvedQuestion) -> Inputs:
    return {"stream_bytes": float(sequence_stream_bytes(resolved.workload, resolved.degrees))}


def _received(resolved: ResolvedQuestion, one: LoadedStage) -> FormulaInputs:
    return received_bytes, {"stage": float(one.stage.index), **_stream(resolved)}


def _left(resolved: ResolvedQuestion, one: LoadedStage) -> FormulaInputs:
    return left_bytes, {"chunks": len(one.stage.chunk_counts), **_stream(resolved)}


def _layer_buffers(resolved: ResolvedQuestion, one: LoadedStage) -> FormulaInputs:  # noqa: ARG001 - one shape for all
    return layer_buffer_bytes, {
        "stream_bytes": float(handed_stream_bytes(resolved.workload, resolved.degrees)),
        "gradient_bytes": float(lasting_gradient_bytes(resolved.workload, resolved.degrees)),
    }


_FORMULAS: dict[str, Callable[[ResolvedQuestion, LoadedStage], FormulaInputs]] = {
    "gathered_weights": _gathered,
    "reduced_gradients": _gathered,
    "gradient_buckets": _buckets,
    "context_buffers": _exchanged,
    "attention_mask": _mask,
    "pipeline_buffers": _received,
    "left_streams": _left,
    "activations": _activations,
    "recomputed_activations": _activations,
    "layer_buffers": _layer_buffers,
    "logits": _logits,
    "gradient_placeholders": _placeholders,
    "workspace": _workspace,
}
"""The formula of each line that the data group does not shard."""


def _written(workload: Workload) -> Inputs:
    """What a checkpoint is made of."""
    groups = ((times, weight) for times, ops in workload.ledger.groups() for op in ops for weight in op.weights)
    return {
        "trained_parameters": sum(times * one.parameters for times, one in groups if one.trained and not one.tied),
        "weight_bytes": workload.state.weight_bytes,
        "master_bytes": workload.state.master_bytes,
        "optimizer": workload.recipe.optimizer,
    }


def _peaks(resolved: ResolvedQuestion, memory: Memory, held_bytes: float) -> list[Explanation]:
    lines: Inputs = {line.kind: line.bytes for line in memory.stages[memory.peak_stage].lines}
    allocated, reserved, device = memory.allocated_peak_bytes, memory.reserved_peak_bytes, memory.device_peak_bytes
    exceeding: Inputs = {"device_bytes": device.value, "high_bytes": device.high, "usable_bytes": memory.usable_bytes}
    communicating: Inputs = {
        "reserved_bytes": reserved.value,
        "context_and_communicator_bytes": beside_allocator(resolved.workload)[1],
        "gpus": resolved.workload.cluster.gpus,
    }
    workload = resolved.workload
    holding: Inputs = {
        "allocated_bytes": allocated.value,
        "share": reserved_shares(workload)[1],
        "room_bytes": allocator_room_bytes(workload),
        "held_bytes": held_bytes,
    }
    gpu: Inputs = {"gpu": resolved.workload.gpu.slug}
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
        explained("memory.checkpoint_bytes", memory.checkpoint_bytes, checkpoint_bytes, _written(workload)),
    ]
