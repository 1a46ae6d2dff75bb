"""Dataclasses that request bodies spell, each with its place, and all field names of bodies."""

from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import get_args, get_type_hints

from service.catalogue import Row
from service.features.checks.schemas import BESIDE, Launch, Limits
from service.features.compare.schemas import COMPARED
from service.features.plans.schemas import PlanLimits, PlanRequest
from service.features.scenarios.schemas import FIELDS
from service.features.sensitivity.schemas import SENSITIVITY_FIELDS
from service.features.solve.schemas import SERVING, SOLVE_FIELDS, Serving
from service.features.sweeps.axes import SweepPlan
from service.features.sweeps.schemas import SweepRequest
from service.formats.launchers.slurm import SlurmJob
from service.planner.feasibility import SolveLimits
from service.tabular.columns import columns_of
from service.validation.json_text import FIELD_NAMES
from service.validation.question_parts import QUESTION_SPECS
from service.validation.specs import field_names

PLACES = (
    *QUESTION_SPECS,
    ("limits", Limits),
    ("limits", PlanLimits),
    ("limits", SolveLimits),
    ("launch", Launch),
    (SERVING, Serving),
)
"""Part of any request body, and the dataclass that defines it."""


def _names_in(kind: type) -> Iterator[str]:
    """The fields of a dataclass and of those inside it."""
    hints = get_type_hints(kind)
    for name in field_names(kind):
        yield name
        for inner in get_args(hints[name]):
            if is_dataclass(inner):
                yield from _names_in(inner)  # type: ignore[arg-type]  # arguments of a type hint are types


FIELD_NAMES.update(
    (
        "preset",
        *BESIDE,
        "question",
        *field_names(SlurmJob),
        "hf_config",
        *field_names(PlanRequest),
        *FIELDS,
        *COMPARED,
        *SOLVE_FIELDS,
        *SENSITIVITY_FIELDS,
        *field_names(SweepRequest),
        *field_names(SweepPlan),
        *(name for part, kind in PLACES for name in (part, *_names_in(kind))),
        *(column.name for row in get_args(Row) for column in columns_of(row)),
    )
)
