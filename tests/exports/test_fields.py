"""Is every field of a recipe, a layout and a model written, needless for a reason, or listed as what cannot be said?"""

from typing import Any

import pytest

from service.estimator.names import ZeroStage
from service.exports.fields import LAYOUT, RECIPE, values_of
from service.exports.said import Rules, Silent, said_of
from tests.exports.fields_of_targets import SPELLED, alternatives, busy, expected_fields, is_silent, with_value

SYNONYMS: dict[str, str] = {
    "recipe.attention": "flash is the kernel that runs there",
    "recipe.stack.cross_entropy": "torchtitan's tensor ranks share the loss, whether that is said or not",
    "layout.schedule": "chunks of a stage tell interleaved-1f1b from 1f1b",
}
"""Fields of which two values mean the same to a tool."""

IDLE: dict[int, set[str]] = {1: {"layout.reshard_after_forward"}, 3: set()}
"""Fields that mean nothing at a ZeRO stage."""

RULES = [rules for _, _, rules in SPELLED]
IDS = [f"{name} {version}" for name, version, _ in SPELLED]


@pytest.mark.parametrize("rules", RULES, ids=IDS)
def test_every_field_has_a_rule_and_no_rule_is_of_no_field(rules: Rules) -> None:
    assert set(rules) == expected_fields(rules)


@pytest.mark.parametrize("rules", RULES, ids=IDS)
def test_silence_has_a_reason(rules: Rules) -> None:
    assert [path for path, rule in rules.items() if isinstance(rule, Silent) and not rule.reason] == []


def same_files(rules: Rules, path: str, zero_stage: ZeroStage) -> list[list[Any]]:
    """Values of a field that are not listed as unsaid, and whose files are one and the same."""
    found: dict[Any, list[Any]] = {}
    for value in alternatives(path):
        asked = with_value(busy(zero_stage=zero_stage), path, value)
        said, unsaid = said_of(rules, values_of(asked), asked)
        if path not in {one.field for one in unsaid}:
            found.setdefault(repr((said.settings, said.assumptions, unsaid)), []).append(value)
    return [values for values in found.values() if len(values) > 1]


@pytest.mark.parametrize("zero_stage", [1, 3])
@pytest.mark.parametrize("rules", RULES, ids=IDS)
def test_no_two_values_of_a_field_give_the_same_file_unless_it_is_listed(rules: Rules, zero_stage: ZeroStage) -> None:
    dropped = {
        path: same
        for path in (*RECIPE, *LAYOUT)
        if not is_silent(rules[path]) and path not in SYNONYMS and path not in IDLE[zero_stage]
        if (same := same_files(rules, path, zero_stage))
    }
    assert dropped == {}
