"""What would another tool say of this question, and why does it differ? The shape of that answer."""

from dataclasses import dataclass
from typing import Any, ClassVar

from service.estimator.names import ToolName


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
