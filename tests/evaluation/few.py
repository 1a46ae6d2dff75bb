"""Some of the shipped rows in place of all of them, for tests of what is done with their accuracy."""

from functools import cache

import pytest

from service.calibration import tables
from service.calibration.tables import FormName, MeasuredRow
from service.evaluation import accuracy

STEP = 20
"""Every twentieth row is one of them."""


def ship_few(monkeypatch: pytest.MonkeyPatch) -> dict[FormName, tuple[MeasuredRow, ...]]:
    """Let the package ship few rows while a test runs, and return them by form."""
    forms: tuple[FormName, ...] = ("memory", "throughput")
    few = {form: tables.shipped_rows(form)[::STEP] for form in forms}

    def shipped_rows(form: FormName = "memory") -> tuple[MeasuredRow, ...]:
        return few[form]

    for module in (tables, accuracy):
        monkeypatch.setattr(module, "shipped_rows", shipped_rows)
    for name in ("shipped_accuracy", "_shipped"):
        monkeypatch.setattr(accuracy, name, cache(getattr(accuracy, name).__wrapped__))
    return few
