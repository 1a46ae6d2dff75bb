"""Tools that read exported files, each in an environment of its own that .ci/tools makes."""

import json
import os
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from service.estimator.complete import CompleteQuestion
from service.estimator.question import Question, StackName
from service.estimator.resolve import resolve
from service.estimator.software.stacks import STACKS
from service.formats.rules import ExportedFile, ExportRequest
from service.formats.targets import TARGETS
from tests.estimator.legal_questions import questions
from tests.needing import need, tool

READERS = Path(__file__).parent / "readers"

COUNT = int(os.environ.get("TRAINCOST_EXPORTS", "40"))
"""Random questions that are written for each tool; `.ci/proof exports` writes 500."""


def tools() -> Path:
    """The folder of the tools; skips the test where there is none, or fails it where nothing may be skipped."""
    need("exporters")
    return tool()


STACKS_OF: Mapping[str, tuple[StackName, ...]] = {
    "megatron-lm": ("megatron-core",),
    "megatron-bridge": ("megatron-core",),
    "torchtitan": ("torchtitan",),
    "nanotron": ("nanotron",),
    "deepspeed": ("deepspeed",),
    "accelerate": ("fsdp1", "transformers"),
}
"""The training software that reads the file of each target; a launcher starts any."""


@cache
def asked(among: tuple[StackName, ...] = tuple(STACKS)) -> tuple[CompleteQuestion, ...]:
    """Random questions of these stacks, the same each time, resolved."""
    found: list[CompleteQuestion] = []

    @settings(
        max_examples=COUNT,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(questions(among))
    def collect(one: Question) -> None:
        found.append(resolve(one).question)

    collect()
    return tuple(found)


def written(name: str, version: str | None = None) -> list[tuple[CompleteQuestion, ExportedFile]]:
    """Random questions of the software that a tool runs, each as its file."""
    target = TARGETS[name]
    form = version or next(iter(target.versions))
    questions = asked(STACKS_OF[name]) if name in STACKS_OF else asked()
    return [(one, target.write(ExportRequest(question=one, version=form))) for one in questions]


def read_by(environment: str, reader: str, items: list[Any], *arguments: str) -> list[Any]:
    """What a tool reads, asked of it in its own environment."""
    python = tools() / environment / "bin" / "python"
    command = [str(python), "-P", str(READERS / f"{reader}.py"), *arguments]
    clean = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "PYTHONHOME"}}
    done = subprocess.run(
        command, input=json.dumps(items), capture_output=True, text=True, check=False, env=clean, timeout=1200
    )
    if done.returncode:
        pytest.fail(f"{reader}: {done.stderr[-4000:]}")
    found: list[Any] = json.loads(done.stdout)
    return found


def is_listed(file: ExportedFile, field: str) -> bool:
    """Whether a file says of a field that it does not hold it."""
    return field in {one.field for one in file.not_expressible}
