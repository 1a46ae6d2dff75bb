"""torchtitan: TOML up to 0.2, flags in 0.3, a Python function on main; TOML is read back.

Source: torchtitan 0.2.2 config/job_config.py, its defaults included, torchtitan 0.3.0 and pytorch/torchtitan@b5bcd76
config/configs.py; torchtitan 0.2.2 and 0.3.0, distributed/pipeline_parallel.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from service.estimator.complete import CompleteQuestion
from service.estimator.degrees import WEIGHTS
from service.estimator.question import Model, Recompute
from service.estimator.software.stacks import software_of
from service.formats import drafts, rules
from service.formats.model_names import changed_model
from service.formats.text import Entry, Settings, command_text, nested, toml_text, words_of

_TABLE = rules.framework_table(
    "torchtitan", "shared", "0.2", "0.3", "main", *drafts.FATES, "earlier", "schedules", "registered"
)

SCHEDULES: Mapping[str, str] = _TABLE["schedules"]


def _schedule(value: Any, question: CompleteQuestion) -> rules.Written:
    if question.layout.pipeline == 1:
        return None
    note = f"torch's {SCHEDULES[value]} runs two chunks on each rank, the question one"
    name = ("parallelism.pipeline_parallel_schedule", SCHEDULES[value])
    return rules.Fragment((name,), assumptions=(note,) if value in ("zero-bubble", "dualpipe") else ())


def _chunks(value: Any, question: CompleteQuestion) -> int | None:
    """Layers of a chunk: looped schedules have two chunks a rank unless layers are counted."""
    layout = question.layout
    ends = layout.embedding_in_split + layout.loss_in_split
    layers = (question.model.num_hidden_layers + ends) // (layout.pipeline * value)
    return None if value <= 2 or rules.has_custom_split(question) else layers


def _end(value: Any, question: CompleteQuestion) -> int | None:
    """An end of the model that counts as a layer."""
    return None if question.layout.pipeline == 1 or rules.has_custom_split(question) else int(value)


def _stage_modules(head: str) -> rules.Writer:
    """Writer of a partition given as module lists."""

    def write(value: Any, question: CompleteQuestion) -> list[list[str]] | None:
        if not rules.has_custom_split(question):
            return None
        names = iter(range(question.model.num_hidden_layers))
        modules = [[f"layers.{next(names)}" for _ in range(layers)] for layers in value]
        modules[0].insert(0, "tok_embeddings")
        modules[-1] += ["norm", head]
        return modules

    return write


@dataclass(frozen=True, slots=True)
class RegisteredModel:
    """A model of torchtitan's registry."""

    module: str
    """Its family: model.name up to 0.2, --module from 0.3 on."""
    flavor: str
    config: str
    """Its configuration: --config from 0.3 on; empty if there is none."""
    slug: str
    """Its name in the catalogue."""
    sizes: tuple[int, ...]
    """Layers, width, query heads, key and value heads, width of the MLP, rows of the embedding, experts."""
    without: tuple[str, ...] = ()
    """Fields of the catalogue's model that it leaves at their defaults."""

    @property
    def model(self) -> str | dict[str, Any]:
        """The model as a question spells it."""
        return changed_model(self.slug, self.without, {})


def _registered(row: dict[str, Any]) -> RegisteredModel:
    return RegisteredModel(**{**row, "sizes": tuple(row["sizes"]), "without": tuple(row.get("without", ()))})


REGISTERED = tuple(map(_registered, _TABLE["registered"]["models"]))
RETIRED = tuple(map(_registered, _TABLE["registered"]["retired"]))
"""Models of registries before 0.1, which are read and not written."""


def registered_model(model: Model) -> RegisteredModel | None:
    sizes = (
        model.num_hidden_layers,
        model.hidden_size,
        model.num_attention_heads,
        model.key_value_heads,
        model.intermediate_size or 0,
        model.vocab_size,
        model.num_experts,
    )
    family = "qwen3" if model.qk_norm == "per_head_dim" else "llama3"
    plain = model.kv_lora_rank is None and not model.layer_types and not model.sliding_window
    return next((row for row in REGISTERED if plain and (row.module, row.sizes) == (family, sizes)), None)


NO_SETTING = "choose a value that torchtitan has, or change its code"


def replica_degrees(question: CompleteQuestion) -> tuple[int, int] | None:
    """Replicating and sharding degrees of data parallelism."""
    layout = question.layout
    data = layout.data
    if layout.zero_stage == 0:
        return data, 1
    shards, left = divmod(layout.shard_group, layout.context)
    return None if left or not shards or data % shards else (data // shards, shards)


def _replicas(value: Any, question: CompleteQuestion) -> rules.Written:
    found = replica_degrees(question)
    if found is None:
        return {"parallelism.data_parallel_shard_degree": value}
    names = ("parallelism.data_parallel_replicate_degree", "parallelism.data_parallel_shard_degree")
    return rules.Fragment(tuple(zip(names, found, strict=True)))


def _groups(value: Any, question: CompleteQuestion) -> rules.Written:
    why = (
        f"groups that shard hold whole context groups, and {value} ranks are not a multiple of "
        f"{question.layout.context}; the file shards over all replicas"
    )
    fix = "make shard_group a multiple of the context degree"
    return rules.not_expressible(why, fix) if replica_degrees(question) is None else None


def _zero_stage(value: Any, question: CompleteQuestion) -> rules.Written:
    if value == WEIGHTS and question.layout.shard_group == 1:
        return rules.not_expressible("one rank shards nothing, so the file leaves weights whole", "set zero_stage to 0")
    why = "weights are sharded with the optimizer or not at all; the file shards them"
    return rules.fully_sharded(why)(value, question)


def _precision(value: Any, question: CompleteQuestion) -> rules.Written:
    mixed = "training.mixed_precision_param"
    layout = question.layout
    is_whole = layout.context == 1 and (layout.zero_stage == 0 or layout.shard_group == 1)
    if value == "bf16-mixed" and is_whole and layout.tensor * layout.pipeline > 1:
        why = "weights that are split over tensor ranks or stages, and not sharded, are not cast"
        return rules.combined({mixed: "bfloat16"}, rules.not_expressible(why, "set zero_stage to 3"))
    plain = {
        "bf16-mixed": {mixed: "bfloat16"},
        "fp32": {mixed: "float32"},
        "bf16-pure": {"training.dtype": "bfloat16", mixed: "bfloat16"},
    }
    if value in plain:
        return plain[value]
    why = f"{value} is a change of the model's modules, not a setting"
    return rules.combined(
        plain["bf16-mixed"], rules.not_expressible(why, "convert the model in the configuration's function")
    )


def _graphs(value: Any, question: CompleteQuestion) -> rules.Written:
    off = {"training.disable_cuda_graphs": True}
    if value and question.layout.pipeline > 1:
        return rules.combined(
            off, rules.not_expressible("a step of a pipeline is not captured as a graph", "leave cuda_graphs out")
        )
    return None if value else off


def _compiled(value: Any, question: CompleteQuestion) -> rules.Written:
    """Layers and loss are compiled separately."""
    software = software_of(question.recipe)
    parts = {"model": software.implementation == "compiled", "loss": software.cross_entropy == "compiled"}
    components = [name for name, is_compiled in parts.items() if is_compiled]
    named = {"compile.enable": True, "compile.components": components} if components else {}
    if value in ("eager", "compiled"):
        return named
    return rules.combined(named, rules.not_expressible(f"operations are torch's, not {value}", NO_SETTING))


def _tensor_overlap(name: str) -> rules.Rule:
    def write(value: Any, question: CompleteQuestion) -> rules.Written:
        if not value or question.layout.tensor == 1:
            return None
        if software_of(question.recipe).implementation == "compiled":
            return {"compile.enable": True, name: True}
        return rules.not_expressible("exchanges in pieces come with compiled layers alone", "name that implementation")

    return rules.Option(name, rules.boolean, default=False, write=write)


_ROTATIONS = {"allgather": "all-gather", "alltoall": "ring"}
"""Methods of context parallelism, by their names in torchtitan."""


def _rotation(value: Any, question: CompleteQuestion) -> Any:
    names = {method: name for name, method in _ROTATIONS.items()}
    if question.layout.context == 1:
        return None
    why = f"context ranks exchange keys and values, and not heads as {value} does"
    return names.get(value) or rules.not_expressible(why, NO_SETTING)


_UNKNOWN_MODEL = "torchtitan takes its model from a registry, and none there has these sizes"
_REGISTER = "register the model in torchtitan, and name it in the file"

_DEBUG_MODEL = Model(**_TABLE["registered"]["default"])
"""The model of a file that names none."""

FULL, SELECTIVE, NONE = "FullAC.Config()", "SelectiveAC.Config()", "None"
"""Activation checkpointing as a Python configuration has it."""


def _named(value: Any, question: CompleteQuestion) -> rules.Written:
    found = registered_model(value)
    if found is None:
        return rules.not_expressible(_UNKNOWN_MODEL, _REGISTER, instead=_DEBUG_MODEL)
    return {"model.name": found.module, "model.flavor": found.flavor}


def _configured(value: Any, question: CompleteQuestion) -> rules.Written:
    found = registered_model(value)
    if found is None or not found.config:
        base = {"module": "llama3", "config": "llama3_debugmodel"}
        return rules.combined(
            base,
            rules.not_expressible(
                f"{_UNKNOWN_MODEL}; the file starts from llama3_debugmodel", _REGISTER, instead=_DEBUG_MODEL
            ),
        )
    return {"module": found.module, "config": found.config}


def _local_batch(value: Any, question: CompleteQuestion) -> rules.Written:
    """Sequences of a rank at once; in a pipeline all of a step, which it cuts into micro-batches itself."""
    batch = (question.recipe.global_batch or value) // (question.layout.data or 1)
    cut = {"training.local_batch_size": batch, "parallelism.pipeline_parallel_microbatch_size": value}
    return {"training.local_batch_size": value} if question.layout.pipeline == 1 else cut


def _local_tokens(value: Any, question: CompleteQuestion) -> rules.Written:
    layout, recipe = question.layout, question.recipe
    count = (recipe.global_batch or value) // (value * (layout.data or 1))
    tokens = {"training.num_tokens_per_microbatch_per_dp_rank": value * recipe.sequence_length}
    return tokens if layout.pipeline == 1 else {**tokens, "parallelism.num_pp_microbatches": count}


def _recompute(value: Any, question: CompleteQuestion) -> rules.Fragment:
    mode = {"activation_checkpoint.mode": value.granularity}
    if value.granularity == "selective":
        mode["activation_checkpoint.selective_ac_option"] = "op"
    return rules.combined(mode, _recompute_lacks(value))


def _recompute_lacks(value: Any) -> rules.Written:
    if value.granularity == "selective" and value.modules not in ((), ("op",)):
        return rules.not_expressible(
            "selective recompute is by operation, and modules cannot be named", "set modules to op"
        )
    if value.granularity == "full" and (value.method == "block" or (value.layers or 1) > 1):
        return rules.not_expressible("every layer recomputes by itself", "leave method and layers out")
    return None


def _recompute_fixed(value: Any, question: CompleteQuestion) -> rules.Written:
    if value.granularity != "selective":
        return rules.not_expressible(
            f"recompute {value.granularity} is a class in the configuration's function, not a flag; the named "
            "configuration recomputes selectively",
            "use version main, which writes such a function",
            instead=Recompute(granularity="selective", modules=("op",)),
        )
    return _recompute_lacks(value)


def _recompute_class(value: Any, question: CompleteQuestion) -> rules.Written:
    classes = {"none": NONE, "full": FULL, "selective": SELECTIVE}
    return rules.combined({"activation_checkpoint": classes[value.granularity]}, _recompute_lacks(value))


_SHARED: rules.Rules = {
    **rules.COMMON_RULES,
    **rules.rules_of(
        _TABLE["shared"],
        {
            "recipe.training_tokens": rules.steps("training.steps"),
            "recipe.precision": _precision,
            "recipe.gradient_dtype": lambda value, q: value == "fp32" or q.recipe.precision == "bf16-pure",
            "recipe.stack.implementation": _compiled,
            "recipe.stack.deterministic": lambda value, _: value or None,
            "layout.data": _replicas,
            "layout.virtual_pipeline": _chunks,
            "layout.zero_stage": _zero_stage,
            "layout.shard_group": _groups,
            "layout.reshard_after_forward": lambda value, q: (
                ("always" if value else "never") if q.layout.zero_stage == 3 else None
            ),
            "layout.virtual_group": lambda value, q: value == q.layout.pipeline,
            "layout.schedule": _schedule,
            "layout.embedding_in_split": _end,
            "layout.loss_in_split": _end,
        },
    ),
}

_NEW = {
    "recipe.stack.cuda_graphs": _graphs,
    "recipe.stack.tensor_overlap": _tensor_overlap("compile.enable_async_tensor_parallel"),
    "layout.sequence_parallel": lambda value, q: None if q.layout.tensor == 1 or value else False,
    "layout.context_method": lambda value, q: q.layout.context == 1 or value == "all-gather",
    "layout.expert_tensor": lambda value, q: not q.model.num_experts or value == 1 or q.layout.expert == 1,
}

_OLD_RULES = rules.rules_of(
    _TABLE["0.2"],
    {
        "recipe.stack.tensor_overlap": _tensor_overlap("parallelism.enable_async_tensor_parallel"),
        "layout.sequence_parallel": lambda value, q: q.layout.tensor == 1 or value,
        "layout.context_method": _rotation,
        "layout.expert_tensor": lambda value, q: value if q.model.num_experts else None,
        "layout.stage_layers": _stage_modules("output"),
        "recipe.micro_batch": _local_batch,
        "recipe.recompute": _recompute,
        "recipe.stack.fused_update": lambda value, _: "fused" if value else "for-loop",
    },
)
_FLAG_RULES = rules.rules_of(
    _TABLE["0.3"],
    {
        **_NEW,
        "recipe.micro_batch": _local_batch,
        "recipe.recompute": _recompute_fixed,
        "layout.stage_layers": lambda _, q: not rules.has_custom_split(q),
    },
)
_FUNCTION_RULES = rules.rules_of(
    _TABLE["main"],
    {
        **_NEW,
        "recipe.micro_batch": _local_tokens,
        "recipe.global_batch": lambda value, q: value * q.recipe.sequence_length,
        "recipe.recompute": _recompute_class,
        "layout.stage_layers": _stage_modules("lm_head"),
    },
)

RULES: dict[str, rules.Rules] = {
    "0.2": {"model": _named, **_SHARED, **_OLD_RULES},
    "0.3": {"model": _configured, **_SHARED, **_FLAG_RULES},
    "main": {"model": _configured, **_SHARED, **_FUNCTION_RULES},
}


def flag_words(settings: Settings) -> list[str]:
    """Settings as flags of 0.3, where a list is one word with commas.

    >>> flag_words((("parallelism.enable_sequence_parallel", False), ("training.seq_len", 8)))
    ['--parallelism.no-enable-sequence-parallel', '--training.seq_len', '8']
    >>> flag_words((("compile.components", ["model", "loss"]),))
    ['--compile.components', 'model,loss']
    """
    flags = []
    for name, value in settings:
        section, _, key = name.rpartition(".")
        fragment = ",".join(value) if isinstance(value, list) else value
        flags.append((f"{section}.no-{key.replace('_', '-')}", True) if value is False else (name, fragment))
    return words_of(tuple(flags))


def _as_function(settings: Settings) -> str:
    named = dict(settings)
    module, config = named.pop("module"), named.pop("config")
    classes = [name for name in ("FullAC", "SelectiveAC") if str(named["activation_checkpoint"]).startswith(name)]
    imports = [
        f"from torchtitan.models.{module}.config_registry import {config}",
        "from torchtitan.trainer import Trainer",
    ]
    imports += [f"from torchtitan.distributed.activation_checkpoint import {name}" for name in classes]
    lines = [
        f"    config.{name} = {value if name == 'activation_checkpoint' else repr(value)}"
        for name, value in named.items()
    ]
    head = '"""Configuration for torchtitan: --module train_config --config train."""\n'
    body = ["def train() -> Trainer.Config:", f"    config = {config}()", *lines, "    return config"]
    return "\n".join((head, *sorted(imports), "", "", *body)) + "\n"


def _text(settings: Settings, request: rules.ExportRequest) -> str:
    if request.version == "0.2":
        return toml_text(nested(settings))
    return command_text(flag_words(settings)) + "\n" if request.version == "0.3" else _as_function(settings)


TORCHTITAN = rules.training_target("torchtitan", RULES, _text)

FATES = drafts.fates_of(RULES["0.2"], _TABLE)


_OF_IMAGES = ("flux", "vlm")
"""Models of torchtitan that are no language models."""


def read_torchtitan(entries: Sequence[Entry]) -> drafts.Draft:
    draft = drafts.draft_of(parted_lists(entries, FATES), FATES)
    if "job.config_file" in draft.fates:
        message = "names a file that was not sent, and the settings that the command leaves out are in it"
        raise draft.wrong("job.config_file", "missing_file", message, "send that file too, under its name in files")
    if draft.get("model.name") in _OF_IMAGES:
        message = "is a model of images, which is not estimated"
        raise draft.wrong("model.name", "not_estimated", message, "ask for a language model")
    if draft.get("float8.enable_float8_linear"):
        draft.settings["model.converters"] = ("float8",)
    converters = tuple(map(str, draft.get("model.converters", ())))
    for name in draft.fates:
        spellings = (name, name.removeprefix("quantize.linear."))
        if name.startswith("quantize.") and not any(one.startswith(converters) for one in spellings):
            draft.without_effect(name, "no converter of the model uses it")
    return complete(draft, draft.get("model.name", "llama3"), draft.get("model.flavor", "debugmodel"), RULES["0.2"])


def parted_lists(entries: Sequence[Entry], fates: drafts.Fates) -> list[Entry]:
    """Settings with the items of lists that a command line writes as one word, with commas."""
    lists = {name for name, form in fates.types.items() if form is rules.items}
    return [
        replace(one, value=tuple(word for part in one.value for word in part.split(",")))
        if one.name in lists and isinstance(one.value, tuple) and all(isinstance(part, str) for part in one.value)
        else one
        for one in entries
    ]


def complete(draft: drafts.Draft, module: str, flavor: str, version: rules.Rules) -> drafts.Draft:
    """Complete a draft with what torchtitan makes of its settings and of a model of its registry."""
    draft.layout |= draft.fields_of(version, "layout")
    _put_replicas(draft)
    known = next((row for row in (*REGISTERED, *RETIRED) if (row.module, row.flavor) == (module, flavor)), None)
    _put_stages(draft, known)
    _put_batch(draft, version)
    _put_recompute(draft, known)
    _put_precision(draft)
    _put_software(draft, version)
    draft.model = None if known is None else known.model
    if known and known.without:
        draft.assumptions.append(f"the model is {known.slug} without {', '.join(known.without)}, as torchtitan has it")
    if known is None:
        draft.assumptions.append("no model: its sizes are in torchtitan's registry, under a name not known here")
    return draft


def _put_replicas(draft: drafts.Draft) -> None:
    layout = draft.layout
    replicas = draft.get("parallelism.data_parallel_replicate_degree", 1)
    shards = draft.get("parallelism.data_parallel_shard_degree", -1)
    layout["zero_stage"] = 0 if shards == 1 and layout["context"] == 1 else 3
    if shards > 0:
        layout["data"] = replicas * shards
        if layout["zero_stage"] == WEIGHTS:
            layout["shard_group"] = shards * layout["context"]
    else:
        draft.assumptions.append(f"data_parallel_shard_degree is what is left: {drafts.FROM_GPUS}")
        draft.shard_groups = replicas if replicas > 1 else None
    kinds = {"always": True, "never": False, "default": layout["pipeline"] == 1}
    reshard = draft.chosen("parallelism.fsdp_reshard_after_forward", kinds, "default")
    layout["reshard_after_forward"] = reshard and layout["zero_stage"] == WEIGHTS
    if layout["context"] > 1:
        name = "parallelism.context_parallel_rotate_method"
        layout["context_method"] = draft.chosen(name, _ROTATIONS, "allgather")
    if layout["expert"] > 1:
        layout["expert_tensor"] = draft.get("parallelism.expert_tensor_parallel_degree", 1)


def _put_stages(draft: drafts.Draft, known: RegisteredModel | None) -> None:
    layout = draft.layout
    if layout["pipeline"] == 1:
        return
    names = {name: field for field, name in SCHEDULES.items()}
    layout["schedule"] = draft.chosen("parallelism.pipeline_parallel_schedule", names, "1F1B")
    for field, end in (("embedding_in_split", "first"), ("loss_in_split", "last")):
        name = f"parallelism.pipeline_parallel_{end}_stage_less_layers"
        layout[field] = draft.get(name, 1) > 0
        if draft.get(name, 1) > 1:
            draft.not_understood(name, "an end of the model counts as several layers")
    chunks = draft.get("parallelism.module_fqns_per_model_part")
    if chunks:
        layout["stage_layers"] = [_layers(chunk) for chunk in chunks]
        layout["embedding_in_split"] = layout["loss_in_split"] = False
        layout["virtual_pipeline"] = max(1, len(chunks) // layout["pipeline"])
    elif layout["schedule"] == "interleaved-1f1b":
        layout["virtual_pipeline"] = 2
        name = "parallelism.pipeline_parallel_layers_per_stage"
        each = draft.get(name)
        if each and known:
            ends = layout["embedding_in_split"] + layout["loss_in_split"]
            layout["virtual_pipeline"] = max(1, (known.sizes[0] + ends) // (each * layout["pipeline"]))
        elif each:
            draft.not_understood(name, "the chunks of a stage follow from the model's layers, which are not known here")


def _layers(chunk: Any) -> int:
    return sum(str(name).startswith("layers.") for name in chunk) if isinstance(chunk, list | tuple) else 0


def _put_batch(draft: drafts.Draft, version: rules.Rules) -> None:
    recipe, layout = draft.recipe, draft.layout
    recipe |= draft.fields_of(version, "recipe")
    local = draft.get("training.local_batch_size", 8)
    cut = draft.get("parallelism.pipeline_parallel_microbatch_size", 1)
    recipe["micro_batch"] = cut if layout["pipeline"] > 1 else local
    whole_batch = draft.get("training.global_batch_size", -1)
    if whole_batch > 0:
        recipe["global_batch"] = whole_batch
    elif "data" in layout:
        recipe["global_batch"] = local * layout["data"]
    else:
        draft.accumulation_steps = max(1, local // max(1, recipe["micro_batch"]))
    if "global_batch" in recipe and "training.steps" in draft.settings:
        tokens = draft.get("training.steps") * recipe["global_batch"] * recipe["sequence_length"]
        recipe["training_tokens"] = float(tokens)
    else:
        draft.training_steps = draft.get("training.steps")
    checked = draft.get("validation.local_batch_size", 8) * draft.get("validation.seq_len", 2048)
    if draft.get("validation.enable") and checked > recipe["micro_batch"] * recipe["sequence_length"]:
        draft.not_understood("validation.enable", "validation works on more tokens at once than training")


def _put_recompute(draft: drafts.Draft, known: RegisteredModel | None) -> None:
    """Recompute by operation, of every layer, or of every n-th layer: as much as a block of so many layers."""
    mode, option = "activation_checkpoint.mode", "activation_checkpoint.selective_ac_option"
    every = draft.get(option, "2")
    recompute: Any = draft.get(mode, "selective")
    if recompute == "memory_budget":
        draft.not_understood(mode, "the compiler chooses what is computed again")
    elif recompute not in ("full", "none"):
        recompute = draft.chosen(mode, {"selective": "full"}, "selective")
        if every == "op":
            recompute = {"granularity": "selective", "modules": ["op"]}
        elif not every.isdecimal() or len(every) > _MOST_DIGITS:
            raise draft.wrong(option, "not_a_choice", "is neither op nor a number of layers", "use op, or 2")
        elif int(every) > 1 and known and draft.layout["pipeline"] == 1:
            recompute = {"granularity": "full", "method": "block", "layers": known.sizes[0] // int(every)}
        elif int(every) > 1:
            draft.not_understood(option, f"one of {every} layers is computed again, of a number not known here")
    draft.recipe["recompute"] = "none" if recompute == "memory_budget" else recompute


_MOST_DIGITS = 4

_IN_FEW_BITS = {"tensorwise": "fp8-tensorwise", "mxfp8_cublas": "mxfp8", "mxfp8_cublas_rceil": "mxfp8"}
"""Precisions by the recipe of a converter."""


def _put_precision(draft: drafts.Draft) -> None:
    layout, dtypes = draft.layout, {"bfloat16": "bf16", "float32": "fp32"}
    casts = draft.chosen("training.mixed_precision_param", dtypes, "bfloat16") == "bf16"
    if layout["zero_stage"] == 0 and layout["tensor"] * layout["pipeline"] > 1:
        casts = False  # only fully_shard and replicas alone cast
    pure = draft.chosen("training.dtype", dtypes, "float32") == "bf16"
    precision = "bf16-pure" if pure else "bf16-mixed" if casts else "fp32"
    for converter in draft.get("model.converters", ()):
        kind = str(converter).removeprefix("quantize.linear.")
        recipe = f"quantize.linear.{kind}.recipe_name"
        usual = {"float8": "tensorwise", "mx": "mxfp8_cublas"}.get(kind, "")
        found = _IN_FEW_BITS.get(draft.get(recipe, usual))
        if found is None or precision != "bf16-mixed":
            name = recipe if recipe in draft.settings else "model.converters"
            draft.not_understood(name, "products are in few bits by a recipe that is not modelled")
        else:
            precision = found
    draft.recipe["precision"] = precision


def _put_software(draft: drafts.Draft, version: rules.Rules) -> None:
    parts = draft.get("compile.components", ("model", "loss")) if draft.get("compile.enable") else ()
    draft.recipe["stack"] = {
        "name": "torchtitan",
        "implementation": "compiled" if "model" in parts else "eager",
        "cross_entropy": "compiled" if "loss" in parts else "eager",
        **draft.fields_of(version, "recipe.stack"),
    }
    if draft.get("optimizer.early_step_in_backward"):
        draft.recipe["stack"]["step_in_backward"] = True
    if draft.get("parallelism.disable_loss_parallel") and draft.layout["tensor"] > 1:
        draft.not_understood("parallelism.disable_loss_parallel", "every tensor rank computes the whole loss")
    if parts and draft.get("compile.backend", "inductor") != "inductor":
        draft.not_understood("compile.backend", "another compiler keeps other tensors")
