"""What does a config.json say under this key, is it a value that the key can have, and which keys did nobody read?

A key that is absent takes the value that transformers gives it for the config's type (`defaults.json`).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import isfinite
from typing import Any

from service.catalogue.bounds import rule_of
from service.errors import Problem, Refused
from service.estimator.question import Model

NESTED = ("attn_config", "ffn_config")
"""Objects of a config that hold keys of the architecture (MPT, DBRX), read as `attn_config.kv_n_heads`."""

MOST = 1 << 26
"""Largest number that any key can have."""
MOST_LAYERS = 2048
"""Longest list with one item a layer."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one type of config spells the fields of a Model."""

    model_type: str
    """Name of the type."""
    keys: Mapping[str, tuple[str, ...]]
    """Keys that can say a field of Model; the first one that is there counts. Fields not listed have their own name."""


class Config:
    """The keys of one config of a known type, and what was read of them."""

    def __init__(self, values: Mapping[str, Any], dialect: Dialect, path: str) -> None:
        """Take up a config.

        Args:
            values: the JSON object
            dialect: how the type of the config spells a model
            path: dotted path of the object in the question, for problems
        """
        self.dialect = dialect
        self.path = path
        self.values = _flattened(values, path)
        self.understood: set[str] = {"model_type"}
        self.assumed: dict[str, Any] = {}
        self.notes: list[str] = []

    def field(self, field: str) -> Any:
        """The value of a Model field, inside the Model's own bounds, under the key that the type has for it.

        Args:
            field: field of Model

        Returns:
            the value; None where the key says null and the field may be absent

        Raises:
            Refused: no such value, or out of bounds
        """
        key, value = self._value(*self.dialect.keys.get(field, (field,)))
        value = int(value) if isinstance(value, float) and value.is_integer() else value
        value = tuple(value) if isinstance(value, list) else value
        rule = rule_of(Model, field)
        if value is None and not rule.allows(None):
            raise self.problem(key, "required", "is null, or missing without a default", f"give {rule.wanted}")
        if not rule.allows(value):
            raise self.problem(key, rule.code_for(value), f"is not {rule.wanted}", f"give {rule.wanted}")
        return value

    def needed(self, field: str) -> Any:
        """The value of a Model field that others are computed from.

        Args:
            field: field of Model

        Returns:
            the value

        Raises:
            Refused: no such value, or out of bounds
        """
        value = self.field(field)
        if value is not None:
            return value
        key = self.dialect.keys.get(field, (field,))[0]
        raise self.problem(key, "required", "is null, and other widths follow from it", "give a whole number")

    def whole(self, key: str, *, least: int = 0) -> int:
        """A whole number.

        Args:
            key: where it stands
            least: smallest value it can have

        Returns:
            the number

        Raises:
            Refused: something else stands there, or nothing
        """
        value = self.whole_or_none(key, least=least)
        if value is None:
            raise self.problem(key, "required", "is null, or missing without a default", "give a whole number")
        return value

    def whole_or_none(self, key: str, *, least: int = 0) -> int | None:
        """A whole number, or null.

        Args:
            key: where it stands
            least: smallest value it can have

        Returns:
            the number, or None

        Raises:
            Refused: something else stands there
        """
        _, value = self._value(key)
        if value is None or _is_whole(value, least):
            return None if value is None else int(value)
        wanted = f"a whole number of {least} to {MOST:,}"
        raise self.problem(key, "not_a_whole_number", f"is not {wanted}", f"give {wanted}")

    def flag(self, key: str) -> bool:
        """True or false; null is false.

        Args:
            key: where it stands

        Returns:
            the value

        Raises:
            Refused: something else stands there
        """
        _, value = self._value(key)
        if value is None or isinstance(value, bool):
            return bool(value)
        raise self.problem(key, "not_true_or_false", "is neither true nor false", "give true or false")

    def wholes(self, key: str) -> tuple[int, ...] | None:
        """A list of whole numbers, or null; true and false count as 1 and 0.

        Args:
            key: where it stands

        Returns:
            the numbers, or None

        Raises:
            Refused: something else stands there, or more numbers than a model can have layers
        """
        _, value = self._value(key)
        if value is None:
            return None
        if isinstance(value, list | tuple) and len(value) <= MOST_LAYERS:
            numbers = [int(item) if isinstance(item, bool) else item for item in value]
            if all(_is_whole(number, 0) for number in numbers):
                return tuple(int(number) for number in numbers)
        wanted = f"a list of at most {MOST_LAYERS} whole numbers"
        raise self.problem(key, "not_a_list", f"is not {wanted}", f"give {wanted}")

    def demand(self, key: str, allowed: tuple[Any, ...]) -> None:
        """Refuse a value whose architecture cannot be expressed.

        Args:
            key: where it stands
            allowed: the values that can be

        Raises:
            Refused: another value stands there
        """
        _, value = self._value(key)
        self.assumed.pop(key, None)
        if not any(value == one and type(value) is type(one) for one in allowed):
            spelled = " or ".join(json.dumps(one) for one in allowed)
            message = f"is not {spelled}, and no layer kind describes what it then means"
            raise self.problem(key, "unsupported_value", message, f"only {spelled} can be estimated")

    def problem(self, key: str, code: str, wrong: str, fix: str) -> Refused:
        """The refusal of one key.

        Args:
            key: where the value stands
            code: stable name of the broken rule
            wrong: what is wrong, after the key's name
            fix: what to do

        Returns:
            the error to raise
        """
        return Refused(Problem(field=f"{self.path}.{key}", code=code, message=f"{key} {wrong}", fix=fix))

    def _value(self, *keys: str) -> tuple[str, Any]:
        """The first key that is there, with its value, else the first that has a default."""
        self.understood.update(keys)
        given = [key for key in keys if key in self.values]
        if given:
            self._agree(given)
            return given[0], self.values[given[0]]
        defaults = defaults_of(self.dialect.model_type)
        key = next((key for key in keys if key in defaults), keys[0])
        value = defaults.get(key)
        if value is not None and value is not False:
            self.assumed[key] = value
        return key, value

    def _agree(self, given: list[str]) -> None:
        first, *others = (self.values[key] for key in given)
        if any(type(other) is not type(first) or other != first for other in others):
            names = " and ".join(given)
            raise self.problem(
                given[0], "contradiction", f"is said twice, differently: by {names}", "leave one of them out"
            )


@cache
def _defaults() -> Mapping[str, Any]:
    file = files("service.catalogue.huggingface").joinpath("defaults.json")
    defaults: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return defaults


def defaults_of(model_type: str) -> Mapping[str, Any]:
    """What absent keys mean.

    Args:
        model_type: type of the config

    Returns:
        default by key
    """
    defaults: Mapping[str, Any] = _defaults()["defaults"].get(model_type, {})
    return defaults


def read_from() -> str:
    """Where the defaults were read.

    Returns:
        the library and its version
    """
    return str(_defaults()["source"])


def _is_whole(value: object, least: int) -> bool:
    if isinstance(value, float):
        return isfinite(value) and value.is_integer() and least <= value <= MOST
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= MOST


def _flattened(values: Mapping[str, Any], path: str) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if key in NESTED and isinstance(value, Mapping):
            flat.update({f"{key}.{inner}": item for inner, item in value.items()})
        elif key in NESTED and value is not None:
            problem = Problem(
                field=f"{path}.{key}", code="not_an_object", message=f"{key} is not a JSON object", fix="give an object"
            )
            raise Refused(problem)
        elif key not in NESTED:
            flat[str(key)] = value
    return flat
