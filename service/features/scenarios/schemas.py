"""Schemas of scenarios and share links, in requests and answers."""

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

MOST_DAYS = 366
"""Longest validity of share links."""

Name = Annotated[str, Len(1, 120)]
Note = Annotated[str, MaxLen(4000)]
_REQUIRED: Mapping[str, Any] = {"json_schema_extra": {"required": ["name", QUESTION]}}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioRequest:
    """A question to store under a name."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {**STRICT, **_REQUIRED}

    name: Name
    """Name of the scenario, in one line."""
    note: Note = ""
    """Note on the scenario."""
    question: Annotated[Any, DescribedAs(QuestionRequest)] = None
    """A request body of POST /v1/estimates, stored as sent."""


FIELDS = field_names(ScenarioRequest)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioPatch(Strict):
    """Changes as a merge patch: null removes a field of the question, or the note."""

    name: Annotated[Any, DescribedAs(Name)] = None
    """Name of the scenario, in one line."""
    note: Note | None = None
    """Note on the scenario."""
    question: Annotated[Any, DescribedAs(QuestionPatch)] = None
    """Fields of the question that change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareRequest(Strict):
    """How long a share link is valid."""

    days: Annotated[int, Interval(ge=1, le=MOST_DAYS)] | None = None
    """Days from now; 30 if neither field is given."""
    expires_at: Annotated[str, Len(1, 40)] | None = None
    """End of its validity as an RFC 3339 date-time, at most 366 days from now; instead of days."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioLinks(Documented):
    """Links to the scenario and its exports."""

    self: str
    """The newest revision of the scenario; the address to pass on."""
    revision: str
    """This revision of the scenario."""
    estimate: str
    """The whole answer, byte for byte as first returned."""
    budget: str
    """A workbook with the same question, whose fields can be changed."""
    list: str
    """The list of all scenarios."""


SUMMARY = (
    "gpu", "gpus", "verdict", "device_peak_bytes", "usable_bytes", "step_seconds", "gpu_hours", "cost_usd",
)  # fmt: skip
VERSIONS = ("formulas", "catalogue", "calibration")
HEAD = tuple(name for name in field_names(Scenario) if name not in {*SUMMARY, *VERSIONS})

ShownScenario = Annotated[
    Any,
    Variant(
        Scenario,
        "Scenario",
        "A named question with its answer.",
        required=(*HEAD, QUESTION, "summary", "versions", "links"),
        only=HEAD,
        more={
            QUESTION: Annotated[Any, Published("QuestionRequest")],
            "summary": Annotated[
                Any,
                Variant(Scenario, "ScenarioSummary", "Summary of the answer.", required=SUMMARY, only=SUMMARY),
            ],
            "versions": Annotated[
                Any,
                Variant(Scenario, "ScenarioVersions", "Versions behind the answer.", required=VERSIONS, only=VERSIONS),
            ],
            "links": ScenarioLinks,
        },
    ),
]
