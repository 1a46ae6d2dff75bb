"""Experts of transformers under autocast, whose stacked parameters are multiplied in fp32."""

from service.estimator import Recipe
from service.estimator.question import Software, Versions
from tests.ask import ask
from tests.estimator.small_models import SPARSE


def test_experts_that_autocast_leaves_alone_run_at_the_rate_of_fp32() -> None:
    def products(release: str, precision: str = "bf16-mixed") -> float:
        stack = Software(name="transformers", versions=Versions(transformers=release))
        recipe = Recipe(sequence_length=4096, micro_batch=4, precision=precision, stack=stack)  # type: ignore[arg-type]
        return next(part.seconds for part in ask(SPARSE, recipe).step.parts if part.kind == "gemm")

    assert products("5.0") > 1.2 * products("4.57")
    assert products("5.0") < products("5.0", "fp32")
    assert products("5.0", "bf16-pure") == products("4.57", "bf16-pure")
