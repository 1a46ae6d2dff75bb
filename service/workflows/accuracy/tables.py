"""How do people read the accuracy answer? A table for a terminal, one for the README, one row a measurement as CSV."""

import csv
import io
from collections.abc import Iterable, Sequence

from service.tabular.cell_text import marked
from service.units import BYTES, said
from service.workflows.accuracy.answers import Accuracy, Figures, Group, VerdictCounts, WorstRow
from service.workflows.accuracy.judged import Judged
from service.workflows.accuracy.measured_tables import measured_lines
from service.workflows.accuracy.step_tables import step_blocks, step_cells, step_markdown
from service.workflows.accuracy.table_cells import aligned, percent

ROW_COLUMNS = (
    "id", "source_key", "quantity", "class", "measured_bytes", "low_bytes", "value_bytes", "high_bytes",
    "error_fraction", "verdict", "outcome", "reason",
    "measured_seconds", "low_seconds", "value_seconds", "high_seconds", "figure", "told", "nearly",
)  # fmt: skip
"""Columns of the file with one row a figure."""

NO_SECONDS = ("",) * 7
"""Cells of a row of memory in the columns of steps."""

HEADER = (
    "quantity",
    "source",
    "class",
    "model",
    "rows",
    "scored",
    "MAPE",
    "median",
    "bias",
    "p95",
    "in 80 %",
    "GiB off",
)

STARRED = "* gave constants to the estimator; GiB off: median and 95th percentile of the errors of small values"
"""What stands below the table."""

GIB = float(1 << 30)


def accuracy_text(found: Accuracy) -> str:
    """The answer as a person reads it in a terminal.

    Args:
        found: the answer

    Returns:
        lines of text, the last one without a line break
    """
    memory = [group for group in found.groups if group.quantity != "step"]
    groups = [line for group in (*memory, found.all) for line in _lines_of(group)]
    reasons = sorted(found.all.not_expressible.items(), key=lambda item: (-item[1], item[0]))
    verdicts = {"all rows": found.verdicts, "told in full": found.verdicts.full_config}
    blocks = {
        "": [*aligned([HEADER, *groups]), "", STARRED],
        "Not scored, by reason": [f"  {count:5d}  {reason}" for reason, count in reasons],
        "Verdicts": [f"  {name}: {_verdicts(counts)}" for name, counts in verdicts.items()],
        "Wrong verdicts": [
            f"  {row.id} ({row.outcome}, said {row.verdict}): {row.reason}" for row in found.verdicts.wrong
        ],
        "Farthest off": [_worst(row) for row in found.rows_worst],
        **step_blocks(found),
        "Measured by workers": measured_lines(found.measured),
        f"formulas {found.versions.formulas}, catalogue {found.versions.catalogue}": [],
    }
    return "\n\n".join("\n".join([title, *lines] if title else lines) for title, lines in blocks.items())


def _worst(row: WorstRow) -> str:
    measured, error = said(row.measured_bytes, BYTES), f"{100 * row.error_fraction:+.1f} %"
    return f"  {row.id} ({row.quantity}, {row.memory_class}): {measured} measured, {error}; {row.reason}"


def accuracy_markdown(found: Accuracy) -> str:
    """The short table of the README: rows told in full.

    Args:
        found: the answer

    Returns:
        Markdown, ending in a line break
    """
    rows = []
    for group in (*(group for group in found.groups if group.quantity != "step"), found.all):
        told = group.full_config
        if told.rows:
            cells = (*_names(group), *_figures(told), _gib(told.small))
            rows.append(f"| {' | '.join(cells)} |\n")
    head = f"| {' | '.join(HEADER)} |\n|{'---|' * len(HEADER)}\n"
    return f"{head}{''.join(rows)}\n{step_markdown(found)}"


def rows_csv(judged: Iterable[Judged]) -> str:
    """One row a figure: what was measured, what is predicted, the verdict, or why there is no comparison.

    Args:
        judged: what became of each row

    Returns:
        CSV
    """
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(ROW_COLUMNS)
    writer.writerows(map(_cells, judged))
    return written.getvalue()


def _cells(one: Judged) -> Sequence[object]:
    if one.quantity == "step":
        return step_cells(one)
    found, compared = one.interval, one.comparison
    predicted = ("", "", "") if found is None else (round(found.low), round(found.value), round(found.high))
    return (
        marked(one.row.text("id")),
        marked(one.row.text("source_key")),
        one.quantity,
        one.figure_class,
        "" if one.measured is None else round(one.measured),
        *predicted,
        "" if compared is None else f"{compared.error_fraction:.6f}",
        "" if one.predicted is None else one.predicted.verdict,
        marked(one.row.text("outcome")),
        marked(one.reason),
        *NO_SECONDS,
    )


def _lines_of(group: Group) -> list[tuple[str, ...]]:
    """The line of a group, and below it those of its rows told in full where they are not all or not of one size."""
    told = group.full_config
    parts: list[tuple[str, Figures]] = []
    if told.small.scored:
        parts = [("told in full, large", told.large), ("told in full, small", told.small)]
    elif 0 < told.rows < group.rows:
        parts = [("told in full", told)]
    below = [
        ("", "", "", name, *_figures(part), _gib(told.small) if part is told.small else "") for name, part in parts
    ]
    return [(*_names(group), *_figures(group), _gib(group.small)), *below]


def _figures(figures: Figures) -> tuple[str, ...]:
    return (str(figures.rows), str(figures.scored), *_fractions(figures))


def _names(group: Group) -> tuple[str, str, str, str]:
    kind = {None: "all", True: "MoE", False: "dense"}[group.moe]
    return group.quantity, f"{group.source_key}{' *' if group.in_sample else ''}", group.memory_class, kind


def _fractions(figures: Figures) -> tuple[str, ...]:
    return (
        percent(figures.mape_fraction),
        percent(figures.median_fraction),
        percent(figures.bias_fraction, signed=True),
        percent(figures.p95_fraction),
        percent(figures.coverage80_fraction, digits=0),
    )


def _gib(figures: Figures) -> str:
    if figures.median_bytes is None or figures.p95_bytes is None:
        return "-"
    return f"{figures.median_bytes / GIB:.3f}, {figures.p95_bytes / GIB:.3f}"


def _verdicts(counts: VerdictCounts) -> str:
    kinds = f"{counts.ran_fits} fit, {counts.ran_at_risk} at risk, {counts.ran_out_of_memory} out of memory"
    beyond = f"{counts.ran_beyond_margin} by more than 2 %"
    roomy = f"{counts.roomy_at_risk} of {counts.roomy} below 85 % of the memory at risk"
    untold = sum(counts.ran_out_not_expressible.values())
    out = f"{counts.ran_out} ran out: {counts.ran_out_told} told, {untold} not expressible"
    return f"{counts.ran} ran: {kinds} ({beyond}), {roomy}; {out}"
