"""Checks of single values against the type and bounds that a field of the estimator declares."""

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import isfinite
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from annotated_types import Ge, GroupedMetadata, Gt, Le, Lt, MaxLen, MinLen

CODES: Mapping[type, str] = {
    bool: "not_true_or_false",
    int: "not_a_whole_number",
    float: "not_a_number",
    str: "not_text",
    tuple: "not_a_list",
}
"""Problem codes for a value of another kind; all other kinds are objects."""

POWERS_FROM = 1e16
"""Bounds from here on are written as powers of ten."""


class Bound(NamedTuple):
    """One bound of a number, or of the length of a text or list."""

    word: str
    limit: Any
    allows: Callable[[Any, Any], Any]
    """Whether a number is within the bound."""


class Fault(NamedTuple):
    """The broken rule of a value, and what is allowed."""

    code: str
    """Stable name of the broken rule."""
    expected: str
    item: int | None = None
    """Position of the wrong item, where only one item of a list is wrong."""

    def message(self, name: str) -> str:
        return f"{name if self.item is None else f'an item of {name}'} is not {self.expected}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Allowed values of a field."""

    kind: type
    optional: bool = False
    """Whether null is allowed."""
    choices: tuple[Any, ...] = ()
    """The only values, where they are few."""
    bounds: tuple[Bound, ...] = ()
    items: "Rule | None" = None

    @property
    def expected(self) -> str:
        """The allowed values, in words, e.g. `a whole number from 1 to 2048`."""
        if self.choices:
            return f"one of {', '.join(map(str, self.choices))}"
        limits = {bound.word: limit_text(bound.limit) for bound in self.bounds}
        length = f"{limits.get('from', '0')} to {limits.get('to', 'any number of')}"
        limits_text = "".join(f" {word} {limit}" for word, limit in limits.items())
        return {
            bool: "true or false",
            int: f"a whole number{limits_text}",
            float: f"a number{limits_text}".replace("above 0 to below", "above 0 and below"),
            str: f"text of {length} characters",
            tuple: f"a list of {length} values",
        }.get(self.kind, "an object")

    def fault(self, value: Any) -> Fault | None:
        """The fault of a value; None where it is allowed."""
        if value is None and self.optional:
            return None
        if self.choices:
            chosen = any(type(value) is type(choice) and value == choice for choice in self.choices)
            return None if chosen else Fault("not_a_choice", self.expected)
        if not _is_of_kind(value, self.kind):
            return Fault(CODES.get(self.kind, "not_an_object"), self.expected)
        items = enumerate(value) if self.items else ()
        faults = (fault._replace(item=i) for i, item in items if self.items and (fault := self.items.fault(item)))
        return next(faults, None) or self._fault_of_size(value)

    def _fault_of_size(self, value: Any) -> Fault | None:
        has_length = self.kind in (str, tuple)
        size = len(value) if has_length else value
        if all(bound.allows(size, bound.limit) for bound in self.bounds):
            return None
        return Fault("wrong_length" if has_length else "out_of_range", self.expected)


def faults_of(spec: Any) -> dict[str, Fault]:
    """All faults of an object's fields."""
    faults = {name: rule.fault(getattr(spec, name)) for name, rule in _rules(spec.__class__).items()}
    return {name: fault for name, fault in faults.items() if fault}


def rule_of(spec: type, name: str) -> Rule:
    return _rules(spec)[name]


def rule_for(annotation: Any) -> Rule:
    """The rule of an annotation.

    >>> from annotated_types import Interval
    >>> rule_for(Annotated[int, Interval(ge=1, le=8)] | None).expected
    'a whole number from 1 to 8'
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        (alone,) = (option for option in arguments if option is not NoneType)
        return replace(rule_for(alone), optional=True)
    if origin is Annotated:
        rule = rule_for(arguments[0])
        return replace(rule, bounds=(*rule.bounds, *_bounds(arguments[1:])))
    if origin is Literal:
        return Rule(kind=type(arguments[0]), choices=arguments)
    if origin is tuple:
        return Rule(kind=tuple, items=rule_for(arguments[0]))
    return Rule(kind=annotation)


@cache
def _rules(spec: type) -> Mapping[str, Rule]:
    hints = get_type_hints(spec, include_extras=True)
    return {name: rule_for(hint) for name, hint in hints.items() if not name.startswith("__")}


def _bounds(annotations: tuple[Any, ...]) -> Iterator[Bound]:
    for annotation in annotations:
        match annotation:
            case Ge(ge=limit) | MinLen(min_length=limit):
                yield Bound("from", limit, operator.ge)
            case Gt(gt=limit):
                yield Bound("above", limit, operator.gt)
            case Le(le=limit) | MaxLen(max_length=limit):
                yield Bound("to", limit, operator.le)
            case Lt(lt=limit):
                yield Bound("to below", limit, operator.lt)
            case GroupedMetadata():
                yield from _bounds(tuple(annotation))


def _is_of_kind(value: object, kind: type) -> bool:
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind is bool
    if kind is float:
        return isinstance(value, int) or (isinstance(value, float) and isfinite(value))
    return isinstance(value, kind)


def limit_text(limit: float) -> str:
    return str(int(limit)) if abs(limit) < POWERS_FROM and limit == int(limit) else f"{limit:g}"
