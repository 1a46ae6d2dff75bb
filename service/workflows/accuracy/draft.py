"""What does one row ask? A question's body while it is put together, part by part."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Draft:
    """The body of a question, and what it only comes near to."""

    model: dict[str, Any] = field(default_factory=dict)
    """The architecture, in the fields of Model."""
    recipe: dict[str, Any] = field(default_factory=dict)
    """The recipe."""
    layout: dict[str, Any] = field(default_factory=dict)
    """The layout."""
    cluster: dict[str, Any] = field(default_factory=dict)
    """The cluster."""
    stack: dict[str, Any] = field(default_factory=dict)
    """The training software with its choices."""
    nearly: list[str] = field(default_factory=list)
    """What the row says that changes bytes and that the question cannot say: it is asked without."""

    def put(self, path: str, value: Any) -> None:
        """Set a field of the question, e.g. `layout.zero_stage`; `stack.` stands for `recipe.stack.`."""
        part, _, name = path.partition(".")
        getattr(self, part)[name] = value

    def body(self) -> dict[str, Any]:
        """The body, as a caller would send it."""
        recipe = {**self.recipe, "stack": self.stack}
        return {"model": self.model, "recipe": recipe, "layout": self.layout, "cluster": self.cluster}
