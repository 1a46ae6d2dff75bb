"""The training that a script starts, with what is not known of it."""

from typing import Any

import pytest

from service.answers.exports import Imported
from service.errors import Refused
from service.features.exports.exports import import_file
from service.formats.training import Job

MODEL = "--num-layers 2 --hidden-size 64 --num-attention-heads 2 --vocab-size 512 --seq-length 64"
GPT = f"torchrun pretrain_gpt.py {MODEL}"
TITAN = "cat > a.toml <<EOF\n[model]\nname = 'llama3'\nflavor = '8B'\n[training]\nseq_len = $LEN\nsteps = 10\nEOF\n"


TITANS = "torchrun -m torchtitan.train"


def read(script: str, **job: Any) -> Imported:
    return import_file("script", script, job=Job(**job))


def refused(script: str) -> tuple[str, str, str]:
    with pytest.raises(Refused) as caught:
        read(script)
    (problem,) = caught.value.problems
    return problem.code, problem.message, problem.fix


@pytest.mark.parametrize(
    ("script", "code", "message"),
    [
        (f"{GPT} \\\n  --micro-batch-size $MBS", "unknown_value", "line 2, column 3: micro-batch-size depends on $MBS"),
        (f"M=$(nvidia-smi)\n{GPT} --micro-batch-size $M", "unknown_value", "of line 1, which is a command"),
        ("srun $RUN --bf16", "unknown_program", "line 1, column 6: the program depends on $RUN of line 1"),
        ("cd x\nsrun bash train.sh", "absent_script", "line 2, column 11: the script starts train.sh"),
        ("axolotl train conf.yml", "absent_file", "line 1, column 15: the settings are in conf.yml"),
        (f"if $A; then {GPT}; else {GPT} --bf16; fi", "several_trainings", "line 1, column "),
        ("cd x\npython mine.py --width 8", "no_training", "line 2, column 8: the script starts no training"),
        ("hostname", "no_training", "line 1, column 1: the script starts no training that is known"),
        (f"A=<how many>\n{GPT} --micro-batch-size $A", "unknown_value", "batch-size depends on <how many> of line 1"),
        ("a\ntorchrun -m x --config a.yaml --size 8", "absent_file", "line 2, column 24: the settings are in a.yaml"),
        (f"{TITANS} --job.config_file a.toml --training.steps 4", "missing_file", "job.config_file names a file"),
        ("P=1\nD=$(pwd)\npython $D/mine.py", "no_training", "line 3, column 11: the script starts no training"),
        ("python a.py --data x.json --a 1", "no_training", "line 1, column 8: the script starts no training"),
        ("\npython a.py --base_model b --lora_r 8 --micro_batch_size 1", "not_read", "line 2, column 8: program"),
        ("python a.py --model_type a --sft_type lora --batch_size 1", "not_read", "this is a file of ms-swift"),
        ("python a.py --enable_fsdp --model_name a --use_peft", "not_read", "this is a file of llama-recipes"),
        ("deepspeed tools/pretrain_t5.py --a 1", "not_estimated", "column 11: pretrain_t5.py trains an encoder"),
    ],
)  # fmt: skip
def test_what_is_missing_is_named_with_its_line(script: str, code: str, message: str) -> None:
    found, text, fix = refused(script)
    assert (found, message in text, bool(fix)) == (code, True, True)


@pytest.mark.parametrize(
    "more",
    [
        '--save "$CKPT" --load $CKPT --data-path ${DATA}/x_text_document --tokenizer-model $(pwd)/t.model',
        "--train-iters $ITERS",
        "--tensorboard-dir $1",
        "--save <where to> --load <where from>/iter < in.txt",
        "$@",
        '"${EMPTY[@]}"',
    ],
)
def test_what_the_question_does_not_need_may_be_unknown(more: str) -> None:
    found = read(f"EMPTY=()\n{GPT} {more} --micro-batch-size 2")
    assert (found.recipe["micro_batch"], found.not_understood) == (2, ())


@pytest.mark.parametrize("more", ["--seed 1 $EXTRA", "--seq-length 64 $EXTRA", '--seed 1 "${EXTRA[@]}"'])
def test_words_that_may_hold_any_setting_are_not_understood(more: str) -> None:
    (one,) = read(f". ./settings\n{GPT} {more}").not_understood
    assert (one.name.startswith("$"), one.line, "it may hold any setting" in one.why) == (True, 2, True)


def test_branches_that_differ_leave_open_what_they_differ_in() -> None:
    start = "A=(--micro-batch-size 2)\nif [ -f x ]; then A+=({} --data-path a); else A+=({} --mock-data); fi\n"
    end = f"{GPT} ${{A[@]}}"
    assert read(start.format("--bf16", "--bf16") + end).recipe["precision"] == "bf16-mixed"
    assert refused(start.format("--micro-batch-size 4", "--micro-batch-size 8") + end)[0] == "unknown_value"


def test_the_job_gives_variables_arguments_and_files() -> None:
    script = f"{GPT} --micro-batch-size ${{MBS:-$1}} --global-batch-size $((SLURM_NNODES * 8))"
    found = read(script, variables={"SLURM_NNODES": "4"}, arguments=["2"])
    assert (found.recipe["micro_batch"], found.recipe["global_batch"]) == (2, 32)
    named = import_file(
        "script", "axolotl train c.yml", {"c.yml": "base_model: x\nsequence_len: 8\nmicro_batch_size: 3\n"}
    )
    assert (named.format, named.recipe["micro_batch"]) == ("axolotl", 3)


@pytest.mark.parametrize(
    ("command", "micro_batch", "processes"),
    [
        ("axolotl train c.yml --micro-batch-size 4", 4, None),
        ("axolotl train c.yml --micro_batch_size=4 --launcher torchrun -- --num_processes=2", 4, 2),
        ("accelerate launch --num_processes 2 -m axolotl.cli.train c.yml", 3, 2),
        ("accelerate launch --num_processes 2 scripts/finetune.py c.yml", 3, 2),
        ("accelerate launch --config_file a.yaml src/train.py c.yml", 3, 2),
        ("llamafactory-cli train l.yaml per_device_train_batch_size=5", 5, None),
        ("trl sft --config t.yaml --per_device_train_batch_size 7", 7, None),
        ("llamafactory-cli train --stage sft --finetuning_type full --model_name_or_path a/b --template x "
         "--per_device_train_batch_size 5 --deepspeed d.json", 5, None),
    ],
)  # fmt: skip
def test_a_command_changes_the_file_that_it_names(command: str, micro_batch: int, processes: int | None) -> None:
    trl = "model_name_or_path: a/b\ndataset_name: x\nlearning_rate: 1.0e-4\nper_device_train_batch_size: 2\n"
    files = {
        "c.yml": "base_model: x/y\nsequence_len: 8\nmicro_batch_size: 3\ndatasets:\n  - path: a\n",
        "l.yaml": "model_name_or_path: a/b\nstage: sft\nfinetuning_type: full\ntemplate: x\ncutoff_len: 8\n",
        "t.yaml": trl,
        "a.yaml": "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_processes: 2\n",
        "d.json": '{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": "auto"}',
    }
    named = [name for name in files if name in command]
    found = import_file("script", command, {name: files[name] for name in named})
    assert (found.recipe["micro_batch"], found.layout.get("data"), found.unknown) == (micro_batch, processes, ())
    assert found.layout["zero_stage"] == (2 if "d.json" in command else 0)


def test_a_file_that_the_script_writes_is_read_with_its_variables_and_the_options_beside_it() -> None:
    end = "torchrun -m torchtitan.train --job.config_file ./a.toml --parallelism.tensor_parallel_degree $((2 * 2))"
    found = read(f"LEN=4096\n{TITAN}{end}")
    assert (found.recipe["sequence_length"], found.layout["tensor"]) == (4096, 4)
    code, message, _ = refused(TITAN.replace("= $LEN", "= '$LEN'") + end)
    assert (code, message[:7]) == ("unknown_value", "line 6,")


def test_a_repeated_option_counts_last_and_the_last_training_is_read() -> None:
    found = read(f"{GPT} --micro-batch-size 2\n{GPT} --micro-batch-size 3 --micro-batch-size 4")
    assert found.recipe["micro_batch"] == 4
    assert "the script starts several trainings, and this is the last" in found.assumptions


def test_a_file_that_is_read_and_not_here_is_told() -> None:
    note = "./settings, which line 2 reads, is not here: nothing that it sets counts"
    assert note in read(f"TP=2\nsource ./settings\n{GPT}").assumptions
    assert not any("is not here" in one for one in read(f"source venv/bin/activate\n{GPT}").assumptions)


def test_what_a_program_of_no_tool_is_given_beside_a_file_of_accelerate_is_not_passed_over() -> None:
    file = "distributed_type: MULTI_GPU\nmixed_precision: 'no'\nnum_processes: 2\n"
    script = "accelerate launch --config_file a.yaml --num_processes 8 train.py --seq-length 64 --mixed_precision bf16"
    found = import_file("script", f"cat > a.yaml <<EOF\n{file}EOF\n{script}")
    assert (found.format, found.layout["data"], found.recipe["precision"]) == ("accelerate", 8, "bf16-mixed")
    assert [one.name for one in found.not_understood] == ["seq-length"]


def test_the_name_of_a_model_counts_whatever_folder_it_is_in() -> None:
    found = read("python train.py --model_name_or_path $HOME/models/Qwen/Qwen3-4B --per_device_train_batch_size 1")
    assert found.model == "qwen3-4b"
    assert refused("python train.py --model_name_or_path $M --per_device_train_batch_size 1")[0] == "unknown_value"


@pytest.mark.parametrize("program", ["own-train", "deepspeed --module own.train", "srun own train"])
def test_options_of_a_training_tell_of_it_whatever_its_program_is(program: str) -> None:
    found = read(f"{program} --model_name Qwen/Qwen2.5-7B --per_device_train_batch_size 2 --use_deepspeed")
    assert (found.format, found.model, found.recipe["micro_batch"]) == ("transformers", "Qwen/Qwen2.5-7B", 2)
    assert [one.name for one in found.not_understood] == ["use_deepspeed"]


def test_options_of_a_program_of_no_tool_beside_a_file_of_deepspeed_are_not_passed_over() -> None:
    file = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}'
    found = read(f"cat > d.json <<EOF\n{file}\nEOF\ndeepspeed own.py --grad_ckpt --deepspeed --deepspeed_config d.json")
    assert [one.name for one in found.not_understood] == ["--grad_ckpt"]


def test_a_file_of_accelerate_stands_under_the_settings_that_a_program_is_given() -> None:
    launched = "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 2}\n"
    own = "model_name_or_path: gpt2\ndataset_name: x\nlearning_rate: 1.0e-4\nper_device_train_batch_size: 3\n"
    script = (
        'hostname | while read h; do echo "$h slots=2" >> hostfile; done\n'
        "accelerate launch --deepspeed_hostfile=hostfile --config_file a.yaml --num_processes 8 "
        "sft.py --config ${1:-/b/own.yaml}"
    )
    found = import_file("script", script, {"a.yaml": launched, "own.yaml": own})
    assert (found.format, found.recipe["micro_batch"], found.layout["zero_stage"]) == ("trl", 3, 2)
    assert found.layout["data"] == 8


def test_lists_of_a_command_line_are_parted_by_commas() -> None:
    found = read(f"{TITANS} --model.name llama3 --model.flavor 8B --compile.enable --compile.components=loss,model")
    assert (found.recipe["stack"]["implementation"], found.recipe["stack"]["cross_entropy"]) == ("compiled", "compiled")


def test_a_script_beside_is_followed_wherever_it_is_sourced_from() -> None:
    script = f'source ../env.sh\nif [ "$1" = convert ]; then {GPT} --bf16; else {GPT} --micro-batch-size $MBS; fi'
    found = import_file("script", script, {"env.sh": "#!/bin/bash\nexport MBS=3\n"})
    assert (found.recipe["micro_batch"], found.recipe["precision"]) == (3, "fp32")


def test_what_is_taken_to_be_unset_is_told() -> None:
    found = read(f"{GPT} --micro-batch-size ${{MBS:-2}} ${{1:-}} $@")
    assert found.assumptions[:2] == (
        "variables that the script tests and does not set are taken to be unset: MBS",
        "the script is read as started without arguments",
    )


def test_a_file_of_deepspeed_beside_the_options_of_another_tool_is_not_all_that_is_read() -> None:
    options = "--tensor-model-parallel-size 4 --num-layers 24 --hidden-size 2048 --num-attention-heads 16"
    script = (
        'cat > ds.json <<EOF\n{"train_micro_batch_size_per_gpu": 1}\nEOF\n'
        f"deepspeed finetune_own.py {options} --seq-length 2048 --deepspeed --deepspeed_config ds.json\n"
    )
    found = import_file(None, script)
    assert (found.format, found.layout["tensor"]) == ("megatron-lm", 4)
    assert found.recipe["stack"]["name"] == "deepspeed"
