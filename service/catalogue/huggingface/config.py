"""Keys of a config.json, checked, with transformers' defaults, and the keys that were not read."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Annotated, Any

from annotated_types import Interval, Len

from service.catalogue.bounds import Rule, rule_for, rule_of
from service.errors import Problem, Refused
from service.estimator.question import Model

NESTED = ("attn_config", "ffn_config")
"""Objects of a config that hold keys of the architecture (MPT, DBRX), read as `attn_config.kv_n_heads`."""

MOST = 1 << 26
"""Largest number of any key."""
MOST_LAYERS = 2048

WHOLES = rule_for(Annotated[tuple[Annotated[int, Interval(ge=0, le=MOST)], ...], Len(0, MOST_LAYERS)] | None)


@dataclass(frozen=True, slots=True)
class Dialect:
    """Keys of one type of config for the fields of a Model."""

    model_type: str
    keys: Mapping[str, tuple[str, ...]]
    """Keys of a field of Model; the first present one counts. Fields not listed have their own name."""


class Config:
    """The keys of one config of a known type, and which of them were read."""

    def __init__(self, values: Mapping[str, Any], dialect: Dialect, path: str) -> None:
        self.dialect = dialect
        self.path = path
        self.values = _flattened(values, path)
        self.understood: set[str] = {"model_type"}
        self.assumed: dict[str, Any] = {}
        self.notes: list[str] = []

    def field(self, field: str) -> Any:
        """The value of a Model field, inside the Model's bounds, under the type's key."""
        key, value = self._value(*self.dialect.keys.get(field, (field,)))
        return self._checked(key, value, rule_of(Model, field))

    @property
    def layers(self) -> range:
        """The layers, from 0."""
        return range(self.field("num_hidden_layers"))

    def needed(self, field: str) -> Any:
        """The value of a Model field that other values are computed from."""
        value = self.field(field)
        if value is not None:
            return value
        key = self.dialect.keys.get(field, (field,))[0]
        raise self.problem(key, "required", "is null, and other widths follow from it", "give a whole number")

    def read(self, key: str, annotation: Any) -> Any:
        """The value of a key that is no single field of Model."""
        _, value = self._value(key)
        return self._checked(key, value, rule_for(annotation))

    def whole(self, key: str, *, least: int = 0) -> int:
        number: int = self.read(key, Annotated[int, Interval(ge=least, le=MOST)])
        return number

    def whole_or_none(self, key: str, *, least: int = 0) -> int | None:
        number: int | None = self.read(key, Annotated[int, Interval(ge=least, le=MOST)] | None)
        return number

    def flag(self, key: str) -> bool:
        """True or false; null is false."""
        return bool(self.read(key, bool | None))

    def wholes(self, key: str) -> tuple[int, ...] | None:
        """A list of whole numbers, or null; true and false count as 1 and 0."""
        _, value = self._value(key)
        if isinstance(value, list):
            value = [int(item) if isinstance(item, bool) else item for item in value]
        numbers: tuple[int, ...] | None = self._checked(key, value, WHOLES)
        return numbers

    def demand(self, key: str, allowed: tuple[Any, ...]) -> None:
        """Refuse a value whose architecture is not supported."""
        _, value = self._value(key)
        self.assumed.pop(key, None)
        if not any(value == one and type(value) is type(one) for one in allowed):
            spelled = " or ".join(json.dumps(one) for one in allowed)
            message = f"is not {spelled}, and no layer kind describes what it then means"
            raise self.problem(key, "unsupported_value", message, f"only {spelled} can be estimated")

    def problem(self, key: str, code: str, wrong: str, fix: str) -> Refused:
        """The refusal of one key."""
        return Refused(Problem(field=f"{self.path}.{key}", code=code, message=f"{key} {wrong}", fix=fix))

    def _checked(self, key: str, value: Any, rule: Rule) -> Any:
        """A value that a rule allows; JSON's 64.0 is the whole number 64, and its lists are tuples here."""
        value = tuple(map(_as_read, value)) if isinstance(value, list) else _as_read(value)
        if value is None and not rule.optional:
            raise self.problem(key, "required", "is null, or missing without a default", f"give {rule.expected}")
        fault = rule.fault(value)
        if fault is None:
            return value
        place, wrong = (key, value) if fault.item is None else (f"{key}.{fault.item}", value[fault.item])
        quotes = ", without quotes" if isinstance(wrong, str) and "number" in fault.code else ""
        raise Refused(
            Problem(
                field=f"{self.path}.{place}",
                code=fault.code,
                message=fault.message(key),
                fix=f"give {fault.expected}{quotes}",
            )
        )

    def _value(self, *keys: str) -> tuple[str, Any]:
        """The first key that is present, with its value, else the first that has a default."""
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
def data_of(name: str) -> Mapping[str, Any]:
    file = files("service.catalogue.huggingface").joinpath(f"{name}.json")
    data: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return data


def defaults_of(model_type: str) -> Mapping[str, Any]:
    """Defaults of absent keys."""
    defaults: Mapping[str, Any] = data_of("defaults")["defaults"].get(model_type, {})
    return defaults


def read_from(model_type: str) -> str:
    """Source of the defaults."""
    defaults = data_of("defaults")
    return str(defaults["elsewhere"].get(model_type, defaults["source"]))


def _as_read(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


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
