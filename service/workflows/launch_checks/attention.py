"""Which attention kernels are measured? Those of this model's layers on one rank of this layout."""

from collections.abc import Mapping
from typing import Any

from service.calibration.attention_work import BACKWARD_WORK
from service.estimator.job import Job
from service.estimator.ledger import LayerShape
from service.estimator.mixers import MIXERS
from service.estimator.resolve import Resolved
from service.workflows.launch_checks.items import CPU_DTYPE, DTYPES, Expected, Item, reached_flop_per_s
from service.workflows.launch_checks.target import Target


def attention_items(resolved: Resolved, target: Target) -> tuple[tuple[Item, ...], tuple[str, ...]]:
    """The attention kernels of one step, equal ones together.

    Args:
        resolved: the question
        target: the machine that runs them

    Returns:
        the items, and what cannot be measured
    """
    ledger = resolved.job.ledger
    refusals = [_unmeasured(resolved.job, shape) for shape in ledger.shapes]
    layers = sum(
        count
        for count, shape, refusal in zip(ledger.kind_counts(), ledger.shapes, refusals, strict=True)
        if refusal is None and MIXERS[shape.mixer].attends
    )
    count = layers * float(resolved.degrees.accumulation)
    entries = _entries(resolved, target) if layers else []
    items = tuple(_item(entry, count if place == 0 else None, target) for place, entry in enumerate(entries))
    return items, tuple(sorted({refusal for refusal in refusals if refusal is not None}))


def _unmeasured(job: Job, shape: LayerShape) -> str | None:
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


def _entries(resolved: Resolved, target: Target) -> list[dict[str, Any]]:
    """The kernels that a probe is told, the job's own first."""
    job, layout = resolved.job, resolved.question.layout
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


def _item(entry: Mapping[str, Any], count: float | None, target: Target) -> Item:
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

    Args:
        entry: what the probe is told

    Returns:
        the FLOP [FLOP]

    >>> forward_flop({"batch": 1, "heads": 2, "length": 8, "width": 4})
    1024.0
    """
    pairs_twice = float(entry["length"] ** 2)
    return 2 * pairs_twice * float(entry["batch"] * entry["heads"] * entry["width"])
