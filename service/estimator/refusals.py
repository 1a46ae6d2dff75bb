"""The field, message and fix of every code that the estimator refuses a question with."""

from dataclasses import dataclass

from service.errors import Problem
from service.estimator.tables import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Texts of one code: format strings over named words; those of a rule are over its subject and division too."""

    field: str
    message: str
    """What is wrong and why it matters."""
    fix: str
    """What to do."""


REFUSALS = Table(__package__, "refusals.json", "refusals", dict[str, Refusal])
"""By code."""


def refusal(code: str, **words: object) -> Problem:
    """The problem of a code, its texts filled with words."""
    row = REFUSALS[code]
    field, message, fix = (text.format(**words) for text in (row.field, row.message, row.fix))
    return Problem(field=field, code=code, message=message, fix=fix)
