"""How was a published run trained, where its row does not say? Decided once for each lab's runs, with the reason."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from service.calibration.tables import MeasuredRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """What a lab's runs have in common."""

    name: str
    """How the model's cell begins, as a regular expression."""
    stack: Mapping[str, Any]
    """The stack that stands for the lab's software."""
    recipe: Mapping[str, Any] = field(default_factory=dict)
    """What its recipes do."""
    layout: Mapping[str, Any] = field(default_factory=dict)
    """What its layouts do beside the degrees that rows tell."""
    why: str
    """Why this is believed."""


MEGATRON: Mapping[str, Any] = {"name": "megatron-core"}
LOCAL_DEEPSPEED: Mapping[str, Any] = {"name": "deepspeed", "implementation": "local"}

DEEPSEEK_STAGES = ({"until_tokens": 469e9, "global_batch": 4096, "final_global_batch": 15360},)
"""DeepSeek-V3's batch, from the least on that fills both directions of DualPipe on 128 replicas; it began with 3,072.
Source: arXiv:2412.19437, section 4.2."""

HABITS = (
    Habits(
        name=r"DeepSeek-V3",
        stack=MEGATRON,
        recipe={
            "precision": "fp8-deepseek",
            "recompute": {"granularity": "selective", "modules": ["layernorm", "mla_up_proj"]},
            "moment_dtype": "bf16",
            "stages": DEEPSEEK_STAGES,
        },
        layout={"schedule": "dualpipe", "stage_layers": [4] * 15 + [1]},
        why="arXiv:2412.19437, sections 3.2, 3.3 and 4.2: DualPipe, fp8, what is computed again, the rising batch; a "
        "software of its own",
    ),
    Habits(
        name=r"Pythia|GPT-NeoX",
        stack=LOCAL_DEEPSPEED,
        recipe={"attention": "flash"},
        why="GPT-NeoX is Megatron's layers inside DeepSpeed, ZeRO-1; arXiv:2304.01373, section 2: FlashAttention",
    ),
    Habits(
        name=r"BLOOM",
        stack=LOCAL_DEEPSPEED,
        recipe={"attention": "eager", "recompute": "full"},
        layout={"embedding_in_split": True, "loss_in_split": True},
        why="Megatron-DeepSpeed, as its rows of memory; the row's rate counts recompute; 70 layers on 12 stages",
    ),
    Habits(
        name=r"BloombergGPT",
        stack={"name": "deepspeed"},
        recipe={"recompute": "full"},
        layout={"zero_stage": 3, "shard_group": 128},
        why="the row says ZeRO-3 with recompute; arXiv:2303.17564, section 3.3: four copies on 512 GPUs",
    ),
    Habits(
        name=r"Llama 3.1 405B",
        stack=MEGATRON,
        layout={"embedding_in_split": True, "loss_in_split": True},
        why="arXiv:2407.21783, section 3.3.2: the first and the last of 16 stages have a layer fewer",
    ),
    Habits(
        name=r"OPT",
        stack=MEGATRON,
        layout={"zero_stage": 3},
        why="arXiv:2205.01068, section 2.4: FSDP beside tensor parallelism",
    ),
    Habits(name=r"SmolLM3", stack={"name": "nanotron"}, why="the row names nanotron"),
    Habits(name=r"MPT", stack={"name": "fsdp1"}, why="llm-foundry, of the lab that trained it, shards by FSDP"),
    Habits(name=r"Llama2-7B replica", stack={"name": "fsdp1"}, why="fms-fsdp, as the row's source is called"),
    Habits(
        name=r"",
        stack=MEGATRON,
        why="no software is told: the one most used for training at this scale stands for it",
    ),
)
"""Every lab whose runs are asked, the last for those whose software nobody tells."""


def habits_of(row: MeasuredRow) -> Habits:
    """How the runs of a row's lab are trained.

    Args:
        row: the row

    Returns:
        the first of the table that fits
    """
    return next(habits for habits in HABITS if re.match(habits.name, row.text("model")))
