"""Answers of commands as JSON, CSV or text for a terminal."""

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any, Literal

from service.answers.diagnoses import Diagnosis
from service.answers.launch_checks import Compared, LaunchCheck, Outlook, ProbeAnswer
from service.answers.plans import PlanAnswer, PlanCounts, PlanRow
from service.answers.reconciliations import ReconciledJob, Reconciliation
from service.answers.rows import VariedRow
from service.answers.solutions import KeyNumbers, OptimalSize, Solution
from service.cli.console import table
from service.cli.estimate_report import VERDICTS, layout_in_words
from service.estimator.answer import Interval
from service.estimator.question import Layout, Recompute
from service.features.compare.compare import ANSWERED, Comparison
from service.features.sensitivity.tables import plain_cell, table_csv, whole_table
from service.features.sensitivity.vary import Variations
from service.tabular.lists import cell_text
from service.units import BYTES, SECONDS, dimension_of, in_units, readable
from service.validation.serialization import to_bytes, to_wire

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


NUMBERS = tuple(field.name for field in fields(KeyNumbers))
"""Numbers of each value, one a line."""


def format_solution(solution: Solution, form: Literal["json", "report"]) -> str | bytes:
    """Format a solution for a terminal."""
    return to_bytes(solution) if form == "json" else solution_report(solution)


def solution_report(solution: Solution) -> str:
    """A solution as text."""
    lists = {
        "Changes in the question": [f"{name}: {_value_text(value)}" for name, value in solution.changes.items()],
        "Assumptions": solution.assumptions,
        "Warnings": solution.warnings,
    }
    blocks = [
        "\n".join(_answer(solution)),
        "\n".join(_numbers(solution)),
        *("\n".join([title, *(f"  {line}" for line in lines)]) for title, lines in lists.items() if lines),
        f"{solution.evidence.tried:,} values tried, formulas {solution.versions.formulas}, catalogue "
        f"{solution.versions.catalogue}",
    ]
    return "\n\n".join(block for block in blocks if block)


def _answer(solution: Solution) -> Iterator[str]:
    yield f"{solution.unknown}: {'no value will do' if solution.value is None else _value_text(solution.value)}"
    if isinstance(solution.value, OptimalSize):
        yield from (f"  {_value_text(fit)}" for fit in solution.value.fits)
    if solution.next is not None:
        why = solution.next.why_not
        yield f"next: {_value_text(solution.next.value)} will not do: {why.message}{f'; {why.fix}' if why.fix else ''}"


def _numbers(solution: Solution) -> list[str]:
    """Numbers of the value and of the next one, where known."""
    evidence = {"value": solution.evidence.value, "next": solution.evidence.next}
    shown = {head: numbers for head, numbers in evidence.items() if numbers is not None}
    rows = [(name, *(_cell(name, getattr(numbers, name)) for numbers in shown.values())) for name in NUMBERS]
    return table([("", *shown), *(row for row in rows if any(row[1:]))]) if shown else []


def _cell(name: str, value: Any) -> str:
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


def table_report(varied: Variations) -> str:
    """A table as a person reads it in a terminal."""
    names = [name for name in varied.metrics if any(row.numbers.get(name) is not None for row in varied.rows)]
    lines = table([[*varied.fields, "verdict", *names], *(_line(varied, row, names) for row in varied.rows)])
    reasons = [f"row {place}: {row.reason}" for place, row in enumerate(varied.rows) if row.status != ANSWERED]
    return "\n".join([*lines, *(["", *reasons] if reasons else [])])


def format_table(varied: Variations, form: Literal["json", "csv", "report"]) -> str | bytes:
    """A table in one of the forms that a terminal shows."""
    if form == "json":
        return to_bytes(whole_table(varied))
    return table_csv(varied) if form == "csv" else table_report(varied)


def _line(varied: Variations, row: VariedRow, names: Sequence[str]) -> list[str]:
    values = [plain_cell(row.values[name]) for name in varied.fields]
    numbers = [row.numbers.get(name) for name in names]
    return [*map(_cell_text, values), row.verdict or "refused", *map(_cell_text, numbers)]


def _cell_text(value: Any) -> str:
    if isinstance(value, Mapping):
        value = value["value"]
    if value is None or isinstance(value, str | bool):
        return "" if value is None else str(value)
    return str(value) if isinstance(value, int) else readable(value)


MOST_LINES = 8
"""Lines of the estimate to show. Source: a choice; the most different come first."""


def diagnosis_report(diagnosis: Diagnosis) -> str:
    """Format a diagnosis for a terminal."""
    when = "" if diagnosis.moment is None else f" ({diagnosis.step or 'some'} step, {diagnosis.moment})"
    blocks = [f"{diagnosis.cause.replace('_', ' ')}{when}, confidence {diagnosis.confidence}: {diagnosis.reason}"]
    totals = [(one.quantity, one.said_bytes, one.predicted_bytes) for one in diagnosis.totals]
    lines = [(one.kind, one.likely_bytes, one.predicted_bytes) for one in diagnosis.lines[:MOST_LINES]]
    blocks += [
        "\n".join([title, *_amounts([(_words(name), _b(first), _b(second)) for name, first, second in rows])])
        for title, rows in (("Said, and predicted", totals), ("Likely, and predicted", lines))
        if rows
    ]
    lists = {
        "Asked for was": [f"{one.tensor} ({_b(one.bytes)})" for one in diagnosis.tensors],
        "What to do": diagnosis.suggestions,
        "Warnings": diagnosis.warnings,
    }
    blocks += ["\n".join([title, *(f"  {line}" for line in items)]) for title, items in lists.items() if items]
    return "\n\n".join(blocks)


_amounts = partial(table, has_header=False, right={1, 2}, indent="  ")


def _words(name: str) -> str:
    return name.removesuffix("_bytes").replace("_", " ")


def _b(amount: float) -> str:
    return in_units(amount, BYTES)


PROBE_COLUMNS = ("probe", "operation", "shape", "quantity", "measured", "predicted", "ratio")
"""Columns of the table."""

MOST_SHOWN = 12
"""Measurements of one probe in the report. Source: a choice; --csv and --json list all."""


def format_launch_check(found: LaunchCheck, form: Literal["json", "csv", "report"]) -> str | bytes:
    """Format a launch check for a terminal."""
    if form == "json":
        return to_bytes(found)
    return launch_check_csv(found) if form == "csv" else launch_check_report(found)


def describe_event(name: str, data: str) -> Iterator[str]:
    """Lines that describe an event."""
    if name != "progress":
        yield name
        return
    for probe in json.loads(data)["data"].get("probes", ()):
        if probe.get("status") == "running":
            yield f"{probe.get('probe')} {float(probe.get('done_fraction') or 0):.0%}"


def launch_check_csv(found: LaunchCheck) -> str:
    """Measurements of a launch check as CSV without cells that a spreadsheet runs as formulas."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(
        (*PROBE_COLUMNS[:-1], "low", "high", "predicted_low", "predicted_high", "ratio", "repeats", "count")
    )
    for probe in found.probes:
        for one in probe.measurements:
            predicted: tuple[float | None, ...] = (None, None, None)
            if one.predicted is not None:
                predicted = (one.predicted.value, one.predicted.low, one.predicted.high)
            cells = (
                probe.probe, one.operation, _shape(one), one.quantity, one.measured.value, predicted[0],
                one.measured.low, one.measured.high, *predicted[1:], one.ratio, one.measured.repeats, one.count,
            )  # fmt: skip
            writer.writerow([cell_text(cell) for cell in cells])
    return text.getvalue()


def launch_check_report(found: LaunchCheck) -> str:
    """A launch check as text."""
    blocks = [
        "\n".join([_launch_headline(found), *(f"  {one.verdict}: {one.message}; {one.fix}" for one in found.reasons)]),
        *(_probe(probe) for probe in found.probes),
        _outlook(found),
    ]
    if found.depths:
        blocks.append("\n".join(["At full depth, on one device", *_depths(found)]))
    if found.assumptions:
        blocks.append("\n".join(["Assumptions", *(f"  - {one}" for one in found.assumptions)]))
    return "\n\n".join([*blocks, found.id])


def _launch_headline(found: LaunchCheck) -> str:
    if found.verdict is None:
        return f"{found.status}{f': {found.error}' if found.error else ''}"
    device = "" if found.environment is None else f" on {found.environment.device}"
    return f"{found.verdict}: {found.status}{device}"


def _probe(probe: ProbeAnswer) -> str:
    took = "" if probe.seconds is None else f", {in_units(probe.seconds, SECONDS)}"
    head = f"{probe.probe}: {probe.status}{took}{f' ({probe.reason})' if probe.reason else ''}"
    rows = [_probe_cells(one) for one in probe.measurements[:MOST_SHOWN]]
    more = len(probe.measurements) - len(rows)
    return "\n".join([head, *table(rows, has_header=False, indent="  "), *([f"  and {more} more"] if more > 0 else [])])


def _probe_cells(one: Compared) -> tuple[str, ...]:
    predicted = "" if one.predicted is None else f"predicted {_amount(one.quantity, one.predicted.value)}"
    ratio = "" if one.ratio is None else f"x {readable(one.ratio)}"
    return one.operation, _shape(one), _amount(one.quantity, one.measured.value), predicted, ratio


def _shape(one: Compared) -> str:
    return " ".join(f"{name}={value}" for name, value in one.shape.items())


def _amount(quantity: str, value: float) -> str:
    if quantity == "seconds":
        return in_units(value, SECONDS)
    return f"{in_units(value, BYTES)}/s" if quantity == "bytes_per_s" else in_units(value, BYTES)


def _outlook(found: LaunchCheck) -> str:
    before, after = found.estimate.before, found.estimate.after
    lines = [f"  before: {_describe_outlook(before)}"]
    if after is not None:
        lines.append(f"  after:  {_describe_outlook(after)}")
    return "\n".join(["Estimate", *lines])


def _describe_outlook(outlook: Outlook) -> str:
    peak, usable = in_units(outlook.device_peak_bytes.value, BYTES), in_units(outlook.usable_bytes, BYTES)
    step = in_units(outlook.step_seconds.value, SECONDS)
    return f"{outlook.verdict}, {peak} of {usable}, {step} a step, MFU {outlook.mfu_fraction.value:.1%}"


def _depths(found: LaunchCheck) -> Iterator[str]:
    for one in found.depths:
        quantity = "seconds" if one.quantity == "step" else "bytes"
        predicted = "" if one.predicted is None else f", predicted {_amount(quantity, one.predicted)}"
        each = f"{_amount(quantity, one.each_layer)} a layer"
        yield f"  {one.quantity}: {_amount(quantity, one.measured)} at {one.layers} layers, {each}{predicted}"


JOB_INTERVAL = "predicted_gpu_hours"

JOB_COLUMNS = tuple(
    name
    for field in fields(ReconciledJob)
    for name in (
        (f"{JOB_INTERVAL}.low", JOB_INTERVAL, f"{JOB_INTERVAL}.high") if field.name == JOB_INTERVAL else (field.name,)
    )
)
"""Columns of the CSV; an interval has three."""


def format_reconciliation(found: Reconciliation, form: Literal["json", "csv", "report"]) -> str | bytes:
    """Format reconciled jobs for a terminal."""
    if form == "json":
        return to_bytes(found)
    return _jobs_csv(found) if form == "csv" else _jobs_report(found)


def _jobs_csv(found: Reconciliation) -> str:
    """CSV of RFC 4180 with a header, no cell of which a spreadsheet runs as a formula."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(JOB_COLUMNS)
    for job in found.jobs:
        hours = job.predicted_gpu_hours
        ends = (
            {}
            if hours is None
            else {f"{JOB_INTERVAL}.low": hours.low, JOB_INTERVAL: hours.value, f"{JOB_INTERVAL}.high": hours.high}
        )
        plain = {field.name: getattr(job, field.name) for field in fields(job) if field.name != JOB_INTERVAL}
        writer.writerow([cell_text((plain | ends).get(name)) for name in JOB_COLUMNS])
    return text.getvalue()


def _jobs_report(found: Reconciliation) -> str:
    """A table, totals, and left out jobs with reasons."""
    blocks = [_jobs_table(found.jobs)] if found.jobs else []
    blocks.append(_summary(found))
    notes = dict.fromkeys(job.note for job in found.jobs if job.note)
    lists = {
        "Not compared, or to be known": [f"{_jobs_of(found, note)}: {note}" for note in notes],
        "Left out": [f"{one.jobs} jobs: {one.message}; {one.fix}" for one in found.left_out],
        "Not read": [f"{one.place}, {one.field or 'the record'}: {one.message}; {one.fix}" for one in found.faults],
    }
    if found.faults_left_off:
        lists["Not read"].append(f"and {found.faults_left_off} more")
    blocks += ["\n".join([title, *(f"  {line}" for line in lines)]) for title, lines in lists.items() if lines]
    return "\n\n".join(blocks)


def _summary(found: Reconciliation) -> str:
    ratio = found.median_used_over_predicted_fraction
    if ratio is None:
        return "no job's hours can be compared with a prediction"
    verdicts = f"; {found.verdicts_wrong} completed that were to run out of memory" if found.verdicts_wrong else ""
    return (
        f"{found.compared} compared: {found.inside} inside the predicted interval, used over predicted "
        f"{ratio:.3g} in the median{verdicts}"
    )


def _jobs_of(found: Reconciliation, note: str) -> str:
    ids = [job.job_id for job in found.jobs if job.note == note]
    return ", ".join(ids[:5]) + (f" and {len(ids) - 5} more" if len(ids) > 5 else "")


def _jobs_table(jobs: tuple[ReconciledJob, ...]) -> str:
    rows = [
        ("job", "state", "GPUs", "used GPU-h", "predicted GPU-h", "used/predicted", "inside"),
        *map(_job_cells, jobs),
    ]
    return "\n".join(table(rows))


def _job_cells(job: ReconciledJob) -> tuple[str, ...]:
    hours, ratio = job.predicted_gpu_hours, job.used_over_predicted_fraction
    name = f"{job.cluster}:{job.job_id}" if job.cluster else job.job_id
    return (
        name,
        job.state,
        str(job.gpus),
        readable(job.used_gpu_hours),
        "-" if hours is None else f"{readable(hours.value)} ({readable(hours.low)} to {readable(hours.high)})",
        "-" if ratio is None else f"{ratio:.3g}",
        {True: "yes", False: "no", None: "-"}[job.is_inside],
    )
