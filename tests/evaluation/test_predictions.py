"""Predictions of a table read no measured column, and are scored only as they were written."""

from collections.abc import Callable
from dataclasses import replace
from statistics import median

import pytest

from service.answers.accuracy import Predictions
from service.calibration.tables import THROUGHPUT, MeasuredRow
from service.catalogue import shipped_catalogue
from service.errors import Refused
from service.evaluation.predictions import predicted, predictions_digest, read_predictions, revealed
from service.evaluation.scoring import evaluate_step
from service.validation.reading import to_bytes
from tests.evaluation.rows import STEPS, step_of

CATALOGUE = shipped_catalogue()
ROWS = list(STEPS.values())[::60]
"""Rows of several sources, some of which no question expresses."""

Change = Callable[[MeasuredRow], MeasuredRow]


def with_measured(text: str) -> Change:
    """Put a text into every measured column; none for an empty one."""
    measured = dict.fromkeys(THROUGHPUT.measured, text) if text else {}

    def change(row: MeasuredRow) -> MeasuredRow:
        blind = {name: cell for name, cell in row.cells.items() if name not in THROUGHPUT.measured}
        return replace(row, cells={**blind, **measured})

    return change


@pytest.fixture(scope="module")
def predictions() -> Predictions:
    return predicted(ROWS, CATALOGUE)


@pytest.mark.parametrize("text", ["", "nonsense", "-1", "1e99", "0"])
def test_no_measured_column_is_read(text: str, predictions: Predictions) -> None:
    assert to_bytes(predicted(list(map(with_measured(text), ROWS)), CATALOGUE)) == to_bytes(predictions)


def test_every_figure_of_a_step_is_a_measured_column() -> None:
    assert {*THROUGHPUT.figures} <= {*THROUGHPUT.measured}
    assert not {*THROUGHPUT.required} & {*THROUGHPUT.measured}


def test_every_row_is_predicted_or_refused_with_a_reason(predictions: Predictions) -> None:
    names = {one.id for one in predictions.predictions} | {one.id for one in predictions.refused}
    assert names == {row.text("id") for row in ROWS}
    assert predictions.predictions
    assert all(one.reason for one in predictions.refused)
    assert predictions.refused
    for one in predictions.predictions:
        assert one.low_seconds < one.value_seconds < one.high_seconds


def test_scores_are_those_of_the_steps(predictions: Predictions) -> None:
    scored = revealed(read_predictions(to_bytes(predictions)), ROWS, CATALOGUE)
    errors = [
        comparison.error_fraction
        for row in ROWS
        if (comparison := evaluate_step(row, CATALOGUE).comparison) is not None
    ]
    every = scored.classes[0]
    assert (every.memory_class, every.scored) == ("all", len(errors))
    assert every.median_fraction == pytest.approx(median(map(abs, errors)))
    assert sum(one.scored for one in scored.classes[1:]) == every.scored
    assert every.coverage80_fraction == sum(bool(one.is_inside) for one in scored.points) / len(scored.points)


def test_a_row_without_a_figure_is_listed(predictions: Predictions) -> None:
    name = predictions.predictions[0].id
    rows = [with_measured("")(row) if row.text("id") == name else row for row in ROWS]
    scored = revealed(predictions, rows, CATALOGUE)
    assert "missing: derived_step_time_s" in {one.reason for one in scored.refused if one.id == name}
    assert name not in {one.id for one in scored.points}


def faster(predictions: Predictions) -> Predictions:
    first, *rest = predictions.predictions
    return replace(predictions, predictions=(replace(first, value_seconds=first.value_seconds / 2), *rest))


def test_changed_predictions_are_refused(predictions: Predictions) -> None:
    with pytest.raises(Refused, match="not those whose digest they state"):
        revealed(faster(predictions), ROWS, CATALOGUE)
    again = replace(faster(predictions), predictions_digest=predictions_digest(faster(predictions)))
    assert again.predictions_digest != predictions.predictions_digest


@pytest.mark.parametrize(
    "rows",
    [ROWS[1:], ROWS[::-1], [step_of(ROWS[0].text("id"), mbs="3"), *ROWS[1:]]],
    ids=["one less", "another order", "another batch"],
)
def test_changed_rows_are_refused(rows: list[MeasuredRow], predictions: Predictions) -> None:
    with pytest.raises(Refused, match="not those that were predicted"):
        revealed(predictions, rows, CATALOGUE)


@pytest.mark.parametrize("name", ["", ROWS[1].text("id")])
def test_rows_need_names_of_their_own(name: str) -> None:
    with pytest.raises(Refused, match="share a name"):
        predicted([replace(ROWS[0], cells={**ROWS[0].cells, "id": name}), ROWS[1]], CATALOGUE)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"formulas": 1}', b"\xff"])
def test_other_files_are_no_predictions(content: bytes) -> None:
    with pytest.raises(Refused, match="holds no predictions"):
        read_predictions(content)
