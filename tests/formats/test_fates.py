"""The fate of each setting of a file: settings that were once misread, by name, and what a reader makes of them."""

from typing import Any

import pytest

from service.answers.exports import Imported
from service.features.exports.exports import import_file
from service.formats.drafts import fates_of
from service.formats.frameworks import accelerate, deepspeed
from service.formats.text import Entry
from service.text_bounds import Place

FSDP = "distributed_type: FSDP\nnum_processes: 16\nnum_machines: 2\nfsdp_config:\n"
FSDP += "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
ZERO = '{{"train_micro_batch_size_per_gpu": 4, "bf16": {{"enabled": true}}, "zero_optimization": {{"stage": 3{}}}{}}}'


def parts(format: str, text: str, *names: str) -> dict[str, Any]:
    """Fields of an imported file, by their paths."""
    imported = import_file(format, text)
    found = {"layout": imported.layout, "recipe": imported.recipe}
    return {name: found[name.partition(".")[0]].get(name.partition(".")[2]) for name in names}


def not_understood(imported: Imported) -> list[str]:
    return [one.name for one in imported.not_understood]


SHARDED = ("layout.zero_stage", "layout.shard_group", "layout.reshard_after_forward")


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("FULL_SHARD", (3, None, True)),
        ("1", (3, None, True)),
        ("SHARD_GRAD_OP", (3, None, False)),
        ("2", (3, None, False)),
        ("NO_SHARD", (0, None, None)),
        ("no_shard", (0, None, None)),
        ("3", (0, None, None)),
        ("HYBRID_SHARD", (3, 8, True)),
        ("4", (3, 8, True)),
        ("HYBRID_SHARD_ZERO2", (3, 8, False)),
        ("_HYBRID_SHARD_ZERO2", (3, 8, False)),
        ("5", (3, 8, False)),
    ],
)
def test_a_strategy_of_fsdp1_is_read_by_name_and_by_number(strategy: str, expected: tuple[Any, ...]) -> None:
    text = f"{FSDP}  fsdp_sharding_strategy: {strategy}\n  fsdp_reshard_after_forward: true\n"
    assert tuple(parts("accelerate", text, *SHARDED).values()) == expected


def test_fsdp2_does_not_read_a_strategy() -> None:
    text = f"{FSDP}  fsdp_version: 2\n  fsdp_sharding_strategy: SHARD_GRAD_OP\n"
    assert parts("accelerate", text, *SHARDED)["layout.reshard_after_forward"] is True
    (one,) = [one for one in import_file("accelerate", text).without_effect if "strategy" in one.name]
    assert (one.line, one.why) == (7, "FSDP2 does not read it")


@pytest.mark.parametrize(
    ("format", "text", "name"),
    [
        ("accelerate", "distributed_type: FSDP\nnum_processes: 8\n", "distributed_type"),
        ("accelerate", FSDP.replace("TRANSFORMER_BASED", "SIZE_BASED"), "fsdp_config.fsdp_auto_wrap_policy"),
        ("accelerate", f"{FSDP}dynamo_config: {{dynamo_backend: INDUCTOR}}\n", "dynamo_config.dynamo_backend"),
        ("accelerate", f"{FSDP}use_cpu: true\n", "use_cpu"),
        ("deepspeed", ZERO.format(', "zero_hpz_partition_size": 8', ""), "zero_optimization.zero_hpz_partition_size"),
        ("deepspeed", ZERO.format(', "zero_quantized_weights": true', ""), "zero_optimization.zero_quantized_weights"),
        (
            "deepspeed",
            ZERO.format(', "offload_param": {"device": "cpu"}', ""),
            "zero_optimization.offload_param.device",
        ),
        (
            "deepspeed",
            ZERO.format(', "offload_optimizer": {"device": "nvme"}', ""),
            "zero_optimization.offload_optimizer.device",
        ),
        ("deepspeed", ZERO.format("", ', "torch_autocast": {"enabled": true}'), "torch_autocast.enabled"),
    ],
)
def test_what_would_change_the_answer_is_listed_and_not_passed_over(format: str, text: str, name: str) -> None:
    assert not_understood(import_file(format, text)) == [name]


def test_offload_by_its_older_names_is_read() -> None:
    assert parts("deepspeed", ZERO.format(', "cpu_offload": true', ""), "layout.offload") == {
        "layout.offload": "optimizer"
    }


def test_a_setting_has_one_fate_at_each_of_its_values() -> None:
    fates = deepspeed.FATES

    def fate(name: str, value: Any) -> str:
        return fates.of(Entry(name, value, Place(1, 1))).fate

    assert fate("zero_optimization.stage", 3) == "understood"
    assert fate("zero_optimization.zero_hpz_partition_size", 1) == "without_effect"
    assert fate("zero_optimization.zero_hpz_partition_size", None) == "without_effect"
    assert fate("zero_optimization.zero_hpz_partition_size", 8) == "not_understood"
    assert fate("scheduler.params.warmup_num_steps", 100) == "without_effect"
    assert fate("amp.opt_level", "O1") == "without_effect"
    assert fate("amp.enabled", True) == "not_understood"
    assert fate("zero_optimization.no_such_setting", 1) == "unknown"


def test_a_table_that_gives_a_setting_two_fates_does_not_load() -> None:
    table = {"read": {"text": ["a"]}, "without_effect": {"it logs": ["a"]}, "not_understood": {}}
    with pytest.raises(ValueError, match="settings with two fates: a"):
        fates_of(accelerate.RULES, table)
