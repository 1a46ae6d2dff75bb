"""Memory of every stage over a step, and the tensors at its peak."""

from collections.abc import Mapping
from typing import Any

from service.answers.estimates import TimelineAnswer
from service.catalogue import Catalogue
from service.estimator import estimate_memory
from service.estimator.resolve import resolve
from service.estimator.run.run import peak_stage_in
from service.estimator.run.stages import timeline
from service.features.estimates.answers import grounds_of
from service.validation.questions import ParsedQuestion, read_question
from service.validation.serialization import refuse_infinite, to_bytes


def timeline_json(body: Mapping[str, Any], catalogue: Catalogue) -> bytes:
    """Answer the timeline of one configuration as JSON."""
    return to_bytes(timeline_answer(read_question(body, catalogue), catalogue))


def timeline_answer(parsed: ParsedQuestion, catalogue: Catalogue) -> TimelineAnswer:
    """The timeline of one configuration."""
    found = estimate_memory(parsed.question)
    refuse_infinite(found.memory)
    stages = timeline(peak_stage_in(resolve(parsed.question)).resolved)
    peak = max(stages, key=lambda stage: stage.peak.allocated_bytes)
    return TimelineAnswer(
        **grounds_of(found, parsed, catalogue),
        usable_bytes=found.memory.usable_bytes,
        allocated_peak_bytes=peak.peak.allocated_bytes,
        peak_stage=peak.stage,
        stages=stages,
        explain=None,
    )
