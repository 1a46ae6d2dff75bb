"""Every field of a recipe, layout and model is written, unneeded for a reason, or listed as lost."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from service.estimator import Layout, Recipe
from service.estimator.complete import CompleteQuestion
from service.estimator.question import (
    Checkpointing,
    DocumentLength,
    Method,
    Model,
    Recompute,
    RunStage,
    Software,
    Versions,
    ZeroStage,
)
from service.estimator.resolve import resolve
from service.formats.rules import (
    LAYOUT,
    MODEL,
    MODEL_FIELDS,
    RECIPE,
    Omitted,
    Rule,
    Rules,
    apply_rules,
    framework_table,
    rules_of,
    training_target,
)
from service.formats.targets import TARGETS
from tests.ask import question

SPELLED: list[tuple[str, str, Rules]] = [
    (target.name, version, form.rules)
    for target in TARGETS.values()
    for version, form in target.versions.items()
    if target.kind == "training"
]
"""Name, version and rules of every file that says how to train."""

GIVEN: dict[str, tuple[Any, ...]] = {
    "recipe.recompute": (
        Recompute(granularity="none"),
        Recompute(granularity="selective", modules=("core_attn",)),
        Recompute(granularity="selective", modules=("moe_act",)),
        Recompute(granularity="selective", modules=("op",)),
        Recompute(granularity="full"),
        Recompute(granularity="full", layers=2),
        Recompute(granularity="full", method="block", layers=1),
    ),
    "recipe.method": (
        Method(name="full"),
        Method(name="full", frozen=("head",)),
        Method(name="full", frozen_layers=1),
        Method(name="lora", rank=8, targets=("q_proj",)),
    ),
    "recipe.stack.versions": (None, Versions(torch="2.9")),
    "recipe.document_lengths": ((), (DocumentLength(tokens=300, count=1),)),
    "recipe.stages": ((), (RunStage(until_tokens=1e9, sequence_length=1024),)),
    "recipe.checkpoint": (None, Checkpointing(asynchronous=False)),
    "recipe.moment_dtype": (None, "bf16", "fp8"),
    "recipe.master_dtype": (None, "bf16", "fp16"),
    "recipe.stack.dispatcher": (None, "allgather", "flex"),
    "recipe.training_tokens": (None, 1e12, 2e12),
    "recipe.dropout_fraction": (0.0, 0.1),
    "recipe.expert_capacity_factor": (None, 1.25),
    "recipe.expert_imbalance": (1.0, 1.5),
    "recipe.global_batch": (96, 192),
    "recipe.global_batch_tokens": (None, 1 << 20),
    "layout.data": (4, 8),
    "layout.shard_group": (8, 4),
    "layout.virtual_group": (2, 4),
    "layout.stage_layers": (None, (6, 2)),
    "layout.virtual_pipeline": (1, 4),
}
"""Values of fields whose type does not say them."""

SMALL = Model(
    vocab_size=1024,
    hidden_size=256,
    num_hidden_layers=8,
    num_attention_heads=8,
    num_key_value_heads=4,
    intermediate_size=512,
    num_experts=8,
    num_experts_per_tok=2,
    moe_intermediate_size=128,
)


def busy(**changes: Any) -> CompleteQuestion:
    """A question in which every axis is split, resolved: no field of it is beside the point."""
    recipe = Recipe(sequence_length=4096, micro_batch=2, global_batch=96, recompute="full")
    layout = Layout(tensor=2, context=2, pipeline=2, expert=2, data=4, **changes)
    return resolve(question(SMALL, recipe, layout, gpus=32)).question


def alternatives(path: str) -> tuple[Any, ...]:
    """Values that a field may have."""
    if path in GIVEN:
        return GIVEN[path]
    part, _, name = path.rpartition(".")
    noun = {"recipe": Recipe, "layout": Layout, "recipe.stack": Software, "model": Model}[part]
    return tuple(_values(get_type_hints(noun)[name], part))


def _values(hint: Any, part: str) -> Iterator[Any]:
    if get_origin(hint) is Literal:
        yield from get_args(hint)
    elif hint is bool:
        yield from (False, True)
    elif hint is type(None):
        yield from ()  # what may be absent is filled by now
    elif hint in (int, float):
        yield from (hint(2), hint(4))
    elif get_origin(hint) is tuple:
        yield ()
    else:
        for inner in get_args(hint):
            yield from _values(inner, part)


def with_value(asked: CompleteQuestion, path: str, value: Any) -> CompleteQuestion:
    """A resolved question with another value in one field, nothing else worked out again."""
    part, _, name = path.rpartition(".")
    if part == "recipe.stack":
        from service.estimator.software.stacks import software_of

        return replace(asked, recipe=replace(asked.recipe, stack=replace(software_of(asked.recipe), **{name: value})))
    return replace(asked, **{part: replace(getattr(asked, part), **{name: value})})


def expected_fields(rules: Rules) -> set[str]:
    """The fields that a table of rules has to hold: those of the model one by one, or the model as a whole."""
    return {*RECIPE, *LAYOUT, *((MODEL,) if MODEL in rules else MODEL_FIELDS)}


def is_silent(rule: Rule) -> bool:
    """Whether a rule says for a reason that nothing is to be said."""
    return isinstance(rule, Omitted)


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
    assert [path for path, rule in rules.items() if isinstance(rule, Omitted) and not rule.reason] == []


def same_files(rules: Rules, path: str, zero_stage: ZeroStage) -> list[list[Any]]:
    """Values of a field that are not listed as unsaid, and whose files are one and the same."""
    found: dict[Any, list[Any]] = {}
    for value in alternatives(path):
        asked = with_value(busy(zero_stage=zero_stage), path, value)
        said, unsaid = apply_rules(rules, asked)
        if path not in {field for field, _ in unsaid}:
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


def test_a_table_that_differs_from_its_module_does_not_load() -> None:
    with pytest.raises(ValueError, match=r"deepspeed.toml and its module differ in the sections model"):
        framework_table("deepspeed", "earlier", "model", "rules", "read")
    with pytest.raises(ValueError, match=r"differ in rules in code: layout.data"):
        rules_of({"layout.data": {}}, {})
    with pytest.raises(ValueError, match=r"targets.toml and the module of torchtitan differ in its versions"):
        training_target("torchtitan", {"0.2": {}}, lambda *_: "")
