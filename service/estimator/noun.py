"""What do all nouns of a question share? How the border validates them, and the bounds of their counts and names."""

from typing import Annotated, Any

from annotated_types import Interval, Len

STRICT: dict[str, Any] = {"extra": "forbid", "use_attribute_docstrings": True}
"""Read by pydantic at the border: unknown fields are refused, attribute docstrings become descriptions."""

SPOKEN: dict[str, Any] = {"use_attribute_docstrings": True}
"""The same of what is answered: attribute docstrings become descriptions."""

Name = Annotated[str, Len(1, 200)]
"""A name that the catalogue may hold."""

Width = Annotated[int, Interval(ge=1, le=1 << 24)]
Layers = Annotated[int, Interval(ge=1, le=2048)]
Heads = Annotated[int, Interval(ge=1, le=1 << 16)]
Count = Annotated[int, Interval(ge=0, le=1 << 20)]
Degree = Annotated[int, Interval(ge=1, le=1 << 20)]
Tokens = Annotated[int, Interval(ge=1, le=1 << 26)]
Sequences = Annotated[int, Interval(ge=1, le=1 << 30)]
"""Counts and their bounds: generous, so that a mistake of a digit or two is refused and nothing real is."""
