"""Which element-wise kernels are measured? Norms, activations, loss and optimizer, at this model's sizes."""

from collections.abc import Iterator, Mapping
from typing import Any

from service.estimator.degrees import divisors
from service.estimator.device_calibration import streaming_bytes_per_s
from service.estimator.efficiency import LAUNCH_SECONDS, MEMORY_FRACTION
from service.estimator.gpu import Gpu
from service.estimator.ledger import Op, Split
from service.estimator.logits import rank_logits
from service.estimator.product_shape import product_shape
from service.estimator.resolve import Resolved
from service.workflows.launch_checks.items import CPU_DTYPE, DTYPES, Expected, Item, moved_bytes_per_s
from service.workflows.launch_checks.target import Target

NORMS: Mapping[str, str] = {
    "rmsnorm": "rms_norm", "layernorm": "layer_norm", "layernorm_no_bias": "layer_norm", "nonparametric": "layer_norm",
}  # fmt: skip
"""What a probe calls a norm."""

PASSES: Mapping[str, tuple[float, float]] = {
    "rms_norm": (2, 4), "layer_norm": (2, 4), "silu_mul": (3, 5), "gelu": (2, 3), "cross_entropy": (2, 2),
}  # fmt: skip
"""Numbers of the width that a kernel reads and writes for each row, forward and backward.
Source: definition: what goes in and what comes out; a norm's gradient is summed over rows too."""

UPDATE_BYTES = 28.0
"""Bytes that AdamW reads and writes for each parameter in fp32: weight, gradient and two moments in, all but the
gradient out. Source: definition."""

MOST_PARAMETERS = 1 << 26
"""Parameters of the update that is measured, at most. Source: a choice; one streams as many more do."""

CPU_PARAMETERS = 1 << 22
"""The same on a processor. Source: a choice; they fill no cache."""

LOGIT_BYTES = 4
"""A logit in the loss. Source: torch.nn.functional.cross_entropy of fp32 logits, as all stacks compute it."""

WIDTHS: Mapping[str, float] = {"fp32": 4, "fp16": 2, "bf16": 2}
"""Bytes of a number."""


def elementwise_items(resolved: Resolved, target: Target) -> tuple[tuple[Item, ...], tuple[str, ...]]:
    """The element-wise kernels of one step, equal ones together.

    Args:
        resolved: the question
        target: the machine that runs them

    Returns:
        the items, and what cannot be measured: nothing
    """
    counts: dict[tuple[str, int, int, str], float] = {}
    for operation, rows, width, dtype, times in (*_of_ledger(resolved, target), *_ends(resolved, target)):
        key = (operation, rows, width, dtype)
        counts[key] = counts.get(key, 0.0) + times
    items = [
        _item({"operation": operation, "rows": rows, "width": width, "dtype": dtype, "direction": way}, times, target)
        for (operation, rows, width, dtype), times in counts.items()
        for way in (("forward",) if operation == "adamw" else ("forward", "backward"))
    ]
    return tuple(items), ()


Kernel = tuple[str, int, int, str, float]
"""Operation, rows, width, number format, and how often one step has it."""


def _of_ledger(resolved: Resolved, target: Target) -> Iterator[Kernel]:
    """Norms and activations of the ledger's operations."""
    job, degrees = resolved.job, resolved.degrees
    split = divisors(degrees, job.model, job.vocabulary_multiple)
    dtype = DTYPES.get(job.precision.attention_format, "bf16") if target.is_gpu else CPU_DTYPE
    tokens = job.recipe.sequence_length * float(degrees.micro_batch) / float(degrees.context)
    for times, ops in job.ledger.groups():
        count = times * float(degrees.accumulation)
        after: dict[str, Op] = {op.name: op for op in ops}
        for op in ops if times else ():
            if op.name.endswith("norm") and op.split is Split.SEQUENCE and op.weights:
                rows = tokens / float(split[Split.SEQUENCE])
                yield NORMS[job.model.normalization], max(1, round(rows)), job.model.hidden_size, dtype, count
            down = after.get(op.name.removesuffix("activation") + "down") if op.name.endswith(".activation") else None
            if down is not None:
                shape = product_shape(down, job.model, degrees, split)
                rows, width = float(shape.rows) * float(shape.copies), max(1, round(float(shape.inner)))
                yield "silu_mul" if job.model.gated_mlp else "gelu", max(1, round(rows)), width, dtype, count


def _ends(resolved: Resolved, target: Target) -> Iterator[Kernel]:
    """The loss and the optimizer."""
    job, degrees = resolved.job, resolved.degrees
    tokens = max(1, job.recipe.sequence_length * int(degrees.micro_batch) // int(degrees.context))
    vocabulary = max(1, round(float(rank_logits(job, degrees)) / tokens))
    yield "cross_entropy", tokens, vocabulary, "fp32", (1 + job.ledger.depths) * float(degrees.accumulation)
    width = job.model.hidden_size
    yield "adamw", max(1, (MOST_PARAMETERS if target.is_gpu else CPU_PARAMETERS) // width), width, "fp32", 0.0


def _item(entry: Mapping[str, Any], times: float, target: Target) -> Item:
    moved = moved_bytes(entry)
    operation = str(entry["operation"])
    shape = {name: value for name, value in entry.items() if name != "operation"}
    expected = Expected(
        probe="elementwise", operation=operation, shape=shape, quantity="seconds",
        count=times or None,
    )  # fmt: skip
    return Item(
        entry=entry,
        name=f"{operation} {entry['direction']} {entry['rows']} x {entry['width']}",
        once_seconds=moved / moved_bytes_per_s(target),
        weight_flop=moved * times,
        memory_bytes=4 * moved,
        expected=(expected,),
    )


def moved_bytes(entry: Mapping[str, Any]) -> float:
    """Bytes that one kernel reads and writes.

    Args:
        entry: what the probe is told

    Returns:
        the bytes [byte]

    >>> moved_bytes({"operation": "rms_norm", "rows": 2, "width": 8, "dtype": "bf16", "direction": "forward"})
    64.0
    """
    numbers = float(entry["rows"] * entry["width"])
    if entry["operation"] == "adamw":
        return UPDATE_BYTES * numbers
    forward, backward = PASSES[entry["operation"]]
    width = LOGIT_BYTES if entry["operation"] == "cross_entropy" else WIDTHS[entry["dtype"]]
    passes = forward if entry["direction"] == "forward" else backward
    return passes * width * numbers


def predicted_seconds(entry: Mapping[str, Any], gpu: Gpu) -> float:
    """Seconds of one kernel alone on a GPU: it streams each number once.

    Args:
        entry: what the probe is told
        gpu: the GPU

    Returns:
        the seconds [s]
    """
    return moved_bytes(entry) / streaming_bytes_per_s(gpu, MEMORY_FRACTION) + LAUNCH_SECONDS
