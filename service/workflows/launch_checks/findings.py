"""What is a verdict read off? Everything that a launch check found, in one place."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.answers.launch_checks import Compared, Deepened, Outlook, ProbeAnswer
from service.calibration.records import Environment, LeftOutCode

MEMORY_QUANTITIES = ("allocated_peak", "live_bytes_peak")
"""What is told of a step's memory, the better one first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What a launch check found."""

    probes: Sequence[ProbeAnswer]
    """Each probe."""
    environments: Sequence[Environment]
    """What each of them ran on."""
    comparable: bool
    """Whether that is the cluster's own GPU."""
    gpu: str
    """Catalogue name of the cluster's GPU."""
    rated_watts: float
    """Power that one GPU of the cluster may draw."""
    outlook: Outlook
    """What the job is expected to take, with what was measured."""
    depths: Sequence[Deepened]
    """What the step probe says of the whole model."""
    nodes: int = 1
    """Nodes that the job spans."""
    judges_memory: bool = True
    """Whether the step probe's attention keeps what the job's keeps."""
    impossible: Sequence[str] = ()
    """What was left out because no device can have measured it, and why."""

    @property
    def compared(self) -> list[Compared]:
        """Every measurement beside its prediction."""
        return [one for probe in self.probes for one in probe.measurements]

    @property
    def memory_ratio_fraction(self) -> float | None:
        """Measured over predicted memory of the whole model on one device; None where it was not measured."""
        ratios = {one.quantity: one.ratio for one in self.depths}
        return next((ratios[name] for name in MEMORY_QUANTITIES if ratios.get(name) is not None), None)

    @property
    def measured_peak_bytes(self) -> float | None:
        """Memory of the job's fullest GPU as the measured memory of the whole model has it; None without one."""
        ratio = self.memory_ratio_fraction
        return None if ratio is None or not self.judges_memory else ratio * self.outlook.device_peak_bytes.value


def left_out_of(probe: ProbeAnswer, code: LeftOutCode) -> Iterator[Mapping[str, Any]]:
    """What a probe was asked for and tells no figure of, for one reason.

    Args:
        probe: the probe
        code: the reason

    Yields:
        rows of its summary, as its worker wrote them
    """
    rows = (probe.summary or {}).get("left_out")
    if isinstance(rows, Sequence):
        yield from (row for row in rows if isinstance(row, Mapping) and row.get("code") == code)


def tells_anything(probe: ProbeAnswer) -> bool:
    """Whether a probe brought what it is run for: figures, or the summary of a profile.

    Args:
        probe: the probe

    Returns:
        whether it did
    """
    return bool(probe.summary) if probe.probe == "profile" else bool(probe.measurements)
