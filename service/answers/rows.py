"""Rows of comparisons and of tables of varied fields, and answers of single cells."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from annotated_types import Len

from service.answers.estimates import Versions
from service.answers.names import INLINE, NUMBERS, Described, component, mapping_of_fields
from service.estimator.answer import Verdict
from service.estimator.question import Documented

MOST_ROWS = 1_000
"""Most rows of a comparison, and of a table of varied fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowProblem(Documented):
    """One thing that keeps a row from being answered."""

    pointer: str
    """JSON pointer of the field in the body."""
    code: str
    """Broken rule, stable."""
    message: str
    """What is wrong and why it matters."""
    fix: str
    """What to do about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenCluster(Documented):
    """A cluster at a price, out of those that were listed."""

    cluster: str | None
    """Its name; null if it has none."""
    gpu: str
    """Catalogue name of its GPU."""
    gpus: int
    """How many of them."""
    usd_per_gpu_hour: float | None
    """Price of one GPU for one hour; null without a price, or where none is rented."""
    provider: str | None
    """Who rents the GPUs out; null unless the catalogue's price is taken."""
    region: str | None
    """Where, in the provider's spelling."""
    price_model: str | None
    """On what terms."""
    instance_type: str | None
    """Which machine, in the provider's spelling."""
    rate_card: str | None
    """The team's own rate card; null unless its rate is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRow(ChosenCluster):
    """The job on one cluster at one price."""

    price_as_of: str | None
    """Date of the price; null where it is not known."""
    status: Literal[200, 422]
    """200: answered. 422: refused, for the reason beside it."""
    verdict: Verdict | None
    """Whether the job fits. Numbers of a job that does not are hypothetical; null where the row is refused."""
    numbers: Annotated[Mapping[str, Any], NUMBERS] = field(default_factory=dict, metadata=INLINE)
    """The requested numbers; the answer has them in the row itself."""
    reason: str | None
    """Why the row is refused, in one line of at most 255 characters; null where it is answered."""
    errors: tuple[RowProblem, ...]
    """The same, one entry for each thing to mend; empty where it is answered."""
    warnings: tuple[str, ...]
    """Warnings for the caller."""
    assumptions: tuple[str, ...]
    """Assumptions of the answer."""
    id: str | None
    """Of the estimate; null where the row is refused."""


VARIED_FIELDS = Described(component("VariedFields", mapping_of_fields("Varied fields, each with its value.")))


@dataclass(frozen=True, slots=True, kw_only=True)
class VariedRow(Documented):
    """The question with some fields given anew."""

    values: Annotated[Mapping[str, Any], VARIED_FIELDS]
    """Every varied field, with its value in this row."""
    varied: tuple[str, ...]
    """Those that differ from the question; empty in the first row, which is the question itself."""
    status: Literal[200, 422]
    """200: answered. 422: refused, for the reason beside it."""
    verdict: Verdict | None
    """Whether the job fits; null where the row is refused."""
    numbers: Annotated[Mapping[str, Any], NUMBERS] = field(default_factory=dict, metadata=INLINE)
    """The requested numbers; the answer has them in the row itself."""
    ratios: Mapping[str, float | None]
    """Each number over that of the first row; null where either is not known, or the first is 0."""
    reason: str | None
    """Why the row is refused, in one line of at most 255 characters; null where it is answered."""
    errors: tuple[RowProblem, ...]
    """The same, one entry for each thing to mend; empty where it is answered."""
    warnings: tuple[str, ...]
    """Warnings for the caller."""
    id: str | None
    """Of the estimate; null where the row is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonAnswer:
    """The same job on many clusters, at many prices."""

    rows: Annotated[tuple[ComparedRow, ...], Len(0, MOST_ROWS)]
    """Those that fit, then those that do not, then those without an answer."""
    sort_by: str
    """Number by which the rows are sorted."""
    descending: bool
    """Whether the largest comes first."""
    versions: Versions
    """What the answers rest on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SensitivityAnswer:
    """A question and its variations."""

    fields: tuple[str, ...]
    """The varied fields."""
    rows: Annotated[tuple[VariedRow, ...], Len(0, MOST_ROWS)]
    """The question itself, then one row for each value."""
    versions: Versions
    """What the answers rest on."""


ANY_VALUE = Described(
    {
        "anyOf": [
            *({"type": kind} for kind in ("string", "number", "boolean", "object", "null")),
            {"type": "array", "items": {}},
        ]
    }
)
"""Marks a value of any field of a question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedField(Documented):
    """A field that differs between two questions."""

    field: str
    """Its dotted name; the name of the part where the part changes as a whole."""
    before: Annotated[Any, ANY_VALUE]
    """Its value in the first question, filled where it was not given."""
    after: Annotated[Any, ANY_VALUE]
    """Its value in the second question, likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceEnd(Documented):
    """One of the two questions that are compared."""

    id: str
    """Of the estimate."""
    verdict: Verdict
    """Whether the job fits."""
    numbers: Annotated[Mapping[str, Any], NUMBERS] = field(default_factory=dict, metadata=INLINE)
    """The requested numbers; the answer has them in the object itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionChange(Documented):
    """What one change costs, made after those before it."""

    fields: tuple[ChangedField, ...]
    """What changes; several fields where the question has no answer between them."""
    deltas: Mapping[str, float | None]
    """Each number after this change less the number before it; null where either is not known."""
    verdict: Verdict
    """Whether the job fits after this change."""
    numbers: Annotated[Mapping[str, Any], NUMBERS] = field(default_factory=dict, metadata=INLINE)
    """The requested numbers after this change; the answer has them in the object itself."""
    id: str
    """Of the estimate after this change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceAnswer:
    """What changed between two questions, and what each change costs."""

    before: DifferenceEnd
    """The first question."""
    after: DifferenceEnd
    """The second question."""
    deltas: Mapping[str, float | None]
    """Each number of the second question less that of the first: the sum of those of the changes."""
    changes: tuple[QuestionChange, ...]
    """Changes in the order in which they are made: model, recipe, cluster, layout, price."""
    versions: Versions
    """What the answers rest on."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One number as a cell shows it."""

    text: str
    """The number, nothing else."""
    unit: str
    """Its unit."""
    verdict: Verdict
    """Whether the job fits; the value alone does not show it."""
