"""The contract in TypeScript: types are generated, programs compiled with them, and the guide's is run."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.contract.tools import ended, modules, node
from tests.guide_pages import blocks_of
from tests.house.source import SERVICE
from tests.live import serving

PROGRAMS = Path(__file__).parent / "typescript"
EXPECTED = re.compile(r"// @ts-expect-error (TS\d+) .*\n")
FOUND = re.compile(r"(\S+)\((\d+),\d+\): error (TS\d+)")
COMMAND = re.compile(r"//   npx openapi-typescript@7 (http\S+/openapi\.json) --output (\S+)")

BARE = "bare.ts"
"""The wrong uses, of which the compiler is to complain."""

PROGRAM = "clients.ts"
GUIDE = SERVICE / "web" / "guide"
SHOWN = {block.kind: block.text for block in blocks_of(GUIDE / "clients.html") if block.title == PROGRAM}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the guide's program as the service gives it out, and types made as the program says."""
    held = modules()
    folder = tmp_path_factory.mktemp("typescript")
    (folder / "node_modules").symlink_to(held)
    shutil.copytree(PROGRAMS, folder, dirs_exist_ok=True)
    with serving(folder) as address:
        program = httpx.get(f"http://{address}/guide/{PROGRAM}", timeout=30).text
        (folder / PROGRAM).write_text(program, encoding="utf-8")
        told = COMMAND.search(program)
        assert told
        done = ended("openapi-typescript", told[1], "--output", told[2], folder=folder)
        assert done.returncode == 0, done.stderr
        yield folder


@pytest.fixture(scope="module")
def compiled(project: Path) -> str:
    """What the compiler says of all programs, and of the wrong uses without what asks it to expect them."""
    wrong = (project / "wrong.ts").read_text(encoding="utf-8")
    (project / BARE).write_text(EXPECTED.sub("", wrong), encoding="utf-8")
    return ended("tsc", "--project", ".", folder=project).stdout


def test_programs_compile(compiled: str) -> None:
    assert {place for place, *_ in FOUND.findall(compiled)} == {BARE}
    assert [line for line in compiled.splitlines() if not line.startswith((f"{BARE}(", " "))] == []


def test_wrong_uses_are_refused_for_the_reasons_that_they_name(project: Path, compiled: str) -> None:
    wrong = (project / "wrong.ts").read_text(encoding="utf-8")
    reasons = EXPECTED.findall(wrong)
    found = [(line, code) for _, line, code in FOUND.findall(compiled)]
    assert [code for _, code in found] == reasons
    assert len(dict(found)) == len(reasons) == wrong.count("@ts-expect-error") >= 10


def test_the_program_of_the_guide_prints_what_the_guide_shows(project: Path) -> None:
    assert SHOWN["script"] == (GUIDE / PROGRAM).read_text(encoding="utf-8")
    assert node(PROGRAM, folder=project).strip() == SHOWN["printed"]
