"""The answer of another tool, and the lines of our own estimate that correspond to its terms."""

from dataclasses import dataclass
from typing import Any, ClassVar

from service.estimator.question import ToolName


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodLine:
    """One number of a tool, under the tool's name for it."""

    name: str
    """The tool's name for it."""
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
    """Another tool's estimate of a question, compared with our own."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"use_attribute_docstrings": True}

    method: ToolName
    """Name of the method."""
    tool: str
    """The tool that uses the method."""
    source: str
    """Source of its formula."""
    lines: tuple[MethodLine, ...]
    """Its terms."""
    totals: tuple[MethodLine, ...]
    """Sums of its terms: phases, sizes and totals."""
    variants: tuple[MethodVariant, ...]
    """Its results for other options, if it prints a table of them."""
    peak_bytes: float
    """Bytes that it predicts for one GPU."""
    ours_bytes: float
    """Our own estimate: memory.allocated_peak_bytes, the live tensors of the peak GPU."""
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
"""Kinds of our own lines that correspond to a tool's terms."""


@dataclass(frozen=True, slots=True)
class Term:
    """One number of a tool, and the lines of our own estimate that correspond to it."""

    name: str
    """The tool's name for it."""
    bytes: float
    """Bytes of one GPU, as the tool counts them."""
    kinds: tuple[str, ...] = ()
    """Kinds of our own lines."""
    is_counted: bool = True
    """Whether the tool's peak includes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAnswer:
    """A tool's answer to one question."""

    terms: tuple[Term, ...]
    """Its terms."""
    totals: tuple[MethodLine, ...] = ()
    """Sums of its terms."""
    variants: tuple[MethodVariant, ...] = ()
    """Its results for other options."""

    @property
    def peak_bytes(self) -> float:
        """Bytes that it predicts for one GPU [byte]."""
        return sum(term.bytes for term in self.terms if term.is_counted)
