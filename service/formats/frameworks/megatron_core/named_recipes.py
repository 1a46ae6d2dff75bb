"""Recipes by name: what a tool's recipe sets of Megatron-Core's configuration, under what a command or a file changes.

Source: NVIDIA/NeMo@v2.4.0 nemo/collections/llm/peft/lora.py; NVIDIA-NeMo/Megatron-Bridge@067f987
src/megatron/bridge/peft/lora.py (an adapter beside a fused matrix shares its input half); the GPT providers of both
(losses are fused, and models have no dropout and no attention mask unless a recipe sets them).
"""

from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

from service.formats import drafts, rules
from service.formats.frameworks import trainer
from service.formats.frameworks.megatron_core import megatron
from service.formats.frameworks.megatron_core.megatron_fields import FieldFates, field_draft
from service.formats.model_names import named_model
from service.formats.text import Entry
from service.text_bounds import Place

TABLE = rules.framework_table("megatron_core/named_recipes", *drafts.FATES, "own", "defaults")

ABOUT = ("model", "without", "unread")
"""What a recipe's row holds beside fields: the model, those of its fields that it lacks, what is not read of it."""

_TARGETS = ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2")
"""Modules that adapters stand beside unless a recipe names others."""

_SHARDED = {"megatron": "use-megatron-fsdp", "pytorch": "use-torch-fsdp2"}


def recipe_draft(entries: Iterable[Entry], fates: FieldFates, row: Mapping[str, Any], at: Place) -> drafts.Draft:
    """The draft of fields over those of a recipe's row, which is named at a place."""
    draft = field_draft(_plain(entries), fates)
    fields = {**TABLE["defaults"], **{name: value for name, value in row.items() if name not in ABOUT}}
    base = field_draft([_stated(name, value, at) for name, value in fields.items()], fates)
    draft.settings = {name: one for name, one in base.settings.items() if name not in draft.fates} | draft.settings
    draft.fates = base.fates | draft.fates
    if "unread" in row:
        draft.fates["recipe"] = drafts.Setting(Entry("recipe", None, at), "not_understood", row["unread"])
    return draft


_DTYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "half": "fp16", "uint8": "fp8"}
_TARGET, _CALL = "._target_", "._call_"


def _plain(entries: Iterable[Entry]) -> Iterable[Entry]:
    """Entries with formats by their short names, which files name as objects of torch."""
    for entry in entries:
        word = entry.word
        dtype = _DTYPES.get(word.removeprefix("torch.")) if isinstance(word, str) else None
        if dtype is not None:
            yield Entry(entry.name.removesuffix(_TARGET), dtype, entry.place)
        elif not entry.name.endswith(_CALL):
            yield entry


def _stated(name: str, value: Any, at: Place) -> Entry:
    return Entry(name, tuple(value) if isinstance(value, list) else value, at)


def complete(draft: drafts.Draft, row: Mapping[str, Any], gpus: int | None) -> drafts.Draft:
    """Complete a draft of fields with its model, its method and its replicas."""
    settings = draft.settings
    sharding = settings.pop("fsdp", None)
    if sharding is not None:
        settings[_kind_of_fsdp(draft, sharding)] = True
    if settings.pop("optimizer.use_distributed_optimizer", None):
        settings["use-distributed-optimizer"] = True
    if settings.get("gated-linear-unit") and not row.get("model"):
        settings["quick-geglu"] = True  # gated, and as wide as without a gate where no width is given
    method = _method(draft, row.get("model", ""))
    megatron.complete(draft, row.get("model", ""), row.get("without", ()))
    draft.recipe["method"] = method
    if method != "full" and draft.recipe.get("fp8_weights"):
        draft.recipe["fp8_weights"] = False
        draft.not_understood("fp8-param-gather", "frozen weights are in fp8")
    if row.get("model"):
        note = f"the model is {row['model']} with its own vocabulary: mock data without its tokenizer has another"
        draft.assumptions.append(note)
    axes = [draft.layout[axis] for axis in ("tensor", "context", "pipeline")]
    if gpus is not None and gpus % prod(axes) == 0:
        draft.layout["data"] = gpus // prod(axes)
        draft.assumptions = [note for note in draft.assumptions if "number of processes" not in note]
    names = {*TABLE["defaults"], *row}
    kept = (
        (name, one) for name, one in draft.fates.items() if one.entry.name not in names or one.fate == "not_understood"
    )
    draft.fates = dict(kept)  # of the recipe's own fields, those that are not understood alone
    return draft


def _kind_of_fsdp(draft: drafts.Draft, sharding: str) -> str:
    """The option of a kind of FSDP."""
    if sharding not in _SHARDED:
        raise draft.wrong(
            "fsdp", "not_a_choice", "is none of the values that are understood", "use megatron or pytorch"
        )
    return _SHARDED[sharding]


def _method(draft: drafts.Draft, slug: str) -> Any:
    """LoRA, or training of every parameter."""
    kind = str(draft.settings.pop("peft", "")).lower()
    rank = draft.settings.pop("lora-rank", None)
    targets, dropout = draft.settings.pop("lora-targets", _TARGETS), draft.settings.pop("lora-dropout", 0.0)
    if kind in ("none", "null") or (rank is None and kind != "lora"):
        if kind not in ("", "none", "null"):
            draft.not_understood("peft", "adapters are of another kind")
        return "full"
    if kind not in ("", "lora"):
        draft.not_understood("peft", "adapters are of another kind")
    model = named_model(slug).model
    if model is not None and not model.gated_mlp:
        targets = tuple("up_proj" if name == "linear_fc1" else name for name in targets)
    adapters = trainer.Adapters(
        rank=rank or 32, targets=targets, dropout_fraction=dropout, targets_setting="lora-targets"
    )
    return trainer.method_of(draft, adapters)
