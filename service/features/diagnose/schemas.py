"""Requests for a diagnosis: a question, and the message or the statistics of the job that ran out of memory."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import Len

from service.answers.diagnoses import LONGEST_MESSAGE, Said
from service.errors import Problem, Refused
from service.features.diagnose.messages import EXAMPLE, read_message
from service.validation.forms import DescribedAs
from service.validation.question_parts import PARTS, QuestionRequest
from service.validation.reading import field_names

Message = Annotated[str, Len(0, LONGEST_MESSAGE)]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnoseRequest(QuestionRequest):
    """A configuration that ran out of memory, with its message, its statistics, or both."""

    message: Annotated[Any, DescribedAs(Message | None)] = None
    """The message, with its traceback, or torch.cuda.memory_summary()."""
    memory_stats: Annotated[Any, DescribedAs(Mapping[str, float] | None)] = None
    """What torch.cuda.memory_stats() gave."""


BESIDE = tuple(name for name in field_names(DiagnoseRequest) if name not in PARTS)
"""Fields beside the question."""


def read_report(body: Mapping[str, Any]) -> Said:
    """The message and the statistics of a request."""
    text, stats = body.get("message"), body.get("memory_stats")
    if text is None and stats is None:
        fix = f'give message, e.g. "{EXAMPLE}", or memory_stats, what torch.cuda.memory_stats() gives'
        raise Refused(Problem(field="message", code="required", message="there is nothing to diagnose", fix=fix))
    if text is not None and not isinstance(text, str):
        raise Refused(Problem(field="message", code="not_text", message="it is no text", fix="send it as a string"))
    if stats is not None and not isinstance(stats, Mapping):
        fix = "send the object that torch.cuda.memory_stats() gives, as JSON"
        raise Refused(Problem(field="memory_stats", code="not_object", message="it is no object", fix=fix))
    return read_message(text or "", stats)
