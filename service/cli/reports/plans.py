"""Plans as JSON, CSV or terminal lines."""

import csv
import io
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Literal

from service.answers.plans import PlanAnswer, PlanCounts, PlanRow
from service.cli.console import table
from service.cli.reports.estimates import VERDICTS, layout_in_words
from service.estimator.answer import Interval
from service.estimator.question import Layout, Recompute
from service.tabular.lists import cell_text
from service.units import BYTES, in_units, readable
from service.validation.serialization import to_bytes

OBJECTIVES = {"time": "the fastest", "cost": "the cheapest", "gpus": "the fewest GPUs", "energy": "the least energy"}
"""Ranking criteria in words."""

INTERVALS = ("step_seconds", "mfu_fraction", "device_peak_bytes", "days", "gpu_hours", "cost_usd", "energy_kwh")
"""Numbers of a plan that are intervals."""

FIRST = ("rank", "gpu", "gpus")
LAYOUT = tuple(field.name for field in fields(Layout))


def format_plans(answer: PlanAnswer, form: Literal["json", "csv", "report"]) -> str | bytes:
    """Format plans for a terminal."""
    if form == "json":
        return to_bytes(answer)
    return plans_csv(answer) if form == "csv" else plans_report(answer)


def plans_csv(answer: PlanAnswer) -> str:
    """Plans as CSV without cells that a spreadsheet runs as formulas."""
    text = io.StringIO()
    writer = csv.writer(text)
    ends = [name for number in INTERVALS for name in (f"{number}.low", number, f"{number}.high")]
    writer.writerow(
        [*FIRST, *LAYOUT, "micro_batch", "global_batch", "recompute", "verdict", *ends, "headroom_bytes", "reason"]
    )
    writer.writerows([cell_text(cell) for cell in _cells(row)] for row in answer.plans)
    return text.getvalue()


def plans_report(answer: PlanAnswer) -> str:
    """Plans as text."""
    if answer.plans:
        blocks = [_table(answer.plans), f"{OBJECTIVES[answer.objective]} first"]
    elif answer.nearest is not None:
        blocks = [f"no layout fits; the nearest one {_describe_nearest(answer.nearest)}", _table([answer.nearest])]
    else:
        blocks = [
            "layouts fit, but none keeps to the limits" if answer.counts.fitting else "every layout breaks a rule"
        ]
    if answer.why_not is not None:
        blocks.append(f"the layout that was asked after: {answer.why_not.reason}")
    blocks.append(describe_counts(answer.counts))
    lists = {
        "Refused, by the first rule that is broken": [f"{n:,} {rule}" for rule, n in answer.counts.refused.items()],
        "Assumptions": answer.assumptions,
        "Warnings": answer.warnings,
    }
    blocks += ["\n".join([title, *(f"  {line}" for line in lines)]) for title, lines in lists.items() if lines]
    blocks.append(f"formulas {answer.versions.formulas}, catalogue {answer.versions.catalogue}")
    return "\n\n".join(blocks)


def describe_counts(counts: PlanCounts) -> str:
    """Layout counts in one line."""
    refused = sum(counts.refused.values())
    return (
        f"{counts.generated:,} layouts: {refused:,} break a rule, {counts.scored:,} worked out, {counts.fitting:,} fit"
    )


def _describe_nearest(nearest: PlanRow) -> str:
    """Missing memory of the nearest layout."""
    amount = f"{in_units(abs(nearest.headroom_bytes), BYTES)} on its fullest GPU"
    if nearest.headroom_bytes < 0:
        return f"lacks {amount}"
    if nearest.verdict == "fits":
        return f"leaves {amount}, less than is to stay free"
    return f"{VERDICTS[nearest.verdict]}, with {amount} to spare"


def _table(rows: Sequence[PlanRow]) -> str:
    shown = {
        "rank": [str(row.rank) for row in rows],
        "gpus": [f"{row.cluster.gpus:,} x {row.cluster.gpu}" for row in rows],
        "layout": [layout_in_words(row.layout) for row in rows],
        "micro-batch": [str(row.recipe.micro_batch) for row in rows],
        "recompute": [_recompute(row.recipe.recompute) for row in rows],
        "step seconds": [readable(row.step_seconds.value) for row in rows],
        "MFU": [f"{row.mfu_fraction.value:.1%}" for row in rows],
        "headroom": [in_units(row.headroom_bytes, BYTES) for row in rows],
        "days": [_value(row.days) for row in rows],
        "USD": [_value(row.cost_usd) for row in rows],
    }
    columns = [[name, *cells] for name, cells in shown.items() if any(cells)]
    return "\n".join(table([*zip(*columns, strict=True)]))


def _value(interval: Interval | None) -> str:
    return "" if interval is None else readable(interval.value)


def _recompute(recompute: str | Recompute) -> str:
    if isinstance(recompute, str):
        return recompute
    details = [*recompute.modules, *([f"{recompute.method} {recompute.layers}"] if recompute.layers else [])]
    return " ".join([recompute.granularity, *details])


def _cells(row: PlanRow) -> list[Any]:
    layout = [_plain(getattr(row.layout, name)) for name in LAYOUT]
    intervals = [getattr(row, name) for name in INTERVALS]
    ends = [
        None if interval is None else getattr(interval, end)
        for interval in intervals
        for end in ("low", "value", "high")
    ]
    chosen = [row.recipe.micro_batch, row.recipe.global_batch, _recompute(row.recipe.recompute), row.verdict]
    return [row.rank, row.cluster.gpu, row.cluster.gpus, *layout, *chosen, *ends, row.headroom_bytes, row.reason]


def _plain(value: Any) -> Any:
    """A value as one cell; a list as its JSON."""
    return to_bytes(value).decode() if isinstance(value, tuple) else value
