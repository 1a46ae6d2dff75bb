"""Explanations of single numbers: the docstring of a formula, and an expression over listed inputs."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from keyword import iskeyword
from typing import Any

from service.estimator.answer import Estimate, Inputs, Reference
from service.estimator.explain.docstrings import read_docstring

Formula = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Expression:
    """Arithmetic over inputs by name, as `service.client.evaluate` reads it."""

    text: str
    inputs: Inputs

    def under(self, prefix: str) -> "Expression":
        """The same, each input named under a prefix."""
        names = {name: f"{prefix}.{name}" for name in self.inputs}
        text = _NAME.sub(lambda found: names.get(found[0], found[0]), self.text)
        return Expression(text, {names[name]: value for name, value in self.inputs.items()})


_NAME = re.compile(r"[A-Za-z_][\w.]*")

Explained = tuple[Formula, Expression]
"""The formula that words an explanation, and what computes its value."""

At = Callable[[str, Formula, str, Inputs], "Working"]
"""Function that works the number at a path of the answer out by a formula, an expression and its inputs."""


def summed_inputs(inputs: Inputs, unit: str = "") -> Expression:
    """The sum of some inputs, each named with its unit where its own name has none."""
    named = {f"{name}_{unit}" if unit and not name.endswith(unit) else name: value for name, value in inputs.items()}
    return Expression(" + ".join(named) or "0", named)


def joined(operation: str, parts: Iterable[Expression]) -> Expression:
    """Expressions of inputs with different names, with an operator between them or, for `max`, as its arguments."""
    found = list(parts)
    inputs = {name: value for part in found for name, value in part.inputs.items()}
    if operation == "max":
        texts = ", ".join(part.text for part in found)
        return Expression(f"max({texts})" if len(found) > 1 else texts or "0", inputs)
    return Expression(f" {operation} ".join(part.text for part in found) or "0", inputs)


def input_name(*words: object) -> str:
    """A name for an input, under which expressions find it.

    >>> input_name("layer_kind_0", "mlp.up"), input_name("layer_kind_1", "lambda-1")
    ('layer_kind_0.mlp.up', 'layer_kind_1.lambda_1')
    """
    steps = re.sub(r"[^\w.]", "_", ".".join(map(str, words))).split(".")
    return ".".join(f"_{step}" if iskeyword(step) or step[:1].isdigit() else step for step in steps if step)


def weighted_sum(groups: Mapping[str, tuple[float, Mapping[str, float]]], unit: str) -> Expression:
    """Sum over groups of how often each occurs times the sum of its amounts, each an input under the group's name.

    >>> weighted_sum({"kind_0": (32, {"up": 2.0, "down": 1.0}), "head": (0, {})}, "layers").text
    'kind_0.layers * (kind_0.up + kind_0.down)'
    """
    terms: list[str] = []
    inputs: Inputs = {}
    for group, (count, amounts) in groups.items():
        named: dict[str, float] = {}
        for name, amount in amounts.items():
            key = input_name(group, name)
            named[key] = named.get(key, 0.0) + float(amount)
        if not count or not any(named.values()):
            continue
        times = input_name(group, unit)
        inputs |= {times: float(count), **named}
        total = " + ".join(named)
        terms.append(f"{times} * ({total})" if len(named) > 1 else f"{times} * {total}")
    return Expression(" + ".join(terms) or "0", inputs)


@dataclass(frozen=True, slots=True)
class Working:
    """A number of the answer, its formula, and how it is computed again."""

    path: str
    """Its cell name."""
    value: float
    formula: Formula
    expression: Expression
    unit: str | None
    notes: tuple[Reference, ...] = ()
    """Sources beside those of the formula."""


def cell_of(answer: Any, path: str) -> tuple[str, float]:
    """Cell name of the number at a path of an answer, items of lists by their kind, and the number."""
    steps: list[str] = []
    value = answer
    for name in re.findall(r"\w+", path):
        value = value[int(name)] if name.isdigit() else getattr(value, name)
        steps.append(getattr(value, "kind", name) if name.isdigit() else name)
    number: float = value
    return ".".join(steps), number


def worked(estimate: Estimate, path: str, formula: Formula, expression: str, inputs: Inputs) -> Working:
    """The number at a path of the answer, by the formula that gave it."""
    (cell, value), unit = cell_of(estimate, path), read_docstring(formula).unit
    return Working(cell, value, formula, Expression(expression, inputs), None if unit == "1" else unit)


def fields_of(source: object, *names: str) -> Inputs:
    """Some fields of an object as inputs."""
    return {name: getattr(source, name) for name in names}


def numbers_of(source: object, *names: str) -> Inputs:
    """Some fields of an object as inputs, as plain doubles."""
    return {name: float(getattr(source, name)) for name in names}
