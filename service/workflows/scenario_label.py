"""What is a scenario called, and of which fields is it made?"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from annotated_types import Len, MaxLen

from service.estimator.noun import STRICT
from service.workflows.nouns import field_names

QUESTION = "question"
"""Field that holds what POST /v1/estimates takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """What a scenario is called."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    name: Annotated[str, Len(1, 120)]
    """What the team calls it, in one line."""
    note: Annotated[str, MaxLen(4000)] = ""
    """What to know about it."""


FIELDS = (*field_names(Label), QUESTION)
"""What a scenario is made of."""
