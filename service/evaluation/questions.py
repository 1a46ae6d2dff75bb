"""Question of a table's row: its columns as a request body, validated as a request is."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

from service.calibration.tables import MeasuredRow, NotExpressible
from service.catalogue import Catalogue
from service.errors import Refused
from service.estimator.question import Gpu, ImplementationName, Question, RecomputeModule
from service.estimator.software.stacks import IMPLEMENTATIONS
from service.estimator.software.versions import at_least
from service.evaluation.frameworks import (
    CELLS,
    PATTERNS,
    Draft,
    Flags,
    Framework,
    first_match,
    flags_of,
    framework_of,
    hybrid_fields,
    layers_by_cost,
    layers_spread,
    put_architecture,
    put_configs,
    put_features,
    put_flags,
    put_sharding,
    refuse_other_runs,
    table_of,
    virtual_group,
)
from service.evaluation.recipes import IN_RECIPES, UNSTATED, completed, options_of_recipe, put_run_recipe
from service.validation.questions import read_question

GIB = 1 << 30

SAME_SIZE_FRACTION = 0.1
"""How far two sizes of one device may differ: vendors and drivers count differently."""
HBM2E_BYTES_PER_S_PER_GIB = 25e9
"""Memory rate of an H100 with HBM2e per GiB: 2.0 TB/s for the 80 GB of the PCIe board.
Source: catalogue/gpus.csv, h100-pcie-80gb; as many bytes a second for each stack."""

_CAP = re.compile(r"(\d+) W cap")
_FORMS = ("sxm", "pcie", "nvl")
_FAMILY = re.compile(r"(?:rtx |geforce )*([a-z]*\d+[a-z]*)")
_BLACKWELL_UNNAMED = re.compile(r"blackwell (\d+) gib class")


def gpu_slug(row: MeasuredRow, catalogue: Catalogue) -> str:
    """Catalogue name of a row's GPU."""
    cell, size = row.text("gpu").lower(), row.number_of("gpu_mem_gb")
    gpus = {row.gpu.slug: row.gpu for row in catalogue.gpus.values()}
    family = _FAMILY.search(cell)
    if _BLACKWELL_UNNAMED.search(cell):
        candidates = [gpu for slug, gpu in gpus.items() if slug.startswith("gb200-")]
    else:
        named = {slug: slug.replace("rtx-", "").split("-") for slug in gpus}
        candidates = [gpu for slug, gpu in gpus.items() if family and family[1] in named[slug]]
    form = next((form for form in _FORMS if form in cell), None)
    of_form = [gpu for gpu in candidates if form and form in gpu.slug] or candidates
    if not of_form:
        raise NotExpressible("gpu: not in the catalogue")
    return min(of_form, key=lambda gpu: (0.0 if size is None else abs(gpu.memory_bytes / GIB - size), gpu.slug)).slug


def with_stated_memory(gpu: Gpu, row: MeasuredRow) -> Gpu:
    """A GPU with the memory size and rate that a row states, if they differ from the catalogue's."""
    cell, changed = row.text("gpu"), gpu
    share = (row.number_of("gpu_mem_gb") or 0.0) * GIB / gpu.memory_bytes
    if share and abs(share - 1) > SAME_SIZE_FRACTION:
        changed = replace(gpu, memory_bytes=gpu.memory_bytes * share, usable_bytes=gpu.usable_bytes * share)
    if "HBM2e" in cell and "H100" in cell:
        changed = replace(changed, memory_bytes_per_s=changed.memory_bytes / GIB * HBM2E_BYTES_PER_S_PER_GIB)
    return changed


def power_limit_watts(row: MeasuredRow) -> float | None:
    """Power limit of a row's GPUs."""
    cap = _CAP.search(row.text("gpu"))
    return float(cap[1]) if cap else None


BYTES_PER_S_OF_GBIT = 1e9 / 8

RATES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], int], float]], ...] = (
    (re.compile(r"(\d+)\s?Gb/s per GPU"), lambda cell, _: float(cell[1])),
    (re.compile(r"(\d+)x\s?(\d+)\s?Gb/s"), lambda cell, node: float(cell[1]) * float(cell[2]) / node),
    (re.compile(r"(\d+)x HDR (?:IB )?(\d+)\s?Gb/s"), lambda cell, node: float(cell[1]) * float(cell[2]) / node),
    (re.compile(r"(\d+)\s?Gb(?:ps|/s)\s?(?:per |/)node"), lambda cell, node: float(cell[1]) / node),
    (re.compile(r"8x HDR|HDR IB \(Selene\)"), lambda _, node: 8 * 200 / node),
)
"""Gbit/s of one GPU by what the words say, the first that fits; nodes share what they have among their GPUs. Selene's
nodes have eight HDR adapters of 200 Gbit/s (Narayanan et al. 2021, arXiv:2104.04473, section 5)."""


def network_bytes_per_s(row: MeasuredRow) -> float | None:
    """Network rate of one GPU, one direction, as a row's words describe it.

    >>> cell = "NVLink3; Omni-Path 4x100Gb/s per node"
    >>> network_bytes_per_s(MeasuredRow(1, {"interconnect": cell, "gpus_per_node": "8"})) / 1e9
    6.25
    >>> network_bytes_per_s(MeasuredRow(1, {"interconnect": "NVLink5; IB"})) is None
    True
    """
    words, node = row.text("interconnect"), row.count("gpus_per_node", 8)
    for pattern, gbit_per_s in RATES:
        if cell := pattern.search(words):
            return gbit_per_s(cell, node) * BYTES_PER_S_OF_GBIT
    return None


_OFFLOAD = re.compile(r"\w*[ _]?offload(?! possible)[^;]*")
_RANK = re.compile(r"lora rank (\d+)")

UNSTATED_PART = "not stated: "
"""Start of an unmodelled detail that leaves a configuration incomplete."""

MULTIPLE = "FSDP script default for multi-GPU"
"""Mark of litgpt's scripts, which compute layers again on several GPUs.
Source: Lightning-AI/litgpt@0cc02afa finetune/lora.py (activation_checkpointing_policy)."""

EVERY_SECOND = "every 2nd layer"
"""Mark of torchtitan's selective checkpointing of whole layers."""

BLACKWELL = re.compile(r"G?B\d00")

TORCH_BY_MONTH = (("2024.2", "2.2"), ("2023.4", "2.0"), ("2022.1", "1.10"))

METHODS = {"lora": "lora", "qlora": "qlora"}
FULL_TRAINING = ("pretrain", "pretrain/finetune", "sft", "full finetune", "full")


def put_recipe(row: MeasuredRow, framework: Framework, draft: Draft) -> None:
    """Set the recipe from a row's columns."""
    layout = draft.layout
    micro = row.count("mbs")
    steps = row.count("grad_accum", 1)
    precision, optimizer = row.text("precision"), row.text("optimizer").lower()
    if precision == "fp8_subchannel/mx" and BLACKWELL.match(row.text("gpu")):
        precision = f"{precision} (Blackwell)"  # two recipes share the column
    default = re.search(r"default (\w+)", optimizer)
    draft.recipe.update(
        sequence_length=row.count("seq_len"),
        micro_batch=micro,
        global_batch=row.count("gbs", micro * layout["data"] * steps),
        precision=_first("precision", precision, re.match),
        optimizer=_first("optimizer", default[1] if default else optimizer, re.search),
        recompute=recompute_of(row, framework),
    )
    draft.recipe.update(framework.recipe)
    draft.recipe.update(first_match(framework.precisions, draft.recipe["precision"], {}))
    draft.recipe.update(first_match(framework.families, row.text("model").lower(), {}))
    if "fp16" in row.text("grad_dtype") and draft.recipe["precision"] == "fp16-mixed":
        draft.recipe["gradient_dtype"] = "fp16"
    if re.search(r"optimizer.in.(bwd|backward)", f"{row.text('optimizer')} {row.text('notes')}"):
        draft.stack["step_in_backward"] = True
    _put_method(row, framework, draft)
    _put_software(row, draft)
    draft.layout["offload"] = offload_of(row)


def recompute_of(row: MeasuredRow, framework: Framework) -> Any:
    """The recompute rule of a row."""
    cell = row.text("recompute")
    cell = "full" if MULTIPLE in cell and row.count("n_gpus") > 1 else cell
    detail = row.text("recompute_detail")
    if cell in UNSTATED:
        if framework.recompute is None:
            raise NotExpressible("missing: recompute")
        return framework.recompute
    if cell == IN_RECIPES:
        recompute = first_match(framework.recipe_recomputes, row.text("model").lower())
        if recompute is None:
            raise NotExpressible("missing: recompute")
        return recompute
    if cell.startswith("none"):
        return "none"
    if EVERY_SECOND in cell:
        return {"granularity": "full", "method": "block", "layers": row.count("layers") // 2}
    if cell.startswith("full"):
        first = re.sub(r"first (\d{1,4}) layers", r"block \1", detail)
        uniform = re.search(r"(uniform|block) (\d{1,4})", first)
        return {"granularity": "full", "method": uniform[1], "layers": int(uniform[2])} if uniform else "full"
    if cell.startswith("selective"):
        named = [module for module in get_args(RecomputeModule) if re.search(rf"\b{module}\b", detail)]
        return {"granularity": "selective", "modules": named}
    raise NotExpressible("recompute: no rule of this name")


def offload_of(row: MeasuredRow) -> str:
    """State that a row keeps in host memory."""
    cell = row.text("offload").lower() or _offload_in_words(row)
    if re.search(r"paged", row.text("optimizer").lower()):
        cell = f"{cell} optimizer"
    if not cell or cell == "none":
        return "none"
    share = re.search(r"(\d+) ?(?:pct|%)", cell)
    if (share and share[1] != "100") or re.search(r"\d+_layers", cell):
        raise NotExpressible("offload: only a part is offloaded")
    if "param" in cell or "model" in cell or cell in ("cpu", "cpu offload"):
        return "model"
    moved = [
        name for name, mark in (("optimizer", "optim|adam"), ("activations", "activation")) if re.search(mark, cell)
    ]
    if not moved:
        raise NotExpressible("offload: not understood")
    return "-and-".join(moved)


def _offload_in_words(row: MeasuredRow) -> str:
    """The offload that a row names among its sharding and features, where it lacks that column."""
    found = _OFFLOAD.search(f"{row.text('sharding')}; {row.text('other_features')}".lower())
    return found[0] if found else ""


def _first(column: str, cell: str, find: Callable[[str, str], re.Match[str] | None]) -> str:
    for pattern, name in table_of(CELLS)[column].items():
        if find(pattern, cell):
            return str(name)
    raise NotExpressible(f"{column}: not understood" if cell else f"missing: {column}")


def _put_method(row: MeasuredRow, framework: Framework, draft: Draft) -> None:
    kind = row.text("training_kind") or "pretrain"
    if kind in FULL_TRAINING:
        return
    if kind not in METHODS:
        raise NotExpressible(f"training_kind: {ascii(kind[:40])[1:-1]} has no noun")
    method: dict[str, Any] = {"name": METHODS[kind]}
    if "embedding" in row.text("trainable_params"):
        method["whole"] = ["embedding", "head"]
    in_words = _RANK.search(row.text("other_features"))
    if rank := row.whole("lora_rank") or (in_words and int(in_words[1])):
        method["rank"] = rank
    draft.recipe.pop("fp8_weights", None)  # frozen weights stay as they were loaded
    if framework.adapters:
        method["targets"] = list(framework.adapters)
    if kind == "qlora":
        cell = row.text("quantization")
        method["quantization"] = "gptq" if "gptq" in cell.lower() else "nf4-double" if cell.endswith("dq") else "nf4"
    draft.recipe["method"] = method


def _put_versions(row: MeasuredRow, draft: Draft) -> None:
    """Library versions by the month of the measurement, beside those of the framework."""
    versions = dict(draft.stack.pop("versions", {}))
    if draft.recipe.get("method", {}).get("name") != "qlora":
        versions.pop("bitsandbytes", None)
    if versions:
        draft.stack["versions"] = versions
    dated = re.match(r"(20\d\d)-(\d\d)", row.text("date"))
    if not dated:
        if draft.stack["name"] == "torchtitan" and (year := re.match(r"20\d\d", row.text("date"))):
            draft.stack["versions"] = {**versions, "torchtitan": f"{year[0]}.12"}  # the newest of that year
        return
    month = f"{dated[1]}.{int(dated[2])}"
    torch = next((version for since, version in TORCH_BY_MONTH if at_least(month, since)), "1.0")
    draft.stack["versions"] = {**versions, "torch": torch}
    if draft.stack["name"] == "torchtitan":
        draft.stack["versions"]["torchtitan"] = month


FUSED_GRADIENTS_SINCE = "2022.2"
"""Month from which Megatron-LM's own layers accumulate weight gradients inside the matrix product.
Source: NVIDIA/Megatron-LM@83b1e42f gradient accumulation fusion, 13 February 2022."""


def _put_software(row: MeasuredRow, draft: Draft) -> None:
    _put_versions(row, draft)
    dated = re.match(r"(20\d\d)-(\d\d)", row.text("framework_version"))
    if dated and row.text("framework") == "Megatron-LM":
        month = f"{dated[1]}.{int(dated[2])}"
        draft.stack["gradient_fusion"] = at_least(month, FUSED_GRADIENTS_SINCE)
    compiled = row.text("compile").startswith("yes")
    if compiled or row.text("compile") == "no":
        implementation: ImplementationName = "compiled" if compiled else "eager"
        is_own = draft.stack.get("implementation") == "litgpt"
        if implementation in IMPLEMENTATIONS[draft.stack["name"]] and not is_own:
            draft.stack["implementation"] = implementation
        elif compiled:
            draft.unmodelled.append("compile: compiled operations keep less")
    if "expandable_segments" in row.text("notes"):
        draft.stack["expandable_segments"] = True
    words = f"{row.text('compile')} {row.text('notes')}".lower()
    if "liger" in words and "liger" in IMPLEMENTATIONS[draft.stack["name"]]:
        draft.stack["implementation"] = "liger"
    elif re.search(r"liger|chunked.?(ce|cross)", words):
        draft.stack["cross_entropy"] = "chunked"
    if row.text("flash_attention").startswith("no") and "attention" not in draft.recipe:
        draft.recipe["attention"] = "eager"


COMMAND_LINE = "Megatron-LM (Megatron-Core)"
"""Framework whose rows carry command-line options; a missing option means its default."""


def question_of(row: MeasuredRow, catalogue: Catalogue) -> tuple[Question, tuple[str, ...]]:
    """The question of a row, and the details that it leaves out."""
    draft = draft_of(row, catalogue)
    try:
        request = read_question(draft.body(), catalogue)
    except Refused as refused:
        raise NotExpressible(reason_of(refused)) from None
    return replace(request.question, gpu=with_stated_memory(request.question.gpu, row)), tuple(draft.unmodelled)


def reason_of(refused: Refused) -> str:
    """First reason of a refusal, short enough to group by."""
    first = refused.problems[0]
    return f"refused: {first.field} {first.code}"


def draft_of(row: MeasuredRow, catalogue: Catalogue) -> Draft:
    """The request body of a row."""
    row = completed(row)
    framework = framework_of(row)
    flags = flags_of(row)
    draft = Draft(stack=dict(framework.stack))
    _put_layout(row, framework, draft)
    put_recipe(row, framework, draft)
    put_architecture(_with_layers(row, {**options_of_recipe(row), **flags}), framework, draft)
    if row.text("framework") == COMMAND_LINE:
        refuse_other_runs(row.text("model"))
        try:
            put_flags(flags, draft)
        except (KeyError, ValueError, TypeError, ArithmeticError):
            raise NotExpressible("extra_config_json: a value is not understood") from None
    put_run_recipe(row, draft)
    _put_pipeline(row, framework, draft)
    put_features(row, draft)
    if re.search(r"power limited|lower TDP", row.text("gpu")):
        draft.unmodelled.append(f"gpu: {row.text('gpu')}")
    if (limit := power_limit_watts(row)) is not None:
        draft.cluster["power_limit_watts"] = limit
    draft.cluster.update(
        gpu=gpu_slug(row, catalogue),
        gpus=_gpus(row, draft),
        gpus_per_node=row.count("gpus_per_node", 8),
    )
    put_configs(row, framework, draft)
    if (rate := network_bytes_per_s(row)) is not None:
        draft.cluster["inter_node_bytes_per_s"] = rate
    return draft


def _with_layers(row: MeasuredRow, flags: Flags) -> MeasuredRow:
    """A row with the number of layers of its hybrid pattern, where it states none."""
    patterns = [str(flags[name]) for name in PATTERNS if name in flags and not row.text("layers")]
    if not patterns:
        return row
    fields, _ = hybrid_fields(patterns[-1], row.count("hidden"), flags)
    return replace(row, cells={**row.cells, "layers": str(fields["num_hidden_layers"])})


def _put_layout(row: MeasuredRow, framework: Framework, draft: Draft) -> None:
    alone = row.whole("n_gpus") == 1
    default = 1 if alone else None
    tensor, pipeline, context = row.count("tp", default), row.count("pp", default), row.count("cp", 1)
    draft.layout.update(
        tensor=tensor,
        pipeline=pipeline,
        context=context,
        data=row.count("dp", default),
        virtual_pipeline=row.count("vpp", 1) if pipeline > 1 else 1,
        expert=row.count("ep", 1),
    )
    if (expert_tensor := row.whole("etp")) is not None:
        draft.layout["expert_tensor"] = expert_tensor
    stage = row.whole("zero_stage")
    if stage is None or (alone and not stage):  # tables write 0 where one GPU has nothing to shard
        stage = framework.zero_stages.get(row.text("training_kind"), stage)
        if alone and stage and not framework.runs_alone:
            draft.unmodelled.append(f"{UNSTATED_PART}the ZeRO stage on one GPU")
    if stage is not None:
        draft.layout["zero_stage"] = stage
    put_sharding(row, draft)
    if row.text("sequence_parallel") and tensor > 1:
        draft.layout["sequence_parallel"] = row.is_on("sequence_parallel")


def _gpus(row: MeasuredRow, draft: Draft) -> int:
    """GPUs of the run; refused if the table assumed their number and it is too small for the expert groups."""
    layout = draft.layout
    group = layout["expert"] * layout.get("expert_tensor", 1)
    ranks = layout["data"] * layout["context"] * layout["tensor"]
    if ranks % group and "GPU count assumed" in row.text("quality"):
        raise NotExpressible("n_gpus: only assumed, and too few for the expert groups")
    return row.count("n_gpus")


def _put_pipeline(row: MeasuredRow, framework: Framework, draft: Draft) -> None:
    layout, model = draft.layout, draft.model
    stages, layers = layout["pipeline"], model["num_hidden_layers"]
    parts = stages * layout.get("virtual_pipeline", 1)
    if not model.get("num_experts"):
        layout.pop("expert_tensor", None)
    if stages == 1:
        return
    if "embedding counted as a layer" in row.text("notes"):
        layout.update(embedding_in_split=True, loss_in_split=True)
    elif framework.stack["name"] == "nanotron":
        hidden = model["hidden_size"]
        layer = 4 * hidden * hidden + 3 * hidden * row.count("ffn_hidden")
        layout["stage_layers"] = list(layers_by_cost(layers, stages, layer, model["vocab_size"] * hidden))
    elif layers % parts and row.text("framework") != COMMAND_LINE:
        if framework.last_takes_remainder and (layers + 2) % parts == 0:
            layout.update(embedding_in_split=True, loss_in_split=True)
        else:
            layout["stage_layers"] = list(layers_spread(layers, parts, rest_last=framework.last_takes_remainder))
    if layout.get("virtual_pipeline", 1) > 1 and "virtual_group" not in layout:
        rounds = draft.recipe["global_batch"] // (draft.recipe["micro_batch"] * layout["data"])
        if group := virtual_group(rounds, stages):
            layout["virtual_group"] = group
