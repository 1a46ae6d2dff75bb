"""LibreOffice Calc, headless, for formulas and spreadsheet files.

It is driven by tests/libreoffice_cells.py, which the system's own Python runs: LibreOffice's bridge is there alone.
"""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.needing import SYSTEM_PYTHON, need

_DRIVER = Path(__file__).with_name("libreoffice_cells.py")


@dataclass(frozen=True, slots=True)
class Book:
    """A spreadsheet to look at."""

    path: str = ""
    """The file; an empty sheet where there is none."""
    edits: dict[str, str | float] = field(default_factory=dict)
    """What is typed into it, by place such as `Inputs.B9`: numbers as numbers, texts as texts, formulas with `=`."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What one cell shows."""

    place: str
    formula: str
    number: float | None
    """None where the cell is no number."""
    text: str
    error: int
    """0 where there is none."""


def shown(locale: str, books: Sequence[Book]) -> list[dict[str, Cell]]:
    """The cells of each book by their places, in the locale, all links refreshed and all formulas worked out.

    Skips the test where there is no LibreOffice, or fails it where nothing may be skipped.
    """
    need("libreoffice")
    asked = json.dumps({"locale": locale, "books": [asdict(book) for book in books]})
    done = _run(str(_DRIVER), said=asked)
    assert done.returncode == 0, done.stderr
    return [{cell["place"]: Cell(**cell) for cell in book} for book in json.loads(done.stdout)]


def _run(*arguments: str, said: str = "") -> "subprocess.CompletedProcess[str]":
    command = [SYSTEM_PYTHON, *arguments]
    return subprocess.run(command, input=said, capture_output=True, text=True, check=False, timeout=240)
