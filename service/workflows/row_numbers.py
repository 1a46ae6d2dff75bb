"""Which numbers does each row of a table say, by which names?"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from service.errors import Problem, Refused, UnknownMetric
from service.workflows.metrics import Metric, metric_named

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
    """The number that a name in a request means.

    Args:
        field: field of the request that holds the name
        name: the name

    Returns:
        the number

    Raises:
        Refused: no number, or several, have that name
    """
    try:
        return metric_named(COLUMNS.get(name.lower(), name))
    except UnknownMetric as unknown:
        fix = "use a name that GET /v1/cell/{metric} takes, such as cost_usd or parts.gemm.seconds"
        raise Refused(Problem(field=field, code="unknown_metric", message=str(unknown), fix=fix)) from None
    except Refused as refused:
        raise Refused(*(replace(problem, field=field) for problem in refused.problems)) from None


def named_metrics(field: str, names: Sequence[str] | None, taken: Sequence[str]) -> Mapping[str, Metric]:
    """The numbers of each row.

    Args:
        field: field of the request that lists their names
        names: the names; None for those that most callers want
        taken: names that every row has anyway

    Returns:
        the numbers by name

    Raises:
        Refused: a name means no number, or stands there twice
    """
    given = [name.lower() for name in names or COLUMNS]
    repeated = [place for place, name in enumerate(given) if name in given[:place] or name in taken]
    if repeated:
        message = "the column stands in each row already, and nothing can stand there twice"
        fix = "name each number once, and no column that every row has"
        raise Refused(*(Problem(field=f"{field}.{n}", code="repeated", message=message, fix=fix) for n in repeated))
    return {name: number_named(f"{field}.{place}", name) for place, name in enumerate(given)}


def number_in(metric: Metric, whole: Mapping[str, Any]) -> Any:
    """A number of an answer, with its ends where it has any.

    Args:
        metric: the number
        whole: the JSON of the answer, of `whole_of`

    Returns:
        the number; None where this answer does not know it
    """
    try:
        return metric.found_in(whole)
    except UnknownMetric:
        return None
