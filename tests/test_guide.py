"""Is what the guide says true? Its commands are run against a live service, and the answers that it shows compared.

They are run twice: by curl, as people run them, and as the same requests where curl is missing.
"""

import io
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest
from openpyxl import load_workbook

from tests.curl import asked
from tests.house.source import ROOT, SERVICE
from tests.live import DOCUMENTED, serving

PAGE = SERVICE / "web" / "guide" / "index.html"
PLACEHOLDER = "SCENARIO_ID"
ROUNDED = 1e-3
"""Most by which a number that the guide shows may differ from that of the answer."""

Send = Callable[[str], bytes]
"""Runs a command of the guide; gives the body of the answer."""


@dataclass(frozen=True, slots=True)
class Block:
    """A part of the guide that is set apart: a command, an answer, a formula, a file or a table."""

    kind: str
    title: str
    text: str


class _Blocks(HTMLParser):
    """Collects the blocks of a page; cells of a table are separated by tabs, its rows by line breaks."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Block] = []
        self._open: Block | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag in {"pre", "table"}:
            self._open = Block(named.get("class") or "", named.get("title") or "", "")

    def handle_data(self, data: str) -> None:
        if self._open is not None:
            self._open = Block(self._open.kind, self._open.title, self._open.text + data)

    def handle_endtag(self, tag: str) -> None:
        if self._open is None:
            return
        if tag in {"pre", "table"}:
            self.found.append(self._open)
            self._open = None
        elif tag in {"th", "td"}:
            self.handle_data("\t")


def _blocks() -> list[Block]:
    parser = _Blocks()
    parser.feed(PAGE.read_text(encoding="utf-8"))
    return parser.found


BLOCKS = _blocks()
COMMANDS = [block.text for block in BLOCKS if block.kind == "command"]


def _by_curl(address: str, folder: Path) -> Send:
    def send(command: str) -> bytes:
        told = command.replace(DOCUMENTED, address).replace("curl ", "curl --silent --show-error ", 1)
        done = subprocess.run(["sh", "-c", told], cwd=folder, capture_output=True, check=True, timeout=60)
        saved = re.search(r"-O '?[^?']*/([^/?']+)", told)
        return (folder / saved[1]).read_bytes() if saved else done.stdout

    return send


def _by_request(address: str, folder: Path) -> Send:
    return lambda command: asked(command, address, folder).content


@pytest.fixture(scope="module", params=["curl", "requests"])
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[tuple[str, Any]]]:
    """What each block of the guide says is answered, and what is: in order, against one service."""
    if request.param == "curl" and shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    folder = tmp_path_factory.mktemp("guide")
    with serving(folder) as address:
        send = _by_curl(address, folder) if request.param == "curl" else _by_request(address, folder)
        yield _walk(send, address, folder)


def _walk(send: Send, address: str, folder: Path) -> list[tuple[str, Any]]:
    scenario = ""
    found: list[tuple[str, Any]] = []
    answer = b""
    for block in BLOCKS:
        if block.kind == "file":
            (folder / block.title).write_text(block.text, encoding="utf-8")
        elif block.kind == "command":
            answer = send(block.text.replace(PLACEHOLDER, scenario))
            identified = re.search(rb'"id":"(scn_[\w-]+)"', answer)
            scenario = scenario or (identified[1].decode() if identified else "")
        elif block.kind == "formula":
            cell = re.fullmatch(r'=NUMBERVALUE\(WEBSERVICE\("([^"]+)"\);"\.";","\)', block.text)
            assert cell
            answer = httpx.get(cell[1].replace(DOCUMENTED, address), timeout=30).content
        elif block.kind in {"answer", "number"}:
            found.append((block.text, json.loads(answer)))
        elif block.kind == "sheet":
            found.append((block.text, _sheet(answer)))
    return found


def _sheet(file: bytes) -> list[list[Any]]:
    (sheet,) = load_workbook(io.BytesIO(file)).worksheets
    return [[cell.value for cell in row] for row in sheet.iter_rows()]


def _differences(shown: Any, answered: Any, place: str = "answer") -> list[str]:
    """Where the answer is not what the guide shows; it may hold more, and digits beyond those that are shown."""
    if isinstance(shown, dict) and isinstance(answered, dict):
        missing = [f"{place}.{name} is not there" for name in shown if name not in answered]
        common = [name for name in shown if name in answered]
        return missing + [d for name in common for d in _differences(shown[name], answered[name], f"{place}.{name}")]
    if isinstance(shown, list) and isinstance(answered, list) and len(shown) == len(answered):
        pairs = enumerate(zip(shown, answered, strict=True))
        return [d for i, (one, other) in pairs for d in _differences(one, other, f"{place}[{i}]")]
    if isinstance(shown, str) and isinstance(answered, str):
        same = re.fullmatch(re.escape(shown).replace("…", r"[\w-]+"), answered) is not None
    elif isinstance(shown, bool) or not isinstance(shown, int | float):
        same = shown == answered
    else:
        same = answered == pytest.approx(shown, rel=0 if isinstance(answered, int) else ROUNDED)
    return [] if same else [f"{place} is {answered!r}, but the guide shows {shown!r}"]


def test_every_answer_is_the_one_that_the_guide_shows(told: list[tuple[str, Any]]) -> None:
    assert len(told) == len(COMMANDS) + 1
    for text, answered in told:
        if not text.strip().startswith("name\t"):
            assert _differences(json.loads(text), answered) == []


def test_the_workbook_holds_the_table_that_the_guide_shows(told: list[tuple[str, Any]]) -> None:
    ((text, rows),) = [(text, answered) for text, answered in told if text.strip().startswith("name\t")]
    shown = [line.rstrip("\t").split("\t") for line in text.strip().splitlines()]
    places = [rows[0].index(name) for name in shown[0]]
    assert len(rows) == len(shown)
    for line, row in zip(shown[1:], rows[1:], strict=True):
        typed = [json.loads(cell) if re.fullmatch(r"[\d.]+", cell) else cell for cell in line]
        assert _differences(typed, [row[place] for place in places]) == []


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
    assert _differences({"a": [1, {"b": 2.001}], "c": "scn_…", "d": None}, answered) == []
    for shown in ({"a": [2, {"b": 2}]}, {"a": [1]}, {"a": [1, {"b": 2.1}]}, {"c": "est_…"}, {"d": 0}, {"e": None}):
        assert len(_differences(shown, answered)) == 1


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
