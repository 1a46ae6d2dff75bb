"""Terminal report of a diagnosis."""

from functools import partial

from service.answers.diagnoses import Diagnosis
from service.cli.console import table
from service.units import BYTES, in_units

MOST_LINES = 8
"""Lines of the estimate that are shown. Source: a choice; the most different come first."""


def diagnosis_report(found: Diagnosis) -> str:
    """A diagnosis as a person reads it."""
    when = "" if found.moment is None else f" ({found.step or 'some'} step, {found.moment})"
    blocks = [f"{found.cause.replace('_', ' ')}{when}, confidence {found.confidence}: {found.reason}"]
    totals = [(one.quantity, one.said_bytes, one.predicted_bytes) for one in found.totals]
    lines = [(one.kind, one.likely_bytes, one.predicted_bytes) for one in found.lines[:MOST_LINES]]
    blocks += [
        "\n".join([title, *_table([(_words(name), _b(first), _b(second)) for name, first, second in rows])])
        for title, rows in (("Said, and predicted", totals), ("Likely, and predicted", lines))
        if rows
    ]
    lists = {
        "Asked for was": [f"{one.tensor} ({_b(one.bytes)})" for one in found.tensors],
        "What to do": found.suggestions,
        "Warnings": found.warnings,
    }
    blocks += ["\n".join([title, *(f"  {line}" for line in items)]) for title, items in lists.items() if items]
    return "\n\n".join(blocks)


_table = partial(table, has_header=False, right={1, 2}, indent="  ")


def _words(name: str) -> str:
    return name.removesuffix("_bytes").replace("_", " ")


def _b(amount: float) -> str:
    return in_units(amount, BYTES)
