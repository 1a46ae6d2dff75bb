"""The guide for programs: its programs and its command are run live, and their output compared."""

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from service.client import Client
from tests.guide_pages import blocks_of, by_request, differences
from tests.house.source import ROOT, SERVICE
from tests.live import DOCUMENTED, serving
from tests.prestarted import ran

PAGE = SERVICE / "web" / "guide" / "clients.html"
TEXT = PAGE.read_text(encoding="utf-8")
BLOCKS = blocks_of(PAGE)
SHOWN = {block.text: shown.text for block, shown in pairwise(BLOCKS) if block.kind in {"python", "command"}}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("clients")) as found:
        yield found


def printed(program: str, address: str, folder: Path) -> str:
    """What a program says that is copied from a page."""
    (folder / "program.py").write_text(program.replace(DOCUMENTED, address), encoding="utf-8")
    done = ran(["program"], folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("program", [block.text for block in BLOCKS if block.kind == "python"])
def test_every_program_says_what_the_page_shows(address: str, program: str, tmp_path: Path) -> None:
    shown = re.escape(SHOWN[program]).replace("…", r"[\s\S]+")
    assert re.fullmatch(shown, printed(program, address, tmp_path).strip())


def test_the_command_is_answered_as_the_page_shows(address: str) -> None:
    ((command, shown),) = [(text, shown) for text, shown in SHOWN.items() if text.startswith("curl ")]
    answer = json.loads(by_request(address, Path())(command))
    assert differences(json.loads(shown), answer) == []


def test_every_method_that_the_page_names_is_there() -> None:
    with Client("http://localhost") as client:
        (said,) = re.findall(r"The other methods are (.*?):", TEXT, re.DOTALL)
        methods = re.findall(r"<code>(\w+)</code>", said)
        (said,) = re.findall(r"change is lost: (.*?) are all read", TEXT, re.DOTALL)
        lists = re.findall(r"<code>(\w+)</code>", said)
        assert len(methods) > 10
        assert all(callable(getattr(client, name)) for name in methods)
        assert all(callable(getattr(client, name).update) for name in lists)


def test_the_page_is_named() -> None:
    assert f"http://{DOCUMENTED}/guide/clients" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert 'href="/guide/clients"' in (PAGE.parent / "index.html").read_text(encoding="utf-8")
