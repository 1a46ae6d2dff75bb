"""Explanations of the time of a step: each part from what its stage computes and sends for one micro-batch."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

from service.estimator.answer import Communication, Estimate, Inputs
from service.estimator.constants import LAUNCH_SECONDS, measured_scale
from service.estimator.degrees import OPTIMIZER_STATES, WEIGHTS, Transfer, divisors
from service.estimator.explain.expression import (
    At,
    Expression,
    Formula,
    Working,
    fields_of,
    numbers_of,
    summed_inputs,
    weighted_sum,
)
from service.estimator.memory.activations import rank_logits, repeated_forwards, trained_layers
from service.estimator.memory.memory import OFF_DEVICE, OFFLOADED_ACTIVATIONS
from service.estimator.model.ledger import Ops
from service.estimator.numeric import ceil_div, summed
from service.estimator.parallelism import context, data, expert, pipeline, tensor
from service.estimator.parallelism.buckets import is_beside
from service.estimator.parallelism.pipeline import bubble_micro_batches
from service.estimator.question import ContextMethod
from service.estimator.resolve import ResolvedQuestion
from service.estimator.run.run import (
    LoadedStage,
    StageWork,
    slowest_work,
    tokens_per_s_per_gpu,
    total_seconds,
    utilisation_fraction,
)
from service.estimator.software.precision import highest_peak_flop_per_s, peak_flop_per_s
from service.estimator.time import collectives, communication, host, kernels, optimizer, step
from service.estimator.time.collectives import Interconnect, transfer_seconds
from service.estimator.workload import Workload


def step_explanations(
    resolved: ResolvedQuestion, stages: list[LoadedStage], filled_fraction: float, estimate: Estimate, at: At
) -> Iterator[Working]:
    """Explanations of the time of a step and of each of its parts."""
    workload, found, flop = resolved.workload, estimate.step, estimate.flop
    gpus = fields_of(estimate.resolved.cluster, "gpus")
    seconds: Inputs = {"step_seconds": found.step_seconds.value}
    parts = summed_inputs({part.kind: part.seconds for part in found.parts}, "seconds")
    yield at("step.step_seconds.value", total_seconds, parts.text, parts.inputs)
    formats = workload.precision.matrix_format, workload.precision.attention_format
    named = zip(("matrix_flop_per_s", "attention_flop_per_s"), formats, strict=True)
    peaks = {name: peak_flop_per_s(workload.gpu, number_format) for name, number_format in named}
    known: Inputs = {name: peak for name, peak in peaks.items() if peak is not None}
    text = f"max({', '.join(known)})" if len(known) > 1 else "".join(known)
    yield at("step.peak_flop_per_s", highest_peak_flop_per_s, text, {**known, "gpu": workload.gpu.slug})
    tokens: Inputs = {"batch_tokens": flop.per_step_tokens, **gpus, **seconds}
    path = "step.tokens_per_s_per_gpu.value"
    yield at(path, tokens_per_s_per_gpu, "batch_tokens / gpus / step_seconds", tokens)
    for name, done in (("mfu", flop.per_step_flop), ("hfu", flop.hardware_per_step_flop)):
        machine: Inputs = {"flop": done, **gpus, **fields_of(found, "peak_flop_per_s"), **seconds}
        used = "flop / (peak_flop_per_s * gpus) / step_seconds"
        yield at(f"step.{name}_fraction.value", utilisation_fraction, used, machine)
    slowest = _slowest(resolved, stages, filled_fraction)
    scale = {
        "stack_scale": kernels.stack_scale(workload),
        "own_scale": measured_scale(workload.cluster.measured_steps, workload.calibrated_steps),
    }
    for index, part in enumerate(found.parts):
        formula, own = _PARTS[part.kind](slowest, part.kind)
        text = own.text if own.text == "0" else f"stack_scale * own_scale * ({own.text})"
        one = at(f"step.parts[{index}].seconds", formula, text, {**scale, **own.inputs})
        yield replace(one, unit="s")
    for index, row in enumerate(estimate.communication):
        yield from _communication(slowest, row, scale, partial(_under, at, f"communication[{index}]"))


@dataclass(slots=True)
class Slowest:
    """The slowest stage, and what of it every part of a step is computed from."""

    resolved: ResolvedQuestion
    work: StageWork
    busy: step.BusySeconds
    interconnect: Interconnect
    sent: communication.MicroBatchTransfers

    @property
    def workload(self) -> Workload:
        """The workload."""
        return self.resolved.workload

    @property
    def context_method(self) -> ContextMethod:
        """How context ranks exchange keys and values."""
        return self.resolved.question.layout.context_method

    @property
    def accumulation(self) -> Inputs:
        """Micro-batches of a step."""
        return numbers_of(self.resolved.degrees, "accumulation")


def _slowest(resolved: ResolvedQuestion, stages: list[LoadedStage], filled_fraction: float) -> Slowest:
    workload, degrees, layout = resolved.workload, resolved.degrees, resolved.question.layout
    work = slowest_work(resolved, stages, filled_fraction)
    sent = communication.micro_batch_transfers(workload, degrees, work.loaded.stage, work.loaded.load, layout)
    return Slowest(resolved, work, work.busy, work.micro.exposed.interconnect, sent)


PartExpression = tuple[Formula, Expression]


def _repeated(slowest: Slowest, each: Expression) -> Expression:
    """What every micro-batch of the step takes."""
    if each.text == "0":
        return each
    return Expression(f"accumulation * ({each.text})", {**slowest.accumulation, **each.inputs})


def _operations(slowest: Slowest, seconds_of: Callable[[Ops], Mapping[str, float]]) -> Expression:
    """Seconds of one micro-batch: of each operation of a kind of layer and of the ends, times how often it runs."""
    stage, ledger = slowest.work.loaded.stage, slowest.workload.ledger
    kinds = enumerate(zip(stage.kind_counts, ledger.kinds, strict=True))
    return weighted_sum(
        {
            **{f"layer_kind_{kind}": (float(count), seconds_of(ops)) for kind, (count, ops) in kinds},
            "embedding": (float(bool(stage.is_first)), seconds_of(ledger.embedding)),
            "head": (float(bool(stage.is_last)), seconds_of(ledger.head)),
            "depth": (float(stage.depths), seconds_of(ledger.depth)),
        },
        "count",
    )


def _computed(slowest: Slowest, part: str) -> PartExpression:
    """Matrix products, attention or streaming kernels, operation by operation, forward and backward."""
    workload, degrees = slowest.workload, slowest.resolved.degrees
    rates, split = kernels.rates_of(workload), divisors(degrees, workload.model, workload.vocabulary_multiple)

    def seconds_of(ops: Ops) -> dict[str, float]:
        found: dict[str, float] = {}
        for op in ops:
            if op.kind == part and (op.flop or op.moved_bytes):
                one = kernels.op_seconds(op, workload, degrees, split, rates, slowest.context_method)
                found[op.name] = found.get(op.name, 0.0) + float(one.forward) + float(one.backward)
        return found

    given: Inputs = {"memory_bytes_per_s": rates.bytes_per_s, "launch_seconds": LAUNCH_SECONDS}
    if part == "gemm":
        given["product_flop_per_s"] = rates.products.plain.flop_per_s
    if part == "attention":
        given["attention_flop_per_s"] = rates.attention_flop_per_s * rates.attention.forward_fraction
    formulas: dict[str, Formula] = {"gemm": kernels.product_seconds, "attention": kernels.attention_seconds}
    whole = _repeated(slowest, _operations(slowest, seconds_of))
    return formulas.get(part, kernels.op_seconds), Expression(whole.text, {**whole.inputs, **given})


def _cast(slowest: Slowest, _: str) -> PartExpression:
    """Operands cast in every micro-batch, and weights once a step."""
    workload, degrees = slowest.workload, slowest.resolved.degrees
    if not float(slowest.work.micro.compute.cast) and not float(slowest.busy.recast):
        return kernels.product_seconds, Expression("0", {"precision": workload.recipe.precision})
    rates = kernels.rates_of(workload)
    each = _operations(
        slowest,
        lambda ops: {"cast": float(kernels.ops_compute(ops, workload, degrees, rates, slowest.context_method).cast)},
    )
    whole = _repeated(slowest, each)
    if not float(slowest.busy.recast):
        return kernels.product_seconds, whole
    parameters = slowest.work.loaded.load.parameters
    weights: Inputs = {
        "trained_weights": float(parameters.dense_trained + parameters.expert_trained),
        "cast_bytes": kernels.cast_bytes(workload),
        "memory_bytes_per_s": rates.bytes_per_s,
    }
    text = f"{whole.text} + trained_weights * cast_bytes / memory_bytes_per_s"
    return kernels.product_seconds, Expression(text, {**whole.inputs, **weights})


def _recompute(slowest: Slowest, _: str) -> PartExpression:
    """Forward passes of layers that run a second time."""
    workload, degrees, stage = slowest.workload, slowest.resolved.degrees, slowest.work.loaded.stage
    if not float(slowest.work.micro.compute.recompute):
        return kernels.op_seconds, Expression("0", {"recompute": workload.recompute.granularity})
    rates = kernels.rates_of(workload)
    layers = {
        f"layer_kind_{kind}": (
            float(count),
            {"rerun": float(kernels.ops_compute(ops, workload, degrees, rates, slowest.context_method).recompute)},
        )
        for kind, (count, ops) in enumerate(zip(stage.kind_counts, workload.ledger.kinds, strict=True))
    }
    whole = _repeated(slowest, weighted_sum(layers, "count"))
    if workload.recompute.granularity != "full":
        return kernels.op_seconds, whole
    trained = trained_layers(workload, stage.kind_counts)
    share = repeated_forwards(workload.recompute, trained, degrees.virtual_pipeline)
    inputs: Inputs = {**whole.inputs, "recomputed_share": float(share)}
    return kernels.op_seconds, Expression(f"recomputed_share * {whole.text}", inputs)


def _accumulation(slowest: Slowest, _: str) -> PartExpression:
    """Gradients added to those of earlier micro-batches."""
    workload, parameters = slowest.workload, slowest.work.loaded.load.parameters
    inputs: Inputs = {
        **slowest.accumulation,
        "trained_weights": float(parameters.dense_trained + parameters.expert_trained),
        "memory_bytes_per_s": kernels.rates_of(workload).bytes_per_s,
    }
    if slowest.resolved.degrees.zero_stage == WEIGHTS:
        each = "sharded_copy_bytes"
        inputs[each] = workload.implementation.overlap.sharded_copy_bytes
    elif workload.software.gradient_fusion:
        return kernels.accumulation_seconds, Expression("0", {"gradient_fusion": True})
    else:
        each = "2 * (element_bytes + min(4, gradient_bytes))"
        inputs |= {"element_bytes": workload.precision.element_bytes, "gradient_bytes": workload.state.gradient_bytes}
    text = f"accumulation * trained_weights * {each} / memory_bytes_per_s"
    return kernels.accumulation_seconds, Expression(text, inputs)


def _loss(slowest: Slowest, _: str) -> PartExpression:
    """Logits streamed by the loss of every micro-batch, on a stage with the head."""
    workload, loss = slowest.workload, slowest.workload.cross_entropy
    if not slowest.work.loaded.stage.is_last:
        return step.loss_seconds, Expression("0", {"has_head": False})
    inputs: Inputs = {
        **slowest.accumulation,
        "depths": workload.ledger.depths,
        "logits": float(rank_logits(workload, slowest.resolved.degrees)),
        "live_bytes_a_logit": loss.whole_logit_bytes(workload.precision.element_bytes),
        "memory_bytes_per_s": kernels.rates_of(workload).bytes_per_s,
    }
    text = "accumulation * 2 * (1 + depths) * logits * live_bytes_a_logit / memory_bytes_per_s"
    return step.loss_seconds, Expression(text, inputs)


def _host(slowest: Slowest, _: str) -> PartExpression:
    """Launches of kernels that take longer than the kernels run."""
    workload, stage, micro = slowest.workload, slowest.work.loaded.stage, slowest.work.micro
    if workload.software.cuda_graphs and not workload.software.partial_graphs:
        return host.host_seconds, Expression("0", {"cuda_graphs": True})
    inputs: Inputs = {
        **slowest.accumulation,
        "computing_seconds": float(micro.compute.total_seconds - micro.compute.host),
        "exposed_seconds": float(micro.exposed.total_seconds),
    }
    launches = []
    if not workload.software.partial_graphs:
        inputs |= {"layers": float(stage.layers), "layer_seconds": host.layer_seconds(workload)}
        launches.append("layers * layer_seconds")
    if workload.model.num_experts:
        inputs |= {
            "sparse_layers": float(host.sparse_layers(workload, stage)),
            "launches": host.sparse_launches(workload),
            **fields_of(workload.constants, "host_launch_seconds"),
            "local_experts": float(workload.model.num_experts / slowest.resolved.degrees.expert),
            "expert_seconds": host.expert_host_seconds(workload),
        }
        launches.append("sparse_layers * (launches * host_launch_seconds + local_experts * expert_seconds)")
    text = f"{' + '.join(launches)} - computing_seconds - exposed_seconds"
    return host.host_seconds, Expression(f"accumulation * max(0, {text})", inputs)


def _transfers(groups: dict[str, tuple[float, tuple[Transfer, ...]]], interconnect: Interconnect) -> Expression:
    """Seconds of collectives: how often each group of them runs, times the seconds of each of its collectives."""
    return weighted_sum(
        {
            group: (
                count,
                {
                    f"{one.collective}_{place}": float(transfer_seconds(one, interconnect))
                    for place, one in enumerate(transfers)
                },
            )
            for group, (count, transfers) in groups.items()
        },
        "count",
    )


def _sent(slowest: Slowest, axis: str) -> tuple[communication.Repeated, ...]:
    found: communication.Repeated | tuple[communication.Repeated, ...] = getattr(slowest.sent, axis)
    return found if isinstance(found, tuple) else (found,)


def _axis(slowest: Slowest, axis: str) -> Expression:
    """Seconds of what one micro-batch sends along an axis, hidden or not."""
    sent = enumerate(_sent(slowest, axis))
    groups = {f"group_{place}": (float(one.layers), one.transfers) for place, one in sent}
    return _transfers(groups, slowest.interconnect)


def _hidden_seconds(slowest: Slowest, axis: str) -> float:
    """Seconds of one micro-batch's transfers along an axis that hide under its compute."""
    whole = sum(
        float(one.layers) * float(transfer_seconds(each, slowest.interconnect))
        for one in _sent(slowest, axis)
        for each in one.transfers
    )
    hidden = whole - float(getattr(slowest.work.micro.exposed, axis))
    return hidden if hidden > ROUNDING * whole else 0.0


ROUNDING = 1e-12
"""Share of a sum that rounding may leave. Source: IEEE 754, binary64, with room for some thousand terms."""


def _wires(slowest: Slowest) -> Inputs:
    interconnect = slowest.interconnect
    rates = fields_of(interconnect, "link_bytes_per_s", "network_bytes_per_s")
    return {**rates, "link_curves": interconnect.link.source}


def _exposed(slowest: Slowest, part: str) -> PartExpression:
    """What of an axis no compute hides: all that is sent, or the share of it that does not hide."""
    axis = part.removeprefix("exposed_")
    sent = _axis(slowest, axis)
    if sent.text == "0":
        return transfer_seconds, sent
    hidden = _hidden_seconds(slowest, axis)
    inputs: Inputs = {**sent.inputs, **_wires(slowest)}
    text = sent.text
    if hidden:
        shown = float(getattr(slowest.work.micro.exposed, axis))
        inputs["exposed_fraction"], text = shown / (shown + hidden), f"({text}) * exposed_fraction"
    whole = _repeated(slowest, Expression(text, inputs))
    return transfer_seconds, whole


def _exposed_data(slowest: Slowest, _: str) -> PartExpression:
    """Sharded weights and gradients of every micro-batch, and what the data group exchanges once a step."""
    workload, degrees, micro = slowest.workload, slowest.resolved.degrees, slowest.work.micro
    parts, inputs = [], _wires(slowest)
    sharded, waits = _beside_and_waiting(slowest, slowest.sent.data.transfers, "micro_batch")
    if waits.text != "0":
        inputs |= {**slowest.accumulation, **waits.inputs}
        parts.append(f"accumulation * ({waits.text})")
    if sharded.text != "0":
        free = _free_seconds(slowest)
        contention = workload.constants.contention_fraction
        inputs |= {**slowest.accumulation, **sharded.inputs, "free_seconds": free, "contention_fraction": contention}
        seen = f"max(0, {sharded.text} - free_seconds) + contention_fraction * min({sharded.text}, free_seconds)"
        parts.append(f"accumulation * ({seen})")
    transfers = data.step_transfers(workload, degrees, slowest.work.loaded.load.parameters)
    once, late = _beside_and_waiting(slowest, transfers, "step")
    if late.text != "0":
        inputs |= late.inputs
        parts.append(late.text)
    if once.text != "0":
        inputs |= {
            **once.inputs,
            **numbers_of(degrees, "virtual_pipeline", "virtual_group"),
            "exposed_gradient_fraction": workload.constants.exposed_gradient_fraction,
            "backward_seconds": float(step.free_backward_seconds(micro.exposed.free, micro.compute)),
        }
        seen = "exposed_gradient_fraction / virtual_pipeline"
        hiding = "(virtual_group * (virtual_pipeline - 1) + 1) / virtual_pipeline * backward_seconds"
        parts.append(f"{seen} * ({once.text}) + max(0, (1 - {seen}) * ({once.text}) - {hiding})")
    formula = transfer_seconds if once.text == late.text == "0" else communication.exposed_once_seconds
    return formula, Expression(" + ".join(parts) or "0", inputs)


def _beside_and_waiting(slowest: Slowest, transfers: tuple[Transfer, ...], every: str) -> tuple[Expression, Expression]:
    """Seconds of transfers of the data group that run beside compute, and of those that wait for its end."""
    chosen: dict[bool, tuple[Transfer, ...]] = {
        beside: tuple(
            one
            for one in transfers
            if bool(is_beside(slowest.workload, slowest.resolved.degrees, one.content)) is beside
        )
        for beside in (True, False)
    }
    return (
        _transfers({f"each_{every}": (1.0, chosen[True])}, slowest.interconnect),
        _transfers({f"each_{every}_waiting": (1.0, chosen[False])}, slowest.interconnect),
    )


def _free_seconds(slowest: Slowest) -> float:
    """Compute of one micro-batch under which no other axis hides."""
    hidden = sum(_hidden_seconds(slowest, axis) for axis in ("tensor", "context", "expert", "pipeline"))
    compute = slowest.work.micro.compute
    return float(compute.total_seconds - compute.host) - hidden


def _exposed_offload(slowest: Slowest, _: str) -> PartExpression:
    """Activations on their way to host memory and back, for longer than all else of a micro-batch."""
    workload, micro = slowest.workload, slowest.work.micro
    if slowest.resolved.question.layout.offload not in OFFLOADED_ACTIVATIONS:
        return communication.offloaded_activation_seconds, Expression("0", {"offload": "none"})
    inputs: Inputs = {
        **slowest.accumulation,
        "kept_bytes": float(summed(slowest.work.loaded.load.kept_bytes)),
        "host_bytes_per_s": workload.gpu.host_bytes_per_s,
        "host_link_fraction": kernels.HOST_LINK_FRACTION,
        "computing_seconds": float(micro.compute.total_seconds - micro.compute.host),
        "exposed_seconds": float(micro.exposed.total_seconds - micro.exposed.offload),
    }
    away = "2 * kept_bytes / (host_bytes_per_s * host_link_fraction)"
    text = f"accumulation * max(0, {away} - computing_seconds - exposed_seconds)"
    return communication.offloaded_activation_seconds, Expression(text, inputs)


def _under(at: At, path: str, name: str, formula: Formula, text: str, inputs: Inputs) -> Working:
    """A number below a path."""
    return at(f"{path}.{name}", formula, text, inputs)


_SENDERS: dict[str, Formula] = {
    "tensor": tensor.layer_transfers,
    "context": context.layer_transfers,
    "expert": expert.layer_transfers,
    "pipeline": pipeline.micro_batch_transfers,
    "data": data.micro_batch_transfers,
    "offload": communication.offloaded_activation_seconds,
}
"""The formula of what each axis sends for one micro-batch."""

_COLLECTIVES: dict[str, tuple[Formula, str]] = {
    "all_reduce": (collectives.all_reduce_seconds, "2 * (ranks - 1) / ranks * tensor_bytes"),
    "all_gather": (collectives.ring_seconds, "(ranks - 1) / ranks * tensor_bytes"),
    "reduce_scatter": (collectives.ring_seconds, "(ranks - 1) / ranks * tensor_bytes"),
    "all_to_all": (collectives.exchange_seconds, "(ranks - 1) / ranks * tensor_bytes"),
    "send": (collectives.send_seconds, "tensor_bytes"),
    "copy": (communication.offloaded_activation_seconds, "tensor_bytes"),
}
"""The formula of the seconds of one call of each collective, and the bytes that a rank sends in it."""


def _communication(slowest: Slowest, row: Communication, scale: dict[str, float], at: At) -> Iterator[Working]:
    """Explanations of one row: what is sent, how often, and how long it takes, hidden and exposed."""
    once = row.axis == "data" and row.every == "step"
    sender = data.step_transfers if once else _SENDERS[row.axis]
    formula, sent = _COLLECTIVES[row.collective]
    calls, size = _calls(slowest, row), _tensor_bytes(slowest, row)
    yield at("calls", sender, calls.text, calls.inputs)
    yield replace(at("tensor_bytes", sender, size.text, size.inputs), unit="byte")
    yield at("sent_bytes", collectives.sent_bytes, sent, fields_of(row, "ranks", "tensor_bytes"))
    alone: Inputs = {
        **scale,
        "transfer_seconds": row.call_seconds / prod(scale.values()),
        **fields_of(row, "tensor_bytes", "ranks", "local_ranks"),
        **_wires(slowest),
    }
    yield at("call_seconds", formula, "stack_scale * own_scale * transfer_seconds", alone)
    whole = fields_of(row, "calls", "call_seconds")
    yield at("seconds", communication.sending_seconds, "calls * call_seconds", whole)
    hidden = fields_of(row, "seconds", "exposed_seconds")
    yield at("hidden_seconds", communication.hidden_seconds, "seconds - exposed_seconds", hidden)
    share: Inputs = {"seconds": row.seconds, "exposed_fraction": row.exposed_seconds / row.seconds}
    yield at("exposed_seconds", communication.waiting_seconds, "seconds * exposed_fraction", share)


def _calls(slowest: Slowest, row: Communication) -> Expression:
    """Calls of a row in one step: of each group of layers those of one, times its layers, times the micro-batches."""
    if row.every == "step":
        return Expression("calls_of_a_step", {"calls_of_a_step": row.calls})
    if row.axis == "offload":
        return Expression("2 * accumulation", slowest.accumulation)
    groups: dict[str, tuple[float, dict[str, float]]] = {
        f"group_{place}": (
            float(one.layers),
            {
                "calls": sum(
                    float(each.count)
                    for each in one.transfers
                    if (each.collective, each.content) == (row.collective, row.content)
                )
            },
        )
        for place, one in enumerate(_sent(slowest, row.axis))
    }
    return _repeated(slowest, weighted_sum(groups, "layers"))


def _tensor_bytes(slowest: Slowest, row: Communication) -> Expression:
    """Bytes of one call: of parameters, of tokens, or of what is kept for the backward pass."""
    workload, degrees = slowest.workload, slowest.resolved.degrees
    if row.axis == "offload":
        return Expression("kept_bytes", {"kept_bytes": row.tensor_bytes})
    if row.axis == "data":
        each = data.reduced_bytes(workload)
        if row.content.endswith("weights"):
            each = workload.state.gathered_bytes
            if data.narrow_weights(workload) and row.every == "step":
                return _narrow_weights(slowest, row)
        if row.content.endswith("updates"):
            each = data.UPDATE_BYTES
        return Expression(
            "parameters * bytes_of_each", {"parameters": row.tensor_bytes / each, "bytes_of_each": float(each)}
        )
    tokens = fields_of(workload.recipe, "sequence_length")
    inputs: Inputs = {**tokens, **numbers_of(degrees, "micro_batch", "context")}
    of_rank = workload.recipe.sequence_length * float(degrees.micro_batch) / float(degrees.context)
    element_bytes = workload.precision.element_bytes
    inputs |= {"numbers_of_each_token": row.tensor_bytes / (of_rank * element_bytes), "element_bytes": element_bytes}
    text = "sequence_length * micro_batch / context * numbers_of_each_token * element_bytes"
    return Expression(text, inputs)


def _narrow_weights(slowest: Slowest, row: Communication) -> Expression:
    """Bytes of one call that gathers weights, matrices of layers in fp8."""
    workload, parameters = slowest.workload, slowest.work.loaded.load.parameters
    numbers = (parameters.dense_trained, parameters.dense_products)
    if row.content == "expert_weights":
        numbers = (parameters.expert_trained, parameters.expert_products)
    trained = float(numbers[0])
    matrices = min(float(numbers[1]), trained)
    calls = float(data.sent_weight_bytes(workload, trained, matrices)) / row.tensor_bytes
    inputs: Inputs = {
        "parameters": trained / calls,
        "fp8_matrices": matrices / calls,
        "bytes_of_each": workload.state.gathered_bytes,
    }
    return Expression("parameters * bytes_of_each - fp8_matrices * (bytes_of_each - 1)", inputs)


_BUBBLES = {"dualpipe": "2 / 3 * max(0, pipeline / 2 - 1)", "zero-bubble": "(pipeline - 1) / 3"}


def _bubble(slowest: Slowest, _: str) -> PartExpression:
    """Idle micro-batches of the pipeline, times the mean micro-batch of its stages."""
    schedule = slowest.resolved.question.layout.schedule
    inputs: Inputs = {
        **numbers_of(slowest.resolved.degrees, "pipeline", "virtual_pipeline"),
        "micro_batch_seconds": float(slowest.work.overhead.stage_seconds),
        "schedule": schedule,
    }
    idle = _BUBBLES.get(schedule, "(pipeline - 1) / virtual_pipeline")
    return bubble_micro_batches, Expression(f"{idle} * micro_batch_seconds", inputs)


def _optimizer(slowest: Slowest, _: str) -> PartExpression:
    """What the update streams, through the GPU's memory or the host's, and matrices that it makes orthogonal."""
    workload, degrees, load = slowest.workload, slowest.resolved.degrees, slowest.work.loaded.load
    rewritten, once = optimizer.updated_bytes(workload, degrees, load.updated)
    inputs: Inputs = {"rewritten_bytes": float(rewritten), "gradient_and_weight_bytes": float(once)}
    if OFF_DEVICE[slowest.resolved.question.layout.offload]:
        inputs |= {
            "host_bytes_per_s": workload.gpu.host_bytes_per_s,
            "host_link_fraction": kernels.HOST_LINK_FRACTION,
            "host_memory_bytes_per_s": optimizer.HOST_MEMORY_BYTES_PER_S,
        }
        formula: Formula = optimizer.offloaded_seconds
        text = "gradient_and_weight_bytes / (host_bytes_per_s * host_link_fraction)"
        text += " + 2 * rewritten_bytes / host_memory_bytes_per_s"
    else:
        inputs["memory_bytes_per_s"] = kernels.rates_of(workload).bytes_per_s
        formula, text = (
            optimizer.optimizer_seconds,
            "(2 * rewritten_bytes + gradient_and_weight_bytes) / memory_bytes_per_s",
        )
    if workload.optimizer.needs_whole_matrices:
        each = optimizer.orthogonalization_of(workload, degrees, slowest.work.loaded.stage)
        inputs |= {
            **numbers_of(each, "dense_seconds", "expert_seconds", "longest_seconds"),
            "ranks": float(data.shards(degrees, OPTIMIZER_STATES)),
            "expert_ranks": float(data.expert_shards(degrees, OPTIMIZER_STATES)),
        }
        formula = optimizer.orthogonalization_seconds
        text += " + max(dense_seconds / ranks + expert_seconds / expert_ranks, longest_seconds)"
    launched = float(host.update_host_seconds(workload, degrees, slowest.work.loaded.stage))
    if launched:
        inputs["host_seconds"], text = launched, f"max({text}, host_seconds)"
    if float(optimizer.piece_copying_seconds(workload, degrees, slowest.work.loaded.stage)):
        inputs |= {
            "tensors": float(optimizer.stage_tensors(workload, slowest.work.loaded.stage)),
            "pieces_of_each": float(degrees.shard_group),
            "piece_seconds": optimizer.PIECE_SECONDS,
        }
        text += " + tensors * pieces_of_each * piece_seconds"
    return formula, Expression(text, inputs)


_STRAGGLING = "straggler_fraction * ceil(log2(nodes)) * busy_seconds"
_RETRYING = "pressure_fraction * min(1, max(0, (filled_fraction - crowded_from) / (1 - crowded_from))) * busy_seconds"


def _straggling(slowest: Slowest) -> Inputs:
    workload = slowest.workload
    return {
        "nodes": float(ceil_div(slowest.resolved.degrees.gpus, workload.cluster.gpus_per_node)),
        **fields_of(workload.constants, "straggler_fraction"),
        "busy_seconds": float(slowest.busy.total),
    }


def _retrying(slowest: Slowest) -> Inputs:
    return {
        **fields_of(slowest.workload.constants, "pressure_fraction"),
        "filled_fraction": float(slowest.work.overhead.filled_fraction),
        "crowded_from": step.CROWDED_FROM,
        "busy_seconds": float(slowest.busy.total),
    }


def _straggler(slowest: Slowest, _: str) -> PartExpression:
    """Waits for the slowest node."""
    return step.straggler_seconds, Expression(_STRAGGLING, _straggling(slowest))


def _allocator(slowest: Slowest, _: str) -> PartExpression:
    """Retries of a crowded allocator."""
    return step.pressure_fraction, Expression(_RETRYING, _retrying(slowest))


def _other(slowest: Slowest, _: str) -> PartExpression:
    """All else, as a share of the whole step."""
    inputs: Inputs = {
        **_straggling(slowest),
        **_retrying(slowest),
        "other_fraction": step.OTHER_FRACTION,
    }
    text = f"(busy_seconds + {_STRAGGLING} + {_RETRYING}) * other_fraction / (1 - other_fraction)"
    return step.other_seconds, Expression(text, inputs)


_PARTS: dict[str, Callable[[Slowest, Any], PartExpression]] = {
    "gemm": _computed,
    "attention": _computed,
    "elementwise": _computed,
    "cast": _cast,
    "accumulation": _accumulation,
    "recompute": _recompute,
    "loss": _loss,
    "host": _host,
    **{f"exposed_{axis}": _exposed for axis in ("tensor", "context", "expert", "pipeline")},
    "exposed_data": _exposed_data,
    "exposed_offload": _exposed_offload,
    "bubble": _bubble,
    "optimizer": _optimizer,
    "straggler": _straggler,
    "allocator": _allocator,
    "other": _other,
}
"""The formula and the expression of each part of a step."""
