"""Tables of the accuracy answer for the README and as CSV, and the files that the package ships."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path

from service import calibration
from service.answers.accuracy import Accuracy, AccuracyPoint, Figures, Group, HeldOutScore, StepScores
from service.answers.names import WIRE_NAMES
from service.calibration import steps
from service.calibration.steps import FittedSteps, step_spreads
from service.calibration.tables import FORMS, NotExpressible, read_measured_rows, shipped_rows, trimmed_table
from service.catalogue import Catalogue
from service.errors import StartupError
from service.estimator.time.step import StepClass
from service.evaluation.scoring import Evaluation, evaluate_rows, figure_of, shipped_seconds, step_rows_of
from service.source_tree import write_generated
from service.tabular.csv_text import marked
from service.tabular.lists import csv_text


def percent(share: float | None, *, digits: int = 1, signed: bool = False) -> str:
    """A share as a percentage.

    >>> percent(0.123), percent(-0.5, signed=True), percent(None)
    ('12.3 %', '-50.0 %', '-')
    """
    return "-" if share is None else f"{100 * share:{'+' if signed else ''}.{digits}f} %"


HELD_OUT_HEADER = (
    "quantity", "source", "class", "rows", "median", "MAPE", "bias", "p90", "in 80 %", "half-width",
    "other methods on the same rows: MAPE",
)  # fmt: skip
"""Columns of the scoreboard."""


def held_out_cells(score: HeldOutScore) -> tuple[str, ...]:
    """Cells of a held-out score, in the order of HELD_OUT_HEADER; rows that another method lacks are counted."""
    others = [
        f"{one.name} {percent(one.mape_fraction)}"
        + ("" if one.scored == score.scored else f" of {one.scored} (ours {percent(one.ours_mape_fraction)})")
        for one in score.others
    ]
    return (
        score.quantity,
        score.source_key,
        score.memory_class,
        str(score.scored),
        percent(score.median_fraction),
        percent(score.mape_fraction),
        percent(score.bias_fraction, signed=True),
        percent(score.p90_fraction),
        percent(score.coverage80_fraction, digits=0),
        percent(score.half_width_fraction, digits=0),
        ", ".join(others),
    )


STEP_HEADER = (
    "source", "class", "rows", "told", "scored", "MAPE", "median", "bias", "held out: MAPE", "median", "bias", "p90",
    "in 80 %", "half-width", "class held out", "constant MFU", "6PD",
)  # fmt: skip
"""Columns of the table of steps whose configuration is stated in full."""


def step_groups(accuracy: Accuracy) -> list[Group]:
    """The groups of step times."""
    return [*(group for group in accuracy.groups if group.quantity == "step"), *accuracy.steps]


def step_cells_of(group: Group) -> tuple[str, ...]:
    """Cells of a group of step times, in the order of STEP_HEADER."""
    complete, scores = group.full_config, group.step
    errors = (
        percent(complete.mape_fraction),
        percent(complete.median_fraction),
        percent(complete.bias_fraction, signed=True),
    )
    source = f"{group.source_key}{' *' if group.in_sample else ''}"
    counts = (str(group.rows), str(complete.rows), str(complete.scored))
    return (source, group.memory_class, *counts, *errors, *_held_out(scores))


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


ROW_COLUMNS = (
    "id", "source_key", "quantity", "class", "measured_bytes", "low_bytes", "value_bytes", "high_bytes",
    "error_fraction", "verdict", "outcome", "reason",
    "measured_seconds", "low_seconds", "value_seconds", "high_seconds", "figure", "told", "nearly",
)  # fmt: skip

HEADER = (
    "quantity", "source", "class", "model", "rows", "scored", "MAPE", "median", "bias", "p95", "in 80 %", "GiB off",
)  # fmt: skip


GIB = float(1 << 30)


def accuracy_markdown(accuracy: Accuracy) -> str:
    """Short tables of the README, over rows whose configuration is stated in full: held out first."""
    rows = []
    for group in (*(group for group in accuracy.groups if group.quantity != "step"), accuracy.all):
        complete = group.full_config
        if complete.rows:
            cells = (*_names(group), *_figures(complete), _gib(complete.small))
            rows.append(f"| {' | '.join(cells)} |\n")
    held_out = [f"| {' | '.join(held_out_cells(score))} |\n" for score in accuracy.held_out.classes]
    held_out_head, head, steps_head = (
        f"| {' | '.join(names)} |\n|{'---|' * len(names)}\n" for names in (HELD_OUT_HEADER, HEADER, STEP_HEADER)
    )
    groups = (group for group in step_groups(accuracy) if group.full_config.rows)
    steps_rows = [f"| {' | '.join(step_cells_of(group))} |\n" for group in groups]
    blocks = [(held_out_head, held_out), (head, rows), (steps_head, steps_rows)]
    return "\n".join(f"{first}{''.join(lines)}" for first, lines in blocks)


def rows_csv(evaluations: Iterable[Evaluation]) -> str:
    """CSV with one row for each figure: measured, predicted and verdict, or the reason why they are not compared."""
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow(ROW_COLUMNS)
    writer.writerows(map(_cells, evaluations))
    return output.getvalue()


def points_csv(points: Sequence[AccuracyPoint]) -> str:
    """CSV with one row for each held-out point, its columns those of `GET /v1/accuracy/points.csv`."""
    names = [field.name for field in fields(AccuracyPoint)]
    return csv_text(
        (WIRE_NAMES.get(name, name) for name in names), ([getattr(point, name) for name in names] for point in points)
    )


def _cells(evaluation: Evaluation) -> Sequence[object]:
    row, compared, predicted = evaluation.row, evaluation.comparison, evaluation.predicted
    is_step = evaluation.quantity == "step"
    ends = (getattr(evaluation.interval, name, None) for name in ("low", "value", "high"))
    amounts = ["" if one is None else f"{one:.6g}" if is_step else round(one) for one in (evaluation.measured, *ends)]
    return (
        marked(row.text("id")),
        marked(row.text("source_key")),
        evaluation.quantity,
        evaluation.figure_class,
        *([""] * 4 if is_step else amounts),
        "" if compared is None else f"{compared.error_fraction:.6f}",
        "" if predicted is None else predicted.verdict,
        "" if is_step else marked(row.text("outcome")),
        marked(evaluation.reason),
        *([*amounts, *_step_details(evaluation)] if is_step else [""] * 7),
    )


def _step_details(evaluation: Evaluation) -> tuple[str, str, str]:
    """Column of a step's figure, whether its configuration is stated in full, and details that are left out."""
    try:
        figure = figure_of(evaluation.row)
    except NotExpressible:
        figure = ""
    is_complete = "yes" if evaluation.is_complete else "no"
    return figure, is_complete, "; ".join(evaluation.predicted.unmodelled) if evaluation.predicted else ""


def memory_lines(group: Group) -> list[tuple[str, ...]]:
    """Line of a group, then lines for its rows stated in full, if these are fewer or of two sizes."""
    complete = group.full_config
    parts: list[tuple[str, Figures]] = []
    if complete.small.scored:
        parts = [("stated in full, large", complete.large), ("stated in full, small", complete.small)]
    elif 0 < complete.rows < group.rows:
        parts = [("stated in full", complete)]
    below = [
        ("", "", "", name, *_figures(part), _gib(complete.small) if part is complete.small else "")
        for name, part in parts
    ]
    return [(*_names(group), *_figures(group), _gib(group.small)), *below]


def _figures(figures: Figures) -> tuple[str, ...]:
    return (
        str(figures.rows),
        str(figures.scored),
        percent(figures.mape_fraction),
        percent(figures.median_fraction),
        percent(figures.bias_fraction, signed=True),
        percent(figures.p95_fraction),
        percent(figures.coverage80_fraction, digits=0),
    )


def _names(group: Group) -> tuple[str, str, str, str]:
    kind = {None: "all", True: "MoE", False: "dense"}[group.moe]
    return group.quantity, f"{group.source_key}{' *' if group.in_sample else ''}", group.memory_class, kind


def _gib(figures: Figures) -> str:
    if figures.median_bytes is None or figures.p95_bytes is None:
        return "-"
    return f"{figures.median_bytes / GIB:.3f}, {figures.p95_bytes / GIB:.3f}"


README = Path(calibration.__file__).with_name("README.md")

PUBLISHED = Path(calibration.__file__).parent / "published" / "memory.csv"
"""The shipped memory rows; other tables have the name of their form in the same folder."""

HELD_OUT = Path(calibration.__file__).parent / steps.FILE

BEGIN, END = "<!-- figures -->\n", "<!-- end of figures -->\n"
"""Comments that enclose the generated table."""


def readme_with(text: str, accuracy: Accuracy) -> str:
    """The text of the README with the figures of an answer."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise StartupError(f"{README.name} has no place for the table: {BEGIN.strip()} and {END.strip()} are gone")
    return f"{before}{BEGIN}\n{accuracy_markdown(accuracy)}\n{END}{after}"


def write_accuracy(accuracy: Accuracy) -> Path:
    """Write the figures into the README."""
    return write_generated(README, lambda: readme_with(README.read_text(encoding="utf-8"), accuracy).encode())


def write_measurements(content: bytes) -> Path:
    """Write the rows of a table into the package, with the used columns only."""
    rows = read_measured_rows(content)
    form = next(form for form in FORMS if not rows or form.name == rows[0].form)
    return write_generated(PUBLISHED.with_name(f"{form.name}.csv"), lambda: trimmed_table(rows, form).encode())


def write_held_out(catalogue: Catalogue) -> tuple[Path, dict[StepClass, float]]:
    """Fit without each source in turn, predict its steps, and write the predictions into the package."""
    evaluations = evaluate_rows(shipped_rows("throughput"), catalogue)
    rows = step_rows_of(evaluations)
    model = FittedSteps()
    model.fit(rows)
    predicted = steps.held_out_seconds(rows, model)
    withheld = steps.held_out_seconds(rows, model, withholds=True)
    text = steps.held_out_text(predicted, withheld, shipped_seconds(evaluations))
    return write_generated(HELD_OUT, text.encode), step_spreads(rows, steps.rounded(predicted), steps.rounded(withheld))
