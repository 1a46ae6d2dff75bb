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

PLAIN_KINDS: Mapping[type, tuple[str, str]] = {
    bool: ("true or false", "not_true_or_false"),
    int: ("a whole number", "not_a_whole_number"),
    float: ("a number", "not_a_number"),
    str: ("text", "not_text"),
    NoneType: ("null", "not_null"),
}
"""How a kind of value is called, and the code of the problem when it is something else."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What a field may hold."""

    allows: Callable[[Any], bool]
    """Whether a value is allowed."""
    is_of_kind: Callable[[Any], bool]
    """Whether a value is of the right kind, inside the bounds or not."""
    wanted: str
    """What is wanted, in words."""
    code: str
    """Code of the problem when a value is of another kind."""

    def code_for(self, value: object) -> str:
        """Code of the problem that a value makes.

        Args:
            value: a value that is not allowed

        Returns:
            stable name of the broken rule
        """
        return "out_of_range" if self.is_of_kind(value) else self.code


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
        return _any_of([_rule(argument) for argument in arguments])
    if origin is Literal:
        return _simple(lambda value: value in arguments, f"one of {', '.join(map(str, arguments))}", "not_a_choice")
    if origin is tuple:
        item = _rule(arguments[0])
        listed = f"a list, each item {item.wanted}"
        return _simple(lambda value: isinstance(value, tuple) and all(map(item.allows, value)), listed, "not_a_list")
    wanted, code = PLAIN_KINDS[hint]
    return _simple(lambda value: _is_plain(value, hint), wanted, code)


def _simple(allows: Callable[[Any], bool], wanted: str, code: str) -> Rule:
    return Rule(allows, allows, wanted, code)


def _any_of(options: list[Rule]) -> Rule:
    return Rule(
        lambda value: any(option.allows(value) for option in options),
        lambda value: any(option.is_of_kind(value) for option in options),
        " or ".join(option.wanted for option in options),
        options[0].code,
    )


def _is_plain(value: object, kind: type) -> bool:
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind is bool
    if kind is float:
        return isinstance(value, (int, float)) and isfinite(value)
    return isinstance(value, kind)


def _bounded(rule: Rule, metadata: tuple[Any, ...]) -> Rule:
    limits = [limit for entry in metadata for limit in (entry if isinstance(entry, GroupedMetadata) else (entry,))]
    checks = [check for check, _ in map(_limit, limits)]
    words = ", ".join(said for _, said in map(_limit, limits) if said)
    return Rule(
        lambda value: rule.allows(value) and all(check(value) for check in checks),
        rule.is_of_kind,
        f"{rule.wanted} ({words})" if words else rule.wanted,
        rule.code,
    )


def _limit(limit: object) -> tuple[Callable[[Any], bool], str]:  # noqa: PLR0911 - one line a kind of bound
    match limit:
        case Ge(ge=bound):
            return (lambda value: value >= bound), f"at least {bound:,}"
        case Gt(gt=bound):
            return (lambda value: value > bound), f"above {bound:,}"
        case Le(le=bound):
            return (lambda value: value <= bound), f"at most {bound:,}"
        case Lt(lt=bound):
            return (lambda value: value < bound), f"below {bound:,}"
        case MinLen(min_length=length):
            return (lambda value: len(value) >= length), f"at least {length} long"
        case MaxLen(max_length=length):
            return (lambda value: len(value) <= length), f"at most {length} long"
    return (lambda _: True), ""
