"""Difference of two questions: the first becomes the second one change at a time, and each step is answered."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from service.answers.estimates import Answer
from service.answers.rows import ChangedField, DifferenceAnswer, DifferenceEnd, QuestionChange
from service.catalogue import Catalogue
from service.errors import Refused
from service.estimator.answer import Verdict
from service.estimator.question import Question
from service.features.compare.compare import MetricTable
from service.features.differences.schemas import AFTER, BEFORE, read_difference
from service.features.estimates.answers import answer, versions_of
from service.features.estimates.metrics import COLUMNS, Metric, named_metrics, number_in, whole_of
from service.planner.steps import Steps, outcome
from service.tabular.lists import TableForm
from service.units import Dimension, dimension_of, in_units
from service.validation.json_text import single_line
from service.validation.problems import refused_at
from service.validation.questions import ParsedQuestion, read_question
from service.validation.reading import to_wire

FIRST: Final = ("change", "before", "after", "verdict")

METRICS: Final = ("cost_usd", "days", "gpu_hours", "step_seconds", "device_peak_bytes")
"""Numbers that a change is shown with where none are named."""

ORDER: Final = ("model", "recipe", "cluster", "layout", "price")
"""Order in which parts change."""

Difference = MetricTable[DifferenceAnswer]


def difference(body: Mapping[str, Any], catalogue: Catalogue) -> Difference:
    """What changed between two questions."""
    return outcome(difference_steps(body, catalogue))


def difference_bytes(body: Mapping[str, Any], catalogue: Catalogue, form: TableForm) -> Steps[bytes]:
    """What changed, as JSON or as a table."""
    found = yield from difference_steps(body, catalogue)
    return markdown(found).encode() if form == "md" else found.to_bytes(form)


def difference_steps(body: Mapping[str, Any], catalogue: Catalogue) -> Steps[Difference]:
    """Answer the first question, then the question after each change.

    A change that is impossible alone is made together with those that follow it, until the question has an answer.
    Changes that leave the answer as it is are other spellings of one question, and make no row.
    """
    request = read_difference(body)
    metrics = named_metrics("metrics", request.metrics or METRICS, FIRST)
    start, end = (_read(body, name, catalogue) for name in (BEFORE, AFTER))
    first, last = (_answered(name, one, catalogue) for name, one in ((BEFORE, start), (AFTER, end)))
    fields_changed = [*_changed(start.question, end.question)]
    yield 1 + len(fields_changed)
    changes: list[QuestionChange] = []
    question, previous, pending = start.question, first, list[_Field]()
    for field in fields_changed:
        pending.append(field)
        question = field.moved(question, end.question)
        found = last if question == end.question else _answer_or_none(replace(end, question=question), catalogue)
        if found is not None:
            if found.id != previous.id:
                changes.append(_change([one.shown(body, first, last) for one in pending], previous, found, metrics))
            previous, pending = found, []
        yield None
    calibrations = [one.versions.calibration for one in (first, last)]
    whole = DifferenceAnswer(
        before=_end(first, metrics),
        after=_end(last, metrics),
        deltas=_deltas(first, last, metrics),
        changes=tuple(changes),
        versions=versions_of(catalogue, calibrations),
    )
    yield None
    return _table(whole, metrics)


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of a question that differs."""

    part: str
    name: str | None
    """None for a whole part."""

    @property
    def path(self) -> str:
        return self.part if self.name is None else f"{self.part}.{self.name}"

    def moved(self, question: Question, end: Question) -> Question:
        """The question with this field as it is at the end; the facts of a GPU come with its name."""
        target = getattr(end, self.part)
        if self.name is not None:
            target = replace(getattr(question, self.part), **{self.name: getattr(target, self.name)})
        changed: dict[str, Any] = {self.part: target}
        return replace(question, **changed, gpu=end.gpu) if self.path == "cluster.gpu" else replace(question, **changed)

    def shown(self, body: Mapping[str, Any], first: Answer, last: Answer) -> ChangedField:
        ends = [self._value(body[end], found) for end, found in ((BEFORE, first), (AFTER, last))]
        return ChangedField(field=self.path, before=ends[0], after=ends[1])

    def _value(self, given: Mapping[str, Any], found: Answer) -> Any:
        """The name that the caller gave a model, else the resolved value."""
        if self.part == "model" and isinstance(given["model"], str):
            return given["model"]
        part = to_wire(getattr(found.resolved, self.part))
        value = part if self.name is None else part[self.name]
        return {name: one for name, one in value.items() if one is not None} if isinstance(value, dict) else value


def _read(body: Mapping[str, Any], end: str, catalogue: Catalogue) -> ParsedQuestion:
    try:
        return read_question(body[end], catalogue)
    except Refused as refused:
        raise refused_at(end, refused) from None


def _answered(end: str, parsed: ParsedQuestion, catalogue: Catalogue) -> Answer:
    try:
        return answer(parsed, catalogue, advise=False)
    except Refused as refused:
        raise refused_at(end, refused) from None


def _answer_or_none(parsed: ParsedQuestion, catalogue: Catalogue) -> Answer | None:
    """The answer; None where the question needs a change that follows."""
    try:
        return answer(parsed, catalogue, advise=False)
    except Refused:
        return None


def _changed(before: Question, after: Question) -> Iterator[_Field]:
    for part in ORDER:
        ours, theirs = getattr(before, part), getattr(after, part)
        if ours == theirs:
            continue
        if part == "model" or type(ours) is not type(theirs):  # such as a price where there was none
            yield _Field(part, None)
        else:
            names = [field.name for field in fields(ours)]
            yield from (_Field(part, name) for name in names if getattr(ours, name) != getattr(theirs, name))


def _numbers(found: Answer, metrics: Mapping[str, Metric]) -> dict[str, Any]:
    whole = whole_of(found)
    return {name: number_in(metric, whole) for name, metric in metrics.items()}


def _likely(number: Any) -> float | None:
    """The value of a number that may have ends; None where it is none."""
    value = number["value"] if isinstance(number, Mapping) else number
    return None if isinstance(value, bool) or not isinstance(value, int | float) else value


def _deltas(before: Answer, after: Answer, metrics: Mapping[str, Metric]) -> dict[str, float | None]:
    ours, theirs = _numbers(before, metrics), _numbers(after, metrics)
    ends = {name: (_likely(ours[name]), _likely(theirs[name])) for name in metrics}
    return {name: None if low is None or high is None else _less(high, low, name) for name, (low, high) in ends.items()}


def _less(after: float, before: float, name: str) -> float:
    """A difference; of amounts in cents, without what binary fractions add."""
    return round(after - before, 2) if _dimension(name).base == "USD" else after - before


def _dimension(name: str) -> Dimension:
    return dimension_of(COLUMNS.get(name, name).split("."))


def _end(found: Answer, metrics: Mapping[str, Metric]) -> DifferenceEnd:
    return DifferenceEnd(id=found.id, verdict=found.verdict, numbers=_numbers(found, metrics))


def _change(
    moved: Sequence[ChangedField], before: Answer, after: Answer, metrics: Mapping[str, Metric]
) -> QuestionChange:
    return QuestionChange(
        fields=tuple(moved),
        deltas=_deltas(before, after, metrics),
        verdict=after.verdict,
        numbers=_numbers(after, metrics),
        id=after.id,
    )


def _rows(found: DifferenceAnswer) -> Iterator[tuple[str, str, str, Verdict, Mapping[str, Any], Mapping[str, Any]]]:
    """The question before, each change, and the question after; texts of values, numbers then and deltas."""
    yield BEFORE, "", "", found.before.verdict, found.before.numbers, {}
    for change in found.changes:
        names, before, after = (
            "; ".join(map(str, column))
            for column in zip(*((one.field, _text(one.before), _text(one.after)) for one in change.fields), strict=True)
        )
        yield names, before, after, change.verdict, change.numbers, change.deltas
    yield AFTER, "", "", found.after.verdict, found.after.numbers, found.deltas


def _text(value: Any) -> str:
    """A value of a field for people."""
    return value if isinstance(value, str) else json.dumps(value)


def _table(found: DifferenceAnswer, metrics: Mapping[str, Metric]) -> Difference:
    columns = [*FIRST, *(name for metric in metrics for name in (metric, f"{metric}.delta"))]
    cells = [
        [*head, *(cell for name in metrics for cell in (_likely(numbers[name]), deltas.get(name)))]
        for *head, numbers, deltas in _rows(found)
    ]
    return MetricTable(found, metrics, columns, cells)


def markdown(difference: Difference) -> str:
    """The table as Markdown, with numbers in the units of people.

    Deltas carry a sign; a value that is not known is a dash.
    """
    names = [*difference.metrics]
    lines = [[*FIRST, *names], ["---"] * len(FIRST) + ["---:"] * len(names)]
    for change, before, after, verdict, numbers, deltas in _rows(difference.answer):
        shown = [_shown(name, numbers[name], deltas.get(name), is_end=change in (BEFORE, AFTER)) for name in names]
        lines.append([*(_escaped(text) for text in (change, before, after)), verdict, *shown])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _shown(name: str, number: Any, delta: float | None, *, is_end: bool) -> str:
    dimension, value = _dimension(name), _likely(number)
    if is_end:
        return "-" if value is None else in_units(value, dimension)
    if delta is None:
        return "-"
    sign = "+" if delta > 0 else "-" if delta < 0 else ""
    return f"{sign}{in_units(abs(delta), dimension)}"


def _escaped(text: str) -> str:
    """A text for one cell of a Markdown table."""
    return single_line(text).replace("|", "\\|")
