"""Error styles: a fix worded for a JSON body, a query string or a command line.

Problems are worded for bodies; who asked in the flat form is answered in it.
"""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from service.errors import Problem
from service.validation.flat import flat_fields, flat_name

EXAMPLE = re.compile(r'(?<=e\.g\. )(?:\{.*\}|"[^"]*")')
"""JSON that a fix shows."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """How fields with values are written."""

    between: str
    """What stands between two of them."""
    before: str
    """What stands before a name."""
    assigns: str
    """What stands between a name and its value."""
    word_mark: str
    """What stands between the words of a name."""

    def name(self, field: str) -> str:
        """A field as it is written."""
        return self.before + field.replace("_", self.word_mark)

    def fields(self, values: Mapping[str, Any]) -> str:
        """Fields with values as they are written."""
        return self.between.join(f"{self.name(field)}{self.assigns}{value}" for field, value in values.items())


QUERY = Dialect(between="&", before="", assigns="=", word_mark="_")
COMMAND_LINE = Dialect(between=" ", before="--", assigns=" ", word_mark="-")


def rephrased(problem: Problem, dialect: Dialect, beside: Collection[str] = ()) -> Problem:
    """A problem for a caller who did not send JSON."""
    field = flat_name(problem.field)
    named = dialect.name(field) if field in flat_fields() or field in beside else field
    return replace(problem, field=named, fix=EXAMPLE.sub(lambda shown: _shown(shown[0], field, dialect), problem.fix))


def _shown(text: str, field: str, dialect: Dialect) -> str:
    value = json.loads(text)
    return dialect.fields(value if isinstance(value, dict) else {field: value})
