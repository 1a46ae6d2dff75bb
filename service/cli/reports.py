"""Answers of commands as text and CSV; functions import what `estimate`, which must start fast, does not need."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from service.cli.console import aligned, table
from service.estimator.answer import Interval
from service.estimator.question import Layout, Recompute
from service.estimator.software.stacks import software_of
from service.units import BYTES, FLOP, SECONDS, dimension_of, in_units, readable
from service.validation.reading import to_bytes, to_wire

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
    from service.answers.diagnoses import Diagnosis, ReconciledJob, Reconciliation
    from service.answers.estimates import Answer, Versions
    from service.answers.launch_checks import Compared, LaunchCheck, Outlook, ProbeAnswer
    from service.answers.plans import PlanAnswer, PlanCounts, PlanRow, Solution
    from service.answers.profiles import ProfileAnswer
    from service.features.checks.audit import JobAudit
    from service.features.compare.compare import Comparison
    from service.features.sensitivity.vary import Variations

in_bytes, in_flop, in_seconds = (partial(in_units, dimension=dimension) for dimension in (BYTES, FLOP, SECONDS))

VERDICTS = {"fits": "fits", "at_risk": "may run out of memory", "out_of_memory": "runs out of memory"}

DEGREES = ("data", "tensor", "context", "pipeline", "expert")

Row = tuple[str, str, str]
"""One line of an estimate's table: a label, a number with its unit, and its interval or its share of the whole."""


def sections(lists: Mapping[str, Iterable[str]], indent: str = "  ") -> list[str]:
    """Titled lists of lines; empty ones are left out."""
    texts = {title: [f"{indent}{line}" for line in lines] for title, lines in lists.items()}
    return ["\n".join([title, *lines]) for title, lines in texts.items() if lines]


def _notes(answer: PlanAnswer | Solution | Answer) -> dict[str, Sequence[str]]:
    return {"Assumptions": answer.assumptions, "Warnings": answer.warnings}


def _versions(versions: Versions) -> str:
    return f"formulas {versions.formulas}, catalogue {versions.catalogue}"


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f} %"


def _words(kind: str) -> str:
    return kind.replace("_", " ")


def degrees_in_words(layout: Layout) -> list[str]:
    """The degrees of a layout that divide something.

    >>> degrees_in_words(Layout(data=8, tensor=2))
    ['data 8', 'tensor 2']
    """
    degrees = [(name, getattr(layout, name)) for name in DEGREES]
    return [f"{name} {degree}" for name, degree in degrees if degree and degree > 1]


def layout_in_words(layout: Layout) -> str:
    """A layout in words, without fields at their defaults.

    >>> layout_in_words(Layout(data=8, tensor=2, pipeline=4, virtual_pipeline=2, zero_stage=1, shard_group=8,
    ...                        schedule="interleaved-1f1b", sequence_parallel=True))
    'data 8, tensor 2, pipeline 4, 2 virtual stages, interleaved-1f1b, sequence parallel, ZeRO 1'
    """
    parts = degrees_in_words(layout) or ["one GPU"]
    if layout.virtual_pipeline > 1:
        parts.append(f"{layout.virtual_pipeline} virtual stages")
    if layout.pipeline > 1 and layout.schedule is not None:
        parts.append(layout.schedule)
    if layout.sequence_parallel:
        parts.append("sequence parallel")
    if layout.context > 1 and layout.context_method is not None:
        parts.append(f"context by {layout.context_method}")
    parts.append(_sharding(layout))
    if layout.offload != "none":
        parts.append(f"{layout.offload} on the host")
    return ", ".join(parts)


def _sharding(layout: Layout) -> str:
    replicas = (layout.data or 1) * layout.context
    words = f"ZeRO {layout.zero_stage}"
    if layout.zero_stage and layout.shard_group not in (None, replicas):
        words += f" over {layout.shard_group}"
    return f"{words}, weights stay gathered" if layout.zero_stage == 3 and not layout.reshard_after_forward else words


def report(answer: Answer) -> str:
    """An estimate as text: the verdict, then memory, work, time and money in tables."""
    memory = answer.memory
    tables = {
        "Parameters": _parameters(answer),
        f"Memory of the fullest GPU (stage {memory.peak_stage}, at its {memory.peak_phase} peak)": _memory(answer),
        "FLOP": _flop(answer),
        "Step": _step(answer),
        "Run": _run(answer),
    }
    rows = iter(aligned([row for table in tables.values() for row in table], right={1}, indent="  "))
    blocks = ["\n".join([title, *islice(rows, len(table))]) for title, table in tables.items()]
    blocks[-1:-1] = sections({"Communication of one GPU in one step": _communication(answer)}, indent="")
    amount = f"{in_bytes(memory.device_peak_bytes.value)} needed, {in_bytes(memory.usable_bytes)} usable on each GPU"
    risk = _percent(memory.oom_probability_fraction)
    head = f"{VERDICTS[answer.verdict]}: {amount}, out of memory with a probability of {risk}"
    lists = sections({"To make it fit": memory.suggestions, **_notes(answer)}, indent="  - ")
    versions = f"{answer.id}, {_versions(answer.versions)}"
    question, recipe = answer.resolved, answer.resolved.recipe
    batch = f"{recipe.global_batch} sequences of {recipe.sequence_length:,} tokens a step"
    software = software_of(recipe).name
    names = [f"micro-batches of {recipe.micro_batch}", str(recipe.precision), recipe.optimizer, software]
    machine = [f"{question.cluster.gpus} x {question.gpu.slug}", *degrees_in_words(question.layout)]
    return "\n\n".join([f"{head}\n{', '.join([*machine, batch, *names])}", *blocks, *lists, versions])


def _parameters(answer: Answer) -> list[Row]:
    counts = answer.parameters
    rows = {"total": counts.total}
    if counts.active != counts.total:
        rows["active"] = counts.active
    if counts.trained != counts.total_with_multi_token_prediction:
        rows["trained"] = counts.trained
    return [(name, f"{count:,}", "") for name, count in rows.items()]


def _memory(answer: Answer) -> list[Row]:
    memory = answer.memory
    return [
        *(
            (_words(line.kind), in_bytes(line.bytes), "")
            for line in memory.stages[memory.peak_stage].lines
            if line.bytes
        ),
        _predicted("allocated peak", memory.allocated_peak_bytes, in_bytes),
        _predicted("reserved peak", memory.reserved_peak_bytes, in_bytes),
        _predicted("device peak", memory.device_peak_bytes, in_bytes),
        ("usable", in_bytes(memory.usable_bytes), ""),
    ]


def _flop(answer: Answer) -> list[Row]:
    flop = answer.flop
    rows = [
        ("each token", in_flop(flop.per_token_flop), ""),
        ("each step", in_flop(flop.per_step_flop), ""),
        ("each step with recompute", in_flop(flop.hardware_per_step_flop), ""),
    ]
    if flop.padding_per_step_flop:
        rows.append(("of each step padding", in_flop(flop.padding_per_step_flop), "spared by packed documents"))
    return rows if flop.total_flop is None else [*rows, ("whole run", in_flop(flop.total_flop), "")]


def _step(answer: Answer) -> list[Row]:
    step = answer.step
    parts = [part for part in step.parts if part.seconds]
    whole = step.step_seconds.value
    return [
        *((_words(part.kind), in_seconds(part.seconds), _percent(part.seconds / whole)) for part in parts),
        _predicted("step", step.step_seconds, in_seconds),
        _predicted("tokens per second and GPU", step.tokens_per_s_per_gpu, readable),
        _predicted("MFU", step.mfu_fraction, _percent),
        _predicted("HFU", step.hfu_fraction, _percent),
    ]


def _communication(answer: Answer) -> list[str]:
    """What one rank sends, a line for each axis and collective; none on one GPU."""
    heads = ("axis", "collective", "of", "calls", "each sends", "ranks", "over", "seconds", "hidden", "exposed")
    rows = [
        (
            *map(_words, (row.axis, row.collective, row.content)),
            f"{row.calls:,.6g}",
            in_bytes(row.sent_bytes),
            str(row.ranks),
            _words(row.link),
            *map(in_seconds, (row.seconds, row.hidden_seconds, row.exposed_seconds)),
        )
        for row in answer.communication
    ]
    return table([heads, *rows], right={3, 4, 5, 7, 8, 9}, indent="  ") if rows else []


def _run(answer: Answer) -> list[Row]:
    totals = answer.totals
    if totals is None:
        return [("whole run", "unknown", "give training_tokens")]
    cost = totals.cost_usd
    return [
        ("steps", f"{totals.steps:,}", ""),
        *(
            (f"of them in stage {one.stage}", f"{one.steps:,}", f"{in_seconds(one.step_seconds.value)} each")
            for one in totals.stages
        ),
        _predicted("GPU-hours", totals.gpu_hours, readable),
        _predicted("days", totals.days, readable),
        ("goodput", _percent(totals.goodput_fraction), ""),
        ("USD", "unknown", "give usd_per_gpu_hour") if cost is None else _predicted("USD", cost, readable),
        _predicted("kWh", totals.energy_kwh, readable),
    ]


def _predicted(label: str, interval: Interval, text_of: Callable[[float], str]) -> Row:
    """A row for a prediction; the unit appears once if both ends of the interval have the same."""
    low, high = text_of(interval.low), text_of(interval.high)
    number, space, unit = low.partition(" ")
    return label, text_of(interval.value), f"{number if space and high.endswith(f' {unit}') else low} to {high}"


def _csv(names: Sequence[str], intervals: Collection[str], rows: Iterable[Iterable[Any]]) -> str:
    """Rows as CSV, with three cells for each interval."""
    from service.tabular.lists import csv_text

    heads = ((f"{name}.low", name, f"{name}.high") if name in intervals else (name,) for name in names)
    cells = (
        chain.from_iterable(_ends(one) if name in intervals else (one,) for name, one in zip(names, row, strict=True))
        for row in rows
    )
    return csv_text(chain.from_iterable(heads), cells)


def _ends(interval: Interval | None) -> tuple[float | None, ...]:
    return (None, None, None) if interval is None else (interval.low, interval.value, interval.high)


def _cell(value: Any) -> str:
    """A value as one cell of a terminal's table; an interval as its value."""
    if isinstance(value, Mapping):
        value = value["value"]
    if value is None or isinstance(value, str | bool | Sequence):
        return "" if value is None else str(value)
    return str(value) if isinstance(value, int) else readable(value)


def _without_empty(rows: Sequence[Sequence[str]]) -> list[str]:
    columns = [column for column in zip(*rows, strict=True) if any(column[1:])]
    return table([*zip(*columns, strict=True)])


OBJECTIVES = {"time": "the fastest", "cost": "the cheapest", "gpus": "the fewest GPUs", "energy": "the least energy"}

PLAN_INTERVALS = ("step_seconds", "mfu_fraction", "device_peak_bytes", "days", "gpu_hours", "cost_usd", "energy_kwh")

LAYOUT = tuple(field.name for field in fields(Layout))

PLAN_COLUMNS = (
    "rank", "gpu", "gpus", *LAYOUT, "micro_batch", "global_batch", "recompute", "verdict", *PLAN_INTERVALS,
    "headroom_bytes", "reason",
)  # fmt: skip


def plans_csv(answer: PlanAnswer) -> str:
    return _csv(PLAN_COLUMNS, PLAN_INTERVALS, map(_plan_cells, answer.plans))


def _plan_cells(row: PlanRow) -> list[Any]:
    layout = (getattr(row.layout, name) for name in LAYOUT)
    plain = [to_bytes(value).decode() if isinstance(value, tuple) else value for value in layout]
    chosen = [row.recipe.micro_batch, row.recipe.global_batch, _recompute(row.recipe.recompute), row.verdict]
    intervals = (getattr(row, name) for name in PLAN_INTERVALS)
    return [row.rank, row.cluster.gpu, row.cluster.gpus, *plain, *chosen, *intervals, row.headroom_bytes, row.reason]


def plans_report(answer: PlanAnswer) -> str:
    if answer.plans:
        blocks = [_plans_table(answer.plans), f"{OBJECTIVES[answer.objective]} first"]
    elif answer.nearest is not None:
        nearest = f"no layout fits; the nearest one {_describe_nearest(answer.nearest)}"
        blocks = [nearest, _plans_table([answer.nearest])]
    else:
        found = answer.counts.fitting
        blocks = ["layouts fit, but none meets the limits" if found else "every layout breaks a rule"]
    if answer.why_not is not None:
        blocks.append(f"the requested layout: {answer.why_not.reason}")
    refused = [f"{count:,} {rule}" for rule, count in answer.counts.refused.items()]
    lists = sections({"Refused, by the first rule that is broken": refused, **_notes(answer)})
    return "\n\n".join([*blocks, describe_counts(answer.counts), *lists, _versions(answer.versions)])


def describe_counts(counts: PlanCounts) -> str:
    refused = sum(counts.refused.values())
    return (
        f"{counts.generated:,} layouts: {refused:,} break a rule, {counts.scored:,} worked out, {counts.fitting:,} fit"
    )


def _describe_nearest(nearest: PlanRow) -> str:
    amount = f"{in_bytes(abs(nearest.headroom_bytes))} on its fullest GPU"
    if nearest.headroom_bytes < 0:
        return f"lacks {amount}"
    if nearest.verdict == "fits":
        return f"leaves {amount}, less than the required headroom"
    return f"{VERDICTS[nearest.verdict]}, with {amount} to spare"


def _plans_table(rows: Sequence[PlanRow]) -> str:
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
            in_bytes(row.headroom_bytes),
            *("" if interval is None else readable(interval.value) for interval in (row.days, row.cost_usd)),
        )
        for row in rows
    ]
    return "\n".join(_without_empty([names, *cells]))


def _recompute(recompute: str | Recompute) -> str:
    if isinstance(recompute, str):
        return recompute
    details = [*recompute.modules, *([f"{recompute.method} {recompute.layers}"] if recompute.layers else [])]
    return " ".join([recompute.granularity, *details])


def solution_report(solution: Solution) -> str:
    """A solved field as text: its value, the next value that fails and why, and the numbers of both."""
    from service.answers.plans import KeyNumbers, OptimalSize

    value, following = solution.value, solution.next
    head = [f"{solution.unknown}: {'no value meets the limits' if value is None else _value_text(value)}"]
    if isinstance(value, OptimalSize):
        head += [f"  {_value_text(fit)}" for fit in value.fits]
    if following is not None:
        why = "; ".join(filter(None, (following.why_not.message, following.why_not.fix)))
        head.append(f"next: {_value_text(following.value)} fails: {why}")
    evidence = {"value": solution.evidence.value, "next": solution.evidence.next}
    shown = {name: numbers for name, numbers in evidence.items() if numbers is not None}
    names = [field.name for field in fields(KeyNumbers)]
    rows = [(name, *(_amount_text(name, getattr(numbers, name)) for numbers in shown.values())) for name in names]
    numbers = table([("", *shown), *(row for row in rows if any(row[1:]))]) if shown else []
    changes = [f"{name}: {_value_text(value)}" for name, value in solution.changes.items()]
    lists = sections({"Changes in the question": changes, **_notes(solution)})
    tried = f"{solution.evidence.tried:,} values tried, {_versions(solution.versions)}"
    return "\n\n".join(filter(None, ["\n".join(head), "\n".join(numbers), *lists, tried]))


def _amount_text(name: str, value: Any) -> str:
    if isinstance(value, Interval):
        value = value.value
    if value is None or isinstance(value, str):
        return value or ""
    return in_units(value, dimension_of([name]))


def _value_text(value: Any) -> str:
    if is_dataclass(value):
        parts = ((field.name, getattr(value, field.name)) for field in fields(value))
        return ", ".join(f"{name} {_value_text(one)}" for name, one in parts if isinstance(one, int | float | str))
    if value is None or isinstance(value, bool):
        return {None: "left out", True: "yes", False: "no"}[value]
    if isinstance(value, float):
        return readable(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


COMPARED = ("cluster", "gpu", "gpus", "usd_per_gpu_hour", "provider", "region", "price_model", "verdict")
"""Columns of a comparison before its numbers."""


def comparison_report(compared: Comparison) -> str:
    """A comparison as text; columns without a value are left out."""
    answer = compared.answer
    names = (*COMPARED, *compared.metrics)
    lines = _without_empty([names, *([_cell(record.get(name)) for name in names] for record in to_wire(answer.rows))])
    order = f"by {answer.sort_by}, the {'largest' if answer.descending else 'smallest'} first"
    return "\n".join([*lines, *_reasons(answer.rows, start=1), "", f"{order}; {_versions(answer.versions)}"])


def table_report(varied: Variations) -> str:
    from service.features.sensitivity.vary import plain_cell

    answer = varied.answer
    names = [name for name in varied.metrics if any(row.numbers.get(name) is not None for row in answer.rows)]
    rows = [
        [
            *(_cell(plain_cell(row.values[name])) for name in answer.fields),
            row.verdict or "refused",
            *(_cell(row.numbers.get(name)) for name in names),
        ]
        for row in answer.rows
    ]
    return "\n".join([*table([[*answer.fields, "verdict", *names], *rows]), *_reasons(answer.rows, start=0)])


def _reasons(rows: Iterable[Any], start: int) -> list[str]:
    from service.features.compare.compare import ANSWERED

    lines = [f"row {place}: {row.reason}" for place, row in enumerate(rows, start=start) if row.status != ANSWERED]
    return ["", *lines] if lines else []


MOST_LINES = 8
"""Most lines of the estimate in a report, those with the largest difference first. Source: a choice."""


def diagnosis_report(diagnosis: Diagnosis) -> str:
    when = "" if diagnosis.moment is None else f" ({diagnosis.step or 'some'} step, {diagnosis.moment})"
    cause = f"{_words(diagnosis.cause)}{when}, confidence {diagnosis.confidence}: {diagnosis.reason}"
    lists = {
        "Reported, and predicted": _amounts(
            (one.quantity, one.said_bytes, one.predicted_bytes) for one in diagnosis.totals
        ),
        "Likely, and predicted": _amounts(
            (one.kind, one.likely_bytes, one.predicted_bytes) for one in diagnosis.lines[:MOST_LINES]
        ),
        "Requested": [f"{one.tensor} ({in_bytes(one.bytes)})" for one in diagnosis.tensors],
        "What to do": diagnosis.suggestions,
        "Warnings": diagnosis.warnings,
    }
    return "\n\n".join([cause, *sections(lists)])


def _amounts(rows: Iterable[tuple[str, float, float]]) -> list[str]:
    cells = [(_words(name.removesuffix("_bytes")), in_bytes(one), in_bytes(other)) for name, one, other in rows]
    return table(cells, has_header=False, right={1, 2})


LONGEST_NAME = 60
MOST_FINDINGS = 6
"""Findings in the report. Source: a choice; --json lists all."""


def profile_report(answer: ProfileAnswer) -> str:
    profile, step, predicted = answer.profile, answer.profile.step, answer.prediction
    of = "kernels" if profile.on == "device" else "operations"
    title = f"{in_seconds(step.seconds)} a step by {of}, median of {len(profile.steps)} (step {step.name})"
    if predicted is not None:
        place = "inside" if predicted.is_inside else "outside"
        interval = f"{in_seconds(predicted.step_seconds.low)} to {in_seconds(predicted.step_seconds.high)}"
        title += f"; predicted {in_seconds(predicted.step_seconds.value)}, {place} of {interval}"
    parts = [
        (_words(one.kind), in_seconds(one.seconds), _percent(one.seconds / step.seconds), f"{one.calls:,}")
        for one in profile.parts
    ]
    compared = [
        (_words(one.kind), in_seconds(one.measured_seconds), in_seconds(one.predicted_seconds))
        for one in (() if predicted is None else predicted.parts)
    ]
    collectives = [
        (_words(one.kind), f"{one.calls:,}", in_seconds(one.seconds), f"{in_seconds(one.exposed_seconds)} exposed")
        for one in profile.collectives
    ]
    gaps = [
        (in_seconds(one.seconds), f"at {in_seconds(one.start_seconds)}", one.host[:LONGEST_NAME])
        for one in profile.gaps
    ]
    lists = {
        "Time": table(parts, has_header=False, right={1, 2, 3}),
        "Measured, and predicted": table(compared, has_header=False, right={1, 2}),
        "Collectives": table(collectives, has_header=False, right={1, 2, 3}),
        "Longest gaps, and what the host did": table(gaps, has_header=False, right={0, 1}),
        "What costs time": [f"{one.message}: {one.fix}" for one in answer.findings[:MOST_FINDINGS]],
        "Warnings": answer.warnings,
    }
    measured = None if predicted is None else predicted.measured_step
    learn = [] if measured is None else [f"for cluster.measured_steps: {json.dumps(to_wire(measured))}"]
    return "\n\n".join([title, *sections(lists), *learn])


PROBE_COLUMNS = (
    "probe", "operation", "shape", "quantity", "measured", "predicted", "low", "high", "predicted_low",
    "predicted_high", "ratio", "repeats", "count",
)  # fmt: skip

MOST_SHOWN = 12
"""Most measurements of one probe in a report; --csv and --json list all. Source: a choice."""


def describe_event(name: str, data: str) -> Iterator[str]:
    if name != "progress":
        yield name
        return
    for probe in json.loads(data)["data"].get("probes", ()):
        if probe.get("status") == "running":
            yield f"{probe.get('probe')} {float(probe.get('done_fraction') or 0):.0%}"


def launch_check_csv(check: LaunchCheck) -> str:
    from service.tabular.lists import csv_text

    return csv_text(PROBE_COLUMNS, (_probe_cells(probe, one) for probe in check.probes for one in probe.measurements))


def _probe_cells(probe: ProbeAnswer, one: Compared) -> tuple[object, ...]:
    low, predicted, high = _ends(one.predicted)
    return (
        probe.probe, one.operation, _shape(one), one.quantity, one.measured.value, predicted, one.measured.low,
        one.measured.high, low, high, one.ratio, one.measured.repeats, one.count,
    )  # fmt: skip


def launch_check_report(check: LaunchCheck) -> str:
    if check.verdict is None:
        head = f"{check.status}{f': {check.error}' if check.error else ''}"
    else:
        device = "" if check.environment is None else f" on {check.environment.device}"
        head = f"{check.verdict}: {check.status}{device}"
    reasons = [f"  {one.verdict}: {one.message}; {one.fix}" for one in check.reasons]
    outlooks = {"before: ": check.estimate.before, "after:  ": check.estimate.after}
    lists = {
        "Estimate": [f"{when}{_describe_outlook(one)}" for when, one in outlooks.items() if one is not None],
        "At full depth, on one device": list(_depths(check)),
        "Assumptions": [f"- {one}" for one in check.assumptions],
    }
    return "\n\n".join(["\n".join([head, *reasons]), *map(_probe, check.probes), *sections(lists), check.id])


def _probe(probe: ProbeAnswer) -> str:
    took = "" if probe.seconds is None else f", {in_seconds(probe.seconds)}"
    lines = [f"{probe.probe}: {probe.status}{took}{f' ({probe.reason})' if probe.reason else ''}"]
    rows = []
    for one in probe.measurements[:MOST_SHOWN]:
        predicted = "" if one.predicted is None else f"predicted {_measured(one.quantity, one.predicted.value)}"
        ratio = "" if one.ratio is None else f"x {readable(one.ratio)}"
        rows.append((one.operation, _shape(one), _measured(one.quantity, one.measured.value), predicted, ratio))
    lines += table(rows, has_header=False, indent="  ")
    if len(probe.measurements) > MOST_SHOWN:
        lines.append(f"  and {len(probe.measurements) - MOST_SHOWN} more")
    return "\n".join(lines)


def _shape(one: Compared) -> str:
    return " ".join(f"{name}={value}" for name, value in one.shape.items())


def _measured(quantity: str, value: float) -> str:
    if quantity == "seconds":
        return in_seconds(value)
    return f"{in_bytes(value)}/s" if quantity == "bytes_per_s" else in_bytes(value)


def _describe_outlook(outlook: Outlook) -> str:
    memory = f"{in_bytes(outlook.device_peak_bytes.value)} of {in_bytes(outlook.usable_bytes)}"
    step = f"{in_seconds(outlook.step_seconds.value)} a step, MFU {outlook.mfu_fraction.value:.1%}"
    return f"{outlook.verdict}, {memory}, {step}"


def _depths(check: LaunchCheck) -> Iterator[str]:
    for one in check.depths:
        amount = in_seconds if one.quantity == "step" else in_bytes
        predicted = "" if one.predicted is None else f", predicted {amount(one.predicted)}"
        each = f"{amount(one.each_layer)} a layer"
        yield f"{one.quantity}: {amount(one.measured)} at {one.layers} layers, {each}{predicted}"


JOB_HOURS = "predicted_gpu_hours"
JOB_HEADER = ("job", "state", "GPUs", "used GPU-h", "predicted GPU-h", "used/predicted", "inside")
INSIDE = {True: "yes", False: "no", None: "-"}


def reconciliation_csv(reconciled: Reconciliation) -> str:
    from service.answers.diagnoses import ReconciledJob

    names = tuple(field.name for field in fields(ReconciledJob))
    return _csv(names, (JOB_HOURS,), ([getattr(job, name) for name in names] for job in reconciled.jobs))


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
    return "\n\n".join([*sections(blocks, ""), _versions(accuracy.versions)])


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
            *("-" if one is None else readable(one) for one in _ends(run.gpu_hours)),
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
    """GPU-hours of published runs and their predictions as text."""
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
    hours = ["-" if one is None else readable(one) for one in (row.published_gpu_hours, *_ends(row.gpu_hours))]
    error = "-" if row.error_fraction is None else f"{100 * row.error_fraction:+.0f} %"
    assumed = f"; not published: {', '.join(row.assumed)}" if row.assumed else ""
    return row.id, row.model, *hours, error, INSIDE[row.is_inside], f"{row.layout or row.reason}{assumed}"


def _group_summary(group: TotalsGroup) -> str:
    if group.inside_fraction is None or group.mape_fraction is None or group.bias_fraction is None:
        return f"{group.rows} rows, none compared"
    return (
        f"{group.inside} of {group.scored} compared inside the interval "
        f"({100 * group.inside_fraction:.0f} %; {group.held_out_inside} inside one that never saw their source), "
        f"{group.rows} rows in all, MAPE {100 * group.mape_fraction:.0f} %, "
        f"bias {100 * group.bias_fraction:+.0f} %"
    )
