"""Is every value of a noun of the kind and inside the bounds that the noun itself declares?

The estimator's nouns carry their bounds as annotations; rows of facts and imported configs are held to the
same ones that the border holds requests to.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from math import isfinite
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from annotated_types import Ge, GroupedMetadata, Gt, Le, Lt, MaxLen, MinLen

PLAIN_KINDS: Mapping[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    NoneType: "nothing",
}


@dataclass(frozen=True, slots=True)
class Rule:
    """What a field may hold."""

    allows: Callable[[Any], bool]
    """Whether a value is allowed."""
    wanted: str
    """What is wanted, in words."""


def broken_rules(noun: Any) -> dict[str, str]:
    """Fields of a noun that hold what they must not.

    Args:
        noun: a dataclass of the estimator, such as a Model or a Gpu

    Returns:
        what is wanted instead, by field
    """
    rules = _rules(noun.__class__)
    return {name: rule.wanted for name, rule in rules.items() if not rule.allows(getattr(noun, name))}


def rule_of(kind: type, name: str) -> Rule:
    """What one field of a noun may hold.

    Args:
        kind: the noun
        name: the field

    Returns:
        its rule
    """
    return _rules(kind)[name]


@cache
def _rules(kind: type) -> Mapping[str, Rule]:
    hints = get_type_hints(kind, include_extras=True)
    return {name: _rule(hint) for name, hint in hints.items() if not name.startswith("__")}


def _rule(hint: Any) -> Rule:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _bounded(_rule(arguments[0]), arguments[1:])
    if origin in (Union, UnionType):
        options = [_rule(argument) for argument in arguments]
        wanted = " or ".join(option.wanted for option in options)
        return Rule(lambda value: any(option.allows(value) for option in options), wanted)
    if origin is Literal:
        return Rule(lambda value: value in arguments, "one of " + ", ".join(map(str, arguments)))
    if origin is tuple:
        item = _rule(arguments[0])
        return Rule(lambda value: isinstance(value, tuple) and all(map(item.allows, value)), f"a list of {item.wanted}")
    return Rule(lambda value: _is_plain(value, hint), PLAIN_KINDS[hint])


def _is_plain(value: object, kind: type) -> bool:
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind is bool
    if kind is float:
        return isinstance(value, (int, float)) and isfinite(value)
    return isinstance(value, kind)


def _bounded(rule: Rule, metadata: tuple[Any, ...]) -> Rule:
    limits = [limit for entry in metadata for limit in (entry if isinstance(entry, GroupedMetadata) else (entry,))]
    checks = [(check, words) for check, words in map(_limit, limits) if words]
    wanted = " ".join([rule.wanted, ", ".join(words for _, words in checks)]).strip()
    return Rule(lambda value: rule.allows(value) and all(check(value) for check, _ in checks), wanted)


def _limit(limit: object) -> tuple[Callable[[Any], bool], str]:  # noqa: PLR0911 - one line a kind of bound
    match limit:
        case Ge(ge=bound):
            return (lambda value: value >= bound), f"at least {bound}"
        case Gt(gt=bound):
            return (lambda value: value > bound), f"above {bound}"
        case Le(le=bound):
            return (lambda value: value <= bound), f"at most {bound}"
        case Lt(lt=bound):
            return (lambda value: value < bound), f"below {bound}"
        case MinLen(min_length=length):
            return (lambda value: len(value) >= length), f"of {length} or more"
        case MaxLen(max_length=length):
            return (lambda value: len(value) <= length), f"of at most {length}"
    return (lambda _: True), ""
