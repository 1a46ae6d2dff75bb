"""What a command of `traincost` prints and how it ends, run inside the test's own process."""

import sys
from collections.abc import Callable
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


Commands = Callable[[str], Command]
"""Commands by their names."""
