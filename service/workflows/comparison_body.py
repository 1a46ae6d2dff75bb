"""What is to be compared? One question on each cluster of a list, the prices, and how the rows are to stand."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from service.catalogue import Catalogue
from service.errors import MOST_PROBLEMS, Problem, Refused
from service.planner.steps import Steps
from service.workflows.comparison_cluster import Entry, read_entry
from service.workflows.comparison_label import CLUSTERS, FIELDS, MOST_ROWS, PRICES, QUESTION, Manner
from service.workflows.comparison_prices import refuse_price
from service.workflows.findings import not_an_object, unknown_field
from service.workflows.nouns import field_names, read_noun
from service.workflows.questions import Asked, read_question

Part = TypeVar("Part")
Placed = tuple[str, Any]
"""A value of the request behind its dotted path."""

NO_PRICE: Sequence[Placed] = ((PRICES, None),)


@dataclass(frozen=True, slots=True)
class Variant:
    """The question on one of the clusters, at some prices."""

    entry: Entry
    """The cluster, and what is its own."""
    asked: Asked
    """The question, without a price."""
    prices: Sequence[Placed]
    """Each price as it was sent; None for no price."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A comparison, as it was asked for."""

    variants: Sequence[Variant]
    """The question on each cluster."""
    manner: Manner
    """How the rows are to stand."""


class _Problems:
    """What is wrong with a request, each thing once."""

    def __init__(self) -> None:
        self.found: dict[Problem, None] = {}

    def read(self, part: Callable[[], Part]) -> Part | None:
        """A part of the request, or None where it is refused."""
        try:
            return part()
        except Refused as refused:
            self.found |= dict.fromkeys(refused.problems)
            return None

    def refuse(self) -> None:
        """End here if anything was wrong."""
        if self.found:
            raise Refused(*list(self.found)[:MOST_PROBLEMS])


def read_comparison(body: Mapping[str, Any], catalogue: Catalogue) -> Steps[Wanted]:
    """The comparison that a request body asks for.

    Args:
        body: the JSON object of the request
        catalogue: the facts

    Yields:
        nothing, between one cluster and the next, so that others may be answered meanwhile

    Returns:
        what is asked

    Raises:
        Refused: every unknown field, wrong value and unknown name of the body
    """
    problems = _Problems()
    manner = problems.read(lambda: _manner(body))
    question = problems.read(lambda: _question(body))
    problems.refuse()
    if manner is None or question is None:
        raise Refused
    clusters, prices = _listed(body, question, CLUSTERS), _listed(body, question, PRICES)
    for price in prices:
        problems.read(lambda price=price: _refuse_price(price, catalogue))  # type: ignore[misc]  # bound at once
    entries = [problems.read(lambda cluster=cluster: read_entry(*cluster)) for cluster in clusters]  # type: ignore[misc]  # bound at once
    problems.refuse()
    paired = _paired([entry for entry in entries if entry is not None], prices, manner)
    variants: list[Variant] = []
    for entry, own in paired:
        asked = problems.read(lambda entry=entry: _asked(entry, question, catalogue))  # type: ignore[misc]  # bound at once
        if entry.price is not None:
            problems.read(lambda entry=entry: _refuse_price((entry.price_place, entry.price), catalogue))  # type: ignore[misc]  # bound at once
        variants += [] if asked is None else [Variant(entry, asked, own)]
        if len(problems.found) >= MOST_PROBLEMS:
            break
        yield None
    problems.refuse()
    return Wanted(tuple(variants), manner)


def _manner(body: Mapping[str, Any]) -> Manner:
    known = {name: body[name] for name in field_names(Manner) if name in body}
    unknown = [name for name in body if name not in FIELDS][:MOST_PROBLEMS]
    if unknown:
        raise Refused(*(unknown_field("", name, {*FIELDS}, "the comparison") for name in unknown))
    return read_noun(Manner, known, "")


def _question(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The question as it was sent, with nothing that a list tells too."""
    question = body.get(QUESTION)
    if question is None:
        message = "question is missing; it says which job is compared"
        fix = "give what POST /v1/estimates takes; its cluster and price may stand in clusters and prices instead"
        raise Refused(Problem(field=QUESTION, code="required", message=message, fix=fix))
    if not isinstance(question, Mapping):
        raise Refused(not_an_object(QUESTION, ["model", "recipe", "layout", "cluster", "price"]))
    twice = [
        Problem(
            field=f"{QUESTION}.{one}",
            code="told_twice",
            message=f"{one} of the question would change nothing, because {many} tells what it is asked for",
            fix=f"leave it out, or put it into {many}",
        )
        for one, many in (("cluster", CLUSTERS), ("price", PRICES))
        if question.get(one) is not None and body.get(many) is not None
    ]
    if twice:
        raise Refused(*twice)
    return question


def _listed(body: Mapping[str, Any], question: Mapping[str, Any], name: str) -> list[Placed]:
    """The items of a list, or the only one, which stands in the question."""
    one = name.removesuffix("s")
    items = body.get(name)
    if items is None:
        return [(f"{QUESTION}.{one}", question[one])] if question.get(one) is not None else _absent(name)
    if not isinstance(items, list) or not 0 < len(items) <= MOST_ROWS:
        fix = f"give a list, or leave it out and give {QUESTION}.{one}"
        message = f"{name} is not a list of 1 to {MOST_ROWS} {name}"
        raise Refused(Problem(field=name, code="not_a_list", message=message, fix=fix))
    return [(f"{name}.{place}", item) for place, item in enumerate(items)]


def _absent(name: str) -> list[Placed]:
    if name == PRICES:
        return []
    message = "clusters is missing; it says what the job is compared on"
    fix = 'give clusters, e.g. ["dgx-h100", {"gpu": "a100-sxm4-80gb", "gpus": 8}]'
    raise Refused(Problem(field=name, code="required", message=message, fix=fix))


def _refuse_price(price: Placed, catalogue: Catalogue) -> None:
    place, value = price
    try:
        refuse_price(value, catalogue)
    except Refused as refused:
        moved = [replace(p, field=f"{place}{p.field.removeprefix('price')}") for p in refused.problems]
        raise Refused(*moved) from None


def _paired(entries: Sequence[Entry], prices: Sequence[Placed], manner: Manner) -> list[tuple[Entry, Sequence[Placed]]]:
    """Each cluster with the prices that it is asked at: its own one, else those of the list."""
    if manner.pair == "zip" and len(prices) != len(entries):
        message = (
            f"zip puts each cluster beside one price, and there are {len(entries)} clusters and {len(prices)} prices"
        )
        fix = "give as many prices as clusters (null for none), or pair them as product"
        raise Refused(Problem(field=PRICES, code="lengths_differ", message=message, fix=fix))
    if not entries or not prices:
        return [(entry, entry.own_price or NO_PRICE) for entry in entries]
    offered = [[price] for price in prices] if manner.pair == "zip" else [prices] * len(entries)
    idle = [
        each[0][0] for entry, each in zip(entries, offered, strict=True) if entry.own_price and each[0][1] is not None
    ]
    if manner.pair == "zip" and idle:
        raise Refused(*(_idle(place) for place in idle[:MOST_PROBLEMS]))
    if len(idle) == len(entries):
        raise Refused(_idle(prices[0][0].partition(".")[0] if prices[0][0].startswith(PRICES) else prices[0][0]))
    return [(entry, entry.own_price or each) for entry, each in zip(entries, offered, strict=True)]


def _idle(place: str) -> Problem:
    message = f"{place} would change nothing, because the clusters that it is for have prices of their own"
    return Problem(field=place, code="told_twice", message=message, fix="leave it out, or leave their prices out")


def _asked(entry: Entry, question: Mapping[str, Any], catalogue: Catalogue) -> Asked:
    """The question on a cluster, without a price."""
    body = {name: value for name, value in entry.question(question).items() if name != "price"}
    try:
        return read_question(body, catalogue)
    except Refused as refused:
        raise Refused(*map(entry.placed, refused.problems)) from None
