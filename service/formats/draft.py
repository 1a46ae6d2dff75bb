"""What becomes of settings: fields of a recipe and a layout, field by field, and what nobody understood."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from service.formats.text import Entry
from service.text_bounds import Place, refusal

LARGEST = 1 << 40
"""The largest whole number that a setting may have."""


@dataclass(slots=True)
class Draft:
    """What a file is understood to say."""

    settings: dict[str, Any] = field(default_factory=dict)
    """Values of the settings that are read, by name."""
    places: dict[str, Place] = field(default_factory=dict)
    """Where each stands."""
    unknown: list[Entry] = field(default_factory=list)
    """Settings that nobody understood."""
    assumptions: list[str] = field(default_factory=list)
    """What had to be assumed."""
    model: dict[str, Any] | str | None = None
    """The model as a question spells it; None where the file does not say it."""
    recipe: dict[str, Any] = field(default_factory=dict)
    """Fields of the recipe."""
    layout: dict[str, Any] = field(default_factory=dict)
    """Fields of the layout."""

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a setting."""
        return self.settings.get(name, default)

    def chosen(self, name: str, choices: Mapping[Any, Any], default: Any) -> Any:
        """What the value of a setting stands for."""
        value = self.settings.get(name, default)
        if value not in choices:
            named = ", ".join(str(choice) for choice in choices)
            raise self.wrong(name, "not_a_choice", "is none of the values that are understood", f"use {named}")
        return choices[value]

    def wrong(self, name: str, code: str, message: str, fix: str) -> Exception:
        """The refusal of a setting's value."""
        return refusal(self.places.get(name, Place(1, 1)), code, f"{name} {message}", fix)


Form = Callable[[Any], Any]
"""What a setting's value becomes; raises Unfit where it is none."""


class Unfit(Exception):
    """A value has not the form that it has to have."""


def whole(value: Any) -> int:
    """A whole number."""
    word = _one(value)
    number = int(word) if isinstance(word, str) and len(word) < 14 else word
    if isinstance(number, bool) or not isinstance(number, int) or not -1 <= number <= LARGEST:
        raise Unfit
    return number


def number(value: Any) -> Any:
    """A number."""
    word = _one(value)
    if isinstance(word, bool) or not isinstance(word, int | float | str) or len(str(word)) > 64:
        raise Unfit
    found = float(word)
    if not abs(found) <= LARGEST:
        raise Unfit
    return found


def truth(value: Any) -> bool:
    """A truth."""
    if value == ():
        return True
    if not isinstance(value, bool):
        raise Unfit
    return value


def text(value: Any) -> str:
    """A text."""
    word = _one(value)
    if not isinstance(word, str):
        raise Unfit
    return word


def words(value: Any) -> tuple[Any, ...]:
    """A list."""
    if not isinstance(value, tuple):
        raise Unfit
    return value


def _one(value: Any) -> Any:
    if isinstance(value, tuple):
        if len(value) != 1:
            raise Unfit
        return value[0]
    return value


NAMES: Mapping[Form, tuple[str, str]] = {
    whole: ("not_a_whole_number", "a whole number"),
    number: ("not_a_number", "a number"),
    truth: ("not_true_or_false", "true or false; an option of a command line takes no word"),
    text: ("not_text", "a text, alone"),
    words: ("not_a_list", "a list"),
}
"""Code of what is not of a form, and the form in words."""


def drafted(entries: Sequence[Entry], forms: Mapping[str, Form], unread: tuple[str, ...]) -> Draft:
    """What a file says, its values in the forms that they have to have."""
    draft = Draft()
    for entry in entries:
        draft.places[entry.name] = entry.place
        if entry.name in forms:
            if entry.value is not None:
                draft.settings[entry.name] = _formed(entry, forms[entry.name])
        elif not entry.name.startswith(unread):
            draft.unknown.append(entry)
    return draft


def _formed(entry: Entry, form: Form) -> Any:
    try:
        return form(entry.value)
    except (Unfit, ValueError):
        code, wanted = NAMES[form]
        message = f"{entry.name} is not {wanted}"
        raise refusal(entry.place, code, message, f"give {wanted}") from None
