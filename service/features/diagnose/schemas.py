"""Requests for a diagnosis: a question, and the message or the statistics of the job that ran out of memory."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import Len

from service.answers.diagnoses import LONGEST_MESSAGE
from service.validation.forms import DescribedAs
from service.validation.question_parts import PARTS, QuestionRequest
from service.validation.specs import field_names

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
