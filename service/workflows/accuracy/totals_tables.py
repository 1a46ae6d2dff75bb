"""How do people read the accuracy of whole runs? A line a run and a line a group, for a terminal."""

from collections.abc import Sequence

from service.units import readable
from service.workflows.accuracy.totals import TotalsAccuracy, TotalsGroup, TotalsRow

HEADER = ("id", "model", "published", "low", "predicted", "high", "error", "inside", "asked as")


def totals_text(found: TotalsAccuracy) -> str:
    """The answer as a person reads it in a terminal.

    Args:
        found: the answer

    Returns:
        lines of text, the last one without a line break
    """
    main = [row for row in found.rows if row.describes_main_run]
    others = [row for row in found.rows if not row.describes_main_run]
    blocks = {
        "GPU-hours of main runs": _aligned(main),
        "Beside them, counted apart": _aligned([row for row in others if row.is_inside is not None]),
        "Not compared": [
            f"  {row.id} {row.model}: {row.reason}; {row.decided}" for row in found.rows if row.is_inside is None
        ],
        "Sum": [_group_said(group) for group in (found.main_runs, found.beside)],
    }
    return "\n\n".join("\n".join([title, *lines]) for title, lines in blocks.items())


def _aligned(rows: Sequence[TotalsRow]) -> list[str]:
    cells = [HEADER, *(_cells(row) for row in rows)]
    widths = [max(len(line[place]) for line in cells) for place in range(len(HEADER))]
    return ["  " + "  ".join(map(str.ljust, line, widths)).rstrip() for line in cells]


def _cells(row: TotalsRow) -> tuple[str, ...]:
    hours, published = row.gpu_hours, row.published_gpu_hours
    predicted = ("-", "-", "-") if hours is None else (readable(hours.low), readable(hours.value), readable(hours.high))
    error = "-" if row.error_fraction is None else f"{100 * row.error_fraction:+.0f} %"
    inside = {None: "-", True: "yes", False: "no"}[row.is_inside]
    open_cells = f"; told by no column: {', '.join(row.assumed)}" if row.assumed else ""
    told = "-" if published is None else readable(published)
    return row.id, row.model, told, *predicted, error, inside, f"{row.layout or row.reason}{open_cells}"


def _group_said(group: TotalsGroup) -> str:
    if group.inside_fraction is None or group.mape_fraction is None or group.bias_fraction is None:
        return f"  {group.name}: {group.rows} rows, none compared"
    return (
        f"  {group.name}: {group.inside} of {group.scored} compared inside the interval "
        f"({100 * group.inside_fraction:.0f} %; {group.held_out_inside} inside one that never saw their source), "
        f"{group.rows} rows in all, MAPE {100 * group.mape_fraction:.0f} %, "
        f"bias {100 * group.bias_fraction:+.0f} %"
    )
