"""Exported files read by the tools' own parsers, 500 of each; Megatron-LM and nanotron from copies of their trees."""

import os
import shlex
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TRAINCOST_EXPORTS", "500")

import pytest

from service.estimator.job import recompute_of
from service.estimator.question import Question
from service.estimator.software import software_of
from service.exports.target import Written
from tests.exports.test_real_tools import differences
from tests.exports.tools import COUNT, read_by, written

ROOT = Path(__file__).parents[2]


def of_megatron(question: Question) -> dict[str, Any]:
    layout, recipe = question.layout, question.recipe
    return {
        "layout.tensor": layout.tensor,
        "layout.context": layout.context,
        "layout.pipeline": layout.pipeline,
        "layout.expert": layout.expert,
        "recipe.micro_batch": recipe.micro_batch,
        "recipe.global_batch": recipe.global_batch,
        "recipe.sequence_length": recipe.sequence_length,
        "recipe.recompute": recompute_of(recipe).granularity,
    }


def in_megatron(read: dict[str, Any]) -> dict[str, Any]:
    names = ("tensor", "context", "pipeline")
    return {
        **{f"layout.{name}": read[f"{name}_{'' if name == 'context' else 'model_'}parallel_size"] for name in names},
        "layout.expert": read["expert_model_parallel_size"],
        "recipe.micro_batch": read["micro_batch_size"],
        "recipe.global_batch": read["global_batch_size"],
        "recipe.sequence_length": read["seq_length"],
        "recipe.recompute": read["recompute_granularity"] or "none",
    }


def of_nanotron(question: Question) -> dict[str, Any]:
    layout, recipe = question.layout, question.recipe
    degrees = {
        name: getattr(layout, name) for name in ("data", "tensor", "pipeline", "context", "expert", "zero_stage")
    }
    batches = {name: getattr(recipe, name) for name in ("sequence_length", "micro_batch", "global_batch")}
    found = {f"layout.{name}": value for name, value in degrees.items()}
    found |= {f"recipe.{name}": value for name, value in batches.items()}
    return found | {"recipe.recompute": recompute_of(recipe).granularity == "full"}


def told(name: str, pairs: list[tuple[Question, Written]], wrong: int) -> int:
    print(f"{name}: {len(pairs)} files read by its own parser, {wrong} mismatches")
    return wrong


def megatron(folder: str) -> int:
    """Mismatches of Megatron-LM's arguments."""
    pairs = written("megatron-lm")
    words = [shlex.split(file.content.replace("\\\n", "")) for _, file in pairs]
    found = zip(pairs, read_by("torch", "megatron", words, folder), strict=True)
    wrong = [differences(file, of_megatron(question), in_megatron(read)) for (question, file), read in found]
    return told("Megatron-LM", pairs, sum(map(bool, wrong)))


def nanotron(folder: str) -> int:
    """Mismatches of nanotron's YAML, of questions about nanotron."""
    pairs = [(one, file) for one, file in written("nanotron") if software_of(one.recipe).name == "nanotron"]
    found = zip(pairs, read_by("torch", "nanotron", [file.content for _, file in pairs], folder), strict=True)
    wrong = [differences(file, of_nanotron(question), read) for (question, file), read in found]
    return told("nanotron", pairs, sum(map(bool, wrong)))


def main() -> None:
    failed = pytest.main(["-q", "-p", "no:cacheprovider", str(ROOT / "tests" / "exports")])
    print(f"{COUNT} random questions for each tool: {'failed' if failed else 'passed'}")
    wrong = 0
    for name, measure in (("MEGATRON_LM", megatron), ("NANOTRON", nanotron)):
        if folder := os.environ.get(name):
            wrong += measure(folder)
        else:
            print(f"not measured: {name} names no copy of that repository")
    if failed or wrong:
        sys.exit("files are read otherwise than they were written")


if __name__ == "__main__":
    main()
