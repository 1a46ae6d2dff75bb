"""Answers to one question, whole or in part, with their sources and versions."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from service.answers.estimates import Answer, Grounds, MemoryAnswer, MethodAnswer, TimelineAnswer, Versions
from service.catalogue import Catalogue
from service.estimator import FORMULAS_VERSION, estimate, estimate_memory
from service.estimator.advice import NO_COST, NO_ELECTRICITY, NO_TOTALS, with_advice
from service.estimator.answer import Estimate, Explanation, MemoryEstimate
from service.estimator.constants import calibration_id
from service.estimator.question import ToolName
from service.estimator.resolve import resolve
from service.estimator.run.run import peak_stage_in, timeline
from service.estimator.spelling import in_one_spelling
from service.features.estimates.planned import planned
from service.validation.questions import ParsedQuestion, Planner, read_question
from service.validation.reading import digest_of, refuse_infinite, to_bytes

Part = TypeVar("Part", bound=Grounds)


def answer_of(
    kind: type[Grounds],
    body: Mapping[str, Any],
    catalogue: Catalogue,
    *,
    explain: bool = False,
    planner: Planner | None = None,
) -> Grounds:
    """Answer a request body in whole or in part, without advice that the part leaves out."""
    parsed = read_question(body, catalogue, planner=planner)
    if kind is MemoryAnswer:
        return memory_answer(parsed, catalogue, explain=explain)
    is_whole = kind is Answer
    return part(kind, answer(parsed, catalogue, explain=explain, advise=is_whole, is_written=is_whole and not explain))


def answer_explained(kind: type[Grounds], body: Mapping[str, Any], catalogue: Catalogue) -> bytes:
    """Answer a request body with the equation, inputs and source of each number, as JSON."""
    return to_bytes(answer_of(kind, body, catalogue, explain=True, planner=planned))


def answer_planned(kind: type[Grounds], body: Mapping[str, Any], catalogue: Catalogue) -> bytes:
    """Answer a request body whose layout is planned, as JSON."""
    return to_bytes(answer_of(kind, body, catalogue, planner=planned))


def answer(
    parsed: ParsedQuestion,
    catalogue: Catalogue,
    *,
    explain: bool = False,
    advise: bool = True,
    is_written: bool = False,
) -> Answer:
    """Answer one question in whole; `is_written` for a caller that passes it to `to_bytes`, which refuses infinity."""
    found = estimate(parsed.question)
    if not is_written:
        refuse_infinite(found.step, found.totals)  # they divide by rates
    return Answer(
        **grounds_of(found, parsed, catalogue),
        verdict=found.verdict,
        parameters=found.parameters,
        memory=with_advice(found.memory, parsed.question) if advise else found.memory,
        flop=found.flop,
        step=found.step,
        communication=found.communication,
        totals=found.totals,
        explain=_explained(parsed, found, catalogue) if explain else None,
    )


def memory_answer(parsed: ParsedQuestion, catalogue: Catalogue, *, explain: bool = False) -> MemoryAnswer:
    """Answer whether one configuration fits, with its memory."""
    found = estimate_memory(parsed.question)
    refuse_infinite(found.memory)
    return MemoryAnswer(
        **grounds_of(found, parsed, catalogue),
        verdict=found.verdict,
        memory=with_advice(found.memory, parsed.question),
        explain=part(MemoryAnswer, answer(parsed, catalogue, explain=True)).explain if explain else None,
    )


def grounds_of(found: Estimate | MemoryEstimate, parsed: ParsedQuestion, catalogue: Catalogue) -> dict[str, Any]:
    """Fields of an answer beside its numbers and explanations."""
    versions = versions_of(catalogue, [calibration_id(parsed.question.gpu)])
    return {
        "id": f"est_{digest_of(to_bytes([in_one_spelling(found.resolved), versions]))}",
        "resolved": found.resolved,
        "assumptions": (*parsed.assumptions, *found.assumptions),
        "warnings": (*parsed.warnings, *found.warnings),
        "sources": parsed.sources,
        "versions": versions,
    }


RUN_WARNINGS = (NO_TOTALS, NO_COST, NO_ELECTRICITY)


def versions_of(catalogue: Catalogue, calibrations: Iterable[str | None]) -> Versions:
    named = ",".join(sorted({one for one in calibrations if one is not None}))
    return Versions(formulas=FORMULAS_VERSION, catalogue=catalogue.revision, calibration=named or None)


def _explained(parsed: ParsedQuestion, found: Estimate, catalogue: Catalogue) -> dict[str, Explanation]:
    from service.features.estimates.explained import explained

    return explained(parsed, found, catalogue)


def part(kind: type[Part], whole: Answer) -> Part:
    """Part of an answer: all of it, memory, FLOP, or time and totals."""
    if kind is type(whole):
        return whole
    values = {f.name: getattr(whole, f.name) for f in fields(kind)}
    if "totals" not in values:
        values["warnings"] = tuple(warning for warning in whole.warnings if warning not in RUN_WARNINGS)
    if whole.explain is not None:
        named = _explained_of(whole.explain, values)
        values["explain"] = {path: one for path, one in whole.explain.items() if path in named}
    return kind(**values)


def _explained_of(explain: Mapping[str, Explanation], parts: Container[str]) -> set[str]:
    """Names of the explanations of some parts of an answer, and of all that these come from."""
    names: set[str] = set()
    waiting = [path for path in explain if path.partition(".")[0] in parts]
    while waiting:
        names |= {path := waiting.pop()}
        waiting += [one.ref for one in explain[path].shown_inputs if one.ref and one.ref not in names]
    return names


def answer_by(method: ToolName, parsed: ParsedQuestion, catalogue: Catalogue) -> MethodAnswer:
    """Estimate of another tool for one configuration, compared with our own."""
    from service.estimator.other_tools.comparison import compare

    ours = estimate_memory(parsed.question)
    refuse_infinite(ours.memory)
    found = compare(method, ours.resolved, ours.memory)
    return MethodAnswer(
        **{field.name: getattr(found, field.name) for field in fields(found)}, **grounds_of(ours, parsed, catalogue)
    )


def timeline_json(body: Mapping[str, Any], catalogue: Catalogue) -> bytes:
    return to_bytes(timeline_answer(read_question(body, catalogue, planner=planned), catalogue))


def timeline_answer(parsed: ParsedQuestion, catalogue: Catalogue) -> TimelineAnswer:
    found = estimate_memory(parsed.question)
    refuse_infinite(found.memory)
    stages = timeline(peak_stage_in(resolve(parsed.question)).resolved)
    peak_stage = max(stages, key=lambda stage: stage.peak.allocated_bytes)
    return TimelineAnswer(
        **grounds_of(found, parsed, catalogue),
        usable_bytes=found.memory.usable_bytes,
        allocated_peak_bytes=peak_stage.peak.allocated_bytes,
        peak_stage=peak_stage.stage,
        stages=stages,
        explain=None,
    )
