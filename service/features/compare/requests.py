"""Requests for a comparison: one question, a list of clusters, their prices, and the order of the rows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Annotated, Any, ClassVar, Literal, TypeVar, cast

from annotated_types import Len

from service.catalogue import Catalogue
from service.catalogue.prices import PriceQuery
from service.catalogue.rows import PriceRow
from service.errors import MOST_PROBLEMS, Problem, Refused
from service.estimator.names import STRICT, Name, PriceModel
from service.estimator.question import Layout, Recipe
from service.planner.steps import Steps
from service.validation.flat import ALIASES, body_of_flat, flat_fields
from service.validation.flat_values import LIST_MARK, read_value
from service.validation.merge_patch import merged
from service.validation.prices import read_price
from service.validation.problems import not_an_object, unknown_field
from service.validation.questions import ReadQuestion, read_question
from service.validation.specs import field_names, read_spec

MOST_ROWS = 1_000
"""Rows of one comparison."""

Pairing = Literal["product", "zip"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonOptions:
    """How the rows of a comparison are made, shown and ordered."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    pair: Pairing = "product"
    """product: every cluster at every price. zip: the first cluster at the first price, and so on."""
    sort_by: Name | None = None
    """Number to sort by, by the name that cells give it; cost_usd where absent, or else gpu_hours, or step_seconds,
    the first of them that a row knows."""
    descending: bool = False
    """Whether the largest comes first."""
    columns: Annotated[tuple[Name, ...], Len(1, 40)] | None = None
    """Numbers of each row, by the names that cells give them; those that most callers want where absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """What a cluster is called in the rows of a comparison."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    name: Annotated[str, Len(1, 120)] | None = None
    """What to call it; the name of its preset where absent."""


QUESTION, CLUSTERS, PRICES = "question", "clusters", "prices"
"""What is asked, and the lists that it is asked for."""

CHANGED: Mapping[str, type] = {"recipe": Recipe, "layout": Layout}
"""Parts of the question that a cluster may have fields of its own in, and the nouns that they spell."""

OF_A_CLUSTER = ("cluster", *field_names(Called), *CHANGED, "price")
"""What an object in the list of clusters may hold, where it is more than a cluster."""

FIELDS = (QUESTION, CLUSTERS, PRICES, *field_names(ComparisonOptions))
"""What a comparison is made of."""

COMPARED = (*FIELDS, *OF_A_CLUSTER)
"""Every name that the body of a comparison may hold beside the nouns of its question."""


ANY = "*"
"""Stands for every value that the catalogue holds."""

SPREAD = ("provider", "region", "price_model", "instance_type")
"""Fields of a catalogue price in which * may stand."""

IMPLIED = dict.fromkeys(SPREAD[1:3], ANY)
"""What need not be said where every provider is meant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Where a price comes from; null where that is not known."""

    provider: str | None = None
    """Who rents the GPUs out."""
    region: str | None = None
    """Where, in the provider's spelling."""
    price_model: str | None = None
    """On what terms."""
    instance_type: str | None = None
    """Which machine, in the provider's spelling."""
    rate_card: str | None = None
    """Slug of the team's own rate card."""
    price_as_of: str | None = None
    """Date of the price."""


def refuse_price(value: object, catalogue: Catalogue) -> None:
    """Refuse what is no price in any form, whichever GPU it is for."""
    if isinstance(value, Mapping) and _is_spread(value):
        whole = {**IMPLIED, **value} if value.get("provider") == ANY else value
        value = {**whole, "price_model": "on-demand"} if whole.get("price_model") == ANY else whole
    read_price(value, None, catalogue)


def prices_meant(value: Any, gpu: str, catalogue: Catalogue) -> list[Any]:
    """The prices that an item of the list means for one GPU."""
    if not isinstance(value, Mapping) or not _is_spread(value):
        return [value]
    whole = {**IMPLIED, **value} if value["provider"] == ANY else {**value}
    names = [name for name in SPREAD if name != "instance_type" or name in whole]
    rows = [row for row in catalogue.price_index.of_gpu(gpu) if all(_is_met(row, name, whole) for name in names)]
    if not rows:
        message = f"the catalogue holds no price of {gpu} that this asks for"
        fix = "give usd_per_gpu_hour for this cluster, or ask for other providers, regions or terms"
        raise Refused(Problem(field="price", code="unknown_price", message=message, fix=fix))
    found = sorted({tuple(str(getattr(row, name)) for name in names) for row in rows})
    return [{**whole, **dict(zip(names, one, strict=True))} for one in found]


def terms_told(value: Any) -> Terms:
    """Which price a caller asks for, by the caller's own words."""
    told = value if isinstance(value, Mapping) else {}
    return Terms(**{name: told[name] for name in (*SPREAD, "rate_card") if isinstance(told.get(name), str)})


def terms_of(value: Any, gpu: str, catalogue: Catalogue) -> Terms:
    """Where a price comes from."""
    if not isinstance(value, Mapping):
        return Terms()
    if "rate_card" in value:
        card = catalogue.find_rate_card(value["rate_card"]).row
        return Terms(rate_card=card.slug, price_model=value.get("price_model"), price_as_of=card.as_of)
    if "provider" not in value:
        return Terms(price_model=value.get("price_model"), price_as_of=value.get("as_of"))
    query = PriceQuery(
        provider=value["provider"],
        region=value["region"],
        price_model=cast(PriceModel, value["price_model"]),
        gpu=gpu,
        instance_type=value.get("instance_type"),
    )
    row = catalogue.newest_price(query).row
    return Terms(
        provider=row.provider,
        region=row.region,
        price_model=row.price_model,
        instance_type=row.instance_type,
        price_as_of=row.as_of,
    )


def _is_spread(value: Mapping[str, Any]) -> bool:
    return any(value.get(name) == ANY for name in SPREAD)


def _is_met(row: PriceRow, name: str, wanted: Mapping[str, Any]) -> bool:
    """Whether a row is one of those that a field asks for; a price for everywhere answers to any region."""
    said = str(wanted[name]).casefold()
    held = str(getattr(row, name)).casefold()
    return said in (ANY, held) or (name == "region" and held == "all")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An item of the list of clusters, its values still as they were sent."""

    place: str
    """Dotted path of the item."""
    cluster: Any
    """The cluster, in any form that a question takes."""
    cluster_place: str
    """Dotted path of the cluster."""
    name: str | None = None
    """What the caller calls it."""
    changes: Mapping[str, Mapping[str, Any]]
    """Fields of the question that are its own, by part."""
    price: Any = None
    """Its own price; None where it has none."""

    @property
    def price_place(self) -> str:
        """Dotted path of its own price."""
        return f"{self.place}.price"

    @property
    def own_price(self) -> Sequence[tuple[str, Any]]:
        """Its own price behind its dotted path; empty where it has none."""
        return () if self.price is None else ((self.price_place, self.price),)

    def question(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """The question on this cluster."""
        own = {part: merged(asked.get(part), change) for part, change in self.changes.items()}
        return {**asked, **own, "cluster": self.cluster}

    def placed(self, problem: Problem, price_place: str = "") -> Problem:
        """A problem of the question on this cluster, at the field of the request that has to change."""
        part, _, rest = problem.field.partition(".")
        if part == "cluster":
            return replace(problem, field=_below(self.cluster_place, rest))
        if part == "price" and price_place:
            return replace(problem, field=_below(price_place, rest))
        own = self.changes.get(part, {})
        is_own = rest.partition(".")[0] in own if rest else bool(own)
        return replace(problem, field=_below(self.place if is_own else QUESTION, problem.field))

    def called(self, catalogue: Catalogue) -> str | None:
        """What the cluster is called: by the caller, else by the catalogue."""
        preset = self.cluster.get("preset") if isinstance(self.cluster, Mapping) else self.cluster
        return self.name or (None if preset is None else catalogue.find_cluster(preset).row.slug)


def read_entry(place: str, value: Any) -> Entry:
    """An item of the list of clusters."""
    if not isinstance(value, Mapping) or not _holds_more(value):
        return Entry(place=place, cluster=value, cluster_place=place, changes={})
    unknown = [name for name in value if name not in OF_A_CLUSTER][:MOST_PROBLEMS]
    problems = [unknown_field(place, name, {*OF_A_CLUSTER}) for name in unknown]
    changes = {part: value[part] for part in CHANGED if value.get(part) is not None}
    problems += [
        not_an_object(f"{place}.{part}", ["fields that are this cluster's own"])
        for part, change in changes.items()
        if not isinstance(change, Mapping)
    ]
    if problems:
        raise Refused(*problems)
    called = read_spec(Called, {name: value[name] for name in field_names(Called) if name in value}, place)
    return Entry(
        place=place,
        cluster=value.get("cluster"),
        cluster_place=f"{place}.cluster",
        name=called.name,
        changes=changes,
        price=value.get("price"),
    )


def _holds_more(value: Mapping[str, Any]) -> bool:
    """Whether an object holds a cluster, rather than being one; one field that only such an object has is enough."""
    return any(name in value for name in OF_A_CLUSTER)


def _below(place: str, rest: str) -> str:
    return f"{place}.{rest}" if rest else place


BESIDE = field_names(ComparisonOptions)
"""What a flat comparison takes beside the fields of a question."""

LISTS: Mapping[str, str] = {"cluster": CLUSTERS, "price": PRICES}
"""Parts of a question whose fields may be told several times, and the list that they make."""

Parameters = Sequence[tuple[str, str]]


def body_of_flat_comparison(parameters: Parameters) -> dict[str, Any]:
    """The body that a flat comparison stands for.

    Fields of the cluster may be given several times, and those of the price: all their combinations are compared.
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
    """A problem of a comparison, by the field of its question."""
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


Part = TypeVar("Part")
Placed = tuple[str, Any]
"""A value of the request behind its dotted path."""

NO_PRICE: Sequence[Placed] = ((PRICES, None),)


@dataclass(frozen=True, slots=True)
class Variant:
    """The question on one of the clusters, at some prices."""

    entry: Entry
    """The cluster, and what is its own."""
    asked: ReadQuestion
    """The question, without a price."""
    prices: Sequence[Placed]
    """Each price as it was sent; None for no price."""


@dataclass(frozen=True, slots=True)
class ComparisonRequest:
    """A comparison, as it was asked for."""

    variants: Sequence[Variant]
    """The question on each cluster."""
    manner: ComparisonOptions
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


def read_comparison(body: Mapping[str, Any], catalogue: Catalogue) -> Steps[ComparisonRequest]:
    """The comparison that a request body asks for."""
    problems = _Problems()
    manner = problems.read(lambda: _read_manner(body))
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
    return ComparisonRequest(tuple(variants), manner)


def _read_manner(body: Mapping[str, Any]) -> ComparisonOptions:
    known = {name: body[name] for name in field_names(ComparisonOptions) if name in body}
    unknown = [name for name in body if name not in FIELDS][:MOST_PROBLEMS]
    if unknown:
        raise Refused(*(unknown_field("", name, {*FIELDS}, "the comparison") for name in unknown))
    return read_spec(ComparisonOptions, known, "")


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


def _paired(
    entries: Sequence[Entry], prices: Sequence[Placed], manner: ComparisonOptions
) -> list[tuple[Entry, Sequence[Placed]]]:
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


def _asked(entry: Entry, question: Mapping[str, Any], catalogue: Catalogue) -> ReadQuestion:
    """The question on a cluster, without a price."""
    body = {name: value for name, value in entry.question(question).items() if name != "price"}
    try:
        return read_question(body, catalogue)
    except Refused as refused:
        raise Refused(*map(entry.placed, refused.problems)) from None
