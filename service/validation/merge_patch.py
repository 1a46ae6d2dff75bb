"""JSON merge patch (RFC 7396)."""

from collections.abc import Mapping
from typing import Any


def apply_merge_patch(document: Any, patch: Any) -> Any:
    """A document after a merge patch.

    >>> apply_merge_patch({"a": "b", "c": {"d": "e", "f": "g"}}, {"a": "z", "c": {"f": None}})
    {'a': 'z', 'c': {'d': 'e'}}
    """
    if not isinstance(patch, Mapping):
        return patch
    result = dict(document) if isinstance(document, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = apply_merge_patch(result.get(name), value)
    return result
