"""Megatron-DeepSpeed: Megatron-LM's arguments with the file of DeepSpeed, and programs with layers of their own."""

from typing import Any

import pytest

from service.features.exports.exports import import_file
from tests.formats.test_public import value_at

ARGUMENTS = (
    "--num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048"
    " --micro-batch-size 2 --global-batch-size 64 --vocab-file v.json --tensor-model-parallel-size 2"
    " --pipeline-model-parallel-size 2 --bf16"
)
WITH_FILE = f"deepspeed pretrain_gpt.py {ARGUMENTS} --deepspeed --deepspeed_config ds.json --zero-stage 1"
FILE = '{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": %s}}'


def _read(command: str, stage: str = "1") -> Any:
    return import_file(None, command, {"ds.json": FILE % stage} if "deepspeed_config" in command else {})


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        ("", "recipe.stack.name", "deepspeed"),
        ("", "layout.zero_stage", 1),
        ("", "recipe.attention", "eager"),
        ("--use-flash-attn-v2", "recipe.attention", "flash-2"),
        ("--checkpoint-activations", "recipe.recompute", {"granularity": "full", "method": "uniform", "layers": 1}),
        (
            "--checkpoint-activations --checkpoint-num-layers 4",
            "recipe.recompute",
            {"granularity": "full", "method": "uniform", "layers": 4},
        ),
        ("--ds-sequence-parallel-size 4", "layout.context", 4),
        ("--ds-sequence-parallel-size 4", "layout.context_method", "ulysses"),
        ("--pad-vocab-size-to 50432", "model.vocab_size", 50432),
    ],
)
def test_deepspeed_runs_what_megatrons_arguments_say(options: str, field: str, value: Any) -> None:
    imported = _read(f"{WITH_FILE} {options}")
    assert value_at(imported, field) == value
    assert imported.layout["tensor"] == imported.layout["pipeline"] == 2
    assert imported.not_understood == ()


@pytest.mark.parametrize(
    ("options", "stage", "name"),
    [
        ("--num-experts 8", "1", "num-experts"),
        ("--cpu-optimizer", "1", "cpu-optimizer"),
        ("--partition-activations", "1", "partition-activations"),
        ("", '3, "stage3_max_live_parameters": 0', "deepspeed.zero_optimization.stage3_max_live_parameters"),
    ],
)
def test_what_deepspeed_does_otherwise_is_listed(options: str, stage: str, name: str) -> None:
    assert [one.name for one in _read(f"{WITH_FILE} {options}", stage).not_understood] == [name]


def test_without_its_file_deepspeeds_switches_are_listed() -> None:
    listed = {one.name for one in import_file(None, WITH_FILE).not_understood}
    assert listed == {"deepspeed", "deepspeed_config", "zero-stage"}


@pytest.mark.parametrize(
    ("program", "options", "listed"),
    [
        ("pretrain_gpt.py", "", []),
        ("pretrain_llama.py", "", ["program"]),
        ("pretrain_llama.py", "--swiglu --normalization RMSNorm", []),
    ],
)
def test_a_program_with_layers_of_its_own_is_listed(program: str, options: str, listed: list[str]) -> None:
    imported = _read(f"torchrun {program} {ARGUMENTS} {options}")
    assert [one.name for one in imported.not_understood] == listed


@pytest.mark.parametrize(
    ("today", "earlier"),
    [
        ("--micro-batch-size 4", "--batch-size 4"),
        ("--tensor-model-parallel-size 4", "--model-parallel-size 4"),
        ("--recompute-granularity full --recompute-method uniform", "--checkpoint-activations"),
    ],
)
def test_arguments_of_earlier_releases_mean_what_todays_mean(today: str, earlier: str) -> None:
    start = "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 128 --vocab-size 99 --bf16"
    found = [import_file("megatron-lm", f"{start} {one}") for one in (today, earlier)]
    assert (found[0].recipe, found[0].layout) == (found[1].recipe, found[1].layout)
    assert found[1].not_understood == ()
