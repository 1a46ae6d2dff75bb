"""Reports of recorded answers as a pipe and terminals of 80 and 200 columns show them.

`python -m tests.cli.screens` asks the commands again where the form of an answer is new, and writes all screens.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from service.answers.checks import Check
from service.answers.estimates import Answer, MemoryAnswer
from service.answers.plans import PlanAnswer, Solution
from service.answers.rows import ComparisonAnswer, SensitivityAnswer
from service.cli import reports
from service.cli.tables import fitted
from service.client.reading import Unreadable, from_json

FOLDER = Path(__file__).with_name("screens")
WIDTHS: Mapping[str, int | None] = {"piped": None, "80": 80, "200": 200}
JOB = (
    *("--seq", "8192", "--gbs", "512", "--gpu", "h100"),
    *("--training-tokens", "200B", "--usd-per-gpu-hour", "2.5"),
)
VARIED = ("--gpus", "8", "--tp", "2", "--tp", "4", "--recompute", "none", "--recompute", "full")


def _with_metrics(report: Callable[[Any], str]) -> Callable[[Any], str]:
    """A report of a table whose answer alone is recorded."""

    def of(answer: Any) -> str:
        rows = answer.rows
        names = rows[0].numbers if isinstance(answer, SensitivityAnswer) else METRICS
        return report(SimpleNamespace(answer=answer, metrics=names))

    return of


METRICS = ("device_peak_bytes", "step_seconds", "tokens_per_s_per_gpu", "mfu_fraction", "gpu_hours", "days", "cost_usd")


@dataclass(frozen=True)
class Screen:
    """One answer and its report."""

    kind: type
    report: Callable[[Any], str]
    words: tuple[str, ...]
    """Command that answers."""


SCREENS: Mapping[str, Screen] = {
    "estimate": Screen(Answer, reports.report, ("estimate", "llama-3.1-8b", *JOB, "--gpus", "8", "--tp", "2")),
    "memory": Screen(MemoryAnswer, reports.memory_report, ("memory", "llama-3.1-70b", *JOB, "--gpus", "64")),
    "check": Screen(
        Check, reports.check_report, ("check", "llama-3.1-70b", *JOB, "--gpus", "64", "--deadline-seconds", "30")
    ),
    "plan": Screen(PlanAnswer, reports.plans_report, ("plan", "llama-3.1-70b", *JOB, "--gpus", "64", "--top", "3")),
    "solve": Screen(
        Solution,
        reports.solution_report,
        ("solve", "--unknown", "micro-batch", "llama-3.1-8b", *JOB, "--gpus", "8", "--tp", "2"),
    ),
    "compare": Screen(
        ComparisonAnswer,
        _with_metrics(reports.comparison_report),
        ("compare", "llama-3.1-8b", *JOB, "--gpu", "h200", "--gpus", "8", "--gpus", "64"),
    ),
    "sensitivity": Screen(
        SensitivityAnswer,
        _with_metrics(reports.table_report),
        ("sensitivity", "llama-3.1-8b", *JOB, *VARIED),
    ),
}


class Terminal(StringIO):
    """Standard output of a terminal."""

    def isatty(self) -> bool:
        return True


def shown(name: str, width: int | None) -> str:
    """The report of a recorded answer, with a mark in place of escape characters."""
    screen = SCREENS[name]
    answer: Any = from_json(screen.kind, json.loads(FOLDER.joinpath(f"{name}.json").read_text(encoding="utf-8")))
    former = dict(os.environ)
    os.environ.update({"TERM": "xterm", "COLUMNS": str(width)} if width else {})
    os.environ.pop("NO_COLOR", None)
    try:
        with redirect_stdout(Terminal() if width else StringIO()):
            text = fitted(screen.report(answer))
    finally:
        os.environ.clear()
        os.environ.update(former)
    return text.replace("\x1b", "\u241b") + "\n"


def file_of(name: str, width: str) -> Path:
    return FOLDER / f"{name}.{width}.txt"


def main() -> None:
    """Record the answers whose form is new, and write every screen."""
    FOLDER.mkdir(exist_ok=True)
    answer: dict[str, Any]
    for name, screen in SCREENS.items():
        file = FOLDER / f"{name}.json"
        try:
            from_json(screen.kind, json.loads(file.read_text(encoding="utf-8")))
        except (OSError, Unreadable):
            command = [sys.executable, "-m", "service", *screen.words, "--json"]
            answer = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout)
            answer = {name: [] if name == "pareto" else value for name, value in answer.items()}
            file.write_text(json.dumps(answer, indent=1) + "\n", encoding="utf-8")
        for width, columns in WIDTHS.items():
            file_of(name, width).write_text(shown(name, columns), encoding="utf-8")


if __name__ == "__main__":
    main()
