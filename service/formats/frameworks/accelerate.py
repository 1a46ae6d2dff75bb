"""Hugging Face accelerate: the YAML of accelerate launch, with FSDP or unsharded replicas.

Source: accelerate 1.15.0 commands/config/config_args.py, commands/launch.py (names of the options that the inner keys
become), utils/dataclasses.py, defaults included.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from service.estimator.complete import CompleteQuestion
from service.estimator.degrees import WEIGHTS
from service.estimator.software.stacks import software_of
from service.formats import drafts, rules
from service.formats.frameworks.deepspeed import deepspeed_draft
from service.formats.text import Entry, Settings, nested, yaml_text
from service.text_bounds import refusal

_FSDP = "fsdp_config.fsdp_"
_PARALLEL = "parallelism_config.parallelism_config_"

_WRAP = {f"{_FSDP}auto_wrap_policy": "TRANSFORMER_BASED_WRAP"}


def _is_fsdp1(question: CompleteQuestion) -> bool:
    return software_of(question.recipe).name == "fsdp1"


def _shards(question: CompleteQuestion) -> int:
    """Replicas that shard together; all where the group is no whole number of them, or cannot stand beside others."""
    layout = question.layout
    shards, left = (1, 0) if layout.zero_stage == 0 else divmod(layout.shard_group, layout.context)
    is_whole = not left and shards and layout.data % shards == 0
    stands_beside = shards > 1 or layout.data == 1 or layout.tensor * layout.context == 1
    return shards if is_whole and stands_beside else layout.data


def _is_unsharded(question: CompleteQuestion) -> bool:
    """Whether the file has every rank hold whole weights, without FSDP."""
    return not _is_fsdp1(question) and _shards(question) == question.layout.context == 1


def _distributed(value: Any, question: CompleteQuestion) -> rules.Written:
    """Settings of the replicas, and of the ranks that shard each of them."""
    layout, is_fsdp1 = question.layout, _is_fsdp1(question)
    gap: rules.Written = None
    if layout.pipeline > 1:
        gap = rules.not_expressible("without a pipeline every process is part of a replica", "set pipeline to 1")
    if _is_unsharded(question):
        return rules.combined({"distributed_type": "MULTI_GPU"}, gap)
    kind = {"distributed_type": "FSDP", f"{_FSDP}version": 1 if is_fsdp1 else 2, **_WRAP}
    if is_fsdp1:
        return rules.combined(kind, gap)
    shards = _shards(question) * (layout.pipeline if _shards(question) == layout.data else 1)
    replicas = layout.data * layout.pipeline // shards
    degrees = {f"{_PARALLEL}dp_replicate_size": replicas, f"{_PARALLEL}dp_shard_size": shards}
    return rules.combined({**kind, **degrees}, gap)


def _zero_stage(value: Any, question: CompleteQuestion) -> rules.Written:
    if value == WEIGHTS and _is_unsharded(question):
        return rules.not_expressible("one rank shards nothing, so the file leaves weights whole", "set zero_stage to 0")
    if value == 0 and question.layout.context == 1 and not _is_unsharded(question) and not _is_fsdp1(question):
        why = "beside tensor ranks accelerate has replicas that shard, and no others; the file shards weights"
        return rules.not_expressible(why, "set zero_stage to 3")
    return rules.fully_sharded("ZeRO stage {value} is not FSDP's; the file shards weights too")(value, question)


def _groups(value: Any, question: CompleteQuestion) -> rules.Written:
    layout, node = question.layout, question.cluster.gpus_per_node
    if not _is_fsdp1(question):
        if layout.zero_stage != WEIGHTS or value == _shards(question) * layout.context:
            return None
        why = "groups that shard hold whole context groups, and more than one replica beside tensor or context ranks"
        return rules.not_expressible(why, "leave shard_group out")
    if layout.zero_stage == 0:
        return {f"{_FSDP}sharding_strategy": "NO_SHARD"}
    is_hybrid = value != layout.data * layout.context
    if is_hybrid and not layout.reshard_after_forward:
        return rules.not_expressible(
            "no strategy of the launcher shards so in groups", "set reshard_after_forward to true"
        )
    strategy = "HYBRID_SHARD" if is_hybrid else "FULL_SHARD" if layout.reshard_after_forward else "SHARD_GRAD_OP"
    settings = {f"{_FSDP}sharding_strategy": strategy}
    if is_hybrid and value != node:
        return rules.combined(settings, rules.not_expressible("groups are the nodes", f"set shard_group to {node}"))
    return settings


def _recompute(value: Any, question: CompleteQuestion) -> rules.Written:
    if value.granularity == "none":
        return None
    is_whole = value.granularity == "full" and value.method == "uniform" and (value.layers or 1) == 1
    if not is_whole or _is_unsharded(question):
        return rules.not_expressible(
            "the file can have every wrapped layer recompute, with FSDP alone",
            rules.IN_SCRIPT,
            instead=rules.LEFT_OPEN,
        )
    return {f"{_FSDP}activation_checkpointing": True}


def _context(value: Any, question: CompleteQuestion) -> rules.Written:
    name = "sp_size" if question.layout.context_method == "ulysses" else "cp_size"
    return None if value == 1 else {f"{_PARALLEL}{name}": value}


def _context_method(value: Any, question: CompleteQuestion) -> rules.Written:
    if question.layout.context == 1:
        return None
    names = {"ring": ("cp_comm_strategy", "alltoall"), "all-gather": ("cp_comm_strategy", "allgather")}
    name, chosen = names.get(value, ("sp_backend", "deepspeed"))
    return {f"{_PARALLEL}{name}": chosen}


def _prefetch(value: Any, question: CompleteQuestion) -> Any:
    """Gathering ahead in the backward pass, which the launcher leaves out unless it is named; FSDP2 always does it."""
    if _is_fsdp1(question) and question.layout.zero_stage == WEIGHTS:
        return "NO_PREFETCH" if value is False else "BACKWARD_PRE"
    return None if value is None else rules.not_expressible("FSDP2 gathers ahead by itself", "leave overlap_gather out")


def _offload(value: Any, question: CompleteQuestion) -> rules.Written:
    if value == "none":
        return None
    if value == "model" and not _is_unsharded(question):
        return {f"{_FSDP}offload_params": True}
    return rules.not_expressible(
        f"FSDP offloads weights and all that belongs to them, and not {value}", "use offload model, or none"
    )


_TABLE = rules.framework_table("accelerate", "rules", *drafts.FATES, "earlier")

RULES: rules.Rules = {
    **rules.SCRIPT_RULES,
    **rules.rules_of(
        _TABLE["rules"],
        {
            "recipe.micro_batch": lambda value, _: rules.not_expressible(
                "sequences that a rank works on at once are the script's",
                f"give the script a batch of {value} for each device",
                instead=rules.LEFT_OPEN,
            ),
            "recipe.global_batch": lambda value, q: rules.not_expressible(
                "steps of accumulation are the script's",
                f"give it {value // (q.recipe.micro_batch * q.layout.data)} gradient accumulation steps",
                instead=rules.LEFT_OPEN,
            ),
            "recipe.gradient_dtype": lambda value, q: value == "fp32" or q.recipe.precision.endswith("-pure"),
            "recipe.optimizer": lambda value, _: rules.not_expressible(
                f"the optimizer, {value}, is made by the script", rules.IN_SCRIPT, instead=rules.LEFT_OPEN
            ),
            "recipe.recompute": _recompute,
            "recipe.stack.overlap_gather": _prefetch,
            "layout.data": _distributed,
            "layout.tensor": lambda value, _: None if value == 1 else value,
            "layout.context": _context,
            "layout.expert_tensor": lambda value, q: not q.model.num_experts or value == q.layout.tensor,
            "layout.zero_stage": _zero_stage,
            "layout.shard_group": _groups,
            "layout.reshard_after_forward": lambda value, q: (
                None if _is_fsdp1(q) or q.layout.zero_stage != 3 or _is_unsharded(q) else bool(value)
            ),
            "layout.sequence_parallel": lambda value, q: not value or q.layout.tensor == 1,
            "layout.context_method": _context_method,
            "layout.offload": _offload,
        },
    ),
}

FATES = drafts.fates_of(RULES, _TABLE)


def _machines(question: CompleteQuestion) -> int:
    return -(-question.cluster.gpus // question.cluster.gpus_per_node)


def _text(settings: Settings, request: rules.ExportRequest) -> str:
    setup = (
        ("compute_environment", "LOCAL_MACHINE"),
        ("machine_rank", 0),
        ("num_machines", _machines(request.question)),
        ("num_processes", request.question.cluster.gpus),
    )
    return yaml_text(nested((*setup, *settings)))


def _notes(question: CompleteQuestion) -> list[str]:
    differing = "machine_rank, main_process_ip and main_process_port differ from node to node"
    return [f"{differing}: give them to accelerate launch"] if _machines(question) > 1 else []


ACCELERATE = rules.training_target("accelerate", {"1.15": RULES}, _text, _notes)


_STRATEGIES = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2")
"""Sharding strategies of FSDP1 in the order of their numbers. Source: accelerate 1.15.0 utils/constants.py."""

_PREFETCHES = {"BACKWARD_PRE": True, "BACKWARD_POST": True, "NO_PREFETCH": False}

_SHARDED, _STRATEGY = "distributed_type", f"{_FSDP}sharding_strategy"

_DEEPSPEED = "deepspeed_config."

FILE_OF_DEEPSPEED = f"{_DEEPSPEED}deepspeed_config_file"
"""Setting with DeepSpeed's own file."""

_WRITTEN = {
    f"{_DEEPSPEED}zero_stage": "zero_optimization.stage",
    f"{_DEEPSPEED}offload_optimizer_device": "zero_optimization.offload_optimizer.device",
    f"{_DEEPSPEED}offload_param_device": "zero_optimization.offload_param.device",
    f"{_DEEPSPEED}gradient_accumulation_steps": "gradient_accumulation_steps",
}
"""Settings of the DeepSpeed file that accelerate writes. Source: accelerate 1.15.0 utils/dataclasses.py."""


def _numbered(names: Sequence[str]) -> dict[str, str]:
    """Names of choices by themselves, and by their numbers from 1."""
    return {name: name for name in names} | {str(number): name for number, name in enumerate(names, 1)}


def read_accelerate(entries: Sequence[Entry]) -> drafts.Draft:
    """Draft of a file of accelerate launch, or of what it becomes for DeepSpeed."""
    draft = accelerate_draft(entries)
    own = ["model", "sequence length", "batches", "optimizer"]
    if f"{_FSDP}activation_checkpointing" not in draft.fates:
        own.append("recompute")
    if "mixed_precision" not in draft.fates and draft.recipe.get("precision", "fp32") == "fp32":
        own.append("precision")
        draft.recipe.pop("precision", None)
    named = f"{', '.join(own[:-1])} and {own[-1]}"
    draft.assumptions.append(f"{named} are the script's: give model, sequence_length and the batches")
    return draft


def deepspeed_entries(entries: Sequence[Entry]) -> list[Entry]:
    """The DeepSpeed file that accelerate writes of its own, or the one that it names; none without DeepSpeed."""
    found = {entry.name: entry for entry in entries}
    kind = found.get(_SHARDED)
    if kind is None or str(kind.value).upper() != "DEEPSPEED":
        return []
    named = FILE_OF_DEEPSPEED
    sent = [
        replace(one, name=one.name.removeprefix(f"{named}.")) for one in entries if one.name.startswith(f"{named}.")
    ]
    if sent:
        return sent
    if named in found and found[named].value is not None:
        message = "deepspeed_config_file names a file that was not sent, and how the training is sharded is in it"
        raise refusal(found[named].place, "missing_file", message, "send that file too, under its name in files")
    written = {name: found[given] for given, name in _WRITTEN.items() if given in found}
    stage = written.pop("zero_optimization.stage", Entry("", 2, kind.place))
    half = str(found["mixed_precision"].value) if "mixed_precision" in found else "no"
    place = found["mixed_precision"].place if half != "no" else kind.place
    numbers = [Entry(f"{half}.enabled", value=True, place=place)] if half in ("bf16", "fp16") else []
    return [
        replace(stage, name="zero_optimization.stage"),
        *(replace(entry, name=name) for name, entry in written.items()),
        *numbers,
    ]


def _put_deepspeed(draft: drafts.Draft, entries: Sequence[Entry]) -> None:
    under = deepspeed_draft([replace(one, value=None) if one.value == "auto" else one for one in entries])
    layout, recipe = draft.layout, draft.recipe
    layout |= under.layout
    put_ranks(draft, layout)
    recipe |= {**under.recipe, **draft.fields_of(RULES, "recipe")}
    draft.accumulation_steps = under.accumulation_steps
    if any(name.startswith(FILE_OF_DEEPSPEED) for name in draft.fates):
        draft.fates |= drafts.under(FILE_OF_DEEPSPEED, under.fates)


def put_ranks(draft: drafts.Draft, layout: dict[str, Any]) -> None:
    """The degrees that accelerate sets beside DeepSpeed's file, and the replicas that its processes leave."""
    layout["tensor"] = max(layout["tensor"], draft.get(f"{_PARALLEL}tp_size", 1))
    sequence = draft.get(f"{_PARALLEL}sp_size", 1)
    if sequence > 1:
        layout |= {"context": sequence, "context_method": "ulysses"}
    model_ranks = layout["tensor"] * layout["context"] * layout["pipeline"]
    processes = draft.get("num_processes", -1)
    if "data" not in layout and processes > 0 and processes % model_ranks == 0:
        layout["data"] = processes // model_ranks


def accelerate_draft(entries: Sequence[Entry]) -> drafts.Draft:
    """What a file of accelerate launch says beside a script's own arguments."""
    draft = drafts.draft_of([_with_prefix(entry) for entry in entries], FATES)
    layout, recipe = draft.layout, draft.recipe
    kinds = {"FSDP": True, "MULTI_GPU": False, "NO": False, "DEEPSPEED": False}
    sharded = draft.chosen(_SHARDED, kinds, "NO")
    if under := deepspeed_entries(entries):
        _put_deepspeed(draft, under)
        return draft
    is_fsdp1 = sharded and draft.get(f"{_FSDP}version", 1) == 1
    layout |= draft.fields_of(RULES, "layout")
    recipe |= draft.fields_of(RULES, "recipe")
    context_size, ulysses_size = draft.get(f"{_PARALLEL}cp_size", 1), draft.get(f"{_PARALLEL}sp_size", 1)
    layout["context"] = max(context_size, ulysses_size, 1)
    if ulysses_size > 1:
        layout["context_method"] = "ulysses"
    elif context_size > 1:
        methods = {"ALLGATHER": "all-gather", "ALLTOALL": "ring"}
        layout["context_method"] = draft.chosen(f"{_PARALLEL}cp_comm_strategy", methods, "ALLGATHER")
    _put_replicas(draft, sharded=sharded)
    if is_fsdp1:
        _put_strategy(draft)
    elif sharded:
        draft.without_effect(_STRATEGY, "FSDP2 does not read it")
        freed = {"TRUE": True, "FALSE": False, "NO": False}
        frees = draft.chosen(f"{_FSDP}reshard_after_forward", freed, "TRUE")
        layout["reshard_after_forward"] = frees and layout["zero_stage"] == WEIGHTS
    layout["offload"] = "model" if sharded and draft.get(f"{_FSDP}offload_params") else "none"
    recipe["recompute"] = "full" if sharded and draft.get(f"{_FSDP}activation_checkpointing") else "none"
    recipe["stack"] = _software(draft, is_fsdp1=is_fsdp1)
    if not sharded:
        for name in draft.fates:
            if name.startswith("fsdp_config."):
                draft.without_effect(name, "it applies to FSDP alone")
    return draft


def _with_prefix(entry: Entry) -> Entry:
    """A setting under the name that the launcher makes of it: sections complete the names of their options."""
    section, _, name = entry.name.partition(".")
    prefix = {"fsdp_config": "fsdp_", "fp8_config": "fp8_", "dynamo_config": "dynamo_"}.get(section, "")
    return entry if not name or name.startswith(prefix) else replace(entry, name=f"{section}.{prefix}{name}")


def _software(draft: drafts.Draft, *, is_fsdp1: bool) -> dict[str, Any]:
    compiled = draft.get("dynamo_config.dynamo_backend", "NO")
    stack: dict[str, Any] = {"name": "fsdp1" if is_fsdp1 else "transformers"}
    if is_fsdp1:
        chosen = draft.chosen(f"{_FSDP}backward_prefetch", _numbered([*_PREFETCHES]), "NO_PREFETCH")
        stack["overlap_gather"] = _PREFETCHES[chosen]
    else:
        draft.without_effect(f"{_FSDP}backward_prefetch", "FSDP2 gathers ahead by itself")
    if compiled == "INDUCTOR" and not is_fsdp1:
        stack["implementation"] = "compiled"
    elif compiled != "NO":
        draft.not_understood("dynamo_config.dynamo_backend", "operations are compiled in a way that is not modelled")
    return stack


def _put_replicas(draft: drafts.Draft, *, sharded: bool) -> None:
    layout = draft.layout
    replicas, shards = draft.get(f"{_PARALLEL}dp_replicate_size", 1), draft.get(f"{_PARALLEL}dp_shard_size")
    processes = draft.get("num_processes", -1)
    model_ranks = layout["tensor"] * layout["context"]
    if shards:
        layout["data"] = replicas * shards
    elif processes > 0 and processes % model_ranks == 0:
        layout["data"] = processes // model_ranks
    else:
        draft.assumptions.append(f"the number of processes is not in the file: {drafts.FROM_GPUS}")
    layout["zero_stage"] = 3 if sharded and (shards is None or shards > 1 or layout["context"] > 1) else 0
    if layout["zero_stage"] == WEIGHTS and shards and replicas > 1:
        layout["shard_group"] = shards * layout["context"]
    policy = draft.get(f"{_FSDP}auto_wrap_policy", "NO_WRAP")
    if sharded and policy != "TRANSFORMER_BASED_WRAP":
        why = "weights are gathered in other parts than layers, all at once where no fsdp_auto_wrap_policy is named"
        draft.not_understood(f"{_FSDP}auto_wrap_policy", why)


def _put_strategy(draft: drafts.Draft) -> None:
    """ZeRO stage, groups and resharding of FSDP1, which its strategy decides alone."""
    layout = draft.layout
    choices = _numbered(_STRATEGIES) | {"_HYBRID_SHARD_ZERO2": "HYBRID_SHARD_ZERO2"}
    strategy = draft.chosen(_STRATEGY, choices, "FULL_SHARD")
    draft.without_effect(f"{_FSDP}reshard_after_forward", "FSDP1 reads the sharding strategy instead")
    if strategy == "NO_SHARD":
        layout["zero_stage"] = 0
        layout.pop("shard_group", None)
        return
    layout["reshard_after_forward"] = strategy in ("FULL_SHARD", "HYBRID_SHARD")
    if strategy.startswith("HYBRID"):
        processes, machines = draft.get("num_processes", -1), draft.get("num_machines", 1)
        if processes > 0 and processes % max(1, machines) == 0:
            layout["shard_group"] = processes // max(1, machines)
        else:
            draft.not_understood(_STRATEGY, "groups are the nodes, and the file does not say the processes of one")
