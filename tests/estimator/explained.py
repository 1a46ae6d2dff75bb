"""Explanations of random answers, each evaluated from its inputs."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import isclose
from typing import Any

from hypothesis import strategies as st

from service.client import UnreadableExpression, evaluate
from service.estimator import Estimate, Question, estimate
from service.estimator.answer import Explanation
from service.estimator.explain.explanations import explanations
from service.estimator.question import Checkpointing, Egress, MeasuredStep, OwnedPrice, Price, Storage
from tests.estimator.legal_questions import questions

PRICES = (
    None,
    Price(usd_per_gpu_hour=2.5),
    Price(
        usd_per_gpu_hour=2.3,
        discount_fraction=0.1,
        price_model="spot",
        storage=Storage(usd_per_gb_month=0.02, data_bytes=1e15),
        egress=Egress(bytes=1e12, usd_per_gb=0.09),
    ),
    OwnedPrice(
        amortisation_years=4.0,
        purchase_usd=35_000.0,
        maintenance_fraction=0.05,
        usd_per_kwh=0.083,
        usd_per_kw_month=150.0,
    ),
)
CHECKPOINTS = (
    None,
    Checkpointing(write_bytes_per_s=1e10),
    Checkpointing(interval_seconds=600.0, stall_seconds=3.0),
    Checkpointing(rule="daly", asynchronous=False, write_bytes_per_s=1e10),
)
CLUSTERS: tuple[dict[str, Any], ...] = (
    {},
    {"spare_fraction": 0.05, "grid_kg_co2e_per_kwh": 0.4, "pue": 1.3},
    {"power_limit_watts": 500.0, "measured_steps": (MeasuredStep(measured_seconds=2.0, predicted_seconds=1.5),)},
)


@st.composite
def priced_questions(draw: st.DrawFn) -> Question:
    """A legal question with any price, checkpoints and power, spares and measured steps of its cluster."""
    asked = draw(questions())
    return replace(
        asked,
        price=draw(st.sampled_from(PRICES)),
        recipe=replace(asked.recipe, checkpoint=draw(st.sampled_from(CHECKPOINTS))),
        cluster=replace(asked.cluster, **draw(st.sampled_from(CLUSTERS))),
    )


@dataclass(frozen=True, slots=True)
class Checked:
    """One explanation and what its expression gives."""

    kind: str
    """Path without positions, lines and parts by their kind."""
    path: str
    wrong: str
    """Why it does not give the value; empty where it does."""


def checked(asked: Question) -> Iterator[Checked]:
    """Every explanation of the answer to a question, evaluated."""
    answer = estimate(asked)
    for one in explanations(asked, answer):
        yield Checked(kind_of(one.path, answer), one.path, _wrong(one))


def _wrong(one: Explanation) -> str:
    try:
        found = evaluate(one.expression, one.inputs)
    except UnreadableExpression as error:
        return str(error)
    is_right = isclose(found, one.value, rel_tol=1e-9, abs_tol=1e-15)
    return "" if is_right else f"{one.expression[:200]} is {found!r}, not {one.value!r}"


def kind_of(path: str, answer: Estimate) -> str:
    """What a number is, wherever it is: its path without positions, lines and parts of a step by their kind."""
    part = re.fullmatch(r"step\.parts\[(\d+)\]\.seconds", path)
    if part:
        return f"step.parts.{answer.step.parts[int(part[1])].kind}"
    line = re.fullmatch(r"memory\.stages\[(\d+)\]\.lines\[(\d+)\]\.bytes", path)
    if line:
        return f"memory.lines.{answer.memory.stages[int(line[1])].lines[int(line[2])].kind}"
    return re.sub(r"\[\d+\]", "", path)
