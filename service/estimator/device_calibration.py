"""What was measured of one device, in the place of what its data sheet and its generation say?

None of it is a column of the catalogue or a field of a question: a GPU that has it is a `CalibratedGpu`, and formulas
ask that GPU. Where nothing was measured, formulas read what they read without any of it.
"""

from dataclasses import dataclass, field, fields
from typing import Literal

from service.estimator.efficiency import LAUNCH_SECONDS, MEMORY_FRACTION
from service.estimator.gpu import Gpu
from service.estimator.measured_step import MeasuredStep
from service.estimator.names import AttentionName, ImplementationName, StackName
from service.estimator.precision import Format

UNTOLD = {"untold": True}
"""Metadata of a field that no answer spells: versions.calibration names what it holds."""

CurveName = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]
"""Collectives that a link has a curve for; a send goes by that of all-to-all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixCalibration:
    """What matrix products of one number format reached."""

    format: Format
    """Format of the operands."""
    flop_per_s: float
    """Rate of full waves of full tiles in short bursts."""
    bytes_per_s: float | None = None
    """Memory traffic in short bursts; null: as much as streaming kernels reach."""
    launch_seconds: float = LAUNCH_SECONDS
    """Fixed cost of one product."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionCalibration:
    """What one fused attention kernel reached."""

    kernel: AttentionName
    """The kernel."""
    forward_fraction: float | None = None
    """Share of dense peak over endless keys and tiles, heads of 128, forward; null where it was not measured."""
    backward_fraction: float | None = None
    """The same, backward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkCalibration:
    """How one collective inside a domain differs from what its link's curve says."""

    collective: CurveName
    """The collective."""
    fixed_fraction: float = 1.0
    """Fixed cost, hops and root term, over those of the curve."""
    link_fraction: float = 1.0
    """Bytes a second of large messages over those of the curve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredBytes:
    """Bytes that were measured, with their spread."""

    low: float
    """Lower end."""
    value: float
    """Middle."""
    high: float
    """Upper end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCalibration:
    """One whole step, beside what the other constants predict of it: what it tells holds for its stack."""

    stack: StackName
    """Training software that ran it."""
    implementation: ImplementationName | None
    """Whose operations it ran."""
    step: MeasuredStep
    """Its seconds, predicted and measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCalibration:
    """What was measured of one device; what was not is left out, and formulas go on without it."""

    id: str
    """What answers name as versions.calibration."""
    matrix: tuple[MatrixCalibration, ...] = ()
    """Matrix products by number format."""
    attention: tuple[AttentionCalibration, ...] = ()
    """Attention by kernel."""
    links: tuple[LinkCalibration, ...] = ()
    """Collectives inside a domain."""
    memory_bytes_per_s: float | None = None
    """Memory traffic that streaming kernels reach in short bursts."""
    context_bytes: MeasuredBytes | None = None
    """Context and loaded kernels."""
    communicator_bytes: MeasuredBytes | None = None
    """What communicators add."""
    steps: tuple[StepCalibration, ...] = ()
    """Whole steps."""

    @property
    def tells_seconds(self) -> bool:
        """Whether it changes how long something takes."""
        rates = self.matrix or self.attention or self.links or self.memory_bytes_per_s
        return bool(rates or self.steps)

    @property
    def tells_bytes(self) -> bool:
        """Whether it changes how much memory is in use."""
        return self.context_bytes is not None or self.communicator_bytes is not None

    @property
    def is_empty(self) -> bool:
        """Whether nothing was measured."""
        return not (self.tells_seconds or self.tells_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedGpu(Gpu):
    """A GPU of which more is known than its data sheet."""

    calibration: DeviceCalibration = field(metadata=UNTOLD)
    """What was measured of it."""


def calibrated(gpu: Gpu, calibration: DeviceCalibration | None) -> Gpu:
    """A GPU with what was measured of it, in the place of what was measured before.

    Args:
        gpu: the GPU
        calibration: what was measured; None for its data sheet alone

    Returns:
        the GPU

    >>> from service.estimator.samples import H100
    >>> calibrated(calibrated(H100, DeviceCalibration(id="cal_1")), None) == H100
    True
    """
    facts = {one.name: getattr(gpu, one.name) for one in fields(Gpu)}
    return Gpu(**facts) if calibration is None else CalibratedGpu(**facts, calibration=calibration)


def calibration_of(gpu: Gpu) -> DeviceCalibration | None:
    """What was measured of a GPU.

    Args:
        gpu: the GPU

    Returns:
        its calibration; None where answers rest on data sheets and published measurements alone
    """
    return gpu.calibration if isinstance(gpu, CalibratedGpu) else None


def calibration_id(gpu: Gpu) -> str | None:
    """Which calibration answers about a GPU rest on, as `versions.calibration` names it.

    Args:
        gpu: the GPU

    Returns:
        its id; None where there is none

    >>> from service.estimator.samples import H100
    >>> calibration_id(H100), calibration_id(calibrated(H100, DeviceCalibration(id="cal_1")))
    (None, 'cal_1')
    """
    known = calibration_of(gpu)
    return None if known is None else known.id


def streaming_bytes_per_s(gpu: Gpu, fraction: float) -> float:
    """Memory traffic that streaming kernels reach on a GPU.

    Formula:
        W x, W the data sheet's; or w x / MEMORY_FRACTION, w what was measured in short bursts

    Args:
        gpu: the GPU
        fraction: share of the data sheet's bandwidth that such kernels reach, where nothing was measured, x [1]

    Returns:
        bytes a second [byte/s]

    Source:
        the GPU's calibration; efficiency.MEMORY_FRACTION

    >>> from service.estimator.samples import H100
    >>> streaming_bytes_per_s(H100, 0.5)
    1675000000000.0
    """
    known = calibration_of(gpu)
    if known is None or known.memory_bytes_per_s is None:
        return gpu.memory_bytes_per_s * fraction
    return known.memory_bytes_per_s * fraction / MEMORY_FRACTION
