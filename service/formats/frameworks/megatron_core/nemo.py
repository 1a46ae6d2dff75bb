"""NeMo 2: recipes by name with their changes, as nemo llm takes them, and the YAML that nemo writes of a recipe.

Source: NVIDIA/NeMo@v2.4.0 nemo/collections/llm/recipes, nemo/lightning/pytorch/strategies/megatron_strategy.py,
nemo/lightning/pytorch/plugins/mixed_precision.py.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from service.formats import drafts, rules
from service.formats.composed import PROGRAM, overrides_in, started
from service.formats.frameworks.megatron_core import named_recipes
from service.formats.frameworks.megatron_core.megatron_fields import field_fates
from service.formats.text import Entry
from service.text_bounds import Place, refusal

_TABLE = rules.framework_table("megatron_core/nemo", *drafts.FATES, "own", "arguments", "classes", "recipes")

RECIPES: Mapping[str, Mapping[str, Any]] = _TABLE["recipes"]
"""What each recipe sets, by what it does and its name."""

_SECTIONS = (
    "trainer.plugins.", "trainer.strategy.", "trainer.strategy.ddp.", "data.", "model.config.", "optim.config.", "",
)  # fmt: skip

FATES = field_fates(
    [named_recipes.TABLE, _TABLE], _SECTIONS, {**named_recipes.TABLE["own"], **_TABLE["own"]}, repeats=True
)

_CALL = re.compile(r"(\w{1,80})\s{0,9}(?:\((.{0,400})\))?")
_ARGUMENT = re.compile(r"(\w{1,40})\s{0,9}=\s{0,9}([^,]{1,80})")

_PRECISIONS = {
    "bf16-mixed": "bf16",
    "bf16": "bf16",
    "16-mixed": "fp16",
    "fp16-mixed": "fp16",
    "32": None,
    "32-true": None,
}
"""Switches by the names of precisions in Lightning."""


def read_nemo(entries: Sequence[Entry]) -> drafts.Draft:
    """The draft of a recipe's name with its changes, or of a recipe that is written out."""
    task, own = _task(entries)
    factory = next((entry for entry in own if entry.name == "factory"), None)
    target = next((entry for entry in own if entry.name == "model.config._target_"), None)
    row: Mapping[str, Any] = {}
    if factory is not None:
        row, own = _recipe(task, factory, own)
    elif target is not None:
        kind = str(target.value).rpartition(".")[2]
        row = {"model": _TABLE["classes"].get(kind)} if kind in _TABLE["classes"] else {}
    at = factory.place if factory is not None else Place(1, 1)
    draft = named_recipes.recipe_draft(own, FATES, row, at)
    if factory is not None:
        draft.fates["factory"] = drafts.Setting(factory, "understood")
    half = draft.chosen("plugins-precision", _PRECISIONS, "bf16-mixed")
    draft.settings |= {half: True} if half else {}
    gpus = draft.get("num-nodes", 1) * draft.get("devices", 8) if factory or "devices" in draft.settings else None
    return named_recipes.complete(draft, row, gpus)


def _task(entries: Sequence[Entry]) -> tuple[str, list[Entry]]:
    """What nemo llm is asked to do, and the settings."""
    begun = started(entries)
    if begun.program not in ("", "pretrain", "finetune"):
        program = next(entry for entry in entries if entry.name == PROGRAM)
        fix = "send pretrain or finetune with its recipe"
        raise refusal(program.place, "not_a_training", "nemo llm is asked for something else than training", fix)
    return begun.program or "pretrain", [*begun.entries]


def _recipe(task: str, factory: Entry, own: list[Entry]) -> tuple[Mapping[str, Any], list[Entry]]:
    """The row of a recipe, and the settings with those that it is called with."""
    call = _CALL.fullmatch(str(factory.word).strip())
    row = RECIPES.get(f"{task} {call[1]}") if call else None
    if row is None or call is None:
        fix = "name one such as llama3_8b, or state the question itself"
        raise refusal(factory.place, "not_known", f"factory is no recipe of {task} that is known", fix)
    arguments = [
        Entry(_TABLE["arguments"].get(name, f"recipe.{name}"), (text.strip(" '\""),), factory.place)
        for name, text in _ARGUMENT.findall(call[2] or "")
    ]
    given = {entry.name for entry in own}
    left = [
        replace(one, value=None if one.value == ("None",) else one.value) for one in arguments if one.name not in given
    ]
    return row, [*left, *(entry for entry in own if entry.name != "factory")]


_OF_NEMO = {"-f": "--factory", "--yaml": "--config", "-y": "--yes"}
"""Options of nemo with the names under which its reader takes them."""


def command_entries(words: Sequence[tuple[str, Place]]) -> Iterator[Entry]:
    """What nemo llm is asked to do, its recipe, and the changes of it."""
    yield Entry(PROGRAM, *words[0])
    yield from overrides_in([(_OF_NEMO.get(word, word), place) for word, place in words[1:]])
