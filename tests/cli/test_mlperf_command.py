"""`traincost read-mlperf` prints a submission as a table that `traincost accuracy` reads."""

from pathlib import Path

import pytest

from service.calibration.tables import THROUGHPUT, read_measured_rows
from tests.commands import Command, Commands
from tests.evaluation.test_mlperf import SUBMISSIONS, submission


@pytest.fixture
def run(commands: Commands) -> Command:
    return commands("read-mlperf")


def files_of(name: str, folder: Path) -> list[str]:
    """The options of a submission whose files are in a folder."""
    given = SUBMISSIONS[name]
    for file, text in {"result_0.txt": given["log"], "config_x.sh": given["config"], **given["beside"]}.items():
        (folder / file).write_text(text, encoding="utf-8")
    (folder / "machine.json").write_text(given["system"], encoding="utf-8")
    return [
        *(str(folder / "result_0.txt"), "--config", str(folder / "config_x.sh")),
        *("--system", str(folder / "machine.json"), "--source", given["source"]),
    ]


@pytest.mark.parametrize("name", SUBMISSIONS)
def test_the_table_holds_the_row_of_the_submission(name: str, run: Command, commands: Commands, tmp_path: Path) -> None:
    said = run(*files_of(name, tmp_path), "--id", "a row")
    expected = submission(name)
    (row,) = read_measured_rows(said.out.encode(), THROUGHPUT)
    assert (said.code, row.cells) == (0, expected.cells)
    assert said.err.startswith(f"1 of 1 runs reached the target, after {expected.samples} samples")
    table = tmp_path / "steps.csv"
    table.write_text(said.out, encoding="utf-8")
    assert '"id":"a row"' in commands("accuracy")(str(table), "--predict").out


def test_a_missing_file_is_said_in_a_line(run: Command, tmp_path: Path) -> None:
    options = files_of("gpt3", tmp_path)
    (tmp_path / "machine.json").unlink()
    said = run(*options)
    assert (said.code, said.out) == (2, "")
    assert "cannot be read: No such file or directory" in said.err
