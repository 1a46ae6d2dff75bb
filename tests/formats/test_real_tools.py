"""The tool's own parser accepts every exported file and reads the same degrees, batches and recompute.

Each tool runs in an environment of its own, which .ci/tools makes; TRAINCOST_TOOLS names their folder.
"""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from service.estimator.complete import CompleteQuestion
from service.estimator.software.stacks import software_of
from service.estimator.workload import recompute_of
from service.formats.frameworks.torchtitan import replica_degrees
from service.formats.program import nodes_of
from service.formats.rules import ExportedFile
from tests.formats.launchers.shells import started
from tests.formats.launchers.test_launchers import SCRIPTS
from tests.formats.tools import is_listed, read_by, tools, written

KUBERNETES = ("trainjob", "pytorchjob", "jobset", "volcano")


def differences(file: ExportedFile, wanted: Mapping[str, Any], got: Mapping[str, Any]) -> dict[str, Any]:
    """What the file was to hold, and was read otherwise."""
    return {
        field: (value, got[field])
        for field, value in wanted.items()
        if value != got[field] and not is_listed(file, field)
    }


def of_torchtitan(question: CompleteQuestion) -> dict[str, Any]:
    layout, recipe = question.layout, question.recipe
    local = recipe.micro_batch
    if layout.pipeline > 1:
        local = (recipe.global_batch or 0) // (layout.data or 1)
    replicas, shards = replica_degrees(question) or (1, layout.data)
    return {
        "layout.data": (replicas, shards),
        "layout.tensor": layout.tensor,
        "layout.context": layout.context,
        "layout.pipeline": layout.pipeline,
        "layout.expert": layout.expert,
        "recipe.sequence_length": recipe.sequence_length,
        "recipe.micro_batch": local,
        "recipe.global_batch": recipe.global_batch,
        "recipe.recompute": recompute_of(recipe).granularity,
    }


def in_torchtitan(read: Mapping[str, Any]) -> dict[str, Any]:
    modes = {"NoneType": "none", "SelectiveAC": "selective", "FullAC": "full"}
    return {
        "layout.data": (read["data_parallel_replicate_degree"], read["data_parallel_shard_degree"]),
        "layout.tensor": read["tensor_parallel_degree"],
        "layout.context": read["context_parallel_degree"],
        "layout.pipeline": read["pipeline_parallel_degree"],
        "layout.expert": read["expert_parallel_degree"],
        "recipe.sequence_length": read["seq_len"],
        "recipe.micro_batch": read["local_batch_size"],
        "recipe.global_batch": read["global_batch_size"],
        "recipe.recompute": modes.get(read["mode"], read["mode"]),
    }


def test_torchtitan_of_0_2_reads_its_toml() -> None:
    pairs = written("torchtitan", "0.2")
    read = read_by("torch", "torchtitan_old", [file.content for _, file in pairs], str(tools() / "torchtitan-0.2.2"))
    for (question, file), found in zip(pairs, read, strict=True):
        assert differences(file, of_torchtitan(question), in_torchtitan(found)) == {}


def test_torchtitan_of_0_3_reads_its_flags() -> None:
    pairs = written("torchtitan", "0.3")
    words = [shlex.split(file.content.replace("\\\n", "")) for _, file in pairs]
    read = read_by("torch", "torchtitan_new", words, str(tools() / "torchtitan-0.3.0"))
    for (question, file), found in zip(pairs, read, strict=True):
        assert differences(file, of_torchtitan(question), in_torchtitan(found)) == {}


def test_deepspeed_reads_its_json_and_agrees_about_batches() -> None:
    pairs = written("deepspeed")
    worlds = [(one.layout.data or 1) * one.layout.context * one.layout.tensor for one, _ in pairs]
    items = [{"content": file.content, "world": world} for (_, file), world in zip(pairs, worlds, strict=True)]
    for (question, file), found in zip(pairs, read_by("torch", "deepspeed", items), strict=True):
        layout, recipe = question.layout, question.recipe
        wanted = {
            "layout.data": (layout.data or 1) * layout.tensor,
            "layout.tensor": layout.tensor,
            "layout.pipeline": layout.pipeline,
            "layout.zero_stage": layout.zero_stage,
            "recipe.micro_batch": recipe.micro_batch,
            "recipe.global_batch": (recipe.global_batch or 1) * layout.tensor,
            "recipe.recompute": recompute_of(recipe).granularity == "full",
        }
        stages = 1 if found["stages"] == "auto" else found["stages"]
        got = {f"layout.{name}": found[name] for name in ("data", "tensor", "zero_stage")}
        got |= {f"recipe.{name}": found[name] for name in ("micro_batch", "global_batch")}
        got |= {"layout.pipeline": stages, "recipe.recompute": found["checkpoints"] is not None}
        assert differences(file, wanted, got) == {}


def test_accelerate_reads_its_yaml_and_knows_every_name() -> None:
    pairs = written("accelerate")
    read = read_by("torch", "accelerate", [file.content for _, file in pairs])
    for (question, file), found in zip(pairs, read, strict=True):
        layout, at = question.layout, "parallelism_config_"
        assert found["unknown"] == []
        assert found["refused"] == ""
        assert found["processes"] == question.cluster.gpus
        context = found.get(f"{at}cp_size", 1) * found.get(f"{at}sp_size", 1)
        got = {"layout.tensor": found.get(f"{at}tp_size", 1), "layout.context": context}
        got["recipe.recompute"] = found.get("fsdp_activation_checkpointing", False)
        wanted: dict[str, Any] = {"layout.tensor": layout.tensor, "layout.context": layout.context}
        wanted["recipe.recompute"] = recompute_of(question.recipe).granularity == "full"
        if f"{at}dp_shard_size" in found:
            got["layout.data"] = found[f"{at}dp_shard_size"] * found[f"{at}dp_replicate_size"]
            wanted["layout.data"] = layout.data
        assert differences(file, wanted, got) == {}


def test_torchrun_reads_what_launchers_start(tmp_path: Path) -> None:
    assert tools()  # skipped, or failed, where there are none: before scripts are run for them
    wanted, words = [], []
    for name, script_of in SCRIPTS.items():
        pairs = [pair for pair in written(name) if software_of(pair[0].recipe).name not in ("fsdp1", "transformers")]
        for question, file in pairs[:8]:
            nodes = nodes_of(question)
            wanted.append((name, str(nodes.count), str(nodes.gpus_each)))
            words.append(started(script_of(file.content), tmp_path)[0][1:])
    for (name, *counts), found in zip(wanted, read_by("torch", "torchrun", words), strict=True):
        assert (name, *counts) == (name, found["nodes"], found["gpus_each"])


@pytest.mark.parametrize("name", KUBERNETES)
def test_models_and_schemas_of_kubernetes_know_every_field(name: str) -> None:
    pairs = written(name)
    for found in read_by("kubernetes", "kubernetes", [file.content for _, file in pairs]):
        same = found["given_back"] == found["manifest"]
        assert same or in_text(found["given_back"]) == in_text(found["manifest"])


def in_text(part: Any) -> Any:
    """A manifest whose quantities are texts, as one of the models gives them back."""
    if isinstance(part, dict):
        return {name: in_text(inner) for name, inner in part.items()}
    return [in_text(inner) for inner in part] if isinstance(part, list) else str(part)


@pytest.mark.parametrize("name", ["skypilot", "dstack"])
def test_clouds_read_their_tasks(name: str) -> None:
    pairs = written(name)
    for (question, _), found in zip(pairs, read_by(name, name, [file.content for _, file in pairs]), strict=True):
        nodes = nodes_of(question)
        assert (found["nodes"], found["gpus"]) == (nodes.count, nodes.gpus_each)
