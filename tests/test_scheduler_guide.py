"""The guide for schedulers' operators: its commands are run live, and the answers compared."""

import json
import re
from pathlib import Path

import httpx
import pytest

from tests.guide_pages import Block, blocks_of, by_request, differences
from tests.house.source import ROOT, SERVICE
from tests.live import DOCUMENTED, serving

PAGE = SERVICE / "web" / "guide" / "schedulers.html"
BLOCKS = blocks_of(PAGE)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Block, Block | None, bytes]]:
    """Every command, the block below it where that shows its answer, and the answer."""
    folder = tmp_path_factory.mktemp("schedulers")
    followers = [*BLOCKS[1:], None]
    with serving(folder) as address:
        send = by_request(address, folder)
        return [
            (block, shown if shown is not None and shown.kind != "command" else None, send(patient(block.text)))
            for block, shown in zip(BLOCKS, followers, strict=True)
            if block.kind == "command"
        ]


def patient(command: str) -> str:
    """A command that waits for every alternative, however busy the machine is."""
    return command.replace('"deadline_seconds": 2', '"deadline_seconds": 60')


def test_every_answer_is_the_one_that_the_page_shows(told: list[tuple[Block, Block | None, bytes]]) -> None:
    shown = [(block, answer) for _, block, answer in told if block is not None and block.kind == "answer"]
    assert len(shown) == 2
    for block, answer in shown:
        assert differences(json.loads(block.text), json.loads(answer)) == []


def test_alternatives_are_those_that_the_page_names(told: list[tuple[Block, Block | None, bytes]]) -> None:
    patches = [one["patch"] for one in json.loads(told[0][2])["alternatives"]]
    assert patches[0] == {"cluster": {"gpu": "b200", "gpus": 8}}
    assert {"layout": {"zero_stage": 1}} in patches


def test_the_lines_for_slurm_are_those_that_the_page_shows(told: list[tuple[Block, Block | None, bytes]]) -> None:
    ((block, answer),) = [(block, answer) for _, block, answer in told if block is not None and block.kind == "lines"]
    assert re.fullmatch(re.escape(block.text.strip()).replace("…", ".*"), answer.decode().strip())


def test_every_file_is_given_out(told: list[tuple[Block, Block | None, bytes]]) -> None:
    fetched = [(command.text, answer.decode()) for command, _, answer in told if " -O " in command.text]
    names = {re.sub(r"\?.*", "", text.strip("'")).rpartition("/")[2] for text, _ in fetched}
    held = {path.name for path in (SERVICE / "web" / "adapters").rglob("*.*") if path.suffix != ".pyc"}
    assert names == held - {"ask.lua", "cli_filter.lua"}
    for text, answer in fetched:
        assert "kueue/manifests" in text or re.search(r"https?://127\.0\.0\.1:\d+", answer), text


def test_the_page_is_served_and_named(tmp_path: Path) -> None:
    with serving(tmp_path) as address:
        answer = httpx.get(f"http://{address}/guide/schedulers", timeout=30)
    assert (answer.status_code, answer.text) == (200, PAGE.read_text(encoding="utf-8"))
    assert f"http://{DOCUMENTED}/guide/schedulers" in (ROOT / "README.md").read_text(encoding="utf-8")
