"""The calibration guide: its commands are sent live, and the command line agrees."""

import json
from pathlib import Path

import httpx
import pytest

from tests.api.asking import NCCL_TESTS, RECORDS
from tests.commands import Command
from tests.evaluation.rows import ship_few
from tests.guide_pages import blocks_of, by_request, differences, walk
from tests.house.source import ROOT, SERVICE
from tests.live import DOCUMENTED, serving

PAGE = SERVICE / "web" / "guide" / "calibrating.html"
BLOCKS = blocks_of(PAGE)


def test_measurements_become_a_calibration_as_the_page_shows(tmp_path: Path) -> None:
    with serving(tmp_path) as address:
        told = walk(BLOCKS, by_request(address, tmp_path), address, tmp_path)
        page = httpx.get(f"http://{address}/guide/calibrating", timeout=30)
    assert len(told) == sum(block.kind == "command" for block in BLOCKS)
    for shown, answered in told:
        assert differences(json.loads(shown), answered) == []
    assert (page.status_code, page.text) == (200, PAGE.read_text(encoding="utf-8"))
    assert f"http://{DOCUMENTED}/guide/calibrating" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_files_come_in_from_the_command_line_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ship_few(monkeypatch)
    monkeypatch.setenv("TRAINCOST_DATABASE_URL", f"sqlite:///{tmp_path / 'traincost.db'}")
    (tmp_path / "all_reduce.txt").write_text(NCCL_TESTS, encoding="utf-8")
    (tmp_path / "record.json").write_text(json.dumps(RECORDS["records"][0]), encoding="utf-8")
    (tmp_path / "snapshot.pickle").write_bytes(b"\x80\x04.")
    bring = Command("import-measurements", capsys, monkeypatch)
    said = bring("nccl-tests", str(tmp_path / "all_reduce.txt"), "--tell", "run=ours")
    assert (said.code, said.out) == (0, "4 measurements came in as run ours; 0 are in quarantine\n")
    own = json.loads(bring("records", str(tmp_path / "record.json"), "--tell", "run=node-7", "--json").out)
    assert (own["measurements"], own["quarantined"]) == (6, 0)
    for words, reason in (
        (("memory-snapshot", str(tmp_path / "snapshot.pickle")), "this is a pickle"),
        (("gemm-csv", str(tmp_path / "all_reduce.txt")), "line 1"),
        (("excel", str(tmp_path / "record.json")), "no such format"),
        (("nccl-tests", str(tmp_path / "absent.txt")), "cannot be read"),
        (("nccl-tests", str(tmp_path / "all_reduce.txt"), "--tell", "ours"), "not written as name=value"),
    ):
        refused = bring(*words)
        assert refused.code == 2
        assert reason in refused.err
    shown = json.loads(Command("accuracy", capsys, monkeypatch)("--own", "--json").out)["measured"]["own"]
    assert {group["probe"]: group["scored"] for group in shown} == {"collective": 4, "gemm": 6}
    assert all(0 < group["mape_fraction"] < 0.5 for group in shown)
