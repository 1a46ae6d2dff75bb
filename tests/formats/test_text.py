"""What is wrong with a file is refused with its line and column, and what is not understood is listed."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

from service.answers.exports import Imported
from service.errors import Refused
from service.features.exports.exports import import_file
from service.formats.targets import FORMATS
from service.formats.text import LONGEST_FILE_BYTES, read_yaml
from service.text_bounds import MOST_WORDS

MEGATRON = "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --vocab-size 99 --seq-length 128"

WRONG: list[tuple[str, str, str, int, int]] = [
    ("megatron-lm", "--bf16\n--tensor-model-parallel-size two", "not_a_whole_number", 2, 1),
    ("megatron-lm", "--seq-length $LENGTH", "unknown_value", 1, 1),
    ("axolotl", "sequence_len: '{{ length }}'\n", "not_filled_in", 1, 15),
    ("megatron-lm", 'pretrain_gpt.py \\\n  --save "$SAVE" --seq-length "$LENGTH"', "unknown_value", 2, 18),
    ("megatron-lm", "--data-path 'x", "not_closed", 1, 13),
    ("megatron-lm", "a b", "not_an_option", 1, 1),
    ("megatron-lm", "--bf16 '--seq-length 8'", "not_an_option", 1, 9),
    ("megatron-lm", "--bf16 yes", "not_true_or_false", 1, 1),
    ("megatron-lm", f"{MEGATRON}\n  --pipeline-model-parallel-layout 'E|x|L'", "not_a_layout", 2, 3),
    ("megatron-lm", f"{MEGATRON} --num-experts 4 --moe-layer-freq [1]*3+x", "not_a_pattern", 1, 106),
    ("nanotron", "parallelism:\n  dp: 2\n  tp: two\n", "not_a_whole_number", 3, 7),
    ("nanotron", "parallelism:\n  dp: 2\n  dp: 4\n", "duplicate_key", 3, 3),
    ("nanotron", "a: {b: 1}\na: 1\n", "duplicate_key", 2, 1),
    ("nanotron", "a: 1\na:\n", "duplicate_key", 2, 1),
    ("nanotron", "a: &x [*x]\n", "anchor", 1, 8),
    ("nanotron", "a:\n  <<: 1\n", "not_an_object", 2, 7),
    ("nanotron", "a: &x {b: 1}\nc:\n  <<: *x\n  <<: *x\n", "duplicate_key", 4, 3),
    ("nanotron", "a: !!int 1\n", "tag", 1, 4),
    ("nanotron", "a: 1\nb: *x\n", "anchor", 2, 4),
    ("nanotron", "a: !!python/object:os.system 1\n", "tag", 1, 4),
    ("nanotron", "a: [1\n", "not_yaml", 2, 1),
    ("nanotron", "- 1\n", "not_an_object", 1, 1),
    ("nanotron", "a: 1\n---\nb: 1\n", "many_documents", 3, 1),
    ("nanotron", "optimizer:\n  zero_stage: 2\n", "not_a_choice", 2, 15),
    ("torchtitan", "[training]\nseq_len = true\n", "not_a_whole_number", 2, 11),
    ("torchtitan", "[training]\nseq_len = 1\nseq_len = 2\n", "not_toml", 3, 12),
    ("torchtitan", "[training\n", "not_toml", 1, 10),
    ("deepspeed", '{"train_batch_size": "many"}', "not_a_whole_number", 1, 22),
    ("deepspeed", '{\n "zero_optimization": {"stage": 1,\n  "stage": 2}}', "duplicate_key", 3, 3),
    ("deepspeed", '{"a": 1,}', "not_json", 1, 9),
    ("deepspeed", '{"a": 1e999}', "not_finite", 1, 7),
    ("deepspeed", "[1]", "not_an_object", 1, 1),
    ("deepspeed", '{"train_batch_size": 7, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2}',
     "batch_divides", 1, 22),
    ("accelerate", "distributed_type: TPU\n", "not_a_choice", 1, 19),
    ("transformers", "--bf16 maybe", "not_true_or_false", 1, 1),
    ("transformers", "--deepspeed ds.json --bf16", "missing_file", 1, 1),
    ("transformers", "--optim galore_adamw", "not_a_choice", 1, 1),
    ("trl", "num_generations: 8\n", "not_estimated", 1, 18),
    ("axolotl", "sequence_len: 8\nrl: dpo\n", "not_estimated", 2, 5),
    ("axolotl", "adapter: llama-adapter\n", "not_estimated", 1, 10),
    ("axolotl", "deepspeed: ds.json\n", "missing_file", 1, 12),
    ("llama-factory", "stage: dpo\n", "not_estimated", 1, 8),
    ("llama-factory", "finetuning_type: oft\n", "not_estimated", 1, 18),
    ("llama-factory", "finetuning_type: lora\ntask: mmlu_test\n", "not_a_training", 2, 7),
    ("llama-factory", "finetuning_type: lora\nexport_dir: out\n", "not_a_training", 2, 13),
    ("llama-factory", "template: llama3\ninfer_backend: vllm\n", "not_a_training", 2, 16),
]  # fmt: skip


def refused(name: str, text: str) -> Refused:
    with pytest.raises(Refused) as caught:
        import_file(name, text)
    return caught.value


@pytest.mark.parametrize(("name", "text", "code", "line", "column"), WRONG)
def test_a_refusal_names_line_and_column(name: str, text: str, code: str, line: int, column: int) -> None:
    (problem,) = refused(name, text).problems
    place = re.match(r"line (\d+), column (\d+): ", problem.message)
    assert place
    assert (problem.field, problem.code, int(place[1]), int(place[2])) == ("content", code, line, column)
    assert problem.fix


@pytest.mark.parametrize("name", FORMATS)
def test_a_refusal_repeats_nothing_of_the_file(name: str) -> None:
    text = {
        "megatron-lm": "--seq-length c4n4ry",
        "megatron-bridge": "run_recipe.py --recipe llama3_8b_pretrain_config train.train_iters=c4n4ry",
        "verl": "-m verl.trainer.fsdp_sft_trainer data.max_length=c4n4ry",
        "nemo": "nemo llm pretrain --factory llama3_8b data.seq_length=c4n4ry",
        "torchtitan-module": "--module llama3 --config llama3_8b --training.steps c4n4ry",
        "megatron-yaml": "language_model:\n  num_layers: c4n4ry\n",
        "nanotron": "tokens:\n  sequence_length: c4n4ry\n",
        "torchtitan": "[training]\nseq_len = 'c4n4ry'\n",
        "deepspeed": '{"train_batch_size": "c4n4ry"}',
        "accelerate": "num_processes: c4n4ry\n",
        "transformers": "--per_device_train_batch_size c4n4ry",
        "trl": "lora_r: c4n4ry\n",
        "axolotl": "micro_batch_size: c4n4ry\n",
        "llama-factory": "cutoff_len: c4n4ry\n",
        "torchtune": "batch_size: c4n4ry\n",
        "litgpt": "optimizer: c4n4ry\n",
        "llm-foundry": "max_duration: c4n4ry\n",
        "maxtext": "steps: c4n4ry\n",
        "lightning": "trainer: {devices: c4n4ry}\n",
    }[name]
    assert "c4n4ry" not in str(refused(name, text))


LONG: dict[str, str] = {
    "megatron-lm": "--a " * MOST_WORDS + "--b",
    "megatron-bridge": "run_recipe.py --recipe llama3_8b_pretrain_config " + "--a 1 " * MOST_WORDS,
    "verl": "-m verl.trainer.fsdp_sft_trainer " + "a=1 " * MOST_WORDS,
    "nemo": "nemo llm pretrain --factory llama3_8b " + "--a 1 " * MOST_WORDS,
    "torchtitan-module": "--a " * MOST_WORDS + "--b",
    "megatron-yaml": "".join(f"k{n}: 1\n" for n in range(5000)),
    "nanotron": "".join(f"k{n}: 1\n" for n in range(5000)),
    "torchtitan": "".join(f"k{n} = 1\n" for n in range(5000)),
    "deepspeed": "{" + ",".join(f'"k{n}": 1' for n in range(20000)) + "}",
    "accelerate": "a: [" + "[" * 100 + "]" * 100 + "]\n",
    "transformers": "--a " * MOST_WORDS + "--b",
    "trl": "".join(f"k{n}: 1\n" for n in range(5000)),
    "axolotl": "".join(f"k{n}: 1\n" for n in range(5000)),
    "llama-factory": "{" + ",".join(f'"k{n}": 1' for n in range(20000)) + "}",
    "torchtune": "".join(f"k{n}: 1\n" for n in range(5000)),
    "litgpt": "".join(f"k{n}: 1\n" for n in range(5000)),
    "llm-foundry": "".join(f"k{n}: 1\n" for n in range(5000)),
    "maxtext": "".join(f"k{n}: 1\n" for n in range(5000)),
    "lightning": "".join(f"k{n}: 1\n" for n in range(5000)),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", FORMATS)
def test_a_file_that_is_too_long_or_too_deep_is_refused_soon(name: str) -> None:
    assert refused(name, LONG[name]).problems
    assert refused(name, "#" * (LONGEST_FILE_BYTES + 1)).problems[0].code == "too_long"
    assert refused(name, "[" * 100_000).problems
    assert refused(name, '{"a":' * 30_000).problems


ALIASED = """
sizes: &sizes {dp: 4, tp: 2}
more: &more
  tp: 8
  deep: {a: 1, b: 2}
list: [&one 1, *one]
copied: *more
parallelism:
  deep: {c: 3}
  <<: [*sizes, *more]
  pp: 2
"<<": text
"""


def test_aliases_and_merge_keys_of_yaml_stand_for_what_they_name() -> None:
    # Of mappings in a list the first counts: https://yaml.org/type/merge.html.
    found = {entry.name: entry.value for entry in read_yaml(ALIASED)}
    assert found == {
        "sizes.dp": 4,
        "sizes.tp": 2,
        "more.tp": 8,
        "more.deep.a": 1,
        "more.deep.b": 2,
        "list": (1, 1),
        "copied.tp": 8,
        "copied.deep.a": 1,
        "copied.deep.b": 2,
        "parallelism.deep.c": 3,
        "parallelism.pp": 2,
        "parallelism.dp": 4,
        "parallelism.tp": 2,
        "<<": "text",
    }


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a: 1\nb: 2\na: 1\n", [("a", 1), ("b", 2)]),
        ("a:\na: {b: 2}\n", [("a.b", 2)]),
        ("a: null\na: [1]\n", [("a", (1,))]),
        ("a: !!set {x, y}\nb: !!set\n  ? z\n", [("a", ("x", "y")), ("b", ("z",))]),
    ],
)
def test_a_setting_given_again_alike_and_a_set_are_read(text: str, found: list[tuple[str, Any]]) -> None:
    assert [(entry.name, entry.value) for entry in read_yaml(text)] == found


def test_values_that_no_field_takes_are_refused_by_field() -> None:
    (problem,) = refused("megatron-lm", f"{MEGATRON} --tensor-model-parallel-size 0").problems
    assert "layout.tensor" in problem.message


def test_what_is_not_understood_is_listed_with_its_place() -> None:
    found = import_file("megatron-lm", f"{MEGATRON}\n --warp-drive 9 --lr 1e-4 --save out")
    assert [(one.name, one.line, one.column) for one in found.unknown] == [("warp-drive", 2, 2)]


COMMAND = """\
export X=1  # what stands before the program is passed over
torchrun --nproc-per-node 8 pretrain_gpt.py \\
    --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --vocab-size 32000 \\
    --micro-batch-size 2 --global-batch-size 64 --bf16 --recompute-granularity selective \\
    --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 4 --use-distributed-optimizer
"""


def test_a_whole_command_is_read_with_the_tools_own_defaults() -> None:
    found: Imported = import_file("megatron-lm", COMMAND.removeprefix("export X=1  "))
    wanted: dict[str, Any] = {"pipeline": 4, "virtual_pipeline": 2, "zero_stage": 1, "tensor": 1}
    assert {name: found.layout[name] for name in wanted} == wanted
    assert found.recipe["dropout_fraction"] == 0.1
    assert found.recipe["recompute"] == {"granularity": "selective", "modules": ["core_attn"]}
    assert isinstance(found.model, Mapping)
    assert found.model["intermediate_size"] == 4 * 4096
    assert found.model["gated_mlp"] is False
