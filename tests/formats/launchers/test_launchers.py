"""Every launcher starts the training software's file on as many processes as the cluster has."""

import ast
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from service.estimator.complete import CompleteQuestion
from service.estimator.software.stacks import software_of
from service.formats.program import nodes_of
from service.formats.rules import ExportedFile, ExportRequest
from service.formats.targets import TARGETS
from tests.amounts import some_of_each
from tests.formats.launchers.shells import started
from tests.formats.tools import COUNT, asked, written

FILES = {"torchtitan": "train.toml", "nanotron": "nanotron.yaml", "deepspeed": "deepspeed.json"}
FILES |= {"fsdp1": "accelerate.yaml", "transformers": "accelerate.yaml"}
"""What each stack's program reads."""

TARGET_OF = {"fsdp1": "accelerate", "transformers": "accelerate", "megatron-core": "megatron-lm"}


def in_pods(content: str) -> str:
    """The script of the one container of a manifest, wherever it stands."""

    def scripts(part: Any) -> list[str]:
        if isinstance(part, dict):
            own = [part["args"][0]] if part.get("command") == ["bash", "-c"] else []
            return own + [one for inner in part.values() for one in scripts(inner)]
        return [one for inner in part for one in scripts(inner)] if isinstance(part, list) else []

    (script,) = {*scripts(yaml.safe_load(content))}
    return script


def in_python(content: str) -> str:
    (value,) = [
        node.value
        for node in ast.parse(content).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "SCRIPT"
    ]
    return str(ast.literal_eval(value))


SCRIPTS: dict[str, Callable[[str], str]] = {
    "torchrun": str,
    "sbatch": str,
    "trainjob": in_pods,
    "pytorchjob": in_pods,
    "jobset": in_pods,
    "volcano": in_pods,
    "skypilot": lambda content: str(yaml.safe_load(content)["run"]),
    "dstack": lambda content: "\n".join(yaml.safe_load(content)["commands"]),
    "ray-train": in_python,
}
"""The script in the file of each launcher."""


def test_every_launcher_is_tried() -> None:
    assert {name for name, target in TARGETS.items() if target.kind == "launcher"} == SCRIPTS.keys()


def judge(
    question: CompleteQuestion, file: ExportedFile, words: list[str], files: dict[str, str], *, makes_files: bool
) -> None:
    """Hold what is started against what the training software's target writes."""
    stack, nodes = software_of(question.recipe).name, nodes_of(question)
    target = TARGETS[TARGET_OF.get(stack, stack)]
    own = target.write(ExportRequest(question=question, version=next(iter(target.versions))))
    if stack == "megatron-core":
        assert words[words.index("pretrain_gpt.py") + 1 :] == shlex.split(own.content.replace("\\\n", ""))
    elif makes_files:
        assert files[FILES[stack]] == own.content
    if words[0] == "torchrun":
        assert words[words.index("--nnodes") + 1] == str(nodes.count)
        assert words[words.index("--nproc-per-node") + 1] == str(nodes.gpus_each)
    if nodes.count > 1:
        assert {"first", "train-node-0-0.train"} & {*words}
    missed = {one.field for one in own.not_expressible} - {one.field for one in file.not_expressible}
    assert missed <= {"recipe.stack.expandable_segments"}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_launcher_starts_what_the_software_is_told(name: str, tmp_path: Path) -> None:
    items = written(name)
    stacks = [software_of(question.recipe).name for question, _ in items]
    for question, file in some_of_each(items, stacks, max(8, COUNT // 5)):
        words, files = started(SCRIPTS[name](file.content), tmp_path)
        judge(question, file, words, files, makes_files=name != "torchrun")


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_command_of_ones_own_is_started_as_it_is(name: str, tmp_path: Path) -> None:
    target, own = TARGETS[name], "own.py --text \"a 'b' $c\" --last"
    for question in asked()[:5]:
        job = ExportRequest(question=question, version=next(iter(target.versions)), command=own)
        file = target.write(job)
        words, _ = started(SCRIPTS[name](file.content), tmp_path)
        assert words[words.index("own.py") :] == shlex.split(own)
        assert {"recipe", "layout"} <= {one.field for one in file.not_expressible}


def test_a_file_is_the_same_whenever_it_is_written() -> None:
    for name in TARGETS:
        first, again = ([file.content for _, file in written(name)[:3]] for _ in range(2))
        assert json.dumps(first) == json.dumps(again)
