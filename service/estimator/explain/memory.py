"""Explanations of the memory of an answer: every line of every stage, and the peaks."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from service.estimator.answer import Estimate, Inputs, StageMemory
from service.estimator.degrees import GRADIENTS, OPTIMIZER_STATES, WEIGHTS, divisors
from service.estimator.explain.expression import (
    At,
    Explained,
    Expression,
    Working,
    fields_of,
    input_name,
    joined,
    numbers_of,
    summed_inputs,
    weighted_sum,
)
from service.estimator.memory import activations, device, states
from service.estimator.memory.memory import (
    ANSWER_KINDS,
    BETWEEN_STEPS,
    HOST_COPIES,
    HOST_GRADIENT_BYTES,
    LAYERS_ON_DEVICE,
    LIVE,
    OFF_DEVICE,
    OFFLOADED_ACTIVATIONS,
    StageBytes,
    early_gradient_bytes,
    first_step_lines,
    first_step_peak_bytes,
    left_bytes,
    live_bytes,
    mask_bytes,
    persistent_buffer_bytes,
    received_bytes,
    spread_bytes,
    stage_bytes,
    workspace_parts,
)
from service.estimator.model.ledger import Ops, by_operation
from service.estimator.parallelism.buckets import gather_bucket_numbers, reduce_bucket_numbers
from service.estimator.parallelism.context import exchanged_bytes, key_value_bytes
from service.estimator.parallelism.data import expert_shards, shards, waits_for_last
from service.estimator.parallelism.pipeline import HeldMoment, held_moments, in_flight
from service.estimator.parallelism.stages import Stage, handed_stream_bytes, sequence_stream_bytes, stream_bytes
from service.estimator.question import Recompute
from service.estimator.resolve import ResolvedQuestion
from service.estimator.run.run import LoadedStage, PeakStage, rank_bytes_of
from service.estimator.software.precision import moment_bytes, state_numbers


def memory_explanations(peak: PeakStage, estimate: Estimate, at: At) -> Iterator[Working]:
    """Explanations of every line of every stage, and of the peaks."""
    ranks = []
    for position, one in enumerate(peak.stages):
        rank = Rank(peak.resolved, one, _ends(peak, position), rank_bytes_of(peak.resolved, one))
        ranks.append(rank)
        yield from _stage(rank, estimate.memory.stages[position], at)
    yield from _peaks(ranks, estimate, at)


@dataclass(slots=True)
class Rank:
    """One rank of a stage, and the bytes that it holds."""

    resolved: ResolvedQuestion
    one: LoadedStage
    ends: list[Stage]
    """Stages of the pipeline that it serves: two with DualPipe."""
    held: StageBytes


def _ends(peak: PeakStage, position: int) -> list[Stage]:
    stages, layout = peak.stages, peak.resolved.question.layout
    own = stages[position].stage
    is_mirrored = layout.schedule == "dualpipe" and layout.pipeline > 1
    return [own, stages[-1 - position].stage] if is_mirrored else [own]


def _stage(rank: Rank, given: StageMemory, at: At) -> Iterator[Working]:
    path, resolved = f"memory.stages[{given.stage}]", rank.resolved
    for index, line in enumerate(given.lines):
        kinds = [
            kind
            for kind in LIVE[given.peak_phase]
            if ANSWER_KINDS.get(kind, kind) == line.kind and float(getattr(rank.held, kind))
        ]
        found = [(kind, *_LINES[kind](rank, kind)) for kind in kinds]
        parts = [part.under(kind) if len(found) > 1 else part for kind, _, part in found]
        whole = joined("+", parts)
        yield at(f"{path}.lines[{index}].bytes", found[-1][1], whole.text, whole.inputs)
    flights = _flights(rank)
    yield at(f"{path}.micro_batches_in_flight", in_flight, flights.text, flights.inputs)
    lines = summed_inputs({line.kind: line.bytes for line in given.lines}, "bytes")
    yield at(f"{path}.allocated_peak_bytes", device.allocated_interval, lines.text, lines.inputs)
    cached: Inputs = {"held_bytes": float(rank.held.cached)}
    yield at(f"{path}.cached_bytes", device.cached_bytes, "held_bytes", cached)
    beside = _reserved(resolved, given.allocated_peak_bytes, float(rank.held.cached))
    yield at(f"{path}.reserved_peak_bytes", device.reserved_bytes, beside.text, beside.inputs)
    settled = _reserved(resolved, given.allocated_peak_bytes, float(rank.held.settled_cached))
    fits = "(allocated_bytes + held_bytes) * share <= room_bytes"
    later = f"max(allocated_bytes * share, {_RESERVED} if {fits} else 0)"
    yield at(f"{path}.settled_reserved_bytes", device.settled_reserved_bytes, later, settled.inputs)
    several = float(resolved.degrees.accumulation) > 1
    first = summed_inputs({**first_step_lines(rank.held, several=several)}, "bytes")
    yield at(f"{path}.first_step_peak_bytes", first_step_peak_bytes, first.text, first.inputs)
    held = float(rank.held.cached_beside(given.first_step_peak_bytes))
    early = _reserved(resolved, given.first_step_peak_bytes, held)
    yield at(f"{path}.first_step_reserved_bytes", device.reserved_bytes, early.text, early.inputs)
    idle = summed_inputs({**live_bytes(rank.held, BETWEEN_STEPS, ())}, "bytes")
    yield at(f"{path}.idle_bytes", stage_bytes, idle.text, idle.inputs)


_RESERVED = "min(allocated_bytes * share + held_bytes, room_bytes / share)"


def _reserved(resolved: ResolvedQuestion, allocated_bytes: float, held_bytes: float) -> Expression:
    workload = resolved.workload
    return Expression(
        f"max(allocated_bytes * share, {_RESERVED})",
        {
            "allocated_bytes": allocated_bytes,
            "share": device.reserved_shares(workload)[1],
            "held_bytes": held_bytes,
            "room_bytes": device.allocator_room_bytes(workload),
        },
    )


def _sharded(rank: Rank, kind: str) -> Explained:
    """A line that the data group may shard, with what the rank that has most has beyond its even share."""
    workload, degrees, load = rank.resolved.workload, rank.resolved.degrees, rank.one.load
    name = {"buffered_gradients": "gradients"}.get(kind, _STEP_GRADIENTS.get(kind, kind))
    line = states.sharded_lines(workload, load)[name]
    inputs: Inputs = {
        "dense": float(line.dense),
        "dense_shards": float(shards(degrees, line.kind)),
        "expert": float(line.expert),
        "expert_shards": float(expert_shards(degrees, line.kind)),
        "bytes_each": line.each_bytes,
    }
    text = "(dense / dense_shards + expert / expert_shards) * bytes_each"
    undivided = float(states.undivided_share(workload, degrees, load))
    if not undivided or kind not in ("master_weights", "optimizer_states"):
        return states.sharded_bytes, Expression(text, inputs)
    inputs |= {"undivided": undivided, "numbers_each": 1 if kind == "master_weights" else states.WHOLE_MOMENTS}
    return states.dealt_bytes, Expression(f"{text} + undivided * numbers_each * bytes_each", inputs)


_STEP_GRADIENTS = {"persistent_gradients": "step_gradients", "left_step_gradients": "step_gradients"}


def _step_gradients(rank: Rank, kind: str) -> Explained:
    """fp32 gradients of the optimizer step, of one group of parameters where ZeRO makes them group by group."""
    workload, degrees = rank.resolved.workload, rank.resolved.degrees
    stage = degrees.zero_stage
    formula, whole = _sharded(rank, "step_gradients")
    whole = Expression(whole.text, {**whole.inputs, "decoupled_gradients": False})
    if not workload.stack.keeps_step_gradients or kind != "step_gradients" or stage < GRADIENTS:
        return formula, whole
    text, more = whole.text, {"flat_copy_fraction": states.flat_copy_fraction(workload)}
    if stage >= WEIGHTS:
        more |= {"group_numbers": states.STEP_GROUP_NUMBERS, "group_bytes_each": workload.stack.step_gradient_bytes}
        text = f"min({text}, group_numbers * group_bytes_each)"
    elif degrees.expert > 1:
        more |= {"group_numbers": states.EXPERT_GROUP_NUMBERS}
        text = "max(dense / dense_shards, min(expert, group_numbers) / expert_shards) * bytes_each"
    return states.step_gradient_lines, Expression(f"{text} * (1 + flat_copy_fraction)", {**whole.inputs, **more})


def _early_gradients(rank: Rank, _: str) -> Explained:
    """Gradients that are there before the last micro-batch runs backward."""
    workload, degrees, load = rank.resolved.workload, rank.resolved.degrees, rank.one.load
    several = float(degrees.accumulation) > 1
    away = "gradients" in OFF_DEVICE[rank.resolved.question.layout.offload]
    parts: list[Expression] = []
    if several and float(states.all_gathered_weights(workload, degrees, load).waiting_bytes) > 0:
        waiting = _trained(rank) | {"reduction_bytes": states.reduction_bytes(workload)}
        parts.append(Expression("trained_weights * reduction_bytes", waiting))
    elif (workload.stack.keeps_gradients or several) and not away:
        parts.append(_sharded(rank, "gradients")[1])
    if workload.stack.keeps_half_gradients == "always" and float(rank.held.half_gradients):
        parts.append(_sharded(rank, "half_gradients")[1].under("half_gradients"))
    parts += _grouped_gradients(rank)
    return early_gradient_bytes, joined("+", parts)


def _grouped_gradients(rank: Rank) -> list[Expression]:
    """Whole gradients of the chunk that runs backward, until those of its group of micro-batches are reduced."""
    workload, degrees = rank.resolved.workload, rank.resolved.degrees
    if not float(states.grouped_gradient_bytes(workload, degrees, rank.one.load)):
        return []
    if workload.implementation.accumulates_whole:
        flat: Inputs = {
            "flat_numbers": float(states.flat_parameters(rank.one.load)),
            "weight_bytes": workload.state.gathered_bytes,
        }
        return [Expression("flat_numbers * weight_bytes", flat)]
    inputs: Inputs = {
        **_trained(rank),
        **numbers_of(degrees, "virtual_pipeline"),
        "reduction_bytes": states.REDUCTION_BYTES,
    }
    return [Expression("trained_weights / virtual_pipeline * reduction_bytes", inputs)]


def _trained(rank: Rank) -> Inputs:
    parameters = rank.one.load.parameters
    return {"trained_weights": float(parameters.dense_trained + parameters.expert_trained)}


def _gathered_weights(rank: Rank, _: str) -> Explained:
    """Weights that are gathered from the data group: all of them, or one group and one layer, and other chunks."""
    workload, degrees, load = rank.resolved.workload, rank.resolved.degrees, rank.one.load
    every: Inputs = {
        "every_weight": float(load.parameters.dense + load.parameters.expert),
        "weight_bytes": workload.state.gathered_bytes,
    }
    if degrees.reshard_after_forward == 0:
        return states.all_gathered_weights, Expression("every_weight * weight_bytes", every)
    groups = numbers_of(load, "largest_layer", "gathered_ends")
    freed = "(largest_layer + gathered_ends) * weight_bytes"
    if ahead := gather_bucket_numbers(workload):
        groups["bucket_numbers"] = float(ahead)
        freed = "(max(largest_layer, bucket_numbers) + gathered_ends) * weight_bytes"
    if waits_for_last(workload, degrees):
        groups["chunks"] = 2.0 if len(rank.ends) > 1 else float(degrees.virtual_pipeline)
        freed += " + (1 - 1 / chunks) * every_weight * weight_bytes"
    text = f"min({freed}, every_weight * weight_bytes)"
    return states.all_gathered_weights, Expression(text, {**groups, **every})


def _kept_weights(rank: Rank, _: str) -> Explained:
    """The others, which a backward pass has gathered and keeps to its end."""
    load = rank.one.load
    inputs: Inputs = {
        "every_weight": float(load.parameters.dense + load.parameters.expert),
        "weight_bytes": rank.resolved.workload.state.gathered_bytes,
        "gathered_bytes": float(rank.held.gathered_weights),
    }
    return states.all_gathered_weights, Expression("every_weight * weight_bytes - gathered_bytes", inputs)


def _cast_weights(rank: Rank, kind: str) -> Explained:
    """Weights that autocast has cast: every trained one of a product, or those that the backward pass holds."""
    name = "late_cast_numbers" if kind == "late_cast_weights" else "cast_numbers"
    inputs = {**numbers_of(rank.one.load, name), "weight_bytes": rank.resolved.workload.state.gathered_bytes}
    return states.all_gathered_weights, Expression(f"{name} * weight_bytes", inputs)


def _reduced_gradients(rank: Rank, _: str) -> Explained:
    """Whole gradients that the data group reduces, and the dense one of the embedding."""
    workload, degrees, load = rank.resolved.workload, rank.resolved.degrees, rank.one.load
    reduction = states.reduction_bytes(workload)
    reducing: Inputs = {"weight_bytes": workload.state.gathered_bytes, "reduction_bytes": reduction}
    parts: list[Expression] = []
    if degrees.zero_stage >= WEIGHTS and degrees.shard_group > 1:
        if waits_for_last(workload, degrees):
            waiting = _trained(rank) | {"reduction_bytes": reduction}
            parts.append(Expression("trained_weights * reduction_bytes", waiting))
        elif degrees.reshard_after_forward == 1:
            text = "max(largest_trained_layer, largest_trained_end) * (weight_bytes + reduction_bytes)"
            largest = numbers_of(load, "largest_trained_layer", "largest_trained_end")
            parts.append(Expression(text, {**largest, **reducing}))
        else:
            text = "largest_trained_layer * (weight_bytes + reduction_bytes)"
            parts.append(Expression(text, {**numbers_of(load, "largest_trained_layer"), **reducing}))
    parts += _grouped_gradients(rank)
    formula = states.all_gathered_weights if parts else states.table_gradient_bytes
    table = float(states.table_gradient_bytes(workload, degrees, load))
    if table:
        buffered = workload.stack.keeps_gradients or degrees.zero_stage > 0
        each = float(workload.precision.element_bytes if buffered else workload.state.gradient_bytes)
        held: Inputs = {
            **numbers_of(load, "embedding_table"),
            "table_gradient_bytes": each,
            "tables": round(table / (each * float(load.embedding_table))),
        }
        parts.append(Expression("embedding_table * table_gradient_bytes * tables", held))
    return formula, joined("+", parts)


def _buckets(rank: Rank, _: str) -> Explained:
    """Buffers in which replicas add gradients up: as much as the gradients, or the stack's bucket."""
    workload, degrees, load = rank.resolved.workload, rank.resolved.degrees, rank.one.load
    parts: list[Expression] = []
    if workload.stack.buckets_gradients and degrees.zero_stage == 0 and degrees.data > 1:
        halves = workload.state.half_gradient_bytes
        copied = float(rank.held.half_gradients) if halves else float(rank.held.gradients)
        parts.append(Expression("gradient_bytes", {"gradient_bytes": copied}))
    if workload.stack.copies_buckets and degrees.zero_stage >= OPTIMIZER_STATES:
        inputs = _trained(rank) | {
            "largest_table": float(load.largest_table),
            "bucket_numbers": float(reduce_bucket_numbers(workload, degrees, is_first=True)),
            "bytes_each": workload.state.gradient_bytes,
            "buffers": float(states.bucket_copies(workload, degrees)),
        }
        numbers = "max(bucket_numbers, largest_table)"
        if not states.is_one_buffer(workload):
            numbers = f"min({numbers}, trained_weights)"
        elif degrees.zero_stage < WEIGHTS:
            numbers = "bucket_numbers"
        parts.append(Expression(f"buffers * {numbers} * bytes_each", inputs))
    return states.bucket_bytes, joined("+", parts)


def _context_buffers(rank: Rank, _: str) -> Explained:
    """Keys and values of other context ranks."""
    workload, degrees = rank.resolved.workload, rank.resolved.degrees
    method = rank.resolved.question.layout.context_method
    blocks = "min(2, context - 1)" if method == "ring" else "(context - 1)"
    inputs: Inputs = {
        "key_value_bytes": float(key_value_bytes(workload, degrees)),
        **numbers_of(degrees, "context"),
        "context_method": method,
    }
    return exchanged_bytes, Expression(f"{blocks} * key_value_bytes / context", inputs)


def _mask(rank: Rank, _: str) -> Explained:
    """The mask of all pairs of tokens of one micro-batch."""
    degrees, length = rank.resolved.degrees, rank.resolved.workload.recipe.sequence_length
    pairs = length**2 * float(degrees.micro_batch) / float(degrees.context)
    inputs: Inputs = {
        "bytes_each": float(rank.held.attention_mask) / pairs,
        "sequence_length": length,
        **numbers_of(degrees, "micro_batch", "context"),
    }
    return mask_bytes, Expression("bytes_each * sequence_length ** 2 * micro_batch / context", inputs)


def _stream(rank: Rank) -> Inputs:
    workload, degrees = rank.resolved.workload, rank.resolved.degrees
    return {
        "stream_bytes": float(sequence_stream_bytes(workload, degrees)),
        **numbers_of(degrees, "virtual_pipeline"),
    }


def _pipeline_buffers(rank: Rank, _: str) -> Explained:
    """What a stage has received of its neighbours."""
    text = "((1 if stage > 0 else 0) + (2 if virtual_pipeline > 1 else 0)) * stream_bytes"
    return received_bytes, Expression(text, {"stage": float(rank.one.stage.index), **_stream(rank)})


def _left_streams(rank: Rank, _: str) -> Explained:
    """What a stage still holds of its neighbours between two steps."""
    return left_bytes, Expression("2 * virtual_pipeline * stream_bytes", _stream(rank))


def _flights(rank: Rank) -> Expression:
    """Micro-batches in flight."""
    layout, degrees = rank.resolved.question.layout, rank.resolved.degrees
    stage: Inputs = {"stage": float(rank.one.stage.index)}
    if layout.schedule == "gpipe":
        return Expression("accumulation if pipeline > 1 else 1", numbers_of(degrees, "accumulation", "pipeline"))
    if layout.schedule == "dualpipe":
        text = "min(accumulation, pipeline + 1) if pipeline > 1 else 1"
        return Expression(text, numbers_of(degrees, "accumulation", "pipeline"))
    if layout.schedule == "interleaved-1f1b" and degrees.virtual_pipeline > 1:
        warm = "2 * (pipeline - stage - 1) + (virtual_pipeline - 1) * virtual_group + 1"
        numbers = numbers_of(degrees, "accumulation", "pipeline", "virtual_pipeline", "virtual_group")
        return Expression(f"min(accumulation * virtual_pipeline, {warm}) / virtual_pipeline", {**numbers, **stage})
    return Expression(
        "min(accumulation, pipeline - stage)", {**numbers_of(degrees, "accumulation", "pipeline"), **stage}
    )


def _activations(rank: Rank, kind: str) -> Explained:
    """Activations of all micro-batches in flight, at most or beside a loss, or of all but one."""
    layout, load = rank.resolved.question.layout, rank.one.load
    found = _kept_in_flight(rank, has_loss=kind == "loss_activations")
    inputs: Inputs = {
        **found.inputs,
        "recompute": rank.resolved.workload.recompute.granularity,
        "offload": layout.offload,
    }
    text = found.text
    if layout.offload in OFFLOADED_ACTIVATIONS:
        resident = {"layers_on_device": LAYERS_ON_DEVICE, "largest_layer_bytes": float(load.largest_kept_bytes)}
        text, inputs = f"min({text}, layers_on_device * largest_layer_bytes)", {**inputs, **resident}
    if kind == "other_activations":
        inputs["micro_batches_in_flight"] = float(rank.held.in_flight)
        text = f"({text}) * max(micro_batches_in_flight - 1, 0) / micro_batches_in_flight"
    return activations.stage_activations, Expression(text, inputs)


def _kept_in_flight(rank: Rank, *, has_loss: bool = False) -> Expression:
    """What each chunk keeps for a micro-batch, times how many of them are in flight at the peak, or beside a loss."""
    layout, degrees, kept = rank.resolved.question.layout, rank.resolved.degrees, rank.one.load.kept_bytes
    if layout.schedule != "interleaved-1f1b" or degrees.virtual_pipeline == 1:
        each = _kept_each(rank)
        inputs = {**each.inputs, "micro_batches_in_flight": float(rank.held.in_flight)}
        return Expression(f"micro_batches_in_flight * ({each.text})", inputs)

    def possible_bytes(moment: HeldMoment) -> float:
        return float(moment.held_bytes(kept)) if moment.happens else 0.0

    moments = held_moments(degrees, rank.one.stage.index, kept)
    peak = next(moments) if has_loss and rank.held.logits else max(moments, key=possible_bytes)
    usual = float(kept[len(kept) // 2])
    inputs = {"chunks_in_flight": float(peak.passes), "bytes_each_chunk": usual}
    text = "chunks_in_flight * bytes_each_chunk"
    for chunk, flights in peak.flights.items():
        name = f"chunk_{chunk}"
        inputs |= {f"{name}.in_flight": float(flights), f"{name}.bytes_each_micro_batch": float(kept[chunk])}
        text += f" + {name}.in_flight * ({name}.bytes_each_micro_batch - bytes_each_chunk)"
    return Expression(text, inputs)


def _kept_each(rank: Rank) -> Expression:
    """What the one chunk of a stage keeps for a micro-batch: by operation where its layers keep their own tensors."""
    workload, degrees, (kept, *_) = rank.resolved.workload, rank.resolved.degrees, rank.one.load.kept_bytes
    rule, stage = workload.recompute, rank.one.stage
    if len(rank.ends) > 1:
        return Expression("bytes_each_micro_batch", {"bytes_each_micro_batch": float(kept)})
    (ends, *_) = activations.end_activation_bytes(workload, degrees, stage)
    end: Inputs = {"ends_bytes": float(ends)}
    if rule.granularity == "full":
        streams = _streams_each(rank)
        return Expression(f"{streams.text} + ends_bytes", {**streams.inputs, **end})
    split = divisors(degrees, workload.model, workload.vocabulary_multiple)
    scale, by_kind = degrees.micro_batch / degrees.context, activations.layer_bytes_of(workload, degrees, rule)

    def amounts(kind: int, ops: Ops) -> dict[str, float]:
        if by_operation(rule):
            return {"bytes": float(by_kind[kind])}
        return {op.name: float(activations.kept_bytes((op,), rule, split) * scale) for op in ops}

    counts = enumerate(zip(stage.kind_counts, workload.ledger.kinds, strict=True))
    layers = {f"layer_kind_{kind}": (float(count), amounts(kind, ops)) for kind, (count, ops) in counts}
    found = weighted_sum(layers, "layers")
    return Expression(f"{found.text} + ends_bytes", {**found.inputs, **end})


def _streams_each(rank: Rank) -> Expression:
    """What full recompute keeps of a micro-batch: a stream for each group of layers, and layers that do not rerun."""
    workload, degrees, counts = rank.resolved.workload, rank.resolved.degrees, rank.one.stage.kind_counts
    rule, layers = workload.recompute, float(activations.trained_layers(workload, counts))
    whole = activations.layer_bytes_of(workload, degrees, activations.KEEP_ALL)
    total = sum(float(count) * float(each) for count, each in zip(counts, whole, strict=True))
    inputs: Inputs = {
        "layers": layers,
        "recomputed_layers": float(activations.recomputed_layers(rule, layers, 1)),
        "group_layers": _group_layers(rule),
        "stream_bytes": float(handed_stream_bytes(workload, degrees)),
        "mean_layer_bytes": total / max(layers, 1.0),
    }
    streams = "ceil(recomputed_layers / group_layers) * stream_bytes"
    return Expression(f"{streams} + (layers - recomputed_layers) * mean_layer_bytes", inputs)


def _group_layers(rule: Recompute) -> int:
    """Layers that full recompute runs again from one stream."""
    return 1 if rule.method == "block" else rule.layers or 1


def _of_ends(rank: Rank, of_stage: Callable[[Rank, Stage], Expression]) -> Expression:
    """The larger amount of the stages that the rank serves."""
    if len(rank.ends) == 1:
        return of_stage(rank, rank.ends[0])
    return joined("max", [of_stage(rank, end).under(f"end_{place}") for place, end in enumerate(rank.ends)])


def _by_kind(stage: Stage, amounts: list[float], word: str) -> Expression:
    """The largest of one amount a kind of layer, among the kinds that a stage has."""
    held = [kind for kind, count in enumerate(stage.kind_counts) if count > 0]
    named = {input_name(f"layer_kind_{kind}", word): amounts[kind] for kind in held}
    return joined("max", [Expression(name, {name: amount}) for name, amount in named.items()])


def _recomputed(rank: Rank, _: str) -> Explained:
    """Activations that live once, while layers are computed again; where others are offloaded, those of few layers."""
    found = _of_ends(rank, _recomputed_of)
    if rank.resolved.question.layout.offload not in OFFLOADED_ACTIVATIONS:
        return activations.stage_activations, found
    resident: Inputs = {
        "layers_on_device": LAYERS_ON_DEVICE,
        "largest_whole_layer_bytes": float(rank.one.load.largest_whole_bytes),
        "resident_bytes": float(rank.held.activations),
    }
    text = f"min({found.text}, max(layers_on_device * largest_whole_layer_bytes - resident_bytes, 0))"
    return activations.stage_activations, Expression(text, {**found.inputs, **resident})


def _recomputed_of(rank: Rank, stage: Stage) -> Expression:
    """The most that a layer computes again, by kind: what it dropped, or with full recompute a group of layers."""
    word = "dropped_bytes" if rank.resolved.workload.recompute.granularity != "full" else "group_bytes"
    return _by_kind(stage, _again(rank, stage), word)


def _again(rank: Rank, stage: Stage) -> list[float]:
    found = activations.stage_activations(rank.resolved.workload, rank.resolved.degrees, stage)
    return [float(one) for one in found.again_bytes]


def _layer_buffers(rank: Rank, _: str) -> Explained:
    """What the backward pass of one layer holds beside kept activations."""
    return activations.layer_buffer_bytes, _of_ends(rank, _layer_buffers_of)


def _layer_buffers_of(rank: Rank, stage: Stage) -> Expression:
    parts = activations.layer_buffer_parts(rank.resolved.workload, rank.resolved.degrees, stage)
    held = [kind for kind, count in enumerate(stage.kind_counts) if count > 0]
    inputs: Inputs = {"head_bytes": float(parts.end_bytes), "stream_bytes": float(parts.stream_bytes)}
    found = activations.stage_activations(rank.resolved.workload, rank.resolved.degrees, stage)
    others = {"again_bytes": found.again_bytes} | ({"kept_bytes": found.layer_bytes} if _sends_away(rank) else {})
    named = {word: [float(one) for one in own] for word, own in others.items()}
    named = {word: own for word, own in named.items() if any(own[kind] for kind in held)}
    terms = []
    for kind in held:
        own = {f"layer_kind_{kind}.{word}": each[kind] for word, each in named.items()}
        inputs |= {f"layer_kind_{kind}.most_bytes": float(parts.worst_bytes[kind]), **own}
        terms.append(" + ".join(("stream_bytes", f"layer_kind_{kind}.most_bytes", *own)))
    largest = f"max({', '.join((*terms, '0'))})" if terms else "0"
    beside = [f" - max({', '.join((*(f'layer_kind_{kind}.{word}' for kind in held), '0'))})" for word in named]
    return Expression(f"max(0, head_bytes + {largest}{''.join(beside)})", inputs)


def _sends_away(rank: Rank) -> bool:
    """Whether activations of all layers but a few are in host memory."""
    most = LAYERS_ON_DEVICE * float(rank.one.load.largest_kept_bytes)
    return rank.resolved.question.layout.offload in OFFLOADED_ACTIVATIONS and float(rank.held.activations) == most


def _logits(rank: Rank, _: str) -> Explained:
    """Logits and their losses, at their peak, and what the losses of other micro-batches in flight have kept."""
    workload, degrees = rank.resolved.workload, rank.resolved.degrees
    stream = float(stream_bytes(workload, degrees))
    is_split = degrees.sequence_parallel == 1 and degrees.tensor > 1
    losses = rank.held.in_flight if rank.resolved.question.layout.schedule == "gpipe" else 1
    inputs: Inputs = {
        "logits": float(activations.rank_logits(workload, degrees)),
        "bytes_a_logit": float(activations.logit_bytes(workload, degrees)),
        "element_bytes": workload.precision.element_bytes,
        "stream_bytes": stream,
        "shared_stream_bytes": stream / float(degrees.tensor) if is_split else 0.0,
        "head_gradient_bytes": float(activations.head_product_bytes(workload, degrees)),
        "depths": workload.ledger.depths,
        "kept_bytes_a_logit": workload.cross_entropy.kept_bytes,
        "losses_in_flight": float(losses),
        "parts": workload.cross_entropy.parts(workload.model),
        "cross_entropy": workload.software.cross_entropy,
    }
    moments = ["logits * bytes_a_logit", "logits * element_bytes / parts + stream_bytes + shared_stream_bytes"]
    moments[1] += " + head_gradient_bytes"
    if piece := float(activations.piece_bytes(workload, degrees)):
        inputs["piece_bytes"], moments[0] = piece, f"{moments[0]} + piece_bytes"
    made = ["logits * element_bytes"]
    if whole := float(activations.dequantized_head_bytes(workload, degrees)):
        inputs["dequantized_head_bytes"], moments[1] = whole, f"{moments[1]} + dequantized_head_bytes"
        made[0] = f"{made[0]} + dequantized_head_bytes"
    if held := activations.held_logit_bytes(workload):
        inputs["held_bytes_a_logit"] = held
        moments[1] += " + logits * held_bytes_a_logit"
    if workload.software.logits_until == "next":
        inputs["held_results_bytes"] = float(activations.held_result_bytes(workload, degrees))
        made.append("logits * (element_bytes + held_bytes_a_logit)")
        moments.append(f"max({', '.join(made)}) + held_results_bytes")
    kept = "(depths + (losses_in_flight - 1) * (1 + depths)) * logits * kept_bytes_a_logit"
    return activations.logits_bytes, Expression(f"max({', '.join(moments)}) + {kept}", inputs)


def _placeholders(rank: Rank, _: str) -> Explained:
    """Empty gradients, one for all matrices of a shape."""
    return activations.placeholder_bytes, _of_ends(rank, _placeholders_of)


def _placeholders_of(rank: Rank, stage: Stage) -> Expression:
    shapes = activations.placeholder_shapes(rank.resolved.workload, rank.resolved.degrees, stage)
    each = activations.GRADIENT_BYTES
    numbers = {f"matrix_{rows}_by_{columns}": float(held) / each for (rows, columns), held in shapes.items() if held}
    total = summed_inputs({**numbers})
    return Expression(f"bytes_each * ({total.text})", {"bytes_each": each, **total.inputs})


def _flat_copies(rank: Rank, _: str) -> Explained:
    """Flat copies of updated weights, while the data group gathers them."""
    degrees, weight = rank.resolved.degrees, rank.resolved.workload.state.weight_bytes
    inputs: Inputs = {**_trained(rank), "weight_bytes": weight, **numbers_of(degrees, "shard_group")}
    return device.flat_copy_bytes, Expression("trained_weights * weight_bytes * (2 + 1 / shard_group)", inputs)


def _workspace(rank: Rank, _: str) -> Explained:
    """Workspaces of libraries and buffers that stay."""
    workload, degrees = rank.resolved.workload, rank.resolved.degrees
    parts = workspace_parts(workload, degrees, has_head=rank.one.load.logits_bytes > 0)
    held = {name: float(amount) for name, amount in parts.items() if float(amount)}
    return persistent_buffer_bytes, summed_inputs({**held}, "bytes")


_LINES: dict[str, Callable[[Rank, str], Explained]] = {
    **dict.fromkeys(
        (
            "weights", "frozen_weights", "quantized_weights", "weight_copies", "gradients", "half_gradients",
            "buffered_gradients", "master_weights", "optimizer_states", "optimizer_scales", "moving_average",
            "update_buffers",
        ),
        _sharded,
    ),
    "step_gradients": _step_gradients,
    "persistent_gradients": _step_gradients,
    "left_step_gradients": _step_gradients,
    "early_gradients": _early_gradients,
    "gathered_weights": _gathered_weights,
    "kept_weights": _kept_weights,
    "cast_weights": _cast_weights,
    "late_cast_weights": _cast_weights,
    "reduced_gradients": _reduced_gradients,
    "gradient_buckets": _buckets,
    "flat_copies": _flat_copies,
    "context_buffers": _context_buffers,
    "attention_mask": _mask,
    "pipeline_buffers": _pipeline_buffers,
    "left_streams": _left_streams,
    "activations": _activations,
    "loss_activations": _activations,
    "other_activations": _activations,
    "recomputed_activations": _recomputed,
    "layer_buffers": _layer_buffers,
    "logits": _logits,
    "gradient_placeholders": _placeholders,
    "workspace": _workspace,
}  # fmt: skip
"""The formula and the expression of each kind of `StageBytes`."""


def _peaks(ranks: list[Rank], estimate: Estimate, at: At) -> Iterator[Working]:
    workload, memory, peak = ranks[0].resolved.workload, estimate.memory, estimate.memory.device_peak_bytes
    at_peak = ranks[memory.peak_stage]
    reserved = _reserved(at_peak.resolved, memory.allocated_peak_bytes.value, float(at_peak.held.cached))
    beside: Inputs = {
        "reserved_peak_bytes": memory.reserved_peak_bytes.value,
        "context_and_communicator_bytes": device.beside_allocator(workload)[1],
        "gpus": workload.cluster.gpus,
    }
    usable = fields_of(memory, "usable_bytes")
    lines = summed_inputs({line.kind: line.bytes for line in memory.stages[memory.peak_stage].lines}, "bytes")
    risk: Inputs = {"device_peak_bytes": peak.value, "high_bytes": peak.high, **usable, "deviations": device.NORMAL_80}
    beyond = "deviations * log(usable_bytes / device_peak_bytes) / log(high_bytes / device_peak_bytes)"
    chance = f"(1 - erf({beyond} / sqrt(2))) / 2"
    gpu: Inputs = {"gpu": workload.gpu.slug, **usable}
    yield at("memory.allocated_peak_bytes.value", device.allocated_interval, lines.text, lines.inputs)
    yield at("memory.reserved_peak_bytes.value", device.reserved_bytes, reserved.text, reserved.inputs)
    both = "reserved_peak_bytes + context_and_communicator_bytes"
    yield at("memory.device_peak_bytes.value", device.device_interval, both, beside)
    yield at("memory.oom_probability_fraction", device.oom_probability_fraction, chance, risk)
    yield at("memory.usable_bytes", device.usable_bytes, "usable_bytes", gpu)
    left: Inputs = {**usable, "device_peak_bytes": peak.value}
    yield at("memory.headroom_bytes", device.headroom_bytes, "usable_bytes - device_peak_bytes", left)
    host = _host(max(ranks, key=lambda rank: float(rank.held.host)))
    yield at("memory.host_bytes", states.sharded_bytes, host.text, host.inputs)
    written = _checkpoint(ranks[0].resolved)
    yield at("memory.checkpoint_bytes", states.checkpoint_bytes, written.text, written.inputs)


def _host(rank: Rank) -> Expression:
    """What is in host memory of the rank that has most there: offloaded kinds, gradients beside them, activations."""
    workload, degrees, load = rank.resolved.workload, rank.resolved.degrees, rank.one.load
    offload = rank.resolved.question.layout.offload
    away, spread = (*OFF_DEVICE[offload], *HOST_COPIES.get(offload, ())), spread_bytes(workload, degrees, load)
    amounts: Inputs = {name: float(spread[name]) for name in away if float(spread[name])}
    if away:
        trained = load.updated.dense_trained, load.updated.expert_trained
        amounts["host_gradients"] = float(
            states.sharded_bytes(*trained, degrees, HOST_GRADIENT_BYTES, OPTIMIZER_STATES)
        )
    found = summed_inputs(amounts, "bytes")
    if offload in OFFLOADED_ACTIVATIONS:
        kept = _kept_in_flight(rank)
        resident: Inputs = {
            "layers_on_device": LAYERS_ON_DEVICE,
            "largest_layer_bytes": float(load.largest_kept_bytes),
        }
        text = f"{found.text} + max(0, {kept.text} - layers_on_device * largest_layer_bytes)"
        found = Expression(text, {**found.inputs, **kept.inputs, **resident})
    return Expression(found.text, {**found.inputs, "offload": offload})


def _checkpoint(resolved: ResolvedQuestion) -> Expression:
    """Bytes of a checkpoint: trained weights, those of parts trained whole beside adapters in a format of their own."""
    workload = resolved.workload
    state, optimizer = workload.state, workload.optimizer
    moment = moment_bytes(optimizer, workload.precision, workload.recipe.moment_dtype)
    numbers = {"trained": 0.0, "moments": 0.0, "copied": 0.0, "copied_moments": 0.0}
    for times, ops in workload.ledger.groups():
        for weight in (one for op in ops for one in op.weights if one.trained and not one.tied):
            is_copied = workload.method.name != "full" and weight.role != "adapter"
            numbers["copied" if is_copied else "trained"] += times * weight.parameters
            numbers["copied_moments" if is_copied else "moments"] += times * state_numbers(optimizer, weight)
    inputs: Inputs = {
        **numbers,
        **fields_of(state, "weight_bytes", "master_bytes"),
        "average_bytes": states.AVERAGE_BYTES if workload.recipe.ema else 0.0,
        "moment_bytes": moment,
        "scale_bytes": optimizer.scale_bytes,
        "copied_weight_bytes": state.weight_bytes * state.copied_fraction,
        "copied_moment_bytes": moment * (state.copied_fraction if states.follows_weights(workload) else 1.0),
        "optimizer": workload.recipe.optimizer,
    }
    beside = "master_bytes + average_bytes"
    own = f"trained * (weight_bytes + {beside}) + moments * (moment_bytes + scale_bytes)"
    copies = f"copied * (copied_weight_bytes + {beside}) + copied_moments * (copied_moment_bytes + scale_bytes)"
    return Expression(f"{own} + {copies}" if numbers["copied"] else own, inputs)
