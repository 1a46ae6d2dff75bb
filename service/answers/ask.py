"""What a sentence was understood as, and the answer to it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from service.answers.estimates import Answer
from service.answers.names import Published
from service.estimator.question import Documented

ChipState = Literal["understood", "assumed", "not_understood"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipChoice(Documented):
    """Another value that a chip may have."""

    value: Any
    """The value, as the question spells it."""
    label: str
    """The value as people read it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip(Documented):
    """A part of a sentence, and what it means."""

    text: str
    """The part, letter by letter; empty where the sentence says nothing of the field."""
    field: str | None
    """JSON pointer into the question, or into the limits of a check; null where no field is meant."""
    value: Any
    """What the field is; null where none is meant."""
    state: ChipState
    """understood as written, assumed where the sentence leaves it open or may mean several, or not_understood."""
    choices: tuple[ChipChoice, ...] = ()
    """Other values that the part may mean."""
    note: str | None = None
    """By which rule a value was assumed, or why a part was not understood."""


LimitName = Literal["days", "cost_usd"]
LimitVerdict = Literal["kept", "at_risk", "missed", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitCheck(Documented):
    """A limit of a sentence, against the answer."""

    days: float | None = None
    """Most days of the run; null where the cost is limited."""
    cost_usd: float | None = None
    """Most cost of the run; null where the days are limited."""
    verdict: LimitVerdict
    """kept or missed where the whole interval is, at_risk where a part of it is; unknown without such a total."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceAnswer(Documented):
    """The answer to a sentence, with what was understood of it."""

    chips: tuple[Chip, ...]
    """Parts of the sentence in their order, then what was assumed."""
    question: Annotated[Mapping[str, Any], Published("QuestionRequest")]
    """The question in plain JSON; POST /v1/estimates answers it under the same id."""
    limits: tuple[LimitCheck, ...]
    """Deadline and budget of the sentence."""
    answer: Answer
    """The answer of POST /v1/estimates."""
