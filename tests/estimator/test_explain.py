"""Every explained number is the number of the answer, with an equation and a source."""

import re
import tomllib
from dataclasses import fields, is_dataclass, replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings

from service.estimator.answer import Estimate, Explanation, Inputs
from service.estimator.estimate import estimate
from service.estimator.explain.explanations import explanations
from service.estimator.explain.references import described
from service.estimator.question import (
    Checkpointing,
    Cluster,
    DocumentLength,
    Egress,
    Layout,
    Method,
    OwnedPrice,
    Price,
    Question,
    Recipe,
    RunStage,
    Storage,
)
from service.estimator.samples import H100, LLAMA_3_8B
from tests.amounts import amount
from tests.estimator.explained import READ, checked, kind_of, priced_questions
from tests.estimator.small_models import DENSE, SPARSE
from tests.house.source import SERVICE

PLAIN = Question(
    model=LLAMA_3_8B,
    recipe=Recipe(sequence_length=8192, global_batch=1024, training_tokens=15e12),
    layout=Layout(),
    cluster=Cluster(gpu=H100.slug, gpus=64),
    gpu=H100,
    price=Price(usd_per_gpu_hour=2.5),
)
TABLE = tomllib.loads((SERVICE / "estimator" / "explain" / "labels.toml").read_text(encoding="utf-8"))

QUESTIONS = {
    "plain": PLAIN,
    "without totals": replace(PLAIN, recipe=Recipe(sequence_length=8192), price=None),
    "sharded": replace(PLAIN, recipe=replace(PLAIN.recipe, stack="torchtitan", optimizer="adamw-8bit")),
    "split": replace(
        PLAIN,
        recipe=replace(PLAIN.recipe, precision="fp8-tensorwise", recompute="full"),
        layout=Layout(tensor=4, pipeline=4, virtual_pipeline=2),
    ),
    "adapters": replace(PLAIN, recipe=replace(PLAIN.recipe, method="lora"), layout=Layout(pipeline=2)),
    "frozen": replace(PLAIN, recipe=replace(PLAIN.recipe, method=Method(name="full", frozen_layers=9))),
    "padded": replace(
        PLAIN,
        recipe=replace(PLAIN.recipe, document_lengths=(DocumentLength(tokens=99, count=7),), batching="padded"),
    ),
    "in stages": replace(
        PLAIN,
        recipe=replace(
            PLAIN.recipe,
            stages=(
                RunStage(until_tokens=1e12, global_batch=256, final_global_batch=1024),
                RunStage(until_tokens=2e12, global_batch=512, sequence_length=16384),
            ),
        ),
    ),
    "spot": replace(
        PLAIN,
        recipe=replace(PLAIN.recipe, checkpoint=Checkpointing(write_bytes_per_s=1e10)),
        cluster=replace(PLAIN.cluster, spare_fraction=0.05, grid_kg_co2e_per_kwh=0.4, pue=1.3),
        price=Price(
            usd_per_gpu_hour=2.3,
            price_model="spot",
            storage=Storage(usd_per_gb_month=0.02, data_bytes=1e15),
            egress=Egress(bytes=1e12, usd_per_gb=0.09),
        ),
    ),
    "owned": replace(
        PLAIN,
        recipe=replace(PLAIN.recipe, checkpoint=Checkpointing(rule="daly", asynchronous=False, write_bytes_per_s=1e10)),
        price=OwnedPrice(
            amortisation_years=4.0,
            purchase_usd=35_000.0,
            maintenance_fraction=0.05,
            usd_per_kwh=0.083,
            usd_per_kw_month=150.0,
        ),
    ),
    "muon": replace(PLAIN, recipe=replace(PLAIN.recipe, optimizer="muon"), layout=Layout(zero_stage=1)),
    "gradients that wait": replace(
        PLAIN, recipe=replace(PLAIN.recipe, stack="torchtitan"), layout=Layout(zero_stage=3, pipeline=4)
    ),
    "freed weights": replace(
        PLAIN,
        recipe=Recipe(sequence_length=64, global_batch=64, stack="deepspeed", precision="fp16-mixed"),
        layout=Layout(zero_stage=3),
    ),
    "grouped step gradients": replace(
        PLAIN,
        model=replace(LLAMA_3_8B, vocab_size=1000),
        recipe=Recipe(sequence_length=64, stack="deepspeed", precision="fp16-mixed"),
        layout=Layout(zero_stage=3),
        cluster=replace(PLAIN.cluster, gpus=2),
    ),
    "step gradients of groups of experts": replace(
        PLAIN,
        model=replace(SPARSE, vocab_size=1000),
        recipe=Recipe(sequence_length=64, stack="deepspeed"),
        layout=Layout(zero_stage=2, expert=8),
        cluster=replace(PLAIN.cluster, gpus=8),
    ),
    "weights that fill no bucket": replace(
        PLAIN,
        model=replace(DENSE, vocab_size=1000, num_hidden_layers=1),
        recipe=Recipe(sequence_length=4096, stack="deepspeed"),
        layout=Layout(zero_stage=3),
    ),
    "selective": replace(PLAIN, recipe=replace(PLAIN.recipe, recompute="selective")),
    "optimizer peak": replace(PLAIN, recipe=Recipe(sequence_length=64, precision="fp16-mixed"), layout=Layout()),
}


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_explanations_give_the_answers_numbers(question: Question) -> None:
    answer = estimate(question)
    held, said = numbers_of(answer), explanations(question, answer)
    for one in said:
        assert Decimal(one.exact) == Decimal(one.value)
        assert one.expression, one.path
        assert one.inputs, one.path
        if one.path in held:
            assert one.value == pytest.approx(held[one.path], rel=1e-12), one.path
            assert one.equation, one.path
    paths = [one.path for one in said]
    assert len(paths) == len(set(paths))


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_a_person_finds_the_value_from_the_numbers_shown(question: Question) -> None:
    assert [(one.path, one.wrong) for one in checked(question) if one.wrong] == []


@settings(max_examples=amount(40, 300))
@given(priced_questions())
def test_a_person_finds_the_value_of_random_answers(question: Question) -> None:
    assert [(one.path, one.wrong) for one in checked(question) if one.wrong] == []


NOT_EXPLAINED = re.compile(r"\.(stage|layers|peak_stage|ranks|local_ranks)$")
"""Places and degrees."""


def numbers(answer: Any, path: str) -> dict[str, float]:
    """Every number below a place of the answer, by its cell name."""
    if isinstance(answer, int | float):
        return {path: answer}
    if isinstance(answer, tuple):
        named = {f"{path}.{getattr(item, 'kind', index)}": item for index, item in enumerate(answer)}
        return {p: n for name, item in named.items() for p, n in numbers(item, name).items()}
    if is_dataclass(answer):
        return {p: n for f in fields(answer) for p, n in numbers(getattr(answer, f.name), f"{path}.{f.name}").items()}
    return {}


def numbers_of(answer: Estimate) -> dict[str, float]:
    """Every number of an answer that is to be explained, by its cell name."""
    parts = ("parameters", "memory", "flop", "step", "communication", "totals")
    held = {path: n for part in parts for path, n in numbers(getattr(answer, part), part).items()}
    return {path: number for path, number in held.items() if not NOT_EXPLAINED.search(path)}


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_every_number_is_explained(question: Question) -> None:
    assert unexplained(question) == set()


@settings(max_examples=amount(25, 300))
@given(priced_questions())
def test_every_number_of_random_answers_is_explained(question: Question) -> None:
    assert unexplained(question) == set()


def unexplained(question: Question) -> set[str]:
    """Numbers of an answer without an explanation, and explanations of what is none of its numbers or inputs."""
    answer = estimate(question)
    said = {one.path for one in explanations(question, answer)}
    return set(numbers_of(answer)) ^ {path for path in said if not path.startswith(READ)}


def expressions(name: str) -> dict[str, str]:
    """Expression of each number of the first stage by its kind."""
    said = explanations(QUESTIONS[name], estimate(QUESTIONS[name]))
    return {kind_of(one.path): one.expression for one in reversed(said) if "stages.1" not in one.path}


def test_expressions_name_what_their_number_depends_on() -> None:
    assert "undivided * numbers_each" in expressions("muon")["memory.stages.lines.optimizer_states.bytes"]
    assert (
        expressions("gradients that wait")["memory.stages.lines.gradients.bytes"] == "trained_weights * reduction_bytes"
    )
    assert "largest_trained_layer" in expressions("freed weights")["memory.stages.lines.reduced_gradients.bytes"]
    assert "min(" in expressions("grouped step gradients")["memory.stages.lines.step_gradients.bytes"]
    assert "min(" in expressions("weights that fill no bucket")["memory.stages.lines.gathered_weights.bytes"]
    grouped = expressions("step gradients of groups of experts")["memory.stages.lines.step_gradients.bytes"]
    assert "min(expert, group_numbers)" in grouped
    plain = expressions("plain")
    assert plain["flop.hardware_per_step_flop"] == "per_step_flop + recompute_per_step_flop"
    assert "rerun_fraction" in plain["flop.recompute_fraction"]
    assert plain["flop.total_pflop_days"] == "total_flop / flop_of_a_pflop_day"
    assert "accumulation * (layer_kind_0.count * (" in plain["step.parts.gemm.seconds"]


def total(inputs: Inputs) -> float:
    """The sum of inputs that are all numbers."""
    return sum(float(value) for value in inputs.values() if isinstance(value, int | float))


def test_parts_of_a_sum_sum() -> None:
    for question in QUESTIONS.values():
        said = {one.path: one for one in explanations(question, estimate(question))}
        flop = dict(said["flop.forward_per_step_flop"].inputs)
        batch = total({"global_batch": flop.pop("global_batch")})
        assert total(flop) * batch == pytest.approx(said["flop.forward_per_step_flop"].value)
        for path in ("step.step_seconds.value", "memory.allocated_peak_bytes.value", "parameters.total"):
            assert total(said[path].inputs) == pytest.approx(said[path].value)


def test_exact_strings_keep_what_a_double_cannot() -> None:
    said = {one.path: one for one in explanations(PLAIN, estimate(PLAIN))}
    total = said["flop.total_flop"]
    assert int(total.exact) == estimate(PLAIN).flop.total_flop
    assert int(total.exact) > 2**53


def said_of(name: str) -> dict[str, Explanation]:
    """Explanations of an answer by their names."""
    return {one.path: one for one in explanations(QUESTIONS[name], estimate(QUESTIONS[name]))}


def test_the_cost_is_gpu_hours_at_the_price() -> None:
    said = said_of("plain")
    cost = said["totals.cost_usd.value"]
    assert (cost.label, cost.in_numbers) == (
        "Cost",
        f"{said['totals.gpu_hours.value'].shown} × $2.50/GPU-h = {cost.shown}",
    )
    assert [(one.label, one.ref) for one in cost.shown_inputs] == [
        ("GPU-hours", "totals.gpu_hours.value"),
        ("Price of a GPU-hour", "resolved.price.usd_per_gpu_hour"),
        ("Discount", "resolved.price.discount_fraction"),
    ]


def test_ends_of_intervals_name_the_error_that_made_them() -> None:
    said = said_of("plain")
    assert "held-out error of the class `known stack`" in said["step.step_seconds.low"].source
    assert "held-out error of the class `megatron-core, dense`" in said["memory.device_peak_bytes.high"].source
    assert "published runs took" in said["totals.cost_usd.high"].source


def test_constants_and_defaults_have_the_sources_of_their_own() -> None:
    said = said_of("spot")
    assert said["resolved.cluster.failures_per_gpu_hour"].references[0].url == "https://arxiv.org/abs/2407.21783"
    assert {one.kind for one in said["constants.step.OTHER_FRACTION"].references} == {"assumption"}
    assert said["resolved.recipe.global_batch"].references[0].kind == "question"
    assert said["constants.StepConstants.straggler_fraction"].references[0].kind == "measured"


@pytest.mark.parametrize("path", sorted({*TABLE["formulas"].values(), *TABLE["amounts"].values()}))
def test_what_describes_inputs_is_there(path: str) -> None:
    found = described(path)
    assert found.meaning
    assert found.references


def test_rows_of_software_have_sources() -> None:
    rows = {one.path: one for one in explanations(PLAIN, estimate(PLAIN)) if one.summary.startswith("Of the precision")}
    assert rows["inputs.bytes_each"].references
    assert all(row in {"precision", "optimizer", "cross_entropy"} for row in TABLE["rows"].values())
