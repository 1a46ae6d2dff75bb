"""Why is each line of the memory answer what it is?"""

from collections.abc import Callable
from typing import Any

from service.estimator.answer import Memory
from service.estimator.degrees import divisors, padded_vocabulary
from service.estimator.device import allocated_interval, device_interval, oom_probability_fraction, reserved_interval
from service.estimator.explanation import Explanation, explained
from service.estimator.logits import logits_bytes
from service.estimator.memory import gathered_bytes, sharded_bytes, stage_bytes, state_number_bytes
from service.estimator.numeric import Amount
from service.estimator.optimizers import moment_bytes
from service.estimator.parallelism.data import GRADIENTS, OPTIMIZER_STATES, WEIGHTS, expert_shards, shards
from service.estimator.parallelism.pipeline import in_flight, weight_copies
from service.estimator.recompute import kept_bytes, stage_activation_bytes
from service.estimator.resolve import Resolved
from service.estimator.stages import RankParameters, Stage, rank_parameters

Inputs = dict[str, float | int | str | None]


def memory_explanations(resolved: Resolved, stages: list[Stage], memory: Memory) -> list[Explanation]:
    """Explanations of every line of every stage, and of the peaks.

    Args:
        resolved: the question
        stages: its stages
        memory: the memory part of the answer

    Returns:
        one explanation a number
    """
    said: list[Explanation] = []
    for position, stage in enumerate(stages):
        for index, line in enumerate(memory.stages[position].lines):
            if line.kind in _FORMULAS:
                said.append(_line(resolved, stage, line.kind, f"memory.stages[{position}].lines[{index}].bytes"))
    return [*said, *_peaks(resolved, memory)]


def _line(resolved: Resolved, stage: Stage, kind: str, path: str) -> Explanation:
    """One line: the formula that gives it, and what that formula read."""
    job, degrees, layout = resolved.job, resolved.degrees, resolved.question.layout
    held = stage_bytes(job, degrees, stage, layout.schedule or "1f1b", layout.offload)
    formula, inputs = _FORMULAS[kind](resolved, stage)
    return explained(path, float(getattr(held, kind)), formula, inputs)


def _sharded(bytes_name: str, zero_kind: int) -> Callable[[Resolved, Stage], tuple[Callable[..., Any], Inputs]]:
    def inputs(resolved: Resolved, stage: Stage) -> tuple[Callable[..., Any], Inputs]:
        parameters = rank_parameters(resolved.job, resolved.degrees, stage)
        return sharded_bytes, {
            **_spread(resolved, parameters.dense, parameters.expert, zero_kind),
            "bytes_each": getattr(resolved.job.state, bytes_name),
            "copies": float(weight_copies(resolved.question.layout.schedule or "1f1b", resolved.degrees)),
        }

    return inputs


def _spread(resolved: Resolved, dense: Amount, expert: Amount, zero_kind: int) -> Inputs:
    degrees = resolved.degrees
    return {
        "dense": float(dense),
        "dense_shards": float(shards(degrees, zero_kind)),
        "expert": float(expert),
        "expert_shards": float(expert_shards(degrees, zero_kind)),
    }


def _states(resolved: Resolved, stage: Stage) -> tuple[Callable[..., Any], Inputs]:
    numbers = rank_parameters(resolved.job, resolved.degrees, stage)
    each = moment_bytes(resolved.job.optimizer, resolved.job.precision)
    spread = _spread(resolved, numbers.dense_states, numbers.expert_states, OPTIMIZER_STATES)
    return state_number_bytes, {**spread, "bytes_each": each}


def _scales(resolved: Resolved, stage: Stage) -> tuple[Callable[..., Any], Inputs]:
    formula, inputs = _states(resolved, stage)
    return formula, {**inputs, "bytes_each": resolved.job.optimizer.scale_bytes}


def _gathered(resolved: Resolved, stage: Stage) -> tuple[Callable[..., Any], Inputs]:
    parameters: RankParameters = rank_parameters(resolved.job, resolved.degrees, stage)
    every = float(parameters.dense + parameters.expert)
    return gathered_bytes, {
        "parameters": every,
        "layers": float(stage.layers),
        "weight_bytes": resolved.job.state.gathered_bytes,
        "reshard_after_forward": float(resolved.degrees.reshard_after_forward),
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


def _activations(resolved: Resolved, stage: Stage) -> tuple[Callable[..., Any], Inputs]:
    job, degrees = resolved.job, resolved.degrees
    kept, again = stage_activation_bytes(job, degrees, stage)
    schedule = resolved.question.layout.schedule or "1f1b"
    return stage_activation_bytes, {
        **_kept_by_operation(resolved),
        "layers": float(stage.layers),
        "layer_bytes_each_micro_batch": float(kept),
        "recomputing_bytes": float(again),
        "micro_batches_in_flight": float(in_flight(schedule, degrees, stage.index)),
        "micro_batch": float(degrees.micro_batch),
        "context": float(degrees.context),
        "recompute": job.recompute.granularity,
    }


def _logits(resolved: Resolved, stage: Stage) -> tuple[Callable[..., Any], Inputs]:  # noqa: ARG001 - one shape for all
    job, degrees = resolved.job, resolved.degrees
    return logits_bytes, {
        "tokens": job.recipe.sequence_length * float(degrees.micro_batch) / float(degrees.context),
        "padded_vocabulary": float(padded_vocabulary(job.model, job.vocabulary_multiple, degrees.tensor)),
        "tensor": float(degrees.tensor),
        "logit_bytes": job.stack.logit_bytes,
    }


_FORMULAS: dict[str, Callable[[Resolved, Stage], tuple[Callable[..., Any], Inputs]]] = {
    "weights": _sharded("weight_bytes", WEIGHTS),
    "weight_copies": _sharded("copy_bytes", WEIGHTS),
    "gradients": _sharded("gradient_bytes", GRADIENTS),
    "master_weights": _sharded("master_bytes", OPTIMIZER_STATES),
    "step_gradients": _sharded("step_bytes", OPTIMIZER_STATES),
    "optimizer_states": _states,
    "optimizer_scales": _scales,
    "gathered_weights": _gathered,
    "activations": _activations,
    "recomputed_activations": _activations,
    "logits": _logits,
}


def _peaks(resolved: Resolved, memory: Memory) -> list[Explanation]:
    fullest = memory.stages[memory.peak_stage]
    lines: Inputs = {line.kind: line.bytes for line in fullest.lines}
    allocated = allocated_interval(sum(line.bytes for line in fullest.lines))
    reserved = reserved_interval(allocated)
    device = device_interval(reserved, resolved.job.cluster.gpus)
    usable = resolved.job.gpu.usable_bytes
    return [
        explained("memory.allocated_peak_bytes.value", allocated.value, allocated_interval, lines),
        explained(
            "memory.reserved_peak_bytes.value", reserved.value, reserved_interval, {"allocated_bytes": allocated.value}
        ),
        explained(
            "memory.device_peak_bytes.value",
            device.value,
            device_interval,
            {"reserved_bytes": reserved.value, "gpus": resolved.job.cluster.gpus},
        ),
        explained(
            "memory.oom_probability_fraction",
            oom_probability_fraction(device, usable),
            oom_probability_fraction,
            {"device_bytes": device.value, "device_high_bytes": device.high, "usable_bytes": usable},
        ),
    ]
