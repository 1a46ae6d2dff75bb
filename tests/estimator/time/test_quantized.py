"""Matrices of 4 bits are made wide before each product that reads them."""

import pytest

from service.estimator import Recipe
from service.estimator.constants import STEP_CONSTANTS, streaming_bytes_per_s
from service.estimator.question import Method, QuantizationName, RecomputeName, Software, Versions
from service.estimator.samples import H100
from tests.ask import ask
from tests.cases import each_case
from tests.estimator.small_models import DENSE

HEAD_WIDTH = DENSE.hidden_size // DENSE.num_attention_heads
MATRICES = DENSE.num_hidden_layers * DENSE.hidden_size * (
    2 * DENSE.hidden_size + 2 * DENSE.key_value_heads * HEAD_WIDTH + 3 * (DENSE.intermediate_size or 0)
)  # fmt: skip
"""Frozen matrices of the model's layers."""


@each_case(
    ("quantization", "recompute", "version", "passes", "bytes_each"),
    [
        ("nf4", "none", None, 2, 2.5625),
        ("nf4-double", "none", None, 2, 2.765625),
        ("nf4", "full", None, 3, 2.5625),
        ("nf4", "none", "0.47", 2, 1.68 * 2.5625),
        ("gptq", "none", None, 1, 16.5),
        ("gptq", "full", None, 2, 16.5),
    ],
)
def test_each_pass_reads_the_narrow_matrices_and_writes_wide_ones(
    quantization: QuantizationName, recompute: RecomputeName, version: str | None, passes: int, bytes_each: float
) -> None:
    def busy(method: Method) -> float:
        versions = Versions(bitsandbytes=version if method.name == "qlora" else None)
        stack = Software(name="transformers", versions=versions)
        recipe = Recipe(sequence_length=1024, global_batch=4, recompute=recompute, method=method, stack=stack)
        parts = {part.kind: part.seconds for part in ask(DENSE, recipe).step.parts}
        return parts["cast"] + parts["recompute"]

    # no gradient reaches the first layer's projections, and recompute stops before its layer's last matrix
    narrow = busy(Method(name="qlora", targets=("o_proj",), quantization=quantization))
    wide = busy(Method(name="lora", targets=("o_proj",)))
    moved = streaming_bytes_per_s(H100, STEP_CONSTANTS.memory_fraction)
    scale = STEP_CONSTANTS.stack_scales.get(("transformers", "eager"), 1.0)
    most = scale * 4 * passes * MATRICES * bytes_each / moved
    assert narrow - wide <= most * (1 + 1e-9)
    assert narrow - wide == pytest.approx(most, rel=0.15)
