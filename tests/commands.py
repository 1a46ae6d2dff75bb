"""What a command of `traincost` prints and how it ends, run inside the test's own process."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from service.cli.application import main


class Ran(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


class Command:
    """One command of `traincost`, to be called with its words."""

    def __init__(self, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._name, self._capsys, self._monkeypatch = name, capsys, monkeypatch

    def __call__(self, *words: str) -> Ran:
        """Run it."""
        self._monkeypatch.setattr(sys, "argv", ["traincost", self._name, *words])
        with pytest.raises(SystemExit) as ended:
            main()
        return Ran(int(ended.value.code or 0), *self._capsys.readouterr())


def write_program(folder: Path) -> Path:
    """Write the program `traincost` into a folder for tests that need a process or a shell; gives the folder."""
    program = folder / "traincost"
    own = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r})"
    program.write_text(f"#!{sys.executable}\n{own}\nfrom service.__main__ import main; main()\n", encoding="utf-8")
    program.chmod(0o755)
    return folder


Commands = Callable[[str], Command]
"""Commands by their names."""
