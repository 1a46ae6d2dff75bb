"""Error styles: problems are worded for JSON bodies, and rephrased for query strings and command lines."""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from service.errors import Problem
from service.validation.flat import flat_fields, flat_name

EXAMPLE = re.compile(r'(?<=e\.g\. )(?:\{.*\}|"[^"]*")')
"""JSON example in a fix."""


@dataclass(frozen=True, slots=True)
class ErrorStyle:
    """Notation of fields with values."""

    between: str
    """Separator of two fields."""
    before: str
    """Prefix of a name."""
    assigns: str
    """Separator of a name and its value."""
    word_mark: str
    """Separator of the words of a name."""

    def name(self, field: str) -> str:
        """The name of a field in this style."""
        return self.before + field.replace("_", self.word_mark)

    def fields(self, values: Mapping[str, Any]) -> str:
        """Fields with values in this style."""
        return self.between.join(f"{self.name(field)}{self.assigns}{value}" for field, value in values.items())


QUERY = ErrorStyle(between="&", before="", assigns="=", word_mark="_")
COMMAND_LINE = ErrorStyle(between=" ", before="--", assigns=" ", word_mark="-")


def rephrased(problem: Problem, style: ErrorStyle, beside: Collection[str] = ()) -> Problem:
    """A problem for a caller who did not send JSON."""
    field = flat_name(problem.field)
    named = style.name(field) if field in flat_fields() or field in beside else field
    return replace(problem, field=named, fix=EXAMPLE.sub(lambda shown: _shown(shown[0], field, style), problem.fix))


def _shown(text: str, field: str, style: ErrorStyle) -> str:
    value = json.loads(text)
    return style.fields(value if isinstance(value, dict) else {field: value})
