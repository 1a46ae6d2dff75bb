"""Numbers of an answer by name: their own, or as much of their path as is unambiguous."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache, lru_cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from service.answers.estimates import Answer
from service.answers.names import WIRE_NAMES
from service.errors import Problem, Refused, UnknownMetric, did_you_mean, nearest
from service.estimator.answer import Interval, Verdict
from service.validation.serialization import to_wire

Path = tuple[str, ...]

ITEM = "*"
"""Step into a list: a position from 0, or the item's kind."""

FITS = "fits"
"""1 unless the verdict is out_of_memory, then 0: the one metric that is no leaf of the answer."""

NEEDED = {
    "totals": "training_tokens",
    "total_flop": "training_tokens",
    "total_pflop_days": "training_tokens",
    "cost_usd": "usd_per_gpu_hour",
    "cost": "usd_per_gpu_hour",
    "carbon_kg_co2e": "grid_region",
}
"""Field without which a part of the answer is null."""

MOST_BEGUN = 3
"""Metrics that are shown to those who give the beginning of their name, such as mfu."""

MAIN = "fits, device_peak_bytes, parameters.total, total_flop, step_seconds, mfu_fraction, gpu_hours, days, cost_usd"
"""What most callers ask for, to show those whose name resembles nothing."""


def fits(verdict: Verdict) -> bool:
    """Whether the job more likely fits than not."""
    return verdict != "out_of_memory"


@dataclass(frozen=True, slots=True)
class Metric:
    """One number of every answer: where it stands."""

    path: Path
    """Steps from the answer to the number, list positions as the caller gave them."""

    def value_in(self, answer: Answer) -> float:
        """The number, as the JSON of the answer holds it."""
        value = self.found_in(whole_of(answer))
        if value is None:
            raise Refused(*_needs(self.path, answer))
        number: float = value["value"] if isinstance(value, dict) else value
        return int(number) if isinstance(number, bool) else number

    def found_in(self, whole: Mapping[str, Any]) -> Any:
        """What the JSON of an answer holds there."""
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
        """Whether it stands in a list."""
        return any(ITEM in path and len(path) == len(self.path) and _is_same(self.path, path) for path in _paths())


def whole_of(answer: Answer) -> dict[str, Any]:
    """The JSON of an answer, with the number that is no leaf of it."""
    return {**to_wire(answer), FITS: fits(answer.verdict)}


@lru_cache(maxsize=1024)
def metric_named(name: str) -> Metric:
    """The number that a name means."""
    steps = tuple(name.lower().split("."))
    found = [path for path in _paths() if _is_tail(steps, path)]
    nearest = [path for path in found if len(path) == min(map(len, found))]
    if not nearest:
        raise UnknownMetric(f"no number of the answer has this name; {_near(name)}")
    if len(nearest) > 1:
        said = ", ".join(".".join(_with_steps(path, steps)) for path in nearest[:8])
        message = f"{len(found)} numbers of the answer have this name"
        raise Refused(Problem(field="metric", code="ambiguous_metric", message=message, fix=f"use one of {said}"))
    (path,) = nearest
    return Metric(_with_steps(path, steps))


def _with_steps(path: Path, steps: Path) -> Path:
    """The path with its last steps as the caller gave them."""
    return (*path[: len(path) - len(steps)], *steps)


@cache
def _paths() -> Sequence[Path]:
    """The path of every number of an answer, the less deep ones first."""
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
    """Whether the steps are the last ones of the path, and name every list that it passes."""
    unsaid = len(path) - len(steps)
    if unsaid < 0 or ITEM in path[: unsaid + 1]:
        return False
    return _is_same(steps, path[unsaid:])


def _is_same(steps: Path, path: Path) -> bool:
    """Whether the steps are those of the path, with an item named for each list."""
    return all(known in {step, ITEM} for step, known in zip(steps, path, strict=True))


def _field(value: Any, step: str) -> Any:
    """A field of an object; null where a name alone stands instead of the object."""
    return value.get(step) if isinstance(value, dict) else None


def _item(items: list[Any], step: str) -> Any:
    """An item of a list, by its position or by its kind."""
    kinds = [item["kind"] for item in items if isinstance(item, dict) and "kind" in item]
    places = [*map(str, range(len(items))), *kinds]
    if step in places:
        return items[places.index(step) % len(items)]
    if not items:
        raise UnknownMetric("the list of this metric is empty in the answer to this question; ask for another metric")
    known = f"the kinds {', '.join(kinds)}" if kinds else f"0 to {len(items) - 1}"
    raise UnknownMetric(f"the list of this metric has no such item; it has {known}")


def _needs(path: Path, answer: Answer) -> list[Problem]:
    """What the question must say before the number at the path is known."""
    resolved = answer.resolved
    absent = {
        "training_tokens": resolved.recipe.training_tokens is None,
        "usd_per_gpu_hour": resolved.price is None,
        "grid_region": resolved.cluster.grid_kg_co2e_per_kwh is None,
    }
    wanted = [NEEDED[step] for step in path if step in NEEDED and absent[NEEDED[step]]]
    if not wanted:
        message = f"{'.'.join(path)} does not apply to this question: its answer is null"
        return [Problem(field="metric", code="not_known", message=message, fix="ask for another metric")]
    return [
        Problem(
            field=name,
            code="not_known",
            message=f"{path[-1]} is not known without {name}",
            fix=f"give {name}",
        )
        for name in dict.fromkeys(wanted)
    ]


@cache
def _names() -> Mapping[str, str]:
    """Names that resemble what callers type, each with a name that works: items of a list by their first."""
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
    near = [names[known] for known in begun[:MOST_BEGUN] or nearest(name, sorted(names))]
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
"""Numbers of a row where the caller names none, each with its path."""


def number_named(field: str, name: str) -> Metric:
    """The number that a name in a request means."""
    try:
        return metric_named(COLUMNS.get(name.lower(), name))
    except UnknownMetric as unknown:
        fix = "use a name that GET /v1/cell/{metric} takes, such as cost_usd or parts.gemm.seconds"
        raise Refused(Problem(field=field, code="unknown_metric", message=str(unknown), fix=fix)) from None
    except Refused as refused:
        raise Refused(*(replace(problem, field=field) for problem in refused.problems)) from None


def named_metrics(field: str, names: Sequence[str] | None, taken: Sequence[str]) -> Mapping[str, Metric]:
    """The numbers of each row."""
    given = [name.lower() for name in names or COLUMNS]
    repeated = [place for place, name in enumerate(given) if name in given[:place] or name in taken]
    if repeated:
        message = "the column stands in each row already, and nothing can stand there twice"
        fix = "name each number once, and no column that every row has"
        raise Refused(*(Problem(field=f"{field}.{n}", code="repeated", message=message, fix=fix) for n in repeated))
    return {name: number_named(f"{field}.{place}", name) for place, name in enumerate(given)}


def number_in(metric: Metric, whole: Mapping[str, Any]) -> Any:
    """A number of an answer, with its ends where it has any."""
    try:
        return metric.found_in(whole)
    except UnknownMetric:
        return None
