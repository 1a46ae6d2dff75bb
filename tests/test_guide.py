"""The guide: its commands are run against a live service, and the answers that it shows compared.

They are run twice: by curl, as people run them, and as the same requests where curl is missing.
"""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.curl import asked
from tests.guide_pages import blocks_of, by_curl, by_request, differences, walk
from tests.house.source import ROOT, SERVICE
from tests.live import DOCUMENTED, serving

PAGE = SERVICE / "web" / "guide" / "index.html"
BLOCKS = blocks_of(PAGE)
COMMANDS = [block.text for block in BLOCKS if block.kind == "command"]


@pytest.fixture(scope="module", params=["curl", "requests"])
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[tuple[str, Any]]]:
    """What each block of the guide says is answered, and what is: in order, against one service."""
    if request.param == "curl" and shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    folder = tmp_path_factory.mktemp("guide")
    with serving(folder) as address:
        send = by_curl(address, folder) if request.param == "curl" else by_request(address, folder)
        yield walk(BLOCKS, send, address, folder)


def test_every_answer_is_the_one_that_the_guide_shows(told: list[tuple[str, Any]]) -> None:
    assert len(told) == len(COMMANDS) + 1
    for text, answered in told:
        if not text.strip().startswith("name\t"):
            assert differences(json.loads(text), answered) == []


def test_the_workbook_holds_the_table_that_the_guide_shows(told: list[tuple[str, Any]]) -> None:
    ((text, rows),) = [(text, answered) for text, answered in told if text.strip().startswith("name\t")]
    shown = [line.rstrip("\t").split("\t") for line in text.strip().splitlines()]
    places = [rows[0].index(name) for name in shown[0]]
    assert len(rows) == len(shown)
    for line, row in zip(shown[1:], rows[1:], strict=True):
        typed = [json.loads(cell) if re.fullmatch(r"[\d.]+", cell) else cell for cell in line]
        assert differences(typed, [row[place] for place in places]) == []


def test_prices_are_edited_and_imported_back_as_the_guide_says(tmp_path: Path) -> None:
    said = " ".join(PAGE.read_text(encoding="utf-8").split())
    ((export,),) = [re.findall(r"What <code>([^<]+)</code> gives can be edited and imported back", said)]
    (table,) = [block for block in BLOCKS if block.kind == "file"]
    (command,) = [block.text for block in BLOCKS if f"@{table.title}" in block.text]
    file = tmp_path / table.title
    file.write_text(table.text, encoding="utf-8")
    with serving(tmp_path) as address:
        asked(command, address, tmp_path)
        exported = httpx.get(f"http://{address}{export}", timeout=30).text
        (price,) = re.findall(r"frankfurt,on-demand,([\d.]+)$", table.text, re.MULTILINE)
        header, *rows = [line.split(",") for line in exported.splitlines()]
        place = header.index("usd_per_gpu_hour")
        for row in rows:
            row[place] = "3.25" if row[place] == price else row[place]
        file.write_text("\r\n".join(map(",".join, [header, *rows])), encoding="utf-8")
        done = asked(command, address, tmp_path).json()
        prices = httpx.get(f"http://{address}/v1/prices?owner=team&sort=usd_per_gpu_hour", timeout=30).json()["items"]
    assert (done["created"], done["updated"], done["unchanged"], done["failed"]) == (0, 1, 1, 0)
    assert [(row["usd_per_gpu_hour"], row["usd_per_instance_hour"]) for row in prices] == [(2.6, 2.6), (3.25, 3.25)]


def test_a_wrong_answer_would_be_noticed() -> None:
    answered = {"a": [1, {"b": 2.0}], "c": "scn_x-1", "d": None}
    assert differences({"a": [1, {"b": 2.001}], "c": "scn_…", "d": None}, answered) == []
    for shown in ({"a": [2, {"b": 2}]}, {"a": [1]}, {"a": [1, {"b": 2.1}]}, {"c": "est_…"}, {"d": 0}, {"e": None}):
        assert len(differences(shown, answered)) == 1


def test_it_leads_through_everything_in_order() -> None:
    kinds = [block.kind for block in BLOCKS]
    assert set(kinds) == {"start", "command", "answer", "file", "sheet", "formula", "number"}
    assert kinds[0] == "start"
    paths = [re.search(rf"{DOCUMENTED}(/[\w./-]+)", command) for command in COMMANDS]
    steps = [path[1] for path in paths if path]
    wanted = ["/v1/gpus", "/v1/rate-cards", "/v1/models/import", "/v1/estimates", "/v1/scenarios", "/v1/scenarios.xlsx"]
    assert [steps.index(step) for step in wanted] == sorted(steps.index(step) for step in wanted)


def test_it_starts_as_the_readme_does() -> None:
    start = next(block.text for block in BLOCKS if block.kind == "start")
    assert f"\n{start}\n" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"http://{DOCUMENTED}/guide" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert 'href="/guide"' in (PAGE.parents[1] / "index.html").read_text(encoding="utf-8")
