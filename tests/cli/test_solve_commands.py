"""`traincost plan`, `solve` and `sensitivity` give what the API gives, from a body in a file, without a server."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from service.answers.plans import PlanAnswer, PlanCounts
from service.api.openapi import request_bodies
from service.catalogue import shipped_catalogue
from service.cli.console import PATIENCE_SECONDS, Progress
from service.cli.reports import describe_counts, plans_csv, plans_report, solution_report, table_report
from service.features.plans.search_plans import search
from service.features.sensitivity.vary import vary
from service.features.solve.solve import solve
from service.validation.reading import to_bytes
from tests.commands import Command, Commands, Ran

SOLUTIONS = request_bodies("createSolution")
OPEN: dict[str, Any] = SOLUTIONS["largest-micro-batch"]["value"]
VARIED: dict[str, Any] = request_bodies("createSensitivity")["grid"]["value"]
PLANNED: dict[str, Any] = {
    "model": "qwen3-0.6b",
    "recipe": {"sequence_length": 4096, "global_batch": 64, "training_tokens": 1e10},
    "cluster": {"gpu": "h100-sxm5-80gb", "gpus": 8},
    "price": {"usd_per_gpu_hour": 2.5},
    "layout": {"zero_stage": [0, 1], "virtual_pipeline": 1},
    "top": 3,
}


def written(folder: Path, text: str) -> str:
    file = folder / "body.json"
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_solve_gives_what_the_api_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: Commands) -> None:
    run = commands("solve")
    found, file = solve(OPEN, shipped_catalogue()), written(tmp_path, json.dumps(OPEN))
    assert run(file) == Ran(0, f"{solution_report(found)}\n", "")
    assert run(file, "--json") == Ran(0, to_bytes(found).decode() + "\n", "")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(OPEN).encode())))
    assert run("-", "--json") == Ran(0, to_bytes(found).decode() + "\n", "")


@pytest.mark.parametrize("name", SOLUTIONS)
def test_a_person_reads_the_value_the_next_one_and_the_numbers_of_both(name: str) -> None:
    found = solve(SOLUTIONS[name]["value"], shipped_catalogue())
    shown = solution_report(found)
    assert shown.startswith(f"{found.unknown}: ")
    if isinstance(found.value, int):
        assert f"{found.value:,}\n" in shown
    if found.next is not None:
        assert f" fails: {found.next.why_not.message}" in shown
    if found.evidence.value is not None:
        (verdict,) = [line for line in shown.splitlines() if line.startswith("verdict ")]
        assert verdict.split()[1] == found.evidence.value.verdict
    assert all(line in shown for line in (*found.assumptions, *found.warnings))


def test_where_no_value_will_do_the_nearest_one_is_told() -> None:
    found = solve({**OPEN, "question": {**OPEN["question"], "model": "llama-3.1-405b"}}, shipped_catalogue())
    assert found.value is None
    assert solution_report(found).startswith("recipe.micro_batch: no value meets the limits\nnext: 1 fails: ")


def test_sensitivity_gives_what_the_api_gives(tmp_path: Path, commands: Commands) -> None:
    run, file = commands("sensitivity"), written(tmp_path, json.dumps(VARIED))
    found = vary(VARIED, shipped_catalogue())
    assert run(file) == Ran(0, f"{table_report(found)}\n", "")
    assert run(file, "--csv").out.splitlines() == found.csv().splitlines()
    assert run(file, "--json").out.encode() == to_bytes(found.answer) + b"\n"


def planned(body: dict[str, Any]) -> PlanAnswer:
    *_, found = search(body, shipped_catalogue())
    assert isinstance(found, PlanAnswer)
    return found


def test_plan_gives_what_the_api_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: Commands) -> None:
    run, file = commands("plan"), written(tmp_path, json.dumps(PLANNED))
    found = planned(PLANNED)
    assert run(file).out == f"{plans_report(found)}\n"
    assert run(file, "--csv").out.splitlines() == plans_csv(found).splitlines()
    assert run(file, "--json").out.encode() == to_bytes(found) + b"\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(PLANNED).encode())))
    assert run("-", "--json").out.encode() == to_bytes(found) + b"\n"


def test_a_person_reads_the_plans_the_counts_and_the_refusals() -> None:
    found = planned({**PLANNED, "why_not": {"layout": {"tensor": 8}}})
    shown = plans_report(found)
    header, *rows = shown.split("\n\n", maxsplit=1)[0].splitlines()
    assert header.split("  ")[0] == "rank"
    assert [row.split()[0] for row in rows] == ["1", "2", "3"]
    assert {"days", "USD", "headroom", "MFU"} <= set(header.split())
    assert "data 8" in rows[0]
    assert describe_counts(found.counts) in shown
    assert all(f"{count:,} {rule}" in shown for rule, count in found.counts.refused.items())
    assert f"the requested layout: {found.why_not.reason if found.why_not else ''}" in shown
    assert all(line in shown for line in (*found.assumptions, *found.warnings))


def test_what_nobody_asked_for_is_no_column() -> None:
    recipe = {**PLANNED["recipe"], "training_tokens": None}
    header = plans_report(planned({**PLANNED, "recipe": recipe, "price": None})).splitlines()[0]
    assert not {"days", "USD"} & set(header.split())


def test_where_nothing_fits_the_nearest_plan_says_what_is_missing() -> None:
    found = planned({**PLANNED, "model": "llama-3.1-405b", "layout": {"zero_stage": 1}})
    assert found.nearest is not None
    shown = plans_report(found)
    assert shown.startswith("no layout fits; the nearest one lacks ")
    assert "GiB" in shown.splitlines()[0]
    roomy = planned({**PLANNED, "limits": {"headroom_fraction": 0.999}})
    assert "less than the required headroom" in plans_report(roomy).splitlines()[0]
    late = planned({**PLANNED, "limits": {"days": 1e-6}})
    assert plans_report(late).startswith("layouts fit, but none meets the limits")


def test_a_search_that_takes_long_says_so_once_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    clock = iter([0.0, 0.5, 1.1, 1.9, 2.1, 2.2])
    progress = Progress(now=lambda: PATIENCE_SECONDS * next(clock))
    for scored in range(5):
        progress.report(describe_counts(PlanCounts(generated=10, refused={"rule": 3}, scored=scored, fitting=0)))
    told = capsys.readouterr()
    assert told.out == ""
    assert [line.split(", ")[1] for line in told.err.splitlines()] == ["1 worked out", "3 worked out"]


@pytest.fixture(params=["plan", "solve", "sensitivity"])
def run(request: pytest.FixtureRequest, commands: Commands) -> Command:
    return commands(request.param)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", "not JSON"),
        ("[]", "no JSON object"),
        ('{"unheard_of": 1}', 'no field "unheard_of"'),
        (None, "cannot be read"),
    ],
)
def test_what_is_wrong_is_said_in_lines(tmp_path: Path, run: Command, text: str | None, expected: str) -> None:
    ran = run(str(tmp_path / "none.json") if text is None else written(tmp_path, text))
    assert (ran.code, ran.out) == (2, "")
    assert expected in ran.err
    assert text is not None or str(tmp_path / "none.json") in ran.err
    assert all(line.startswith("traincost: ") and ": :" not in line for line in ran.err.splitlines())
