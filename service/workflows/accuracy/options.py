"""What may an option of a command line do to a question, and which value does its text become?"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from service.calibration.tables import NotExpressible


@dataclass(frozen=True, slots=True)
class Flag:
    """What one option does to the question."""

    does: Literal["reads", "sets", "describes", "nearly", "refuses"]
    """How it is dealt with."""
    why: str = ""
    """Why it is refused or only nearly said."""
    path: str = ""
    """Field of the question that it sets."""
    to: Callable[[str], Any] = str
    """The field's value, made of the option's."""


def switched_on(_: str) -> bool:
    """A field's value where the option is given at all.

    Returns:
        True
    """
    return True


def switched_off(_: str) -> bool:
    """A field's value where the option, which begins with `no`, is given at all.

    Returns:
        False
    """
    return False


def always(value: Any) -> Callable[[str], Any]:
    """A field's value whatever the option's is.

    Args:
        value: the value

    Returns:
        what gives it
    """
    return lambda _: value


def one_of(values: Mapping[str, Any]) -> Callable[[str], Any]:
    """A field's value by the option's.

    Args:
        values: the field's values by the option's

    Returns:
        what looks it up
    """
    return lambda said: values[said]


LARGEST = 1 << 24
"""The largest whole number that an option may have."""


def whole_of(flags: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """The whole number of an option.

    Args:
        flags: values by name
        name: the option
        default: its value where it is not given

    Returns:
        the number, at least 1

    Raises:
        NotExpressible: it is none, or out of all bounds

    >>> whole_of({"mamba-num-heads": "32"}, "mamba-num-heads"), whole_of({}, "mamba-num-heads", 8)
    (32, 8)
    """
    try:
        return whole(str(flags.get(name, default)))
    except ValueError:
        raise NotExpressible(f"flag {name}: no field takes its value") from None


def whole(said: str) -> int:
    """The whole number that an option's text is.

    Args:
        said: the text

    Returns:
        the number, at least 1

    Raises:
        ValueError: it is none, or out of all bounds

    >>> whole("8")
    8
    """
    if not (said.isascii() and said.isdecimal() and len(said) < 10 and 1 <= int(said) <= LARGEST):
        raise ValueError(said)
    return int(said)


READ = Flag("reads")
DESCRIBES = Flag("describes")
