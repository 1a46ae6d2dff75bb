"""Explanations of the numbers of an answer, each computed again from its inputs."""

from collections.abc import Callable
from typing import Any

from service.estimator.answer import Estimate, Parameters
from service.estimator.constants import LAUNCH_SECONDS, measured_scale
from service.estimator.explain.explanation import Explanation, Inputs, applied, explained
from service.estimator.explain.memory import memory_explanations
from service.estimator.explain.run import stage_explanations, total_flop_explanations, totals_explanations
from service.estimator.model.documents import documents_of, padding_fraction, step_tokens, trained_tokens
from service.estimator.model.flop import (
    forward_flop,
    padding_flop,
    palm_flop,
    per_token_flop,
    recompute_flop,
    sequence_flop,
    six_n_flop,
    step_flop,
)
from service.estimator.model.ledger import Ops
from service.estimator.model.parameters import parameter_counts
from service.estimator.parallelism.pipeline import bubble_micro_batches
from service.estimator.parallelism.stages import rank_parameters, stage_total
from service.estimator.question import Method, Question, Recipe
from service.estimator.resolve import ResolvedQuestion, resolve
from service.estimator.run.run import peak_stage_in, tokens_per_s_per_gpu, utilisation_fraction
from service.estimator.run.stages import LoadedStage, stages_of, total_seconds
from service.estimator.software.precision import highest_peak_flop_per_s
from service.estimator.time.collectives import transfer_seconds
from service.estimator.time.communication import offloaded_activation_seconds
from service.estimator.time.kernels import attention_seconds, op_seconds, product_seconds, rates_of, stack_scale
from service.estimator.time.links import interconnect_of
from service.estimator.time.optimizer import accumulation_seconds, optimizer_seconds
from service.estimator.time.step import host_seconds, loss_seconds, other_seconds, pressure_fraction, straggler_seconds
from service.estimator.workload import Workload


def parameter_explanations(
    resolved: ResolvedQuestion, stages: list[LoadedStage], parameters: Parameters
) -> list[Explanation]:
    """Explanations of every count of the model and of its stages."""
    model, active = resolved.workload.model, parameters.active_by_definition
    table: Inputs = {"vocab_size": model.vocab_size, "embedding_width": model.embedding_width}
    experts: Inputs = {
        "total": parameters.total,
        "routed_experts": parameters.routed_experts,
        "num_experts": model.num_experts,
        "num_experts_per_tok": model.num_experts_per_tok,
    }
    outside: Inputs = {
        "input_embedding": parameters.input_embedding,
        "position_embedding": parameters.position_embedding,
        "lm_head": parameters.lm_head,
    }
    sparse: Inputs = {"expert_width": model.expert_width, "num_experts": model.num_experts}
    shared: Inputs = {"shared_expert_intermediate_size": model.shared_expert_intermediate_size}
    depths: Inputs = {"depths": model.num_nextn_predict_layers, "own": parameters.multi_token_prediction}
    with_depths = parameters.total_with_multi_token_prediction
    method = _method(resolved.workload.method)
    rows: tuple[tuple[str, int, Inputs], ...] = (
        ("total", parameters.total, _parts(resolved)),
        ("trained", parameters.trained, method),
        ("adapters", parameters.adapters, method),
        ("active", parameters.active, experts),
        ("active_by_definition.total", active.total, experts),
        ("active_by_definition.without_input_embedding", active.without_input_embedding, {**experts, **table}),
        ("active_by_definition.non_embedding", active.non_embedding, {**experts, **outside}),
        ("non_embedding", parameters.non_embedding, {"total": parameters.total, **outside}),
        ("input_embedding", parameters.input_embedding, table),
        ("position_embedding", parameters.position_embedding, {"rows": model.position_embedding_rows}),
        ("lm_head", parameters.lm_head, {**table, "tied": int(model.tie_word_embeddings)}),
        ("routed_experts", parameters.routed_experts, sparse),
        ("shared_experts", parameters.shared_experts, shared),
        ("multi_token_prediction", parameters.multi_token_prediction, depths),
        ("total_with_multi_token_prediction", with_depths, {"total": parameters.total, **depths}),
    )
    counted = [explained(f"parameters.{name}", value, parameter_counts, inputs) for name, value, inputs in rows]
    return [*counted, *_stages(stages, parameters)]


def _method(method: Method) -> Inputs:
    return {
        "method": method.name,
        "rank": method.rank,
        "targets": ", ".join(method.targets),
        "frozen": ", ".join(method.frozen),
        "frozen_layers": method.frozen_layers,
    }


def _parts(resolved: ResolvedQuestion) -> Inputs:
    ledger = resolved.workload.ledger
    layers = enumerate(zip(ledger.kind_counts(), ledger.kinds, strict=True))
    return {
        "embedding": _parameters_of(ledger.embedding),
        **{f"layer_kind_{kind}": _parameters_of(ops) * count for kind, (count, ops) in layers},
        "head": _parameters_of(ledger.head),
    }


def _parameters_of(ops: Ops) -> int:
    return sum(weight.parameters for op in ops for weight in op.weights if not weight.tied and weight.role != "adapter")


def _stages(stages: list[LoadedStage], parameters: Parameters) -> list[Explanation]:
    explanations = []
    for position, (one, counted) in enumerate(zip(stages, parameters.stages, strict=True)):
        path, layers = f"parameters.stages[{position}]", float(one.stage.layers)
        held: Inputs = {"dense": float(one.load.held.dense), "expert": float(one.load.held.expert)}
        explanations.append(explained(f"{path}.total", counted.total, stage_total, {"layers": layers}))
        explanations.append(explained(f"{path}.per_rank", counted.per_rank, rank_parameters, held))
    return explanations


def explanations(question: Question, estimate: Estimate) -> tuple[Explanation, ...]:
    """Every explained number of an answer."""
    resolved = resolve(question)
    stages, peak = stages_of(resolved.workload, resolved.degrees, resolved.question.layout), peak_stage_in(resolved)
    return (
        *parameter_explanations(resolved, stages, estimate.parameters),
        *memory_explanations(peak.resolved, peak.stages, estimate.memory),
        *_flop(resolved.workload, estimate),
        *_step(resolved.workload, estimate),
        *totals_explanations(resolved, estimate),
        *stage_explanations(resolved, estimate),
    )


def _flop(workload: Workload, estimate: Estimate) -> list[Explanation]:
    flop, recipe, active = estimate.flop, workload.recipe, estimate.parameters.active
    batch, length, one = (
        recipe.global_batch,
        recipe.sequence_length,
        sequence_flop(workload.ledger, workload.recompute),
    )
    every, tokens, packed = flop.conventions, trained_tokens(recipe), _documents(recipe)
    masked: Inputs = {"forward": one.causal, "backward": one.backward, "tokens": tokens}
    unmasked: Inputs = {"forward": one.full, "backward": one.full_backward, "tokens": tokens}
    again: Inputs = {"rerun_flop_of_sequence": one.rerun, "global_batch": batch}
    explanations = [
        explained("flop.per_token_flop", flop.per_token_flop, per_token_flop, masked),
        explained("flop.per_step_tokens", flop.per_step_tokens, step_tokens, {**packed, "global_batch": batch}),
        explained(
            "flop.forward_per_step_flop", flop.forward_per_step_flop, forward_flop, _forward_parts(workload, batch)
        ),
        applied("flop.backward_per_step_flop", step_flop, flop_of_sequence=one.backward, global_batch=batch),
        applied("flop.per_step_flop", step_flop, flop_of_sequence=one.training, global_batch=batch),
        explained("flop.recompute_per_step_flop", flop.recompute_per_step_flop, recompute_flop, again),
        explained(
            "flop.hardware_per_step_flop",
            flop.hardware_per_step_flop,
            recompute_flop,
            {"per_step_flop": flop.per_step_flop, "recompute_per_step_flop": flop.recompute_per_step_flop},
        ),
        explained("flop.padding_per_step_flop", flop.padding_per_step_flop, padding_flop, packed),
        explained("flop.padding_fraction", flop.padding_fraction, padding_fraction, packed),
        *(
            explained(f"flop.{name}", share, recompute_flop, {"rerun_flop": rerun, "training_flop_of_sequence": run})
            for name, share, rerun, run in (
                ("recompute_fraction", flop.recompute_fraction, one.rerun, one.training),
                ("recompute_full_fraction", flop.recompute_full_fraction, one.full_rerun, one.full_training),
            )
        ),
        explained("flop.conventions.causal", every.causal, per_token_flop, masked),
        explained("flop.conventions.full", every.full, per_token_flop, unmasked),
        explained("flop.conventions.palm", every.palm, palm_flop, {"parameters": active, "tokens": length}),
        applied("flop.conventions.six_n", six_n_flop, parameters=active),
    ]
    if estimate.totals is not None:
        explanations += total_flop_explanations(flop, estimate.totals)
    return explanations


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
    step, gpus = estimate.step, estimate.resolved.cluster.gpus
    seconds, peak = step.step_seconds.value, step.peak_flop_per_s
    parts: Inputs = {part.kind: part.seconds for part in step.parts}
    counted = _counted(workload, estimate)
    utilised = (
        ("step.mfu_fraction.value", estimate.flop.per_step_flop),
        ("step.hfu_fraction.value", estimate.flop.hardware_per_step_flop),
    )
    return [
        explained("step.step_seconds.value", seconds, total_seconds, parts),
        explained("step.peak_flop_per_s", peak, highest_peak_flop_per_s, {"gpu": workload.gpu.slug}),
        applied(
            "step.tokens_per_s_per_gpu.value",
            tokens_per_s_per_gpu,
            batch_tokens=estimate.flop.per_step_tokens,
            gpus=gpus,
            step_seconds=seconds,
        ),
        *(
            applied(path, utilisation_fraction, flop=flop, gpus=gpus, peak_flop_per_s=peak, step_seconds=seconds)
            for path, flop in utilised
        ),
        *(
            explained(f"step.parts[{index}].seconds", part.seconds, _PARTS[part.kind], counted)
            for index, part in enumerate(step.parts)
        ),
    ]


def _counted(workload: Workload, estimate: Estimate) -> Inputs:
    """What the parts of a step are computed from."""
    recipe, gpus = estimate.resolved.recipe, estimate.resolved.cluster.gpus
    rates, interconnect = (
        rates_of(workload),
        interconnect_of(workload.cluster, workload.gpu, workload.constants.network_scale),
    )
    return {
        "micro_batch": recipe.micro_batch,
        "global_batch": recipe.global_batch,
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
