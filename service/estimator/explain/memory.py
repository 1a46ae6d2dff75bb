"""Explanations of the lines of the memory answer."""

from collections.abc import Callable, Iterator
from typing import Any

from service.estimator.answer import Memory, StageMemory
from service.estimator.degrees import divisors, padded_vocabulary
from service.estimator.explain.explanation import Explanation, Inputs, explained
from service.estimator.memory.activations import (
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
from service.estimator.software.stacks import version_of

FormulaInputs = tuple[Callable[..., Any], Inputs]
"""The formula of a line, and its inputs."""


def memory_explanations(resolved: ResolvedQuestion, stages: list[LoadedStage], memory: Memory) -> list[Explanation]:
    """Explanations of every line of every stage, and of the peaks."""
    workload, degrees, layout = resolved.workload, resolved.degrees, resolved.question.layout
    every = [stage_bytes(workload, degrees, one.stage, one.load, layout) for one in stages]
    explanations: list[Explanation] = []
    for position, (one, rank_bytes) in enumerate(zip(stages, every, strict=True)):
        explanations += _stage(resolved, one, rank_bytes, memory.stages[position], f"memory.stages[{position}]")
    return [*explanations, *_peaks(resolved, memory, float(every[memory.peak_stage].held))]


def _stage(
    resolved: ResolvedQuestion, one: LoadedStage, rank_bytes: StageBytes, given: StageMemory, path: str
) -> Iterator[Explanation]:
    sharded, formulas = sharded_lines(resolved.workload, one.load), _line_formulas(resolved, one)
    for index, line in enumerate(given.lines):
        operands = sharded.get(line.kind)
        formula, inputs = formulas[line.kind] if operands is None else _sharded(resolved, one, operands)
        yield explained(f"{path}.lines[{index}].bytes", line.bytes, formula, inputs)
    flying: Inputs = {"stage": given.stage, "accumulation": float(resolved.degrees.accumulation)}
    yield explained(f"{path}.micro_batches_in_flight", given.micro_batches_in_flight, in_flight, flying)
    lines: Inputs = {line.kind: line.bytes for line in given.lines}
    yield explained(f"{path}.allocated_peak_bytes", given.allocated_peak_bytes, allocated_interval, lines)
    beside: Inputs = {"allocated_bytes": given.allocated_peak_bytes, "held_bytes": float(rank_bytes.held)}
    yield explained(f"{path}.reserved_peak_bytes", given.reserved_peak_bytes, reserved_bytes, beside)
    first: Inputs = {**first_step_lines(rank_bytes, several=float(resolved.degrees.accumulation) > 1)}
    yield explained(f"{path}.first_step_peak_bytes", given.first_step_peak_bytes, first_step_peak_bytes, first)
    idle: Inputs = {**live_bytes(rank_bytes, BETWEEN_STEPS, ())}
    yield explained(f"{path}.idle_bytes", given.idle_bytes, stage_bytes, idle)


def _sharded(resolved: ResolvedQuestion, one: LoadedStage, line: Sharded) -> FormulaInputs:
    """The formula of a line that the data group may shard, and its inputs."""
    inputs: Inputs = {
        "dense": float(line.dense),
        "dense_shards": float(shards(resolved.degrees, line.kind)),
        "expert": float(line.expert),
        "expert_shards": float(expert_shards(resolved.degrees, line.kind)),
        "bytes_each": line.each_bytes,
    }
    undivided = float(undivided_share(resolved.workload, resolved.degrees, one.load))
    return sharded_bytes, {**inputs, "undivided": undivided} if undivided else inputs


def _floats(source: object, *names: str) -> Inputs:
    return {name: float(getattr(source, name)) for name in names}


def _line_formulas(resolved: ResolvedQuestion, one: LoadedStage) -> dict[str, FormulaInputs]:
    """The formula of each line that the data group does not shard, and its inputs."""
    workload, degrees, layout, load = resolved.workload, resolved.degrees, resolved.question.layout, one.load
    software = workload.software
    trained = float(load.held.dense_trained + load.held.expert_trained)
    rank_tokens = _floats(degrees, "micro_batch", "context")
    stream: Inputs = {"stream_bytes": float(sequence_stream_bytes(workload, degrees))}
    gathered: FormulaInputs = (
        all_gathered_weights,
        {
            "every_weight": float(load.held.dense + load.held.expert),
            **_floats(load, "largest_layer", "gathered_ends"),
            "trained_weights": trained,
            **_floats(load, "largest_trained_layer", "largest_trained_end", "embedding_table"),
            "weight_bytes": workload.state.gathered_bytes,
            "reduction_bytes": REDUCTION_BYTES,
            **_floats(degrees, "zero_stage", "reshard_after_forward"),
        },
    )
    activations: FormulaInputs = (stage_activations, _activation_inputs(resolved, one))
    return {
        "gathered_weights": gathered,
        "reduced_gradients": gathered,
        "gradient_buckets": (
            bucket_bytes,
            {
                "trained_weights": trained,
                "largest_table": float(load.largest_table),
                "bucket_numbers": float(workload.stack.bucket_numbers),
                "bytes_each": workload.state.gradient_bytes,
                **_floats(degrees, "zero_stage", "data"),
            },
        ),
        "context_buffers": (
            exchanged_bytes,
            {
                "key_value_bytes": float(key_value_bytes(workload, degrees)),
                "context": float(degrees.context),
                "context_method": layout.context_method,
            },
        ),
        "attention_mask": (mask_bytes, {"sequence_length": workload.recipe.sequence_length, **rank_tokens}),
        "pipeline_buffers": (received_bytes, {"stage": float(one.stage.index), **stream}),
        "left_streams": (left_bytes, {"chunks": len(one.stage.chunk_counts), **stream}),
        "activations": activations,
        "recomputed_activations": activations,
        "layer_buffers": (
            layer_buffer_bytes,
            {
                "stream_bytes": float(handed_stream_bytes(workload, degrees)),
                "gradient_bytes": float(lasting_gradient_bytes(workload, degrees)),
            },
        ),
        "logits": (
            logits_bytes,
            {
                "losses": 1 + workload.ledger.depths,
                "tokens": workload.recipe.sequence_length * float(degrees.micro_batch) / float(degrees.context),
                "padded_vocabulary": float(
                    padded_vocabulary(workload.model, workload.vocabulary_multiple, degrees.tensor)
                ),
                "tensor": float(degrees.tensor),
                "logit_bytes": workload.cross_entropy.logit_bytes(workload.precision.element_bytes),
                "cross_entropy": software.cross_entropy,
            },
        ),
        "gradient_placeholders": (
            placeholder_bytes,
            {
                "transformer_engine": version_of(software, "transformer_engine"),
                "megatron_core": version_of(software, "megatron_core"),
                "tensor": float(degrees.tensor),
            },
        ),
        "workspace": (
            persistent_buffer_bytes,
            {
                "architecture": workload.gpu.architecture,
                "implementation": software.implementation,
                "deterministic": software.deterministic,
            },
        ),
    }


def _activation_inputs(resolved: ResolvedQuestion, one: LoadedStage) -> Inputs:
    """Bytes that each operation of a layer saves, by kind of layer, and what each chunk has in flight."""
    workload, degrees, layout = resolved.workload, resolved.degrees, resolved.question.layout
    split = divisors(degrees, workload.model, workload.vocabulary_multiple)
    scale = degrees.micro_batch / degrees.context
    flying = in_flight(layout.schedule, degrees, one.stage.index, len(one.stage.chunk_counts))
    return {
        **{
            f"layer_kind_{kind}.{op.name}": float(kept_bytes((op,), workload.recompute, split) * scale)
            for kind, ops in enumerate(workload.ledger.kinds)
            for op in ops
            if op.saved
        },
        "layers": float(one.stage.layers),
        **{f"chunk_{place}.bytes_each_micro_batch": float(saved) for place, saved in enumerate(one.load.kept_bytes)},
        **{f"chunk_{place}.micro_batches_in_flight": float(count) for place, count in enumerate(flying)},
        "recomputing_bytes": float(one.load.recomputed_bytes),
        **_floats(degrees, "micro_batch", "context"),
        "recompute": workload.recompute.granularity,
        "offload": layout.offload,
    }


def _peaks(resolved: ResolvedQuestion, memory: Memory, held_bytes: float) -> list[Explanation]:
    workload, reserved, device = resolved.workload, memory.reserved_peak_bytes.value, memory.device_peak_bytes
    weights = [(times, one) for times, ops in workload.ledger.groups() for op in ops for one in op.weights]
    lines: Inputs = {line.kind: line.bytes for line in memory.stages[memory.peak_stage].lines}
    held: Inputs = {
        "allocated_bytes": memory.allocated_peak_bytes.value,
        "share": reserved_shares(workload)[1],
        "room_bytes": allocator_room_bytes(workload),
        "held_bytes": held_bytes,
    }
    used: Inputs = {
        "reserved_bytes": reserved,
        "context_and_communicator_bytes": beside_allocator(workload)[1],
        "gpus": workload.cluster.gpus,
    }
    usable: Inputs = {"usable_bytes": memory.usable_bytes}
    written: Inputs = {
        "trained_parameters": sum(times * one.parameters for times, one in weights if one.trained and not one.tied),
        "weight_bytes": workload.state.weight_bytes,
        "master_bytes": workload.state.master_bytes,
        "optimizer": workload.recipe.optimizer,
    }
    spread: Inputs = {"device_bytes": device.value, "high_bytes": device.high, **usable}
    rows: tuple[tuple[str, float, Callable[..., Any], Inputs], ...] = (
        ("allocated_peak_bytes.value", memory.allocated_peak_bytes.value, allocated_interval, lines),
        ("reserved_peak_bytes.value", reserved, reserved_bytes, held),
        ("device_peak_bytes.value", device.value, device_interval, used),
        ("oom_probability_fraction", memory.oom_probability_fraction, oom_probability_fraction, spread),
        ("usable_bytes", memory.usable_bytes, usable_bytes, {"gpu": workload.gpu.slug}),
        ("headroom_bytes", memory.headroom_bytes, headroom_bytes, {**usable, "device_bytes": device.value}),
        ("host_bytes", memory.host_bytes, sharded_bytes, {"offload": resolved.question.layout.offload}),
        ("checkpoint_bytes", memory.checkpoint_bytes, checkpoint_bytes, written),
    )
    return [explained(f"memory.{name}", value, formula, inputs) for name, value, formula, inputs in rows]
