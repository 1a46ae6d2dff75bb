"""What does a change of only some fields make of an object? A merge patch, as RFC 7396 has it."""

from collections.abc import Mapping
from typing import Any


def merged(target: object, patch: object) -> Any:
    """A JSON value after a merge patch.

    Args:
        target: the value as it is
        patch: what changes: objects are merged field by field, null removes a field, anything else takes its place

    Returns:
        the value as it will be; neither argument is changed

    >>> merged({"a": 1, "b": {"c": 2, "d": 3}}, {"a": None, "b": {"c": 4}})
    {'b': {'c': 4, 'd': 3}}
    """
    if not isinstance(patch, Mapping):
        return patch
    kept = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            kept.pop(name, None)
        else:
            kept[name] = merged(kept.get(name), value)
    return kept
