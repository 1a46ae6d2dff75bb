"""Megatron-Bridge's recipes by name with their changes, as run_recipe.py takes them, and its YAML of a configuration.

Source: NVIDIA-NeMo/Megatron-Bridge@067f987 scripts/training/run_recipe.py (options and the fields that they set),
src/megatron/bridge/recipes, src/megatron/bridge/training/mixed_precision.py.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from service.formats import drafts, rules
from service.formats.composed import overrides_in, started
from service.formats.frameworks.megatron_core import named_recipes
from service.formats.frameworks.megatron_core.megatron_fields import field_fates
from service.formats.text import Entry
from service.text_bounds import Place, refusal

_TABLE = rules.framework_table(
    "megatron_core/megatron_bridge_recipes", *drafts.FATES, "own", "arguments", "mixed", "aliases", "recipes"
)

RECIPES: Mapping[str, Mapping[str, Any]] = _TABLE["recipes"]
"""What each recipe sets, by its name without _config."""

PRECISIONS: Mapping[str, Mapping[str, Any]] = _TABLE["mixed"]
"""What each precision sets, by its name."""

ARGUMENTS: Mapping[str, str] = _TABLE["arguments"]
"""Fields by the arguments of recipes that set them."""

_SECTIONS = ("mixed_precision.", "train.", "dataset.", "ddp.", "dist.", "model.", "optimizer.", "")

FATES = field_fates(
    [named_recipes.TABLE, _TABLE], _SECTIONS, {**named_recipes.TABLE["own"], **_TABLE["own"]}, repeats=True
)

_CONFIG = "_config"
_MODULE = "megatron.bridge.recipes."
_MODES = {"pretrain": "pretrain", "sft": "sft", "lora": "peft", "dora": "peft", "peft": "peft"}
"""Parts of recipes' names by what run_recipe.py is asked to do."""


def is_recipe(path: str) -> bool:
    """Whether a function of a module is a recipe.

    >>> is_recipe("megatron.bridge.recipes.llama.llama3_8b_pretrain_config"), is_recipe("get_mixed_precision_config")
    (True, False)
    """
    name = path.rpartition(".")[2]
    is_named = {"sft", "finetune", *_MODES.values()} & {*name.split("_")} or path.startswith(_MODULE)
    return name.endswith(_CONFIG) and bool(is_named)


def read_megatron_bridge(entries: Sequence[Entry]) -> drafts.Draft:
    """The draft of a recipe's name with its changes, or of a configuration that is written out."""
    begun = started(entries)
    own = [entry for entry in begun.entries if entry.name not in ("recipe", "model", "mode")]
    named = next((entry for entry in entries if entry.name in ("recipe", "model")), None)
    row = _row(entries, named) if named is not None else {}
    at = named.place if named is not None else Place(1, 1)
    draft = named_recipes.recipe_draft(own, FATES, row, at)
    if named is not None:
        draft.fates["named recipe"] = drafts.Setting(named, "understood")
    _put_precision(draft)
    return named_recipes.complete(draft, row, begun.processes)


def _row(entries: Sequence[Entry], named: Entry) -> Mapping[str, Any]:
    """The row of a recipe, or of a model's recipe for a mode."""
    texts = {entry.name: str(entry.word) for entry in entries if entry.name in ("recipe", "model", "mode")}
    name = texts.get("recipe", "").removesuffix(_CONFIG)
    if "model" in texts:
        name = f"{texts['model']}_{_MODES.get(texts.get('mode', ''), '')}"
    row = RECIPES.get(_TABLE["aliases"].get(name, name))
    if row is None:
        fix = "name one such as llama3_8b_pretrain_config, or state the question itself"
        raise refusal(named.place, "not_known", f"{named.name} is no recipe that is known", fix)
    return {**row, "unread": "adapters are of another kind"} if texts.get("mode") == "dora" else row


def _put_precision(draft: drafts.Draft) -> None:
    """What a precision by its name sets, unless fields set it."""
    settings = draft.settings
    is_off = "mixed-precision" in draft.fates and draft.fates["mixed-precision"].entry.value is None
    chosen = {} if is_off or settings.get("fp16") else draft.chosen("mixed-precision", PRECISIONS, "bf16_mixed")
    unless = chosen.get("unless")
    if "unread" in chosen and (unless not in draft.fates or draft.fates[unless].entry.value is not None):
        draft.not_understood("mixed-precision", chosen["unread"])
    for name in chosen.keys() - {"unread", "unless", *draft.fates}:
        settings.setdefault(name, chosen[name])
    if not is_off:
        settings.setdefault("fp8-recipe", "tensorwise")  # the optimizer has it where nothing is in fp8, too
    reduced = draft.fates.get("grad-reduce-in-bf16")
    if settings.get("fp16") and reduced is not None:
        settings["accumulate-allreduce-grads-in-fp32"] = settings.pop("grad-reduce-in-bf16", None) is None


SCRIPTS = ("run_recipe.py", "launch_with_nemo_run.py")
"""Scripts whose options stand beside changes of a recipe."""

_OF_BRIDGE = {
    "max_steps": "train.train_iters",
    "global_batch_size": "train.global_batch_size",
    "micro_batch_size": "train.micro_batch_size",
    "seq_length": "dataset.seq_length",
    **{name: f"model.{name}" for name in (
        "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size",
        "virtual_pipeline_model_parallel_size", "expert_model_parallel_size", "expert_tensor_parallel_size",
    )},
}  # fmt: skip
"""Fields that its options set."""

_SHORT = {
    "-ms": "max_steps", "-gb": "global_batch_size", "-mb": "micro_batch_size", "-sl": "seq_length",
    "-tp": "tensor_model_parallel_size", "-pp": "pipeline_model_parallel_size", "-cp": "context_parallel_size",
    "-vp": "virtual_pipeline_model_parallel_size", "-ep": "expert_model_parallel_size",
    "-etp": "expert_tensor_parallel_size",
}  # fmt: skip


def command_entries(words: Sequence[tuple[str, Place]]) -> Iterator[Entry]:
    """The recipe of run_recipe.py with its changes; a change by its field comes before one by its option."""
    spelled = [(f"--{_SHORT[word]}" if word in _SHORT else word, place) for word, place in words]
    found = {entry.name: entry for entry in overrides_in(spelled)}
    for name, entry in found.items():
        field = _OF_BRIDGE.get(name, name)
        if field == name or field not in found:
            yield replace(entry, name=field)
