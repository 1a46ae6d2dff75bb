"""Answers of commands as text for a terminal and as CSV."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Protocol

from service.answers.diagnoses import Diagnosis, ReconciledJob, Reconciliation
from service.answers.estimates import Versions
from service.answers.launch_checks import Compared, LaunchCheck, Outlook, ProbeAnswer
from service.answers.plans import KeyNumbers, OptimalSize, PlanAnswer, PlanCounts, PlanRow, Solution
from service.cli.console import sections, table
from service.cli.estimate_report import VERDICTS, layout_in_words
from service.estimator.answer import Interval
from service.estimator.question import Layout, Recompute
from service.features.compare.compare import ANSWERED, Comparison
from service.features.sensitivity.vary import Variations, plain_cell
from service.tabular.lists import csv_text
from service.units import BYTES, SECONDS, dimension_of, in_units, readable
from service.validation.serialization import to_bytes, to_wire


def _versions(versions: Versions) -> str:
    return f"formulas {versions.formulas}, catalogue {versions.catalogue}"


def _with_ends(names: Iterable[str], intervals: Iterable[str]) -> list[str]:
    """Names of columns, where an interval has three."""
    return [end for name in names for end in ((f"{name}.low", name, f"{name}.high") if name in intervals else (name,))]


def _ends(interval: Interval | None) -> tuple[float | None, ...]:
    return (None, None, None) if interval is None else (interval.low, interval.value, interval.high)


def _cell(value: Any) -> str:
    """A value as one cell of a terminal's table; of an interval, its value."""
    if isinstance(value, Mapping):
        value = value["value"]
    if value is None or isinstance(value, str | bool | Sequence):
        return "" if value is None else str(value)
    return str(value) if isinstance(value, int) else readable(value)


OBJECTIVES = {"time": "the fastest", "cost": "the cheapest", "gpus": "the fewest GPUs", "energy": "the least energy"}
"""Ranking criteria in words."""

PLAN_INTERVALS = ("step_seconds", "mfu_fraction", "device_peak_bytes", "days", "gpu_hours", "cost_usd", "energy_kwh")
"""Numbers of a plan that are intervals."""

LAYOUT = tuple(field.name for field in fields(Layout))

PLAN_COLUMNS = (
    "rank", "gpu", "gpus", *LAYOUT, "micro_batch", "global_batch", "recompute", "verdict", *PLAN_INTERVALS,
    "headroom_bytes", "reason",
)  # fmt: skip


def plans_csv(answer: PlanAnswer) -> str:
    """Plans as CSV."""
    return csv_text(_with_ends(PLAN_COLUMNS, PLAN_INTERVALS), map(_plan_cells, answer.plans))


def _plan_cells(row: PlanRow) -> list[Any]:
    layout = (getattr(row.layout, name) for name in LAYOUT)
    plain = [to_bytes(value).decode() if isinstance(value, tuple) else value for value in layout]
    chosen = [row.recipe.micro_batch, row.recipe.global_batch, _recompute(row.recipe.recompute), row.verdict]
    ends = [end for name in PLAN_INTERVALS for end in _ends(getattr(row, name))]
    return [row.rank, row.cluster.gpu, row.cluster.gpus, *plain, *chosen, *ends, row.headroom_bytes, row.reason]


def plans_report(answer: PlanAnswer) -> str:
    """Plans as text."""
    if answer.plans:
        blocks = [_plans_table(answer.plans), f"{OBJECTIVES[answer.objective]} first"]
    elif answer.nearest is not None:
        blocks = [f"no layout fits; the nearest one {_describe_nearest(answer.nearest)}"]
        blocks.append(_plans_table([answer.nearest]))
    else:
        blocks = [
            "layouts fit, but none keeps to the limits" if answer.counts.fitting else "every layout breaks a rule"
        ]
    if answer.why_not is not None:
        blocks.append(f"the layout that was asked after: {answer.why_not.reason}")
    lists = {
        "Refused, by the first rule that is broken": [f"{n:,} {rule}" for rule, n in answer.counts.refused.items()],
        "Assumptions": answer.assumptions,
        "Warnings": answer.warnings,
    }
    return "\n\n".join([*blocks, describe_counts(answer.counts), *sections(lists), _versions(answer.versions)])


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


def _plans_table(rows: Sequence[PlanRow]) -> str:
    """A table of plans; columns without a value are left out."""
    names = ("rank", "gpus", "layout", "micro-batch", "recompute", "step seconds", "MFU", "headroom", "days", "USD")
    cells = [
        (
            str(row.rank),
            f"{row.cluster.gpus:,} x {row.cluster.gpu}",
            layout_in_words(row.layout),
            str(row.recipe.micro_batch),
            _recompute(row.recipe.recompute),
            readable(row.step_seconds.value),
            f"{row.mfu_fraction.value:.1%}",
            in_units(row.headroom_bytes, BYTES),
            *("" if interval is None else readable(interval.value) for interval in (row.days, row.cost_usd)),
        )
        for row in rows
    ]
    columns = [column for column in zip(names, *cells, strict=True) if any(column[1:])]
    return "\n".join(table([*zip(*columns, strict=True)]))


def _recompute(recompute: str | Recompute) -> str:
    if isinstance(recompute, str):
        return recompute
    details = [*recompute.modules, *([f"{recompute.method} {recompute.layers}"] if recompute.layers else [])]
    return " ".join([recompute.granularity, *details])


def solution_report(solution: Solution) -> str:
    """A solved field as text: its value, the next value that fails and why, and the numbers of both."""
    lists = {
        "Changes in the question": [f"{name}: {_value_text(value)}" for name, value in solution.changes.items()],
        "Assumptions": solution.assumptions,
        "Warnings": solution.warnings,
    }
    blocks = ["\n".join(_solution_lines(solution)), "\n".join(_solution_numbers(solution)), *sections(lists)]
    tried = f"{solution.evidence.tried:,} values tried, {_versions(solution.versions)}"
    return "\n\n".join([*filter(None, blocks), tried])


def _solution_lines(solution: Solution) -> Iterator[str]:
    yield f"{solution.unknown}: {'no value will do' if solution.value is None else _value_text(solution.value)}"
    if isinstance(solution.value, OptimalSize):
        yield from (f"  {_value_text(fit)}" for fit in solution.value.fits)
    if solution.next is not None:
        why = solution.next.why_not
        yield f"next: {_value_text(solution.next.value)} will not do: {why.message}{f'; {why.fix}' if why.fix else ''}"


def _solution_numbers(solution: Solution) -> list[str]:
    """Numbers of the value and of the next one, where known."""
    evidence = {"value": solution.evidence.value, "next": solution.evidence.next}
    shown = {head: numbers for head, numbers in evidence.items() if numbers is not None}
    names = [field.name for field in fields(KeyNumbers)]
    rows = [(name, *(_amount_text(name, getattr(numbers, name)) for numbers in shown.values())) for name in names]
    return table([("", *shown), *(row for row in rows if any(row[1:]))]) if shown else []


def _amount_text(name: str, value: Any) -> str:
    if isinstance(value, Interval):
        value = value.value
    if value is None or isinstance(value, str):
        return value or ""
    return in_units(value, dimension_of([name]))


def _value_text(value: Any) -> str:
    """A value as text; an object by its scalar fields."""
    if is_dataclass(value):
        parts = ((field.name, getattr(value, field.name)) for field in fields(value))
        return ", ".join(f"{name} {_value_text(one)}" for name, one in parts if isinstance(one, int | float | str))
    if value is None or isinstance(value, bool):
        return {None: "left out", True: "yes", False: "no"}[value]
    if isinstance(value, float):
        return readable(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


COMPARED = ("cluster", "gpu", "gpus", "usd_per_gpu_hour", "provider", "region", "price_model", "verdict")
"""Columns of a comparison before its numbers; columns without a value are left out."""


def comparison_report(compared: Comparison) -> str:
    """A comparison as text."""
    found = compared.answer
    records = to_wire(found.rows)
    names = [name for name in (*COMPARED, *compared.metrics) if any(_cell(record.get(name)) for record in records)]
    lines = table([names, *([_cell(record.get(name)) for name in names] for record in records)])
    order = f"by {found.sort_by}, the {'largest' if found.descending else 'smallest'} first"
    return "\n".join([*lines, *_reasons(found.rows, start=1), "", f"{order}; {_versions(found.versions)}"])


def table_report(varied: Variations) -> str:
    """A sensitivity table as text."""
    found = varied.answer
    names = [name for name in varied.metrics if any(row.numbers.get(name) is not None for row in found.rows)]
    rows = [
        [
            *(_cell(plain_cell(row.values[name])) for name in found.fields),
            row.verdict or "refused",
            *(_cell(row.numbers.get(name)) for name in names),
        ]
        for row in found.rows
    ]
    return "\n".join([*table([[*found.fields, "verdict", *names], *rows]), *_reasons(found.rows, start=0)])


class _Row(Protocol):
    """A row that was answered or refused."""

    @property
    def status(self) -> object: ...
    @property
    def reason(self) -> str | None: ...


def _reasons(rows: Iterable[_Row], start: int) -> list[str]:
    """Reasons of the refused rows, below an empty line."""
    lines = [f"row {place}: {row.reason}" for place, row in enumerate(rows, start=start) if row.status != ANSWERED]
    return ["", *lines] if lines else []


MOST_LINES = 8
"""Lines of the estimate to show. Source: a choice; the most different come first."""


def diagnosis_report(diagnosis: Diagnosis) -> str:
    """A diagnosis as text."""
    when = "" if diagnosis.moment is None else f" ({diagnosis.step or 'some'} step, {diagnosis.moment})"
    cause = f"{diagnosis.cause.replace('_', ' ')}{when}, confidence {diagnosis.confidence}: {diagnosis.reason}"
    totals = [(one.quantity, one.said_bytes, one.predicted_bytes) for one in diagnosis.totals]
    lines = [(one.kind, one.likely_bytes, one.predicted_bytes) for one in diagnosis.lines[:MOST_LINES]]
    lists = {
        "Reported, and predicted": _amounts(totals),
        "Likely, and predicted": _amounts(lines),
        "Requested": [f"{one.tensor} ({in_units(one.bytes, BYTES)})" for one in diagnosis.tensors],
        "What to do": diagnosis.suggestions,
        "Warnings": diagnosis.warnings,
    }
    return "\n\n".join([cause, *sections(lists)])


def _amounts(rows: Iterable[tuple[str, float, float]]) -> list[str]:
    cells = [
        (name.removesuffix("_bytes").replace("_", " "), *(in_units(one, BYTES) for one in amounts))
        for name, *amounts in rows
    ]
    return table(cells, has_header=False, right={1, 2})


PROBE_COLUMNS = (
    "probe", "operation", "shape", "quantity", "measured", "predicted", "low", "high", "predicted_low",
    "predicted_high", "ratio", "repeats", "count",
)  # fmt: skip

MOST_SHOWN = 12
"""Measurements of one probe in the report. Source: a choice; --csv and --json list all."""


def describe_event(name: str, data: str) -> Iterator[str]:
    """Lines that describe an event."""
    if name != "progress":
        yield name
        return
    for probe in json.loads(data)["data"].get("probes", ()):
        if probe.get("status") == "running":
            yield f"{probe.get('probe')} {float(probe.get('done_fraction') or 0):.0%}"


def launch_check_csv(check: LaunchCheck) -> str:
    """Measurements of a launch check as CSV."""
    return csv_text(PROBE_COLUMNS, (_probe_cells(probe, one) for probe in check.probes for one in probe.measurements))


def _probe_cells(probe: ProbeAnswer, one: Compared) -> tuple[object, ...]:
    low, predicted, high = _ends(one.predicted)
    return (
        probe.probe, one.operation, _shape(one), one.quantity, one.measured.value, predicted, one.measured.low,
        one.measured.high, low, high, one.ratio, one.measured.repeats, one.count,
    )  # fmt: skip


def launch_check_report(check: LaunchCheck) -> str:
    """A launch check as text."""
    reasons = [f"  {one.verdict}: {one.message}; {one.fix}" for one in check.reasons]
    before, after = check.estimate.before, check.estimate.after
    estimates = [f"before: {_describe_outlook(before)}"]
    if after is not None:
        estimates.append(f"after:  {_describe_outlook(after)}")
    lists = {
        "Estimate": estimates,
        "At full depth, on one device": list(_depths(check)),
        "Assumptions": [f"- {one}" for one in check.assumptions],
    }
    head = "\n".join([_launch_verdict(check), *reasons])
    return "\n\n".join([head, *map(_probe, check.probes), *sections(lists), check.id])


def _launch_verdict(check: LaunchCheck) -> str:
    if check.verdict is None:
        return f"{check.status}{f': {check.error}' if check.error else ''}"
    device = "" if check.environment is None else f" on {check.environment.device}"
    return f"{check.verdict}: {check.status}{device}"


def _probe(probe: ProbeAnswer) -> str:
    took = "" if probe.seconds is None else f", {in_units(probe.seconds, SECONDS)}"
    head = f"{probe.probe}: {probe.status}{took}{f' ({probe.reason})' if probe.reason else ''}"
    rows = []
    for one in probe.measurements[:MOST_SHOWN]:
        predicted = "" if one.predicted is None else f"predicted {_measured(one.quantity, one.predicted.value)}"
        ratio = "" if one.ratio is None else f"x {readable(one.ratio)}"
        rows.append((one.operation, _shape(one), _measured(one.quantity, one.measured.value), predicted, ratio))
    more = len(probe.measurements) - len(rows)
    return "\n".join([head, *table(rows, has_header=False, indent="  "), *([f"  and {more} more"] if more > 0 else [])])


def _shape(one: Compared) -> str:
    return " ".join(f"{name}={value}" for name, value in one.shape.items())


def _measured(quantity: str, value: float) -> str:
    if quantity == "seconds":
        return in_units(value, SECONDS)
    return f"{in_units(value, BYTES)}/s" if quantity == "bytes_per_s" else in_units(value, BYTES)


def _describe_outlook(outlook: Outlook) -> str:
    peak, usable = in_units(outlook.device_peak_bytes.value, BYTES), in_units(outlook.usable_bytes, BYTES)
    step = in_units(outlook.step_seconds.value, SECONDS)
    return f"{outlook.verdict}, {peak} of {usable}, {step} a step, MFU {outlook.mfu_fraction.value:.1%}"


def _depths(check: LaunchCheck) -> Iterator[str]:
    for one in check.depths:
        quantity = "seconds" if one.quantity == "step" else "bytes"
        predicted = "" if one.predicted is None else f", predicted {_measured(quantity, one.predicted)}"
        each = f"{_measured(quantity, one.each_layer)} a layer"
        yield f"{one.quantity}: {_measured(quantity, one.measured)} at {one.layers} layers, {each}{predicted}"


JOB_HOURS = "predicted_gpu_hours"
JOB_FIELDS = tuple(field.name for field in fields(ReconciledJob))


def reconciliation_csv(reconciled: Reconciliation) -> str:
    """Reconciled jobs as CSV."""
    rows = ([cell for name in JOB_FIELDS for cell in _job_values(job, name)] for job in reconciled.jobs)
    return csv_text(_with_ends(JOB_FIELDS, (JOB_HOURS,)), rows)


def _job_values(job: ReconciledJob, name: str) -> tuple[Any, ...]:
    return _ends(job.predicted_gpu_hours) if name == JOB_HOURS else (getattr(job, name),)


def reconciliation_report(reconciled: Reconciliation) -> str:
    """Reconciled jobs as text: a table, totals, and left out jobs with reasons."""
    header = ("job", "state", "GPUs", "used GPU-h", "predicted GPU-h", "used/predicted", "inside")
    blocks = ["\n".join(table([header, *map(_job_cells, reconciled.jobs)]))] if reconciled.jobs else []
    blocks.append(_reconciliation_summary(reconciled))
    notes = dict.fromkeys(job.note for job in reconciled.jobs if job.note)
    faults = [f"{one.place}, {one.field or 'the record'}: {one.message}; {one.fix}" for one in reconciled.faults]
    if reconciled.faults_left_off:
        faults.append(f"and {reconciled.faults_left_off} more")
    lists = {
        "Not compared, or to be known": [f"{_jobs_of(reconciled, note)}: {note}" for note in notes],
        "Left out": [f"{one.jobs} jobs: {one.message}; {one.fix}" for one in reconciled.left_out],
        "Not read": faults,
    }
    return "\n\n".join([*blocks, *sections(lists)])


def _reconciliation_summary(reconciled: Reconciliation) -> str:
    ratio = reconciled.median_used_over_predicted_fraction
    if ratio is None:
        return "no job's hours can be compared with a prediction"
    wrong = reconciled.verdicts_wrong
    verdicts = f"; {wrong} completed that were to run out of memory" if wrong else ""
    return (
        f"{reconciled.compared} compared: {reconciled.inside} inside the predicted interval, used over predicted "
        f"{ratio:.3g} in the median{verdicts}"
    )


def _jobs_of(reconciled: Reconciliation, note: str) -> str:
    ids = [job.job_id for job in reconciled.jobs if job.note == note]
    return ", ".join(ids[:5]) + (f" and {len(ids) - 5} more" if len(ids) > 5 else "")


def _job_cells(job: ReconciledJob) -> tuple[str, ...]:
    hours, ratio = job.predicted_gpu_hours, job.used_over_predicted_fraction
    return (
        f"{job.cluster}:{job.job_id}" if job.cluster else job.job_id,
        job.state,
        str(job.gpus),
        readable(job.used_gpu_hours),
        "-" if hours is None else f"{readable(hours.value)} ({readable(hours.low)} to {readable(hours.high)})",
        "-" if ratio is None else f"{ratio:.3g}",
        {True: "yes", False: "no", None: "-"}[job.is_inside],
    )
