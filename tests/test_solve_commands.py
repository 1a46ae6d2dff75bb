"""`traincost solve` and `traincost sensitivity` give what the API gives, from a body in a file, without a server."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from service.api.sensitivity_schemas import VARIATIONS
from service.api.solve_schemas import SOLUTIONS
from service.catalogue import shipped_catalogue
from service.workflows.sensitivity import vary
from service.workflows.sensitivity_table import table_csv, table_report, whole_table
from service.workflows.solve import solve
from service.workflows.wire import to_bytes
from tests.commands import Command, Ran

OPEN: dict[str, Any] = SOLUTIONS["largest-micro-batch"]["value"]
VARIED: dict[str, Any] = VARIATIONS["grid"]["value"]


def written(folder: Path, text: str) -> str:
    file = folder / "body.json"
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_solve_gives_what_the_api_gives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Command("solve", capsys, monkeypatch)
    expected = to_bytes(solve(OPEN, shipped_catalogue())).decode() + "\n"
    assert run(written(tmp_path, json.dumps(OPEN))) == Ran(0, expected, "")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(OPEN).encode())))
    assert run("-") == Ran(0, expected, "")


def test_sensitivity_gives_what_the_api_gives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, file = Command("sensitivity", capsys, monkeypatch), written(tmp_path, json.dumps(VARIED))
    found = vary(VARIED, shipped_catalogue())
    assert run(file) == Ran(0, f"{table_report(found)}\n", "")
    assert run(file, "--csv").out.splitlines() == table_csv(found).splitlines()
    assert run(file, "--json").out.encode() == to_bytes(whole_table(found)) + b"\n"


@pytest.fixture(params=["solve", "sensitivity"])
def run(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    return Command(request.param, capsys, monkeypatch)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("{", "not JSON"), ("[]", "no JSON object"), ('{"question": 1}', "question"), (None, "cannot be read")],
)
def test_what_is_wrong_is_said_in_lines(tmp_path: Path, run: Command, text: str | None, expected: str) -> None:
    ran = run(str(tmp_path / "none.json") if text is None else written(tmp_path, text))
    assert (ran.code, ran.out) == (2, "")
    assert expected in ran.err
    assert all(line.startswith("traincost: ") for line in ran.err.splitlines())
