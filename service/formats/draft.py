"""Conversion of a file's settings to fields of a question, and the settings that are unknown."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from service.formats.text import Entry
from service.text_bounds import Place, refusal

LARGEST = 1 << 40
"""Largest whole number of a setting."""


@dataclass(slots=True)
class Draft:
    """Parts of a question that a file states."""

    settings: dict[str, Any] = field(default_factory=dict)
    """Converted values of the settings that are read, by name."""
    places: dict[str, Place] = field(default_factory=dict)
    """Place of each in the file."""
    unknown: list[Entry] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)
    model: dict[str, Any] | str | None = None
    """The model as a question spells it; None if the file does not state it."""
    recipe: dict[str, Any] = field(default_factory=dict)
    layout: dict[str, Any] = field(default_factory=dict)

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a setting."""
        return self.settings.get(name, default)

    def chosen(self, name: str, choices: Mapping[Any, Any], default: Any) -> Any:
        """The field's value for the value of a setting."""
        value = self.settings.get(name, default)
        if value not in choices:
            named = ", ".join(str(choice) for choice in choices)
            raise self.wrong(name, "not_a_choice", "is none of the values that are understood", f"use {named}")
        return choices[value]

    def wrong(self, name: str, code: str, message: str, fix: str) -> Exception:
        """The refusal of a setting's value."""
        return refusal(self.places.get(name, Place(1, 1)), code, f"{name} {message}", fix)


Converter = Callable[[Any], Any]
"""Conversion of a setting's value; raises WrongType."""


class WrongType(Exception):
    """A value of another type than its setting takes."""


def integer(value: Any) -> int:
    """A whole number."""
    word = _single(value)
    number = int(word) if isinstance(word, str) and len(word) < 14 else word
    if isinstance(number, bool) or not isinstance(number, int) or not -1 <= number <= LARGEST:
        raise WrongType
    return number


def number(value: Any) -> Any:
    """A number."""
    word = _single(value)
    if isinstance(word, bool) or not isinstance(word, int | float | str) or len(str(word)) > 64:
        raise WrongType
    found = float(word)
    if not abs(found) <= LARGEST:
        raise WrongType
    return found


def boolean(value: Any) -> bool:
    """A truth value; an option without words is true."""
    if value == ():
        return True
    if not isinstance(value, bool):
        raise WrongType
    return value


def text(value: Any) -> str:
    """A text."""
    word = _single(value)
    if not isinstance(word, str):
        raise WrongType
    return word


def items(value: Any) -> tuple[Any, ...]:
    """A list."""
    if not isinstance(value, tuple):
        raise WrongType
    return value


def _single(value: Any) -> Any:
    if isinstance(value, tuple):
        if len(value) != 1:
            raise WrongType
        return value[0]
    return value


CONVERTERS: Mapping[Converter, tuple[str, str]] = {
    integer: ("not_a_whole_number", "a whole number"),
    number: ("not_a_number", "a number"),
    boolean: ("not_true_or_false", "true or false; an option of a command line takes no word"),
    text: ("not_text", "a text, alone"),
    items: ("not_a_list", "a list"),
}
"""Error code of a converter, and its type in words."""


def draft_from(entries: Sequence[Entry], forms: Mapping[str, Converter], unread: tuple[str, ...]) -> Draft:
    """A draft with the settings of a file, converted."""
    draft = Draft()
    for entry in entries:
        draft.places[entry.name] = entry.place
        if entry.name in forms:
            if entry.value is not None:
                draft.settings[entry.name] = _converted(entry, forms[entry.name])
        elif not entry.name.startswith(unread):
            draft.unknown.append(entry)
    return draft


def _converted(entry: Entry, form: Converter) -> Any:
    try:
        return form(entry.value)
    except (WrongType, ValueError):
        code, wanted = CONVERTERS[form]
        message = f"{entry.name} is not {wanted}"
        raise refusal(entry.place, code, message, f"give {wanted}") from None
