"""What else does a row say in words: how weights are shared out, which features were on?

What has a noun goes into the question; what changes time and has none is told beside it (`nearly`).
"""

import re
from typing import Any

from service.calibration.tables import MeasuredRow
from service.workflows.accuracy.draft import Draft

SHARDED_BETWEEN = re.compile(r"SHARD_GRAD_OP|not resharded after forward")
"""Weights are shared out between steps and stay gathered from the forward pass to the backward pass."""

SHARD_GROUP = re.compile(r"(?:ZeRO-1|FSDP) group (\d+)|FSDP (\d+) in node")
"""Ranks over which sharded tensors are spread."""

SETS: tuple[tuple[str, str, Any], ...] = (
    (r"tokendrop", "recipe.expert_capacity_factor", 1.0),
    (r"Muon", "recipe.optimizer", "muon"),
    (r"(?i)\basync ?tp", "stack.tensor_overlap", True),
)
"""Fields by words of other_features. Token drop is a capacity of 1 (NVIDIA-NeMo/Megatron-Bridge, moe_token_drop.py)."""

NEARLY: tuple[tuple[str, str, str], ...] = (
    ("other_features", r"(?i)\bcuda ?graph", "kernels are launched in graphs"),
    ("other_features", r"EP overlap on", "experts' exchange runs beside other micro-batches"),
    ("other_features", r"sequence_packing", "documents share sequences"),
    ("sharding", r"mixed_precision=PURE", "gradients are sent in bf16"),
    ("sharding", r"float8 all-gather", "weights are gathered in fp8"),
    ("notes", r"pack_sample_into_one=True", "the samples of a micro-batch are one sequence, which attention may span"),
    ("notes", r"compile state not told", "compiled or not is not told"),
    (
        "notes",
        r"TP/PP split of model-parallel size .* assumed",
        "how tensor and pipeline ranks split the model",
    ),
    ("recompute", r"see perf_recipes", "that of the model's recipes of other releases"),
)
"""What changes time and has no noun, by column and words."""


def put_sharding(row: MeasuredRow, draft: Draft) -> None:
    """Put what a row says of sharding into the question, whose degrees stand already.

    Args:
        row: the row
        draft: the question
    """
    said, layout = row.text("sharding"), draft.layout
    if SHARDED_BETWEEN.search(said):
        layout.update(zero_stage=3, reshard_after_forward=False)
    if group := SHARD_GROUP.search(said):
        ranks = int(group[1] or group[2])
        if 1 <= ranks < layout["data"] * layout["context"]:
            layout["shard_group"] = ranks


def put_features(row: MeasuredRow, draft: Draft) -> None:
    """Put what a row says in words into the question, or beside it.

    Args:
        row: the row
        draft: the question
    """
    said = row.text("other_features")
    for pattern, path, value in SETS:
        if re.search(pattern, said):
            draft.put(path, value)
    if "Ulysses" in said and draft.layout["context"] > 1:
        draft.layout["context_method"] = "ulysses"
    for column, pattern, why in NEARLY:
        if re.search(pattern, row.text(column)):
            draft.nearly.append(f"{column}: {why}")
