"""Explanations of the numbers of an answer, and of the inputs that they come from."""

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from service.estimator import constants
from service.estimator.answer import Estimate, Explanation, Reference, ShownInput
from service.estimator.explain.docstrings import read_docstring
from service.estimator.explain.ends import Ends, intervals_of
from service.estimator.explain.expression import Working
from service.estimator.explain.in_numbers import in_numbers
from service.estimator.explain.labels import (
    cell_dimension,
    formula_of,
    input_dimension,
    input_label,
    number_label,
    origins_of,
    row_of,
)
from service.estimator.explain.references import (
    Described,
    described,
    documents,
    reference,
    references_of,
    sources_of,
)
from service.estimator.explain.workings import workings
from service.estimator.question import Question
from service.estimator.resolve import resolve
from service.units import Dimension, shown

Rows = Mapping[str, Reference]
"""Rows of the catalogue behind parts and fields of a question, by `gpu` or `price.usd_per_gpu_hour`."""

_PARTS = ("recipe", "layout", "cluster", "gpu", "model", "price")
_PLACES = (
    *("{parent}.{name}", "{parent}.lines.{kind}.bytes", "memory.stages.{peak}.lines.{kind}.bytes"),
    *("step.parts.{kind}.seconds", "totals.cost.{kind}.usd", "totals.{staged}"),
    *(f"{part}.{{name}}" for part in ("totals", "step", "flop", "parameters", "memory")),
)
"""Places where a number of the name of an input stands; it is the input where it has its value, too."""
_DEFAULTS = {"pue": "POWER_USAGE_EFFECTIVENESS"}
"""Constants that are defaults of fields of another name."""


def explanations(question: Question, estimate: Estimate, rows: Rows | None = None) -> tuple[Explanation, ...]:
    """Every number of an answer explained, then every input that is no number of it."""
    return tuple(_Book(question, estimate, rows or {}).explanations())


class _Book:
    """What is explained so far."""

    def __init__(self, question: Question, estimate: Estimate, rows: Rows) -> None:
        self.question = question
        self.resolved = resolve(question)
        self.estimate = estimate
        self.rows = rows
        self.worked = {one.path: one for one in workings(question, estimate)}
        self.by_value: dict[float, list[str]] = {}
        """Cell names of numbers by their value."""
        self.read: dict[str, Explanation] = {}
        """Inputs that are read: fields of the question, and constants."""
        for one in self.worked.values():
            self._index(one.path, one.value)
        for cell, found in intervals_of(estimate):
            self._index(f"{cell}.low", found.low)
            self._index(f"{cell}.high", found.high)

    def _index(self, cell: str, value: float) -> None:
        self.by_value.setdefault(value, []).append(cell)

    def explanations(self) -> Iterator[Explanation]:
        refs = {cell: self._refs_of(one) for cell, one in self.worked.items()}
        ends = {one.path: one for one in Ends(self.resolved, self.estimate, self.worked, refs).workings()}
        refs |= {cell: self._refs_of(one) for cell, one in ends.items()}
        for cell, one in {**self.worked, **ends}.items():
            yield self._explained(one, refs[cell])
        yield from self.read.values()

    def _explained(self, one: Working, refs: Mapping[str, str | None]) -> Explanation:
        docstring, result = read_docstring(one.formula), cell_dimension(one.path)
        text, inputs = one.expression.text, one.expression.inputs
        dimensions = {
            name: cell_dimension(ref) if ref and not ref.startswith("inputs.") else input_dimension(name, result)
            for name, ref in refs.items()
        }
        references = (*one.notes, *references_of(one.formula))
        return Explanation(
            path=one.path,
            label=number_label(one.path),
            value=one.value,
            shown=shown(one.value, result).text,
            exact=str(Decimal(one.value)),
            unit=one.unit,
            summary=docstring.summary,
            equation=docstring.sections.get("Formula", ""),
            in_numbers=in_numbers(text, inputs, one.value, result, dimensions.__getitem__),
            expression=text,
            inputs=inputs,
            shown_inputs=tuple(
                self._shown(name, value, dimensions[name], refs[name])
                for name, value in inputs.items()
                if isinstance(value, tuple) or _is_number(value)
            ),
            source="; ".join(each.text for each in references),
            references=references,
        )

    def _shown(self, name: str, value: Any, dimension: Dimension, ref: str | None) -> ShownInput:
        values = value if isinstance(value, tuple) else (value,)
        text = ", ".join(shown(each, dimension).text for each in values[:_LISTED])
        if len(values) > _LISTED:
            text += f" and {len(values) - _LISTED} more"
        is_worked = ref is not None and ref not in self.read
        label = number_label(str(ref)) if is_worked else self.read[ref].label if ref else input_label(name)
        return ShownInput(name=name, label=label, shown=text, ref=ref)

    def _refs_of(self, one: Working) -> dict[str, str | None]:
        """Names of the explanations of the inputs of a number."""
        return {
            name: self._ref_of(one, name, value) if _is_number(value) else None
            for name, value in one.expression.inputs.items()
        }

    def _ref_of(self, one: Working, name: str, value: Any) -> str:
        """Name of the explanation of an input: a number of the answer, or a field, constant, row or formula."""
        cell, last, origins = one.path, name.rpartition(".")[2], origins_of(name)
        equal = [path for path in self.by_value.get(value, ()) if path != cell]
        if equal:
            words = self._words(cell, name)
            places = {f"{words['parent']}{each}" if each[0] == "." else each.format(**words) for each in origins}
            places |= {place.format(**words) for place in _PLACES}
            for path in equal:
                if path in places or _END.sub("", path) in places:
                    return path
        read = [path for path in origins if path.startswith(("resolved.", "constants."))]
        read += [f"resolved.{part}.{last}" for part in _PARTS]
        for path in (*read, f"constants.StepConstants.{last}"):
            if self._is_read(path, value):
                return path
        row, formula = row_of(last), formula_of(name, cell.partition(".")[0])
        if row is not None:
            return self._about(cell, name, value, self._row(row))
        return self._about(cell, name, value, _within(one, name) if formula is None else described(formula))

    def _row(self, row: str) -> Described:
        """What a row of the workload's software says of itself."""
        found = getattr(self.resolved.workload, row)
        return Described(None, f"Of the {row.replace('_', ' ')}: {found.meaning}", "", sources_of(found.source))

    def _about(self, cell: str, name: str, value: float, about: Described) -> str:
        """The name of the explanation of an input by what describes it; inputs of one name may differ in value."""
        path = f"inputs.{name}"
        if path in self.read and self.read[path].value != value:
            path = f"inputs.{cell}.{name}"
        if path not in self.read:
            self._add(path, value, about, name, input_dimension(name, cell_dimension(cell)))
        return path

    def _words(self, cell: str, name: str) -> dict[str, Any]:
        return {
            "parent": _END.sub("", cell).rpartition(".")[0],
            "name": name.replace("_end_", "_"),
            "kind": name.rpartition("_")[0],
            "staged": re.sub(r"^stage_(\d+)_", r"stages.\1.", name),
            "peak": self.estimate.memory.peak_stage,
        }

    def _is_read(self, path: str, value: float) -> bool:
        """Whether a field of the question or a constant has the value; then it is explained."""
        if path in self.read:
            return self.read[path].value == value
        kind, _, place = path.partition(".")
        if kind == "constants":
            return self._is_constant(path, place, value)
        steps = place.split(".")
        owner: Any = self.estimate.resolved
        for step in steps[:-1]:
            owner = getattr(owner, step, None)
        if getattr(owner, steps[-1], None) != value:
            return False
        meanings = (documents(one.__module__).get(f"{one.__name__}.{steps[-1]}") for one in type(owner).__mro__[:-1])
        meaning = next(filter(None, meanings), "")
        self._add(path, value, Described(value, meaning, "", self._given(steps, value)))
        return True

    def _is_constant(self, path: str, name: str, value: float) -> bool:
        owner, _, field = name.partition(".")
        if owner == "StepConstants":
            found = getattr(self.resolved.workload.constants, field, None)
            meaning = documents(constants.__name__).get(name, "")
            about = Described(found, meaning, "", (FITTED,))
        else:
            about = described(name)
        if about.value != value:
            return False
        self._add(path, value, about)
        return True

    def _given(self, steps: list[str], value: float) -> tuple[Reference, ...]:
        """Sources of a field of the question: a row of the catalogue, a default of ours, or the question itself."""
        part, name = ".".join(steps), steps[-1]
        row = self.rows.get(part) or self.rows.get(steps[0])
        if row is not None:
            return (row,)
        asked: Any = self.question
        for step in steps:
            asked = getattr(asked, step, None)
        default = _DEFAULTS.get(name, name.upper())
        if asked is None and getattr(constants, default, None) == value:
            return described(f"constants.{default}").references
        stated = "the question" if asked is not None else "a default that follows from the rest of the question"
        return (Reference(kind="question", text=f"{stated}: {part}", url=None),)

    def _add(
        self, path: str, value: float, about: Described, name: str = "", dimension: Dimension | None = None
    ) -> None:
        name, dimension = name or path.rpartition(".")[2], dimension or cell_dimension(path)
        self.read[path] = Explanation(
            path=path,
            label=input_label(name.lower()),
            value=value,
            shown=shown(value, dimension).text,
            exact=str(Decimal(value)),
            unit=None if dimension.base == "1" else dimension.base,
            summary=" ".join(about.meaning.split()),
            equation=about.equation,
            in_numbers=None,
            expression=name,
            inputs={name: value},
            shown_inputs=(),
            source="; ".join(one.text for one in about.references),
            references=about.references,
        )


_END = re.compile(r"\.(?:value|low|high)$")
_LISTED = 3
"""Items of a list that are shown."""
FITTED = reference("fitted to the published steps that ship with the service (service.calibration)")


def _within(one: Working, name: str) -> Described:
    """What the formula of a number says of an input that it works out itself."""
    docstring = read_docstring(one.formula)
    meaning = docstring.arguments.get(name) or f"Worked out inside the formula of: {docstring.summary}"
    return Described(None, meaning, "", (*one.notes, *references_of(one.formula)))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
