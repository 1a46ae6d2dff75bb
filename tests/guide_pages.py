"""The pages of the guide: their commands, sent to a live service, and the answers that they show, compared."""

import io
import json
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest
from openpyxl import load_workbook

from tests.curl import asked
from tests.live import DOCUMENTED

PLACEHOLDER, CHECK_PLACEHOLDER, CALIBRATION_PLACEHOLDER = "SCENARIO_ID", "CHECK_ID", "CALIBRATION_ID"
PLACEHOLDERS = {
    PLACEHOLDER: rb'"id":"(scn_[\w-]+)"',
    CHECK_PLACEHOLDER: rb'"id":"(lch_[0-9a-f]+)"',
    CALIBRATION_PLACEHOLDER: rb'"id":"(cal_[0-9a-f]+)"',
}
"""What a command holds in the place of an id, and where an answer before it told that; the first one counts."""

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


def blocks_of(page: Path) -> list[Block]:
    """The blocks of a page, in order."""
    parser = _Blocks()
    parser.feed(page.read_text(encoding="utf-8"))
    return parser.found


def by_curl(address: str, folder: Path) -> Send:
    """Sends commands as people do."""

    def send(command: str) -> bytes:
        told = command.replace(DOCUMENTED, address).replace("curl ", "curl --silent --show-error ", 1)
        done = subprocess.run(["sh", "-c", told], cwd=folder, capture_output=True, check=True, timeout=60)
        saved = re.search(r"-O '?[^?']*/([^/?']+)", told)
        return (folder / saved[1]).read_bytes() if saved else done.stdout

    return send


def by_request(address: str, folder: Path) -> Send:
    """Sends the same requests where curl is missing."""
    return lambda command: asked(command, address, folder).content


def walk(blocks: list[Block], send: Send, address: str, folder: Path) -> list[tuple[str, Any]]:
    """What each block says is answered, and what is."""
    ids: dict[str, str] = {}
    found: list[tuple[str, Any]] = []
    answer = b""
    for block in blocks:
        if block.kind == "file":
            (folder / block.title).write_text(block.text, encoding="utf-8")
        elif block.kind == "command":
            answer = send(_identified(block.text, ids))
            for placeholder, pattern in PLACEHOLDERS.items():
                if told := re.search(pattern, answer):
                    ids.setdefault(placeholder, told[1].decode())
        elif block.kind == "formula":
            cell = re.fullmatch(r'=NUMBERVALUE\(WEBSERVICE\("([^"]+)"\);"\.";","\)', block.text)
            assert cell
            answer = httpx.get(cell[1].replace(DOCUMENTED, address), timeout=30).content
        elif block.kind in {"answer", "number"}:
            found.append((block.text, json.loads(answer)))
        elif block.kind == "sheet":
            found.append((block.text, _sheet(answer)))
    return found


def _identified(command: str, ids: Mapping[str, str]) -> str:
    for placeholder, identifier in ids.items():
        command = command.replace(placeholder, identifier)
    return command


def _sheet(file: bytes) -> list[list[Any]]:
    (sheet,) = load_workbook(io.BytesIO(file)).worksheets
    return [[cell.value for cell in row] for row in sheet.iter_rows()]


def differences(shown: Any, answered: Any, place: str = "answer") -> list[str]:
    """Where the answer is not what the guide shows; it may hold more, and digits beyond those that are shown."""
    if isinstance(shown, dict) and isinstance(answered, dict):
        missing = [f"{place}.{name} is not there" for name in shown if name not in answered]
        common = [name for name in shown if name in answered]
        return missing + [d for name in common for d in differences(shown[name], answered[name], f"{place}.{name}")]
    if isinstance(shown, list) and isinstance(answered, list) and len(shown) == len(answered):
        pairs = enumerate(zip(shown, answered, strict=True))
        return [d for i, (one, other) in pairs for d in differences(one, other, f"{place}[{i}]")]
    if isinstance(shown, str) and isinstance(answered, str):
        same = re.fullmatch(re.escape(shown).replace("…", r"[\w-]+"), answered) is not None
    elif isinstance(shown, bool) or not isinstance(shown, int | float):
        same = shown == answered
    else:
        same = answered == pytest.approx(shown, rel=0 if isinstance(answered, int) else ROUNDED)
    return [] if same else [f"{place} is {answered!r}, but the guide shows {shown!r}"]
