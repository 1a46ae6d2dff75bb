"""What is one accelerator capable of? Its facts, in base units, dense rates only."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Interval, Lt

from service.estimator.noun import STRICT, Name

Memory = Annotated[float, Ge(1e6), Lt(1e16)]
MemoryRate = Annotated[float, Ge(1e3), Lt(1e18)]
ComputeRate = Annotated[float, Ge(1e6), Lt(1e21)]
LinkRate = Annotated[float, Ge(1e3), Lt(1e15)]
"""What a device may have, with a thousandfold margin: a number in the wrong unit is refused, nothing real is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One accelerator, from its data sheet and measurements; every rate is dense."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    slug: Name
    """Catalogue name."""
    architecture: Name
    """Vendor's generation name; it selects measured efficiencies."""
    memory_bytes: Memory
    """Memory that one device exposes."""
    usable_bytes: Memory
    """Memory that a job can use."""
    memory_bytes_per_s: MemoryRate
    """Memory bandwidth."""
    fp32_flop_per_s: ComputeRate | None = None
    """Dense peak in fp32 (TF32 where the tensor cores have it)."""
    bf16_flop_per_s: ComputeRate | None = None
    """Dense peak in bf16."""
    fp16_flop_per_s: ComputeRate | None = None
    """Dense peak in fp16."""
    fp8_flop_per_s: ComputeRate | None = None
    """Dense peak in fp8."""
    fp4_flop_per_s: ComputeRate | None = None
    """Dense peak in fp4."""
    int8_flop_per_s: ComputeRate | None = None
    """Dense peak in int8."""
    link_bytes_per_s: LinkRate
    """Fast link of one GPU, one direction."""
    scale_up_gpus: Annotated[int, Interval(ge=1, le=1 << 16)]
    """GPUs that share the fast link."""
    inter_node_bytes_per_s: LinkRate
    """Usual network adapter of one GPU, one direction."""
    host_bytes_per_s: LinkRate
    """Link to the host, one direction."""
    board_watts: Annotated[float, Ge(1), Lt(1e6)]
    """Rated power of the board."""
