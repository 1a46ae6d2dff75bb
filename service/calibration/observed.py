"""What was measured of a device, one quantity at a time, with whoever measured it: what calibrations are fitted on."""

from collections.abc import Sequence
from dataclasses import dataclass

from service.calibration.records import Environment, Measurement, ProbeName, ProbeRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One measurement of one device."""

    id: str
    """What tells it from others."""
    run: str
    """Who measured it: what one run measured shares its clock, its neighbours and its mistakes."""
    probe: ProbeName
    """Which probe."""
    measurement: Measurement
    """What was measured."""
    environment: Environment
    """On what."""

    @property
    def family(self) -> tuple[str, ...]:
        """What it shares with measurements that say the same of the device: they are held out together."""
        shape = self.measurement.shape
        if self.probe == "gemm":
            sides = sorted(int(shape[side]) for side in ("rows", "columns", "inner"))
            return (self.probe, str(shape["dtype"]), *map(str, sides))
        names = sorted(name for name in shape if name not in PASSES)
        return (self.probe, *(f"{name} {shape[name]}" for name in names))


PASSES = ("name", "direction")
"""Entries of a shape that tell which pass ran and where, not how large it was."""


def observed_in(records: Sequence[ProbeRecord], run: str) -> list[Observed]:
    """The measurements of some records.

    Args:
        records: what came of probes; those that measured nothing are passed over
        run: who measured

    Returns:
        the measurements, numbered
    """
    return [
        Observed(
            id=f"{run}/{record.probe}/{number}",
            run=run,
            probe=record.probe,
            measurement=one,
            environment=record.environment,
        )
        for record in records
        if record.environment is not None
        for number, one in enumerate(record.measurements)
    ]
