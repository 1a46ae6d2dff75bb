"""Muon's step: the products that make updates orthogonal, who runs them, and what its owners exchange."""

from dataclasses import replace

import pytest

from service.estimator import Estimate, Layout, Model, Recipe
from service.estimator.question import StackName
from service.estimator.time.optimizer import PIECE_SECONDS, orthogonal_seconds
from service.estimator.time.rates import ProductRates
from tests.ask import ask
from tests.cases import each_case
from tests.estimator.small_models import DENSE, LATENT, SPARSE


def muon(model: Model, zero_stage: int = 1, stack: StackName = "megatron-core", *, tensor: int = 1) -> Estimate:
    recipe = Recipe(sequence_length=1024, global_batch=64, optimizer="muon", stack=stack)
    return ask(model, recipe, Layout(zero_stage=zero_stage, tensor=tensor), gpus=8)  # type: ignore[arg-type]


def update(answer: Estimate) -> float:
    return next(part.seconds for part in answer.step.parts if part.kind == "optimizer")


@each_case(("short", "long"), [(128, 128), (256, 1024), (1024, 4096)])
def test_each_iteration_is_a_gram_matrix_its_square_and_a_product(short: int, long: int) -> None:
    counted = ProductRates(
        flop_per_s=1.0,
        bytes_per_s=1e30,
        operand_bytes=2,
        result_bytes=2,
        wave_tiles=1,
        fill_numbers=0,
        launch_seconds=0,
    )
    flop = 5 * (4 * short**2 * long + 2 * short**3)
    assert orthogonal_seconds(short, long, counted) == pytest.approx(flop, rel=1e-12)


@each_case("model", [DENSE, SPARSE, LATENT])
def test_more_parameters_never_take_less_time(model: Model) -> None:
    sizes = [1, 2, 3, 4, 8]
    deeper = [update(muon(replace(model, num_hidden_layers=model.num_hidden_layers * size))) for size in sizes]
    width = model.intermediate_size or 0
    wider = [update(muon(replace(model, intermediate_size=width * size))) for size in sizes]
    assert deeper == sorted(deeper)
    assert wider == sorted(wider)


def test_replicas_that_share_states_deal_the_matrices_out_and_others_repeat_them() -> None:
    alone, shared = update(muon(DENSE, zero_stage=0)), update(muon(DENSE, zero_stage=1))
    assert shared == pytest.approx(alone / 8, rel=0.2)
    assert update(muon(DENSE, zero_stage=0, tensor=2)) < alone


def test_a_matrix_is_never_divided_over_replicas() -> None:
    one = replace(DENSE, num_hidden_layers=1, num_attention_heads=8, num_key_value_heads=8, hidden_size=8192)
    assert update(muon(one, zero_stage=1)) > update(muon(one, zero_stage=0)) / 7


def test_owners_of_matrices_exchange_momentum_and_updates_where_weights_are_sharded() -> None:
    def rows(answer: Estimate) -> dict[str, float]:
        return {row.kind: row.sent_bytes * row.calls for row in answer.communication if "updates" in row.kind}

    sent = rows(muon(SPARSE, 3, "torchtitan"))
    assert sorted(sent) == ["data_all_to_all_expert_updates", "data_all_to_all_updates"]
    experts = 7 * 16 * 3 * 1024 * 512  # of seven sparse layers, over 8 ranks, to their owners and back
    assert sent["data_all_to_all_expert_updates"] == pytest.approx(2 * 7 / 8 * 4 * experts / 8)
    assert not rows(muon(SPARSE, 0, "torchtitan"))
    assert not rows(muon(SPARSE, 1, "megatron-core"))


def test_the_host_copies_a_piece_of_each_tensor_for_every_rank_of_zero_1() -> None:
    recipe = Recipe(sequence_length=4096, global_batch=64, stack="nanotron")
    seconds = [update(ask(DENSE, recipe, Layout(zero_stage=stage), gpus=gpus)) for gpus in (8, 16) for stage in (0, 1)]
    pieces = 8 * (6 * DENSE.num_hidden_layers + 3)
    assert seconds[3] - seconds[1] == pytest.approx(pieces * PIECE_SECONDS, rel=0.2)
    assert seconds[2] == seconds[0]
