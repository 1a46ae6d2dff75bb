"""Frameworks of published tables: the stack that represents each, and its defaults where a row leaves a cell open."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from service.calibration.tables import MeasuredRow, NotExpressible

GPT_2: Mapping[str, Any] = {
    "normalization": "layernorm", "attention_bias": True, "attention_out_bias": True, "mlp_bias": True,
}  # fmt: skip
"""Fields of models of GPT-2's kind."""


EVERY_MATRIX = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""The matrices of a layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """A framework as questions express it."""

    name: str
    """Regular expression for the start of the framework's cell."""
    stack: Mapping[str, Any]
    """The stack that represents it."""
    model: Mapping[str, Any] = field(default_factory=dict)
    """Fields of its models."""
    recipe: Mapping[str, Any] = field(default_factory=dict)
    """Its default recipe."""
    precisions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Further defaults by precision: regular expression for the start of the recipe's name."""
    families: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Defaults of its recipes by model family: regular expression for the start of the model's name."""
    adapters: tuple[str, ...] = ()
    """Matrices that its scripts give adapters; those of the stack if empty."""
    learned_positions: bool = False
    """Its models have a position table as long as the sequence."""
    zero_stages: Mapping[str, int] = field(default_factory=dict)
    """Default ZeRO stage by kind of training."""
    recompute: str | None = None
    """Default recompute."""
    recipe_recomputes: Mapping[str, Any] = field(default_factory=dict)
    """Recompute of its own recipes, for rows that refer to them, by the start of the model's name."""
    models: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Model fields that its recipes add to the columns, by the start of the model's name."""
    last_takes_remainder: bool = False
    """For layers that do not divide evenly into chunks: embedding and loss count as layers if that makes them even;
    else every chunk but the last is full."""
    overlaps_experts_since: str | None = None
    """Release from which its recipes overlap expert communication on Blackwell; all of them use CUDA graphs."""
    predicts_memory: bool = True
    """The stack represents its memory too, not only its compute and communication."""
    why: str
    """Reason for this choice of stack."""


BEFORE_MEGATRON_CORE: Mapping[str, Any] = {
    "stack": {"name": "megatron-core", "implementation": "local"},
    "model": GPT_2,
    "recipe": {"dropout_fraction": 0.1},
    "precisions": {"fp16": {"gradient_dtype": "fp16"}},
    "learned_positions": True,
}
"""Megatron-LM before Megatron-Core: its own layers; fp16 gradients, which no option turns to fp32."""

FRAMEWORKS = (
    Framework(
        name=r"Megatron-DeepSpeed|Megatron \+ DeepSpeed",
        stack={"name": "deepspeed", "implementation": "local"},
        model=GPT_2,
        recipe={"attention": "eager", "dropout_fraction": 0.1},
        precisions={"fp16": {"gradient_dtype": "fp16"}},
        learned_positions=True,
        why="DeepSpeed's pipeline, ZeRO-1 and fp16 and bf16 optimizers around Megatron's own layers",
    ),
    Framework(
        name=r"Megatron-LM \(Megatron-Core\)|Megatron-Core",
        stack={"name": "megatron-core"},
        why="the stack itself",
    ),
    Framework(name=r"Megatron-LM", **BEFORE_MEGATRON_CORE, why="Megatron-LM's own layers of 2021 and 2022"),
    Framework(
        name=r"OneFlow",
        **BEFORE_MEGATRON_CORE,
        predicts_memory=False,
        why="OneFlow-GPT runs the same layers and the same tensor and pipeline parallelism as Megatron-LM of its time, "
        "in a compiler that plans memory its own way",
    ),
    Framework(
        name=r"Megatron-Bridge|NeMo",
        stack={"name": "megatron-core", "cross_entropy": "transformer-engine"},
        recipe={"gradient_dtype": "bf16"},
        precisions={"fp8|mxfp8": {"fp8_weights": True}},
        families={"moonlight|deepseek": {"moment_dtype": "bf16"}},
        recipe_recomputes={"deepseek": {"granularity": "selective", "modules": ["mla_up_proj"]}, "": "none"},
        models={"deepseek-v3": {"num_nextn_predict_layers": 1}},
        last_takes_remainder=True,
        overlaps_experts_since="26.6",
        why="perf_recipes of NVIDIA-NeMo/Megatron-Bridge@067f987: bf16 gradients, fp8 weights, the engine's own loss; "
        "its scripts/performance/configs@0fa501a and @0426418: recompute, pp_layout; README, news of June 2026: NeMo "
        "26.06 with HybridEP and overlap of all-to-all on Blackwell; scripts/performance/configs@0fa501a: graphs",
    ),
    Framework(
        name=r"InternEvo",
        stack={"name": "deepspeed", "fused_update": False},
        recipe={"gradient_dtype": "bf16"},
        why="bf16 weights and gradients beside fp32 copies of both, spread by ZeRO-1 or sharded whole, in a pipeline, "
        "and an optimizer of single operations: DeepSpeed's arrangement but for the last",
    ),
    Framework(name=r"torchtitan", stack={"name": "torchtitan"}, why="the stack itself"),
    Framework(
        name=r"PyTorch FSDP2",
        stack={"name": "torchtitan", "implementation": "eager"},
        recipe={"precision": "bf16"},
        why="FSDP2 around a Hugging Face model in bf16",
    ),
    Framework(name=r"nanotron", stack={"name": "nanotron"}, why="the stack itself"),
    Framework(
        name=r"Qwen finetune.py \(HF Trainer, DeepSpeed\)",
        stack={"name": "deepspeed"},
        zero_stages={"full finetune": 3, "lora": 2},
        adapters=EVERY_MATRIX,
        why="finetune_ds.sh and finetune_lora_ds.sh of QwenLM/Qwen@2df8e8a name ZeRO 3 and 2",
    ),
    Framework(
        name=r"Qwen finetune.py",
        stack={"name": "transformers"},
        adapters=EVERY_MATRIX,
        why="Hugging Face's Trainer; finetune.py of QwenLM/Qwen@2df8e8a gives adapters to c_attn, c_proj, w1 and w2",
    ),
    Framework(
        name=r".*(HF Trainer, DeepSpeed|DeepSpeed|deepspeed)",
        stack={"name": "deepspeed"},
        why="DeepSpeed around a Hugging Face model",
    ),
    Framework(
        name=r"litgpt|lit-gpt",
        stack={"name": "transformers"},
        recompute="none",
        why="PyTorch layers under Lightning Fabric; recompute only where the row says so",
    ),
    Framework(
        name=r"torchtune",
        stack={"name": "torchtitan"},
        recipe={"precision": "bf16"},
        adapters=("q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
        why="torchtitan's kind of layers, FSDP2 and compiler, in bf16 without a master copy",
    ),
    Framework(
        name=r".*(HF Trainer|transformers|Accelerate|accelerate|PEFT|peft)",
        stack={"name": "transformers"},
        why="the stack itself",
    ),
    Framework(
        name=r"ColossalAI",
        stack={"name": "deepspeed"},
        why="ZeRO around bf16 weights with fp32 master weights: DeepSpeed's arrangement",
    ),
    Framework(
        name=r"llm-foundry",
        stack={"name": "fsdp1", "cross_entropy": "flash-attention", "fused_update": True},
        recipe={"attention": "flash-1"},
        why="PyTorch's sharding; scripts/train/benchmarking/submit_benchmarks.py of mosaicml/llm-foundry@b2a43a1 and "
        "@5e85bd6, which gave its tables, runs the Triton kernel of FlashAttention by default; models/mpt: "
        "loss_fn fused_crossentropy; its optimizers update one tensor after another, without copies of them all",
    ),
    Framework(name=r".*FSDP", stack={"name": "fsdp1"}, why="PyTorch's sharding around modules of its own"),
)
"""Frameworks that questions can express; the first match applies."""


def framework_of(row: MeasuredRow) -> Framework:
    """The framework of a row."""
    cell = row.text("framework")
    for known in FRAMEWORKS:
        if re.match(known.name, cell) and (known.predicts_memory or row.form != "memory"):
            return known
    raise NotExpressible("framework: no stack stands for it")


BYTES_PER_S_OF_GBIT = 1e9 / 8

RATES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], int], float]], ...] = (
    (re.compile(r"(\d+)\s?Gb/s per GPU"), lambda cell, _: float(cell[1])),
    (re.compile(r"(\d+)x\s?(\d+)\s?Gb/s"), lambda cell, node: float(cell[1]) * float(cell[2]) / node),
    (re.compile(r"(\d+)x HDR (?:IB )?(\d+)\s?Gb/s"), lambda cell, node: float(cell[1]) * float(cell[2]) / node),
    (re.compile(r"(\d+)\s?Gb(?:ps|/s)\s?(?:per |/)node"), lambda cell, node: float(cell[1]) / node),
    (re.compile(r"8x HDR|HDR IB \(Selene\)"), lambda _, node: 8 * 200 / node),
)
"""Gbit/s of one GPU by what the words say, the first that fits; nodes share what they have among their GPUs. Selene's
nodes have eight HDR adapters of 200 Gbit/s (Narayanan et al. 2021, arXiv:2104.04473, section 5)."""


def network_bytes_per_s(row: MeasuredRow) -> float | None:
    """Network rate of one GPU, one direction, as a row's words describe it.

    >>> cell = "NVLink3; Omni-Path 4x100Gb/s per node"
    >>> network_bytes_per_s(MeasuredRow(1, {"interconnect": cell, "gpus_per_node": "8"})) / 1e9
    6.25
    >>> network_bytes_per_s(MeasuredRow(1, {"interconnect": "NVLink5; IB"})) is None
    True
    """
    words, node = row.text("interconnect"), row.count("gpus_per_node", 8)
    for pattern, gbit_per_s in RATES:
        if cell := pattern.search(words):
            return gbit_per_s(cell, node) * BYTES_PER_S_OF_GBIT
    return None
