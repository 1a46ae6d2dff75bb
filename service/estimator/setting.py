"""Which choices of the recipe shape the operations of a layer? The few that a layer kind needs to know."""

from dataclasses import dataclass

from service.estimator.documents import Documents


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How the operations of one sequence are carried out."""

    tokens: int
    """Tokens of the sequence, s."""
    element_bytes: int
    """Bytes of one activation."""
    keeps_scores: bool
    """Attention scores are written to memory and kept (eager attention)."""
    drops_out: bool
    """Dropout is on, and its masks are kept."""
    fused_norm: bool
    """Norms keep only their input and output."""
    fused_activation: bool
    """The activation keeps only its inputs and output."""
    repeats_key_values: bool
    """Keys and values are copied to every query head before attention."""
    copies_result: bool = False
    """The attention kernel's result is kept a second time, in the order of the other activations."""
    documents: Documents | None = None
    """The documents that sequences are made of; None where every sequence is one document."""
