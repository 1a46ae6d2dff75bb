"""Dataclasses that request bodies spell, each with its place, and all field names of bodies."""

from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import get_args, get_type_hints

from service.catalogue import Row
from service.exports.back.slurm_job import SlurmJob
from service.planner.solve_limits import SolveLimits
from service.workflows.check_body import BESIDE, Launch
from service.workflows.columns import columns_of
from service.workflows.comparison_label import COMPARED
from service.workflows.limits import Limits
from service.workflows.nouns import field_names
from service.workflows.plan_label import CLUSTERS, WHY_NOT, PlanLimits, PlanManner
from service.workflows.question_parts import ASKED
from service.workflows.scenario_label import FIELDS
from service.workflows.sensitivity_label import VARIED_BY
from service.workflows.solve_label import SERVING, SOLVED_FROM, Serving
from service.workflows.strict_json import FIELD_NAMES
from service.workflows.sweep_label import LISTS, ROWS, SweepManner, SweepPlan

PLACES = (
    *ASKED,
    ("limits", Limits),
    ("limits", PlanLimits),
    ("limits", SolveLimits),
    ("launch", Launch),
    (SERVING, Serving),
    ("plan", PlanManner),
)
"""Part of any request body, and a noun that spells it."""


def _names_in(noun: type) -> Iterator[str]:
    """The fields of a noun and of the nouns inside it."""
    hints = get_type_hints(noun)
    for name in field_names(noun):
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
        *FIELDS,
        *(CLUSTERS, WHY_NOT),
        *COMPARED,
        *SOLVED_FROM,
        *VARIED_BY,
        *(*LISTS, ROWS, *field_names(SweepManner), *field_names(SweepPlan)),
        *(name for part, noun in PLACES for name in (part, *_names_in(noun))),
        *(column.name for row in get_args(Row) for column in columns_of(row)),
    )
)
