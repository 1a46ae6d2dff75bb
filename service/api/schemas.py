"""The component schemas of the contract: generated from the same dataclasses that read questions and hold answers."""

import json
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from service.answers.checks import Check
from service.answers.diagnoses import Diagnosis
from service.answers.estimates import (
    Answer,
    FlopAnswer,
    GpuHoursAnswer,
    Grounds,
    MemoryAnswer,
    MethodAnswer,
    TimelineAnswer,
)
from service.answers.exports import Export, ExportTarget, Imported
from service.answers.names import WIRE_NAMES
from service.answers.plans import PlanAnswer
from service.answers.reconciliations import Reconciliation
from service.answers.rows import ChosenCluster, ComparedRow, VariedRow
from service.answers.solutions import Solution
from service.api.batch_schemas import batch_schemas
from service.api.comparison_schemas import comparison_schemas
from service.api.json_schema import Schema, untitled
from service.api.partial_schemas import partial_schemas, questions_inside
from service.api.plan_schemas import plan_schemas
from service.api.request_schemas import request_schemas
from service.api.sensitivity_schemas import sensitivity_schemas
from service.api.solve_schemas import solve_schemas
from service.estimator.methods.answer import Comparison
from service.estimator.parameters import ParameterCounts
from service.exports.back.slurm_job import SlurmJob
from service.workflows.accuracy.answers import (
    Accuracy,
    Figures,
    Group,
    RelativeErrors,
    Sized,
    VerdictCounts,
    Verdicts,
)
from service.workflows.accuracy.totals import TotalsAccuracy
from service.workflows.check_body import Waiting
from service.workflows.places import PLACES
from service.workflows.price_import import ImportReport
from service.workflows.scheduled_checks import JudgedJob

ANSWERED = (
    Grounds,
    Answer,
    MemoryAnswer,
    FlopAnswer,
    GpuHoursAnswer,
    TimelineAnswer,
)
"""What estimating answers hold; first what all of them share, whose docstrings pydantic does not inherit."""

COMPARED = (Comparison, MethodAnswer)
"""What another tool says, and the answer that holds it, whose docstrings pydantic does not inherit either."""

OTHERS = (
    Accuracy, Check, ComparedRow, Diagnosis, Export, ExportTarget, Imported, ImportReport, JudgedJob, ParameterCounts,
    PlanAnswer, Reconciliation, Solution, TotalsAccuracy, VariedRow,
)  # fmt: skip
"""What other answers hold."""


INHERITING = (
    (ComparedRow, ChosenCluster),
    (Figures, RelativeErrors),
    (Sized, Figures),
    (Group, Sized),
    (Verdicts, VerdictCounts),
)
"""Classes of other answers whose fields are partly another's, whose docstrings pydantic does not inherit."""


class WireSchema(GenerateJsonSchema):
    """JSON schema as answers really look: no defaults, every field there, FLOP counts as doubles."""

    def field_title_should_be_set(self, schema: object) -> bool:  # noqa: ARG002 - pydantic calls it so
        """No titles: they would only repeat the field names."""
        return False

    def field_is_required(self, field: Any, total: bool) -> bool:  # noqa: FBT001 - pydantic calls it so
        """Every field of an answer is always there."""
        return self.mode == "serialization" or super().field_is_required(field, total)

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """An answer has no defaults."""
        inner = super().default_schema(schema)
        return {k: v for k, v in inner.items() if k != "default"} if self.mode == "serialization" else inner


def component_schemas() -> dict[str, Schema]:
    """Every schema that estimating requests and answers refer to.

    Returns:
        JSON schemas by component name
    """
    asked = _all_of(*(noun for _, noun in PLACES), Waiting, SlurmJob)
    answered = _all_of(*ANSWERED, *COMPARED, *OTHERS)
    _, document = TypeAdapter.json_schemas(
        [("asked", "validation", asked), ("answered", "serialization", answered)],
        schema_generator=WireSchema,
        ref_template="#/components/schemas/{model}",
    )
    generated: dict[str, Schema] = document["$defs"]
    spelled = {name: _as_on_the_wire(schema) for name, schema in generated.items()}
    for base, *kinds_of_it in (ANSWERED, COMPARED):
        shared = spelled.pop(base.__name__)["properties"]
        for kind in kinds_of_it:
            spelled[kind.__name__]["properties"] |= shared
    for heir, ancestor in INHERITING:
        spelled[heir.__name__]["properties"] |= spelled[ancestor.__name__]["properties"]
    requests = request_schemas(spelled)
    versions = spelled["Check"]["properties"]["versions"]
    requests |= partial_schemas(spelled | requests)
    requests |= plan_schemas(spelled, requests["QuestionRequest"])
    requests |= comparison_schemas(spelled["ComparedRow"], versions)
    requests |= sensitivity_schemas(spelled | requests, versions)
    requests |= solve_schemas(requests["ComparisonRequest"]["properties"])
    requests |= batch_schemas()
    del spelled["Nodes"], spelled["Waiting"], spelled["SlurmJob"]
    for name, fields in questions_inside(spelled).items():
        spelled[name]["properties"] |= fields
    return {name: _defaults_in_words(untitled(schema)) for name, schema in (spelled | requests).items()}


def _all_of(*kinds: type) -> TypeAdapter[Any]:
    """Every kind at once: each class that several of them hold is read once."""
    return TypeAdapter(tuple[kinds])  # type: ignore[valid-type]  # known at run time


def _as_on_the_wire(schema: Schema) -> Schema:
    """A dataclass's schema with the field names and number types that `to_wire` gives it."""
    properties = {WIRE_NAMES.get(name, name): _as_double(name, s) for name, s in schema.get("properties", {}).items()}
    required = [WIRE_NAMES.get(name, name) for name in schema.get("required", ())]
    return schema | {"properties": properties} | ({"required": required} if required else {})


def _as_double(name: str, schema: Schema) -> Schema:
    if not name.endswith("_flop"):
        return schema
    options = [{"type": "number"} if s.get("type") == "integer" else s for s in schema.get("anyOf", ())]
    return schema | ({"anyOf": options} if options else {"type": "number"})


def _defaults_in_words(schema: Schema) -> Schema:
    """Defaults stand in descriptions: generators of clients take a `default` for a field that is always there."""
    return schema | {"properties": {name: _default_in_words(inner) for name, inner in schema["properties"].items()}}


def _default_in_words(field: Schema) -> Schema:
    default = field.get("default")
    said = {key: value for key, value in field.items() if key != "default"}
    if default in (None, []):
        return said
    words = default if isinstance(default, str) else json.dumps(default)
    return said | {"description": f"{field['description']} Default: {words}."}
