"""What requests about scenarios and their share links hold, and how a scenario is shown."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from annotated_types import Interval, Len, MaxLen

from service.answers.names import Published
from service.estimator.question import STRICT, Documented, Strict
from service.store.scenarios import Scenario
from service.validation.forms import DescribedAs, Variant
from service.validation.question_parts import QuestionPatch, QuestionRequest
from service.validation.reading import field_names

QUESTION = "question"
"""Field with the body of POST /v1/estimates."""

MOST_DAYS = 366
"""Longest validity of share links."""

Name = Annotated[str, Len(1, 120)]
Note = Annotated[str, MaxLen(4000)]
_REQUIRED: Mapping[str, Any] = {"json_schema_extra": {"required": ["name", QUESTION]}}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioRequest:
    """A question to keep under a name."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {**STRICT, **_REQUIRED}

    name: Name
    """What the team calls it, in one line."""
    note: Note = ""
    """What to know about it."""
    question: Annotated[Any, DescribedAs(QuestionRequest)] = None
    """What POST /v1/estimates takes, as it was sent."""


FIELDS = field_names(ScenarioRequest)
"""Fields of a scenario."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioPatch(Strict):
    """What changes, as a merge patch: null removes a field of the question, or the note."""

    name: Annotated[Any, DescribedAs(Name)] = None
    """What the team calls it, in one line."""
    note: Note | None = None
    """What to know about it."""
    question: Annotated[Any, DescribedAs(QuestionPatch)] = None
    """Fields of the question that change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareRequest(Strict):
    """For how long a scenario is to be shared."""

    days: Annotated[int, Interval(ge=1, le=MOST_DAYS)] | None = None
    """Days from now; 30 where neither is given."""
    expires_at: Annotated[str, Len(1, 40)] | None = None
    """When it ends, as RFC 3339 has it, at most 366 days from now; instead of days."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioLinks(Documented):
    """Where more is."""

    self: str
    """The scenario, in its newest revision; handing this on shares it."""
    revision: str
    """This revision of it."""
    estimate: str
    """The whole answer, byte for byte as it was given."""
    budget: str
    """A workbook that asks the same, its fields free to change."""
    list: str
    """Every scenario."""


SUMMARY = (
    "gpu", "gpus", "verdict", "device_peak_bytes", "usable_bytes", "step_seconds", "gpu_hours", "cost_usd",
)  # fmt: skip
"""Summary fields of a shown scenario."""
VERSIONS = ("formulas", "catalogue", "calibration")
"""Version fields of a shown scenario."""
HEAD = tuple(name for name in field_names(Scenario) if name not in {*SUMMARY, *VERSIONS})
"""Fields of a shown scenario that stand for themselves."""

ShownScenario = Annotated[
    Any,
    Variant(
        Scenario,
        "Scenario",
        "A question under a name, with what was answered.",
        required=(*HEAD, QUESTION, "summary", "versions", "links"),
        only=HEAD,
        more={
            QUESTION: Annotated[Any, Published("QuestionRequest")],
            "summary": Annotated[
                Any,
                Variant(Scenario, "ScenarioSummary", "What was answered, in short.", required=SUMMARY, only=SUMMARY),
            ],
            "versions": Annotated[
                Any,
                Variant(Scenario, "ScenarioVersions", "What the answer rests on.", required=VERSIONS, only=VERSIONS),
            ],
            "links": ScenarioLinks,
        },
    ),
]
"""A scenario as a resource."""
