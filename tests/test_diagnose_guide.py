"""The guide to lacks of memory: its requests are sent live, and the answers compared."""

import json
from pathlib import Path

import httpx
import pytest

from service.answers.diagnoses import LONGEST_MESSAGE
from tests.commands import Command
from tests.guide_pages import blocks_of, by_request, differences
from tests.house.source import ROOT, SERVICE
from tests.live import DOCUMENTED, serving

PAGE = SERVICE / "web" / "guide" / "diagnose.html"
BLOCKS = blocks_of(PAGE)
ASKED = [block.text for block in BLOCKS if block.kind == "command"]
SHOWN = [json.loads(block.text) for block in BLOCKS if block.kind == "answer"]


def test_causes_are_told_as_the_page_shows(tmp_path: Path) -> None:
    with serving(tmp_path) as address:
        send = by_request(address, tmp_path)
        answers = [json.loads(send(command)) for command in ASKED]
        page = httpx.get(f"http://{address}/guide/diagnose", timeout=30)
    assert len(SHOWN) == len(answers) == 2
    for shown, answer in zip(SHOWN, answers, strict=True):
        answer["lines"], answer["changes"] = answer["lines"][:2], answer["changes"][:1]
        assert differences(shown, answer) == []
    assert (page.status_code, page.text) == (200, PAGE.read_text(encoding="utf-8"))
    assert f"http://{DOCUMENTED}/guide/diagnose" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_command_says_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    body = json.loads(ASKED[0].partition("-d '")[2].rstrip().removesuffix("'"))
    (tmp_path / "train.log").write_text("step 1\n" + body.pop("message"), encoding="utf-8")
    (tmp_path / "question.json").write_text(json.dumps(body), encoding="utf-8")
    diagnose = Command("diagnose", capsys, monkeypatch)
    words = str(tmp_path / "question.json"), str(tmp_path / "train.log")
    ran = diagnose(*words, "--json")
    assert (ran.code, ran.err) == (0, "")
    assert json.loads(ran.out)["supposition"] == SHOWN[0]["supposition"]
    said = diagnose(*words).out
    assert said.startswith("larger than predicted")
    assert "What to do" in said


def test_what_cannot_be_read_is_said_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "question.json").write_text("{}", encoding="utf-8")
    (tmp_path / "train.log").write_bytes(b"\xff" * (LONGEST_MESSAGE + 1))
    diagnose = Command("diagnose", capsys, monkeypatch)
    absent = diagnose(str(tmp_path / "question.json"), str(tmp_path / "absent"))
    assert (absent.code, absent.err.count("\n")) == (2, 1)
    assert "cannot be read: No such file" in absent.err
    long = diagnose(str(tmp_path / "question.json"), str(tmp_path / "train.log"))
    assert long.code == 2
