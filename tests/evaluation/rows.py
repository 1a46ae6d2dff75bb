"""Rows for tests: one of the shipped ones, with some cells changed."""

import json
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from service.calibration import tables
from service.calibration.tables import FormName, MeasuredRow, shipped_rows
from service.evaluation import scoreboard, shipped

ROWS = {row.text("id"): row for row in shipped_rows()}

STEPS = {row.text("id"): row for row in shipped_rows("throughput")}

DENSE = "M-megatron_functional-0012"
"""GPT-3 7B of Megatron-LM's functional tests, split over 4 tensor ranks."""


def row_of(name: str = DENSE, **cells: str) -> MeasuredRow:
    """A shipped row, with some cells changed."""
    row = ROWS[name]
    return replace(row, cells={**row.cells, **cells})


def step_of(name: str, **cells: str) -> MeasuredRow:
    """A shipped row of throughput, with some cells changed."""
    row = STEPS[name]
    return replace(row, cells={**row.cells, **cells})


def with_flags(name: str = DENSE, **flags: Any) -> MeasuredRow:
    """A shipped row of Megatron-LM with more options, their hyphens written as underscores; None takes one away."""
    held = json.loads(ROWS[name].text("extra_config_json"))
    held |= {flag.replace("_", "-"): value for flag, value in flags.items()}
    return row_of(name, extra_config_json=json.dumps({flag: v for flag, v in held.items() if v is not None}))


STEP = 20
"""Every twentieth row is one of them."""


def ship_few(monkeypatch: pytest.MonkeyPatch) -> dict[FormName, tuple[MeasuredRow, ...]]:
    """Let the package ship few rows while a test runs, and return them by form."""
    forms: tuple[FormName, ...] = ("memory", "throughput")
    few = {form: tables.shipped_rows(form)[::STEP] for form in forms}

    def shipped_rows(form: FormName = "memory") -> tuple[MeasuredRow, ...]:
        return few[form]

    for module in (tables, scoreboard, shipped):
        monkeypatch.setattr(module, "shipped_rows", shipped_rows)
    for module in (scoreboard, shipped):
        monkeypatch.setattr(module, "_shipped", cache(module._shipped.__wrapped__))
    return few
