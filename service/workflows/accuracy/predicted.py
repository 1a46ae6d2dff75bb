"""What does an estimate say of the rank that somebody measured? Its stage's peaks, and what it keeps between steps."""

from dataclasses import dataclass

from service.calibration.tables import MeasuredRow, NotExpressible
from service.catalogue import Catalogue
from service.errors import Refused
from service.estimator import estimate
from service.estimator.answer import Estimate, Interval, Memory, StageMemory, Verdict
from service.estimator.names import StackName
from service.estimator.question import Question
from service.estimator.software.stacks import software_of
from service.estimator.time.step import Operations
from service.workflows.accuracy.asking import question_of, reason_of
from service.workflows.accuracy.sources import MemoryClass, Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """An estimate of one row's job."""

    question: Question
    """What was asked."""
    found: Estimate
    """The answer."""
    nearly: tuple[str, ...]
    """What of the row the question does not say."""

    @property
    def memory(self) -> Memory:
        """Bytes of every stage."""
        return self.found.memory

    @property
    def verdict(self) -> Verdict:
        """Does it fit?"""
        return self.found.verdict

    @property
    def stack(self) -> StackName:
        """The training stack that it was asked about."""
        return self.operations[0]

    @property
    def operations(self) -> Operations:
        """That stack, and whose operations it runs."""
        software = software_of(self.found.resolved.recipe)
        return software.name, software.implementation


def predict(row: MeasuredRow, catalogue: Catalogue) -> Predicted:
    """The estimate of a row's job.

    Args:
        row: the row
        catalogue: the GPUs

    Returns:
        the answer

    Raises:
        NotExpressible: the row cannot be put as a question, or the estimator's rules refuse it
    """
    question, nearly = question_of(row, catalogue)
    try:
        found = estimate(question)
    except Refused as refused:
        raise NotExpressible(reason_of(refused)) from None
    return Predicted(question=question, found=found, nearly=nearly)


def stage_of(memory: Memory, place: Place) -> StageMemory:
    """The stage whose rank was measured.

    Args:
        memory: the estimate's memory
        place: whose figure was reported

    Returns:
        the stage

    """
    first, last = memory.stages[0], memory.stages[-1]
    if place == "ends":
        return max((first, last), key=lambda stage: stage.allocated_peak_bytes)
    return {"first": first, "last": last, "fullest": memory.stages[memory.peak_stage]}[place]


def peak_interval(memory: Memory, stage: StageMemory, memory_class: MemoryClass) -> Interval:
    """The predicted peak of a stage's rank: its own value, with the ends as far away as those of the fullest's.

    Args:
        memory: the estimate's memory
        stage: the stage
        memory_class: which peak

    Returns:
        the interval [byte]
    """
    allocated, reserved, device = memory.allocated_peak_bytes, memory.reserved_peak_bytes, memory.device_peak_bytes
    if memory_class == "allocated":
        return _scaled(allocated, stage.allocated_peak_bytes / allocated.value)
    own = _scaled(reserved, stage.reserved_peak_bytes / reserved.value)
    if memory_class == "reserved":
        return own
    beside = (device.low - reserved.low, device.value - reserved.value, device.high - reserved.high)
    return Interval(own.low + beside[0], own.value + beside[1], own.high + beside[2], device.basis)


def static_interval(memory: Memory, stage: StageMemory) -> Interval:
    """What a stage's rank keeps between steps, with the spread of its peak.

    Args:
        memory: the estimate's memory
        stage: the stage

    Returns:
        the interval [byte]
    """
    return _scaled(memory.allocated_peak_bytes, stage.idle_bytes / memory.allocated_peak_bytes.value)


def _scaled(interval: Interval, share: float) -> Interval:
    return Interval(interval.low * share, interval.value * share, interval.high * share, interval.basis)
