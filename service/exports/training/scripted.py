"""What does a file leave to the training script? The rules that DeepSpeed and accelerate share.

Such a file says how a script's model is spread and kept, and nothing of what the script trains.
"""

from typing import Any

from service.estimator.question import Question
from service.exports.common import COMMON, usually
from service.exports.said import NOTHING, Rule, Rules, Said, lacking, takes_only

SCRIPT = "set it in the training script"


def left_to_script(what: str) -> Rule:
    """The rule of something that only the script says.

    Args:
        what: what it is

    Returns:
        the rule
    """
    return lambda value, _: NOTHING if value is None else lacking(f"{what} is the script's, not this file's", SCRIPT)


def _padding(value: Any, question: Question) -> Said:
    return NOTHING if value == 1 else lacking("the vocabulary is padded by the script or not at all", SCRIPT)


LEFT: Rules = {
    "model": left_to_script("the model"),
    **COMMON,
    "recipe.sequence_length": left_to_script("the length of sequences"),
    "recipe.training_tokens": left_to_script("the length of the run"),
    "recipe.attention": takes_only(("flash",), "the kernel {value} is chosen by the script", SCRIPT),
    "recipe.dropout_fraction": takes_only((0.0,), "dropout is the model's", SCRIPT),
    "recipe.fp8_weights": takes_only((False,), "weights in fp8 are made by the script", SCRIPT),
    "recipe.expert_capacity_factor": takes_only((None,), "what an expert takes is the model's", SCRIPT),
    "recipe.vocabulary_multiple": _padding,
    **{
        f"recipe.stack.{name}": usually(name, "it is chosen by the script", SCRIPT)
        for name in (
            "implementation", "cross_entropy", "gradient_fusion", "fused_update", "deterministic", "grouped_experts",
            "tensor_overlap", "cuda_graphs", "expert_overlap", "dispatcher", "attention_mask",
        )
    },
    "layout.embedding_in_split": takes_only((False,), "layers are dealt by the script", SCRIPT),
    "layout.loss_in_split": takes_only((False,), "layers are dealt by the script", SCRIPT),
    "layout.virtual_pipeline": takes_only((1,), "a stage is one chunk", "set virtual_pipeline to 1"),
    "layout.virtual_group": lambda value, q: (
        NOTHING if value == q.layout.pipeline else lacking("a stage is one chunk", "leave virtual_group out")
    ),
    "layout.stage_layers": takes_only((None,), "layers are dealt by the script", SCRIPT),
}  # fmt: skip
"""Rules of what the script says."""
