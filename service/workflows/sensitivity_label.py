"""How is a table of varied fields asked for, beside its question?"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Len

from service.estimator.noun import STRICT, Name
from service.workflows.comparison_label import QUESTION
from service.workflows.nouns import field_names

MOST_ROWS = 1_000
"""Rows of one table, the question as it was asked among them."""

VARY = "vary"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tabling:
    """Which rows are made of the values, and what they say."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    mode: Literal["one_at_a_time", "grid"] = "one_at_a_time"
    """one_at_a_time: each value alone in the question as it was asked. grid: all combinations."""
    metrics: Annotated[tuple[Name, ...], Len(1, 40)] | None = None
    """Numbers of each row, by the names that cells give them; those that most callers want where absent."""


VARIED_BY = (QUESTION, VARY, *field_names(Tabling))
"""What the body of POST /v1/sensitivity may hold."""
