"""The guide to measuring: its commands go to a live service, and a worker runs them."""

import json
from pathlib import Path
from typing import Any

import httpx

from tests.api.fake_worker import FakeWorker
from tests.guide_pages import blocks_of, by_request, differences, walk
from tests.house.source import SERVICE
from tests.live import serving

PAGE = SERVICE / "web" / "guide" / "measuring.html"


def test_every_answer_is_the_one_that_the_page_shows(tmp_path: Path) -> None:
    with serving(tmp_path) as address:
        send = by_request(address, tmp_path)

        def ask(method: str, path: str, **request: Any) -> httpx.Response:
            return httpx.request(method, f"http://{address}{path}", timeout=30, **request)

        def send_and_work(command: str) -> bytes:
            answer = send(command)
            worker = FakeWorker(ask)
            job = worker.claim()
            if job is not None:
                worker.finish(job, result={"records": [worker.record(task) for task in job["payload"]["tasks"]]})
            return answer

        told = walk(blocks_of(PAGE), send_and_work, address, tmp_path)
    assert len(told) == 4
    for text, answered in told:
        assert differences(json.loads(text), answered) == []


def test_it_names_every_probe_and_every_verdict() -> None:
    said = PAGE.read_text(encoding="utf-8")
    for word in ("context", "gemm", "attention", "bandwidth", "elementwise", "collective", "step", "profile"):
        assert f"<code>{word}</code>" in said
    for verdict in ("go", "caution", "no-go"):
        assert f"<strong>{verdict}</strong>" in said


def test_it_is_found_from_the_first_page() -> None:
    assert 'href="/guide/measuring"' in (PAGE.parent / "index.html").read_text(encoding="utf-8")
