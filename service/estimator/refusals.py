"""The field, message and fix of every code that the estimator refuses a question with."""

from dataclasses import dataclass

from service.errors import Problem
from service.estimator.tables import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Texts of one code, as format strings. Those of a rule can also name its `subject` and `division`."""

    field: str
    message: str
    """What is wrong and why it matters."""
    fix: str
    """What to do."""


REFUSALS = Table(__package__, "refusals.json", "refusals", dict[str, Refusal])
"""The texts of each code."""


def refusal(code: str, **values: object) -> Problem:
    """The problem of a code, with values filled into its texts."""
    row = REFUSALS[code]
    field, message, fix = (text.format(**values) for text in (row.field, row.message, row.fix))
    return Problem(field=field, code=code, message=message, fix=fix)
