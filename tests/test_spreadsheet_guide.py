"""The spreadsheet guide: each command, formula and script is run by the real program."""

import csv
import io
import json
import re
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from openpyxl import load_workbook

from tests.curl import asked
from tests.guide_pages import PLACEHOLDER, Block, blocks_of, differences
from tests.house.source import SERVICE
from tests.libreoffice import Book, Cell, shown
from tests.live import DOCUMENTED, bearer, serving
from tests.needing import need

GUIDE = SERVICE / "web" / "guide"
BLOCKS = blocks_of(GUIDE / "spreadsheets.html")
OUTSIDE_TEXTS = re.compile(r'("[^"]*")|,')
SHEET_KEY, KEY_CELL = "SHEET_KEY", "Inputs.B9"
"""What stands in the guide for a key, and where a budget holds one."""
RESULT = "D1"
"""Where a formula of the guide stands in its test."""

NODE = """
const { execFileSync } = require("child_process");
const python = (code, ...said) => JSON.parse(execFileSync(process.argv[2], ["-c", code, ...said]));
const fetchedBy = "import json,sys,urllib.request as u; print(json.dumps(u.urlopen(sys.argv[1]).read().decode()))";
const parsed = "import csv,io,json,sys; print(json.dumps(list(csv.reader(io.StringIO(sys.argv[1], newline='')))))";
const { createHash } = require("crypto");
const Utilities = {
  parseCsv: (text) => python(parsed, text),
  DigestAlgorithm: { SHA_256: "sha256" },
  computeDigest: (algorithm, text) => createHash(algorithm).update(text).digest(),
  base64Encode: (bytes) => Buffer.from(bytes).toString("base64"),
};
const kept = new Map();
const cache = { get: (place) => kept.get(place) ?? null, put: (place, text) => kept.set(place, text) };
const CacheService = { getScriptCache: () => cache };
let requests = 0;
const UrlFetchApp = { fetch: (url) => (requests++, { getContentText: () => python(fetchedBy, url) }) };
%s
const answers = JSON.parse(process.argv[3]).map((call) => {
  try {
    return TRAINCOST(...call);
  } catch (error) {
    return { error: error.message };
  }
});
console.log(JSON.stringify([...answers, requests]));
"""
"""What Google gives to a script, and a caller."""

FIELDS: list[list[Any]] = [
    ["model", "llama-3.1-8b"], ["sequence_length", 8192], ["global_batch", 512], ["tensor", 2], ["gpu", "h100"],
    ["gpus", 8], ["", ""], ["training_tokens", 2e11], ["usd_per_gpu_hour", ""],
]  # fmt: skip


def after(kind: str) -> list[tuple[Block, Block]]:
    """Blocks of a kind, each with the one that follows."""
    return [(block, following) for block, following in pairwise(BLOCKS) if block.kind == kind]


def test_the_commands_answer_what_the_guide_shows(address: str) -> None:
    scenario = ""
    for block, following in after("command"):
        answer = asked(block.text.replace(PLACEHOLDER, scenario), address)
        assert answer.is_success, answer.text
        if following.kind == "answer":
            assert differences(json.loads(following.text.replace(DOCUMENTED, address)), answer.json()) == []
            scenario = answer.json().get("id", scenario)
        elif following.kind == "csv":
            assert differences(table_of(following.text), columns_of(answer.text, following.text)) == []
        else:
            assert load_workbook(io.BytesIO(answer.content)).sheetnames[:4] == [
                "Summary",
                "Months",
                "Scenarios",
                "Rates",
            ]


def table_of(text: str) -> list[list[Any]]:
    lines = [line.removesuffix("\t").split("\t") for line in text.strip("\n").splitlines()]
    return [[number_or_text(cell) for cell in line] for line in lines]


def columns_of(answer: str, text: str) -> list[list[Any]]:
    """The columns of a CSV answer that a table of the guide shows."""
    header, *rows = csv.reader(io.StringIO(answer, newline=""))
    places = [header.index(str(name)) for name in table_of(text)[0]]
    return [[number_or_text(row[place]) for place in places] for row in (header, *rows)]


def number_or_text(cell: str) -> float | str:
    return float(cell) if re.fullmatch(r"[\d.]+(e-?\d+)?", cell) else cell


def formula_of(text: str, address: str) -> str:
    """A formula of the guide as LibreOffice's bridge takes it: semicolons between the arguments."""
    told = text.replace(DOCUMENTED, address)
    return OUTSIDE_TEXTS.sub(lambda found: found[1] or ";", told)


def edits_of(block: Block, address: str) -> dict[str, str | float]:
    """What stands in the cells that a formula speaks of, and the formula itself."""
    pairs = [pair.partition("=") for pair in block.title.split(";") if pair]
    beside = {place: formula_of(entry, address) if entry[0] == "=" else typed(entry) for place, _, entry in pairs}
    return {**beside, RESULT: formula_of(block.text, address)}


def typed(entry: str) -> str | float:
    return float(entry) if re.fullmatch(r"[\d.]+", entry) else entry


@pytest.mark.parametrize("locale", ["en-US", "de-DE"])
def test_the_formulas_show_what_the_guide_shows(address: str, locale: str) -> None:
    pairs = after("cell")
    assert len(pairs) >= 5
    books = shown(locale, [Book(edits=edits_of(block, address)) for block, _ in pairs])
    for (_, following), cells in zip(pairs, books, strict=True):
        cell = next(cell for place, cell in cells.items() if place.endswith(f".{RESULT}"))
        assert is_shown(following, cell), (following, cell)


def test_a_sheet_asks_a_locked_service_with_its_key(tmp_path: Path) -> None:
    key = bearer(tmp_path, "sheet")["Authorization"].removeprefix("Bearer ")
    ((block, following),) = [pair for pair in after("cell") if SHEET_KEY in pair[0].title]
    with serving(tmp_path) as address:
        url = f"http://{address}/v1/cell/gpu_hours?model=llama-3.1-8b&on_error=text"
        book = tmp_path / "budget.xlsx"
        book.write_bytes(httpx.get(f"http://{address}/guide/budget.xlsx", timeout=30).content)
        given, without, reason, budget, spoilt = shown(
            "en-US",
            [
                Book(edits=edits_of(replace(block, title=block.title.replace(SHEET_KEY, key)), address)),
                Book(edits=edits_of(block, address)),
                Book(edits={RESULT: f'=WEBSERVICE("{url}")'}),
                Book(str(book), {KEY_CELL: key}),
                Book(str(book), {KEY_CELL: "none"}),
            ],
        )
        one, none = (called(address, tmp_path, ("gpu_hours", FIELDS), key=held)[0] for held in (key, ""))
    assert is_shown(following, cell_at(given, RESULT))
    assert cell_at(without, RESULT).error
    assert cell_at(reason, RESULT).text.startswith("#ERR unauthorized")
    assert one == cell_at(budget, "B14").number == pytest.approx(float(following.text), rel=1e-3)
    assert none["error"].startswith("#ERR unauthorized")
    assert cell_at(spoilt, "B14").text.startswith("#ERR unauthorized")


def cell_at(cells: dict[str, Cell], place: str) -> Cell:
    """A cell of the last sheet that has one at this place."""
    return next(cell for at, cell in reversed(cells.items()) if at.endswith(f".{place}"))


def is_shown(block: Block, cell: Cell) -> bool:
    if block.kind == "answer":
        return cell.text.startswith(block.text)
    return block.kind == "number" and cell.number == pytest.approx(float(block.text), rel=1e-3)


def test_the_scripts_of_the_page_are_the_files_that_are_served(address: str) -> None:
    scripts = {block.title: block.text for block in BLOCKS if block.kind == "script"}
    assert scripts.keys() == {"traincost.gs", "traincost.pq"}
    for name, text in scripts.items():
        assert text == (GUIDE / name).read_text(encoding="utf-8")
        assert DOCUMENTED in text
        served = httpx.get(f"http://{address}/guide/{name}", timeout=30).text
        assert served == text.replace(DOCUMENTED, address)


def called(address: str, tmp_path: Path, *calls: tuple[Any, Any], key: str = "") -> list[Any]:
    """What the script of Google Sheets gives for each call, and how many requests it sent."""
    need("node")
    script = tmp_path / "traincost.js"
    source = (GUIDE / "traincost.gs").read_text(encoding="utf-8").replace(DOCUMENTED, address)
    assert 'KEY = ""' in source
    source = source.replace('KEY = ""', f'KEY = "{key}"')
    script.write_text(NODE % source, encoding="utf-8")
    command = ["node", str(script), sys.executable, json.dumps(calls)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout)
    return found


def test_the_script_gives_numbers_reasons_and_tables(address: str, tmp_path: Path) -> None:
    wrong = [["tensor", 3] if name == "tensor" else [name, value] for name, value in FIELDS]
    swept = [["gpus", "8;16"] if name == "gpus" else [name, value] for name, value in FIELDS]
    names: Any = [["gpu_hours"], ["cost_usd"], [""]]
    sentence = "llama 3.1 8b, 200B tokens, 64xH100, $2.50/h"
    one, several, refused, table, cost, unknown, again, requests = called(
        address,
        tmp_path,
        ("gpu_hours", FIELDS),
        (FIELDS, names),
        (names, wrong),
        (names, swept),
        (sentence, "cost_usd"),
        ("what is this", "cost_usd"),
        (sentence, "cost_usd"),
    )
    asked_again = {name: value for name, value in FIELDS if value != ""}
    whole = httpx.get(f"http://{address}/v1/estimates", params=asked_again, timeout=30).json()
    hours = float(f"{whole['totals']['gpu_hours']['value']:.15g}")
    assert one == hours
    assert several[0] == [hours]
    assert "usd_per_gpu_hour" in several[1][0]
    assert refused[0][0].startswith("#ERR replica_divides_cluster")
    assert [row[0] for row in table] == ["gpus", 8, 16]
    assert any(isinstance(cell, float) for cell in table[1])
    answered = httpx.get(f"http://{address}/v1/ask", params={"q": sentence}, timeout=30).json()
    assert cost == again == answered["answer"]["totals"]["cost_usd"]["value"]
    assert unknown["error"].startswith("#ERR ")
    assert requests == 6


def test_the_power_query_asks_for_the_columns_that_it_types(address: str) -> None:
    text = (GUIDE / "traincost.pq").read_text(encoding="utf-8")
    (place,) = re.findall(r'RelativePath = "([^"]+)"', text)
    (record,) = re.findall(r"Query = \[(.*?)\]", text, re.DOTALL)
    fields = re.findall(r'(\w+) = "([^"]*)"', record)
    answer = httpx.get(f"http://{address}/{place}", params=fields, timeout=30)
    assert answer.status_code == 200, answer.text
    rows = list(csv.DictReader(io.StringIO(answer.text, newline="")))
    columns = re.findall(r'\{"(\w+)", (Int64\.Type|type number)\}', text)
    assert len(rows) == 3
    assert len(columns) == 5
    for row in rows:
        assert all(re.fullmatch(r"\d+" if kind == "Int64.Type" else r"[\d.]+", row[name]) for name, kind in columns)
    refused = httpx.get(f"http://{address}/{place}", params=[*fields, ("pp", "3")], timeout=30)
    assert refused.status_code in map(int, re.findall(r"\b4\d\d\b", text))
    assert refused.json()["detail"]
