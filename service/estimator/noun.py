"""What do all nouns of a question share? How the border validates them, and the length of a name."""

from typing import Annotated, Any

from annotated_types import Len

STRICT: dict[str, Any] = {"extra": "forbid", "use_attribute_docstrings": True}
"""Read by pydantic at the border: unknown fields are refused, attribute docstrings become descriptions."""

Name = Annotated[str, Len(1, 200)]
"""A name that the catalogue may hold."""
