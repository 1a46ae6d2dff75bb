"""Exported files read by the tools' own parsers, 500 of each; some tools from copies of their repositories.

MEGATRON_LM, NANOTRON, TORCHTITAN and MEGATRON_BRIDGE name clones: the first two read files, all but nanotron tell
whether the lists of fields in tests/formats/fields are those of their commits.
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TRAINCOST_EXPORTS", "500")

from service.estimator.complete import CompleteQuestion
from service.estimator.workload import recompute_of
from service.formats.frameworks.megatron_core.megatron import environment_of
from service.formats.rules import ExportedFile
from service.formats.targets import TARGETS
from tests.formats.round_trips import trips
from tests.formats.test_known_fields import declared_fields, listed
from tests.formats.test_real_tools import differences
from tests.formats.tools import COUNT, read_by, written

ROOT = Path(__file__).parents[2]

BATCHES = ("sequence_length", "micro_batch", "global_batch")

CLONES = {
    "pytorch/torchtitan": "TORCHTITAN",
    "NVIDIA-NeMo/Megatron-Bridge": "MEGATRON_BRIDGE",
    "NVIDIA/Megatron-LM": "MEGATRON_LM",
}
"""Variable that names a clone of each repository whose classes are listed."""


def of_question(question: CompleteQuestion, *degrees: str) -> dict[str, Any]:
    """Degrees, batches and recompute of a question."""
    layout, recipe = question.layout, question.recipe
    found = {f"layout.{name}": getattr(layout, name) for name in degrees}
    found |= {f"recipe.{name}": getattr(recipe, name) for name in BATCHES}
    return found | {"recipe.recompute": recompute_of(recipe).granularity}


def in_megatron(read: dict[str, Any]) -> dict[str, Any]:
    """Degrees, batches and recompute as Megatron-LM names them."""
    strategies = {"optim_grads": 2, "optim_grads_params": 3}
    shards = read["use_distributed_optimizer"] or read["use_layer_wise_distributed_optimizer"]
    sharded = strategies[read["data_parallel_sharding_strategy"]] if read["use_megatron_fsdp"] else int(shards)
    return {
        "layout.data": read["data_parallel_size"],
        "layout.tensor": read["tensor_model_parallel_size"],
        "layout.context": read["context_parallel_size"],
        "layout.pipeline": read["pipeline_model_parallel_size"],
        "layout.virtual_pipeline": read["virtual_pipeline_model_parallel_size"] or 1,
        "layout.expert": read["expert_model_parallel_size"],
        "layout.zero_stage": sharded,
        "recipe.micro_batch": read["micro_batch_size"],
        "recipe.global_batch": read["global_batch_size"],
        "recipe.sequence_length": read["seq_length"],
        "recipe.recompute": read["recompute_granularity"] or "none",
    }


def told(name: str, pairs: list[tuple[CompleteQuestion, ExportedFile]], wrong: int) -> int:
    """Print how many files a parser read, and give how many it read otherwise than they were written."""
    print(f"{name}: {len(pairs)} files read by its own parser, {wrong} mismatches")
    return wrong


def megatron(folder: str) -> int:
    """Files that Megatron-LM misreads, or that its parser, its validate_args or its model's configuration refuses."""
    pairs = written("megatron-lm")
    items = [
        {
            "words": shlex.split(file.content.replace("\\\n", "")),
            "environment": environment_of(question),
            "world": question.cluster.gpus,
        }
        for question, file in pairs
    ]
    wrong = 0
    degrees = ("data", "tensor", "context", "pipeline", "virtual_pipeline", "expert", "zero_stage")
    for (question, file), read in zip(pairs, read_by("torch", "megatron", items, folder), strict=True):
        found = read.get("refused") or differences(file, of_question(question, *degrees), in_megatron(read))
        if found:
            wrong += 1
            print(f"Megatron-LM: {found}", file=sys.stderr)
    return told("Megatron-LM", pairs, wrong)


def nanotron(folder: str) -> int:
    """Mismatches of nanotron's YAML."""
    pairs = written("nanotron")
    degrees = ("data", "tensor", "pipeline", "context", "expert", "zero_stage")
    wrong = 0
    read_files = read_by("torch", "nanotron", [file.content for _, file in pairs], folder)
    for (question, file), read in zip(pairs, read_files, strict=True):
        wanted = of_question(question, *degrees)
        wanted["recipe.recompute"] = wanted["recipe.recompute"] == "full"
        wrong += bool(differences(file, wanted, read))
    return told("nanotron", pairs, wrong)


def lists() -> int:
    """Classes of the listed fields that their commits declare otherwise."""
    wrong = 0
    for row in (*listed("torchtitan-main"), *listed("megatron-bridge")):
        repository, _, commit = row["source"].split()[0].partition("@")
        if folder := os.environ.get(CLONES[repository]):
            path = row["source"].split()[1]
            command = ["git", "-C", folder, "show", f"{commit}:{path}"]
            source = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            same = declared_fields(source, row["name"]) == row["fields"]
            wrong += not same
            print(f"{row['source']} {row['name']}: {len(row['fields'])} fields, {'as listed' if same else 'others'}")
        else:
            print(f"not compared: {row['source']} {row['name']}; {CLONES[repository]} names no clone")
    return wrong


def round_trips() -> int:
    """Print for each target how many random questions come back, and give how many come back otherwise."""
    print(f"{'target':16}{'same id':>9}{'but for what is listed':>24}{'otherwise':>11}")
    wrong = 0
    for name in TARGETS:
        found = trips(name)
        other = sum(bool(trip.unlisted) for trip in found)
        listed = sum(bool(trip.listed) and not trip.unlisted for trip in found)
        print(f"{name:16}{len(found) - listed - other:9}{listed:24}{other:11}")
        wrong += other
    return wrong


def main() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-n", "auto", "--timeout=0", "tests/formats"]
    failed = subprocess.run(command, cwd=ROOT, check=False).returncode
    print(f"{COUNT} random questions for each tool: {'failed' if failed else 'passed'}")
    wrong = lists() + round_trips()
    for name, measure in (("MEGATRON_LM", megatron), ("NANOTRON", nanotron)):
        if folder := os.environ.get(name):
            wrong += measure(folder)
        else:
            print(f"not measured: {name} names no clone of that repository")
    if failed or wrong:
        sys.exit("files are read otherwise than they were written")


if __name__ == "__main__":
    main()
