"""Between which bounds does a field of a noun lie? Those that its annotation says, for they are told once."""

from typing import get_args, get_origin, get_type_hints

from annotated_types import Interval


def field_bounds(noun: type, field: str) -> tuple[int, int]:
    """Smallest and largest whole number that a field takes.

    Args:
        noun: dataclass of the noun
        field: its name

    Returns:
        both bounds

    >>> from service.estimator.question import Recipe
    >>> field_bounds(Recipe, "micro_batch") == (1, 2**30)
    True
    """
    hints = [get_type_hints(noun, include_extras=True)[field]]
    while hints:
        hint = hints.pop()
        for said in getattr(hint, "__metadata__", ()):
            if isinstance(said, Interval) and isinstance(said.ge, int) and isinstance(said.le, int):
                return said.ge, said.le
        hints += get_args(hint) if get_origin(hint) is not None else ()
    raise TypeError(f"{noun.__name__}.{field} has no bounds of whole numbers")
