"""Terminal report of a diagnosis."""

from functools import partial

from service.answers.diagnoses import Diagnosis
from service.cli.console import table
from service.units import BYTES, in_units

MOST_LINES = 8
"""Lines of the estimate to show. Source: a choice; the most different come first."""


def diagnosis_report(diagnosis: Diagnosis) -> str:
    """Format a diagnosis for a terminal."""
    when = "" if diagnosis.moment is None else f" ({diagnosis.step or 'some'} step, {diagnosis.moment})"
    blocks = [f"{diagnosis.cause.replace('_', ' ')}{when}, confidence {diagnosis.confidence}: {diagnosis.reason}"]
    totals = [(one.quantity, one.said_bytes, one.predicted_bytes) for one in diagnosis.totals]
    lines = [(one.kind, one.likely_bytes, one.predicted_bytes) for one in diagnosis.lines[:MOST_LINES]]
    blocks += [
        "\n".join([title, *_table([(_words(name), _b(first), _b(second)) for name, first, second in rows])])
        for title, rows in (("Said, and predicted", totals), ("Likely, and predicted", lines))
        if rows
    ]
    lists = {
        "Asked for was": [f"{one.tensor} ({_b(one.bytes)})" for one in diagnosis.tensors],
        "What to do": diagnosis.suggestions,
        "Warnings": diagnosis.warnings,
    }
    blocks += ["\n".join([title, *(f"  {line}" for line in items)]) for title, items in lists.items() if items]
    return "\n\n".join(blocks)


_table = partial(table, has_header=False, right={1, 2}, indent="  ")


def _words(name: str) -> str:
    return name.removesuffix("_bytes").replace("_", " ")


def _b(amount: float) -> str:
    return in_units(amount, BYTES)
