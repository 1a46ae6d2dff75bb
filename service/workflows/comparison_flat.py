"""Which comparison does a flat question mean whose cluster or price is told more than once?"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

from service.errors import Problem, Refused
from service.workflows.comparison_label import CLUSTERS, MOST_ROWS, PRICES, QUESTION, Manner
from service.workflows.flat import ALIASES, body_of_flat, flat_fields
from service.workflows.flat_values import LIST_MARK, read_value
from service.workflows.nouns import field_names

BESIDE = field_names(Manner)
"""What a flat comparison takes beside the fields of a question."""

LISTS: Mapping[str, str] = {"cluster": CLUSTERS, "price": PRICES}
"""Parts of a question whose fields may be told several times, and the list that they make."""

Parameters = Sequence[tuple[str, str]]


def body_of_flat_comparison(parameters: Parameters) -> dict[str, Any]:
    """The body that a flat comparison stands for.

    Fields of the cluster may be given several times, and those of the price: all their combinations are compared.

    Args:
        parameters: names and texts as they were given, in order

    Returns:
        body for `compare`

    Raises:
        Refused: an unknown or repeated parameter, a text that does not spell a value, or too many combinations
    """
    manner = [(name, text) for name, text in parameters if name in BESIDE]
    fields = [(name, text) for name, text in parameters if name not in BESIDE]
    rest = [(name, text) for name, text in fields if _part_of(name) not in LISTS]
    body = _manner(manner) | {QUESTION: body_of_flat(rest, beside=BESIDE)}
    for part, many in LISTS.items():
        given: dict[str, list[str]] = {}
        for name, text in fields:
            if _part_of(name) == part:
                given.setdefault(ALIASES.get(name, name), []).append(text)
        if given:
            body[many] = [body_of_flat(one)[part] for one in _combinations(given)]
    return body


def told_flat(problem: Problem) -> Problem:
    """A problem of a comparison, by the field of its question.

    Args:
        problem: what is wrong, by its field in the body

    Returns:
        the same by the path that the flat form knows, such as `cluster.gpus`
    """
    first, _, rest = problem.field.partition(".")
    if first == QUESTION:
        return replace(problem, field=rest)
    part = next((part for part, many in LISTS.items() if many == first), None)
    if part is None:
        return problem
    inner = rest.partition(".")[2]
    return replace(problem, field=f"{part}.{inner}" if inner else part)


def _part_of(name: str) -> str:
    field = flat_fields().get(ALIASES.get(name, name))
    return "" if field is None else field.path[0]


def _combinations(given: Mapping[str, Sequence[str]]) -> list[Parameters]:
    count = prod(map(len, given.values()))
    if count > MOST_ROWS:
        name = max(given, key=lambda name: len(given[name]))
        message = f"the values make {count} combinations, and one comparison takes {MOST_ROWS} rows"
        raise Refused(Problem(field=name, code="too_many_rows", message=message, fix="give fewer values"))
    return [tuple(zip(given, one, strict=True)) for one in product(*given.values())]


def _manner(given: Parameters) -> dict[str, Any]:
    """How the rows are to stand: columns several times, or separated by semicolons; anything else once."""
    read: dict[str, Callable[[str], Any]] = {
        "descending": lambda text: read_value("descending", "truth", text, "."),
    }
    found: dict[str, Any] = {}
    for name, text in given:
        if name == "columns":
            found.setdefault(name, []).extend(text.split(LIST_MARK))
        elif name in found:
            message = f"{name} is given more than once, and takes one value"
            raise Refused(Problem(field=name, code="repeated", message=message, fix="give it once"))
        else:
            found[name] = read.get(name, str)(text)
    return found
