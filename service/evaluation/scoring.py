"""Prediction of one row beside its measured figure, or the reason why they are not compared; verdict counts; files."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Literal

from service.answers.accuracy import Quantity, VerdictCounts, Verdicts, WrongVerdict
from service.calibration.scores import Comparison
from service.calibration.steps import StepRow
from service.calibration.tables import (
    FIGURES_OF_A_STEP,
    MOST_BYTES,
    Form,
    MeasuredRow,
    NotExpressible,
    read_measured_rows,
)
from service.catalogue import Catalogue
from service.errors import Refused, TraincostError
from service.estimator import estimate
from service.estimator.answer import Estimate, Interval, Memory, StageMemory, Verdict
from service.estimator.model.build import method_of
from service.estimator.question import Question, StackName
from service.estimator.software.stacks import requested_software, software_of
from service.estimator.time.step import Operations, step_class_of, waiting_fraction
from service.evaluation.frameworks import CELLS, table_of
from service.evaluation.questions import UNSTATED_PART, question_of, reason_of
from service.evaluation.recipes import completed
from service.units import BYTES, in_units

MemoryClass = Literal["allocated", "reserved", "device"]
"""Which peak a figure is: live tensors, the allocator's reserved memory, or the memory in use on the device."""

MeasuredRank = Literal["fullest", "first", "last", "ends"]
"""Rank of a figure: that of the fullest stage, of the first or last stage, or the larger of these two."""

GIB, GB = float(1 << 30), 1e9


@dataclass(frozen=True, slots=True)
class SourceConvention:
    """Convention of a source for what its rows do not state."""

    memory_class: MemoryClass = "allocated"
    unit_bytes: float = GB
    """Bytes of the unit that the source writes as G or GB."""
    other_unit_bytes: float | None = None
    """Bytes of another unit that it may mean as well; None where its unit is known."""
    rounding_bytes: float = 0.0
    """Step between its figures."""
    states_class: bool = True
    """Which peak it reports is known, not only likely."""
    why: str = "software that logs torch's own counter is the usual case; GB is 1e9 bytes by its definition"


SOURCES = "sources.toml"

UNSTATED_CLASSES = frozenset({"", "not told", "torch peak, allocated or reserved not told"})
"""Cells that leave the class to the source's convention."""

SUMMED = "per GPU average"
"""Rank cell of a figure that is the sum over all GPUs."""


def is_scored_apart(row: MeasuredRow) -> bool:
    """Whether scores count a row's step in a class of its own."""
    source = table_of(SOURCES)["apart"].get(row.text("source_key"))
    if "power limited" in row.text("gpu"):
        return True
    return source is not None and source["zero_stage"] in ("", row.text("zero_stage"))


def recipes_of(row: MeasuredRow) -> str:
    """The source whose recipes a row ran: rows of the same recipe files are one source."""
    source = row.text("source_key")
    return str(table_of(SOURCES)["recipe_files"].get(source, source))


def gives_constants(row: MeasuredRow) -> bool:
    """Whether a fit may use a row."""
    source = table_of(SOURCES)["apart"].get(row.text("source_key"), {})
    return not is_scored_apart(row) or bool(source.get("gives_constants", False))


def convention_of(row: MeasuredRow) -> SourceConvention:
    """The convention of a row's source."""
    return SourceConvention(**table_of(SOURCES)["conventions"].get(row.text("source_key"), {}))


def known_differences() -> Mapping[str, str]:
    """Why the prediction of a row is off, by row, where its source or its software gives a reason."""
    groups = table_of("known_differences.toml")["difference"]
    return {name: group["why"] for group in groups for name in group["rows"]}


def rounding_fraction(row: MeasuredRow) -> float:
    """Half the step of a row's figure over the figure."""
    reported = row.number_of("peak_mem_reported")
    given = convention_of(row)
    return given.rounding_bytes / 2 / (reported * given.unit_bytes) if reported else 0.0


def memory_class_of(row: MeasuredRow) -> MemoryClass:
    """Which peak a row's figure is."""
    stated: MemoryClass | None = table_of(CELLS)["memory_class"].get(row.text("mem_class"))
    return stated or convention_of(row).memory_class


def refuse_unknown_words(row: MeasuredRow) -> None:
    """Refuse a row with an unknown memory class or outcome."""
    if row.text("mem_class") not in {*table_of(CELLS)["memory_class"], *UNSTATED_CLASSES}:
        raise NotExpressible("mem_class: not known")
    if row.text("outcome") not in ("", "ok") and not ran_out(row):
        raise NotExpressible("outcome: not known")


def ran_out(row: MeasuredRow) -> bool:
    """Whether a row's job ran out of memory."""
    return row.text("outcome").startswith("OOM")


def measured_peak_bytes(row: MeasuredRow) -> float | None:
    """The peak that a row reports."""
    reported = row.number_of("peak_mem_reported")
    if not reported:
        return None
    unit = row.text("peak_mem_unit")
    if row.text("mem_rank") == SUMMED:
        reported /= row.count("n_gpus")
    if "base unknown" in unit:
        return reported * convention_of(row).unit_bytes
    for pattern, scale in table_of(CELLS)["unit_bytes"].items():
        if re.search(pattern, unit):
            return reported * float(scale)
    raise NotExpressible("unit: not known")


def measured_static_bytes(row: MeasuredRow) -> float | None:
    """Bytes that stay allocated between steps, if the row reports them."""
    reported = row.number_of("static_mem_gib")
    return reported * GIB if reported else None


def measured_rank_of(row: MeasuredRow) -> MeasuredRank:
    """The rank of a row's figure."""
    cell = row.text("mem_rank")
    return next((rank for pattern, rank in table_of(CELLS)["rank"].items() if re.search(pattern, cell)), "fullest")


class Unreadable(TraincostError):
    """A file named on the command line cannot be read or written."""


def content_of(name: str) -> bytes:
    """Content of a file."""
    try:
        with Path(name).open("rb") as file:
            return file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        raise Unreadable(f"the table of measurements cannot be read: {_cause(error)}") from None


def read_file(name: str, kind: Form | None = None) -> tuple[MeasuredRow, ...]:
    """The measurements of a file."""
    return read_measured_rows(content_of(name), kind)


def refuse_same_file(table: str | Path, rows: str) -> None:
    """Refuse to write rows over the table that they come from."""
    try:
        is_same = Path(rows).is_file() and Path(rows).samefile(table)
    except (OSError, ValueError):
        return
    if is_same:
        message = "the rows would be written over the table that they come from; name another file after --rows"
        raise Unreadable(message)


def write_file(name: str, text: str) -> None:
    """Write a text to a file."""
    try:
        Path(name).write_text(text, encoding="utf-8", newline="")
    except (OSError, ValueError) as error:
        raise Unreadable(f"the rows cannot be written: {_cause(error)}") from None


def _cause(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or "its name is none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """The estimate of one row's job."""

    question: Question
    estimate: Estimate
    unmodelled: tuple[str, ...]
    """Details of the row that no field of the question expresses."""

    @property
    def lacks_a_part(self) -> bool:
        """Whether the row leaves a part of its configuration open."""
        return any(detail.startswith(UNSTATED_PART) for detail in self.unmodelled)

    @property
    def memory(self) -> Memory:
        """Bytes of every stage."""
        return self.estimate.memory

    @property
    def verdict(self) -> Verdict:
        """The memory verdict."""
        return self.estimate.verdict

    @property
    def stack(self) -> StackName:
        """Training stack of the question."""
        return self.operations[0]

    @property
    def operations(self) -> Operations:
        """Stack, and its implementation of operations."""
        software = software_of(self.estimate.resolved.recipe)
        return software.name, software.implementation


def predict(row: MeasuredRow, catalogue: Catalogue) -> Predicted:
    """The estimate of a row's job."""
    question, unmodelled = question_of(row, catalogue)
    try:
        answer = estimate(question)
    except Refused as refused:
        raise NotExpressible(reason_of(refused)) from None
    return Predicted(question=question, estimate=answer, unmodelled=unmodelled)


def peak_interval(memory: Memory, stage: StageMemory, memory_class: MemoryClass) -> Interval:
    """Predicted peak of a stage's rank: its own value, with the interval of the fullest stage."""
    allocated, reserved, device = memory.allocated_peak_bytes, memory.reserved_peak_bytes, memory.device_peak_bytes
    if memory_class == "allocated":
        return _scaled(allocated, stage.allocated_peak_bytes / allocated.value)
    if memory_class == "reserved":  # loggers reset the counter after the first steps
        return _scaled(reserved, stage.settled_reserved_bytes / reserved.value)
    reserved_peak = _scaled(reserved, stage.reserved_peak_bytes / reserved.value)
    return Interval(
        reserved_peak.low + (device.low - reserved.low),
        reserved_peak.value + (device.value - reserved.value),
        reserved_peak.high + (device.high - reserved.high),
        device.basis,
    )


def _scaled(interval: Interval, share: float) -> Interval:
    return Interval(interval.low * share, interval.value * share, interval.high * share, interval.basis)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One measured figure of one row (bytes, or seconds of a step) and its prediction."""

    row: MeasuredRow
    quantity: Quantity
    figure_class: str
    """Memory class; for a step, its class of models, GPUs and stacks."""
    is_moe: bool
    is_complete: bool
    """Its configuration is stated in full."""
    ran_out: bool = False
    measured: float | None
    """The figure; None if the row has none."""
    predicted: Predicted | None = None
    """The estimate; None if no question expresses the row."""
    stage: StageMemory | None = None
    interval: Interval | None = None
    """Prediction of the figure."""
    reason: str = ""
    """Why there is no comparison; empty if there is one, or the job ran out of memory."""

    @property
    def stack(self) -> str:
        """The stack that represents the row's framework; empty if no question expresses the row."""
        return "" if self.predicted is None else self.predicted.stack

    @property
    def comparison(self) -> Comparison | None:
        """Prediction and figure; None if one is missing, or the job never ran."""
        if self.interval is None or self.measured is None or self.ran_out:
            return None
        return Comparison(self.measured, self.interval.low, self.interval.value, self.interval.high)


APART = "apart"
"""Class of rows that scores count separately."""

NOT_EXPRESSIBLE = "not asked"
"""Class of rows that no question expresses."""

UNSTATED_RECOMPUTE = ("", "unknown", "not told")
"""Recompute cells that leave a configuration incomplete; a reference to published recipes does not."""

FULLY_TRAINED = ("", "pretrain", "sft")


def evaluate_step(row: MeasuredRow, catalogue: Catalogue) -> Evaluation:
    """Evaluation of a row of a throughput table."""
    is_sparse = row.text("moe_experts") not in ("", "0")
    evaluation = Evaluation(
        row=row,
        quantity="step",
        figure_class=NOT_EXPRESSIBLE,
        is_moe=is_sparse,
        is_complete=is_complete(row),
        measured=None,
    )
    try:
        predicted = predict(row, catalogue)
        measured = measured_step_seconds(row, predicted)
    except NotExpressible as error:
        return replace(evaluation, reason=str(error))
    step_class = step_class_of(
        predicted.operations,
        predicted.estimate.resolved.gpu,
        is_sparse=is_sparse,
        states_dispatcher=requested_software(predicted.question.recipe).dispatcher is not None,
        has_adapters=method_of(predicted.question.recipe).name != "full",
    )
    return replace(
        evaluation,
        figure_class=APART if is_scored_apart(row) else step_class,
        measured=measured,
        predicted=predicted,
        interval=predicted.estimate.step.step_seconds,
    )


def is_complete(row: MeasuredRow) -> bool:
    """Whether a row's step counts for scores."""
    return (
        row.text("score_class") in ("", "A")
        and row.text("training_kind") in FULLY_TRAINED
        and row.text("superseded") in ("", "0")
        and row.text("recompute") not in UNSTATED_RECOMPUTE
    )


def figure_of(row: MeasuredRow) -> str:
    """Column that gives a row's step time."""
    for column in FIGURES_OF_A_STEP:
        if row.text(column):
            return column
    if row.text("mfu_pct") and row.text("source_key") in table_of(SOURCES)["mfu"]:
        return "mfu_pct"
    raise NotExpressible("missing: derived_step_time_s")


def measured_step_seconds(row: MeasuredRow, predicted: Predicted) -> float:
    """Seconds of a row's step.

    Formula: as the row says; of a source that gives nothing but MFU: F / (MFU x peak x GPUs), F by its own convention
    Args:
        row: the row
        predicted: its estimate, whose FLOP count where MFU is all that the row has
    Returns: seconds of one step [s]
    Raises: NotExpressible: the row has no such figure
    """
    column = figure_of(row)
    figure = row.number_of(column)
    if not figure:
        raise NotExpressible(f"unreadable: {column}")
    if column != "mfu_pct":
        return figure
    answer, peak = predicted.estimate, row.number_of("peak_tflops_denominator")
    if not peak:
        raise NotExpressible("missing: peak_tflops_denominator")
    flop = (
        getattr(answer.flop.conventions, table_of(SOURCES)["mfu"][row.text("source_key")]) * answer.flop.per_step_tokens
    )
    return float(flop / (figure / 100 * peak * 1e12 * answer.resolved.cluster.gpus))


def step_rows_of(evaluations: Iterable[Evaluation]) -> list[StepRow]:
    """Evaluated steps that a fit may use."""
    return [row for one in evaluations if (row := step_row_of(one)) is not None]


def shipped_seconds(evaluations: Iterable[Evaluation]) -> dict[str, float]:
    """Predictions of those rows by the shipped constants."""
    return {
        one.row.text("id"): one.comparison.value
        for one in evaluations
        if step_row_of(one) is not None and one.comparison is not None
    }


def step_row_of(one: Evaluation) -> StepRow | None:
    """An evaluated step as a row for a fit; None if fits may not use it."""
    if one.quantity != "step" or one.comparison is None or one.predicted is None or not one.is_complete:
        return None
    return StepRow(
        id=one.row.text("id"),
        source_key=one.row.text("source_key"),
        left_out_with=recipes_of(one.row),
        question=one.predicted.question,
        stack=one.predicted.operations,
        measured_seconds=one.comparison.measured,
        waiting_fraction=waiting_fraction({part.kind: part.seconds for part in one.predicted.estimate.step.parts}),
        is_scored_apart=one.figure_class == APART,
        gives_constants=gives_constants(one.row),
    )


MARGIN_FRACTION = 0.02
"""How far a predicted peak may exceed the usable memory of a job that ran."""
ROOMY_FRACTION = 0.85
"""Share of the usable memory below which a job that ran had room to spare."""


def verdicts_of(evaluations: Sequence[Evaluation]) -> Verdicts:
    """Verdicts counted against outcomes."""
    counts = _counts(evaluations)
    return Verdicts(
        **{field.name: getattr(counts, field.name) for field in fields(counts)},
        full_config=_counts([one for one in evaluations if one.is_complete]),
    )


def _counts(evaluations: Sequence[Evaluation]) -> VerdictCounts:
    out = [one for one in evaluations if one.ran_out]
    predicted_out = [(one, one.predicted) for one in out if one.predicted is not None]
    missed = [(one, predicted) for one, predicted in predicted_out if predicted.verdict == "fits"]
    ran = [(one, one.predicted) for one in evaluations if not one.ran_out and one.predicted is not None]
    verdicts = Counter(predicted.verdict for _, predicted in ran)
    roomy = [
        predicted
        for one, predicted in ran
        if one.measured is not None and one.measured < ROOMY_FRACTION * predicted.memory.usable_bytes
    ]
    roomy_at_risk = sum(predicted.verdict == "at_risk" for predicted in roomy)
    beyond = [
        (one, predicted)
        for one, predicted in ran
        if predicted.memory.device_peak_bytes.value > predicted.memory.usable_bytes * (1 + MARGIN_FRACTION)
    ]
    return VerdictCounts(
        ran=len(ran),
        ran_fits=verdicts["fits"],
        ran_at_risk=verdicts["at_risk"],
        ran_out_of_memory=verdicts["out_of_memory"],
        ran_beyond_margin=len(beyond),
        roomy=len(roomy),
        roomy_at_risk=roomy_at_risk,
        roomy_at_risk_fraction=roomy_at_risk / len(roomy) if roomy else None,
        ran_out=len(out),
        ran_out_told=len(predicted_out) - len(missed),
        ran_out_not_expressible=dict(sorted(Counter(one.reason for one in out if one.reason).items())),
        wrong=tuple(_wrong(one.row, predicted) for one, predicted in (*missed, *beyond)),
    )


def _wrong(row: MeasuredRow, predicted: Predicted) -> WrongVerdict:
    peak, usable = predicted.memory.device_peak_bytes.value, predicted.memory.usable_bytes
    amount = f"{in_units(peak, BYTES)} predicted of {in_units(usable, BYTES)} usable"
    notes = (*predicted.unmodelled, row.text("quality"), row.text("notes"))
    reason = "; ".join([amount, *(text for text in notes if text)])
    return WrongVerdict(id=row.text("id"), outcome=row.text("outcome"), verdict=predicted.verdict, reason=reason)


def evaluate_row(row: MeasuredRow, catalogue: Catalogue) -> tuple[Evaluation, ...]:
    """Evaluations of a row: one for its step, or one for its peak and one for its persistent bytes if reported."""
    row = completed(row)
    if row.form == "throughput":
        return (evaluate_step(row, catalogue),)
    figures: dict[Quantity, tuple[float | None, str]] = {"peak": _readable(measured_peak_bytes, row)}
    if (static := _readable(measured_static_bytes, row))[0] is not None:
        figures["static"] = static
    try:
        refuse_unknown_words(row)
        predicted = predict(row, catalogue)
        stages, rank = predicted.memory.stages, measured_rank_of(row)
        places = {"first": stages[0], "last": stages[-1], "fullest": stages[predicted.memory.peak_stage]}
        places["ends"] = max((stages[0], stages[-1]), key=lambda stage: stage.allocated_peak_bytes)
    except NotExpressible as error:
        reason, missing = str(error), row.text("config_missing")
        first = reason.removeprefix("missing: ")
        if reason != first and first in missing.split():
            reason = f"missing: {missing}"  # all that the row lists
        return tuple(_evaluation(row, quantity, figure, reason=reason) for quantity, figure in figures.items())
    return tuple(_evaluation(row, quantity, figure, predicted, places[rank]) for quantity, figure in figures.items())


def evaluate_rows(rows: Iterable[MeasuredRow], catalogue: Catalogue) -> tuple[Evaluation, ...]:
    """Evaluations of every row of a table."""
    return tuple(evaluations for row in rows for evaluations in evaluate_row(row, catalogue))


def _readable(read: Callable[[MeasuredRow], float | None], row: MeasuredRow) -> tuple[float | None, str]:
    try:
        return read(row), ""
    except NotExpressible as error:
        return None, str(error)


def _evaluation(
    row: MeasuredRow,
    quantity: Quantity,
    figure: tuple[float | None, str],
    predicted: Predicted | None = None,
    stage: StageMemory | None = None,
    reason: str = "",
) -> Evaluation:
    measured, unreadable = figure
    interval = None
    memory_class: MemoryClass = "allocated" if quantity == "static" else memory_class_of(row)
    if predicted is not None and stage is not None:
        allocated = predicted.memory.allocated_peak_bytes
        idle = _scaled(allocated, stage.idle_bytes / allocated.value)  # the relative interval of the peak
        interval = idle if quantity == "static" else peak_interval(predicted.memory, stage, memory_class)
        if measured is None and not ran_out(row):
            reason = unreadable or "missing: peak_mem_reported"
    return Evaluation(
        row=row,
        quantity=quantity,
        figure_class=memory_class,
        is_moe=row.text("moe_experts") not in ("", "0"),
        is_complete=not row.text("config_missing") and not (predicted and predicted.lacks_a_part),
        ran_out=ran_out(row),
        measured=measured,
        predicted=predicted,
        stage=stage,
        interval=interval,
        reason=reason,
    )
