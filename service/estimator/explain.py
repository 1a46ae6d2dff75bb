"""Explanations of the numbers of an answer, each computed again from its inputs."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache, partial
from inspect import getdoc
from textwrap import dedent
from typing import Any

from service.estimator import schedule
from service.estimator.answer import Estimate, Explanation, Inputs, StageMemory, Step, Totals
from service.estimator.complete import CompleteStage
from service.estimator.constants import LAUNCH_SECONDS, measured_scale
from service.estimator.degrees import divisors, padded_vocabulary
from service.estimator.memory import activations, device, states
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
from service.estimator.model import counts
from service.estimator.model.counts import sequence_flop
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
from service.estimator.run.run import (
    LoadedStage,
    peak_stage_in,
    phase_seconds,
    rank_bytes_of,
    stages_of,
    tokens_per_s_per_gpu,
    total_seconds,
    utilisation_fraction,
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
from service.estimator.software.precision import highest_peak_flop_per_s
from service.estimator.time import kernels
from service.estimator.time.collectives import interconnect_of, transfer_seconds
from service.estimator.time.communication import offloaded_activation_seconds
from service.estimator.time.step import host_seconds, loss_seconds, other_seconds, pressure_fraction, straggler_seconds
from service.estimator.workload import Workload

Formula = Callable[..., Any]
FormulaInputs = tuple[Formula, Inputs]
At = Callable[[str, Formula, Inputs], Explanation]
"""Function that explains the number at a path of the answer by a formula and its inputs."""

_HEADING = re.compile(r"(Formula|Args|Returns|Raises|Source|Ignores):(?: (.+))?")
"""Heading of a section, which may hold its only line."""
_ENTRY = re.compile(r"\*{0,2}(\w+): (.*)")
_UNIT = re.compile(r"\[([^\[\]]+)\](?:, [^\[\]]*)?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Docstring:
    """A parsed docstring."""

    summary: str
    """First line, which names the quantity."""
    sections: dict[str, str]
    """Text below each heading, without its indentation."""
    arguments: dict[str, str]
    has_example: bool
    """Whether it contains a worked example."""

    @property
    def unit(self) -> str | None:
        """Unit of what is returned."""
        return unit_of(self.sections.get("Returns", ""))


@cache
def read_docstring(documented: Callable[..., Any]) -> Docstring:
    """The sections of a function's docstring; empty without one."""
    return parse_docstring(getdoc(documented) or "")


def parse_docstring(text: str) -> Docstring:
    """Parse a docstring."""
    lines = text.splitlines()
    sections: dict[str, list[str]] = {}
    current: list[str] = []
    for line in lines:
        heading = _HEADING.fullmatch(line)
        if heading:
            current = sections.setdefault(heading[1], [heading[2]] if heading[2] else [])
        elif line and not line.startswith(" "):
            current = []
        else:
            current.append(line)
    joined = {name: dedent("\n".join(body)).strip() for name, body in sections.items()}
    return Docstring(
        summary=lines[0] if lines else "",
        sections=joined,
        arguments=_arguments(joined.get("Args", "")),
        has_example=any(line.startswith(">>> ") for line in lines),
    )


def unit_of(text: str) -> str | None:
    """The unit that a description ends with.

    >>> unit_of("bytes of the whole tensor, S [byte]"), unit_of("rates of one GPU")
    ('byte', None)
    """
    result = _UNIT.search(text)
    return result[1] if result else None


def _arguments(text: str) -> dict[str, str]:
    arguments: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        entry = _ENTRY.fullmatch(line)
        if entry:
            name = entry[1]
            arguments[name] = entry[2]
        elif name:
            arguments[name] += f" {line.strip()}"
    return arguments


def _value_at(estimate: Estimate, path: str) -> float:
    value: Any = estimate
    for name in re.findall(r"\w+", path):
        value = value[int(name)] if name.isdigit() else getattr(value, name)
    result: float = value
    return result


def _explanation(path: str, value: float, formula: Formula, inputs: Inputs) -> Explanation:
    docstring = read_docstring(formula)
    return Explanation(
        path=path,
        value=value,
        exact=str(Decimal(value)),
        unit=None if docstring.unit == "1" else docstring.unit,
        summary=docstring.summary,
        equation=docstring.sections.get("Formula", ""),
        inputs=inputs,
        source=docstring.sections.get("Source", ""),
    )


def explained(estimate: Estimate, path: str, formula: Formula, inputs: Inputs) -> Explanation:
    """The explanation of the number at a path of the answer, worded by the docstring of the formula that gave it."""
    return _explanation(path, _value_at(estimate, path), formula, inputs)


def applied(path: str, formula: Formula, **inputs: float | int | bool | str | None) -> Explanation:
    """The explanation of a number that a formula of plain inputs gives."""
    return _explanation(path, formula(**inputs), formula, inputs)


def _fields(source: object, *names: str) -> Inputs:
    return {name: getattr(source, name) for name in names}


def _floats(source: object, *names: str) -> Inputs:
    return {name: float(getattr(source, name)) for name in names}


def explanations(question: Question, estimate: Estimate) -> tuple[Explanation, ...]:
    """Every explained number of an answer."""
    resolved, at = resolve(question), partial(explained, estimate)
    stages, peak = stages_of(resolved), peak_stage_in(resolved)
    return (
        *_parameters(resolved, stages, estimate, at),
        *_memory(peak.resolved, peak.stages, estimate, at),
        *_flop(resolved.workload, estimate, at),
        *_step(resolved.workload, estimate, at),
        *_totals(resolved, estimate, at),
        *_run_stages(resolved, estimate, at),
    )


def _parameters(
    resolved: ResolvedQuestion, stages: list[LoadedStage], estimate: Estimate, at: At
) -> Iterator[Explanation]:
    """Explanations of every count of the model and of its stages."""
    model, ledger, parameters = resolved.workload.model, resolved.workload.ledger, estimate.parameters
    table, total = _fields(model, "vocab_size", "embedding_width"), _fields(parameters, "total")
    experts = {**total, **_fields(parameters, "routed_experts"), **_fields(model, "num_experts", "num_experts_per_tok")}
    outside = _fields(parameters, "input_embedding", "position_embedding", "lm_head")
    depths: Inputs = {"depths": model.num_nextn_predict_layers, "own": parameters.multi_token_prediction}
    trained = resolved.workload.method
    method: Inputs = {
        "method": trained.name,
        "rank": trained.rank,
        "targets": ", ".join(trained.targets),
        "frozen": ", ".join(trained.frozen),
        "frozen_layers": trained.frozen_layers,
    }
    rows: dict[str, Inputs] = {
        "total": {
            "embedding": _parameters_of(ledger.embedding),
            **{
                f"layer_kind_{kind}": _parameters_of(ops) * count
                for kind, (count, ops) in enumerate(zip(ledger.kind_counts(), ledger.kinds, strict=True))
            },
            "head": _parameters_of(ledger.head),
        },
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
        "routed_experts": _fields(model, "expert_width", "num_experts"),
        "shared_experts": _fields(model, "shared_expert_intermediate_size"),
        "multi_token_prediction": depths,
        "total_with_multi_token_prediction": {**total, **depths},
    }
    for name, inputs in rows.items():
        yield at(f"parameters.{name}", counts.parameter_counts, inputs)
    for position, one in enumerate(stages):
        path = f"parameters.stages[{position}]"
        yield at(f"{path}.total", stage_total, {"layers": float(one.stage.layers)})
        yield at(f"{path}.per_rank", rank_parameters, _floats(one.load.parameters, "dense", "expert"))


def _parameters_of(ops: Ops) -> int:
    return sum(weight.parameters for op in ops for weight in op.weights if not weight.tied and weight.role != "adapter")


def _memory(resolved: ResolvedQuestion, stages: list[LoadedStage], estimate: Estimate, at: At) -> Iterator[Explanation]:
    """Explanations of every line of every stage, and of the peaks."""
    cached_bytes = []
    for position, one in enumerate(stages):
        rank_bytes = rank_bytes_of(resolved, one)
        cached_bytes.append(float(rank_bytes.cached))
        yield from _stage_memory(resolved, one, rank_bytes, estimate.memory.stages[position], at)
    yield from _peaks(resolved, estimate, cached_bytes[estimate.memory.peak_stage], at)


def _stage_memory(
    resolved: ResolvedQuestion, one: LoadedStage, rank_bytes: StageBytes, given: StageMemory, at: At
) -> Iterator[Explanation]:
    path, accumulation = f"memory.stages[{given.stage}]", float(resolved.degrees.accumulation)
    sharded, formulas = states.sharded_lines(resolved.workload, one.load), _line_formulas(resolved, one)
    for index, line in enumerate(given.lines):
        operands = sharded.get(line.kind)
        formula, inputs = formulas[line.kind] if operands is None else _sharded(resolved, one, operands)
        yield at(f"{path}.lines[{index}].bytes", formula, inputs)
    yield at(f"{path}.micro_batches_in_flight", in_flight, {"stage": given.stage, "accumulation": accumulation})
    lines: Inputs = {line.kind: line.bytes for line in given.lines}
    yield at(f"{path}.allocated_peak_bytes", device.allocated_interval, lines)
    beside: Inputs = {"allocated_bytes": given.allocated_peak_bytes, "held_bytes": float(rank_bytes.cached)}
    yield at(f"{path}.reserved_peak_bytes", device.reserved_bytes, beside)
    first: Inputs = {**first_step_lines(rank_bytes, several=accumulation > 1)}
    yield at(f"{path}.first_step_peak_bytes", first_step_peak_bytes, first)
    yield at(f"{path}.idle_bytes", stage_bytes, {**live_bytes(rank_bytes, BETWEEN_STEPS, ())})


def _sharded(resolved: ResolvedQuestion, one: LoadedStage, line: states.Sharded) -> FormulaInputs:
    """The formula of a line that the data group may shard, and its inputs."""
    inputs: Inputs = {
        "dense": float(line.dense),
        "dense_shards": float(shards(resolved.degrees, line.kind)),
        "expert": float(line.expert),
        "expert_shards": float(expert_shards(resolved.degrees, line.kind)),
        "bytes_each": line.each_bytes,
    }
    undivided = float(states.undivided_share(resolved.workload, resolved.degrees, one.load))
    return states.sharded_bytes, {**inputs, "undivided": undivided} if undivided else inputs


def _line_formulas(resolved: ResolvedQuestion, one: LoadedStage) -> dict[str, FormulaInputs]:
    """The formula of each line that the data group does not shard, and its inputs."""
    workload, degrees, layout, load = resolved.workload, resolved.degrees, resolved.question.layout, one.load
    trained = float(load.parameters.dense_trained + load.parameters.expert_trained)
    rank_tokens, tensor = _floats(degrees, "micro_batch", "context"), _floats(degrees, "tensor")
    stream: Inputs = {"stream_bytes": float(sequence_stream_bytes(workload, degrees))}
    gathered: Inputs = {
        "every_weight": float(load.parameters.dense + load.parameters.expert),
        **_floats(load, "largest_layer", "gathered_ends"),
        "trained_weights": trained,
        **_floats(load, "largest_trained_layer", "largest_trained_end", "embedding_table"),
        "weight_bytes": workload.state.gathered_bytes,
        "reduction_bytes": states.REDUCTION_BYTES,
        **_floats(degrees, "zero_stage", "reshard_after_forward"),
    }
    buckets: Inputs = {
        "trained_weights": trained,
        "largest_table": float(load.largest_table),
        "bucket_numbers": float(workload.stack.bucket_numbers),
        "bytes_each": workload.state.gradient_bytes,
        **_floats(degrees, "zero_stage", "data"),
    }
    exchanged: Inputs = {
        "key_value_bytes": float(key_value_bytes(workload, degrees)),
        "context": float(degrees.context),
        "context_method": layout.context_method,
    }
    handed: Inputs = {
        "stream_bytes": float(handed_stream_bytes(workload, degrees)),
        "gradient_bytes": float(activations.lasting_gradient_bytes(workload, degrees)),
    }
    logits: Inputs = {
        "losses": 1 + workload.ledger.depths,
        "tokens": workload.recipe.sequence_length * float(degrees.micro_batch) / float(degrees.context),
        "padded_vocabulary": float(padded_vocabulary(workload.model, workload.vocabulary_multiple, degrees.tensor)),
        **tensor,
        "logit_bytes": workload.cross_entropy.logit_bytes(workload.precision.element_bytes),
        "cross_entropy": workload.software.cross_entropy,
    }
    workspace = {
        **_fields(workload.gpu, "architecture"),
        **_fields(workload.software, "implementation", "deterministic"),
    }
    saved = (activations.stage_activations, _activation_inputs(resolved, one))
    mask: Inputs = {"sequence_length": workload.recipe.sequence_length, **rank_tokens}
    placeholders = {**_fields(workload.versions, "transformer_engine", "megatron_core"), **tensor}
    return {
        "gathered_weights": (states.all_gathered_weights, gathered),
        "reduced_gradients": (states.all_gathered_weights, gathered),
        "gradient_buckets": (states.bucket_bytes, buckets),
        "context_buffers": (exchanged_bytes, exchanged),
        "attention_mask": (mask_bytes, mask),
        "pipeline_buffers": (received_bytes, {"stage": float(one.stage.index), **stream}),
        "left_streams": (left_bytes, {"chunks": len(one.stage.chunk_counts), **stream}),
        "activations": saved,
        "recomputed_activations": saved,
        "layer_buffers": (activations.layer_buffer_bytes, handed),
        "logits": (activations.logits_bytes, logits),
        "gradient_placeholders": (activations.placeholder_bytes, placeholders),
        "workspace": (persistent_buffer_bytes, workspace),
    }


def _activation_inputs(resolved: ResolvedQuestion, one: LoadedStage) -> Inputs:
    """Bytes that each operation of a layer saves, by kind of layer, and what each chunk has in flight."""
    workload, degrees, layout = resolved.workload, resolved.degrees, resolved.question.layout
    split = divisors(degrees, workload.model, workload.vocabulary_multiple)
    scale = degrees.micro_batch / degrees.context
    flying = in_flight(layout.schedule, degrees, one.stage.index, len(one.stage.chunk_counts))
    return {
        **{
            f"layer_kind_{kind}.{op.name}": float(activations.kept_bytes((op,), workload.recompute, split) * scale)
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


def _peaks(resolved: ResolvedQuestion, estimate: Estimate, held_bytes: float, at: At) -> Iterator[Explanation]:
    workload, memory, peak = resolved.workload, estimate.memory, estimate.memory.device_peak_bytes
    weights = [(times, one) for times, ops in workload.ledger.groups() for op in ops for one in op.weights]
    reserved: Inputs = {
        "allocated_bytes": memory.allocated_peak_bytes.value,
        "share": device.reserved_shares(workload)[1],
        "room_bytes": device.allocator_room_bytes(workload),
        "held_bytes": held_bytes,
    }
    beside: Inputs = {
        "reserved_bytes": memory.reserved_peak_bytes.value,
        "context_and_communicator_bytes": device.beside_allocator(workload)[1],
        "gpus": workload.cluster.gpus,
    }
    written: Inputs = {
        "trained_parameters": sum(times * one.parameters for times, one in weights if one.trained and not one.tied),
        **_fields(workload.state, "weight_bytes", "master_bytes"),
        "optimizer": workload.recipe.optimizer,
    }
    usable, lines = _fields(memory, "usable_bytes"), memory.stages[memory.peak_stage].lines
    risk: Inputs = {"device_bytes": peak.value, "high_bytes": peak.high, **usable}
    yield at("memory.allocated_peak_bytes.value", device.allocated_interval, {line.kind: line.bytes for line in lines})
    yield at("memory.reserved_peak_bytes.value", device.reserved_bytes, reserved)
    yield at("memory.device_peak_bytes.value", device.device_interval, beside)
    yield at("memory.oom_probability_fraction", device.oom_probability_fraction, risk)
    yield at("memory.usable_bytes", device.usable_bytes, {"gpu": workload.gpu.slug})
    yield at("memory.headroom_bytes", device.headroom_bytes, {**usable, "device_bytes": peak.value})
    yield at("memory.host_bytes", states.sharded_bytes, {"offload": resolved.question.layout.offload})
    yield at("memory.checkpoint_bytes", states.checkpoint_bytes, written)


def _flop(workload: Workload, estimate: Estimate, at: At) -> Iterator[Explanation]:
    flop, recipe, active = estimate.flop, workload.recipe, estimate.parameters.active
    batch, one = _fields(recipe, "global_batch"), sequence_flop(workload.ledger, workload.recompute)
    tokens, packed = trained_tokens(recipe), _documents(recipe)
    masked: Inputs = {"forward": one.causal, "backward": one.backward, "tokens": tokens}
    unmasked: Inputs = {"forward": one.full, "backward": one.full_backward, "tokens": tokens}
    recomputed = _fields(flop, "per_step_flop", "recompute_per_step_flop")
    yield at("flop.per_token_flop", counts.per_token_flop, masked)
    yield at("flop.per_step_tokens", step_tokens, {**packed, **batch})
    yield at("flop.forward_per_step_flop", counts.forward_flop, {**_forward_parts(workload), **batch})
    yield applied("flop.backward_per_step_flop", counts.step_flop, flop_of_sequence=one.backward, **batch)
    yield applied("flop.per_step_flop", counts.step_flop, flop_of_sequence=one.training, **batch)
    yield at("flop.recompute_per_step_flop", counts.recompute_flop, {"rerun_flop_of_sequence": one.rerun, **batch})
    yield at("flop.hardware_per_step_flop", counts.recompute_flop, recomputed)
    yield at("flop.padding_per_step_flop", counts.padding_flop, packed)
    yield at("flop.padding_fraction", padding_fraction, packed)
    for name, rerun, whole in (
        ("recompute_fraction", one.rerun, one.training),
        ("recompute_full_fraction", one.full_rerun, one.full_training),
    ):
        inputs: Inputs = {"rerun_flop": rerun, "training_flop_of_sequence": whole}
        yield at(f"flop.{name}", counts.recompute_flop, inputs)
    yield at("flop.conventions.causal", counts.per_token_flop, masked)
    yield at("flop.conventions.full", counts.per_token_flop, unmasked)
    yield at("flop.conventions.palm", counts.palm_flop, {"parameters": active, "tokens": recipe.sequence_length})
    yield applied("flop.conventions.six_n", counts.six_n_flop, parameters=active)
    totals = estimate.totals
    if totals is None:
        return
    inputs = {"steps": totals.steps, **{f"stage_{one.stage}_total_flop": one.total_flop for one in totals.stages}}
    if totals.stages:
        yield at("flop.total_flop", counts.run_flop, inputs)
    else:
        yield applied("flop.total_flop", counts.run_flop, one_step_flop=flop.per_step_flop, steps=totals.steps)
    yield at("flop.total_pflop_days", counts.run_flop, inputs)


def _documents(recipe: Recipe) -> Inputs:
    """Documents of a batch, after those too long for a sequence are split."""
    documents, length = documents_of(recipe), _fields(recipe, "sequence_length")
    if documents is None:
        return length
    return {
        **length,
        "batching": documents.batching,
        "documents": documents.count,
        "document_tokens": documents.tokens,
        "sum_of_squared_lengths": documents.squares,
    }


def _forward_parts(workload: Workload) -> Inputs:
    """Forward FLOP of one sequence by part of the model; they sum to the whole."""
    ledger, flop = workload.ledger, counts.forward_flop
    return {
        "embedding": flop(ledger.embedding),
        **{f"layer_kind_{kind}": n * flop(ops) for kind, (n, ops) in enumerate(ledger.layer_groups())},
        "depths": ledger.depths * flop(ledger.depth),
        "head": flop(ledger.head),
    }


_PARTS: dict[str, Callable[..., Any]] = {
    "gemm": kernels.product_seconds,
    "attention": kernels.attention_seconds,
    "elementwise": kernels.op_seconds,
    "cast": kernels.product_seconds,
    "accumulation": kernels.accumulation_seconds,
    "recompute": kernels.op_seconds,
    "loss": loss_seconds,
    "host": host_seconds,
    **{f"exposed_{axis}": transfer_seconds for axis in ("tensor", "context", "expert", "data", "pipeline")},
    "exposed_offload": offloaded_activation_seconds,
    "bubble": bubble_micro_batches,
    "optimizer": kernels.optimizer_seconds,
    "straggler": straggler_seconds,
    "allocator": pressure_fraction,
    "other": other_seconds,
}
"""The formula that each part of a step comes from."""


def _step(workload: Workload, estimate: Estimate, at: At) -> Iterator[Explanation]:
    step, flop, gpus = estimate.step, estimate.flop, _fields(estimate.resolved.cluster, "gpus")
    seconds: Inputs = {"step_seconds": step.step_seconds.value}
    rates = kernels.rates_of(workload)
    interconnect = interconnect_of(workload.cluster, workload.gpu, workload.constants.network_scale)
    inputs: Inputs = {
        **_fields(estimate.resolved.recipe, "micro_batch", "global_batch"),
        **gpus,
        "product_flop_per_s": rates.products.plain.flop_per_s,
        "attention_flop_per_s": rates.attention_flop_per_s * rates.attention.forward_fraction,
        "memory_bytes_per_s": rates.bytes_per_s,
        **_fields(interconnect, "link_bytes_per_s", "network_bytes_per_s"),
        "link_curves": interconnect.link.source,
        "launch_seconds": LAUNCH_SECONDS,
        "stack_scale": kernels.stack_scale(workload),
        "own_scale": measured_scale(workload.cluster.measured_steps, workload.calibrated_steps),
    }
    yield at("step.step_seconds.value", total_seconds, {part.kind: part.seconds for part in step.parts})
    yield at("step.peak_flop_per_s", highest_peak_flop_per_s, {"gpu": workload.gpu.slug})
    tokens: Inputs = {"batch_tokens": flop.per_step_tokens, **gpus, **seconds}
    yield applied("step.tokens_per_s_per_gpu.value", tokens_per_s_per_gpu, **tokens)
    for name, done in (("mfu", flop.per_step_flop), ("hfu", flop.hardware_per_step_flop)):
        machine = {**gpus, **_fields(step, "peak_flop_per_s"), **seconds}
        yield applied(f"step.{name}_fraction.value", utilisation_fraction, flop=done, **machine)
    for index, part in enumerate(step.parts):
        yield at(f"step.parts[{index}].seconds", _PARTS[part.kind], inputs)


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


def _run_stages(resolved: ResolvedQuestion, estimate: Estimate, at: At) -> Iterator[Explanation]:
    """Explanations of each stage of a run. None where batch and length never change."""
    totals, recipe = estimate.totals, resolved.question.recipe
    if totals is None or recipe.training_tokens is None or not totals.stages:
        return
    last = CompleteStage(
        until_tokens=recipe.training_tokens, global_batch=recipe.global_batch, sequence_length=recipe.sequence_length
    )
    stages = (*recipe.stages, last)
    firsts = (*(first for first, *_ in resolved.run_stages), resolved)
    before = 0.0
    for stage_totals, stage, first in zip(totals.stages, stages, firsts, strict=True):
        path = f"totals.stages[{stage_totals.stage}]"
        batches: Inputs = {
            "trained": before,
            **_fields(stage, "until_tokens", "global_batch", "final_global_batch", "batch_increment"),
            "tokens": trained_tokens(replace(first.question.recipe, sequence_length=stage.sequence_length)),
        }
        one, steps = sequence_flop(first.workload.ledger, first.workload.recompute), _fields(stage_totals, "steps")
        hours: Inputs = {
            **steps,
            "step_seconds": stage_totals.step_seconds.value,
            "gpus": first.question.cluster.gpus,
            "goodput": totals.goodput_fraction,
        }
        yield at(f"{path}.steps", schedule.steps_of_phases, batches)
        yield at(f"{path}.tokens", step_tokens, {**batches, **steps})
        yield at(f"{path}.total_flop", counts.run_flop, {"flop_of_sequence": one.training, **batches})
        yield at(f"{path}.step_seconds.value", phase_seconds, {**batches, **steps})
        yield applied(f"{path}.gpu_hours.value", schedule.gpu_hours, **hours)
        before += stage_totals.tokens


def _totals(resolved: ResolvedQuestion, estimate: Estimate, at: At) -> Iterator[Explanation]:
    """Every explained number of the totals. None without totals."""
    totals, full = estimate.totals, estimate.resolved
    if totals is None:
        return
    step_seconds, days = mean_step_seconds(totals, estimate.step), totals.days.value
    losses = lost_shares_of(resolved, step_seconds)
    gpus, goodput = _fields(full.cluster, "gpus"), totals.goodput_fraction
    used: Inputs = {"gpu_hours_used": totals.gpu_hours.value}
    if totals.stages:
        steps: Inputs = {f"stage_{one.stage}_steps": one.steps for one in totals.stages}
        yield at("totals.steps", schedule.steps_of_phases, steps)
    else:
        steps = {**_fields(full.recipe, "training_tokens", "global_batch"), "tokens": trained_tokens(full.recipe)}
        yield applied("totals.steps", schedule.steps_of, **steps)
    hours: Inputs = {"steps": totals.steps, "step_seconds": step_seconds, **gpus, "goodput": goodput}
    yield applied("totals.gpu_hours.value", schedule.gpu_hours, **hours)
    spares = _fields(full.cluster, "gpus", "gpus_per_node", "spare_fraction")
    yield applied("totals.spare_gpus", schedule.spare_gpus, **spares)
    spare_hours = schedule.spare_gpu_hours(days, totals.spare_gpus)
    yield applied("totals.billed_gpu_hours.value", schedule.billed_gpu_hours, **used, spare_gpu_hours=spare_hours)
    yield applied("totals.days.value", schedule.run_days, **used, **gpus)
    yield applied("totals.ideal_days.value", schedule.ideal_days, days=days, goodput=goodput)
    peak: Inputs = {"flop": estimate.flop.total_flop, **_fields(estimate.step, "peak_flop_per_s")}
    yield applied("totals.at_peak_gpu_hours", schedule.at_peak_gpu_hours, **peak)
    yield from _goodput(resolved, totals, losses, step_seconds, at)
    if totals.cost is not None and totals.cost_usd is not None:
        charges = charges_of(resolved, usage_of(resolved, totals.gpu_hours, losses))
        yield at("totals.cost_usd.value", sum_usd, {line.kind: line.usd.value for line in totals.cost})
        for place, charge in enumerate(charges):
            charged: Inputs = {"quantity": charge.quantity.value, **charge.rates}
            yield at(f"totals.cost[{place}].usd.value", charge.formula, charged)
    yield from _energy(resolved, totals, losses)


def _goodput(
    resolved: ResolvedQuestion, totals: Totals, losses: LostShares, step_seconds: float, at: At
) -> Iterator[Explanation]:
    path, workload, checkpointing = "totals.goodput", resolved.workload, checkpointing_of(resolved.workload)
    stalls: Inputs = {
        **_fields(checkpointing, "stall_seconds", "write_bytes_per_s"),
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
    shares = _fields(losses, "checkpoints_fraction", "lost_work_fraction", "restarts_fraction")
    yield applied("totals.goodput_fraction", goodput_fraction, **shares)
    yield applied(f"{path}.interruption_seconds", interruption_seconds, **interruption_inputs(resolved.question))
    yield at(f"{path}.checkpoint_seconds", stall_seconds, stalls)
    yield at(f"{path}.checkpoint_interval_seconds", INTERVALS[checkpointing.rule or "young"], intervals)
    for place, share in enumerate(shares.values()):
        lost: Inputs = {"ideal_days": totals.ideal_days.value, "waste_fraction": share}
        yield applied(f"{path}.lost[{place}].days", lost_days, **lost)


def _energy(resolved: ResolvedQuestion, totals: Totals, losses: LostShares) -> Iterator[Explanation]:
    cluster = resolved.question.cluster
    waiting_fraction = losses.restarts_fraction * losses.goodput_fraction
    hours, spare = totals.gpu_hours.value, schedule.spare_gpu_hours(totals.days.value, totals.spare_gpus)
    power: Inputs = {
        "board_watts": resolved.workload.gpu.board_watts,
        "limit_watts": kernels.limited_watts(resolved.workload),
        **_fields(cluster, "host_power_fraction", "pue"),
    }
    energy: Inputs = {
        "busy_gpu_hours": hours * (1 - waiting_fraction),
        "busy_watts": totals.gpu_busy_watts,
        "idle_gpu_hours": hours * waiting_fraction + spare,
        "idle_watts": totals.gpu_idle_watts,
    }
    yield applied("totals.gpu_busy_watts", gpu_watts, **power, power_fraction=cluster.busy_power_fraction)
    yield applied("totals.gpu_idle_watts", gpu_watts, **power, power_fraction=cluster.idle_power_fraction)
    yield applied("totals.energy_kwh.value", energy_kwh, **energy)
    if totals.carbon_kg_co2e is not None:
        carbon: Inputs = {"used_kwh": totals.energy_kwh.value, **_fields(cluster, "grid_kg_co2e_per_kwh")}
        yield applied("totals.carbon_kg_co2e.value", carbon_kg_co2e, **carbon)
