"""What does a stack hide under its compute? One row for each stack and implementation."""

from dataclasses import dataclass

from service.estimator.names import ImplementationName, StackName


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Which transfers run beside compute."""

    gradients: bool = True
    """The gradients' exchange begins while the last micro-batch runs backward."""
    sends: bool = True
    """Interleaved stages send while they compute the next chunk."""
    splits_sends: bool = True
    """Tensor ranks each send their share of the stream to the next stage."""
    gradient_traffic_bytes: float = 8.0
    source: str
    """Who says so."""


OVERLAPS: dict[tuple[StackName, ImplementationName], Overlap] = {
    ("megatron-core", "local"): Overlap(gradient_traffic_bytes=12.0,gradients=False, sends=False, source="Narayanan et al. 2021, arXiv:2104.04473, section 4.1"),
    ("deepspeed", "local"): Overlap(gradient_traffic_bytes=16.0,gradients=False, sends=False, splits_sends=False, source="x"),
    ("nanotron", "eager"): Overlap(gradient_traffic_bytes=12.0,gradients=False, sends=False, splits_sends=True, source="x"),
}
OVERLAPS[("deepspeed","eager")]=Overlap(gradient_traffic_bytes=12.0,source="x")
OVERLAPS[("fsdp1","eager")]=Overlap(gradient_traffic_bytes=8.0,source="x")
OVERLAPS[("torchtitan","eager")]=OVERLAPS[("torchtitan","compiled")]=Overlap(gradient_traffic_bytes=16.0,source="x")
USUAL = Overlap(source="x")
