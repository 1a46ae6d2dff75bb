"""What may change during a run, and until which of its tokens?"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Lt

from service.estimator.noun import STRICT, Sequences, Tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStage:
    """A part of a run, before the recipe's own values hold, with a batch or a length of its own."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    until_tokens: Annotated[float, Ge(1), Lt(1e18)]
    """Tokens of the run, from its beginning, after which the stage ends; ascending, and below training_tokens."""
    global_batch: Sequences | None = None
    """Sequences in one step, in the first one where the batch rises; the recipe's own where absent."""
    sequence_length: Tokens | None = None
    """Tokens in one sequence; the recipe's own where absent."""
    final_global_batch: Sequences | None = None
    """Sequences in one step to which the batch rises, reached as the stage ends; it does not rise where absent."""
    batch_increment: Sequences | None = None
    """Sequences by which a rising batch grows at a time; the fewest that the layout can share, where absent."""
