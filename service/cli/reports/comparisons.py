"""Terminal report of a comparison."""

from collections.abc import Mapping, Sequence
from typing import Any

from service.cli.console import table
from service.features.compare.compare import ANSWERED, Comparison
from service.units import readable
from service.validation.serialization import to_wire

SHOWN = ("cluster", "gpu", "gpus", "usd_per_gpu_hour", "provider", "region", "price_model", "verdict")
"""What a person reads of a row before its numbers; columns that hold nothing are left out."""


def comparison_report(compared: Comparison) -> str:
    """A comparison as a person reads it in a terminal."""
    records = to_wire(compared.rows)
    names = [name for name in (*SHOWN, *compared.metrics) if any(_text(record.get(name)) for record in records)]
    lines = table([names, *([_text(record.get(name)) for name in names] for record in records)])
    reasons = [
        f"row {place}: {row.reason}" for place, row in enumerate(compared.rows, start=1) if row.status != ANSWERED
    ]
    order = f"by {compared.sort_by}, the {'largest' if compared.descending else 'smallest'} first"
    versions = f"formulas {compared.versions.formulas}, catalogue {compared.versions.catalogue}"
    return "\n".join([*lines, *(["", *reasons] if reasons else []), "", f"{order}; {versions}"])


def _text(value: Any) -> str:
    """A value as one cell of the terminal's table: of an interval its value."""
    if isinstance(value, Mapping):
        value = value["value"]
    if value is None or isinstance(value, str | bool | Sequence):
        return "" if value is None else str(value)
    return str(value) if isinstance(value, int) else readable(value)
