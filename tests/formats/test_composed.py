"""Commands that name a file and change settings of it, and settings that name others."""

from typing import Any

import pytest

from service.errors import Refused
from service.features.exports.exports import import_file

TUNE = """\
model: {_component_: torchtune.models.llama3_1.llama3_1_8b}
tokenizer: {_component_: torchtune.models.llama3.llama3_tokenizer, max_seq_len: "${longest}"}
longest: 4096
optimizer: {_component_: torch.optim.AdamW, fused: true}
loss: {_component_: torchtune.modules.loss.LinearCrossEntropyLoss}
batch_size: 2
gradient_accumulation_steps: 4
dtype: bf16
"""

LIT = """\
checkpoint_dir: checkpoints/meta-llama/Llama-2-7b-hf
out_dir: o
devices: 4
num_nodes: 2
train: {global_batch_size: 64, micro_batch_size: 2, max_seq_length: 512, max_steps: 10}
"""

MPT = """\
variables: {longest: 2048}
max_seq_len: ${variables.longest}
model: {name: mpt_causal_lm, d_model: 768, n_heads: 12, n_layers: 12, attn_config: {alibi: true}}
train_loader: {name: text}
optimizer: {name: decoupled_lionw}
global_train_batch_size: 64
device_train_microbatch_size: 4
max_duration: 10ba
fsdp_config: {sharding_strategy: FULL_SHARD, mixed_precision: PURE}
"""

MAX = "hardware: gpu\nmodel_name: llama3-8b\nper_device_batch_size: 1\nmax_target_length: 4096\n"

CLI = """\
trainer:
  accelerator: gpu
  devices: 4
  num_nodes: 2
  precision: bf16-true
  accumulate_grad_batches: 2
  strategy: ddp
model: {class_path: mine.Model, init_args: {model_name_or_path: gpt2}}
data: {class_path: mine.Data, init_args: {batch_size: 3, max_length: 512}}
"""

CHANGED: list[tuple[str, str, dict[str, Any]]] = [
    (
        "tune run --nproc_per_node 4 full_finetune_distributed --config {} batch_size=1 longest=1024",
        TUNE,
        {"recipe.micro_batch": 1, "recipe.sequence_length": 1024, "recipe.global_batch": 16, "layout.data": 4},
    ),
    (
        "tune run --nnodes 2 --nproc_per_node 8 full_finetune_distributed --config {} tensor_parallel_dim=8",
        TUNE,
        {"layout.data": 2, "layout.tensor": 8, "layout.zero_stage": 3},
    ),
    ("tune run full_finetune_single_device --config {}", TUNE, {"layout.data": 1, "layout.zero_stage": 0}),
    ("srun --gpus 8 litgpt finetune_full --config {} --devices 2 --num_nodes 1", LIT, {"layout.data": 2}),
    (
        "python3 -m MaxText.train MaxText/configs/base.yml hardware=gpu model_name=llama3-70b per_device_batch_size=2",
        "",
        {"model": "llama-3-70b", "recipe.micro_batch": 2, "recipe.sequence_length": 2048},
    ),
    (
        "srun -N 2 tune run --nproc_per_node 4 full_finetune_distributed --config {} batch_size=1",
        TUNE,
        {"recipe.micro_batch": 1, "layout.data": 4},
    ),
    (
        "tune run lora_finetune_distributed --config {} model=torchtune.models.qwen3.lora_qwen3_8b_base "
        "model.lora_attn_modules=[q_proj,output_proj] model.lora_rank=4",
        TUNE,
        {"model": "qwen3-8b", "recipe.method": {"name": "lora", "rank": 4, "targets": ["q_proj", "o_proj"]}},
    ),
    (
        "tune run full_finetune_distributed --config {} optimizer.fused=False ~gradient_accumulation_steps",
        TUNE,
        {"recipe.stack.fused_update": False, "accumulation_steps": 1},
    ),
    (
        "tune run full_finetune_distributed --config {} ac_mode=selective ac_option=4",
        TUNE,
        {"recipe.recompute": {"granularity": "full", "method": "block", "layers": 8}},
    ),
    (
        "litgpt finetune_full --config {} --train.micro_batch_size=4 --precision bf16-true",
        LIT,
        {"recipe.micro_batch": 4, "recipe.precision": "bf16-pure", "layout.data": 8, "recipe.recompute": "full"},
    ),
    (
        "litgpt finetune lora google/gemma-7b --config {} --devices 1 --num_nodes 1 --lora_mlp=1 --quantize bnb.nf4-dq",
        LIT,
        {
            "model.tie_word_embeddings": False,
            "recipe.method.targets": ["q_proj", "v_proj", "gate_proj", "up_proj", "down_proj"],
            "recipe.method.quantization": "nf4-double",
            "layout.offload": "optimizer",
            "recipe.recompute": "none",
        },
    ),
    (
        "composer -n 8 train/train.py {} max_duration=1_000_000tok fsdp_config.sharding_strategy=SHARD_GRAD_OP",
        MPT,
        {
            "recipe.training_tokens": 1e6,
            "recipe.sequence_length": 2048,
            "recipe.optimizer": "lion",
            "layout.reshard_after_forward": False,
            "model.position_embedding_rows": 0,
            "model.mlp_bias": True,
        },
    ),
    (
        "composer train/train.py {} max_duration=640sp model.no_bias=true fsdp_config.data_parallel_shard_degree=4 "
        "fsdp_config.data_parallel_replicate_degree=2 fsdp_config.sharding_strategy=HYBRID_SHARD",
        MPT,
        {
            "recipe.training_tokens": 640.0 * 2048,
            "model.normalization": "layernorm_no_bias",
            "layout.data": 8,
            "layout.shard_group": 4,
        },
    ),
    (
        "python3 -m MaxText.train configs/{} ici_tensor_parallelism=2 dcn_data_parallelism=2 ici_fsdp_parallelism=4",
        MAX,
        {
            "layout.tensor": 2,
            "layout.data": 8,
            "layout.shard_group": 4,
            "recipe.micro_batch": 2,
            "recipe.global_batch": 16,
        },
    ),
    (
        "python3 -m MaxText.train configs/{} ici_data_parallelism=4 dcn_data_parallelism=1 weight_dtype=bfloat16",
        MAX,
        {"shard_groups": 4, "layout.zero_stage": 3, "recipe.precision": "bf16-pure"},
    ),
    (
        "python3 -m MaxText.train configs/{} ici_fsdp_parallelism=1 dcn_data_parallelism=8 dtype=float32 "
        "optimizer_memory_host_offload=True gradient_accumulation_steps=2 dropout_rate=0.1 steps=7",
        MAX,
        {
            "layout.zero_stage": 0,
            "layout.offload": "optimizer",
            "recipe.precision": "fp32",
            "recipe.global_batch": 16,
            "recipe.dropout_fraction": 0.1,
            "training_steps": 7,
        },
    ),
    (
        "python3 -m MaxText.train configs/{} ici_context_parallelism=2 ici_expert_parallelism=2 ici_fsdp_parallelism=2 "
        "context_parallel_strategy=ring model_name=default num_experts=8 base_moe_mlp_dim=512",
        MAX,
        {
            "layout.context_method": "ring",
            "layout.expert": 2,
            "layout.shard_group": 8,
            "model.num_experts": 8,
            "model.moe_intermediate_size": 512,
        },
    ),
    (
        "python main.py fit --config {} --trainer.strategy deepspeed_stage_3_offload --trainer.max_steps 9",
        CLI,
        {
            "model": "gpt2",
            "layout.data": 8,
            "layout.zero_stage": 3,
            "layout.offload": "model",
            "recipe.precision": "bf16-mixed",
            "recipe.global_batch": 48,
            "recipe.stack.reduce_bucket_numbers": 200_000_000,
            "training_steps": 9,
        },
    ),
    (
        "python main.py fit --config {} --trainer.strategy=lightning.pytorch.strategies.FSDPStrategy "
        "--trainer.strategy.init_args.sharding_strategy _HYBRID_SHARD_ZERO2 --optimizer.class_path torch.optim.SGD "
        "--trainer.strategy.init_args.activation_checkpointing_policy [mine.Block]",
        CLI,
        {
            "layout.zero_stage": 3,
            "layout.shard_group": 4,
            "layout.reshard_after_forward": False,
            "recipe.precision": "bf16-pure",
            "recipe.recompute": "full",
            "recipe.optimizer": "sgd",
        },
    ),
    (
        "litgpt pretrain pythia-160m --config {} --devices 8 --train.max_tokens 3e12",
        LIT.replace("checkpoint_dir", "initial_checkpoint_dir"),
        {
            "model": "pythia-160m",
            "layout.data": 16,
            "layout.shard_group": 8,
            "recipe.training_tokens": 3e12,
            "recipe.sequence_length": 512,
        },
    ),
]


def value_at(found: Any, path: str) -> Any:
    for part in path.split("."):
        found = found.get(part) if isinstance(found, dict) else getattr(found, part)
    return found


@pytest.mark.parametrize(("command", "text", "expected"), CHANGED)
def test_a_command_changes_settings_of_the_file_that_it_names(
    command: str, text: str, expected: dict[str, Any]
) -> None:
    found = import_file(None, command.format("configs/c.yaml"), {"c.yaml": text} if text else {})
    assert {path: value_at(found, path) for path in expected} == expected


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("tune run full_finetune_distributed --config llama3_1/8B_full", "missing_file"),
        ("litgpt finetune_adapter_v2 --checkpoint_dir c --train.global_batch_size 8 --out_dir o", "not_estimated"),
        ("litgpt pretrain pythia-160m --train.max_tokens many", "not_a_number"),
        ("litgpt finetune_lora c --devices some", "not_a_whole_number"),
        ("litgpt finetune_full c --optimizer mine.Adagrad", "not_a_choice"),
        ("composer train/train.py train_loader.name=text max_duration=1ep", "missing_file"),
        ("composer train/train.py model.name=mpt_causal_lm max_duration=soon", "not_a_duration"),
        ("composer train/train.py model.name=mpt_causal_lm device_train_microbatch_size=all", "not_a_whole_number"),
        (
            "composer train/train.py model.name=mpt_causal_lm max_duration=1ep fsdp_config.sharding_strategy=7",
            "not_a_choice",
        ),
        (
            "composer train/train.py model.name=hf_causal_lm max_duration=1ep model.peft_config.peft_type=IA3",
            "not_estimated",
        ),
        ("python3 -m MaxText.train configs/gpu/models/llama2_7b.yml", "missing_file"),
        ("python3 -m MaxText.train use_grpo=True", "not_estimated"),
        ("python3 -m MaxText.train hardware=cpu", "not_a_gpu"),
        ("python main.py fit --trainer.accelerator=tpu --trainer.devices=4", "not_a_gpu"),
        ("python main.py fit --trainer.devices=4 --trainer.strategy=colossalai", "not_a_choice"),
        ("python main.py fit --trainer.devices=4 --optimizer.class_path=mine.Best", "not_a_choice"),
        ("tune run lora_dpo_distributed --config c.yaml", "not_estimated"),
        ("tune run generate --config c.yaml", "no_training"),
        ("python tools/generate_samples_gpt.py --num-layers 24 --hidden-size 2048 --micro-batch-size 4", "no_training"),
        ("python tasks/main.py --task MNLI --num-layers 24 --hidden-size 1024 --seq-length 512", "no_training"),
        ("python eval_clm.py --model_name_or_path gpt2 --per_device_train_batch_size 1", "no_training"),
        ("tune run full_finetune_distributed --config c.yaml model=torchtune.models.flux.flux_1", "not_estimated"),
    ],
)
def test_a_command_without_its_file_or_of_another_training_is_refused(command: str, code: str) -> None:
    with pytest.raises(Refused) as caught:
        import_file(None, command, {"c.yaml": TUNE} if "c.yaml" in command else {})
    assert [problem.code for problem in caught.value.problems] == [code]


@pytest.mark.parametrize(
    "setting",
    [
        "ici_pipeline_parallelism: 2",
        "ici_tensor_parallelism: -1",
        "remat_policy: minimal",
        "per_device_batch_size: 0.5",
        "parameter_memory_host_offload: true",
        "base_config: other.yml",
        "decoder_block: gemma",
        "quantization: intmp",
    ],
)
def test_what_maxtext_does_in_its_own_way_is_listed(setting: str) -> None:
    found = import_file("maxtext", f"hardware: gpu\n{setting}\n")
    assert [one.name for one in found.not_understood] == ["hardware", setting.partition(":")[0]]


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ("precision: transformer-engine", ["trainer.precision"]),
        ("strategy: fsdp", ["trainer.strategy.init_args.auto_wrap_policy"]),
        (
            "devices: auto, strategy: {class_path: DeepSpeedStrategy, init_args: {offload_optimizer: true, "
            "offload_optimizer_device: nvme}}",
            ["trainer.strategy.init_args.offload_optimizer_device"],
        ),
    ],
)
def test_what_lightning_leaves_to_code_or_a_disk_is_listed(settings: str, names: list[str]) -> None:
    found = import_file("lightning", f"trainer: {{accelerator: gpu, {settings}}}\n")
    assert [one.name for one in found.not_understood] == names


def test_a_model_of_sizes_is_read_and_one_that_is_not_known_is_left_open() -> None:
    sizes = "{_component_: torchtune.models.llama2.llama2, vocab_size: 1000, num_layers: 4, num_heads: 4, "
    text = TUNE.replace(
        "{_component_: torchtune.models.llama3_1.llama3_1_8b}", sizes + "num_kv_heads: 2, embed_dim: 96}"
    )
    model = import_file("torchtune", text).model
    assert isinstance(model, dict)
    assert (model["hidden_size"], model["intermediate_size"], model["tie_word_embeddings"]) == (96, 256, False)
    own = import_file("torchtune", TUNE.replace("torchtune.models.llama3_1.llama3_1_8b", "mine.model"))
    assert own.model is None
    assert any("give model" in one for one in own.assumptions)
