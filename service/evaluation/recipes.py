"""Which recipe do a row's columns describe? Number formats, recompute, optimizer, what is trained and offloaded."""

import re
from collections.abc import Mapping
from typing import Any, get_args

from service.calibration.tables import MeasuredRow, NotExpressible
from service.estimator.names import ImplementationName, RecomputeModule
from service.estimator.software.implementations import IMPLEMENTATIONS
from service.estimator.software.versions import at_least
from service.evaluation.drafts import Draft
from service.evaluation.frameworks import Framework

PRECISIONS = (
    (r"mxfp8", "mxfp8"),
    (r"nvfp4", "nvfp4"),
    (r"fp8_subchannel/mx \(Blackwell\)", "mxfp8"),
    (r"fp8_subchannel/mx", "fp8-blockwise"),
    (r"fp8-blockwise", "fp8-blockwise"),
    (r"bf16\+float8|fp8", "fp8-tensorwise"),
    (r"bf16-true", "bf16"),
    (r"fp16 \+ int4", "fp16-mixed"),
    (r"bf16$|bf16-mixed|bf16 \(", "bf16-mixed"),
    (r"fp16$|fp16-mixed", "fp16-mixed"),
    (r"fp32$|tf32$", "fp32"),
)
"""Precision recipes by how the precision's cell begins."""

OPTIMIZERS = (
    (r"8.?bit", "adamw-8bit"),
    (r"muon", "muon"),
    (r"adafactor", "adafactor"),
    (r"lion", "lion"),
    (r"sgd", "sgd-momentum"),
    (r"adam|^$", "adamw"),
)
"""Optimizers by a part of the optimizer's cell; AdamW where it is empty."""

UNTOLD = ("", "not told", "unknown", "see recipe")
"""Cells of recompute that say nothing."""

IN_RECIPES = "unknown(see perf_recipes)"
"""Cell of recompute that points to the framework's own recipes."""

EVERY_SECOND = "every 2nd layer"
"""What torchtitan's selective checkpointing of whole layers says of itself."""

BLACKWELL = re.compile(r"G?B\d00")

TORCH_BY_MONTH = (("2024.2", "2.2"), ("2023.4", "2.0"), ("2022.1", "1.10"))
"""Version of torch that was new in a month, newest first."""

METHODS = {"lora": "lora", "qlora": "qlora"}
WHOLE = ("pretrain", "pretrain/finetune", "sft", "full finetune", "full")
"""Kinds of training in which every parameter is trained."""


def put_recipe(row: MeasuredRow, framework: Framework, draft: Draft) -> None:
    """Put a row's recipe into the question."""
    layout = draft.layout
    micro = row.count("mbs")
    steps = row.count("grad_accum", 1)
    draft.recipe.update(
        sequence_length=row.count("seq_len"),
        micro_batch=micro,
        global_batch=row.count("gbs", micro * layout["data"] * steps),
        precision=_first(PRECISIONS, _precision_said(row), "precision", begins=True),
        optimizer=_first(OPTIMIZERS, _optimizer_said(row), "optimizer", begins=False),
        recompute=recompute_of(row, framework),
    )
    draft.recipe.update(_habits(row, framework, draft.recipe["precision"]))
    if "fp16" in row.text("grad_dtype") and draft.recipe["precision"] == "fp16-mixed":
        draft.recipe["gradient_dtype"] = "fp16"
    if re.search(r"optimizer.in.(bwd|backward)", f"{row.text('optimizer')} {row.text('notes')}"):
        raise NotExpressible("optimizer: its step is part of the backward pass")
    _put_method(row, framework, draft)
    _put_software(row, framework, draft)
    draft.layout["offload"] = offload_of(row)


def _precision_said(row: MeasuredRow) -> str:
    """The precision's cell; of two recipes that share a column, that of the GPU's generation."""
    said = row.text("precision")
    is_new = said == "fp8_subchannel/mx" and BLACKWELL.match(row.text("gpu"))
    return f"{said} (Blackwell)" if is_new else said


def _optimizer_said(row: MeasuredRow) -> str:
    """The optimizer's cell; of several that are named, the one that is the default."""
    said = row.text("optimizer").lower()
    default = re.search(r"default (\w+)", said)
    return default[1] if default else said


def _habits(row: MeasuredRow, framework: Framework, precision: str) -> dict[str, Any]:
    """What a framework does unless it is told otherwise, with this model in this precision."""
    here = _habits_of(framework.precisions, precision)
    own = _habits_of(framework.families, row.text("model").lower())
    return {**framework.recipe, **here, **own}


def _habits_of(table: Mapping[str, Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    return next((habits for pattern, habits in table.items() if re.match(pattern, name)), {})


def _habit_of(table: Mapping[str, Any], name: str, reason: str) -> Any:
    for pattern, habit in table.items():
        if re.match(pattern, name):
            return habit
    raise NotExpressible(reason)


def recompute_of(row: MeasuredRow, framework: Framework) -> Any:
    """The recompute rule of a row."""
    said = row.text("recompute")
    detail = row.text("recompute_detail")
    if said in UNTOLD:
        if framework.recompute is None:
            raise NotExpressible("missing: recompute")
        return framework.recompute
    if said == IN_RECIPES:
        return _habit_of(framework.recipe_recomputes, row.text("model").lower(), "missing: recompute")
    if said.startswith("none"):
        return "none"
    if EVERY_SECOND in said:
        return {"granularity": "full", "method": "block", "layers": row.count("layers") // 2}
    if said.startswith("full"):
        uniform = re.search(r"(uniform|block) (\d{1,4})", detail)
        return {"granularity": "full", "method": uniform[1], "layers": int(uniform[2])} if uniform else "full"
    if said.startswith("selective"):
        named = [module for module in get_args(RecomputeModule) if re.search(rf"\b{module}\b", detail)]
        return {"granularity": "selective", "modules": named}
    raise NotExpressible("recompute: no rule of this name")


def offload_of(row: MeasuredRow) -> str:
    """What a row keeps in host memory."""
    said = row.text("offload").lower()
    if re.search(r"paged", row.text("optimizer").lower()):
        said = f"{said} optimizer"
    if not said or said == "none":
        return "none"
    share = re.search(r"(\d+) ?(?:pct|%)", said)
    if (share and share[1] != "100") or re.search(r"\d+_layers", said):
        raise NotExpressible("offload: only a part is offloaded")
    if "param" in said or "model" in said or said in ("cpu", "cpu offload"):
        return "model"
    moved = [
        name for name, mark in (("optimizer", "optim|adam"), ("activations", "activation")) if re.search(mark, said)
    ]
    if not moved:
        raise NotExpressible("offload: not understood")
    return "-and-".join(moved)


def _first(table: tuple[tuple[str, str], ...], said: str, column: str, *, begins: bool) -> str:
    look = re.match if begins else re.search
    for pattern, name in table:
        if look(pattern, said):
            return name
    raise NotExpressible(f"{column}: not understood" if said else f"missing: {column}")


def _put_method(row: MeasuredRow, framework: Framework, draft: Draft) -> None:
    kind = row.text("training_kind") or "pretrain"
    if kind in WHOLE:
        return
    if kind not in METHODS:
        raise NotExpressible(f"training_kind: {ascii(kind[:40])[1:-1]} has no noun")
    method: dict[str, Any] = {"name": METHODS[kind]}
    if "embedding" in row.text("trainable_params"):
        method["whole"] = ["embedding", "head"]
    if rank := row.whole("lora_rank"):
        method["rank"] = rank
    if framework.adapters:
        method["targets"] = list(framework.adapters)
    if kind == "qlora":
        said = row.text("quantization")
        if "gptq" in said.lower():
            draft.stack["cross_entropy"] = "eager-half"
        method["quantization"] = "gptq" if "gptq" in said.lower() else "nf4-double" if said.endswith("dq") else "nf4"
    draft.recipe["method"] = method


def _put_implementation(name: ImplementationName, draft: Draft) -> None:
    """Compiled or eager operations, where the stack has both."""
    if name in IMPLEMENTATIONS[draft.stack["name"]]:
        draft.stack["implementation"] = name
    elif name == "compiled":
        draft.nearly.append("compile: compiled operations keep less")


def _put_versions(row: MeasuredRow, draft: Draft) -> None:
    """Versions of libraries, by the month of the measurement."""
    dated = re.match(r"(20\d\d)-(\d\d)", row.text("date"))
    if not dated:
        return
    month = f"{dated[1]}.{int(dated[2])}"
    torch = next((version for since, version in TORCH_BY_MONTH if at_least(month, since)), "1.0")
    draft.stack["versions"] = {"torch": torch}
    if draft.stack["name"] == "torchtitan":
        draft.stack["versions"]["torchtitan"] = month


FUSED_GRADIENTS_SINCE = "2022.2"
"""Month from which Megatron-LM's own layers add gradients of weights in the product itself.
Source: NVIDIA/Megatron-LM@83b1e42f gradient accumulation fusion, 13 February 2022."""


def _put_fused_gradients(row: MeasuredRow, draft: Draft) -> None:
    """Products that add up gradients by themselves, by the version of Megatron-LM before Megatron-Core."""
    dated = re.match(r"(20\d\d)-(\d\d)", row.text("framework_version"))
    if dated and row.text("framework") == "Megatron-LM":
        month = f"{dated[1]}.{int(dated[2])}"
        draft.stack["gradient_fusion"] = at_least(month, FUSED_GRADIENTS_SINCE)


def _put_sparse(row: MeasuredRow, framework: Framework, draft: Draft) -> None:
    """What releases of a framework do for experts: one copy a domain, graphs, exchange beside compute."""
    released = re.search(r"(\d\d)\.(\d\d)", row.text("framework_version"))
    since = framework.overlaps_experts_since
    if since is None or not released or draft.layout.get("expert", 1) == 1:
        return
    draft.stack.update(dispatcher="flex", cuda_graphs=True)
    if at_least(f"{released[1]}.{int(released[2])}", since) and re.search(r"B[23]00", row.text("gpu")):
        draft.stack["expert_overlap"] = True


def _put_software(row: MeasuredRow, framework: Framework, draft: Draft) -> None:
    _put_versions(row, draft)
    _put_sparse(row, framework, draft)
    _put_fused_gradients(row, draft)
    compiled = row.text("compile").startswith("yes")
    if compiled or row.text("compile") == "no":
        _put_implementation("compiled" if compiled else "eager", draft)
    if "expandable_segments" in row.text("notes"):
        draft.stack["expandable_segments"] = True
    if re.search(r"liger|chunked.?(ce|cross)", f"{row.text('compile')} {row.text('notes')}".lower()):
        draft.stack["cross_entropy"] = "chunked"
    if row.text("flash_attention").startswith("no") and "attention" not in draft.recipe:
        draft.recipe["attention"] = "eager"
