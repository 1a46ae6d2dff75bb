"""Explanations of the numbers of an answer, each computed again from its inputs."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any

from service.estimator.answer import Estimate, RunStageTotals, StageMemory, Step, Totals
from service.estimator.complete import CompleteStage
from service.estimator.constants import LAUNCH_SECONDS, measured_scale
from service.estimator.degrees import divisors, padded_vocabulary
from service.estimator.explain.explanation import Explanation, Inputs, applied, explained
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
from service.estimator.model.counts import (
    forward_flop,
    padding_flop,
    palm_flop,
    parameter_counts,
    per_token_flop,
    recompute_flop,
    run_flop,
    sequence_flop,
    six_n_flop,
    step_flop,
)
from service.estimator.model.ledger import Ops, documents_of, padding_fraction, step_tokens, trained_tokens
from service.estimator.parallelism.context import exchanged_bytes, key_value_bytes
from service.estimator.parallelism.data import expert_shards, shards
from service.estimator.parallelism.pipeline import bubble_micro_batches, in_flight
from service.estimator.parallelism.stages import (
    handed_stream_bytes,
    rank_parameters,
    sequence_stream_bytes,
    stage_total,
)
from service.estimator.question import Question, Recipe
from service.estimator.resolve import ResolvedQuestion, resolve
from service.estimator.run.cost import carbon_kg_co2e, charges_of, energy_kwh, gpu_watts, sum_usd
from service.estimator.run.run import peak_stage_in, phase_seconds, tokens_per_s_per_gpu, utilisation_fraction
from service.estimator.run.stages import LoadedStage, rank_bytes_of, stages_of, total_seconds
from service.estimator.run.totals import (
    INTERVALS,
    LostShares,
    checkpointing_of,
    goodput_fraction,
    interruption_inputs,
    interruption_seconds,
    lost_days,
    lost_shares_of,
    stall_seconds,
    usage_of,
    written_bytes,
)
from service.estimator.schedule import (
    at_peak_gpu_hours,
    billed_gpu_hours,
    gpu_hours,
    ideal_days,
    run_days,
    spare_gpu_hours,
    spare_gpus,
    steps_of,
    steps_of_phases,
)
from service.estimator.software.precision import highest_peak_flop_per_s
from service.estimator.time.collectives import interconnect_of, transfer_seconds
from service.estimator.time.communication import offloaded_activation_seconds
from service.estimator.time.kernels import (
    accumulation_seconds,
    attention_seconds,
    limited_watts,
    op_seconds,
    optimizer_seconds,
    product_seconds,
    rates_of,
    stack_scale,
)
from service.estimator.time.step import host_seconds, loss_seconds, other_seconds, pressure_fraction, straggler_seconds
from service.estimator.workload import Workload


def _at(estimate: Estimate, path: str, formula: Callable[..., Any], inputs: Inputs) -> Explanation:
    """The explanation of the number at a path of the answer."""
    return explained(path, attrgetter(path)(estimate), formula, inputs)


def _floats(source: object, *names: str) -> Inputs:
    return {name: float(getattr(source, name)) for name in names}


def explanations(question: Question, estimate: Estimate) -> tuple[Explanation, ...]:
    """Every explained number of an answer."""
    resolved = resolve(question)
    stages, peak = stages_of(resolved), peak_stage_in(resolved)
    return (
        *_parameters(resolved, stages, estimate),
        *_memory(peak.resolved, peak.stages, estimate),
        *_flop(resolved.workload, estimate),
        *_step(resolved.workload, estimate),
        *_totals(resolved, estimate),
        *_run_stages(resolved, estimate),
    )


def _parameters(resolved: ResolvedQuestion, stages: list[LoadedStage], estimate: Estimate) -> Iterator[Explanation]:
    """Explanations of every count of the model and of its stages."""
    model, ledger, parameters = resolved.workload.model, resolved.workload.ledger, estimate.parameters
    table: Inputs = {"vocab_size": model.vocab_size, "embedding_width": model.embedding_width}
    total: Inputs = {"total": parameters.total}
    experts: Inputs = {
        **total,
        "routed_experts": parameters.routed_experts,
        "num_experts": model.num_experts,
        "num_experts_per_tok": model.num_experts_per_tok,
    }
    outside: Inputs = {
        "input_embedding": parameters.input_embedding,
        "position_embedding": parameters.position_embedding,
        "lm_head": parameters.lm_head,
    }
    depths: Inputs = {"depths": model.num_nextn_predict_layers, "own": parameters.multi_token_prediction}
    layers = enumerate(zip(ledger.kind_counts(), ledger.kinds, strict=True))
    parts: Inputs = {
        "embedding": _parameters_of(ledger.embedding),
        **{f"layer_kind_{kind}": _parameters_of(ops) * count for kind, (count, ops) in layers},
        "head": _parameters_of(ledger.head),
    }
    trained = resolved.workload.method
    method: Inputs = {
        "method": trained.name,
        "rank": trained.rank,
        "targets": ", ".join(trained.targets),
        "frozen": ", ".join(trained.frozen),
        "frozen_layers": trained.frozen_layers,
    }
    rows: dict[str, Inputs] = {
        "total": parts,
        "trained": method,
        "adapters": method,
        "active": experts,
        "active_by_definition.total": experts,
        "active_by_definition.without_input_embedding": {**experts, **table},
        "active_by_definition.non_embedding": {**experts, **outside},
        "non_embedding": {**total, **outside},
        "input_embedding": table,
        "position_embedding": {"rows": model.position_embedding_rows},
        "lm_head": {**table, "tied": int(model.tie_word_embeddings)},
        "routed_experts": {"expert_width": model.expert_width, "num_experts": model.num_experts},
        "shared_experts": {"shared_expert_intermediate_size": model.shared_expert_intermediate_size},
        "multi_token_prediction": depths,
        "total_with_multi_token_prediction": {**total, **depths},
    }
    for name, inputs in rows.items():
        yield _at(estimate, f"parameters.{name}", parameter_counts, inputs)
    for position, (one, counted) in enumerate(zip(stages, parameters.stages, strict=True)):
        path = f"parameters.stages[{position}]"
        yield explained(f"{path}.total", counted.total, stage_total, {"layers": float(one.stage.layers)})
        yield explained(
            f"{path}.per_rank", counted.per_rank, rank_parameters, _floats(one.load.parameters, "dense", "expert")
        )


def _parameters_of(ops: Ops) -> int:
    return sum(weight.parameters for op in ops for weight in op.weights if not weight.tied and weight.role != "adapter")


FormulaInputs = tuple[Callable[..., Any], Inputs]
"""The formula of a line, and its inputs."""


def _memory(resolved: ResolvedQuestion, stages: list[LoadedStage], estimate: Estimate) -> list[Explanation]:
    """Explanations of every line of every stage, and of the peaks."""
    memory, every = estimate.memory, [rank_bytes_of(resolved, one) for one in stages]
    explanations: list[Explanation] = []
    for position, (one, rank_bytes) in enumerate(zip(stages, every, strict=True)):
        explanations += _stage_memory(resolved, one, rank_bytes, memory.stages[position], f"memory.stages[{position}]")
    return [*explanations, *_peaks(resolved, estimate, float(every[memory.peak_stage].cached))]


def _stage_memory(
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
    beside: Inputs = {"allocated_bytes": given.allocated_peak_bytes, "held_bytes": float(rank_bytes.cached)}
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


def _line_formulas(resolved: ResolvedQuestion, one: LoadedStage) -> dict[str, FormulaInputs]:
    """The formula of each line that the data group does not shard, and its inputs."""
    workload, degrees, layout, load = resolved.workload, resolved.degrees, resolved.question.layout, one.load
    software = workload.software
    trained = float(load.parameters.dense_trained + load.parameters.expert_trained)
    rank_tokens = _floats(degrees, "micro_batch", "context")
    stream: Inputs = {"stream_bytes": float(sequence_stream_bytes(workload, degrees))}
    gathered: FormulaInputs = (
        all_gathered_weights,
        {
            "every_weight": float(load.parameters.dense + load.parameters.expert),
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
                "transformer_engine": workload.versions.transformer_engine,
                "megatron_core": workload.versions.megatron_core,
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


def _peaks(resolved: ResolvedQuestion, estimate: Estimate, held_bytes: float) -> list[Explanation]:
    workload, memory = resolved.workload, estimate.memory
    reserved, device = memory.reserved_peak_bytes.value, memory.device_peak_bytes
    weights = [(times, one) for times, ops in workload.ledger.groups() for op in ops for one in op.weights]
    usable: Inputs = {"usable_bytes": memory.usable_bytes}
    rows: dict[str, FormulaInputs] = {
        "allocated_peak_bytes.value": (
            allocated_interval,
            {line.kind: line.bytes for line in memory.stages[memory.peak_stage].lines},
        ),
        "reserved_peak_bytes.value": (
            reserved_bytes,
            {
                "allocated_bytes": memory.allocated_peak_bytes.value,
                "share": reserved_shares(workload)[1],
                "room_bytes": allocator_room_bytes(workload),
                "held_bytes": held_bytes,
            },
        ),
        "device_peak_bytes.value": (
            device_interval,
            {
                "reserved_bytes": reserved,
                "context_and_communicator_bytes": beside_allocator(workload)[1],
                "gpus": workload.cluster.gpus,
            },
        ),
        "oom_probability_fraction": (
            oom_probability_fraction,
            {"device_bytes": device.value, "high_bytes": device.high, **usable},
        ),
        "usable_bytes": (usable_bytes, {"gpu": workload.gpu.slug}),
        "headroom_bytes": (headroom_bytes, {**usable, "device_bytes": device.value}),
        "host_bytes": (sharded_bytes, {"offload": resolved.question.layout.offload}),
        "checkpoint_bytes": (
            checkpoint_bytes,
            {
                "trained_parameters": sum(
                    times * one.parameters for times, one in weights if one.trained and not one.tied
                ),
                "weight_bytes": workload.state.weight_bytes,
                "master_bytes": workload.state.master_bytes,
                "optimizer": workload.recipe.optimizer,
            },
        ),
    }
    return [_at(estimate, f"memory.{name}", formula, inputs) for name, (formula, inputs) in rows.items()]


def _flop(workload: Workload, estimate: Estimate) -> list[Explanation]:
    flop, recipe, active = estimate.flop, workload.recipe, estimate.parameters.active
    batch, one = recipe.global_batch, sequence_flop(workload.ledger, workload.recompute)
    tokens, packed = trained_tokens(recipe), _documents(recipe)
    masked: Inputs = {"forward": one.causal, "backward": one.backward, "tokens": tokens}
    unmasked: Inputs = {"forward": one.full, "backward": one.full_backward, "tokens": tokens}
    at = partial(_at, estimate)
    explanations = [
        at("flop.per_token_flop", per_token_flop, masked),
        at("flop.per_step_tokens", step_tokens, {**packed, "global_batch": batch}),
        at("flop.forward_per_step_flop", forward_flop, _forward_parts(workload, batch)),
        applied("flop.backward_per_step_flop", step_flop, flop_of_sequence=one.backward, global_batch=batch),
        applied("flop.per_step_flop", step_flop, flop_of_sequence=one.training, global_batch=batch),
        at(
            "flop.recompute_per_step_flop",
            recompute_flop,
            {"rerun_flop_of_sequence": one.rerun, "global_batch": batch},
        ),
        at(
            "flop.hardware_per_step_flop",
            recompute_flop,
            {"per_step_flop": flop.per_step_flop, "recompute_per_step_flop": flop.recompute_per_step_flop},
        ),
        at("flop.padding_per_step_flop", padding_flop, packed),
        at("flop.padding_fraction", padding_fraction, packed),
        *(
            at(f"flop.{name}", recompute_flop, {"rerun_flop": rerun, "training_flop_of_sequence": whole})
            for name, rerun, whole in (
                ("recompute_fraction", one.rerun, one.training),
                ("recompute_full_fraction", one.full_rerun, one.full_training),
            )
        ),
        at("flop.conventions.causal", per_token_flop, masked),
        at("flop.conventions.full", per_token_flop, unmasked),
        at("flop.conventions.palm", palm_flop, {"parameters": active, "tokens": recipe.sequence_length}),
        applied("flop.conventions.six_n", six_n_flop, parameters=active),
    ]
    return explanations if estimate.totals is None else [*explanations, *_total_flop(estimate, estimate.totals)]


def _documents(recipe: Recipe) -> Inputs:
    """What the documents of a batch are, once split to fit a sequence."""
    documents, length = documents_of(recipe), recipe.sequence_length
    if documents is None:
        return {"sequence_length": length}
    return {
        "sequence_length": length,
        "batching": documents.batching,
        "documents": documents.count,
        "document_tokens": documents.tokens,
        "sum_of_squared_lengths": documents.squares,
    }


def _forward_parts(workload: Workload, batch: int) -> Inputs:
    """Forward FLOP of one sequence by part of the model; they sum to the whole."""
    layers = {
        f"layer_kind_{kind}": n * forward_flop(ops) for kind, (n, ops) in enumerate(workload.ledger.layer_groups())
    }
    return {
        "embedding": forward_flop(workload.ledger.embedding),
        **layers,
        "depths": workload.ledger.depths * forward_flop(workload.ledger.depth),
        "head": forward_flop(workload.ledger.head),
        "global_batch": batch,
    }


_PARTS: dict[str, Callable[..., Any]] = {
    "gemm": product_seconds,
    "attention": attention_seconds,
    "elementwise": op_seconds,
    "cast": product_seconds,
    "accumulation": accumulation_seconds,
    "recompute": op_seconds,
    "loss": loss_seconds,
    "host": host_seconds,
    "exposed_tensor": transfer_seconds,
    "exposed_context": transfer_seconds,
    "exposed_expert": transfer_seconds,
    "exposed_data": transfer_seconds,
    "exposed_pipeline": transfer_seconds,
    "exposed_offload": offloaded_activation_seconds,
    "bubble": bubble_micro_batches,
    "optimizer": optimizer_seconds,
    "straggler": straggler_seconds,
    "allocator": pressure_fraction,
    "other": other_seconds,
}
"""The formula that each part of a step comes from."""


def _step(workload: Workload, estimate: Estimate) -> list[Explanation]:
    step, flop, gpus = estimate.step, estimate.flop, estimate.resolved.cluster.gpus
    seconds, peak = step.step_seconds.value, step.peak_flop_per_s
    parts: Inputs = {part.kind: part.seconds for part in step.parts}
    rates = rates_of(workload)
    interconnect = interconnect_of(workload.cluster, workload.gpu, workload.constants.network_scale)
    inputs: Inputs = {
        "micro_batch": estimate.resolved.recipe.micro_batch,
        "global_batch": estimate.resolved.recipe.global_batch,
        "gpus": gpus,
        "product_flop_per_s": rates.products.plain.flop_per_s,
        "attention_flop_per_s": rates.attention_flop_per_s * rates.attention.forward_fraction,
        "memory_bytes_per_s": rates.bytes_per_s,
        "link_bytes_per_s": interconnect.link_bytes_per_s,
        "network_bytes_per_s": interconnect.network_bytes_per_s,
        "link_curves": interconnect.link.source,
        "launch_seconds": LAUNCH_SECONDS,
        "stack_scale": stack_scale(workload),
        "own_scale": measured_scale(workload.cluster.measured_steps, workload.calibrated_steps),
    }
    machine: Inputs = {"gpus": gpus, "peak_flop_per_s": peak, "step_seconds": seconds}
    return [
        _at(estimate, "step.step_seconds.value", total_seconds, parts),
        _at(estimate, "step.peak_flop_per_s", highest_peak_flop_per_s, {"gpu": workload.gpu.slug}),
        applied(
            "step.tokens_per_s_per_gpu.value",
            tokens_per_s_per_gpu,
            batch_tokens=flop.per_step_tokens,
            gpus=gpus,
            step_seconds=seconds,
        ),
        applied("step.mfu_fraction.value", utilisation_fraction, flop=flop.per_step_flop, **machine),
        applied("step.hfu_fraction.value", utilisation_fraction, flop=flop.hardware_per_step_flop, **machine),
        *(
            explained(f"step.parts[{index}].seconds", part.seconds, _PARTS[part.kind], inputs)
            for index, part in enumerate(step.parts)
        ),
    ]


def _total_flop(estimate: Estimate, totals: Totals) -> list[Explanation]:
    inputs: Inputs = {"steps": totals.steps}
    inputs |= {f"stage_{one.stage}_total_flop": one.total_flop for one in totals.stages}
    if totals.stages:
        whole = _at(estimate, "flop.total_flop", run_flop, inputs)
    else:
        whole = applied("flop.total_flop", run_flop, one_step_flop=estimate.flop.per_step_flop, steps=totals.steps)
    return [whole, _at(estimate, "flop.total_pflop_days", run_flop, inputs)]


def _steps(recipe: Recipe, totals: Totals) -> Explanation:
    if totals.stages:
        inputs: Inputs = {f"stage_{one.stage}_steps": one.steps for one in totals.stages}
        return explained("totals.steps", totals.steps, steps_of_phases, inputs)
    return applied(
        "totals.steps",
        steps_of,
        training_tokens=recipe.training_tokens,
        global_batch=recipe.global_batch,
        tokens=trained_tokens(recipe),
    )


def mean_step_seconds(totals: Totals, step: Step) -> float:
    """Seconds of one step on average over a run, as its stages say.

    Formula:
        sum over the stages of steps x seconds of a step / steps of the run

    Args:
        step: one step of its last stage

    Returns:
        seconds of one step [s]

    Source:
        definition

    >>> from service.estimator.estimate import estimate
    >>> from service.estimator.samples import sample_resolved
    >>> asked = sample_resolved().question
    >>> found = estimate(replace(asked, recipe=replace(asked.recipe, training_tokens=1e9)))
    >>> mean_step_seconds(found.totals, found.step) == found.step.step_seconds.value
    True
    """
    if not totals.stages:
        return step.step_seconds.value
    return sum(one.steps * one.step_seconds.value for one in totals.stages) / totals.steps


def _run_stages(resolved: ResolvedQuestion, estimate: Estimate) -> list[Explanation]:
    """Explanations of each stage of a run. None where batch and length never change."""
    totals, recipe = estimate.totals, resolved.question.recipe
    if totals is None or recipe.training_tokens is None or not totals.stages:
        return []
    last = CompleteStage(
        until_tokens=recipe.training_tokens, global_batch=recipe.global_batch, sequence_length=recipe.sequence_length
    )
    stages = (*recipe.stages, last)
    firsts = (*(first for first, *_ in resolved.run_stages), resolved)
    explanations, before = [], 0.0
    for stage_totals, stage, first in zip(totals.stages, stages, firsts, strict=True):
        explanations += _run_stage(stage_totals, stage, first, before, totals.goodput_fraction)
        before += stage_totals.tokens
    return explanations


def _run_stage(
    stage_totals: RunStageTotals, stage: CompleteStage, first: ResolvedQuestion, before: float, goodput: float
) -> list[Explanation]:
    path, gpus = f"totals.stages[{stage_totals.stage}]", first.question.cluster.gpus
    tokens = trained_tokens(replace(first.question.recipe, sequence_length=stage.sequence_length))
    batches: Inputs = {
        "trained": before,
        "until_tokens": stage.until_tokens,
        "global_batch": stage.global_batch,
        "final_global_batch": stage.final_global_batch,
        "batch_increment": stage.batch_increment,
        "tokens": tokens,
    }
    one = sequence_flop(first.workload.ledger, first.workload.recompute)
    counted: Inputs = {"flop_of_sequence": one.training, **batches}
    seconds = stage_totals.step_seconds.value
    return [
        explained(f"{path}.steps", stage_totals.steps, steps_of_phases, batches),
        explained(f"{path}.tokens", stage_totals.tokens, step_tokens, {**batches, "steps": stage_totals.steps}),
        explained(f"{path}.total_flop", stage_totals.total_flop, run_flop, counted),
        explained(f"{path}.step_seconds.value", seconds, phase_seconds, {**batches, "steps": stage_totals.steps}),
        applied(
            f"{path}.gpu_hours.value",
            gpu_hours,
            steps=stage_totals.steps,
            step_seconds=seconds,
            gpus=gpus,
            goodput=goodput,
        ),
    ]


def _totals(resolved: ResolvedQuestion, estimate: Estimate) -> list[Explanation]:
    """Every explained number of the totals. None without totals."""
    totals, full = estimate.totals, estimate.resolved
    if totals is None:
        return []
    gpus, hours, days, goodput = full.cluster.gpus, totals.gpu_hours.value, totals.days.value, totals.goodput_fraction
    step_seconds = mean_step_seconds(totals, estimate.step)
    losses = lost_shares_of(resolved, step_seconds)
    return [
        _steps(full.recipe, totals),
        applied(
            "totals.gpu_hours.value",
            gpu_hours,
            steps=totals.steps,
            step_seconds=step_seconds,
            gpus=gpus,
            goodput=goodput,
        ),
        applied(
            "totals.spare_gpus",
            spare_gpus,
            gpus=gpus,
            gpus_per_node=full.cluster.gpus_per_node,
            spare_fraction=full.cluster.spare_fraction,
        ),
        applied(
            "totals.billed_gpu_hours.value",
            billed_gpu_hours,
            gpu_hours_used=hours,
            spare_gpu_hours=spare_gpu_hours(days, totals.spare_gpus),
        ),
        applied("totals.days.value", run_days, gpu_hours_used=hours, gpus=gpus),
        applied("totals.ideal_days.value", ideal_days, days=days, goodput=goodput),
        applied(
            "totals.at_peak_gpu_hours",
            at_peak_gpu_hours,
            flop=estimate.flop.total_flop,
            peak_flop_per_s=estimate.step.peak_flop_per_s,
        ),
        *_goodput(resolved, totals, losses, step_seconds),
        *_cost(resolved, totals, losses),
        *_energy(resolved, totals, losses),
    ]


def _goodput(resolved: ResolvedQuestion, totals: Totals, losses: LostShares, step_seconds: float) -> list[Explanation]:
    path, workload, checkpointing = "totals.goodput", resolved.workload, checkpointing_of(resolved.workload)
    stalls: Inputs = {
        "stall_seconds": checkpointing.stall_seconds,
        "write_bytes_per_s": checkpointing.write_bytes_per_s,
        "checkpoint_bytes": written_bytes(workload),
        "host_bytes_per_s": workload.gpu.host_bytes_per_s,
        "gpus": workload.cluster.gpus,
    }
    intervals: Inputs = {
        "checkpoint_seconds": losses.checkpoint_seconds,
        "failure_seconds": losses.interruption_seconds,
        "interval_seconds": checkpointing.interval_seconds,
        "step_seconds": step_seconds,
        "write_bytes_per_s": checkpointing.write_bytes_per_s,
    }
    names = ("checkpoints_fraction", "lost_work_fraction", "restarts_fraction")
    shares = {name: getattr(losses, name) for name in names}
    return [
        applied("totals.goodput_fraction", goodput_fraction, **shares),
        applied(f"{path}.interruption_seconds", interruption_seconds, **interruption_inputs(resolved.question)),
        explained(f"{path}.checkpoint_seconds", totals.goodput.checkpoint_seconds, stall_seconds, stalls),
        explained(
            f"{path}.checkpoint_interval_seconds",
            totals.goodput.checkpoint_interval_seconds,
            INTERVALS[checkpointing.rule or "young"],
            intervals,
        ),
        *(
            applied(f"{path}.lost[{place}].days", lost_days, ideal_days=totals.ideal_days.value, waste_fraction=share)
            for place, share in enumerate(shares.values())
        ),
    ]


def _cost(resolved: ResolvedQuestion, totals: Totals, losses: LostShares) -> list[Explanation]:
    if totals.cost is None or totals.cost_usd is None:
        return []
    charges = charges_of(resolved, usage_of(resolved, totals.gpu_hours, losses))
    return [
        explained(
            "totals.cost_usd.value", totals.cost_usd.value, sum_usd, {line.kind: line.usd.value for line in totals.cost}
        ),
        *(
            explained(
                f"totals.cost[{place}].usd.value",
                line.usd.value,
                charge.formula,
                {"quantity": charge.quantity.value, **charge.rates},
            )
            for place, (line, charge) in enumerate(zip(totals.cost, charges, strict=True))
        ),
    ]


def _energy(resolved: ResolvedQuestion, totals: Totals, losses: LostShares) -> list[Explanation]:
    cluster = resolved.question.cluster
    waiting_fraction = losses.restarts_fraction * losses.goodput_fraction
    hours, spare = totals.gpu_hours.value, spare_gpu_hours(totals.days.value, totals.spare_gpus)
    power: Inputs = {
        "board_watts": resolved.workload.gpu.board_watts,
        "limit_watts": limited_watts(resolved.workload),
        "host_power_fraction": cluster.host_power_fraction,
        "pue": cluster.pue,
    }
    explanations = [
        applied("totals.gpu_busy_watts", gpu_watts, **power, power_fraction=cluster.busy_power_fraction),
        applied("totals.gpu_idle_watts", gpu_watts, **power, power_fraction=cluster.idle_power_fraction),
        applied(
            "totals.energy_kwh.value",
            energy_kwh,
            busy_gpu_hours=hours * (1 - waiting_fraction),
            busy_watts=totals.gpu_busy_watts,
            idle_gpu_hours=hours * waiting_fraction + spare,
            idle_watts=totals.gpu_idle_watts,
        ),
    ]
    if totals.carbon_kg_co2e is not None:
        explanations.append(
            applied(
                "totals.carbon_kg_co2e.value",
                carbon_kg_co2e,
                used_kwh=totals.energy_kwh.value,
                grid_kg_co2e_per_kwh=cluster.grid_kg_co2e_per_kwh,
            )
        )
    return explanations
