"""Files of each tool are recognised as its own, and refused by its name where another format is named."""

from typing import Any

import pytest

from service.errors import Refused
from service.estimator import Layout, Recipe
from service.estimator.resolve import resolve
from service.features.exports.exports import import_file
from service.formats.recognise import TOOLS, recognise, recognise_words
from service.formats.rules import ExportRequest
from service.formats.targets import FORMATS, TARGETS, read_any
from service.formats.training import training_in
from tests.ask import question
from tests.estimator.small_models import DENSE

TEXTS: dict[str, str] = {
    "verl": "model:\n  partial_pretrain: Qwen/Qwen2.5-0.5B\ndata:\n  max_length: 1024\n",
    "nemo": "nemo llm pretrain --factory llama3_8b",
    "nemo-1": "trainer:\n  devices: 8\n  num_nodes: 1\nexp_manager:\n  name: gpt\nmodel:\n  micro_batch_size: 1\n",
    "megatron-bridge": "model:\n  tensor_model_parallel_size: 2\ntrain:\n  train_iters: 10\n",
    "megatron-yaml": "language_model:\n  num_layers: 24\nmodel_parallel:\n  tensor_model_parallel_size: 1\n",
    "torchtune": "model: {_component_: torchtune.models.llama3.llama3_8b}\noptimizer: {_component_: torch.optim.AdamW}",
    "maxtext": "base_emb_dim: 4096\nper_device_batch_size: 4\nici_fsdp_parallelism: -1\n",
    "gpt-neox": '{"pipe_parallel_size": 1, "num_layers": 6, "zero_optimization": {"stage": 1}}',
    "deepspeed-chat": "main.py --model_name_or_path a/b --zero_stage 3 --per_device_train_batch_size 1",
    "diffusers": "train.py --pretrained_model_name_or_path a/b --resolution 512 --train_batch_size 1",
    "open-instruct": "model_name_or_path: a/b\nuse_slow_tokenizer: false\nper_device_train_batch_size: 1\n",
    "openrlhf": "train_sft.py --micro_train_batch_size 2 --zero_stage 2 --pretrain a/b",
    "automodel": "step_scheduler:\n  global_batch_size: 8\nmodel:\n  _target_: nemo_automodel.Model\n",
    "primus": "modules:\n  pre_trainer:\n    framework: megatron\n",
    "picotron": '{"distributed": {"tp_size": 1}, "training": {"micro_batch_size": 1}}',
    "dolomite": "model_args:\n  model_class: AutoModelForCausalLM\ntuning_args:\n  tuning_method: pretraining\n",
    "oumi": "model:\n  model_name: gpt2\ntraining:\n  trainer_type: TRL_SFT\n",
    "llama-recipes": "enable_fsdp: true\nmodel_name: a\nbatch_size_training: 4\n",
    "ms-swift": "swift.py --model a/b --tuner_type lora --per_device_train_batch_size 1",
    "llm-foundry": "max_seq_len: 2048\nglobal_train_batch_size: 256\nmodel:\n  name: mpt_causal_lm\n",
    "olmo": "model:\n  d_model: 4096\nglobal_train_batch_size: 1024\n",
    "litgpt": "checkpoint_dir: c\nout_dir: o\ntrain:\n  global_batch_size: 8\n  micro_batch_size: 1\n",
    "lightning": "trainer:\n  devices: 8\n  strategy: fsdp\nmodel:\n  class_path: my.Model\n",
    "nanotron": "parallelism:\n  dp: 2\n  tp: 2\n",
    "torchtitan-module": "torchtitan/train.py --module llama3 --config llama3_8b",
    "torchtitan": '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nseq_len = 8192\n',
    "axolotl": "base_model: NousResearch/Llama-3.2-1B\nsequence_len: 2048\nmicro_batch_size: 2\n",
    "llama-factory": "model_name_or_path: Qwen/Qwen3-4B\nstage: sft\nfinetuning_type: lora\ntemplate: qwen3\n",
    "accelerate": "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_processes: 8\n",
    "deepspeed": '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}}',
    "trl": "model_name_or_path: Qwen/Qwen3-4B\nuse_peft: true\nmax_length: 1024\n",
    "transformers": "train.py --model_name_or_path gpt2 --per_device_train_batch_size 8 --output_dir o",
    "megatron-llm": "finetune.py --tensor_model_parallel_size 2 --micro_batch_size 1",
    "megatron-lm": "pretrain_gpt.py --num-layers 24 --hidden-size 1024 --seq-length 2048",
}


def test_each_tool_has_a_text() -> None:
    assert [*TEXTS] == [tool.name for tool in TOOLS]


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_is_of_its_tool_alone(name: str) -> None:
    found = recognise(read_any(TEXTS[name]))
    assert found is not None
    assert found.tool.name == name
    assert all(sign in found.why for sign in found.signs)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", TEXTS)
def test_a_file_of_another_tool_is_refused_by_its_name(name: str, format: str) -> None:
    tool = next(tool for tool in TOOLS if tool.name == name)
    if format in (tool.format, *tool.like):
        import_file(format, TEXTS[name])
        return
    with pytest.raises(Refused) as caught:
        import_file(format, TEXTS[name])
    (problem,) = caught.value.problems
    assert (problem.code, tool.title in problem.message) == ("another_format", True)
    assert problem.message.startswith("line ")
    assert problem.fix == f"send it as {tool.format}" if tool.format else "state the question" in problem.fix


@pytest.mark.parametrize("name", TEXTS)
def test_without_a_format_a_text_is_read_or_refused_by_name(name: str) -> None:
    tool = next(tool for tool in TOOLS if tool.name == name)
    if tool.format is not None:
        found = import_file(None, TEXTS[name])
        assert (found.format, tool.title in (found.recognised or "")) == (tool.format, True)
        assert import_file(found.format, TEXTS[name]).recognised is None
        return
    with pytest.raises(Refused, match=tool.title) as caught:
        import_file(None, TEXTS[name])
    assert [problem.code for problem in caught.value.problems] == ["not_read"]


def test_what_is_written_is_recognised() -> None:
    asked = question(DENSE, Recipe(sequence_length=1024, global_batch=8), Layout(tensor=2), gpus=8)
    for name in (FORMATS.keys() & TARGETS.keys()) - {"megatron-bridge"}:  # a Python function, which is not read
        version = next(iter(TARGETS[name].versions))
        written = TARGETS[name].write(ExportRequest(question=resolve(asked).question, version=version))
        found = recognise(read_any(written.content))
        assert found is not None, name
        assert found.tool.format == name


def test_a_program_tells_of_its_tool() -> None:
    text = "python3 -m verl.trainer.main_ppo \\\n  actor_rollout_ref.model.path=Qwen/Qwen2-7B trainer.nnodes=1\n"
    found = recognise_words(text)
    assert found is not None
    assert (found.tool.name, found.place.line, found.place.column) == ("verl", 2, 3)
    with pytest.raises(Refused, match="training by rewards"):
        import_file(None, text)


def test_a_text_of_no_tool_is_refused() -> None:
    with pytest.raises(Refused) as caught:
        import_file(None, "colour: red\n")
    (problem,) = caught.value.problems
    assert (problem.code, problem.message[:19]) == ("not_recognised", "line 1, column 9: t")


SCRIPT = """#!/bin/bash
#SBATCH --gpus=8
cat > ds.json <<'EOF'
{"zero_optimization": {"stage": 3, "reduce_bucket_size": "auto"}, "train_batch_size": "auto",
 "train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}}
EOF
cd work && deepspeed --num_gpus 8 train.py --model_name_or_path Qwen/Qwen2.5-7B --per_device_train_batch_size 2 \\
  --gradient_accumulation_steps 4 --bf16 True --model_max_length 4096 --deepspeed ds.json --output_dir o > log 2>&1
"""


def test_a_script_is_read_with_the_file_that_it_writes_and_its_launcher() -> None:
    found = import_file("script", SCRIPT)
    assert (found.format, found.model) == ("transformers", "Qwen/Qwen2.5-7B")
    assert (found.layout["zero_stage"], found.layout["data"]) == (3, 8)
    wanted = {"sequence_length": 4096, "micro_batch": 2, "global_batch": 64, "precision": "bf16-mixed"}
    assert {name: found.recipe[name] for name in wanted} == wanted
    assert found.recipe["stack"] == {"name": "deepspeed", "reduce_bucket_numbers": 3584**2}


@pytest.mark.parametrize("program", ["axolotl train", "accelerate launch -m axolotl.cli.train"])
def test_a_program_is_read_with_the_file_that_its_script_writes(program: str) -> None:
    script = f"cat > conf.yml <<EOF\n{TEXTS['axolotl']}EOF\nsrun {program} conf.yml\n"
    assert (training_in(script).file or "").strip() == TEXTS["axolotl"].strip()


@pytest.mark.parametrize(
    ("launcher", "layout"),
    [
        ("torchrun --nproc-per-node=4 --nnodes 2", {"data": 8, "zero_stage": 0}),
        ("accelerate launch --multi_gpu --num_processes 8", {"data": 8, "zero_stage": 0}),
        ("accelerate launch --use_deepspeed --zero_stage 3 --num_processes 4", {"data": 4, "zero_stage": 3}),
        (
            "accelerate launch --use_fsdp --fsdp_version 2 --fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP "
            "--fsdp_reshard_after_forward true --num_processes 4",
            {"data": 4, "zero_stage": 3, "reshard_after_forward": True},
        ),
        ("torchrun --nproc-per-node=gpu", {"data": None, "zero_stage": 0}),
    ],
)
def test_what_a_launcher_says_before_the_script_is_read(launcher: str, layout: dict[str, Any]) -> None:
    text = f"{launcher} train.py --model_name_or_path Qwen/Qwen3-8B --block_size 512 --per_device_train_batch_size 1"
    found = import_file(None, text)
    assert {name: found.layout.get(name) for name in layout} == layout
    assert found.unknown == ()


def test_a_file_that_the_launcher_names_is_missing_by_its_place() -> None:
    with pytest.raises(Refused, match="line 1, column 19") as caught:
        import_file(None, "accelerate launch --config_file fsdp.yaml train.py --per_device_train_batch_size 1")
    assert [problem.code for problem in caught.value.problems] == ["missing_file"]


@pytest.mark.parametrize("program", ["examples/scripts/dpo.py", "trl grpo", "-m trl.scripts.kto", "reward_modeling.py"])
def test_a_script_of_another_training_is_refused_by_its_name(program: str) -> None:
    with pytest.raises(Refused) as caught:
        import_file(None, f"accelerate launch {program} --model_name_or_path gpt2 --per_device_train_batch_size 1")
    assert [problem.code for problem in caught.value.problems] == ["not_estimated"]


def test_frozen_weights_that_stay_in_fp32_are_not_taken_for_half() -> None:
    text = "trl sft --model_name_or_path gpt2 --use_peft --per_device_train_batch_size 1"
    assert [one.name for one in import_file(None, text).not_understood] == ["use_peft"]
    assert import_file(None, f"{text} --dtype bfloat16").not_understood == ()


def test_a_script_of_ones_own_has_the_defaults_of_trainer_though_it_uses_adapters() -> None:
    text = "{} --model_name_or_path gpt2 --use_peft true --per_device_train_batch_size 1 --target_modules c_attn"
    own, trl = (import_file(None, text.format(program)).recipe for program in ("sft_own.py", "trl sft"))
    assert "cross_entropy" not in own["stack"]
    assert (own["recompute"], own["method"]["targets"]) == ("none", ["q_proj", "k_proj", "v_proj"])
    (assumed,) = [one for one in import_file(None, text.format("sft_own.py")).assumptions if "adapters" in one]
    assert assumed == "adapters have TRL's or PEFT's default rank; a script may have its own"
    assert (trl["stack"]["cross_entropy"], trl["recompute"]) == ("chunked", "full")


@pytest.mark.timeout(10)
@pytest.mark.parametrize("name", ["-chat" * 40_000, "a/" * 60_000, "x-instruct" * 20_000])
def test_a_name_of_a_model_that_is_too_long_is_left_out_soon(name: str) -> None:
    found = import_file("axolotl", f"base_model: x{name}\nsequence_len: 8\n")
    assert found.model is None
    assert any("more than 200 characters" in one for one in found.assumptions)


def test_a_file_for_yaml_cfg_stands_in_place_of_the_arguments_that_name_it() -> None:
    arguments = "pretrain_gpt.py --num-layers 4 --seq-length 8 --micro-batch-size 1 --yaml-cfg conf/gpt.yaml"
    beside = "language_model: {num_layers: 8}\nmodel_parallel: {tensor_model_parallel_size: 2}\nseq_length: 64\n"
    found = import_file("megatron-lm", arguments, {"gpt.yaml": beside})
    assert (found.recipe["sequence_length"], found.layout["tensor"]) == (64, 2)
    assert "seq-length" in [one.name for one in found.without_effect]
    assert [one.name for one in import_file("megatron-lm", arguments).not_understood] == ["yaml-cfg"]
