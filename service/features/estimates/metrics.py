"""Metrics: numbers of an answer by name or by an unambiguous end of their path."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache, lru_cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from service.answers.estimates import Answer
from service.answers.names import WIRE_NAMES
from service.errors import Problem, Refused, UnknownMetric, did_you_mean, nearest, quoted
from service.estimator.answer import Interval, Verdict
from service.validation.reading import to_wire

Path = tuple[str, ...]

ITEM = "*"
"""Path step into a list: a position from 0, or the kind of an item."""

FITS = "fits"
"""1 unless the verdict is out_of_memory, then 0: the one metric that is no leaf of the answer."""

REQUIRED_FIELDS = {
    "totals": "training_tokens",
    "total_flop": "training_tokens",
    "total_pflop_days": "training_tokens",
    "cost_usd": "usd_per_gpu_hour",
    "cost": "usd_per_gpu_hour",
    "carbon_kg_co2e": "grid_region",
}
"""Field without which a part of the answer is null."""

MOST_COMPLETIONS = 3

MAIN = "fits, device_peak_bytes, parameters.total, total_flop, step_seconds, mfu_fraction, gpu_hours, days, cost_usd"
"""Common metrics, suggested when no name is similar."""


def fits(verdict: Verdict) -> bool:
    """Whether the job more likely fits than not."""
    return verdict != "out_of_memory"


@dataclass(frozen=True, slots=True)
class Metric:
    """One number of every answer."""

    path: Path
    """Path from the answer to the number, list items as given."""

    def value_in(self, answer: Answer) -> float:
        """The number as in the JSON of the answer."""
        value = self.read(whole_of(answer))
        if value is None:
            raise Refused(*_needs(self.path, answer))
        number: float = value["value"] if isinstance(value, dict) else value
        return int(number) if isinstance(number, bool) else number

    def read(self, whole: Mapping[str, Any]) -> Any:
        """Value in the JSON of an answer."""
        value: Any = whole
        for step in self.path:
            if value is None:
                break
            value = _item(value, step) if isinstance(value, list) else _field(value, step)
        return value

    @property
    def is_interval(self) -> bool:
        """Whether it is a prediction with a lower and an upper end."""
        ends = (*self.path, "low")
        return any(len(path) == len(ends) and _is_same(ends, path) for path in _paths())

    @property
    def has_items(self) -> bool:
        """Whether it is in a list."""
        return any(ITEM in path and len(path) == len(self.path) and _is_same(self.path, path) for path in _paths())


def whole_of(answer: Answer) -> dict[str, Any]:
    """The answer as JSON values, with the metric that is no leaf of it."""
    return {**to_wire(answer), FITS: fits(answer.verdict)}


@lru_cache(maxsize=1024)
def metric_named(name: str) -> Metric:
    steps = tuple(name.lower().split("."))
    found = [path for path in _paths() if _is_tail(steps, path)]
    nearest = [path for path in found if len(path) == min(map(len, found))]
    if not nearest:
        raise UnknownMetric(f"no number of the answer is named {quoted(name)}; {_near(name)}")
    if len(nearest) > 1:
        names = ", ".join(".".join(_with_steps(path, steps)) for path in nearest[:8])
        message = f"{len(found)} numbers of the answer have this name"
        raise Refused(Problem(field="metric", code="ambiguous_metric", message=message, fix=f"use one of {names}"))
    (path,) = nearest
    return Metric(_with_steps(path, steps))


def _with_steps(path: Path, steps: Path) -> Path:
    """The path with its last steps as given."""
    return (*path[: len(path) - len(steps)], *steps)


@cache
def _paths() -> Sequence[Path]:
    """Paths of all numbers of an answer, the shortest first."""
    return sorted(dict.fromkeys([(FITS,), *_leaves(Answer, ())]), key=len)


def _leaves(hint: Any, path: Path) -> Iterator[Path]:
    if get_origin(hint) in {Union, UnionType}:
        for option in get_args(hint):
            yield from () if option is NoneType else _leaves(option, path)
    elif get_origin(hint) is tuple:
        yield from _leaves(get_args(hint)[0], (*path, ITEM))
    elif is_dataclass(hint):
        yield from [path] if hint is Interval else []
        hints = get_type_hints(hint)
        for field in fields(hint):
            yield from _leaves(hints[field.name], (*path, WIRE_NAMES.get(field.name, field.name)))
    elif hint in {int, float, bool} or (get_origin(hint) is Literal and isinstance(get_args(hint)[0], int)):
        yield path


def _is_tail(steps: Path, path: Path) -> bool:
    """Whether the steps are the end of the path and name an item of each list."""
    missing = len(path) - len(steps)
    if missing < 0 or ITEM in path[: missing + 1]:
        return False
    return _is_same(steps, path[missing:])


def _is_same(steps: Path, path: Path) -> bool:
    """Whether the steps match the path, with an item for each list."""
    return all(known in {step, ITEM} for step, known in zip(steps, path, strict=True))


def _field(value: Any, step: str) -> Any:
    """Field of an object; None if a name replaces the object."""
    return value.get(step) if isinstance(value, dict) else None


def _item(items: list[Any], step: str) -> Any:
    kinds = [item["kind"] for item in items if isinstance(item, dict) and "kind" in item]
    places = [*map(str, range(len(items))), *kinds]
    if step in places:
        return items[places.index(step) % len(items)]
    if not items:
        raise UnknownMetric("the list of this metric is empty in the answer to this question; ask for another metric")
    known = f"the kinds {', '.join(kinds)}" if kinds else f"0 to {len(items) - 1}"
    raise UnknownMetric(f"the list of this metric has no item {quoted(step)}; it has {known}")


def _needs(path: Path, answer: Answer) -> list[Problem]:
    resolved = answer.resolved
    absent = {
        "training_tokens": resolved.recipe.training_tokens is None,
        "usd_per_gpu_hour": resolved.price is None,
        "grid_region": resolved.cluster.grid_kg_co2e_per_kwh is None,
    }
    missing = [REQUIRED_FIELDS[step] for step in path if step in REQUIRED_FIELDS and absent[REQUIRED_FIELDS[step]]]
    if not missing:
        message = f"{'.'.join(path)} does not apply to this question: its answer is null"
        return [Problem(field="metric", code="not_known", message=message, fix="ask for another metric")]
    return [
        Problem(field=name, code="not_known", message=f"{path[-1]} is not known without {name}", fix=f"give {name}")
        for name in dict.fromkeys(missing)
    ]


@cache
def _names() -> Mapping[str, str]:
    """Names similar to those that callers type, with valid names: of lists the first item."""
    names: dict[str, str] = {}
    for path in _paths():
        whole = ".".join("0" if step == ITEM else step for step in path)
        names[whole] = whole
        if path[-1] != ITEM:
            names.setdefault(path[-1], whole if ITEM in path else path[-1])
    return names


def _near(name: str) -> str:
    names = _names()
    begun = sorted((known for known in names if known.startswith(f"{name.lower()}_")), key=len)
    near = [names[known] for known in begun[:MOST_COMPLETIONS] or nearest(name, sorted(names))]
    return did_you_mean(list(dict.fromkeys(near))) or f"most callers ask for {MAIN}"


COLUMNS: Mapping[str, str] = {
    "oom_probability_fraction": "memory.oom_probability_fraction",
    "device_peak_bytes": "memory.device_peak_bytes",
    "usable_bytes": "memory.usable_bytes",
    "step_seconds": "step.step_seconds",
    "tokens_per_s_per_gpu": "step.tokens_per_s_per_gpu",
    "mfu_fraction": "step.mfu_fraction",
    "gpu_hours": "totals.gpu_hours",
    "days": "totals.days",
    "cost_usd": "totals.cost_usd",
    "energy_kwh": "totals.energy_kwh",
    "carbon_kg_co2e": "totals.carbon_kg_co2e",
}
"""Default numbers of a row, with their paths."""


def number_named(field: str, name: str) -> Metric:
    """Find a metric for a field of a request."""
    try:
        return metric_named(COLUMNS.get(name.lower(), name))
    except UnknownMetric as unknown:
        fix = "use a name that GET /v1/cell/{metric} takes, such as cost_usd or parts.gemm.seconds"
        raise Refused(Problem(field=field, code="unknown_metric", message=str(unknown), fix=fix)) from None
    except Refused as refused:
        raise Refused(*(replace(problem, field=field) for problem in refused.problems)) from None


def named_metrics(field: str, names: Sequence[str] | None, reserved: Sequence[str]) -> Mapping[str, Metric]:
    """Metrics of the columns of a row."""
    given = [name.lower() for name in names or COLUMNS]
    repeated = [place for place, name in enumerate(given) if name in given[:place] or name in reserved]
    if repeated:
        message = "the column stands in each row already, and nothing can stand there twice"
        fix = "name each number once, and no column that every row has"
        raise Refused(*(Problem(field=f"{field}.{n}", code="repeated", message=message, fix=fix) for n in repeated))
    return {name: number_named(f"{field}.{place}", name) for place, name in enumerate(given)}


def number_in(metric: Metric, whole: Mapping[str, Any]) -> Any:
    """Value of a metric, with its ends if it is an interval."""
    try:
        return metric.read(whole)
    except UnknownMetric:
        return None


def number_columns(metrics: Mapping[str, Metric]) -> list[str]:
    """Names of the columns of numbers; interval ends are named as in cells.

    >>> number_columns({name: metric_named(name) for name in ("days", "usable_bytes")})
    ['days.low', 'days', 'days.high', 'usable_bytes']
    """
    return [
        name
        for number, metric in metrics.items()
        for name in ((f"{number}.low", number, f"{number}.high") if metric.is_interval else (number,))
    ]


def number_cells(metrics: Mapping[str, Metric], numbers: Mapping[str, Any]) -> list[Any]:
    """The numbers of a row in those columns."""
    cells: list[Any] = []
    for name, metric in metrics.items():
        number = numbers.get(name)
        ends = number if isinstance(number, Mapping) else {}
        cells += [ends.get(end) for end in ("low", "value", "high")] if metric.is_interval else [number]
    return cells
