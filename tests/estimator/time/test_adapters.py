"""What adapters stream beside their products."""

from dataclasses import replace

import pytest

from service.estimator.model.ledger import Backward, Op, Split, Weight
from service.estimator.samples import sample_workload
from service.estimator.time.kernels import ProductShape, adapter_seconds, rates_of

SHAPE = ProductShape(rows=8, columns=32, inner=64, copies=1)


@pytest.mark.parametrize(
    ("name", "gradients", "dropout", "forward", "backward"),
    [
        ("o.lora_a", 2, 0.0, 0, 3 * 2 * 8 * 64),
        ("o.lora_a", 1, 0.0, 0, 0),
        ("o.lora_a", 2, 0.1, 5 * 8 * 64, (5 + 3 * 2) * 8 * 64),
        ("o.lora_b", 2, 0.1, 5 * 2 * 8 * 32, 2 * 2 * 8 * 32),
    ],
)
def test_each_pass_over_an_input_or_a_result_is_streamed(
    name: str, gradients: int, dropout: float, forward: int, backward: int
) -> None:
    sample = sample_workload()
    workload = replace(sample, method=replace(sample.method, dropout_fraction=dropout))
    weights = (Weight(64, 32, role="adapter"),)
    op = Op(name=name, kind="gemm", split=Split.WHOLE, weights=weights, backward=Backward(0, 0, gradients, True))
    rates = rates_of(workload)
    seconds = adapter_seconds(op, SHAPE, rates, workload)
    assert [one * rates.bytes_per_s for one in seconds] == pytest.approx([forward, backward])
