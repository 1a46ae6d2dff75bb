"""JSON merge patch (RFC 7396)."""

from collections.abc import Mapping
from typing import Any


def merged(document: Any, patch: Any) -> Any:
    """A document after a merge patch.

    >>> merged({"a": "b", "c": {"d": "e", "f": "g"}}, {"a": "z", "c": {"f": None}})
    {'a': 'z', 'c': {'d': 'e'}}
    """
    if not isinstance(patch, Mapping):
        return patch
    kept = dict(document) if isinstance(document, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            kept.pop(name, None)
        else:
            kept[name] = merged(kept.get(name), value)
    return kept
