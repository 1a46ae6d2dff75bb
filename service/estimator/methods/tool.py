"""What is another tool here? A formula over a resolved question, what it does not read, and what it gets wrong."""

from collections.abc import Callable
from dataclasses import dataclass

from service.estimator.methods.answer import MethodLine, MethodVariant
from service.estimator.resolve import Resolved

WEIGHTS = ("weights", "frozen_weights", "weight_copies")
OPTIMIZER = ("optimizer_states", "optimizer_scales", "step_gradients")
STATES = (*WEIGHTS, "gradients", "master_weights", *OPTIMIZER)
ACTIVATIONS = ("activations", "recomputed_activations", "logits")
"""Kinds of our own lines that a tool's terms stand for."""


@dataclass(frozen=True, slots=True)
class Term:
    """One number of a tool, and the lines of our own estimate that mean the same."""

    name: str
    """What the tool calls it."""
    bytes: float
    """Bytes of one GPU, as the tool counts them."""
    kinds: tuple[str, ...] = ()
    """Kinds of our own lines."""
    is_counted: bool = True
    """Whether the tool's peak holds it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a tool says of one question."""

    terms: tuple[Term, ...]
    """Its terms."""
    totals: tuple[MethodLine, ...] = ()
    """What it makes of them."""
    variants: tuple[MethodVariant, ...] = ()
    """Its rows for other options."""

    @property
    def peak_bytes(self) -> float:
        """Bytes that it says one GPU needs [byte]."""
        return sum(term.bytes for term in self.terms if term.is_counted)


@dataclass(frozen=True, slots=True)
class Limit:
    """One thing that a question may ask and a formula does not read."""

    name: str
    """Code of the refusal."""
    field: str
    """Field to blame."""
    holds: Callable[[Resolved], bool]
    """Whether the formula reads all that the question says here."""
    words: Callable[[str, Resolved], tuple[str, str]]
    """For a tool by its name: what it cannot say and why it matters; what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One other tool that answers questions about memory."""

    tool: str
    """Its name."""
    meaning: str
    """What it computes, in one line."""
    source: str
    """Where its formula stands."""
    says: Callable[[Resolved], Said]
    """Its formula."""
    limits: tuple[Limit, ...]
    """What its formula does not read."""
    known_defects: tuple[str, ...]
    """What it leaves out or counts wrongly, a sentence each."""
