"""Reports of measurements, accuracy and finished jobs as text and CSV."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING

from service.cli.reports import csv_of_rows, ends, in_bytes, in_seconds, sections, versions_line
from service.cli.tables import table
from service.units import readable

if TYPE_CHECKING:
    from service.answers.accuracy import (
        Accuracy,
        AccuracyPoint,
        BenchmarkRuns,
        MeasuredAccuracy,
        Revealed,
        Scoreboard,
        TotalsAccuracy,
        TotalsGroup,
        TotalsRow,
        VerdictCounts,
    )
    from service.answers.diagnoses import ReconciledJob, Reconciliation
    from service.features.checks.audit import JobAudit

JOB_HOURS = "predicted_gpu_hours"
JOB_HEADER = ("job", "state", "GPUs", "used GPU-h", "predicted GPU-h", "used/predicted", "inside")
INSIDE = {True: "yes", False: "no", None: "-"}


def reconciliation_csv(reconciled: Reconciliation) -> str:
    from service.answers.diagnoses import ReconciledJob

    names = tuple(field.name for field in fields(ReconciledJob))
    return csv_of_rows(names, (JOB_HOURS,), ([getattr(job, name) for name in names] for job in reconciled.jobs))


def reconciliation_report(reconciled: Reconciliation) -> str:
    """Reconciled jobs as text: a table, totals, and the jobs left out with reasons."""
    blocks = ["\n".join(table([JOB_HEADER, *map(_job_cells, reconciled.jobs)]))] if reconciled.jobs else []
    ratio, wrong = reconciled.median_used_over_predicted_fraction, reconciled.verdicts_wrong
    if ratio is None:
        blocks.append("no job's hours can be compared with a prediction")
    else:
        verdicts = f"; {wrong} completed that were predicted to run out of memory" if wrong else ""
        blocks.append(
            f"{reconciled.compared} compared: {reconciled.inside} inside the predicted interval, used over predicted "
            f"{ratio:.3g} in the median{verdicts}"
        )
    ids: dict[str, list[str]] = {}
    for job in reconciled.jobs:
        if job.note:
            ids.setdefault(job.note, []).append(job.job_id)
    named = {note: ", ".join(of[:5]) + (f" and {len(of) - 5} more" if len(of) > 5 else "") for note, of in ids.items()}
    faults = [f"{one.place}, {one.field or 'the record'}: {one.message}; {one.fix}" for one in reconciled.faults]
    if reconciled.faults_left_off:
        faults.append(f"and {reconciled.faults_left_off} more")
    lists = {
        "Notes on jobs": [f"{jobs}: {note}" for note, jobs in named.items()],
        "Left out": [f"{one.jobs} jobs: {one.message}; {one.fix}" for one in reconciled.left_out],
        "Not read": faults,
    }
    return "\n\n".join([*blocks, *sections(lists)])


def _job_cells(job: ReconciledJob) -> tuple[str, ...]:
    hours, ratio = job.predicted_gpu_hours, job.used_over_predicted_fraction
    return (
        f"{job.cluster}:{job.job_id}" if job.cluster else job.job_id,
        job.state,
        str(job.gpus),
        readable(job.used_gpu_hours),
        "-" if hours is None else f"{readable(hours.value)} ({readable(hours.low)} to {readable(hours.high)})",
        "-" if ratio is None else f"{ratio:.3g}",
        INSIDE[job.is_inside],
    )


AUDIT_HEADER = ("job", "state", "GPUs", "verdict", "reason")


def audit_report(audited: JobAudit) -> str:
    """Recorded jobs as text, those that would have been denied first, and totals."""
    order = ("deny", "warn", "unknown", "ok")
    jobs = sorted(audited.jobs, key=lambda one: order.index(one.verdict))
    rows = [
        (one.job, one.state or "-", "-" if one.gpus is None else str(one.gpus), one.verdict, one.reason) for one in jobs
    ]
    counts = ", ".join(f"{audited.verdicts.get(verdict, 0)} {verdict}" for verdict in order)
    lists = {
        "Not judged": [f"{count} {code}" for code, count in sorted(audited.not_judged.items())],
        "Notes": [
            *_audit_note(audited.denied_but_completed, "would have been denied, and completed: read their reasons"),
            *_audit_note(audited.passed_over, "without GPUs, made by other objects, or of kinds that are not read"),
            *_audit_note(audited.unreadable, "records cannot be read"),
        ],
    }
    head = ["\n".join(table([AUDIT_HEADER, *rows]))] if rows else []
    return "\n\n".join([*head, f"{len(jobs)} jobs: {counts}", *sections(lists)])


def _audit_note(count: int, text: str) -> tuple[str, ...]:
    return (f"{count} {text}",) if count else ()


MEASURED_HEADER = ("device", "probe", "quantity", "calibration", "counted", "quarantined", "MAPE", "median", "bias")
TOTALS_HEADER = ("id", "model", "published", "low", "predicted", "high", "error", "inside", "question")

MEMORY_NOTE = "* the estimator has constants from it; GiB off: median and 95th percentile of the errors of small values"
STEP_NOTE = (
    "held out: by constants and intervals fitted without the source (MoE: the model); constant MFU, 6PD: mean error "
    "of one utilisation of each GPU, held out likewise"
)


HELD_OUT_NOTE = (
    "by constants and intervals fitted without the source; other methods: one utilisation of each GPU, held out "
    "likewise, and other tools where they can be asked"
)
IN_SAMPLE_NOTE = "In sample: figures by the constants that are served, some of which come from these sources (*)."


def accuracy_text(accuracy: Accuracy) -> str:
    """Accuracy of memory and step time against measurements as text: held out first, in sample below."""
    blocks = {**_held_out_blocks(accuracy.held_out), **_in_sample_blocks(accuracy)}
    return "\n\n".join([*sections(blocks, ""), versions_line(accuracy.versions)])


def _held_out_blocks(board: Scoreboard) -> dict[str, list[str]]:
    from service.evaluation.tables import HELD_OUT_HEADER, held_out_cells

    if not board.classes:
        return {}
    return {
        "Held out, by class of question": [
            *table([HELD_OUT_HEADER, *map(held_out_cells, board.classes)]),
            "",
            HELD_OUT_NOTE,
        ],
        "Held out, by source": table([HELD_OUT_HEADER, *map(held_out_cells, board.sources)]),
        "Farthest off, held out": [f"  {_point_line(point)}" for point in board.worst],
        "GPU-hours of MLPerf Training, for the samples that each run took": _mlperf_lines(board.mlperf),
    }


RUNS_HEADER = ("organisation", "system", "benchmark", "GPUs", "measured", "low", "predicted", "high", "error", "inside")


def _mlperf_lines(mlperf: BenchmarkRuns | None) -> list[str]:
    from service.evaluation.tables import percent

    if mlperf is None:
        return []
    lines = [
        f"  {score.benchmark}: {score.scored} of {score.runs} submissions state their configuration, mean error "
        f"{percent(score.mape_fraction)}, median {percent(score.median_fraction)}, "
        f"bias {percent(score.bias_fraction, signed=True)}, {percent(score.coverage80_fraction, digits=0)} inside"
        for score in mlperf.scores
    ]
    rows = [
        (
            *(run.organisation, run.system, run.benchmark, str(run.gpus), readable(run.measured_gpu_hours)),
            *("-" if one is None else readable(one) for one in ends(run.gpu_hours)),
            run.reason or percent(run.error_fraction, signed=True),
            INSIDE[run.is_inside],
        )
        for run in mlperf.runs
    ]
    return [*lines, "", *table([RUNS_HEADER, *rows])]


def _point_line(point: AccuracyPoint) -> str:
    amount = in_bytes if point.unit == "bytes" else in_seconds
    why = "" if point.known_difference is None else f"; {point.known_difference}"
    figures = f"{amount(point.measured)} measured, {amount(point.predicted)} predicted"
    return f"{point.id} ({point.quantity}, {point.memory_class}): {figures}, {100 * point.error_fraction:+.1f} %{why}"


def _in_sample_blocks(accuracy: Accuracy) -> dict[str, list[str]]:
    from service.evaluation.tables import HEADER, memory_lines

    memory = [group for group in accuracy.groups if group.quantity != "step"]
    groups = [line for group in (*memory, accuracy.all) for line in memory_lines(group)]
    verdicts = {"all rows": accuracy.verdicts, "stated in full": accuracy.verdicts.full_config}
    return {
        IN_SAMPLE_NOTE: [*table([HEADER, *groups]), "", MEMORY_NOTE],
        "Not scored, by reason": _counts(accuracy.all.not_expressible),
        "Verdicts": [f"  {name}: {_verdicts(counts)}" for name, counts in verdicts.items()],
        "Wrong verdicts": [
            f"  {row.id} ({row.outcome}, predicted {row.verdict}): {row.reason}" for row in accuracy.verdicts.wrong
        ],
        "Farthest off": [
            f"  {row.id} ({row.quantity}, {row.memory_class}): {in_bytes(row.measured_bytes)} measured, "
            f"{100 * row.error_fraction:+.1f} %; {row.reason}"
            for row in accuracy.rows_worst
        ],
        **_step_blocks(accuracy),
        "Measured by workers": measured_lines(accuracy.measured),
    }


def _counts(reasons: Mapping[str, int]) -> list[str]:
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    return [f"  {count:5d}  {reason}" for reason, count in ordered]


def _verdicts(counts: VerdictCounts) -> str:
    kinds = f"{counts.ran_fits} fit, {counts.ran_at_risk} at risk, {counts.ran_out_of_memory} out of memory"
    beyond = f"{counts.ran_beyond_margin} by more than 2 %"
    roomy = f"{counts.roomy_at_risk} of {counts.roomy} below 85 % of the memory at risk"
    unscored = sum(counts.ran_out_not_expressible.values())
    out = f"{counts.ran_out} ran out: {counts.ran_out_told} predicted, {unscored} not expressible"
    return f"{counts.ran} ran: {kinds} ({beyond}), {roomy}; {out}"


def _step_blocks(accuracy: Accuracy) -> dict[str, list[str]]:
    from service.evaluation.tables import STEP_HEADER, step_cells_of, step_groups

    groups = step_groups(accuracy)
    if not groups:
        return {}
    reasons: Counter[str] = Counter()
    for group in groups[: len(groups) - len(accuracy.steps)]:
        reasons.update(group.not_expressible)
    worst = []
    for row in accuracy.steps_worst:
        parts = ", ".join(f"{part.kind} {part.seconds:.4g} s" for part in row.parts)
        measured = f"{row.measured_seconds:.4g} s measured, {100 * row.error_fraction:+.1f} %"
        worst.append(f"  {row.id} ({row.step_class}): {measured}; {parts}; {row.reason}")
    return {
        "Steps stated in full": [*table([STEP_HEADER, *map(step_cells_of, groups)]), "", STEP_NOTE],
        "Steps not scored, by reason": _counts(reasons),
        "Steps farthest off": worst,
    }


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
    rows = []
    for group in accuracy.own or ():
        errors = (group.mape_fraction, group.median_fraction, group.bias_fraction)
        names = (group.device, group.probe, group.quantity, group.calibration or "-")
        percents = ("-" if error is None else f"{error:.1%}" for error in errors)
        rows.append((*names, str(group.measurements), str(group.quarantined), *percents))
    return [*lines, *(table([MEASURED_HEADER, *rows]) if rows else [])]


REVEALED_HEADER = ("class", "rows", "median", "MAPE", "bias", "p90", "in 80 %")


def revealed_text(revealed: Revealed) -> str:
    """Predictions beside what was measured, as text."""
    from service.evaluation.tables import percent

    rows = [
        (
            one.memory_class,
            str(one.scored),
            percent(one.median_fraction),
            percent(one.mape_fraction),
            percent(one.bias_fraction, signed=True),
            percent(one.p90_fraction),
            percent(one.coverage80_fraction, digits=0),
        )
        for one in revealed.classes
    ]
    blocks = {
        f"Predicted by formulas {revealed.formulas}, digest {revealed.predictions_digest[:16]}": table(
            [REVEALED_HEADER, *rows]
        ),
        "Rows": [f"  {_point_line(point)}" for point in revealed.points],
        "Not scored": [f"  {one.id}: {one.reason}" for one in revealed.refused],
    }
    return "\n\n".join(sections(blocks, ""))


def totals_text(totals: TotalsAccuracy) -> str:
    """GPU-hours of published runs and their predictions as text, in intervals that never saw their source."""
    main = [row for row in totals.rows if row.describes_main_run]
    others = [row for row in totals.rows if not row.describes_main_run and row.is_inside is not None]
    left_out = [row for row in totals.rows if row.is_inside is None]
    blocks = {
        "GPU-hours of main runs": table([TOTALS_HEADER, *map(_totals_cells, main)], indent="  "),
        "Other runs, scored separately": table([TOTALS_HEADER, *map(_totals_cells, others)], indent="  "),
        "Not compared": [f"  {row.id} {row.model}: {row.reason}; {row.decided}" for row in left_out],
        "Sum": [f"  {group.name}: {_group_summary(group)}" for group in (totals.main_runs, totals.beside)],
    }
    return "\n\n".join(sections(blocks, ""))


def _totals_cells(row: TotalsRow) -> tuple[str, ...]:
    hours = ["-" if one is None else readable(one) for one in (row.published_gpu_hours, *ends(row.held_out_gpu_hours))]
    error = "-" if row.error_fraction is None else f"{100 * row.error_fraction:+.0f} %"
    assumed = f"; not published: {', '.join(row.assumed)}" if row.assumed else ""
    return row.id, row.model, *hours, error, INSIDE[row.is_inside_held_out], f"{row.layout or row.reason}{assumed}"


def _group_summary(group: TotalsGroup) -> str:
    if group.held_out_inside_fraction is None or group.mape_fraction is None or group.bias_fraction is None:
        return f"{group.rows} rows, none compared"
    return (
        f"{group.held_out_inside} of {group.scored} compared inside an interval that never saw their source "
        f"({100 * group.held_out_inside_fraction:.0f} %; {group.inside} inside the one that is answered), "
        f"{group.rows} rows in all, MAPE {100 * group.mape_fraction:.0f} %, "
        f"bias {100 * group.bias_fraction:+.0f} %"
    )
