"""What is said of an open field: its value, the nearest one that will not do, and the numbers that prove both?"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from service.estimator.interval import Interval
from service.estimator.memory_parts import Verdict
from service.estimator.noun import SPOKEN
from service.planner.batch_plan import BatchPlan
from service.planner.optimal_size import OptimalSize
from service.planner.unknowns import UnknownName
from service.planner.why_not import WhyNot
from service.workflows.comparison_row import ChosenCluster
from service.workflows.estimates import Answer, Versions


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyNumbers:
    """What an estimate says of one value."""

    __pydantic_config__: ClassVar[dict[str, Any]] = SPOKEN

    id: str | None
    """Of the estimate."""
    verdict: Verdict | None
    """Does it fit?"""
    oom_probability_fraction: float | None
    """Probability that the device peak exceeds the usable memory."""
    device_peak_bytes: Interval | None
    """Memory of the fullest GPU, as nvidia-smi shows it."""
    usable_bytes: float | None
    """Memory a job can use on this GPU."""
    step_seconds: Interval | None
    """Wall time of one step."""
    tokens_per_s_per_gpu: Interval | None
    """Trained tokens a second on one GPU."""
    mfu_fraction: Interval | None
    """Model FLOP over what the GPUs could do at their peak."""
    gpu_hours: Interval | None
    """The whole run; null without training_tokens."""
    days: Interval | None
    """The whole run; null without training_tokens."""
    cost_usd: Interval | None
    """The whole run; null without training_tokens or a price."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The numbers behind both values."""

    __pydantic_config__: ClassVar[dict[str, Any]] = SPOKEN

    value: KeyNumbers | None
    """Of the value; null where there is none, or where no question was asked beside it."""
    next: KeyNumbers | None
    """Of the next one; null where a rule refuses it, or there is none."""
    tried: int
    """Values that were tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextValue:
    """The nearest value that will not do: the next larger one where the largest is asked for, else the next smaller."""

    __pydantic_config__: ClassVar[dict[str, Any]] = SPOKEN

    value: int | ChosenCluster
    """The value; of a plan of a batch its micro-batch, of a model its parameters."""
    why_not: WhyNot
    """Why it will not do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """One open field, solved."""

    __pydantic_config__: ClassVar[dict[str, Any]] = SPOKEN

    unknown: UnknownName
    """The open field."""
    value: int | BatchPlan | ChosenCluster | OptimalSize | None
    """The value; null where none will do, and then `next` is the one that comes nearest and says what is missing."""
    next: NextValue | None
    """The nearest value that will not do; null where the field, or the list, ends before it."""
    changes: Mapping[str, Any]
    """Fields that the question has with the value, where they are not as it was asked."""
    evidence: Evidence
    """The numbers that prove both."""
    assumptions: tuple[str, ...]
    """What was assumed."""
    warnings: tuple[str, ...]
    """What to look at."""
    versions: Versions
    """What the answer rests on."""


def key_numbers(found: Answer) -> KeyNumbers:
    """What an answer says in a few numbers.

    Args:
        found: the answer

    Returns:
        the numbers
    """
    memory, step, totals = found.memory, found.step, found.totals
    return KeyNumbers(
        id=found.id,
        verdict=found.verdict,
        oom_probability_fraction=memory.oom_probability_fraction,
        device_peak_bytes=memory.device_peak_bytes,
        usable_bytes=memory.usable_bytes,
        step_seconds=step.step_seconds,
        tokens_per_s_per_gpu=step.tokens_per_s_per_gpu,
        mfu_fraction=step.mfu_fraction,
        gpu_hours=None if totals is None else totals.gpu_hours,
        days=None if totals is None else totals.days,
        cost_usd=None if totals is None else totals.cost_usd,
    )
