"""`traincost accuracy` scores a table of measurements; nothing but an unreadable table makes it fail."""

import csv
import json
from pathlib import Path

import pytest

from service.calibration.tables import shipped_rows
from service.catalogue import shipped_catalogue
from service.cli.data_reports import accuracy_text
from service.evaluation.accuracy import accuracy_of, scored_rows
from service.evaluation.scoring import evaluate_rows, read_file
from service.evaluation.tables import PUBLISHED
from service.validation.reading import to_wire
from tests.api.asking import Ask
from tests.commands import Command, Commands, Ran
from tests.evaluation.rows import STEP, ship_few


@pytest.fixture
def run(commands: Commands) -> Command:
    return commands("accuracy")


def one_row(folder: Path) -> Path:
    """A table of the first shipped row alone."""
    table = folder / "one.csv"
    table.write_text("".join(PUBLISHED.read_text(encoding="utf-8").splitlines(keepends=True)[:2]), encoding="utf-8")
    return table


def test_without_a_file_the_shipped_rows_are_scored(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    few = ship_few(monkeypatch)
    evaluations = evaluate_rows([*few["memory"], *few["throughput"]], shipped_catalogue())
    scored = scored_rows(evaluations, shipped_catalogue(), with_runs=True).answer
    assert run() == Ran(0, f"{accuracy_text(scored)}\n", "")
    assert json.loads(run("--json").out) == to_wire(scored)


def test_the_shipped_rows_are_those_of_their_files() -> None:
    assert read_file(str(PUBLISHED)) == tuple(shipped_rows())
    assert read_file(str(PUBLISHED.with_name("throughput.csv"))) == tuple(shipped_rows("throughput"))


def few_of(table: Path, folder: Path) -> Path:
    """A table of some rows of another."""
    heading, *lines = table.read_text(encoding="utf-8").splitlines(keepends=True)
    few = folder / table.name
    few.write_text("".join([heading, *lines[::STEP]]), encoding="utf-8")
    return few


def test_the_json_of_two_tables_is_that_of_their_rows_together(run: Command, tmp_path: Path) -> None:
    tables = [few_of(table, tmp_path) for table in (PUBLISHED, PUBLISHED.with_name("throughput.csv"))]
    shipped = to_wire(accuracy_of([row for table in tables for row in read_file(str(table))], shipped_catalogue()))
    memory, steps = (json.loads(run(str(table), "--json").out) for table in tables)
    assert sorted(map(str, [*memory["groups"], *steps["groups"]])) == sorted(map(str, shipped["groups"]))
    assert shipped == {
        **memory,
        **{name: steps[name] for name in ("steps", "steps_worst")},
        **{name: shipped[name] for name in ("groups", "held_out")},
    }
    for name in ("classes", "sources"):
        assert shipped["held_out"][name] == [*steps["held_out"][name], *memory["held_out"][name]]


def test_every_row_goes_into_the_file_of_rows(run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = ship_few(monkeypatch)
    out = tmp_path / "rows.csv"
    assert run("--rows", str(out)).code == 0
    with out.open(encoding="utf-8", newline="") as file:
        ids = {line["id"] for line in csv.DictReader(file)}
    assert ids == {row.text("id") for rows in few.values() for row in rows}


def test_every_point_goes_into_the_file_of_points(run: Command, ask: Ask, tmp_path: Path) -> None:
    out = tmp_path / "points.csv"
    assert run("--points", str(out)).code == 0
    listed = ask("GET", "/v1/accuracy/points.csv").text
    lines, expected = (list(csv.DictReader(text.splitlines())) for text in (out.read_text(encoding="utf-8"), listed))
    assert sorted(lines, key=str) == sorted(expected, key=str)


def test_errors_of_predictions_are_no_failure(run: Command, tmp_path: Path) -> None:
    table = one_row(tmp_path)
    said = run(str(table))
    assert (said.code, said.err) == (0, "")


def test_a_missing_file_is_said_in_a_line(run: Command, tmp_path: Path) -> None:
    assert run(str(tmp_path / "none.csv")) == Ran(
        2, "", "traincost: the table of measurements cannot be read: No such file or directory\n"
    )
    assert run(str(tmp_path)).code == 2
    assert run("\0").code == 2


def test_unknown_columns_are_named(run: Command, tmp_path: Path) -> None:
    table = tmp_path / "bad.csv"
    lines = PUBLISHED.read_text(encoding="utf-8").splitlines()
    table.write_text(f"{lines[0]},colour\n", encoding="utf-8")
    said = run(str(table))
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("traincost: colour: the column colour is not known")


@pytest.mark.parametrize("other", ["same", "relative", "link", "hard link"])
def test_rows_are_not_written_over_their_table(run: Command, tmp_path: Path, other: str) -> None:
    table = tmp_path / "table.csv"
    table.write_bytes(PUBLISHED.read_bytes())
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(table)
    (tmp_path / "hard link").hardlink_to(table)
    paths = {"same": table, "relative": tmp_path / "folder" / ".." / "table.csv"}
    said = run(str(table), "--rows", str(paths.get(other, tmp_path / other)))
    assert (said.code, said.out) == (2, "")
    assert "would be written over the table" in said.err
    assert "name another file after --rows" in said.err
    assert table.read_bytes() == PUBLISHED.read_bytes()


def test_rows_are_not_written_over_the_shipped_table(run: Command, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(PUBLISHED)
    held = PUBLISHED.read_bytes()
    assert run("--rows", str(link)).code == 2
    assert PUBLISHED.read_bytes() == held


def test_rows_replace_those_of_an_earlier_run(run: Command, tmp_path: Path) -> None:
    table, out = one_row(tmp_path), tmp_path / "rows.csv"
    out.write_text("old", encoding="utf-8")
    assert run(str(table), "--rows", str(out)).code == 0
    assert out.read_text(encoding="utf-8") != "old"


def test_rows_that_cannot_be_written_are_said(run: Command, tmp_path: Path) -> None:
    table = one_row(tmp_path)
    said = run(str(table), "--rows", str(tmp_path / "nowhere" / "rows.csv"))
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("traincost: the rows cannot be written")


def test_steps_are_predicted_blind_and_then_revealed(run: Command, tmp_path: Path) -> None:
    table, out = few_of(PUBLISHED.with_name("throughput.csv"), tmp_path), tmp_path / "predictions.json"
    ran = run(str(table), "--predict", "--out", str(out))
    assert (ran.code, ran.out) == (0, "")
    predictions = json.loads(out.read_text(encoding="utf-8"))
    assert f"digest {predictions['predictions_digest']}" in ran.err
    assert run(str(table), "--predict").out == out.read_text(encoding="utf-8")
    revealed = json.loads(run("--reveal", str(out), str(table), "--json").out)
    assert len(revealed["points"]) == revealed["classes"][0]["scored"] > 0
    text = run("--reveal", str(out), str(table)).out
    assert all(one["id"] in text for one in (*revealed["points"], *revealed["refused"]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--predict",), "needs a table of steps"),
        (("--reveal", "p.json"), "needs a table of steps"),
        (("--predict", "--totals", "t.csv"), "ask for different things"),
        (("--predict", "--rows", "r.csv", "t.csv"), "--rows cannot be given beside --predict"),
        (("--out", "p.json", "t.csv"), "--out cannot be given without --predict"),
        (("--predict", "none.csv"), "cannot be read"),
        (("--predict", "--out", "{table}", "{table}"), "would be written over the table"),
    ],
)
def test_contradictions_of_options_are_said(
    run: Command, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    table = few_of(PUBLISHED.with_name("throughput.csv"), tmp_path)
    said = run(*(option.format(table=table) for option in options))
    assert (said.code, said.out) == (2, "")
    assert message in " ".join(said.err.replace("│", " ").split())
