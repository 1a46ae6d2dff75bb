"""The memory of every stage over a step, and the tensors that hold its peak."""

from collections.abc import Mapping
from typing import Any

from service.answers.estimates import TimelineAnswer
from service.catalogue import Catalogue
from service.estimator import estimate_memory
from service.estimator.resolve import resolve
from service.estimator.run.run import peak_stage_in
from service.estimator.run.stages import timeline
from service.features.estimates.answers import grounds_of
from service.validation.questions import ReadQuestion, read_question
from service.validation.serialization import refuse_infinite, to_bytes


def timeline_sent(body: Mapping[str, Any], catalogue: Catalogue) -> bytes:
    """The timeline of one configuration, as it is sent."""
    return to_bytes(timeline_answer(read_question(body, catalogue), catalogue))


def timeline_answer(asked: ReadQuestion, catalogue: Catalogue) -> TimelineAnswer:
    """The timeline of one configuration."""
    found = estimate_memory(asked.question)
    refuse_infinite(found.memory)
    stages = timeline(peak_stage_in(resolve(asked.question)).resolved)
    fullest = max(stages, key=lambda stage: stage.peak.allocated_bytes)
    return TimelineAnswer(
        **grounds_of(found, asked, catalogue),
        usable_bytes=found.memory.usable_bytes,
        allocated_peak_bytes=fullest.peak.allocated_bytes,
        peak_stage=fullest.stage,
        stages=stages,
        explain=None,
    )
