"""Explanations of the numbers of an answer, each computed again from its inputs."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from service.estimator.answer import Estimate, Flop, Parameters, RunStageTotals, Step, Totals
from service.estimator.complete import CompleteStage
from service.estimator.constants import LAUNCH_SECONDS, measured_scale
from service.estimator.explain.explanation import Explanation, Inputs, applied, explained
from service.estimator.explain.memory import memory_explanations
from service.estimator.model.flop import (
    forward_flop,
    padding_flop,
    palm_flop,
    per_token_flop,
    recompute_flop,
    run_flop,
    sequence_flop,
    six_n_flop,
    step_flop,
)
from service.estimator.model.ledger import Ops, documents_of, padding_fraction, step_tokens, trained_tokens
from service.estimator.model.parameters import parameter_counts
from service.estimator.parallelism.pipeline import bubble_micro_batches
from service.estimator.parallelism.stages import rank_parameters, stage_total
from service.estimator.question import Method, Question, Recipe
from service.estimator.resolve import ResolvedQuestion, resolve
from service.estimator.run.cost import carbon_kg_co2e, charges_of, energy_kwh, gpu_watts, sum_usd
from service.estimator.run.run import peak_stage_in, phase_seconds, tokens_per_s_per_gpu, utilisation_fraction
from service.estimator.run.stages import LoadedStage, stages_of, total_seconds
from service.estimator.run.totals import (
    INTERVALS,
    LostShares,
    checkpointing_of,
    goodput_fraction,
    interruption_inputs,
    interruption_seconds,
    lost_days,
    lost_shares_of,
    power_of,
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


def total_flop_explanations(flop: Flop, totals: Totals) -> list[Explanation]:
    """Explanations of the FLOP of a run."""
    steps = totals.steps
    inputs: Inputs = {"steps": steps}
    if totals.stages:
        inputs |= {f"stage_{one.stage}_total_flop": one.total_flop for one in totals.stages}
        whole = explained("flop.total_flop", flop.total_flop or 0, run_flop, inputs)
    else:
        whole = applied("flop.total_flop", run_flop, one_step_flop=flop.per_step_flop, steps=steps)
    return [whole, explained("flop.total_pflop_days", flop.total_pflop_days or 0.0, run_flop, inputs)]


def steps_explanation(recipe: Recipe, totals: Totals) -> Explanation:
    """The explanation of the steps of a run."""
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


def stage_explanations(resolved: ResolvedQuestion, estimate: Estimate) -> list[Explanation]:
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
        explanations += _stage_of_run(stage_totals, stage, first, before, totals.goodput_fraction)
        before += stage_totals.tokens
    return explanations


def _stage_of_run(
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


def totals_explanations(resolved: ResolvedQuestion, estimate: Estimate) -> list[Explanation]:
    """Every explained number of the totals. None without totals."""
    if estimate.totals is None:
        return []
    losses = lost_shares_of(resolved, mean_step_seconds(estimate.totals, estimate.step))
    return [
        *_time(estimate, estimate.totals),
        applied(
            "totals.at_peak_gpu_hours",
            at_peak_gpu_hours,
            flop=estimate.flop.total_flop,
            peak_flop_per_s=estimate.step.peak_flop_per_s,
        ),
        *_goodput(resolved, estimate, losses),
        *_cost(resolved, estimate.totals, losses),
        *_energy(resolved, estimate.totals, losses),
    ]


def _time(estimate: Estimate, totals: Totals) -> list[Explanation]:
    full = estimate.resolved
    gpus, hours, days = full.cluster.gpus, totals.gpu_hours.value, totals.days.value
    return [
        steps_explanation(full.recipe, totals),
        applied(
            "totals.gpu_hours.value",
            gpu_hours,
            steps=totals.steps,
            step_seconds=mean_step_seconds(totals, estimate.step),
            gpus=gpus,
            goodput=totals.goodput_fraction,
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
        applied("totals.ideal_days.value", ideal_days, days=days, goodput=totals.goodput_fraction),
    ]


def _goodput(resolved: ResolvedQuestion, estimate: Estimate, losses: LostShares) -> list[Explanation]:
    totals, stage_totals = estimate.totals, checkpointing_of(resolved.workload)
    if totals is None:
        return []
    path, one, result = "totals.goodput", resolved.workload, totals.goodput
    stalls: Inputs = {
        "stall_seconds": stage_totals.stall_seconds,
        "write_bytes_per_s": stage_totals.write_bytes_per_s,
        "checkpoint_bytes": written_bytes(one),
        "host_bytes_per_s": one.gpu.host_bytes_per_s,
        "gpus": one.cluster.gpus,
    }
    checkpoint_inputs: Inputs = {
        "checkpoint_seconds": losses.checkpoint_seconds,
        "failure_seconds": losses.interruption_seconds,
        "interval_seconds": stage_totals.interval_seconds,
        "step_seconds": mean_step_seconds(totals, estimate.step),
        "write_bytes_per_s": stage_totals.write_bytes_per_s,
    }
    shares = (losses.checkpoints_fraction, losses.lost_work_fraction, losses.restarts_fraction)
    named = dict(zip(("checkpoints_fraction", "lost_work_fraction", "restarts_fraction"), shares, strict=True))
    return [
        applied("totals.goodput_fraction", goodput_fraction, **named),
        applied(f"{path}.interruption_seconds", interruption_seconds, **interruption_inputs(resolved.question)),
        explained(f"{path}.checkpoint_seconds", result.checkpoint_seconds, stall_seconds, stalls),
        explained(
            f"{path}.checkpoint_interval_seconds",
            result.checkpoint_interval_seconds,
            INTERVALS[stage_totals.rule or "young"],
            checkpoint_inputs,
        ),
        *(
            applied(f"{path}.lost[{place}].days", lost_days, ideal_days=totals.ideal_days.value, waste_fraction=share)
            for place, share in enumerate(shares)
        ),
    ]


def _cost(resolved: ResolvedQuestion, totals: Totals, losses: LostShares) -> list[Explanation]:
    if totals.cost is None or totals.cost_usd is None:
        return []
    charges = charges_of(resolved, usage_of(resolved, totals.gpu_hours, losses, power_of(resolved)))
    lines: Inputs = {line.kind: line.usd.value for line in totals.cost}
    return [
        explained("totals.cost_usd.value", totals.cost_usd.value, sum_usd, lines),
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
