"""Custom models as columns, as a config inside a body, or as a config.json."""

import re
from collections.abc import Mapping
from typing import Any

from service.catalogue import ModelRow
from service.errors import Problem, Refused
from service.estimator.model.parameters import count_parameters
from service.estimator.question import Model
from service.features.catalogue.row_bodies import columns_below
from service.features.catalogue.row_rules import is_free_slug
from service.validation.merge_patch import apply_merge_patch
from service.validation.models import read_config
from service.validation.reading import Parsed
from service.validation.specs import fields_of

CONFIG = "hf_config"
"""Column of a body in place of all columns of the model."""

READ_FROM = "read from a Hugging Face config"
"""Start of the note with the assumptions made to read a config."""

NOT_IN_SLUGS = re.compile(r"[^a-z0-9.]+")
LONGEST_ASSUMPTIONS = 3500
"""Most characters of assumptions in a note."""


def with_model(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """A body with the columns of its config."""
    if body.get(CONFIG) is None:
        return {name: value for name, value in body.items() if name != CONFIG}
    beside = [name for name in columns_below(ModelRow, "model") if body.get(name) is not None]
    if beside:
        message = "the model is given twice, by its config and by columns of its own, and they may differ"
        raise Refused(
            Problem(field=CONFIG, code="told_twice", message=message, fix=f"leave {beside[0]} out, or hf_config")
        )
    return {**columns_of_config(read_config(body[CONFIG], CONFIG)), **_without(body, CONFIG)}


def patched(record: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """A row after a merge patch; a config replaces all columns of the model."""
    config = patch.get(CONFIG)
    if config is None:
        return dict(apply_merge_patch(record, patch))
    replaced = {*columns_below(ModelRow, "model")}
    if str(record.get("note", "")).startswith(READ_FROM):
        replaced.add("note")
    return {
        **apply_merge_patch({name: value for name, value in record.items() if name not in replaced}, patch),
        CONFIG: config,
    }


def columns_of_config(read: Parsed[Model]) -> dict[str, Any]:
    """Columns of a model that was read from a config."""
    assumed = "; ".join(read.assumptions)[:LONGEST_ASSUMPTIONS]
    note = f"{READ_FROM}; {assumed}" if assumed else READ_FROM
    return {**fields_of(read.spec), "note": note}


def slug_of_config(config: Mapping[str, Any], model: Model) -> str:
    """Slug of a model without a name: from its repository, else from type and size."""
    named = config.get("_name_or_path")
    last = named.rstrip("/").rpartition("/")[2] if isinstance(named, str) else ""
    size = _size(count_parameters(model).total)
    fields_of = (_slug(name) for name in (last, f"{config.get('model_type')}-{size}"))
    return next(filter(is_free_slug, fields_of), _slug(f"model-{size}"))


def _slug(text: str) -> str:
    return NOT_IN_SLUGS.sub("-", text.lower())[:80].strip("-.")


def _size(parameters: int) -> str:
    """Parameter count as in model names.

    >>> _size(494_032_768), _size(8_030_261_248), _size(1_234)
    ('494m', '8.03b', '1234')
    """
    for unit, letter in ((10**12, "t"), (10**9, "b"), (10**6, "m")):
        if parameters >= unit:
            return f"{parameters / unit:.3g}{letter}"
    return str(parameters)


def _without(body: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in names and value is not None}
