"""Sizes for a budget are the published ones, and no other size does better."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.planner.sizing import (
    BESIROGLU,
    HOFFMANN,
    LOSS_FITS,
    LossFit,
    affordable_tokens,
    best_batch_tokens,
    critical_batch_tokens,
    critical_warnings,
    expected_loss_nats,
    optimal_parameters,
    optimal_size,
    rule_parameters,
)

budgets = st.floats(18, 27).map(lambda power: 10**power)
each_fit = pytest.mark.parametrize("fit", LOSS_FITS, ids=lambda fit: fit.name)


@pytest.mark.parametrize(
    ("fit", "total_flop", "ratio"),
    [
        (HOFFMANN, 1e21, 50), (HOFFMANN, 5.76e23, 93), (HOFFMANN, 3.8e25, 139),
        (BESIROGLU, 1e21, 21.6), (BESIROGLU, 5.76e23, 18.4), (BESIROGLU, 3.8e25, 16.5),
    ],
)  # fmt: skip
def test_tokens_for_each_parameter_are_those_of_the_fits(fit: LossFit, total_flop: float, ratio: float) -> None:
    """Source: Besiroglu et al. 2024, arXiv:2404.10102, figure 5; the budgets of Gopher and of Llama 3.1 405B."""
    parameters = optimal_parameters(fit, total_flop)
    assert affordable_tokens(parameters, total_flop) / parameters == pytest.approx(ratio, rel=0.01)


def test_chinchilla_is_near_its_own_optimum() -> None:
    """70e9 parameters and 1.4e12 tokens. Source: Hoffmann et al. 2022, arXiv:2203.15556, table 3."""
    total_flop = 6 * 70e9 * 1.4e12
    assert rule_parameters(total_flop) == pytest.approx(70e9)
    assert optimal_size(total_flop).parameters == pytest.approx(70e9, rel=0.05)
    assert expected_loss_nats(HOFFMANN, 70e9, 1.4e12) == pytest.approx(1.937, abs=0.001)


def test_gopher_was_too_large_for_its_tokens() -> None:
    """280e9 parameters and 3e11 tokens. Source: Hoffmann et al. 2022, arXiv:2203.15556, table 1."""
    size = optimal_size(6 * 280e9 * 3e11)
    assert size.parameters < 280e9 / 3
    assert size.loss_nats is not None
    assert size.loss_nats < expected_loss_nats(BESIROGLU, 280e9, 3e11)


@each_fit
@given(total_flop=budgets, factor=st.floats(0.2, 5))
def test_no_other_size_has_less_loss(fit: LossFit, total_flop: float, factor: float) -> None:
    best = optimal_parameters(fit, total_flop)
    least = expected_loss_nats(fit, best, affordable_tokens(best, total_flop))
    other = expected_loss_nats(fit, best * factor, affordable_tokens(best * factor, total_flop))
    assert other >= least * (1 - 1e-12)
    assert other > least or abs(factor - 1) < 0.01


@given(total_flop=budgets, share=st.floats(0.01, 3))
def test_a_cap_binds_only_below_the_optimum_and_costs_loss(total_flop: float, share: float) -> None:
    free = optimal_size(total_flop)
    capped = optimal_size(total_flop, share * free.inference_per_token_flop)
    assert capped.is_capped == (share < 1) or abs(share - 1) < 1e-6
    assert capped.inference_per_token_flop <= share * free.inference_per_token_flop * (1 + 1e-6)
    assert 6 * capped.parameters * capped.training_tokens == pytest.approx(total_flop, rel=1e-6)
    assert capped.loss_nats is not None
    assert free.loss_nats is not None
    assert capped.loss_nats >= free.loss_nats * (1 - 1e-12)
    if share > 1:
        assert (capped.parameters, capped.training_tokens) == (free.parameters, free.training_tokens)


@given(total_flop=budgets)
def test_more_budget_buys_a_larger_model_more_tokens_and_less_loss(total_flop: float) -> None:
    small, large = optimal_size(total_flop), optimal_size(2 * total_flop)
    for one, other in zip(small.fits, large.fits, strict=True):
        assert other.parameters > one.parameters
        assert other.training_tokens > one.training_tokens
        assert other.loss_nats is None or (one.loss_nats is not None and other.loss_nats < one.loss_nats)


def test_the_biased_fit_says_so_and_is_not_the_answer() -> None:
    size = optimal_size(1e24)
    assert [fit.fit for fit in size.fits if fit.caution] == [HOFFMANN.name]
    assert (size.parameters, size.loss_nats) == (size.fits[0].parameters, size.fits[0].loss_nats)
    assert size.fits[0].fit == BESIROGLU.name
    assert size.fits[-1].tokens_per_parameter == pytest.approx(20)


def test_a_batch_stands_out_where_it_is_far_beyond_the_critical_one() -> None:
    """Critical: Kaplan et al. 2020, arXiv:2001.08361, figure 10; best: DeepSeek-AI 2024, arXiv:2401.02954, figure 3."""
    assert critical_batch_tokens(3.0) == pytest.approx(1.07e6, rel=0.01)
    assert best_batch_tokens(3e20) == pytest.approx(1.46e6, rel=0.01)
    assert critical_warnings(16e6, 405e9, 15.6e12) == critical_warnings(1e9, 8e9, None) == ()
    (beyond,) = critical_warnings(1e8, 8e9, 15e12)
    assert "critical" in beyond
