"""The published tables hold today's figures."""

import csv
import io

import pytest

from service.answers.accuracy import Accuracy
from service.calibration.tables import shipped_rows
from service.cli.data_reports import accuracy_text
from service.errors import StartupError
from service.evaluation.scoring import Evaluation
from service.evaluation.tables import README, ROW_COLUMNS, readme_with, rows_csv


def test_the_readme_has_the_figures_of_today(found: Accuracy) -> None:
    text = README.read_text(encoding="utf-8")
    assert text == readme_with(text, found), "run `traincost write-accuracy`"


def test_a_readme_without_its_marks_is_not_written(found: Accuracy) -> None:
    with pytest.raises(StartupError, match="figures"):
        readme_with("# Calibration\n", found)


def test_the_text_names_every_group_and_reason(found: Accuracy) -> None:
    text = accuracy_text(found)
    assert all(group.source_key in text for group in found.groups)
    assert all(reason in text for reason in found.all.not_expressible)
    assert all(row.id in text for row in found.rows_worst)


def test_there_is_a_line_for_every_figure(evaluations: tuple[Evaluation, ...]) -> None:
    lines = list(csv.DictReader(io.StringIO(rows_csv(evaluations))))
    assert tuple(lines[0]) == ROW_COLUMNS
    assert [line["id"] for line in lines if line["quantity"] == "peak"] == [row.text("id") for row in shipped_rows()]
    for line in lines:
        scored = bool(line["error_fraction"])
        assert scored or line["reason"] or line["outcome"].startswith("OOM"), line["id"]
        assert not scored or all(line[name] for name in ("measured_bytes", "value_bytes", "verdict"))


def test_errors_of_the_lines_are_signed(evaluations: tuple[Evaluation, ...]) -> None:
    for line in csv.DictReader(io.StringIO(rows_csv(evaluations))):
        if line["error_fraction"]:
            expected = int(line["value_bytes"]) / int(line["measured_bytes"]) - 1
            assert float(line["error_fraction"]) == pytest.approx(expected, abs=2e-6)
