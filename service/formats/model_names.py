"""Names of models as Hugging Face's tools write them, and the rows of the catalogue with their dimensions."""

import re
from collections.abc import Collection, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import Any

from service.catalogue import shipped_catalogue
from service.errors import UnknownName
from service.estimator.question import Model
from service.estimator.spelling import model_in_one_spelling

_TUNED = re.compile(
    r"(?i)[-_.](?:(?:instruct(?:ion)?|chat)(?:-v\d(?:\.\d)?)?|it|pt|base|hf|sft|dpo|unsloth|bnb|4bit|8bit|gptq|awq|int4|int8|bf16|fp16|2507)$"
)
"""Ends of names that tell what a model was tuned or stored for, and nothing of its dimensions."""

LONGEST_NAME = 200
"""Characters of a name in a question."""

_PATH = re.compile(r"[/.~]|.*/.*/")
"""Start of a folder's name; a Hugging Face id has one slash."""


@dataclass(frozen=True, slots=True)
class NamedModel:
    """A model that a file names."""

    name: str | None
    """The name for a question; None for a folder that tells no model."""
    model: Model | None
    """Its dimensions, where the catalogue has them."""
    assumption: str | None


def named_model(given: str) -> NamedModel:
    """The model of a Hugging Face id or a folder.

    >>> named_model("Qwen/Qwen2.5-7B").name, named_model("/data/Llama-2-7b-chat-hf").name
    ('Qwen/Qwen2.5-7B', 'llama-2-7b')
    >>> named_model("/data/checkpoint-500").name, named_model("some/new-model").name
    (None, 'some/new-model')
    """
    if len(given) > LONGEST_NAME:
        return NamedModel(None, None, f"the model's name has more than {LONGEST_NAME} characters: give model")
    names = [given, *_plain_names(given.rstrip("/").rpartition("/")[2])]
    catalogue = shipped_catalogue()
    for name in names:
        if not catalogue.model_index.answers_to(name):
            continue  # what the catalogue understands of other names is less than their ends tell
        try:
            row = catalogue.find_model(name).row
        except UnknownName:
            continue
        if name == given:
            return NamedModel(given, row.model, None)
        note = f"the model is taken for {row.slug} by its name: tuned models have the dimensions of their base"
        return NamedModel(row.slug, row.model, note)
    if _PATH.match(given):
        return NamedModel(None, None, "the model is a folder whose name is in no catalogue: give model")
    return NamedModel(given, None, None)


def stated(model: Model) -> dict[str, Any]:
    """The fields of a model that are not at their defaults, as a question spells them."""
    values = {field.name: (getattr(model, field.name), field.default) for field in fields(Model)}
    return {name: value for name, (value, default) in values.items() if default is MISSING or value != default}


def preset_like(model: Model) -> str | None:
    """The model of the catalogue with these dimensions; of several the first with as many positions, or with more.

    >>> preset_like(shipped_catalogue().find_model("llama-2-7b").row.model)
    'llama-2-7b'
    """
    positions = model.max_position_embeddings or 0
    alike = _presets().get(model_in_one_spelling(model, 1), [])
    return min(alike, key=lambda one: (one[1] != positions, one[1] < positions), default=(None, 0))[0]


@cache
def _presets() -> Mapping[Model, list[tuple[str, int]]]:
    """Names and positions of the catalogue's models, by their dimensions."""
    found: dict[Model, list[tuple[str, int]]] = {}
    for row in shipped_catalogue().models.values():
        if row.model is not None:
            named = (row.slug, row.model.max_position_embeddings or 0)
            found.setdefault(model_in_one_spelling(row.model, 1), []).append(named)
    return found


def changed_model(slug: str, without: Collection[str], changes: Mapping[str, Any]) -> str | dict[str, Any]:
    """A model of the catalogue as a question spells it, without some of its fields and with others changed.

    >>> changed_model("llama-3-8b", (), {}), changed_model("llama-3-8b", (), {"num_hidden_layers": 4})["hidden_size"]
    ('llama-3-8b', 4096)
    """
    found = shipped_catalogue().find_model(slug).row.model
    if found is None or not (without or changes):
        return slug
    return {name: value for name, value in stated(found).items() if name not in without} | dict(changes)


def _plain_names(name: str) -> list[str]:
    """A model's own name, and what is left of it without ends that say what it was tuned for."""
    found = [name]
    while (shorter := _TUNED.sub("", found[-1])) != found[-1]:
        found.append(shorter)
    return [*found, *(one.removeprefix("Meta-") for one in found if one.startswith("Meta-"))]
