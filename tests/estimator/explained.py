"""Explanations of random answers, each evaluated from its inputs."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from math import floor, isclose, log10
from typing import Any

from hypothesis import strategies as st

from service.client import UnreadableExpression, evaluate
from service.estimator import Question, estimate
from service.estimator.answer import Explanation
from service.estimator.explain.explanations import explanations
from service.estimator.explain.labels import counted
from service.estimator.question import Checkpointing, Egress, MeasuredStep, OwnedPrice, Price, Storage
from service.units import COUNT, DIMENSIONS
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


READ = ("resolved.", "constants.", "inputs.")
"""Beginnings of the names of inputs that are no numbers of an answer."""


@dataclass(frozen=True, slots=True)
class Checked:
    """One explanation and what its expression gives."""

    kind: str
    """Path without positions."""
    path: str
    wrong: str
    """Why a person who checks it would not find the value; empty where they do."""
    one: Explanation


def checked(asked: Question) -> Iterator[Checked]:
    """Every explanation of the answer to a question, evaluated."""
    found = explanations(asked, estimate(asked))
    known = {one.path: one for one in found}
    for one in found:
        wrong = _expression_fault(one) or _numbers_fault(one) or _source_fault(one) or _inputs_fault(one, known)
        yield Checked(kind_of(one.path), one.path, wrong, one)


def _expression_fault(one: Explanation) -> str:
    try:
        found = evaluate(one.expression, one.inputs)
    except UnreadableExpression as error:
        return str(error)
    is_right = isclose(found, one.value, rel_tol=1e-9, abs_tol=1e-15)
    return "" if is_right else f"{one.expression[:200]} is {found!r}, not {one.value!r}"


HALF = 0.5 * (1 + 1e-9)


def half_a_digit(shown: str) -> float:
    """Half a unit of the fifth digit of a quantity, in base units."""
    found = _quantity().search(shown)
    number = float(found[1].replace(",", "")) if found else 0.0
    return HALF * 10.0 ** (floor(log10(number)) - 4) * _scales()[found[2] or ""] if found and number else 1e-12


def _numbers_fault(one: Explanation) -> str:
    """A value is shown to five digits; the numbers of its equation give what is shown, to half a unit of the fifth."""
    shown = quantity_of(one.shown)
    if abs(shown - one.value) > half_a_digit(one.shown):
        return f"{one.value!r} is shown as {one.shown}"
    digits = "".join(number for number, _ in _quantity().findall(one.shown)).partition("e")[0]
    if len(re.sub(r"\D", "", digits).strip("0")) > (7 if float(one.value).is_integer() else 5):
        return f"{one.shown} has more than five digits"
    if one.in_numbers is None:
        return "" if one.path.startswith(READ) else "no numbers are put in"
    left, _, right = one.in_numbers.rpartition(" = ")
    if right != one.shown:
        return f"{one.in_numbers} does not end in {one.shown}"
    try:
        found = quantity_of(left)
    except UnreadableExpression as error:
        return f"{one.in_numbers}: {error}"
    return "" if abs(found - shown) <= half_a_digit(one.shown) else f"{one.in_numbers}: the left side is {found!r}"


_SYMBOLS = {"×": "*", "÷": "/", "−": "-", "⌈": "ceil(", "⌉": ")", "⌊": "floor(", "⌋": ")", "√": "sqrt", "ln(": "log("}
_SYMBOLS |= {"^": "**"}


@cache
def _scales() -> dict[str, float]:
    """What the text behind a number multiplies it by."""
    scales = {"s/h": 1.0, "h/day": 1.0, "h/month": 1.0, "h/year": 1.0, "B/GB": 1.0}
    for dimension in (*DIMENSIONS.values(), COUNT, *counted().values()):
        for unit in dimension.ladder or (dimension.base,):
            behind = dimension.forms.get(unit, f"{{}} {unit}").partition("{}")[2].strip()
            assert scales.setdefault(behind, dimension.scales[unit]) == dimension.scales[unit], behind
    return scales


@cache
def _quantity() -> re.Pattern[str]:
    units = "|".join(map(re.escape, sorted(filter(None, _scales()), key=len, reverse=True)))
    return re.compile(
        rf"(?<![\w.])\$?((?:\d{{1,3}}(?:,\d{{3}})+|\d+)(?:\.\d+)?(?:e[-+]?\d+)?)(?: ?({units})(?![\w/]))?"
    )


def quantity_of(text: str) -> float:
    """The value, in base units, of a text of quantities with their units and of the signs between them."""
    bare = re.sub(r"\d+ more \(", "(", text)
    bare = _quantity().sub(
        lambda found: (
            f"({found[1].replace(',', '')} * {_scales()[found[2]]!r})" if found[2] else found[1].replace(",", "")
        ),
        bare,
    )
    for symbol, word in _SYMBOLS.items():
        bare = bare.replace(symbol, word)
    return evaluate(bare, {})


def _source_fault(one: Explanation) -> str:
    """Each has a source; one that is only a definition rests on nothing that was measured or fitted."""
    if not one.references or not one.source or "definition" in (one.source, *(each.text for each in one.references)):
        return "it has no source"
    links = [each.text for each in one.references if each.kind == "paper" and not each.url]
    if links:
        return f"{links} have no link"
    is_definition = {each.kind for each in one.references} == {"definition"}
    fitted = [each.ref for each in one.shown_inputs if each.ref and each.ref.startswith("constants.StepConstants")]
    return f"it is called a definition, and rests on {fitted}" if is_definition and fitted else ""


def _inputs_fault(one: Explanation, known: dict[str, Explanation]) -> str:
    """Every input that is explained has its own value there, and what is explained does not rest on itself."""
    for each in one.shown_inputs:
        if each.ref is not None and (each.ref not in known or known[each.ref].value != one.inputs[each.name]):
            return f"{each.ref} is not {each.name}"
        if each.ref is None and not isinstance(one.inputs[each.name], tuple):
            return f"{each.name} leads nowhere"
        if not each.label or each.label[0].islower():
            return f"{each.label!r} is no label"
    return "it rests on itself" if one.path in _rests_on(one, known) else ""


def _rests_on(one: Explanation, known: dict[str, Explanation]) -> set[str]:
    found: set[str] = set()
    waiting = [each.ref for each in one.shown_inputs if each.ref]
    while waiting:
        ref = waiting.pop()
        if ref not in found:
            found.add(ref)
            waiting += [each.ref for each in known[ref].shown_inputs if each.ref]
    return found


def kind_of(cell: str) -> str:
    """What a number is, wherever it is: its cell name without positions."""
    return re.sub(r"\.\d+(?=\.)", "", cell)
