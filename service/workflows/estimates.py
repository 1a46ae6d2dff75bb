"""What does this training job take? The answer to a question, whole or in part, with what it rests on."""

import re
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, TypeVar

from service.catalogue import Catalogue
from service.estimator import FORMULAS_VERSION, estimate, estimate_memory
from service.estimator.advice import NO_COST, NO_TOTALS
from service.estimator.answer import Estimate, Flop, MemoryEstimate, Parameters, Step, Totals
from service.estimator.changes import advised
from service.estimator.explain import explanations
from service.estimator.explanation import Explanation
from service.estimator.memory_parts import Memory, Verdict
from service.estimator.noun import SPOKEN
from service.estimator.question import Question
from service.estimator.run_advice import NO_ELECTRICITY
from service.workflows.questions import Asked
from service.workflows.wire import WIRE_NAMES, digest_of, refuse_infinite, to_bytes

STEP = re.compile(r"(\w+)|\[(\d+)\]")
"""One step of an explanation's path: a field, or a place in a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """What an answer rests on: the same question under the same versions is the same answer."""

    formulas: str
    """Version of the formulas."""
    catalogue: str
    """Digest of the catalogue's facts."""
    calibration: str | None
    """Calibration that corrected the predictions; null where none did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grounds:
    """What every answer says beside its numbers."""

    __pydantic_config__: ClassVar[dict[str, Any]] = SPOKEN

    id: str
    """est_ and a digest of the resolved question and the versions."""
    resolved: Question
    """The question with names looked up and every default filled."""
    assumptions: tuple[str, ...]
    """What was assumed."""
    warnings: tuple[str, ...]
    """What to look at."""
    versions: Versions
    """What the answer rests on."""
    explain: dict[str, Explanation] | None
    """Equation, inputs and source of each number, by the name that cells give it; null unless asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryAnswer(Grounds):
    """Whether one configuration fits, and what its bytes are."""

    verdict: Verdict
    """Does it fit?"""
    memory: Memory
    """Bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlopAnswer(Grounds):
    """The operations of one configuration."""

    parameters: Parameters
    """Parameter counts, which the conventions multiply."""
    flop: Flop
    """Operations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuHoursAnswer(Grounds):
    """How long one configuration takes and what that costs."""

    verdict: Verdict
    """Does it fit? Hours of a job that does not are hypothetical."""
    step: Step
    """Seconds of one optimizer step."""
    totals: Totals | None
    """The whole run; null without training_tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(Grounds):
    """Everything about one configuration."""

    verdict: Verdict
    """Does it fit?"""
    parameters: Parameters
    """Parameter counts."""
    memory: Memory
    """Bytes."""
    flop: Flop
    """Operations."""
    step: Step
    """Seconds of one optimizer step."""
    totals: Totals | None
    """The whole run; null without training_tokens."""


Part = TypeVar("Part", Answer, MemoryAnswer, FlopAnswer, GpuHoursAnswer)


def answer(asked: Asked, catalogue: Catalogue, *, explain: bool = False, advise: bool = True) -> Answer:
    """Everything about one configuration.

    Args:
        asked: the question and what reading it assumed
        catalogue: the facts that the question was read with
        explain: add the equation, the inputs and the source of each number
        advise: try changes of a job that does not surely fit, which takes many times as long as the answer

    Returns:
        the answer

    Raises:
        Refused: the estimator's rules refuse the question
        NotFinite: its values lead together beyond all bounds
    """
    found = estimate(asked.question)
    refuse_infinite(found.step, found.totals)  # they divide by rates
    return Answer(
        **grounds_of(found, asked, catalogue),
        verdict=found.verdict,
        parameters=found.parameters,
        memory=advised(found.memory, asked.question) if advise else found.memory,
        flop=found.flop,
        step=found.step,
        totals=found.totals,
        explain=_explained(asked.question, found) if explain else None,
    )


def memory_answer(asked: Asked, catalogue: Catalogue, *, explain: bool = False) -> MemoryAnswer:
    """Whether one configuration fits, and what its bytes are.

    Args:
        asked: the question and what reading it assumed
        catalogue: the facts that the question was read with
        explain: add the equation, the inputs and the source of each number

    Returns:
        the answer, the same as that part of the whole one but for warnings about the run

    Raises:
        Refused: the estimator's rules refuse the question
        NotFinite: its values lead together beyond all bounds
    """
    found = estimate_memory(asked.question)
    refuse_infinite(found.memory)
    return MemoryAnswer(
        **grounds_of(found, asked, catalogue),
        verdict=found.verdict,
        memory=advised(found.memory, asked.question),
        explain=part(MemoryAnswer, answer(asked, catalogue, explain=True)).explain if explain else None,
    )


def grounds_of(found: Estimate | MemoryEstimate, asked: Asked, catalogue: Catalogue) -> dict[str, Any]:
    """What an answer says beside its numbers, but for explanations.

    Args:
        found: the estimate
        asked: the question and what reading it assumed
        catalogue: the facts that the question was read with

    Returns:
        the fields of Grounds
    """
    versions = versions_of(catalogue)
    return {
        "id": f"est_{digest_of(to_bytes([found.resolved, versions]))}",
        "resolved": found.resolved,
        "assumptions": (*asked.assumptions, *found.assumptions),
        "warnings": (*asked.warnings, *found.warnings),
        "versions": versions,
    }


RUN_WARNINGS = (NO_TOTALS, NO_COST, NO_ELECTRICITY)


def versions_of(catalogue: Catalogue) -> Versions:
    """What answers rest on.

    Args:
        catalogue: the facts that questions are read with

    Returns:
        the versions
    """
    return Versions(formulas=FORMULAS_VERSION, catalogue=catalogue.revision, calibration=None)


def _without_run(warnings: tuple[str, ...]) -> tuple[str, ...]:
    """Warnings without those that only an answer with totals needs."""
    return tuple(warning for warning in warnings if warning not in RUN_WARNINGS)


def _explained(question: Question, found: Estimate) -> dict[str, Explanation]:
    named = [replace(e, path=_metric_at(e.path, found)) for e in explanations(question, found)]
    return {explanation.path: explanation for explanation in named}


def _metric_at(path: str, found: Estimate) -> str:
    """The name that cells give a number: items of a list by their kind, or else by their place."""
    steps: list[str] = []
    value: Any = found
    for field, place in STEP.findall(path):
        value = getattr(value, field) if field else value[int(place)]
        steps.append(WIRE_NAMES.get(field, field) or getattr(value, "kind", place))
    return ".".join(steps)


def part(kind: type[Part], whole: Answer) -> Part:
    """The part of an answer that was asked for: all of it, memory, FLOP, or time and totals.

    Args:
        kind: which part
        whole: everything about the configuration

    Returns:
        that part, with the explanations and warnings of its own numbers
    """
    held = {f.name: getattr(whole, f.name) for f in fields(kind)}
    if "totals" not in held:
        held["warnings"] = _without_run(whole.warnings)
    if whole.explain is not None:
        held["explain"] = {path: e for path, e in whole.explain.items() if path.partition(".")[0] in held}
    return kind(**held)
