"""Published figures as data: the cases of each table, and the document of each figure."""

import tomllib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

Claim = float | list[float]
"""A number, or a range of two numbers."""

HERE = Path(__file__).parent
NOT_CASES = ("documents", "models")
"""Files of the folder that hold no figures of their own."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One figure: who states it, for which inputs, how near an answer must come, and why that near."""

    case: str
    source: tuple[str, ...]
    """Keys of documents.toml."""
    inputs: dict[str, Any]
    expected: Any
    """A number, a range of two numbers, or words."""
    tolerance: float = 0.0
    """Share of the expected number; 0 is equality."""
    claims: dict[str, Claim] = field(default_factory=dict)
    """What each document claims, where that is not the expected number."""
    why: str
    """What the figure means here, and why the tolerance."""

    def agrees(self, measured: float) -> bool:
        """Whether an answer is the expected number, or inside the expected range, within the tolerance."""
        return _within(measured, self.expected, self.tolerance)

    def contradicted(self, measured: float) -> list[str]:
        """The claims that an answer contradicts."""
        return [words for words, claim in self.claims.items() if not _within(measured, claim, self.tolerance)]


def _within(measured: float, claim: Claim, tolerance: float) -> bool:
    low, high = claim if isinstance(claim, list) else (claim, claim)
    return low * (1 - tolerance) <= measured <= high * (1 + tolerance)


@cache
def tables(file: str) -> dict[str, list[Case]]:
    """The tables of cases of one file, by name."""
    content = tomllib.loads((HERE / f"{file}.toml").read_text(encoding="utf-8"))
    return {
        name: [Case(**{"inputs": {}, **row, "source": tuple(row["source"])}) for row in rows]
        for name, rows in content.items()
    }


def cases(file: str, table: str) -> list[Any]:
    """The cases of one table as parameters of a test."""
    return [pytest.param(case, id=case.case) for case in tables(file)[table]]


@cache
def documents() -> dict[str, dict[str, Any]]:
    """Every document by its key."""
    return tomllib.loads((HERE / "documents.toml").read_text(encoding="utf-8"))


def files() -> list[str]:
    """Every file of cases."""
    return sorted(path.stem for path in HERE.glob("*.toml") if path.stem not in NOT_CASES)


@cache
def model_fields(name: str) -> dict[str, Any]:
    """The published fields of a named model."""
    content = tomllib.loads((HERE / "models.toml").read_text(encoding="utf-8"))[name]
    fields = {key: tuple(value) if isinstance(value, list) else value for key, value in content.items()}
    del fields["source"]
    return fields
