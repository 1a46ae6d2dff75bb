"""Are the bounds that a noun declares the bounds that its values are held to?"""

from dataclasses import replace
from typing import Any

import pytest

from service.catalogue.bounds import broken_rules, rule_of
from service.estimator import Model
from service.estimator.samples import H100

TINY = Model(vocab_size=8, hidden_size=4, num_hidden_layers=1, num_attention_heads=1, intermediate_size=4)


def test_sound_nouns_break_nothing() -> None:
    assert broken_rules(TINY) == {}
    assert broken_rules(H100) == {}


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("hidden_size", 0, "out_of_range"),
        ("hidden_size", 1 << 25, "out_of_range"),
        ("hidden_size", "4", "not_a_whole_number"),
        ("hidden_size", True, "not_a_whole_number"),
        ("hidden_size", 4.5, "not_a_whole_number"),
        ("hidden_size", float("nan"), "not_a_whole_number"),
        ("head_dim", -1, "out_of_range"),
        ("gated_mlp", 1, "not_true_or_false"),
        ("gated_mlp", None, "not_true_or_false"),
        ("norms_per_layer", 3, "not_a_choice"),
        ("normalization", "batchnorm", "not_a_choice"),
        ("layer_types", ("linear_attention",), "not_a_list"),
        ("layer_types", ("full_attention",) * 2049, "out_of_range"),
        ("layer_types", ["full_attention"], "not_a_list"),
    ],
)
def test_broken_rule_is_found_and_named(field: str, value: Any, code: str) -> None:
    assert set(broken_rules(replace(TINY, **{field: value}))) == {field}
    assert rule_of(Model, field).code_for(value) == code


@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan"), "1", True])
def test_rate_is_a_finite_number_above_zero(value: Any) -> None:
    assert set(broken_rules(replace(H100, board_watts=value))) == {"board_watts"}


def test_absence_is_allowed_where_it_is_declared() -> None:
    assert rule_of(Model, "head_dim").allows(None)
    assert not rule_of(Model, "hidden_size").allows(None)
    assert rule_of(Model, "hidden_size").wanted == "a whole number (at least 1, at most 16,777,216)"
