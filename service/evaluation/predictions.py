"""Predictions of a table of steps made without its measured columns, and their scores once these are opened."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from hashlib import sha256

from service.answers.accuracy import AccuracyPoint, Predictions, RefusedRow, Revealed, RevealedClass, StepPrediction
from service.calibration.scores import Comparison
from service.calibration.tables import THROUGHPUT, MeasuredRow, NotExpressible, refused
from service.catalogue import Catalogue
from service.client.reading import Unreadable, from_json
from service.estimator import FORMULAS_VERSION
from service.estimator.model.build import method_of
from service.estimator.time.step import step_class_of
from service.evaluation.recipes import completed
from service.evaluation.scoreboard import EVERY, point_errors, point_of
from service.evaluation.scoring import evaluate_step, predict
from service.validation.reading import to_bytes

MOST_SHOWN = 5
"""Most names of rows in a message."""


def without_figures(row: MeasuredRow) -> MeasuredRow:
    """A row without its measured columns."""
    return replace(row, cells={name: cell for name, cell in row.cells.items() if name not in THROUGHPUT.measured})


def predicted(rows: Sequence[MeasuredRow], catalogue: Catalogue) -> Predictions:
    """Predictions of every row of a table of steps; none of its measured columns is read."""
    blind = [without_figures(row) for row in rows]
    names = Counter(row.text("id") for row in blind)
    if repeated := [name or "(empty)" for name, times in names.items() if times > 1 or not name]:
        message = f"rows share a name, or have none: {', '.join(repeated[:MOST_SHOWN])}"
        raise refused("id", "repeated", message, "give each row an id of its own")
    made, left_out = [], []
    for row in blind:
        try:
            made.append(_prediction(row, catalogue))
        except NotExpressible as error:
            left_out.append(RefusedRow(id=row.text("id"), reason=str(error)))
    predictions = Predictions(
        formulas=FORMULAS_VERSION,
        catalogue=catalogue.revision,
        rows_digest=rows_digest(rows),
        predictions=tuple(made),
        refused=tuple(left_out),
        predictions_digest="",
    )
    return replace(predictions, predictions_digest=predictions_digest(predictions))


def _prediction(row: MeasuredRow, catalogue: Catalogue) -> StepPrediction:
    found = predict(completed(row), catalogue)
    seconds = found.estimate.step.step_seconds
    is_sparse = row.text("moe_experts") not in ("", "0")
    has_adapters = method_of(found.question.recipe).name != "full"
    gpu = found.estimate.resolved.gpu
    return StepPrediction(
        id=row.text("id"),
        memory_class=step_class_of(found.operations, gpu, is_sparse=is_sparse, has_adapters=has_adapters),
        low_seconds=seconds.low,
        value_seconds=seconds.value,
        high_seconds=seconds.high,
    )


def rows_digest(rows: Sequence[MeasuredRow]) -> str:
    """SHA-256 of the cells of rows that a prediction may read, whatever the order of the columns."""
    cells = [sorted(without_figures(row).cells.items()) for row in rows]
    return sha256(json.dumps(cells, ensure_ascii=True).encode()).hexdigest()


def predictions_digest(predictions: Predictions) -> str:
    """SHA-256 of predictions and of what they rest on."""
    return sha256(to_bytes(replace(predictions, predictions_digest=""))).hexdigest()


def read_predictions(content: bytes) -> Predictions:
    """The predictions of a file."""
    try:
        return from_json(Predictions, json.loads(content))
    except (ValueError, RecursionError, Unreadable):
        fix = "send the file that `traincost accuracy --predict` wrote"
        raise refused("predictions", "unreadable", "the file holds no predictions", fix) from None


def revealed(predictions: Predictions, rows: Sequence[MeasuredRow], catalogue: Catalogue) -> Revealed:
    """Scores of predictions against the table that they were made of, now with its measured columns."""
    _refuse_changed(predictions, rows)
    by_name = {row.text("id"): row for row in rows}
    points, left_out = [], list(predictions.refused)
    for one in predictions.predictions:
        evaluation = evaluate_step(completed(by_name[one.id]), catalogue)
        if evaluation.measured is None:
            left_out.append(RefusedRow(id=one.id, reason=evaluation.reason))
        else:
            compared = Comparison(evaluation.measured, one.low_seconds, one.value_seconds, one.high_seconds)
            scored = replace(evaluation, figure_class=one.memory_class)
            points.append(point_of(scored, compared, (one.low_seconds, one.high_seconds)))
    classes = {name: [one for one in points if one.memory_class == name] for name in _classes(points)}
    return Revealed(
        formulas=predictions.formulas,
        predictions_digest=predictions.predictions_digest,
        classes=tuple(
            RevealedClass(memory_class=name, **asdict(point_errors(own)))
            for name, own in {EVERY: points, **classes}.items()
        ),
        points=tuple(points),
        refused=tuple(left_out),
    )


def _classes(points: Sequence[AccuracyPoint]) -> list[str]:
    return sorted({one.memory_class for one in points})


def _refuse_changed(predictions: Predictions, rows: Sequence[MeasuredRow]) -> None:
    """Refuse predictions or rows that are not those of the time of the prediction."""
    if predictions_digest(predictions) != predictions.predictions_digest:
        message = "the predictions are not those whose digest they state"
        raise refused("predictions", "contradiction", message, "take the file as it was written")
    if rows_digest(rows) != predictions.rows_digest:
        message = "the rows are not those that were predicted: columns beside the measured ones have changed"
        fix = "fill the measured columns of the same table, and leave its other cells and the order of its rows"
        raise refused("table", "contradiction", message, fix)
