"""The scoreboard counts each point once, holds sources out, and compares methods on the same rows."""

from dataclasses import replace
from math import log
from statistics import fmean

import pytest

from service.answers.accuracy import Accuracy, AccuracyPoint, HeldOutScore
from service.calibration.scores import READ_OFF
from service.calibration.steps import shipped_held_out
from service.calibration.tables import shipped_table
from service.catalogue import shipped_catalogue
from service.evaluation.accuracy import accuracy_of
from service.evaluation.questions import question_of
from service.evaluation.scoreboard import EVERY, OTHER_TOOLS, StepScorer, points_of, question_digest
from service.evaluation.scoring import Evaluation, step_rows_of
from tests.evaluation.rows import step_of


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


def test_other_tools_are_scored_on_the_rows_that_they_were_asked(
    found: Accuracy, steps: tuple[Evaluation, ...]
) -> None:
    """A row that is read otherwise today has no score of theirs; `.ci/proof tools` asks them anew."""
    rows = shipped_table(OTHER_TOOLS)
    asked = {row.id: question_digest(row.question) for row in step_rows_of(steps)}
    current = [row for row in rows if asked.get(row["id"]) == row["question"]]
    assert len(current) > 0.8 * len(rows)
    for name in {row["tool"] for row in rows}:
        scores = [one for score in found.held_out.sources for one in score.others if one.name == name]
        assert sum(one.scored for one in scores) == sum(row["tool"] == name for row in current)
        assert all(one.coverage80_fraction is None and one.ours_mape_fraction is not None for one in scores)


def test_another_question_is_not_what_a_tool_was_asked() -> None:
    row = step_of(shipped_table(OTHER_TOOLS)[0]["id"])
    question, _ = question_of(row, shipped_catalogue())
    changed = replace(question, recipe=replace(question.recipe, micro_batch=1 + (question.recipe.micro_batch or 1)))
    assert question_digest(changed) != question_digest(question)


def test_a_source_that_gave_no_constant_is_held_out() -> None:
    own, fitted = (
        [replace(row, cells={**row.cells, "id": f"own-{row.text('id')}", "source_key": key})]
        for row in (step_of("T-llmfoundry-0001"),)
        for key in ("team", "llmfoundry")
    )
    (score, *_) = accuracy_of(own, shipped_catalogue()).held_out.sources
    assert (score.source_key, score.scored) == ("team", 1)
    assert accuracy_of(fitted, shipped_catalogue()).held_out.sources == ()


def test_the_worst_come_first(points: tuple[AccuracyPoint, ...], found: Accuracy) -> None:
    sizes = [abs(log(one.predicted / one.measured)) for one in found.held_out.worst]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == max(abs(log(one.predicted / one.measured)) for one in points)
