"""`traincost sweep` writes the table of a sweep over several processes, and goes on from the pieces that are there."""

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from service.catalogue import shipped_catalogue
from service.features.sweeps.rows import Counts, Rows, Sweep, columns_of
from service.features.sweeps.schemas import read_sweep
from service.features.sweeps.shards import run_locally
from service.features.sweeps.sweeps import SHARD_ROWS
from tests.commands import Commands

BODY: dict[str, Any] = {
    "models": ["qwen3-0.6b"],
    "clusters": ["dgx-h100", {"gpu": "a100-sxm4-80gb", "gpus": 8}],
    "layouts": [{"tensor": 1}, {"tensor": 3}],
    "recipes": [{"sequence_length": 4096, "global_batch": 64, "training_tokens": 1e10}],
    "prices": [{"usd_per_gpu_hour": 1 + place / 8} for place in range(15)],
    "columns": ["gpu_hours", "cost_usd", "fits"],
}
ROWS = 60


class Stopped(Exception):
    """Somebody ended the command."""


@pytest.fixture
def sweep(monkeypatch: pytest.MonkeyPatch) -> Sweep:
    """A sweep of six pieces."""
    monkeypatch.setitem(SHARD_ROWS, "estimate", 10)
    return read_sweep(BODY, shipped_catalogue())


def expected(sweep: Sweep) -> list[dict[str, Any]]:
    names = [column.name for column in columns_of(sweep)]
    return [dict(zip(names, cells, strict=True)) for cells in Rows(sweep).of(0, ROWS)]


def test_a_sweep_that_was_ended_goes_on_from_its_pieces(sweep: Sweep, tmp_path: Path) -> None:
    file, told = tmp_path / "rows.parquet", []

    def end_soon(counts: Counts) -> None:
        told.append(counts.rows)
        if counts.rows >= 20:
            raise Stopped

    with pytest.raises(Stopped):
        run_locally(sweep, file, 2, end_soon)
    assert not file.exists()
    pieces = {part: part.stat().st_mtime_ns for part in tmp_path.rglob("part-*.parquet")}
    damaged = min(pieces)
    damaged.write_bytes(damaged.read_bytes()[:-9])
    del pieces[damaged]
    kept: dict[Path, int] = {}

    def look(counts: Counts) -> None:
        if not kept:
            told.append(counts.rows)
        kept.update({part: part.stat().st_mtime_ns for part in tmp_path.rglob("part-*.parquet")})

    counts = run_locally(sweep, file, 2, look)
    assert told[-1] == 10 * len(pieces) >= 10
    assert kept.items() >= pieces.items()
    assert (counts.rows, counts.answered, counts.refused) == (ROWS, 30, 30)
    assert pq.read_table(file).to_pylist() == expected(sweep)
    assert sorted(tmp_path.iterdir()) == [file]


def test_parquet_and_csv_hold_the_same_rows(tmp_path: Path, commands: Commands) -> None:
    body = tmp_path / "sweep.json"
    body.write_text(json.dumps(BODY), encoding="utf-8")
    run = commands("sweep")
    sweep = read_sweep(BODY, shipped_catalogue())
    for form in ("parquet", "csv"):
        done = run(str(body), "--out", str(tmp_path / f"rows.{form}"), "--processes", "1")
        assert done.code == 0
        assert done.out == f"60 rows in {tmp_path / f'rows.{form}'}: 30 answered, 30 of them fit, 30 refused\n"
    table = pq.read_table(tmp_path / "rows.parquet")
    assert table.to_pylist() == expected(sweep)
    assert table.schema.metadata[b"catalogue"].decode() == sweep.versions.catalogue
    with (tmp_path / "rows.csv").open(encoding="utf-8", newline="") as file:
        for row, told in zip(csv.DictReader(file), expected(sweep), strict=True):
            for name, value in told.items():
                text = row[name]
                assert (float(text) if isinstance(value, float) else text) == (
                    value if isinstance(value, float) else "" if value is None else str(value)
                )


def test_a_table_that_is_there_stays_unless_it_may_go(tmp_path: Path, commands: Commands) -> None:
    body, table = tmp_path / "sweep.json", tmp_path / "rows.csv"
    body.write_text(json.dumps({**BODY, "prices": BODY["prices"][:1]}), encoding="utf-8")
    table.write_text("mine", encoding="utf-8")
    run, words = commands("sweep"), (str(body), "--out", str(table), "--processes", "1")
    refused = run(*words)
    assert (refused.code, refused.out, table.read_text(encoding="utf-8")) == (2, "", "mine")
    assert "--replace" in refused.err
    assert run(*words, "--replace").code == 0
    assert table.read_text(encoding="utf-8").count("\n") > 1


def test_a_table_of_another_form_is_refused(tmp_path: Path, commands: Commands) -> None:
    body = tmp_path / "sweep.json"
    body.write_text(json.dumps(BODY), encoding="utf-8")
    done = commands("sweep")(str(body), "--out", str(tmp_path / "rows.xlsx"))
    assert (done.code, done.out) == (2, "")
    assert done.err == ("traincost: the file name must end in .parquet or .csv\n")
