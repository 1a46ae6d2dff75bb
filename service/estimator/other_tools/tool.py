"""The answer of another tool, and the lines of our own estimate that its terms stand for."""

from dataclasses import dataclass
from typing import Any, ClassVar

from service.estimator.question import ToolName


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodLine:
    """One number of a tool, under its own name."""

    name: str
    """What the tool calls it."""
    bytes: float
    """Bytes of one GPU, as the tool counts them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodVariant:
    """One row of a tool's table of options."""

    name: str
    """The options."""
    gpu_bytes: float
    """Bytes of one GPU."""
    cpu_bytes: float
    """Bytes of the host memory of one node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What another tool says of a question, beside our own estimate of it."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"use_attribute_docstrings": True}

    method: ToolName
    """Name of the method."""
    tool: str
    """The tool that computes so."""
    source: str
    """Where its formula stands."""
    lines: tuple[MethodLine, ...]
    """Its terms."""
    totals: tuple[MethodLine, ...]
    """What it makes of them: its phases, sizes and totals."""
    variants: tuple[MethodVariant, ...]
    """Its rows for other options, where it prints a table of them."""
    peak_bytes: float
    """The bytes that it says one GPU needs."""
    ours_bytes: float
    """Our own estimate: live tensors of the fullest GPU at the peak, memory.allocated_peak_bytes."""
    difference_fraction: float
    """peak_bytes / ours_bytes - 1."""
    main_reason: str
    """The term in which the two differ most, with the bytes of both."""
    known_defects: tuple[str, ...]
    """What the tool leaves out or counts wrongly, whatever the question."""


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
class ToolAnswer:
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
