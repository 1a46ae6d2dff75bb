"""How do people read the figures of steps? In sample and held out, beside what a single number would say."""

from collections.abc import Sequence

from service.calibration.tables import NotExpressible
from service.tabular.cell_text import marked
from service.workflows.accuracy.answers import Accuracy, Group, StepScores, WorstStep
from service.workflows.accuracy.judged import Judged
from service.workflows.accuracy.steps import figure_of
from service.workflows.accuracy.table_cells import aligned, percent

HEADER = (
    "source", "class", "rows", "told", "scored", "MAPE", "median", "bias", "held out: MAPE", "median", "bias", "p90",
    "in 80 %", "half-width", "class held out", "constant MFU", "6PD",
)  # fmt: skip
"""Columns of the table of steps told in full."""

NOTE = (
    "held out: by constants and intervals that never saw the source (of MoE: the model); constant MFU, 6PD: mean error "
    "of one utilisation of each GPU, held out likewise"
)
"""What stands below the table."""


def step_blocks(found: Accuracy) -> dict[str, list[str]]:
    """The figures of steps for a terminal.

    Args:
        found: the answer

    Returns:
        lines by the title of their block; none where no step was judged
    """
    groups = _groups(found)
    if not groups:
        return {}
    reasons: dict[str, int] = {}
    for group in groups[: len(groups) - len(found.steps)]:
        for reason, count in group.not_expressible.items():
            reasons[reason] = reasons.get(reason, 0) + count
    told = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    return {
        "Steps told in full": [*aligned([HEADER, *map(_cells_of, groups)]), "", NOTE],
        "Steps not scored, by reason": [f"  {count:5d}  {reason}" for reason, count in told],
        "Steps farthest off": [_worst(row) for row in found.steps_worst],
    }


def step_markdown(found: Accuracy) -> str:
    """The figures of steps for the README.

    Args:
        found: the answer

    Returns:
        Markdown, ending in a line break
    """
    rows = [f"| {' | '.join(_cells_of(group))} |\n" for group in _groups(found) if group.full_config.rows]
    return f"| {' | '.join(HEADER)} |\n|{'---|' * len(HEADER)}\n{''.join(rows)}"


def step_cells(one: Judged) -> Sequence[object]:
    """The cells of one step in the file of rows, in the order of its columns.

    Args:
        one: what became of the row

    Returns:
        the cells
    """
    row, compared, interval = one.row, one.comparison, one.interval
    try:
        figure = figure_of(row)
    except NotExpressible:
        figure = ""
    ends = () if interval is None else (interval.low, interval.value, interval.high)
    return (
        marked(row.text("id")),
        marked(row.text("source_key")),
        one.quantity,
        one.figure_class,
        *("",) * 4,
        "" if compared is None else f"{compared.error_fraction:.6f}",
        "" if one.predicted is None else one.predicted.verdict,
        "",
        marked(one.reason),
        "" if one.measured is None else f"{one.measured:.6g}",
        *([f"{end:.6g}" for end in ends] or [""] * 3),
        figure,
        "yes" if one.is_told else "no",
        "; ".join(one.predicted.nearly) if one.predicted else "",
    )


def _groups(found: Accuracy) -> list[Group]:
    return [*(group for group in found.groups if group.quantity == "step"), *found.steps]


def _cells_of(group: Group) -> tuple[str, ...]:
    told, scores = group.full_config, group.step
    own = (percent(told.mape_fraction), percent(told.median_fraction), percent(told.bias_fraction, signed=True))
    source = f"{group.source_key}{' *' if group.in_sample else ''}"
    counts = (str(group.rows), str(told.rows), str(told.scored))
    return (source, group.memory_class, *counts, *own, *_held_out(scores))


def _held_out(scores: StepScores | None) -> tuple[str, ...]:
    if scores is None:
        return ("-",) * 9
    errors = scores.held_out
    return (
        percent(errors.mape_fraction),
        percent(errors.median_fraction),
        percent(errors.bias_fraction, signed=True),
        percent(errors.p90_fraction),
        percent(errors.coverage80_fraction, digits=0),
        percent(scores.half_width_fraction, digits=0),
        ", ".join(scores.held_out_classes) or "-",
        percent(scores.constant_mfu.mape_fraction),
        percent(scores.six_pd.mape_fraction),
    )


def _worst(row: WorstStep) -> str:
    parts = ", ".join(f"{part.kind} {part.seconds:.4g} s" for part in row.parts)
    measured = f"{row.measured_seconds:.4g} s measured, {100 * row.error_fraction:+.1f} %"
    return f"  {row.id} ({row.step_class}): {measured}; {parts}; {row.reason}"
