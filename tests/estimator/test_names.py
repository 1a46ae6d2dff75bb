"""Names of precision recipes and optimizers mean what people mean by them."""

import pytest

from service.estimator import Model, Recipe
from service.estimator.question import OptimizerName, PrecisionName
from tests.ask import ask, bytes_of, lines, model_of

MODEL: Model = model_of(1_000_000_000, hidden=2000, layers=12, width=8000)


def _of(precision: PrecisionName, optimizer: OptimizerName = "adamw") -> Recipe:
    return Recipe(sequence_length=1024, global_batch=1, precision=precision, optimizer=optimizer)


@pytest.mark.parametrize(("short", "mixed"), [("bf16", "bf16-mixed"), ("fp16", "fp16-mixed")])
def test_a_short_name_is_the_mixed_recipe_and_says_so(short: PrecisionName, mixed: PrecisionName) -> None:
    answer, named = ask(MODEL, _of(short)), ask(MODEL, _of(mixed))
    assert answer.resolved == named.resolved
    assert answer.memory == named.memory
    assert [one for one in answer.assumptions if one not in named.assumptions] == [
        f"precision {short} is {mixed}, with an fp32 master copy; {short}-pure keeps none"
    ]


@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_a_pure_recipe_keeps_no_master_copy(name: str) -> None:
    pure: PrecisionName = "bf16-pure" if name == "bf16" else "fp16-pure"
    assert bytes_of(ask(MODEL, _of(pure)), "master_weights") == 0
    mixed: PrecisionName = "bf16-mixed" if name == "bf16" else "fp16-mixed"
    assert bytes_of(ask(MODEL, _of(mixed)), "master_weights") == pytest.approx(4e9, rel=1e-3)


@pytest.mark.parametrize(
    ("optimizer", "numbers"), [("adam", 2), ("adamw", 2), ("rmsprop", 1), ("sgd-momentum", 1), ("sgd", 0)]
)
def test_an_optimizer_keeps_its_moments(optimizer: OptimizerName, numbers: int) -> None:
    held = lines(ask(MODEL, _of("fp32", optimizer)))
    assert held.get("optimizer_states", 0.0) == pytest.approx(numbers * 4e9, rel=1e-3)
