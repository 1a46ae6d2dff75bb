"""What becomes of a row of a throughput table? Seconds of a step beside what is predicted of them."""

from collections.abc import Iterable
from dataclasses import replace

from service.calibration.steps import StepRow
from service.calibration.tables import FIGURES_OF_A_STEP, MeasuredRow, NotExpressible
from service.catalogue import Catalogue
from service.estimator.time.step import step_class_of, waiting_fraction
from service.workflows.accuracy.judged import Judged
from service.workflows.accuracy.predicted import Predicted, predict
from service.workflows.accuracy.sources import MFU_CONVENTIONS, gives_constants, is_apart

APART = "apart"
"""Class of rows that are counted apart."""

NOT_ASKED = "not asked"
"""Class of rows that cannot be asked about."""

UNTOLD_RECOMPUTE = ("", "unknown", "not told")
"""Cells of recompute that leave a configuration untold; one that points to published recipes tells it."""

TRAINED_WHOLE = ("", "pretrain", "sft")
"""Kinds of training whose every parameter is trained."""


def judge_step(row: MeasuredRow, catalogue: Catalogue) -> Judged:
    """What becomes of a row of a throughput table.

    Args:
        row: the row
        catalogue: the GPUs

    Returns:
        the entry, whatever is wrong with the row
    """
    is_sparse = row.text("moe_experts") not in ("", "0")
    entry = Judged(
        row=row, quantity="step", figure_class=NOT_ASKED, is_moe=is_sparse, is_told=is_told(row), measured=None
    )
    try:
        predicted = predict(row, catalogue)
        measured = measured_step_seconds(row, predicted)
    except NotExpressible as why:
        return replace(entry, reason=str(why))
    known = step_class_of(predicted.operations, predicted.found.resolved.gpu, is_sparse=is_sparse)
    return replace(
        entry,
        figure_class=APART if is_apart(row) else known,
        measured=measured,
        predicted=predicted,
        interval=predicted.found.step.step_seconds,
    )


def is_told(row: MeasuredRow) -> bool:
    """Whether a row is one that predictions are judged by.

    Args:
        row: the row

    Returns:
        it was measured with everything told that a step needs (class A), every parameter trained and recompute told,
        and no later release of its source says the same again; what a table does not say of this is not held against
        its rows
    """
    return (
        row.text("score_class") in ("", "A")
        and row.text("training_kind") in TRAINED_WHOLE
        and row.text("superseded") in ("", "0")
        and row.text("recompute") not in UNTOLD_RECOMPUTE
    )


def figure_of(row: MeasuredRow) -> str:
    """Which of a row's figures gives the seconds of its step.

    Args:
        row: the row

    Returns:
        its column

    Raises:
        NotExpressible: it has none
    """
    for column in FIGURES_OF_A_STEP:
        if row.text(column):
            return column
    if row.text("mfu_pct") and row.text("source_key") in MFU_CONVENTIONS:
        return "mfu_pct"
    raise NotExpressible("missing: derived_step_time_s")


def measured_step_seconds(row: MeasuredRow, predicted: Predicted) -> float:
    """Seconds of a row's step.

    Formula:
        as the row says; of a source that gives nothing but MFU: F / (MFU x peak x GPUs), F by its own convention

    Args:
        row: the row
        predicted: its estimate, whose FLOP count where MFU is all that the row has

    Returns:
        seconds of one step [s]

    Raises:
        NotExpressible: the row has no such figure
    """
    column = figure_of(row)
    said = row.number_of(column)
    if not said:
        raise NotExpressible(f"unreadable: {column}")
    if column != "mfu_pct":
        return said
    found, peak = predicted.found, row.number_of("peak_tflops_denominator")
    if not peak:
        raise NotExpressible("missing: peak_tflops_denominator")
    flop = getattr(found.flop.conventions, MFU_CONVENTIONS[row.text("source_key")]) * found.flop.per_step_tokens
    return float(flop / (said / 100 * peak * 1e12 * found.resolved.cluster.gpus))


def step_rows_of(judged: Iterable[Judged]) -> list[StepRow]:
    """The rows of some judged steps that a fit may use.

    Args:
        judged: what became of each row

    Returns:
        the rows that have a comparison and are told in full
    """
    return [row for one in judged if (row := step_row_of(one)) is not None]


def shipped_seconds(judged: Iterable[Judged]) -> dict[str, float]:
    """What the shipped constants predict of those rows.

    Args:
        judged: what became of each row

    Returns:
        seconds of a step by the row's name [s]
    """
    return {
        one.row.text("id"): one.comparison.value
        for one in judged
        if step_row_of(one) is not None and one.comparison is not None
    }


def step_row_of(one: Judged) -> StepRow | None:
    """A judged step as a row that a fit may use.

    Args:
        one: what became of a row

    Returns:
        the row; None where there is no comparison, or its configuration is not told
    """
    if one.quantity != "step" or one.comparison is None or one.predicted is None or not one.is_told:
        return None
    return StepRow(
        id=one.row.text("id"),
        source_key=one.row.text("source_key"),
        left_out_with=one.row.text("model" if one.is_moe else "source_key"),
        question=one.predicted.question,
        stack=one.predicted.operations,
        measured_seconds=one.comparison.measured,
        waiting_fraction=waiting_fraction({part.kind: part.seconds for part in one.predicted.found.step.parts}),
        is_apart=one.figure_class == APART,
        gives_constants=gives_constants(one.row),
    )
