"""Explanations of the numbers of an answer, each computed again from its inputs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from service.estimator import schedule
from service.estimator.answer import Estimate, Inputs, RunStageTotals, Step, Totals
from service.estimator.complete import CompleteStage
from service.estimator.explain.expression import (
    At,
    Expression,
    Formula,
    Working,
    fields_of,
    numbers_of,
    summed_inputs,
    weighted_sum,
    worked,
)
from service.estimator.explain.memory import memory_explanations
from service.estimator.explain.step import step_explanations
from service.estimator.model import counts
from service.estimator.model.build import MIXERS, layer_type
from service.estimator.model.counts import sequence_flop
from service.estimator.model.ledger import (
    Op,
    Ops,
    Split,
    Weight,
    documents_of,
    padding_fraction,
    step_tokens,
    trained_share,
    trained_tokens,
)
from service.estimator.numeric import column
from service.estimator.parallelism.stages import rank_parameters, stage_total
from service.estimator.question import Question, Recipe
from service.estimator.resolve import ResolvedQuestion, resolve
from service.estimator.run.cost import (
    amortisation_usd,
    carbon_kg_co2e,
    charges_of,
    egress_usd,
    electricity_usd,
    energy_kwh,
    gpu_watts,
    hosting_usd,
    maintenance_usd,
    rent_usd,
    storage_usd,
    sum_usd,
)
from service.estimator.run.run import (
    LoadedStage,
    loads_of,
    peak_stage_of,
    phase_seconds,
    rerun_fraction,
    slowest_seconds,
    stages_of,
)
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
from service.estimator.time import kernels
from service.estimator.workload import Workload


def workings(question: Question, estimate: Estimate) -> tuple[Working, ...]:
    """Every number of an answer that is worked out, but for ends of intervals."""
    resolved, at = resolve(question), partial(worked, estimate)
    stages = stages_of(resolved)
    loads = loads_of(resolved, stages)
    peak = peak_stage_of(resolved, stages, loads)
    return (
        *_parameters(resolved, stages, estimate, at),
        *memory_explanations(peak, estimate, at),
        *_flop(resolved, stages, estimate, at),
        *step_explanations(resolved, stages, peak.filled_fraction[-1], estimate, at),
        *_totals(resolved, estimate, at),
        *_run_stages(RunOf(resolved, loads, peak.filled_fraction), estimate, at),
    )


def _numbers(ops: Ops, is_counted: Callable[[Op, Weight], bool]) -> int:
    """Parameters of some operations."""
    return sum(weight.parameters for op in ops for weight in op.weights if is_counted(op, weight))


def _over_model(workload: Workload, is_counted: Callable[[Op, Weight], bool], *, depths: bool) -> Expression:
    """Parameters of the model, those of each kind of layer times its layers."""
    ledger = workload.ledger
    counted = [count for count, _ in ledger.layer_groups()] if depths else ledger.kind_counts()
    kinds = enumerate(zip(counted, ledger.kinds, strict=True))
    parts = {
        "embedding": _numbers(ledger.embedding, is_counted),
        **{f"layer_kind_{kind}": count * _numbers(ops, is_counted) for kind, (count, ops) in kinds},
        "depths": ledger.depths * _numbers(ledger.depth, is_counted) if depths else 0,
        "head": _numbers(ledger.head, is_counted),
    }
    return summed_inputs({name: number for name, number in parts.items() if number or name == "head"})


def _parameters(resolved: ResolvedQuestion, stages: list[LoadedStage], estimate: Estimate, at: At) -> Iterator[Working]:
    """Explanations of every count of the model and of its stages."""
    workload = resolved.workload
    for name, one in _counts(workload, estimate).items():
        yield at(f"parameters.{name}", counts.parameter_counts, one.text, one.inputs)
    for position, stage in enumerate(stages):
        path = f"parameters.stages[{position}]"
        whole = _stage_parameters(workload, stage, copies=resolved.question.layout.pipeline > 1)
        yield at(f"{path}.total", stage_total, whole.text, whole.inputs)
        held = numbers_of(stage.load.parameters, "dense", "expert")
        yield at(f"{path}.per_rank", rank_parameters, "round(dense + expert)", held)


def _counts(workload: Workload, estimate: Estimate) -> dict[str, Expression]:
    """What each count of the model is computed from."""
    model, ledger, parameters = workload.model, workload.ledger, estimate.parameters
    method, depth = workload.method, (*ledger.depth, *ledger.kinds[ledger.depth_kind])
    trained: Inputs = {
        "method": method.name,
        "rank": method.rank,
        "targets": ", ".join(method.targets),
        "frozen": ", ".join(method.frozen),
        "frozen_layers": method.frozen_layers,
    }

    def over(is_counted: Callable[[Op, Weight], bool], beside: Inputs, *, depths: bool = False) -> Expression:
        found = _over_model(workload, is_counted, depths=depths)
        return Expression(found.text, {**found.inputs, **beside})

    table, total = fields_of(model, "vocab_size", "embedding_width"), fields_of(parameters, "total")
    active, outside = (
        fields_of(parameters, "active"),
        fields_of(parameters, "input_embedding", "position_embedding", "lm_head"),
    )
    visited, of = model.visits
    used = "routed_experts // num_experts * visited_experts // all_experts if num_experts else 0"
    experts: Inputs = {
        **total,
        **fields_of(parameters, "routed_experts"),
        **fields_of(model, "num_experts", "num_experts_per_tok"),
        "visited_experts": visited,
        "all_experts": of,
    }
    every = Expression(f"total - routed_experts + ({used})", experts)
    own = fields_of(parameters, "multi_token_prediction")
    positions: Inputs = {"rows": model.position_embedding_rows, **fields_of(model, "hidden_size")}
    ends = "(input_embedding + position_embedding + lm_head)"
    return {
        "total": over(lambda _, weight: not weight.tied and weight.role != "adapter", {}),
        "trained": over(lambda _, weight: weight.trained and not weight.tied, trained, depths=True),
        "adapters": over(lambda _, weight: weight.role == "adapter", trained),
        "active": every,
        "active_by_definition.total": every,
        "active_by_definition.without_input_embedding": Expression(
            "active - vocab_size * embedding_width", {**active, **table}
        ),
        "active_by_definition.non_embedding": Expression(f"active - {ends}", {**active, **outside}),
        "non_embedding": Expression(f"total - {ends}", {**total, **outside}),
        "input_embedding": Expression("vocab_size * embedding_width", table),
        "position_embedding": Expression("rows * hidden_size", positions),
        "lm_head": Expression(
            "0 if tied else head_outputs * embedding_width",
            {**fields_of(model, "head_outputs", "embedding_width"), "tied": int(model.tie_word_embeddings)},
        ),
        "routed_experts": over(
            lambda _, weight: weight.split is Split.EXPERT and weight.role != "adapter",
            fields_of(model, "expert_width", "num_experts"),
        ),
        "shared_experts": over(
            lambda op, weight: op.name.startswith("shared.") and op.name != "shared.gate" and weight.role != "adapter",
            fields_of(model, "shared_expert_intermediate_size"),
        ),
        "multi_token_prediction": Expression(
            "depths * parameters_each",
            {"depths": ledger.depths, "parameters_each": _numbers(depth, lambda *_: True)},
        ),
        "total_with_multi_token_prediction": Expression("total + multi_token_prediction", {**total, **own}),
    }


def _stage_parameters(workload: Workload, one: LoadedStage, *, copies: bool) -> Expression:
    """Parameters of a stage, those of each kind of layer times its layers; a tied head counts where it is a copy."""
    ledger, stage = workload.ledger, one.stage

    def numbers(ops: Ops) -> dict[str, float]:
        return {"parameters": _numbers(ops, lambda _, weight: copies or not weight.tied)}

    kinds = enumerate(zip(stage.kind_counts, ledger.kinds, strict=True))
    found = weighted_sum(
        {
            "embedding": (float(bool(stage.is_first)), numbers(ledger.embedding)),
            **{f"layer_kind_{kind}": (float(count), numbers(ops)) for kind, (count, ops) in kinds},
            "depth": (float(stage.depths), numbers(ledger.depth)),
            "head": (float(bool(stage.is_last)), numbers(ledger.head)),
        },
        "count",
    )
    return Expression(found.text, {**found.inputs, "layers": float(stage.layers)})


def _flop(resolved: ResolvedQuestion, stages: list[LoadedStage], estimate: Estimate, at: At) -> Iterator[Working]:
    workload, flop, active = resolved.workload, estimate.flop, estimate.parameters.active
    recipe, model, one = workload.recipe, workload.model, sequence_flop(workload.ledger, workload.recompute)
    batch, packed = fields_of(recipe, "global_batch"), _documents(recipe)
    tokens: Inputs = {"tokens": trained_tokens(recipe)}
    masked: Inputs = {"forward": one.causal, "backward": one.backward, **tokens}
    unmasked: Inputs = {"forward": one.full, "backward": one.full_backward, **tokens}
    of_one = "(forward + backward) / tokens"
    yield at("flop.per_token_flop", counts.per_token_flop, of_one, masked)
    yield at("flop.per_step_tokens", step_tokens, "tokens * global_batch", {**packed, **tokens, **batch})
    forward = summed_inputs(_forward_parts(workload), "flop")
    text = f"({forward.text}) * global_batch"
    yield at("flop.forward_per_step_flop", counts.forward_flop, text, {**forward.inputs, **batch})
    of_sequence = "flop_of_sequence * global_batch"
    for name, whole in (("backward_per_step_flop", one.backward), ("per_step_flop", one.training)):
        yield at(f"flop.{name}", counts.step_flop, of_sequence, {"flop_of_sequence": whole, **batch})
    share: Inputs = {"rerun_fraction": rerun_fraction(resolved, stages)}
    again: Inputs = {"rerun_flop_of_sequence": one.rerun, **share, **batch}
    text = "round(rerun_flop_of_sequence * rerun_fraction) * global_batch"
    yield at("flop.recompute_per_step_flop", counts.recompute_flop, text, again)
    ran = fields_of(flop, "per_step_flop", "recompute_per_step_flop")
    yield at("flop.hardware_per_step_flop", counts.hardware_flop, "per_step_flop + recompute_per_step_flop", ran)
    spared = _padding(workload)
    yield at("flop.padding_per_step_flop", counts.padding_flop, spared.text, {**packed, **spared.inputs})
    text = "1 - tokens / sequence_length"
    yield at("flop.padding_fraction", padding_fraction, text, {**packed, **tokens})
    for name, rerun, trained in (
        ("recompute_fraction", one.rerun, one.training),
        ("recompute_full_fraction", one.full_rerun, one.full_training),
    ):
        inputs: Inputs = {"rerun_flop": rerun, **share, "training_flop_of_sequence": trained}
        text = "rerun_flop * rerun_fraction / training_flop_of_sequence"
        yield at(f"flop.{name}", counts.recompute_fraction, text, inputs)
    if flop.recompute_korthikanti_fraction is not None:
        inputs = {**fields_of(model, "hidden_size"), "tokens": recipe.sequence_length}
        text = "tokens / (6 * hidden_size + tokens)"
        yield at("flop.recompute_korthikanti_fraction", counts.korthikanti_fraction, text, inputs)
    yield at("flop.conventions.causal", counts.per_token_flop, of_one, masked)
    yield at("flop.conventions.full", counts.per_token_flop, of_one, unmasked)
    attending = sum(MIXERS[layer_type(model, layer)].attends for layer in range(model.num_hidden_layers))
    inputs = {
        "parameters": active,
        "tokens": recipe.sequence_length,
        "attending_layers": attending,
        **fields_of(model, "num_attention_heads", "query_width", "value_width"),
    }
    width = "(query_width + value_width) / 2"
    text = f"6 * parameters + 12 * attending_layers * num_attention_heads * {width} * tokens"
    yield at("flop.conventions.palm", counts.palm_flop, text, inputs)
    yield at("flop.conventions.six_n", counts.six_n_flop, "6 * parameters", {"parameters": active})
    yield from _run_flop(estimate, at)


def _run_flop(estimate: Estimate, at: At) -> Iterator[Working]:
    """Explanations of the FLOP of a whole run."""
    flop, totals = estimate.flop, estimate.totals
    if totals is None:
        return
    if totals.stages:
        stages = summed_inputs({f"stage_{one.stage}_total_flop": one.total_flop for one in totals.stages})
        yield at("flop.total_flop", counts.run_flop, stages.text, stages.inputs)
    else:
        inputs: Inputs = {"one_step_flop": flop.per_step_flop, "steps": totals.steps}
        yield at("flop.total_flop", counts.run_flop, "one_step_flop * steps", inputs)
    days: Inputs = {**fields_of(flop, "total_flop"), "flop_of_a_pflop_day": counts.PFLOP_DAY_FLOP}
    yield at("flop.total_pflop_days", counts.pflop_days, "total_flop / flop_of_a_pflop_day", days)


def _documents(recipe: Recipe) -> Inputs:
    """Documents of a batch, after those too long for a sequence are split."""
    documents, length = documents_of(recipe), fields_of(recipe, "sequence_length")
    if documents is None:
        return length
    return {
        **length,
        "batching": documents.batching,
        "documents": documents.count,
        "document_tokens": documents.tokens,
        "sum_of_squared_lengths": documents.squares,
    }


def _padding(workload: Workload) -> Expression:
    """FLOP of padding: of operations in proportion to their tokens, and of attention outside documents."""
    share, batch = trained_share(workload.recipe), fields_of(workload.recipe, "global_batch")
    if share == 1:
        return Expression("0", batch)
    by_tokens, attention, inside = 0, 0, 0.0
    for times, ops in workload.ledger.groups():
        for op in ops:
            whole = times * (op.flop + op.backward_flop)
            if op.document_flop is None:
                by_tokens += whole
            else:
                attention += whole
                inside += whole * op.document_flop / op.flop
    inputs: Inputs = {
        **batch,
        "flop_by_tokens": by_tokens,
        "trained_share": float(share),
        "attention_flop": attention,
        "attention_flop_inside_documents": inside,
    }
    outside = "attention_flop - attention_flop_inside_documents"
    return Expression(f"round(global_batch * (flop_by_tokens * (1 - trained_share) + {outside}))", inputs)


def _forward_parts(workload: Workload) -> Inputs:
    """Forward FLOP of one sequence by part of the model; they sum to the whole."""
    ledger, flop = workload.ledger, counts.forward_flop
    return {
        "embedding": flop(ledger.embedding),
        **{f"layer_kind_{kind}": n * flop(ops) for kind, (n, ops) in enumerate(ledger.layer_groups())},
        "depths": ledger.depths * flop(ledger.depth),
        "head": flop(ledger.head),
    }


def mean_step_seconds(totals: Totals, step: Step) -> float:
    """Mean seconds of one step over a run, by its stages.

    Formula: sum over the stages of steps x seconds of a step / steps of the run
    Args:
        step: one step of its last stage
    Returns: seconds of one step [s]
    Source: definition

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


@dataclass(slots=True)
class RunOf:
    """A run whose batch or length changes."""

    resolved: ResolvedQuestion
    loads: tuple[list[LoadedStage], ...]
    """Pipeline stages of each stage of the run but its last."""
    filled_fraction: tuple[float, ...]
    """Share of the device that each stage of the run fills."""


GPU_HOURS = "steps * step_seconds * gpus / 3600 / goodput_fraction"


def _run_stages(run: RunOf, estimate: Estimate, at: At) -> Iterator[Working]:
    """Explanations of each stage of a run. None where batch and length never change."""
    totals, resolved = estimate.totals, run.resolved
    recipe = resolved.question.recipe
    if totals is None or recipe.training_tokens is None or not totals.stages:
        return
    last = CompleteStage(
        until_tokens=recipe.training_tokens, global_batch=recipe.global_batch, sequence_length=recipe.sequence_length
    )
    firsts = (*(first for first, *_ in resolved.run_stages), resolved)
    before = 0.0
    for place, (found, stage) in enumerate(zip(totals.stages, (*recipe.stages, last), strict=True)):
        first = firsts[place]
        batches = _batches(first, stage, before)
        path, steps = f"totals.stages[{found.stage}]", fields_of(found, "steps")
        hours: Inputs = {
            **steps,
            "step_seconds": found.step_seconds.value,
            "gpus": first.question.cluster.gpus,
            "goodput_fraction": totals.goodput_fraction,
        }
        one = sequence_flop(first.workload.ledger, first.workload.recompute)
        held = fields_of_run(batches, "steps_of_each_batch", "batches", "tokens")
        single = "max(0, ceil((until_tokens - trained) / (global_batch * tokens)))"
        text = "sum(steps_of_each_batch)" if len(schedule.batches_of(stage)) > 1 else single
        yield at(f"{path}.steps", schedule.steps_of_phases, text, batches)
        yield at(f"{path}.tokens", step_tokens, "sum(steps_of_each_batch * batches) * tokens", held)
        flop: Inputs = {"flop_of_sequence": one.training, **held}
        yield at(f"{path}.total_flop", counts.run_flop, "flop_of_sequence * sum(steps_of_each_batch * batches)", flop)
        seconds = _stage_seconds(run, place, found, estimate)
        whole: Inputs = {**fields_of_run(batches, "steps_of_each_batch"), "seconds_of_each_batch": seconds}
        text = "sum(steps_of_each_batch * seconds_of_each_batch) / sum(steps_of_each_batch)"
        text = text if len(seconds) > 1 else "sum(seconds_of_each_batch)"
        yield at(f"{path}.step_seconds.value", phase_seconds, text, whole)
        yield at(f"{path}.gpu_hours.value", schedule.gpu_hours, GPU_HOURS, hours)
        before += found.tokens


def fields_of_run(inputs: Inputs, *names: str) -> Inputs:
    """Some of several inputs."""
    return {name: inputs[name] for name in names}


def _batches(first: ResolvedQuestion, stage: CompleteStage, before: float) -> Inputs:
    """Batches of a stage of a run and the steps of each."""
    tokens = trained_tokens(replace(first.question.recipe, sequence_length=stage.sequence_length))
    batches = schedule.batches_of(stage)
    steps = schedule.steps_of_phases(before, stage.until_tokens, [batch * tokens for batch in batches])
    return {
        "trained": before,
        **fields_of(stage, "until_tokens", "global_batch", "final_global_batch", "batch_increment"),
        "tokens": tokens,
        "batches": batches,
        "steps_of_each_batch": steps,
    }


def _stage_seconds(run: RunOf, place: int, found: RunStageTotals, estimate: Estimate) -> tuple[float, ...]:
    """Seconds of one step of each batch of a stage of a run."""
    recipe = run.resolved.question.recipe
    if place == len(recipe.stages):
        return (estimate.step.step_seconds.value,)
    batches = schedule.batches_of(recipe.stages[place])
    if len(batches) == 1:
        return (found.step_seconds.value,)
    first = run.resolved.run_stages[place][0]
    group = first.degrees.micro_batch * first.degrees.data
    several = replace(first, degrees=replace(first.degrees, accumulation=column(batches) / group))
    seconds = slowest_seconds(several, run.loads[place], run.filled_fraction[place])
    return tuple(seconds.tolist()) if not isinstance(seconds, int | float) else (seconds,) * len(batches)


def _totals(resolved: ResolvedQuestion, estimate: Estimate, at: At) -> Iterator[Working]:
    """Every explained number of the totals. None without totals."""
    totals, full = estimate.totals, estimate.resolved
    if totals is None:
        return
    step_seconds, days = mean_step_seconds(totals, estimate.step), totals.days.value
    losses = lost_shares_of(resolved, step_seconds)
    gpus, goodput = fields_of(full.cluster, "gpus"), totals.goodput_fraction
    used: Inputs = {"gpu_hours": totals.gpu_hours.value}
    if totals.stages:
        steps = summed_inputs({f"stage_{one.stage}_steps": one.steps for one in totals.stages})
        yield at("totals.steps", schedule.steps_of_phases, steps.text, steps.inputs)
    else:
        run: Inputs = {**fields_of(full.recipe, "training_tokens", "global_batch")}
        run["tokens"] = trained_tokens(full.recipe)
        yield at("totals.steps", schedule.steps_of, "ceil(training_tokens / (global_batch * tokens))", run)
    hours: Inputs = {"steps": totals.steps, "step_seconds": step_seconds, **gpus, "goodput_fraction": goodput}
    yield at("totals.gpu_hours.value", schedule.gpu_hours, GPU_HOURS, hours)
    spares = fields_of(full.cluster, "gpus", "gpus_per_node", "spare_fraction")
    text = "ceil(gpus * spare_fraction / gpus_per_node) * gpus_per_node"
    yield at("totals.spare_gpus", schedule.spare_gpus, text, spares)
    billed: Inputs = {**used, "days": days, "spare_gpus": totals.spare_gpus}
    text = f"gpu_hours + {_SPARE_HOURS}"
    yield at("totals.billed_gpu_hours.value", schedule.billed_gpu_hours, text, billed)
    yield at("totals.days.value", schedule.run_days, "gpu_hours / (24 * gpus)", {**used, **gpus})
    useful: Inputs = {"days": days, "goodput_fraction": goodput}
    yield at("totals.ideal_days.value", schedule.ideal_days, "days * goodput_fraction", useful)
    peak: Inputs = {"total_flop": estimate.flop.total_flop, **fields_of(estimate.step, "peak_flop_per_s")}
    yield at("totals.at_peak_gpu_hours", schedule.at_peak_gpu_hours, "total_flop / peak_flop_per_s / 3600", peak)
    yield from _goodput(resolved, totals, losses, step_seconds, at)
    if totals.cost is not None and totals.cost_usd is not None:
        charges = charges_of(resolved, usage_of(resolved, totals.gpu_hours, losses))
        lines = summed_inputs({line.kind: line.usd.value for line in totals.cost}, "usd")
        if len(charges) > 1:
            yield at("totals.cost_usd.value", sum_usd, f"round({lines.text}, 2)", lines.inputs)
        for place, charge in enumerate(charges):
            name, text = _CHARGES[charge.formula]
            charged: Inputs = {name: charge.quantity.value, **charge.rates}
            if charge.kind == "spares":
                name, charged = _SPARE_HOURS, {"days": days, "spare_gpus": totals.spare_gpus, **charge.rates}
            whole = f"round({name} * {text}, 2)"
            yield at(f"totals.cost[{place}].usd.value", charge.formula, whole, charged)
            if len(charges) == 1:
                yield at("totals.cost_usd.value", charge.formula, whole, charged)
    yield from _energy(resolved, totals, losses, at)


_SPARE_HOURS = "24 * days * spare_gpus"

_CHARGES: dict[Formula, tuple[str, str]] = {
    rent_usd: ("gpu_hours", "usd_per_gpu_hour * (1 - discount_fraction)"),
    storage_usd: ("days", "24 * stored_bytes * usd_per_gb_month / (1e9 * 730)"),
    egress_usd: ("egress_bytes", "usd_per_gb / 1e9"),
    amortisation_usd: (
        "billed_gpu_hours",
        "purchase_usd * (1 - residual_fraction) / (years * 8760 * utilisation_fraction)",
    ),
    maintenance_usd: ("billed_gpu_hours", "purchase_usd * maintenance_fraction / (8760 * utilisation_fraction)"),
    hosting_usd: ("billed_gpu_hours", "rated_watts * usd_per_kw_month / (1000 * 730 * utilisation_fraction)"),
    electricity_usd: ("energy_kwh", "usd_per_kwh"),
}
"""What each line of a cost multiplies, and by what, before it is rounded to the cent."""

_INTERVALS = {
    "young": "sqrt(2 * checkpoint_seconds * failure_seconds)",
    "daly": (
        "(failure_seconds if checkpoint_seconds >= 2 * failure_seconds else "
        "sqrt(2 * checkpoint_seconds * failure_seconds) * (1 + sqrt(checkpoint_seconds / (2 * failure_seconds)) / 3 "
        "+ checkpoint_seconds / (18 * failure_seconds)) - checkpoint_seconds)"
    ),
}
"""Expressions of the rules for the time between checkpoints."""


def _goodput(
    resolved: ResolvedQuestion, totals: Totals, losses: LostShares, step_seconds: float, at: At
) -> Iterator[Working]:
    path, workload, checkpointing = "totals.goodput", resolved.workload, checkpointing_of(resolved.workload)
    written, rate = written_bytes(workload), checkpointing.write_bytes_per_s
    shares = fields_of(losses, "checkpoints_fraction", "lost_work_fraction", "restarts_fraction")
    text = "1 / (1 + checkpoints_fraction + lost_work_fraction + restarts_fraction)"
    yield at("totals.goodput_fraction", goodput_fraction, text, shares)
    text = "3600 / (gpus * failures_per_gpu_hour + instances * preemptions_per_instance_hour)"
    yield at(f"{path}.interruption_seconds", interruption_seconds, text, interruption_inputs(resolved.question))
    stalls: Inputs = {
        "write_bytes_per_s": rate,
        "checkpoint_bytes": written,
        "host_bytes_per_s": workload.gpu.host_bytes_per_s,
        "gpus": workload.cluster.gpus,
    }
    if checkpointing.stall_seconds is not None or rate is None:
        stalls, text = {**stalls, "stall_seconds": losses.checkpoint_seconds}, "stall_seconds"
    elif checkpointing.asynchronous:
        text = "checkpoint_bytes / (gpus * host_bytes_per_s)"
    else:
        text = "checkpoint_bytes / write_bytes_per_s"
    yield at(f"{path}.checkpoint_seconds", stall_seconds, text, stalls)
    rule = checkpointing.rule or "young"
    intervals: Inputs = {
        "checkpoint_seconds": losses.checkpoint_seconds,
        "failure_seconds": losses.interruption_seconds,
        "interval_seconds": checkpointing.interval_seconds,
        "step_seconds": step_seconds,
        "write_bytes_per_s": rate,
        "checkpoint_bytes": written,
    }
    least = ["interval_seconds" if checkpointing.interval_seconds else _INTERVALS[rule], "step_seconds"]
    if checkpointing.asynchronous and rate is not None:
        least.append("checkpoint_bytes / write_bytes_per_s")
    yield at(f"{path}.checkpoint_interval_seconds", INTERVALS[rule], f"max({', '.join(least)})", intervals)
    for place, (name, share) in enumerate(shares.items()):
        lost: Inputs = {"ideal_days": totals.ideal_days.value, name: share}
        yield at(f"{path}.lost[{place}].days", lost_days, f"ideal_days * {name}", lost)


def _energy(resolved: ResolvedQuestion, totals: Totals, losses: LostShares, at: At) -> Iterator[Working]:
    cluster = resolved.question.cluster
    power: Inputs = {
        "board_watts": resolved.workload.gpu.board_watts,
        "limit_watts": kernels.limited_watts(resolved.workload),
        **fields_of(cluster, "host_power_fraction", "pue"),
    }
    boards = "min(limit_watts, power_fraction * board_watts)"
    text = f"({boards} + power_fraction * board_watts * host_power_fraction) * pue"
    for name, load in (("busy", cluster.busy_power_fraction), ("idle", cluster.idle_power_fraction)):
        yield at(f"totals.gpu_{name}_watts", gpu_watts, text, {**power, "power_fraction": load})
    energy: Inputs = {
        "gpu_hours": totals.gpu_hours.value,
        "days": totals.days.value,
        **fields_of(totals, "spare_gpus", "gpu_busy_watts", "gpu_idle_watts", "goodput_fraction"),
        **fields_of(losses, "restarts_fraction"),
    }
    waiting = "restarts_fraction * goodput_fraction"
    idle = f"gpu_hours * {waiting} + {_SPARE_HOURS}"
    text = f"(gpu_hours * (1 - {waiting}) * gpu_busy_watts + ({idle}) * gpu_idle_watts) / 1000"
    yield at("totals.energy_kwh.value", energy_kwh, text, energy)
    if totals.carbon_kg_co2e is not None:
        carbon: Inputs = {"energy_kwh": totals.energy_kwh.value, **fields_of(cluster, "grid_kg_co2e_per_kwh")}
        text = "energy_kwh * grid_kg_co2e_per_kwh"
        yield at("totals.carbon_kg_co2e.value", carbon_kg_co2e, text, carbon)
