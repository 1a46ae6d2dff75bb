"""The fate of each setting of a file: settings that were once misread, by name, and what a reader makes of them."""

import tomllib
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from service.answers.exports import Imported
from service.features.exports.exports import import_file, with_replicas
from service.formats.drafts import fates_of
from service.formats.frameworks import accelerate, deepspeed
from service.formats.targets import FORMATS
from service.formats.text import Entry
from service.text_bounds import Place

SETTINGS = Path(__file__).parent / "settings"

FSDP = "distributed_type: FSDP\nnum_processes: 16\nnum_machines: 2\nfsdp_config:\n"
FSDP += "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
ZERO = '{{"train_micro_batch_size_per_gpu": 4, "bf16": {{"enabled": true}}, "zero_optimization": {{"stage": 3{}}}{}}}'

GPT_YAML = """\
language_model: {{num_layers: 8, hidden_size: 256, num_attention_heads: 4, activation_func: {}}}
model_parallel: {{tensor_model_parallel_size: 2, bf16: true{}}}
vocab_size: 1000
seq_length: 64
micro_batch_size: 1
{}
"""

NEMO_YAML = """\
_target_: nemo.collections.llm.api.pretrain
model: {_target_: nemo.LlamaModel, config: {_target_: nemo.Llama3Config8B}}
data: {global_batch_size: 128, micro_batch_size: 2, seq_length: 8192}
optim: {config: {use_distributed_optimizer: true, bf16: true, use_precision_aware_optimizer: true,
  exp_avg_dtype: {_call_: false, _target_: torch.bfloat16},
  exp_avg_sq_dtype: {_call_: false, _target_: torch.bfloat16}}}
trainer:
  devices: 8
  num_nodes: 1
  plugins: {precision: bf16-mixed, fp8: hybrid, fp8_recipe: tensorwise, grad_reduce_in_fp32: false}
  strategy: {tensor_model_parallel_size: 2, ddp: {grad_reduce_in_fp32: true, overlap_grad_reduce: true}}
"""

BRIDGE_YAML = """\
model: {num_layers: 8, hidden_size: 256, num_attention_heads: 4, vocab_size: 1000, gated_linear_unit: true,
  activation_func: torch.nn.functional.silu, add_bias_linear: false, tensor_model_parallel_size: 2, bf16: true,
  seq_length: 1}
train: {micro_batch_size: 2, global_batch_size: 64, train_iters: 10}
dataset: {seq_length: 4096}
ddp: {use_distributed_optimizer: true}
optimizer: {bf16: true}
mixed_precision: {bf16: true}
"""

TITAN_8B = "--module llama3 --config llama3_8b --training.disable_cuda_graphs"

NANOTRON = "tokens: {{sequence_length: 4096}}\nmodel:\n  model_config:\n    hidden_size: 256\n{}"
ALLGATHER = "parallelism.tp_recompute_allgather"
TITAN = "[activation_checkpoint]\nmode = 'none'\n{}\n"
FLOAT8 = "[model]\nconverters = ['float8']\n"
ROWWISE = "quantize.linear.float8.recipe_name"
RECOMPUTES = "[model]\nflavor = 'debugmodel'\n[activation_checkpoint]\n"


def parts(format: str, text: str, *names: str) -> dict[str, Any]:
    """Fields of an imported file, by their paths."""
    imported = import_file(format, text)
    model = imported.model if isinstance(imported.model, Mapping) else {}
    found: dict[str, Any] = {"layout": imported.layout, "recipe": imported.recipe, "model": model}
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


KEPT = "activation_checkpointing.cpu_checkpointing"
LORA = {"name": "lora", "rank": 4, "targets": ["q_proj"], "dropout_fraction": 0.05}
TRAIN = "train.py --per_device_train_batch_size 1 --gradient_accumulation_steps 1"

NOT_UNDERSTOOD: list[tuple[str, str, str]] = [
    ("accelerate", "distributed_type: FSDP\nnum_processes: 8\n", "fsdp_config.fsdp_auto_wrap_policy"),
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
    ("megatron-lm", "--bf16 --fp32-residual-connection", "fp32-residual-connection"),
    ("megatron-lm", "--use-precision-aware-optimizer --exp-avg-dtype bf16", "exp-avg-dtype"),
    ("megatron-lm", "--enable-cuda-graph", "enable-cuda-graph"),
    ("megatron-lm", "--cuda-graph-impl local --cuda-graph-scope attn", "cuda-graph-impl"),
    ("megatron-lm", "--fine-grained-activation-offloading --offload-modules core_attn", "offload-modules"),
    ("megatron-lm", "--rampup-batch-size 16 16 5000 --seq-length 8 --global-batch-size 64", "rampup-batch-size"),
    ("megatron-lm", "--bf16 --deepspeed", "deepspeed"),
    ("megatron-lm", "--use-checkpoint-args", "use-checkpoint-args"),
    ("megatron-lm", "--hybrid-layer-pattern M*M-", "hybrid-layer-pattern"),
    ("megatron-lm", "--moe-num-experts 8", "moe-num-experts"),
    (
        "megatron-yaml",
        GPT_YAML.format("gelu, add_bias_linear: false, bias_activation_fusion: false", "", ""),
        "language_model.bias_activation_fusion",
    ),
    ("megatron-yaml", GPT_YAML.format("swiglu, apply_rope_fusion: false", "", ""), "language_model.apply_rope_fusion"),
    ("megatron-yaml", GPT_YAML.format("swiglu", ", cpu_offloading: true", ""), "model_parallel.cpu_offloading"),
    ("torchtitan-module", f"{TITAN_8B} --loss.num_chunks 4", "loss.num_chunks"),
    ("torchtitan-module", "--module llama3 --config llama3_8b", "training.disable_cuda_graphs"),
    (
        "nemo",
        "nemo llm pretrain --factory llama3_8b trainer.strategy.moe_extended_tp=true",
        "trainer.strategy.moe_extended_tp",
    ),
    ("nemo", "nemo llm finetune --factory 'llama3_8b(peft_scheme=dora)'", "peft"),
    (
        "nemo",
        "nemo llm pretrain --factory llama3_8b model.config.normalization=LayerNorm",
        "model.config.normalization",
    ),
    (
        "megatron-bridge",
        "run_recipe.py --recipe llama3_8b_pretrain_config comm_overlap.tp_comm_overlap=true",
        "comm_overlap.tp_comm_overlap",
    ),
    ("megatron-bridge", "run_recipe.py --recipe llama3_8b_pretrain_2gpu_h100_fp8cs_config", "mixed_precision"),
    (
        "verl",
        "-m verl.trainer.sft_trainer model.path=gpt2 engine.ulysses_sequence_parallel_size=1",
        "data.use_dynamic_bsz",
    ),
    ("torchtitan-module", "--module llama3 --config llama3_8b_mxfp8", "config"),
    (
        "torchtitan-module",
        f"{TITAN_8B} --activation_checkpoint.memory_budget 0.5",
        "activation_checkpoint.memory_budget",
    ),
    ("nanotron", NANOTRON.format("    moe_num_experts: 8\n"), "model.model_config.moe_num_experts"),
    ("nanotron", NANOTRON.format("    is_starcoder2_config: true\n"), "model.model_config.is_starcoder2_config"),
    ("transformers", f"{TRAIN} --use_8bit_optimizer", "use_8bit_optimizer"),
    ("transformers", f"{TRAIN} --source_max_len 16 --target_max_len 64", "source_max_len"),
    ("transformers", f"{TRAIN} --use_lora --peft_target_modules q_proj own", "peft_target_modules"),
    ("deepspeed", '{"activation_checkpointing": {"cpu_checkpointing": true}}', KEPT),
    ("nanotron", f"{NANOTRON.format('')}data_stages:\n  - name: long\n    sequence_length: 65536\n", "data_stages"),
    ("nanotron", f"{NANOTRON.format('')}parallelism: {{tp_recompute_allgather: false}}\n", ALLGATHER),
    ("torchtitan", TITAN.format("[model]\nconverters = ['quantize.grouped_mm.float8']"), "model.converters"),
    ("torchtitan", TITAN.format(f"{FLOAT8}[quantize.linear.float8]\nrecipe_name = 'rowwise'"), ROWWISE),
    ("torchtitan", f"{RECOMPUTES}mode = 'memory_budget'", "activation_checkpoint.mode"),
    ("torchtitan", RECOMPUTES, "activation_checkpoint.selective_ac_option"),
    ("torchtitan", TITAN.format("[validation]\nenable = true\nlocal_batch_size = 64"), "validation.enable"),
    ("torchtitan", TITAN.format("[fault_tolerance]\nenable = true"), "fault_tolerance.enable"),
    (
        "torchtitan",
        TITAN.format("[parallelism]\ntensor_parallel_degree = 2\ndisable_loss_parallel = true"),
        "parallelism.disable_loss_parallel",
    ),
]


@pytest.mark.parametrize(("format", "text", "name"), NOT_UNDERSTOOD)
def test_what_would_change_the_answer_is_listed_and_not_passed_over(format: str, text: str, name: str) -> None:
    assert not_understood(import_file(format, text)) == [name]


GPT = "--num-layers 8 --hidden-size 256 --num-attention-heads 4 --vocab-size 1000 --seq-length 64 --bf16"

MISREAD: list[tuple[str, str, dict[str, Any]]] = [
    ("megatron-lm", f"{GPT} --use-torch-fsdp2", {"layout.zero_stage": 3, "layout.reshard_after_forward": True}),
    (
        "megatron-lm",
        f"{GPT} --use-torch-fsdp2 --torch-fsdp2-no-reshard-after-forward",
        {"layout.zero_stage": 3, "layout.reshard_after_forward": False},
    ),
    ("megatron-lm", f"{GPT} --use-distributed-optimizer", {"layout.zero_stage": 1}),
    ("megatron-lm", f"{GPT} --swiglu", {"model.intermediate_size": 640}),
    ("megatron-lm", GPT, {"model.intermediate_size": 1024}),
    ("megatron-lm", f"{GPT} --quick-geglu", {"model.gated_mlp": True}),
    ("megatron-lm", f"{GPT} --kv-lora-rank 64", {"model.kv_lora_rank": None}),
    ("megatron-lm", f"{GPT} --multi-latent-attention", {"model.kv_lora_rank": 32, "model.v_head_dim": 128}),
    ("megatron-lm", f"{GPT} --padded-vocab-size 1024", {"model.vocab_size": 1024, "recipe.vocabulary_multiple": 1}),
    (
        "megatron-lm",
        f"{GPT} --pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 1 "
        "--decoder-last-pipeline-num-layers 1",
        {"layout.stage_layers": [1, 3, 3, 1]},
    ),
    (
        "megatron-lm",
        f"{GPT} --rampup-batch-size 16 16 5000 --global-batch-size 64 --train-samples 90000",
        {
            "recipe.stages": [
                {"until_tokens": 320000.0, "global_batch": 16, "final_global_batch": 64, "batch_increment": 16}
            ]
        },
    ),
    (
        "megatron-lm",
        f"{GPT} --moe-layer-recompute",
        {"recipe.recompute": {"granularity": "selective", "modules": ["core_attn", "moe"]}},
    ),
    ("megatron-lm", f"{GPT} --optimizer sgd --sgd-momentum 0", {"recipe.optimizer": "sgd"}),
    ("torchtitan", TITAN.format(FLOAT8), {"recipe.precision": "fp8-tensorwise"}),
    ("torchtitan", TITAN.format("[model]\nconverters = ['quantize.linear.mx']"), {"recipe.precision": "mxfp8"}),
    (
        "torchtitan",
        TITAN.format("[parallelism]\ndata_parallel_shard_degree = 1\ntensor_parallel_degree = 2"),
        {"layout.zero_stage": 0, "recipe.precision": "fp32"},
    ),
    (
        "torchtitan",
        "[model]\nname = 'llama3'\nflavor = '8B'\n",
        {"recipe.recompute": {"granularity": "full", "method": "block", "layers": 16}},
    ),
    ("torchtitan", "[activation_checkpoint]\nselective_ac_option = '1'\n", {"recipe.recompute": "full"}),
    ("nanotron", NANOTRON.format("    intermediate_size: 512\n"), {"recipe.sequence_length": 4096}),
    ("deepspeed", '{"train_batch_size": 8, "bfloat16": {"enabled": true}}', {"recipe.precision": "bf16-mixed"}),
    ("accelerate", f"{FSDP}mixed_precision: no\n", {"recipe.precision": "fp32"}),
    (
        "torchtitan",
        TITAN.format("[training]\nbatch_size = 2\ntensor_parallel_degree = 4\ncompile = true"),
        {"recipe.micro_batch": 2, "layout.tensor": 4},
    ),
    ("megatron-lm", f"{GPT} --moe-expert-capacity-factor -1", {"recipe.expert_capacity_factor": None}),
    (
        "torchtitan-module",
        "-m torchtitan.train --module torchtitan.models.llama3 --config llama3_70b "
        "--parallelism.no-enable-sequence-parallel --training.max-context-length 4096 "
        "--training.num_tokens_per_microbatch_per_dp_rank 8192 --compile.enable",
        {
            "layout.tensor": 8,
            "layout.sequence_parallel": False,
            "recipe.sequence_length": 4096,
            "recipe.micro_batch": 2,
            "recipe.recompute": "full",
        },
    ),
    (
        "torchtitan",
        "[model]\nname = 'deepseek_v3'\nflavor = '671B'\n[activation_checkpoint]\nmode = 'full'",
        {"model.num_nextn_predict_layers": None, "model.num_experts": 256},
    ),
    (
        "torchtitan",
        "[model]\nname = 'llama4'\nflavor = '17bx16e'\n[activation_checkpoint]\nmode = 'full'",
        {"model.layer_types": None, "model.num_hidden_layers": 48},
    ),
    (
        "nemo",
        NEMO_YAML,
        {
            "layout.tensor": 2,
            "layout.data": 4,
            "layout.zero_stage": 1,
            "recipe.micro_batch": 2,
            "recipe.gradient_dtype": "bf16",
            "recipe.precision": "fp8-tensorwise",
            "recipe.moment_dtype": "bf16",
        },
    ),
    (
        "nemo",
        "nemo llm pretrain --factory llama3_70b trainer.strategy.sequence_parallel=false",
        {"layout.sequence_parallel": False, "layout.tensor": 4},
    ),
    ("nemo", "nemo llm pretrain --factory llama3_8b trainer.strategy.fsdp=megatron", {"layout.zero_stage": 3}),
    (
        "nemo",
        "nemo llm finetune --factory 'nemotron4_15b(peft_scheme=lora)'",
        {
            "recipe.method": {
                "name": "lora",
                "rank": 32,
                "targets": ["q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj"],
                "joint": ["q_proj", "k_proj", "v_proj"],
            }
        },
    ),
    (
        "megatron-bridge",
        BRIDGE_YAML,
        {
            "layout.tensor": 2,
            "layout.zero_stage": 1,
            "recipe.micro_batch": 2,
            "recipe.sequence_length": 4096,
            "model.num_hidden_layers": 8,
            "model.gated_mlp": True,
            "model.mlp_bias": False,
        },
    ),
    (
        "megatron-bridge",
        "run_recipe.py --recipe llama3_8b_pretrain_config -tp 2 model.tensor_model_parallel_size=4",
        {"layout.tensor": 4},
    ),
    (
        "verl",
        "-m verl.trainer.fsdp_sft_trainer model.partial_pretrain=gpt2 data.train_batch_size=64 "
        "trainer.n_gpus_per_node=8 model.fsdp_config.cpu_offload=true model.fsdp_config.offload_params=true",
        {"recipe.global_batch": 64, "layout.data": 8, "layout.zero_stage": 3, "layout.offload": "model"},
    ),
    (
        "megatron-bridge",
        "run_recipe.py --recipe llama3_8b_pretrain_config peft=lora peft.dim=4",
        {
            "recipe.method": {
                "name": "lora",
                "rank": 4,
                "targets": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
                "joint": ["q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"],
            }
        },
    ),
    ("megatron-lm", f"{GPT} --moe-ffn-hidden-size 64", {"model.moe_intermediate_size": None}),
    (
        "megatron-yaml",
        GPT_YAML.format("swiglu, add_bias_linear: false, bias_activation_fusion: false", "", "swiglu: false"),
        {"model.gated_mlp": True, "model.intermediate_size": 640, "model.mlp_bias": False, "layout.tensor": 2},
    ),
    (
        "megatron-yaml",
        GPT_YAML.format(
            "gelu, add_bias_linear: false, gated_linear_unit: true, num_query_groups: 2",
            "",
            "grad_reduce_in_bf16: true",
        ),
        {
            "model.gated_mlp": True,
            "model.intermediate_size": 1024,
            "model.num_key_value_heads": 2,
            "recipe.gradient_dtype": "fp32",
        },
    ),
    (
        "megatron-yaml",
        GPT_YAML.format(
            "swiglu, num_moe_experts: 8, moe_layer_freq: [0, 1, 1, 1, 1, 1, 1, 1], window_size: [4095, 0], fp8: hybrid",
            ", sequence_parallel: true, expert_model_parallel_size: 4",
            "overlap_grad_reduce: false",
        ),
        {
            "model.num_experts": 8,
            "model.mlp_layer_types": ["dense"] + ["sparse"] * 7,
            "model.sliding_window": 4096,
            "recipe.precision": "fp8-tensorwise",
            "layout.expert": 4,
        },
    ),
    ("transformers", f"{TRAIN} --use_peft --peft_lora_r 4 --peft_target_modules q_proj", {"recipe.method": LORA}),
    ("llama-factory", f"{TRAIN} --stage sft --finetuning_type full --flash_attn", {"recipe.attention": "flash"}),
    (
        "deepspeed",
        '{"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}}',
        {"layout.offload": "none"},
    ),
    (
        "llama-factory",
        "stage: sft\nfinetuning_type: lora\nquantization_bit: 4\nquantization_method: bitsandbytes\n",
        {"recipe.method": {"name": "qlora", "rank": 8, "targets": ["all-linear"], "quantization": "nf4-double"}},
    ),
]


def test_what_files_under_a_script_set_and_others_decide_is_listed() -> None:
    file = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 3\n  zero_optimization: {stage: 2}\n"
    found = import_file("script", f"accelerate launch --config_file a.yaml {TRAIN} --bf16", {"a.yaml": file})
    assert (found.layout["zero_stage"], found.recipe["precision"]) == (3, "bf16-mixed")
    assert not_understood(found) == ["accelerate.deepspeed_config.zero_optimization.stage"]


def test_what_is_not_understood_of_a_file_that_accelerate_names_is_listed() -> None:
    file = "distributed_type: DEEPSPEED\ndeepspeed_config: {deepspeed_config_file: d.json}\n"
    found = import_file("accelerate", file, {"d.json": '{"activation_checkpointing": {"cpu_checkpointing": true}}'})
    assert [one.name[-20:] for one in found.not_understood] == [KEPT[-21:-1]]


def test_what_only_a_script_decides_is_left_open() -> None:
    found = import_file("accelerate", "distributed_type: MULTI_GPU\nnum_processes: 2\n")
    assert "precision" not in found.recipe
    assert "recompute and precision are the script's" in found.assumptions[-1]
    sft = "torchrun -m verl.trainer.fsdp_sft_trainer data.micro_batch_size=8"
    assert any("micro_batch_size_per_gpu is 4" in one for one in import_file("verl", sft).assumptions)
    assert any("gradient_checkpointing: as" in one for one in import_file("transformers", TRAIN).assumptions)


@pytest.mark.parametrize(("format", "text", "expected"), MISREAD)
def test_what_was_misread_is_read(format: str, text: str, expected: dict[str, Any]) -> None:
    assert parts(format, text, *expected) == expected
    assert not_understood(import_file(format, text)) == []


REPLICAS: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    (
        "deepspeed",
        '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8}',
        {"global_batch": 256, "micro_batch": 4},
        {},
    ),
    ("deepspeed", '{"train_batch_size": 64}', {"global_batch": 64, "micro_batch": 8}, {}),
    (
        "deepspeed",
        '{"train_batch_size": 64, "gradient_accumulation_steps": 4}',
        {"global_batch": 64, "micro_batch": 2},
        {},
    ),
    (
        "megatron-lm",
        f"{GPT} --micro-batch-size 2 --train-iters 10 --tensor-model-parallel-size 2 --use-distributed-optimizer "
        "--num-distributed-optimizer-instances 2",
        {"global_batch": 8, "training_tokens": 5120.0},
        {"shard_group": 2},
    ),
    (
        "torchtitan",
        "[training]\nsteps = 10\nseq_len = 1024\nlocal_batch_size = 2\n[parallelism]\n"
        "data_parallel_replicate_degree = 2\n",
        {"global_batch": 16, "training_tokens": 163840.0},
        {"shard_group": 4},
    ),
]


@pytest.mark.parametrize(("format", "text", "recipe", "layout"), REPLICAS)
def test_steps_without_a_batch_count_once_the_gpus_are_known(
    format: str, text: str, recipe: dict[str, Any], layout: dict[str, Any]
) -> None:
    imported = import_file(format, text)
    assert recipe.keys() - imported.recipe.keys()
    found, groups = with_replicas(imported, imported.recipe, imported.layout, 8)
    assert {name: found.get(name) for name in recipe} == recipe
    assert {name: groups.get(name) for name in layout} == layout


@pytest.mark.parametrize(
    ("recipe", "gpus"), [({}, None), ({}, "8"), ({}, 0), ({"micro_batch": "4"}, 8), ({"micro_batch": 10**400}, 8)]
)
def test_counts_that_are_wrong_are_left_to_be_refused(recipe: dict[str, Any], gpus: Any) -> None:
    imported = import_file("deepspeed", '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8}')
    assert with_replicas(imported, recipe, {}, gpus) == (recipe, {})


def listed_settings(tool: str) -> dict[str, Any]:
    """The list of a tool's settings, with its source; `over` is the tool with more settings whose fates they have."""
    return tomllib.loads((SETTINGS / f"{tool}.toml").read_text(encoding="utf-8"))


def settings_of(tool: str) -> list[str]:
    """Every setting of a tool, from its source."""
    return [name for group in listed_settings(tool)["settings"].values() for name in group]


@pytest.mark.parametrize("tool", [path.stem for path in sorted(SETTINGS.glob("*.toml"))])
def test_every_setting_of_a_tool_has_a_fate(tool: str) -> None:
    fates, names = FORMATS[tool].fates, settings_of(tool)
    found = {name: fates.of(Entry(name, "a value of no setting", Place(1, 1))) for name in names}
    assert [
        name for name, one in found.items() if one.fate == "unknown" or one.why.startswith("no known release")
    ] == []
    listed = {*fates.types, *fates.without_effect, *fates.not_understood}
    over = FORMATS[listed_settings(tool)["over"]].fates if "over" in listed_settings(tool) else None
    listed -= {*over.types, *over.without_effect, *over.not_understood} if over else set()
    today = {fates.today(name) for name in names}
    lacking = {name for name in listed if not any(fnmatchcase(setting, name) for setting in today)}
    assert lacking == set()


def test_every_list_of_settings_names_its_source_and_its_day() -> None:
    lists = [tomllib.loads(path.read_text(encoding="utf-8")) for path in SETTINGS.glob("*.toml")]
    assert [one for one in lists if not one["source"] or not one["date"]] == []


def test_a_name_about_memory_or_time_is_never_passed_over() -> None:
    names = ("fsdp_new_sharding", "recompute-everything", "moe_num_experts", "int8_weights", "context_parallel_ways")
    fates = {one.fates.of(Entry(name, True, Place(1, 1))).fate for one in FORMATS.values() for name in names}
    assert fates == {"not_understood"}


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
    assert fate("no_such_setting", 1) == "unknown"
    assert fate("no_such_sharding", 1) == "not_understood"
    assert fate("no_such_sharding", None) == "unknown"


def test_a_table_that_gives_a_setting_two_fates_does_not_load() -> None:
    table = {"read": {"text": ["a"]}, "without_effect": {"it logs": ["a"]}, "not_understood": {}}
    with pytest.raises(ValueError, match="settings with two fates: a"):
        fates_of(accelerate.RULES, table)
