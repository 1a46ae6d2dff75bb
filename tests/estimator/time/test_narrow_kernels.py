"""Kernels that work in fp8 beyond matrix products: attention, and experts fused with their activation."""

from typing import Any

import pytest

from service.catalogue import shipped_catalogue
from service.estimator import estimate
from service.validation.questions import read_question

MODEL = {
    "vocab_size": 32000, "hidden_size": 2048, "num_hidden_layers": 8, "num_attention_heads": 16,
    "intermediate_size": 8192, "num_experts": 16, "num_experts_per_tok": 2, "moe_intermediate_size": 1024,
}  # fmt: skip


def parts(gpu: str = "b200-sxm-180gb", precision: str = "mxfp8", **stack: Any) -> dict[str, float]:
    """Seconds of each part of a step of a small mixture of experts."""
    recipe = {"sequence_length": 8192, "global_batch": 64, "precision": precision, "attention": "cudnn"}
    body = {
        "model": MODEL,
        "recipe": {**recipe, "stack": {"name": "megatron-core", **stack}},
        "layout": {"expert": 8},
        "cluster": {"gpu": gpu, "gpus": 8},
    }
    answer = estimate(read_question(body, shipped_catalogue()).question)
    return {str(part.kind): part.seconds for part in answer.step.parts}


@pytest.mark.parametrize(
    ("gpu", "precision", "fewest", "most"),
    [
        ("b200-sxm-180gb", "mxfp8", 1.06, 1.22),
        ("b200-sxm-180gb", "fp8-tensorwise", 1.24, 1.31),
        ("h100-sxm5-80gb", "fp8-tensorwise", 0.91, 1.49),
    ],
)
def test_attention_in_fp8_is_as_fast_as_measured(gpu: str, precision: str, fewest: float, most: float) -> None:
    plain, narrow = (parts(gpu, precision, fp8_attention=is_on) for is_on in (False, True))
    assert fewest <= plain["attention"] / narrow["attention"] <= most
    assert plain["gemm"] == narrow["gemm"]


def test_fused_experts_stream_no_activation_and_cast_less() -> None:
    plain, fused = (parts(fused_experts=is_on) for is_on in (False, True))
    assert fused["elementwise"] < plain["elementwise"]
    assert 0 < fused["cast"] < plain["cast"]
    assert fused["gemm"] == plain["gemm"]
