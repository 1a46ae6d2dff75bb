"""The guide to finished jobs: its requests are sent live, and the answers compared."""

import json
from pathlib import Path

import httpx

from tests.guide_pages import blocks_of, by_request, differences
from tests.house.source import ROOT, SERVICE
from tests.live import DOCUMENTED, serving

PAGE = SERVICE / "web" / "guide" / "reconcile.html"


def test_jobs_are_told_as_the_page_shows(tmp_path: Path) -> None:
    checked, reconciled, shown = [block for block in blocks_of(PAGE) if block.kind in {"command", "answer"}]
    with serving(tmp_path) as address:
        send = by_request(address, tmp_path)
        estimate_id = send(checked.text).decode().splitlines()[2]
        answer = json.loads(send(reconciled.text.replace("ESTIMATE_ID", estimate_id)))
        page = httpx.get(f"http://{address}/guide/reconcile", timeout=30)
    assert differences(json.loads(shown.text.replace("ESTIMATE_ID", estimate_id)), answer) == []
    assert (page.status_code, page.text) == (200, PAGE.read_text(encoding="utf-8"))
    assert f"http://{DOCUMENTED}/guide/reconcile" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_commands_have_the_options_that_the_page_names() -> None:
    words = " ".join(block.text for block in blocks_of(PAGE) if block.kind == "shell")
    command = (SERVICE / "cli" / "data.py").read_text(encoding="utf-8")
    assert {word for word in words.split() if word in {"--since", "--csv"}} == {"--since", "--csv"}
    assert "since: Since" in command
