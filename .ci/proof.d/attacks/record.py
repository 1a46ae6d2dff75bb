"""Attempts, what became of each, and the table that is printed at the end."""

import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from attacks.service import HttpError


class Breach(AssertionError):
    """An attempt that the service did not withstand."""


def expect(condition: object, message: str) -> None:
    """Raise Breach unless a condition is true."""
    if not condition:
        raise Breach(message)


@dataclass(slots=True)
class Attempt:
    """One attempt and its outcome."""

    family: str
    name: str
    line: int
    """Requirement that it tests; 0 for the general sweep."""
    failure: str = ""
    seconds: float = 0.0
    memory_bytes: int = 0
    worst_status: int = 0


@dataclass(slots=True)
class Report:
    """Every attempt so far."""

    attempts: list[Attempt] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @contextmanager
    def attempt(self, family: str, line: int, name: str) -> Iterator[Attempt]:
        """Record what happens inside: held unless Breach, an HTTP error or any other exception is raised."""
        one = Attempt(family, name, line)
        started = time.monotonic()
        try:
            yield one
        except Breach as breach:
            one.failure = str(breach)
        except HttpError as error:
            one.failure = f"no answer: {error!r}"
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            one.failure = f"the attack broke down at {where.filename.rpartition('/')[2]}:{where.lineno}: {error!r}"
        one.seconds = one.seconds or time.monotonic() - started
        self.attempts.append(one)
        if one.failure:
            print(f"  NOT HELD {family}: {name}: {one.failure[:400]}", flush=True)

    def note(self, text: str) -> None:
        """Print and keep a figure that no attempt holds."""
        self.notes.append(text)
        print(f"  {text}", flush=True)

    def failed(self, family: str = "") -> Sequence[Attempt]:
        """Attempts that did not hold."""
        return [one for one in self.attempts if one.failure and family in ("", one.family)]

    def table(self) -> str:
        """The table of families, and every attempt that did not hold."""
        head = f"{'family':<12}{'line':>5}{'attempts':>10}{'held':>7}{'worst s':>9}{'worst MB':>10}{'status':>8}"
        rows = [head]
        groups = sorted({(one.line or 9, one.line, one.family) for one in self.attempts})
        for _, line, family in groups:
            made = [one for one in self.attempts if (one.line, one.family) == (line, family)]
            held = sum(not one.failure for one in made)
            slowest = max(one.seconds for one in made)
            largest = max(one.memory_bytes for one in made) / 1e6
            status = max(one.worst_status for one in made)
            rows.append(
                f"{family:<12}{line or '-':>5}{len(made):>10}{held:>7}{slowest:>9.2f}{largest:>10.0f}{status or '-':>8}"
            )
        rows += [f"not held: {one.family}: {one.name}: {one.failure[:600]}" for one in self.failed()]
        return "\n".join(rows)


def leaves(part: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a JSON document that is no object and no list, with its JSON pointer."""
    if isinstance(part, dict):
        for name, inner in part.items():
            yield from leaves(inner, f"{place}/{name}")
    elif isinstance(part, list):
        for number, inner in enumerate(part):
            yield from leaves(inner, f"{place}/{number}")
    else:
        yield place, part
