"""The scoreboard counts each point once, holds sources out, and compares methods on the same rows."""

from math import log
from statistics import fmean

import pytest

from service.answers.accuracy import Accuracy, AccuracyPoint, HeldOutScore
from service.calibration.scores import READ_OFF
from service.calibration.steps import shipped_held_out
from service.calibration.tables import shipped_rows, shipped_table
from service.evaluation.scoreboard import EVERY, OTHER_TOOLS, StepScorer, points_of
from service.evaluation.scoring import Evaluation


@pytest.fixture(scope="module")
def points(evaluations: tuple[Evaluation, ...], steps: tuple[Evaluation, ...]) -> tuple[AccuracyPoint, ...]:
    together = (*evaluations, *steps)
    return points_of(together, StepScorer(together))


def of(points: tuple[AccuracyPoint, ...], score: HeldOutScore) -> list[AccuracyPoint]:
    return [one for one in points if (one.quantity, one.source_key) == (score.quantity, score.source_key)]


def test_points_are_held_out(points: tuple[AccuracyPoint, ...]) -> None:
    held_out = shipped_held_out().predicted_seconds
    steps = {one.id: one for one in points if one.quantity == "step"}
    assert {name: one.predicted for name, one in steps.items()} == held_out
    assert not [one.id for one in points if one.quantity == "peak" and one.source_key in READ_OFF]
    assert len({(one.quantity, one.id) for one in points}) == len(points)


def test_a_point_says_whether_its_interval_holds_it(points: tuple[AccuracyPoint, ...]) -> None:
    for one in points:
        assert one.error_fraction == pytest.approx(one.predicted / one.measured - 1)
        if one.low is not None and one.high is not None:
            assert one.low <= one.predicted <= one.high
            assert one.is_inside is (one.low <= one.measured <= one.high)


def test_sources_add_up_to_every_point(points: tuple[AccuracyPoint, ...], found: Accuracy) -> None:
    assert sum(score.scored for score in found.held_out.sources) == len(points)
    for score in found.held_out.sources:
        own = [one for one in of(points, score) if one.memory_class == score.memory_class]
        assert score.mape_fraction == pytest.approx(fmean(abs(one.error_fraction) for one in own))
        inside = [one.is_inside for one in own if one.is_inside is not None]
        assert score.coverage80_fraction == (pytest.approx(fmean(inside)) if inside else None)


def test_all_steps_but_those_apart_are_scored_together(points: tuple[AccuracyPoint, ...], found: Accuracy) -> None:
    (score,) = [one for one in found.held_out.classes if (one.quantity, one.memory_class) == ("step", EVERY)]
    own = [one for one in points if one.quantity == "step" and one.memory_class != "apart"]
    assert score.scored == len(own)
    assert {one.name: one.scored for one in score.others}.items() >= {"constant MFU": len(own), "6PD": len(own)}.items()
    assert all(one.ours_mape_fraction == pytest.approx(score.mape_fraction) for one in score.others[:2])


def test_other_tools_are_scored_on_the_rows_that_they_predict(found: Accuracy) -> None:
    held_out = shipped_held_out().predicted_seconds
    rows = shipped_table(OTHER_TOOLS)
    assert len({(row["id"], row["tool"]) for row in rows}) == len(rows)
    assert {row["id"] for row in rows} <= {row.text("id") for row in shipped_rows("throughput")}
    for name in {row["tool"] for row in rows}:
        own = [row for row in rows if row["tool"] == name and row["id"] in held_out]
        scores = [one for score in found.held_out.sources for one in score.others if one.name == name]
        assert sum(one.scored for one in scores) == len(own)
        assert all(one.coverage80_fraction is None and one.ours_mape_fraction is not None for one in scores)


def test_the_worst_come_first(points: tuple[AccuracyPoint, ...], found: Accuracy) -> None:
    sizes = [abs(log(one.predicted / one.measured)) for one in found.held_out.worst]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == max(abs(log(one.predicted / one.measured)) for one in points)
