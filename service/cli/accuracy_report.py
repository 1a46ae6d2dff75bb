"""Terminal reports of accuracy: memory and step time against measurements, GPU-hours against published runs."""

from collections import Counter
from collections.abc import Mapping, Sequence

from service.answers.accuracy import (
    Accuracy,
    MeasuredAccuracy,
    OwnGroup,
    TotalsAccuracy,
    TotalsGroup,
    TotalsRow,
    VerdictCounts,
    WorstRow,
    WorstStep,
)
from service.cli.console import table
from service.evaluation.tables import HEADER, STEP_HEADER, memory_lines, step_cells_of, step_groups
from service.units import BYTES, in_units, readable

MEASURED_HEADER = ("device", "probe", "quantity", "calibration", "counted", "quarantined", "MAPE", "median", "bias")
TOTALS_HEADER = ("id", "model", "published", "low", "predicted", "high", "error", "inside", "question")

MEMORY_NOTE = "* gave constants to the estimator; GiB off: median and 95th percentile of the errors of small values"
STEP_NOTE = (
    "held out: by constants and intervals that never saw the source (of MoE: the model); constant MFU, 6PD: mean error "
    "of one utilisation of each GPU, held out likewise"
)


def accuracy_text(accuracy: Accuracy) -> str:
    """Accuracy of memory and step time as text for a terminal."""
    memory = [group for group in accuracy.groups if group.quantity != "step"]
    groups = [line for group in (*memory, accuracy.all) for line in memory_lines(group)]
    verdicts = {"all rows": accuracy.verdicts, "stated in full": accuracy.verdicts.full_config}
    blocks = {
        "Not scored, by reason": _counts(accuracy.all.not_expressible),
        "Verdicts": [f"  {name}: {_verdicts(counts)}" for name, counts in verdicts.items()],
        "Wrong verdicts": [
            f"  {row.id} ({row.outcome}, predicted {row.verdict}): {row.reason}" for row in accuracy.verdicts.wrong
        ],
        "Farthest off": [_worst(row) for row in accuracy.rows_worst],
        **_step_blocks(accuracy),
        "Measured by workers": measured_lines(accuracy.measured),
        f"formulas {accuracy.versions.formulas}, catalogue {accuracy.versions.catalogue}": [],
    }
    head = "\n".join([*table([HEADER, *groups]), "", MEMORY_NOTE])
    return "\n\n".join([head, *("\n".join([title, *lines]) for title, lines in blocks.items())])


def _counts(reasons: Mapping[str, int]) -> list[str]:
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    return [f"  {count:5d}  {reason}" for reason, count in ordered]


def _worst(row: WorstRow) -> str:
    measured, error = in_units(row.measured_bytes, BYTES), f"{100 * row.error_fraction:+.1f} %"
    return f"  {row.id} ({row.quantity}, {row.memory_class}): {measured} measured, {error}; {row.reason}"


def _verdicts(counts: VerdictCounts) -> str:
    kinds = f"{counts.ran_fits} fit, {counts.ran_at_risk} at risk, {counts.ran_out_of_memory} out of memory"
    beyond = f"{counts.ran_beyond_margin} by more than 2 %"
    roomy = f"{counts.roomy_at_risk} of {counts.roomy} below 85 % of the memory at risk"
    unscored = sum(counts.ran_out_not_expressible.values())
    out = f"{counts.ran_out} ran out: {counts.ran_out_told} predicted, {unscored} not expressible"
    return f"{counts.ran} ran: {kinds} ({beyond}), {roomy}; {out}"


def _step_blocks(accuracy: Accuracy) -> dict[str, list[str]]:
    groups = step_groups(accuracy)
    if not groups:
        return {}
    reasons: Counter[str] = Counter()
    for group in groups[: len(groups) - len(accuracy.steps)]:
        reasons.update(group.not_expressible)
    return {
        "Steps stated in full": [*table([STEP_HEADER, *map(step_cells_of, groups)]), "", STEP_NOTE],
        "Steps not scored, by reason": _counts(reasons),
        "Steps farthest off": [_worst_step(row) for row in accuracy.steps_worst],
    }


def _worst_step(row: WorstStep) -> str:
    parts = ", ".join(f"{part.kind} {part.seconds:.4g} s" for part in row.parts)
    measured = f"{row.measured_seconds:.4g} s measured, {100 * row.error_fraction:+.1f} %"
    return f"  {row.id} ({row.step_class}): {measured}; {parts}; {row.reason}"


def measured_lines(accuracy: MeasuredAccuracy) -> list[str]:
    """Accuracy on workers' measurements as text."""
    peaks, products = accuracy.counted_peaks, accuracy.products
    lines = []
    if peaks.mape_fraction is not None and peaks.largest_fraction is not None:
        lines.append(
            f"  live tensors of {len(peaks.rows)} counted steps: {peaks.mape_fraction:.1%} off on average, "
            f"{peaks.largest_fraction:.1%} at most"
        )
    if products is not None:
        lines.append(
            f"  {products.products} matrix products on {products.device} ({products.threads} threads): "
            f"{products.held_out_fraction:.1%} off where the other half of the shapes was measured, "
            f"{products.before_fraction:.1%} before; two runs are {products.noise_fraction:.1%} apart"
        )
    return [*lines, *(table([MEASURED_HEADER, *map(_measured_cells, accuracy.own)]) if accuracy.own else [])]


def _measured_cells(group: OwnGroup) -> tuple[str, ...]:
    errors = (group.mape_fraction, group.median_fraction, group.bias_fraction)
    names = (group.device, group.probe, group.quantity, group.calibration or "-")
    percents = ("-" if error is None else f"{error:.1%}" for error in errors)
    return (*names, str(group.measurements), str(group.quarantined), *percents)


def totals_text(totals: TotalsAccuracy) -> str:
    """GPU-hours of published runs beside predictions as text for a terminal."""
    main = [row for row in totals.rows if row.describes_main_run]
    others = [row for row in totals.rows if not row.describes_main_run and row.is_inside is not None]
    left_out = [row for row in totals.rows if row.is_inside is None]
    blocks = {
        "GPU-hours of main runs": _totals_table(main),
        "Beside them, counted apart": _totals_table(others),
        "Not compared": [f"  {row.id} {row.model}: {row.reason}; {row.decided}" for row in left_out],
        "Sum": [_group_summary(group) for group in (totals.main_runs, totals.beside)],
    }
    return "\n\n".join("\n".join([title, *lines]) for title, lines in blocks.items())


def _totals_table(rows: Sequence[TotalsRow]) -> list[str]:
    return table([TOTALS_HEADER, *map(_totals_cells, rows)], indent="  ")


def _totals_cells(row: TotalsRow) -> tuple[str, ...]:
    hours, published = row.gpu_hours, row.published_gpu_hours
    predicted = ("-", "-", "-") if hours is None else (readable(hours.low), readable(hours.value), readable(hours.high))
    error = "-" if row.error_fraction is None else f"{100 * row.error_fraction:+.0f} %"
    inside = {None: "-", True: "yes", False: "no"}[row.is_inside]
    assumed = f"; not published: {', '.join(row.assumed)}" if row.assumed else ""
    published_text = "-" if published is None else readable(published)
    return row.id, row.model, published_text, *predicted, error, inside, f"{row.layout or row.reason}{assumed}"


def _group_summary(group: TotalsGroup) -> str:
    if group.inside_fraction is None or group.mape_fraction is None or group.bias_fraction is None:
        return f"  {group.name}: {group.rows} rows, none compared"
    return (
        f"  {group.name}: {group.inside} of {group.scored} compared inside the interval "
        f"({100 * group.inside_fraction:.0f} %; {group.held_out_inside} inside one that never saw their source), "
        f"{group.rows} rows in all, MAPE {100 * group.mape_fraction:.0f} %, "
        f"bias {100 * group.bias_fraction:+.0f} %"
    )
