"""Will one value of the open field do? The question with that value, judged by memory and by the limits of the run."""

from collections.abc import Callable
from dataclasses import dataclass

from service.answers.solutions import WhyNot
from service.errors import Refused
from service.estimator import estimate, estimate_memory
from service.estimator.answer import Estimate, MemoryEstimate
from service.estimator.question import Question
from service.planner.shortage import NONE, Shortage, shortage_of
from service.planner.solve_limits import SolveLimits, limits_given
from service.planner.steps import Steps
from service.planner.why_not import limits_missed, memory_missing, refused_because


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One value of the open field."""

    value: int
    """The value."""
    question: Question
    """The question with it."""
    refused: Refused | None
    """The rules that it breaks; None where it is legal."""
    why_not: WhyNot | None
    """Why it will not do; None where it does."""
    shortage: Shortage = NONE
    """What keeps it from fitting, stage by stage."""

    @property
    def is_legal(self) -> bool:
        """Whether no rule refuses it."""
        return self.refused is None

    @property
    def will_do(self) -> bool:
        """Whether it is legal, fits and keeps every limit."""
        return self.why_not is None

    def may_do(self, short: frozenset[int]) -> bool:
        """Whether nothing final keeps it from doing, nor one of some stages.

        Args:
            short: the stages

        Returns:
            whether it may do; true wherever it will
        """
        return not self.shortage.is_final and not self.shortage.stages & short


class Attempts:
    """The values that were tried so far.

    Args:
        put: the question with a value
        limits: what has to hold
    """

    def __init__(self, put: Callable[[int], Question], limits: SolveLimits) -> None:
        self._put, self._limits = put, limits
        self._tried: dict[int, Attempt] = {}

    @property
    def count(self) -> int:
        """How many values were tried."""
        return len(self._tried)

    @property
    def legal(self) -> list[Attempt]:
        """Those that no rule refuses, in the order in which they were tried."""
        return [attempt for attempt in self._tried.values() if attempt.is_legal]

    @property
    def broken_by_all(self) -> frozenset[str]:
        """Rules that every refused value breaks."""
        codes = [{problem.code for problem in refused.problems} for refused in self._refusals]
        return frozenset(set.intersection(*codes)) if codes else frozenset()

    @property
    def refusal(self) -> Refused | None:
        """What the first value that was refused is refused for; of it, what all are refused for, if anything."""
        first = next(iter(self._refusals), None)
        if first is None:
            return None
        shared = [problem for problem in first.problems if problem.code in self.broken_by_all]
        return Refused(*shared) if shared else first

    @property
    def _refusals(self) -> list[Refused]:
        return [attempt.refused for attempt in self._tried.values() if attempt.refused is not None]

    def at(self, value: int) -> Steps[Attempt]:
        """Judge one value, once.

        Args:
            value: the value

        Yields:
            nothing, after it was judged

        Returns:
            what became of it
        """
        if value not in self._tried:
            self._tried[value] = _judged(value, self._put(value), self._limits)
            yield None
        return self._tried[value]


def _judged(value: int, question: Question, limits: SolveLimits) -> Attempt:
    try:
        found = estimate(question) if limits_given(limits) else estimate_memory(question)
    except Refused as refused:
        why_not = refused_because(refused.problems)
        return Attempt(value=value, question=question, refused=refused, why_not=why_not)
    reason = reason_against(found, limits)
    if reason is None:
        return Attempt(value=value, question=question, refused=None, why_not=None)
    is_memory = reason.missing_bytes is not None
    shortage = shortage_of(question, found.memory, limits) if is_memory else NONE
    return Attempt(value=value, question=question, refused=None, why_not=reason, shortage=shortage)


def reason_against(found: Estimate | MemoryEstimate, limits: SolveLimits) -> WhyNot | None:
    """Why an estimated job will not do.

    Args:
        found: its estimate; the whole one where the run is limited
        limits: what has to hold

    Returns:
        memory first, then the limits of the run; None where it does
    """
    memory = found.memory
    missing = memory_missing(memory.device_peak_bytes, memory.usable_bytes, memory.oom_probability_fraction, limits)
    if missing is not None or isinstance(found, MemoryEstimate) or found.totals is None:
        return missing
    totals = found.totals
    predicted = {"days": totals.days, "cost_usd": totals.cost_usd, "gpu_hours": totals.gpu_hours}
    return limits_missed(predicted, limits)
