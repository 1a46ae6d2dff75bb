"""Answers of commands as text and CSV; functions import what `estimate`, which must start fast, does not need."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from service.cli.tables import aligned, coloured, table
from service.estimator.answer import Interval
from service.estimator.question import Layout, Recompute
from service.estimator.software.stacks import software_of
from service.units import BYTES, FLOP, SECONDS, dimension_of, in_units, readable
from service.validation.reading import to_bytes, to_wire

if TYPE_CHECKING:
    from service.answers.checks import Check
    from service.answers.diagnoses import Diagnosis
    from service.answers.estimates import Answer, MemoryAnswer, Versions
    from service.answers.launch_checks import Compared, LaunchCheck, Outlook, ProbeAnswer
    from service.answers.plans import PlanAnswer, PlanCounts, PlanRow, Solution
    from service.answers.profiles import ProfileAnswer
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


def _notes(answer: PlanAnswer | Solution | Answer | MemoryAnswer) -> dict[str, Sequence[str]]:
    return {"Assumptions": answer.assumptions, "Warnings": answer.warnings}


def versions_line(versions: Versions) -> str:
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
    tables: dict[str, list[Row]] = {
        "Parameters": _parameters(answer),
        _peak_title(answer): _memory(answer),
        "FLOP": _flop(answer),
        "Step": _step(answer),
        "Run": _run(answer),
    }
    rows = iter(aligned([row for table in tables.values() for row in table], right={1}, indent="  "))
    blocks = ["\n".join([title, *islice(rows, len(table))]) for title, table in tables.items()]
    blocks[-1:-1] = sections({"Communication of one GPU in one step": _communication(answer)}, indent="")
    lists = sections({"To make it fit": memory.suggestions, **_notes(answer)}, indent="  - ")
    question, recipe = answer.resolved, answer.resolved.recipe
    batch = f"{recipe.global_batch} sequences of {recipe.sequence_length:,} tokens a step"
    software = software_of(recipe).name
    names = [f"micro-batches of {recipe.micro_batch}", str(recipe.precision), recipe.optimizer, software]
    machine = [f"{question.cluster.gpus} x {question.gpu.slug}", *degrees_in_words(question.layout)]
    job = ", ".join([*machine, batch, *names])
    return "\n\n".join([f"{_verdict(answer)}\n{job}", *blocks, *lists, _id(answer)])


def memory_report(answer: MemoryAnswer) -> str:
    """The memory of a job as text: the verdict, the fullest GPU, each stage and what to change."""
    rows = aligned(_memory(answer), right={1}, indent="  ")
    lists = sections({"To make it fit": answer.memory.suggestions, **_notes(answer)}, indent="  - ")
    return "\n\n".join([_verdict(answer), "\n".join([_peak_title(answer), *rows]), *lists, _id(answer)])


def _verdict(answer: Answer | MemoryAnswer) -> str:
    memory = answer.memory
    amount = f"{in_bytes(memory.device_peak_bytes.value)} needed, {in_bytes(memory.usable_bytes)} usable on each GPU"
    risk = _percent(memory.oom_probability_fraction)
    words = coloured(VERDICTS[answer.verdict], answer.verdict)
    return f"{words}: {amount}, out of memory with a probability of {risk}"


def _peak_title(answer: Answer | MemoryAnswer) -> str:
    memory = answer.memory
    return f"Memory of the fullest GPU (stage {memory.peak_stage}, at its {memory.peak_phase} peak)"


def _id(answer: Answer | MemoryAnswer | Check) -> str:
    return f"{answer.id}, {versions_line(answer.versions)}"


def check_report(check: Check) -> str:
    """The check of a job as text: verdict and reason, what it takes, and what may run instead."""
    numbers = [
        f"{in_bytes(check.device_peak_bytes.value)} of {in_bytes(check.usable_bytes)} on the fullest GPU",
        *([] if check.gpu_hours is None else [f"{readable(check.gpu_hours.value)} GPU-hours"]),
        *([] if check.cost_usd is None else [f"{readable(check.cost_usd.value)} USD"]),
    ]
    instead = [f"{one.verdict}: {json.dumps(to_wire(one.patch))}" for one in check.alternatives]
    lists = {"May run instead": instead, "Assumptions": check.assumptions, "Warnings": check.warnings}
    head = f"{coloured(check.verdict, check.verdict)}: {check.reason}"
    return "\n\n".join(["\n".join([head, ", ".join(numbers)]), *sections(lists, indent="  - "), _id(check)])


def _parameters(answer: Answer) -> list[Row]:
    counts = answer.parameters
    rows = {"total": counts.total}
    if counts.active != counts.total:
        rows["active"] = counts.active
    if counts.trained != counts.total_with_multi_token_prediction:
        rows["trained"] = counts.trained
    return [(name, f"{count:,}", "") for name, count in rows.items()]


def _memory(answer: Answer | MemoryAnswer) -> list[Row]:
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
    heads = ("axis", "collective", "of", "calls", "each sends", "over", "time", "exposed")
    rows = [
        (
            *map(_words, (row.axis, row.collective, row.content)),
            f"{row.calls:,.6g}",
            in_bytes(row.sent_bytes),
            f"{row.ranks} {_words(row.link)}",
            *map(in_seconds, (row.seconds, row.exposed_seconds)),
        )
        for row in answer.communication
    ]
    return table([heads, *rows], right={3, 4, 6, 7}, indent="  ") if rows else []


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


def csv_of_rows(names: Sequence[str], intervals: Collection[str], rows: Iterable[Iterable[Any]]) -> str:
    """Rows as CSV, with three cells for each interval."""
    from service.tabular.lists import csv_text

    heads = ((f"{name}.low", name, f"{name}.high") if name in intervals else (name,) for name in names)
    cells = (
        chain.from_iterable(ends(one) if name in intervals else (one,) for name, one in zip(names, row, strict=True))
        for row in rows
    )
    return csv_text(chain.from_iterable(heads), cells)


def ends(interval: Interval | None) -> tuple[float | None, ...]:
    return (None, None, None) if interval is None else (interval.low, interval.value, interval.high)


HEADS = {
    **{"oom_probability_fraction": "OOM", "mfu_fraction": "MFU", "hfu_fraction": "HFU"},
    **{"usd_per_gpu_hour": "USD/GPU-h", "cost_usd": "USD", "energy_kwh": "kWh", "carbon_kg_co2e": "kg CO2e"},
    **{"tokens_per_s_per_gpu": "tokens/s/GPU", "gpu_hours": "GPU-hours"},
}
"""Headers of numbers whose names are no words; those with a unit stand above bare numbers."""


def _head(name: str) -> str:
    """A number's name as the header of a column.

    >>> _head("device_peak_bytes"), _head("recipe.micro_batch"), _head("mfu_fraction")
    ('device peak', 'micro batch', 'MFU')
    """
    last = name.rpartition(".")[2]
    return HEADS.get(last) or _words(re.sub("_(bytes|seconds|fraction|flop)$", "", last))


def _cell(name: str, value: Any) -> str:
    """A value as one cell of a table, by the unit in its name; an interval as its value."""
    if isinstance(value, Mapping | Interval):
        value = value.value if isinstance(value, Interval) else value["value"]
    if value is None or isinstance(value, str | bool | Sequence):
        return "" if value is None else str(value)
    if name.endswith("_fraction"):
        return _percent(value)
    if isinstance(value, int):
        return str(value)
    return readable(value) if name in HEADS or name == "days" else in_units(value, dimension_of([name]))


def _number_table(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    """Values by name as a table; columns without a value are left out, and numbers are right-aligned."""
    columns = [*zip(*([_cell(name, one) for name, one in zip(names, row, strict=True)] for row in rows), strict=True)]
    kept = [(name, cells) for name, cells in zip(names, columns, strict=True) if any(cells)]
    right = {place for place, (_, cells) in enumerate(kept) if all(cell[:1].isdigit() or not cell for cell in cells)}
    return table([*zip(*((_head(name), *cells) for name, cells in kept), strict=True)], right=right)


OBJECTIVES = {"time": "the fastest", "cost": "the cheapest", "gpus": "the fewest GPUs", "energy": "the least energy"}

PLAN_INTERVALS = ("step_seconds", "mfu_fraction", "device_peak_bytes", "days", "gpu_hours", "cost_usd", "energy_kwh")

LAYOUT = tuple(field.name for field in fields(Layout))

PLAN_COLUMNS = (
    "rank", "gpu", "gpus", *LAYOUT, "micro_batch", "global_batch", "recompute", "verdict", *PLAN_INTERVALS,
    "headroom_bytes", "reason",
)  # fmt: skip


def plans_csv(answer: PlanAnswer) -> str:
    return csv_of_rows(PLAN_COLUMNS, PLAN_INTERVALS, map(_plan_cells, answer.plans))


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
    return "\n\n".join([*blocks, describe_counts(answer.counts), *lists, versions_line(answer.versions)])


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
    heads = ("rank", "gpus", "layout", "micro batch", "recompute", "step", "MFU", "headroom", "days", "USD")
    cells = [
        (
            str(row.rank),
            f"{row.cluster.gpus:,} x {row.cluster.gpu}",
            layout_in_words(row.layout),
            str(row.recipe.micro_batch),
            _recompute(row.recipe.recompute),
            in_seconds(row.step_seconds.value),
            _percent(row.mfu_fraction.value),
            in_bytes(row.headroom_bytes),
            *("" if interval is None else readable(interval.value) for interval in (row.days, row.cost_usd)),
        )
        for row in rows
    ]
    given = [place for place in range(len(heads)) if any(row[place] for row in cells)]
    shown = [[row[place] for place in given] for row in (heads, *cells)]
    return "\n".join(table(shown, right={0, 3, *range(5, len(given))}))


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
    names = [field.name for field in fields(KeyNumbers) if field.name != "id"]
    cells = [(_head(name), *(_cell(name, getattr(one, name)) for one in shown.values())) for name in names]
    rows = [("", *shown), *(row for row in cells if any(row[1:]))]
    numbers = table(rows, right=range(1, 3)) if shown else []
    changes = [f"{name}: {_value_text(value)}" for name, value in solution.changes.items()]
    lists = sections({"Changes in the question": changes, **_notes(solution)})
    tried = f"{solution.evidence.tried:,} values tried, {versions_line(solution.versions)}"
    return "\n\n".join(filter(None, ["\n".join(head), "\n".join(numbers), *lists, tried]))


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
    lines = _number_table(names, ([record.get(name) for name in names] for record in to_wire(answer.rows)))
    order = f"by {answer.sort_by}, the {'largest' if answer.descending else 'smallest'} first"
    return "\n".join([*lines, *_reasons(answer.rows, start=1), "", f"{order}; {versions_line(answer.versions)}"])


def table_report(varied: Variations) -> str:
    from service.features.sensitivity.vary import plain_cell

    answer = varied.answer
    names = [name for name in varied.metrics if any(row.numbers.get(name) is not None for row in answer.rows)]
    rows = (
        [
            *(plain_cell(row.values[name]) for name in answer.fields),
            row.verdict or "refused",
            *(row.numbers.get(name) for name in names),
        ]
        for row in answer.rows
    )
    lines = _number_table([*answer.fields, "verdict", *names], rows)
    return "\n".join([*lines, *_reasons(answer.rows, start=0)])


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


ENDED = ("succeeded", "failed", "cancelled")


def describe_event(name: str, data: str) -> tuple[list[str], float]:
    """Lines on an event of a launch check, and the share of its probes' work that is done."""
    probes = json.loads(data)["data"].get("probes", ()) if name == "progress" else ()
    if not probes:
        return [name], 0.0
    done = [1.0 if one.get("status") in ENDED else float(one.get("done_fraction") or 0) for one in probes]
    running = [(one, share) for one, share in zip(probes, done, strict=True) if one.get("status") == "running"]
    return [f"{one.get('probe')} {share:.0%}" for one, share in running], sum(done) / len(done)


def launch_check_csv(check: LaunchCheck) -> str:
    from service.tabular.lists import csv_text

    return csv_text(PROBE_COLUMNS, (_probe_cells(probe, one) for probe in check.probes for one in probe.measurements))


def _probe_cells(probe: ProbeAnswer, one: Compared) -> tuple[object, ...]:
    low, predicted, high = ends(one.predicted)
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
