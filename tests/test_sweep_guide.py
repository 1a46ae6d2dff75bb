"""The guide to tables: its commands and its program are run live, beside a worker."""

import json
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.guide_pages import blocks_of, by_request, differences
from tests.house.source import ROOT, SERVICE
from tests.live import DOCUMENTED, serving
from tests.prestarted import ran

BLOCKS = blocks_of(SERVICE / "web" / "guide" / "sweeps.html")
SHOWN = {
    kind: [(block.text, next_one.text) for block, next_one in pairwise(BLOCKS) if (block.kind, next_one.kind) == pair]
    for kind in ("command", "python", "shell")
    for pair in ((kind, "answer"),)
}
"""What the page shows behind each of its commands and programs."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("sweeps"), with_worker=True) as found:
        yield found


def test_the_command_is_answered_as_the_page_shows(address: str, tmp_path: Path) -> None:
    ((command, shown),) = SHOWN["command"]
    answer: Any = json.loads(by_request(address, tmp_path)(command))
    assert differences(json.loads(shown), answer) == []


def test_the_program_says_what_the_page_shows(address: str, tmp_path: Path) -> None:
    ((program, shown),) = SHOWN["python"]
    (tmp_path / "program.py").write_text(program.replace(DOCUMENTED, address), encoding="utf-8")
    done = ran(["program"], tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, shown), done.stderr
    assert len((tmp_path / "rows.csv").read_text(encoding="utf-8").splitlines()) == 101


def test_the_command_line_says_what_the_page_shows(tmp_path: Path) -> None:
    ((program, _),) = SHOWN["python"]
    ((command, shown),) = SHOWN["shell"]
    body = program[program.index("create(") + len("create(") : program.index("})") + 1]
    (tmp_path / "sweep.json").write_text(json.dumps(eval(body)), encoding="utf-8")  # noqa: S307 - of our own page
    done = ran(["service", *shlex.split(command)[1:], "--processes", "1"], tmp_path, {"PYTHONPATH": str(ROOT)})
    assert (done.returncode, done.stdout.strip()) == (0, shown), done.stderr
