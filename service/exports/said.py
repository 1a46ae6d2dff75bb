"""What does a field of a question become in a tool's file: settings, nothing for a reason, or words why not?

A tool is a table of rules, one for each field that `fields.py` lists. So a field that nobody thought of is a missing
row, which a test finds, and never one that is silently dropped.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.estimator.question import Question

Settings = tuple[tuple[str, Any], ...]
"""Names of a tool's settings with their values, in the order in which they are written."""


@dataclass(frozen=True, slots=True)
class Unsaid:
    """Something of the question that a file does not hold."""

    field: str
    """Dotted path of the field, e.g. `recipe.optimizer`."""
    message: str
    """Why the file does not hold it."""
    fix: str
    """What to do about it."""


@dataclass(frozen=True, slots=True)
class Said:
    """What one field becomes."""

    settings: Settings = ()
    """What is written."""
    lacks: tuple[tuple[str, str], ...] = ()
    """What cannot be written: why, and what to do."""
    assumptions: tuple[str, ...] = ()
    """What whoever uses the file has to know."""


Rule = Callable[[Any, Question], Said]
"""What becomes of the value of one field, in a question with every default filled."""

Rules = Mapping[str, Rule]
"""A rule for every field."""

Reader = Callable[[Any, Question], Any]
"""What a value becomes on its way into a setting; None where nothing is to be written."""

NOTHING = Said()


@dataclass(frozen=True, slots=True)
class Silent:
    """The rule of a field that no file needs to hold."""

    reason: str
    """Why not."""

    def __call__(self, value: Any, question: Question) -> Said:  # noqa: ARG002 - every rule is called so
        """Nothing, whatever the value is."""
        return NOTHING


def said_of(rules: Rules, values: Mapping[str, Any], question: Question) -> tuple[Said, tuple[Unsaid, ...]]:
    """What a tool says of a question.

    Args:
        rules: the tool's rules
        values: the value of every field
        question: the question, every default filled

    Returns:
        all settings and assumptions, and what cannot be said
    """
    settings: list[tuple[str, Any]] = []
    unsaid: list[Unsaid] = []
    assumptions: list[str] = []
    for field, rule in rules.items():
        found = rule(values[field], question)
        settings += found.settings
        unsaid += (Unsaid(field, message, fix) for message, fix in found.lacks)
        assumptions += found.assumptions
    return Said(tuple(dict(settings).items()), assumptions=tuple(dict.fromkeys(assumptions))), tuple(unsaid)


def writes(name: str, read: Reader | None = None) -> Rule:
    """The rule of a field that has a setting of its own.

    Args:
        name: the setting
        read: what the value becomes; itself where None

    Returns:
        the rule; it writes nothing where the value becomes None
    """

    def rule(value: Any, question: Question) -> Said:
        found = value if read is None else read(value, question)
        return NOTHING if found is None else Said(((name, found),))

    return rule


def chooses(choices: Mapping[Any, Mapping[str, Any]], why: str, fix: str) -> Rule:
    """The rule of a field with a few values, each of which has settings of its own.

    Args:
        choices: settings by value; those that the tool has anyway are empty
        why: why another value cannot be written; `{value}` stands for it
        fix: what to do then

    Returns:
        the rule
    """

    def rule(value: Any, question: Question) -> Said:
        if value in choices:
            return Said(tuple(choices[value].items()))
        return lacking(why, fix, value)

    return rule


def takes_only(plain: Sequence[Any], why: str, fix: str) -> Rule:
    """The rule of a field that the tool cannot be told.

    Args:
        plain: values that are as the tool does without being told
        why: why another value cannot be written; `{value}` stands for it
        fix: what to do then

    Returns:
        the rule
    """
    return chooses({value: {} for value in plain}, why, fix)


def lacking(why: str, fix: str, value: Any = None) -> Said:
    """That something cannot be written.

    Args:
        why: why not; `{value}` stands for the value
        fix: what to do
        value: the value

    Returns:
        what is said of it
    """
    return Said(lacks=((why.replace("{value}", shown(value)), fix),))


def shown(value: Any) -> str:
    """A value of a question as words name it.

    Args:
        value: a name, a number, a truth, or a list or noun, which is only hinted at

    Returns:
        the text

    >>> shown("lion"), shown(True), shown((1, 2))
    ('lion', 'true', 'what the question says')
    """
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, str | int | float) else "what the question says"


def both(first: Said, second: Said) -> Said:
    """What two rules say together.

    Args:
        first: what one says
        second: what the other says

    Returns:
        all of it
    """
    return Said(
        (*first.settings, *second.settings), (*first.lacks, *second.lacks), (*first.assumptions, *second.assumptions)
    )
