"""Kernels to measure: matrix products, attention and elementwise kernels of one rank, each shape once."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from service.calibration.records import BACKWARD_WORK
from service.estimator.constants import LAUNCH_SECONDS, MEMORY_FRACTION, streaming_bytes_per_s
from service.estimator.degrees import divisors
from service.estimator.memory.activations import rank_logits
from service.estimator.model.build import MIXERS
from service.estimator.model.ledger import LayerShape, Op, Split
from service.estimator.question import Gpu
from service.estimator.resolve import ResolvedQuestion
from service.estimator.time.kernels import RankProduct, product_shape, rank_products
from service.estimator.time.matrix_products import OPERAND_BYTES
from service.estimator.workload import Workload
from service.features.launch_checks.items import (
    CPU_DTYPE,
    DTYPES,
    Expected,
    Item,
    moved_bytes_per_s,
    reached_flop_per_s,
)
from service.features.launch_checks.targets import Target


@dataclass(frozen=True, slots=True)
class _Key:
    """Identity of a product."""

    operation: str
    rows: int
    columns: int
    inner: int
    dtype: str
    copies: int


def product_items(resolved: ResolvedQuestion, target: Target) -> tuple[tuple[Item, ...], tuple[str, ...]]:
    """Matrix products of one step, equal ones merged."""
    groups: dict[_Key, list[RankProduct]] = {}
    left_out: set[str] = set()
    for product in rank_products(resolved.workload, resolved.degrees):
        dtype = DTYPES.get(product.format) if target.is_gpu else CPU_DTYPE
        if dtype is None:
            left_out.add(f"products in {product.format}: no probe has kernels for them")
            continue
        shape = product.shape
        sizes = (max(1, round(float(size))) for size in (shape.rows, shape.columns, shape.inner))
        rows, columns, inner = sizes
        key = _Key(product.product, rows, columns, inner, dtype, max(1, round(float(shape.copies))))
        groups.setdefault(key, []).append(product)
    return tuple(_item(key, products, target) for key, products in groups.items()), tuple(sorted(left_out))


def _item(key: _Key, products: list[RankProduct], target: Target) -> Item:
    name, count = products[0].name, sum(float(product.count) for product in products)
    flop = 2.0 * key.rows * key.columns * key.inner * key.copies
    shape = {
        "name": name, "rows": key.rows, "columns": key.columns, "inner": key.inner, "dtype": key.dtype,
        "copies": key.copies,
    }  # fmt: skip
    width = OPERAND_BYTES[next(name for name, probe_name in DTYPES.items() if probe_name == key.dtype)]
    operands = key.inner * (key.rows + key.columns) * key.copies
    wide = 4.0  # a reference in higher precision
    return Item(
        entry={"operation": key.operation, **shape},
        name=f"{name} {key.operation} {key.rows} x {key.columns} x {key.inner}",
        once_seconds=flop / reached_flop_per_s(target, key.dtype),
        weight_flop=flop * count,
        memory_bytes=(width + wide) * operands + 2 * wide * key.rows * key.columns * key.copies,
        expected=(
            Expected(
                probe="gemm",
                operation=key.operation,
                shape=shape,
                quantity="seconds",
                count=count,
            ),
        ),
    )


def attention_items(resolved: ResolvedQuestion, target: Target) -> tuple[tuple[Item, ...], tuple[str, ...]]:
    """Attention kernels of one step, equal ones merged."""
    ledger = resolved.workload.ledger
    refusals = [_unmeasured(resolved.workload, shape) for shape in ledger.shapes]
    layers = sum(
        count
        for count, shape, refusal in zip(ledger.kind_counts(), ledger.shapes, refusals, strict=True)
        if refusal is None and MIXERS[shape.mixer].attends
    )
    count = layers * float(resolved.degrees.accumulation)
    entries = _entries(resolved, target) if layers else []
    items = tuple(_attention_item(entry, count if place == 0 else None, target) for place, entry in enumerate(entries))
    return items, tuple(sorted({refusal for refusal in refusals if refusal is not None}))


def _unmeasured(job: Workload, shape: LayerShape) -> str | None:
    """Why the attention of a layer cannot be measured; None where it can, or where the layer has none."""
    if not MIXERS[shape.mixer].attends:
        return f"layers of {shape.mixer}: no probe runs their scan" if MIXERS[shape.mixer].carries_state else None
    if job.model.kv_lora_rank is not None:
        return "latent attention: no probe runs heads whose queries and values differ in width"
    tokens = job.recipe.sequence_length
    if shape.mixer == "sliding_attention" and (job.model.sliding_window or tokens) < tokens:
        return f"attention with a window of {job.model.sliding_window} tokens: no probe runs it"
    if shape.mixer == "chunked_attention" and (job.model.attention_chunk_size or tokens) < tokens:
        return f"attention in chunks of {job.model.attention_chunk_size} tokens: no probe runs it"
    return None


def _entries(resolved: ResolvedQuestion, target: Target) -> list[dict[str, Any]]:
    """Kernels of the attention task, the kernel of the job first."""
    job, layout = resolved.workload, resolved.question.layout
    ranks = layout.tensor * (layout.context if layout.context_method == "ulysses" else 1)
    heads, key_heads = (max(1, heads // ranks) for heads in (job.model.num_attention_heads, job.model.key_value_heads))
    own = "eager" if job.kernel == "eager" else "cudnn" if job.kernel == "cudnn" and target.is_gpu else "flash"
    others = ("flash",) if own != "flash" else ("eager",) if not target.is_gpu else ("cudnn",)
    dtype = DTYPES.get(job.precision.attention_format, "bf16") if target.is_gpu else CPU_DTYPE
    return [
        {
            "kernel": kernel, "batch": job.recipe.micro_batch, "heads": heads, "kv_heads": key_heads,
            "length": job.recipe.sequence_length, "width": job.model.head_width, "dtype": dtype, "causal": True,
        }
        for kernel in (own, *others)
    ]  # fmt: skip


def _attention_item(entry: Mapping[str, Any], count: float | None, target: Target) -> Item:
    forward = forward_flop(entry)
    scores = 4.0 * entry["batch"] * entry["heads"] * entry["length"] ** 2
    expected = tuple(
        Expected(
            probe="attention",
            operation=operation,
            shape=entry,
            quantity="seconds",
            count=count,
        )
        for operation in ("forward", "backward")
    )
    return Item(
        entry=entry,
        name=f"{entry['kernel']} attention over {entry['length']} tokens",
        once_seconds=(1 + BACKWARD_WORK) * 2 * forward / reached_flop_per_s(target, entry["dtype"]),
        weight_flop=(1 + BACKWARD_WORK) * forward * (count or 0.0),
        memory_bytes=4 * scores if entry["kernel"] == "eager" else 8 * scores / entry["length"] * entry["width"],
        expected=expected,
    )


def forward_flop(entry: Mapping[str, Any]) -> float:
    """FLOP of the forward pass of a kernel that a mask lets through.

    >>> forward_flop({"batch": 1, "heads": 2, "length": 8, "width": 4})
    1024.0
    """
    pairs_twice = float(entry["length"] ** 2)
    return 2 * pairs_twice * float(entry["batch"] * entry["heads"] * entry["width"])


NORMS: Mapping[str, str] = {
    "rmsnorm": "rms_norm", "layernorm": "layer_norm", "layernorm_no_bias": "layer_norm", "nonparametric": "layer_norm",
}  # fmt: skip
"""Names of norms in probes."""

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


def elementwise_items(resolved: ResolvedQuestion, target: Target) -> tuple[tuple[Item, ...], tuple[str, ...]]:
    """Elementwise kernels of one step, equal ones merged."""
    counts: dict[tuple[str, int, int, str], float] = {}
    for operation, rows, width, dtype, times in (*_of_ledger(resolved, target), *_ends(resolved, target)):
        key = (operation, rows, width, dtype)
        counts[key] = counts.get(key, 0.0) + times
    items = [
        _elementwise_item(
            {"operation": operation, "rows": rows, "width": width, "dtype": dtype, "direction": way}, times, target
        )
        for (operation, rows, width, dtype), times in counts.items()
        for way in (("forward",) if operation == "adamw" else ("forward", "backward"))
    ]
    return tuple(items), ()


Kernel = tuple[str, int, int, str, float]
"""Operation, rows, width, number format, and runs in one step."""


def _of_ledger(resolved: ResolvedQuestion, target: Target) -> Iterator[Kernel]:
    """Norms and activations of the ledger's operations."""
    job, degrees = resolved.workload, resolved.degrees
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


def _ends(resolved: ResolvedQuestion, target: Target) -> Iterator[Kernel]:
    """The loss and the optimizer."""
    job, degrees = resolved.workload, resolved.degrees
    tokens = max(1, job.recipe.sequence_length * int(degrees.micro_batch) // int(degrees.context))
    vocabulary = max(1, round(float(rank_logits(job, degrees)) / tokens))
    yield "cross_entropy", tokens, vocabulary, "fp32", (1 + job.ledger.depths) * float(degrees.accumulation)
    width = job.model.hidden_size
    yield "adamw", max(1, (MOST_PARAMETERS if target.is_gpu else CPU_PARAMETERS) // width), width, "fp32", 0.0


def _elementwise_item(entry: Mapping[str, Any], times: float, target: Target) -> Item:
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
    """Seconds of one kernel alone on a GPU: it streams each number once."""
    return moved_bytes(entry) / streaming_bytes_per_s(gpu, MEMORY_FRACTION) + LAUNCH_SECONDS
