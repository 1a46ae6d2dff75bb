"""Terminal report of an answer: the verdict, then memory, work, time and money in tables."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice

from service.answers.estimates import Answer
from service.cli.console import sections
from service.estimator.answer import Interval
from service.estimator.question import Layout, Question
from service.estimator.software.stacks import software_of
from service.tabular.cell_text import aligned
from service.units import BYTES, FLOP, SECONDS, in_units, readable

DEGREES = ("data", "tensor", "context", "pipeline", "expert")


def degrees_in_words(layout: Layout) -> list[str]:
    """The degrees of a layout that divide something.

    >>> degrees_in_words(Layout(data=8, tensor=2))
    ['data 8', 'tensor 2']
    """
    degrees = [(name, getattr(layout, name)) for name in DEGREES]
    return [f"{name} {degree}" for name, degree in degrees if degree and degree > 1]


def layout_in_words(layout: Layout) -> str:
    """A whole layout, but for what goes without saying.

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


in_bytes, in_flop, in_seconds = (partial(in_units, dimension=dimension) for dimension in (BYTES, FLOP, SECONDS))

VERDICTS = {"fits": "fits", "at_risk": "may run out of memory", "out_of_memory": "runs out of memory"}
"""Each verdict in words."""

Row = tuple[str, str, str]
"""One line of a table: a label, a number with its unit, and its interval or its share of the whole."""


def report(answer: Answer) -> str:
    """An answer as text for a terminal."""
    place = f"stage {answer.memory.peak_stage}, at its {answer.memory.peak_phase} peak"
    tables = {
        "Parameters": _parameters(answer),
        f"Memory of the fullest GPU ({place})": _memory(answer),
        "FLOP": _flop(answer),
        "Step": _step(answer),
        "Run": _run(answer),
    }
    lists = {
        "To make it fit": answer.memory.suggestions,
        "Assumptions": answer.assumptions,
        "Warnings": answer.warnings,
    }
    head = f"{_verdict(answer)}\n{_question_line(answer.resolved)}"
    versions = f"{answer.id}, formulas {answer.versions.formulas}, catalogue {answer.versions.catalogue}"
    return "\n\n".join([head, *_aligned(tables), *sections(lists, indent="  - "), versions])


def _verdict(answer: Answer) -> str:
    memory = answer.memory
    amount = f"{in_bytes(memory.device_peak_bytes.value)} needed, {in_bytes(memory.usable_bytes)} usable on each GPU"
    risk = _percent(memory.oom_probability_fraction)
    return f"{VERDICTS[answer.verdict]}: {amount}, out of memory with a probability of {risk}"


def _question_line(question: Question) -> str:
    """GPUs, how they are divided, the batch and the names in the recipe."""
    layout, recipe = question.layout, question.recipe
    batch = f"{recipe.global_batch} sequences of {recipe.sequence_length:,} tokens a step"
    micro_batch = f"micro-batches of {recipe.micro_batch}"
    names = [str(recipe.precision), recipe.optimizer, software_of(recipe).name]
    gpus = f"{question.cluster.gpus} x {question.gpu.slug}"
    return ", ".join([gpus, *degrees_in_words(layout), batch, micro_batch, *names])


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
    lines = memory.stages[memory.peak_stage].lines
    return [
        *((_words(line.kind), in_bytes(line.bytes), "") for line in lines if line.bytes),
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
    whole = step.step_seconds.value
    parts = [
        (_words(part.kind), in_seconds(part.seconds), _percent(part.seconds / whole))
        for part in step.parts
        if part.seconds
    ]
    return [
        *parts,
        _predicted("step", step.step_seconds, in_seconds),
        _predicted("tokens per second and GPU", step.tokens_per_s_per_gpu, readable),
        _predicted("MFU", step.mfu_fraction, _percent),
        _predicted("HFU", step.hfu_fraction, _percent),
    ]


def _run(answer: Answer) -> list[Row]:
    totals = answer.totals
    if totals is None:
        return [("whole run", "unknown", "give training_tokens")]
    cost = totals.cost_usd
    stages = [
        (f"of them in stage {one.stage}", f"{one.steps:,}", f"{in_seconds(one.step_seconds.value)} each")
        for one in totals.stages
    ]
    return [
        ("steps", f"{totals.steps:,}", ""),
        *stages,
        _predicted("GPU-hours", totals.gpu_hours, readable),
        _predicted("days", totals.days, readable),
        ("goodput", _percent(totals.goodput_fraction), ""),
        ("USD", "unknown", "give usd_per_gpu_hour") if cost is None else _predicted("USD", cost, readable),
        _predicted("kWh", totals.energy_kwh, readable),
    ]


def _predicted(label: str, interval: Interval, text_of: Callable[[float], str]) -> Row:
    return label, text_of(interval.value), _range(text_of(interval.low), text_of(interval.high))


def _range(low: str, high: str) -> str:
    """Both ends, with one unit where they share it."""
    number, space, unit = low.partition(" ")
    return f"{number if space and high.endswith(f' {unit}') else low} to {high}"


def _aligned(tables: Mapping[str, Sequence[Row]]) -> list[str]:
    """Tables whose columns are aligned from the first table to the last."""
    rows = [row for table in tables.values() for row in table]
    lines = iter(aligned(rows, right={1}, indent="  "))
    return ["\n".join([title, *islice(lines, len(table))]) for title, table in tables.items()]


def _words(kind: str) -> str:
    return kind.replace("_", " ")


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f} %"
