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
from service.estimator.question import STRICT, Layout, Name, PriceModel, Recipe
from service.planner.steps import Steps
from service.validation.flat import ALIASES, body_of_flat, flat_fields
from service.validation.flat_values import LIST_MARK, read_value
from service.validation.merge_patch import apply_merge_patch
from service.validation.prices import read_price
from service.validation.problems import not_an_object, unknown_field
from service.validation.questions import ParsedQuestion, read_question
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
class ClusterName:
    """Name of a cluster in a comparison."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    name: Annotated[str, Len(1, 120)] | None = None
    """What to call it; the name of its preset where absent."""


QUESTION, CLUSTERS, PRICES = "question", "clusters", "prices"
"""The question, and the lists of clusters and prices."""

CHANGED: Mapping[str, type] = {"recipe": Recipe, "layout": Layout}
"""Parts of the question that a cluster may override, with their specs."""

OF_A_CLUSTER = ("cluster", *field_names(ClusterName), *CHANGED, "price")
"""Fields of an entry that holds more than a cluster."""

FIELDS = (QUESTION, CLUSTERS, PRICES, *field_names(ComparisonOptions))
"""Fields of a comparison."""

COMPARED = (*FIELDS, *OF_A_CLUSTER)
"""Fields of a comparison and of its entries."""


ANY = "*"
"""Wildcard for every value in the catalogue."""

SPREAD = ("provider", "region", "price_model", "instance_type")
"""Fields of a catalogue price that take the wildcard."""

IMPLIED = dict.fromkeys(SPREAD[1:3], ANY)
"""Implied fields of a price of any provider."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Origin of a price; null where unknown."""

    provider: str | None = None
    """Provider of the GPUs."""
    region: str | None = None
    """Region in the spelling of the provider."""
    price_model: str | None = None
    """Terms."""
    instance_type: str | None = None
    """Machine in the spelling of the provider."""
    rate_card: str | None = None
    """Slug of the team's own rate card."""
    price_as_of: str | None = None
    """Date of the price."""


def refuse_price(value: object, catalogue: Catalogue) -> None:
    """Refuse an invalid price, whatever the GPU."""
    if isinstance(value, Mapping) and _has_wildcard(value):
        whole = {**IMPLIED, **value} if value.get("provider") == ANY else value
        value = {**whole, "price_model": "on-demand"} if whole.get("price_model") == ANY else whole
    read_price(value, None, catalogue)


def matching_prices(value: Any, gpu: str, catalogue: Catalogue) -> list[Any]:
    """Prices that an item of the list selects for one GPU."""
    if not isinstance(value, Mapping) or not _has_wildcard(value):
        return [value]
    whole = {**IMPLIED, **value} if value["provider"] == ANY else {**value}
    names = [name for name in SPREAD if name != "instance_type" or name in whole]
    rows = [row for row in catalogue.price_index.of_gpu(gpu) if all(_is_met(row, name, whole) for name in names)]
    if not rows:
        message = f"the catalogue holds no price of {gpu} that this asks for"
        fix = "give usd_per_gpu_hour for this cluster, or ask for other providers, regions or terms"
        raise Refused(Problem(field="price", code="unknown_price", message=message, fix=fix))
    values = sorted({tuple(str(getattr(row, name)) for name in names) for row in rows})
    return [{**whole, **dict(zip(names, one, strict=True))} for one in values]


def terms_given(value: Any) -> Terms:
    """Terms of a price as given in the request."""
    given = value if isinstance(value, Mapping) else {}
    return Terms(**{name: given[name] for name in (*SPREAD, "rate_card") if isinstance(given.get(name), str)})


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


def _has_wildcard(value: Mapping[str, Any]) -> bool:
    return any(value.get(name) == ANY for name in SPREAD)


def _is_met(row: PriceRow, name: str, query: Mapping[str, Any]) -> bool:
    """Whether a price matches a field; a price for all regions matches any region."""
    requested = str(query[name]).casefold()
    row_value = str(getattr(row, name)).casefold()
    return requested in (ANY, row_value) or (name == "region" and row_value == "all")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An item of the list of clusters with its unparsed values."""

    place: str
    """Dotted path of the item."""
    cluster: Any
    """The cluster, in any form that a question takes."""
    cluster_place: str
    """Dotted path of the cluster."""
    name: str | None = None
    """Name that the caller gave."""
    changes: Mapping[str, Mapping[str, Any]]
    """Fields of the question that it overrides, by part."""
    price: Any = None
    """Its own price; None without one."""

    @property
    def price_place(self) -> str:
        """Dotted path of its own price."""
        return f"{self.place}.price"

    @property
    def own_price(self) -> Sequence[tuple[str, Any]]:
        """Its own price with its dotted path; empty without one."""
        return () if self.price is None else ((self.price_place, self.price),)

    def question(self, base: Mapping[str, Any]) -> dict[str, Any]:
        """The question on this cluster."""
        own = {part: apply_merge_patch(base.get(part), change) for part, change in self.changes.items()}
        return {**base, **own, "cluster": self.cluster}

    def placed(self, problem: Problem, price_place: str = "") -> Problem:
        """A problem of the question on this cluster, at the field of the request to change."""
        part, _, rest = problem.field.partition(".")
        if part == "cluster":
            return replace(problem, field=_below(self.cluster_place, rest))
        if part == "price" and price_place:
            return replace(problem, field=_below(price_place, rest))
        own = self.changes.get(part, {})
        is_own = rest.partition(".")[0] in own if rest else bool(own)
        return replace(problem, field=_below(self.place if is_own else QUESTION, problem.field))

    def called(self, catalogue: Catalogue) -> str | None:
        """Name of the cluster from the caller, else from the catalogue."""
        preset = self.cluster.get("preset") if isinstance(self.cluster, Mapping) else self.cluster
        return self.name or (None if preset is None else catalogue.find_cluster(preset).row.slug)


def read_entry(place: str, value: Any) -> Entry:
    """An item of the list of clusters."""
    if not isinstance(value, Mapping) or not any(name in value for name in OF_A_CLUSTER):
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
    called = read_spec(ClusterName, {name: value[name] for name in field_names(ClusterName) if name in value}, place)
    return Entry(
        place=place,
        cluster=value.get("cluster"),
        cluster_place=f"{place}.cluster",
        name=called.name,
        changes=changes,
        price=value.get("price"),
    )


def _below(place: str, rest: str) -> str:
    return f"{place}.{rest}" if rest else place


BESIDE = field_names(ComparisonOptions)
"""Fields of a flat comparison beside those of a question."""

LISTS: Mapping[str, str] = {"cluster": CLUSTERS, "price": PRICES}
"""Parts of a question whose fields may repeat, with the list that they make."""

Parameters = Sequence[tuple[str, str]]


def body_of_flat_comparison(parameters: Parameters) -> dict[str, Any]:
    """Body of a flat comparison.

    Fields of the cluster and of the price may repeat: all their combinations are compared.
    """
    options = [(name, text) for name, text in parameters if name in BESIDE]
    fields = [(name, text) for name, text in parameters if name not in BESIDE]
    rest = [(name, text) for name, text in fields if _part_of(name) not in LISTS]
    body = _flat_options(options) | {QUESTION: body_of_flat(rest, beside=BESIDE)}
    for part, many in LISTS.items():
        given: dict[str, list[str]] = {}
        for name, text in fields:
            if _part_of(name) == part:
                given.setdefault(ALIASES.get(name, name), []).append(text)
        if given:
            body[many] = [body_of_flat(one)[part] for one in _combinations(given)]
    return body


def flat_problem(problem: Problem) -> Problem:
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


def _flat_options(given: Parameters) -> dict[str, Any]:
    """Options of a flat comparison: columns may repeat or be separated by semicolons; others occur once."""
    read: dict[str, Callable[[str], Any]] = {
        "descending": lambda text: read_value("descending", "truth", text, "."),
    }
    options: dict[str, Any] = {}
    for name, text in given:
        if name == "columns":
            options.setdefault(name, []).extend(text.split(LIST_MARK))
        elif name in options:
            message = f"{name} is given more than once, and takes one value"
            raise Refused(Problem(field=name, code="repeated", message=message, fix="give it once"))
        else:
            options[name] = read.get(name, str)(text)
    return options


Part = TypeVar("Part")
Placed = tuple[str, Any]
"""A value of the request with its dotted path."""

NO_PRICE: Sequence[Placed] = ((PRICES, None),)


@dataclass(frozen=True, slots=True)
class Variant:
    """The question on one of the clusters, at some prices."""

    entry: Entry
    """The cluster and its overrides."""
    parsed: ParsedQuestion
    """The question, without a price."""
    prices: Sequence[Placed]
    """Each unparsed price; None for no price."""


@dataclass(frozen=True, slots=True)
class ComparisonRequest:
    """Parsed request for a comparison."""

    variants: Sequence[Variant]
    """The question on each cluster."""
    options: ComparisonOptions
    """How the rows are to stand."""


class _Problems:
    """Distinct problems of a request."""

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
        """Raise the problems, if any."""
        if self.found:
            raise Refused(*list(self.found)[:MOST_PROBLEMS])


def read_comparison(body: Mapping[str, Any], catalogue: Catalogue) -> Steps[ComparisonRequest]:
    """Parse a request body."""
    problems = _Problems()
    options = problems.read(lambda: _read_options(body))
    question = problems.read(lambda: _question(body))
    problems.refuse()
    if options is None or question is None:
        raise Refused
    clusters, prices = _listed(body, question, CLUSTERS), _listed(body, question, PRICES)
    for price in prices:
        problems.read(lambda price=price: _refuse_price(price, catalogue))  # type: ignore[misc]  # bound at once
    entries = [problems.read(lambda cluster=cluster: read_entry(*cluster)) for cluster in clusters]  # type: ignore[misc]  # bound at once
    problems.refuse()
    paired = _paired([entry for entry in entries if entry is not None], prices, options)
    variants: list[Variant] = []
    for entry, own in paired:
        parsed = problems.read(lambda entry=entry: _read_on_cluster(entry, question, catalogue))  # type: ignore[misc]  # bound at once
        if entry.price is not None:
            problems.read(lambda entry=entry: _refuse_price((entry.price_place, entry.price), catalogue))  # type: ignore[misc]  # bound at once
        variants += [] if parsed is None else [Variant(entry, parsed, own)]
        if len(problems.found) >= MOST_PROBLEMS:
            break
        yield None
    problems.refuse()
    return ComparisonRequest(tuple(variants), options)


def _read_options(body: Mapping[str, Any]) -> ComparisonOptions:
    known = {name: body[name] for name in field_names(ComparisonOptions) if name in body}
    unknown = [name for name in body if name not in FIELDS][:MOST_PROBLEMS]
    if unknown:
        raise Refused(*(unknown_field("", name, {*FIELDS}, "the comparison") for name in unknown))
    return read_spec(ComparisonOptions, known, "")


def _question(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The unparsed question, without parts that are also in a list."""
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
    """Items of a list, or the single one in the question."""
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
    entries: Sequence[Entry], prices: Sequence[Placed], options: ComparisonOptions
) -> list[tuple[Entry, Sequence[Placed]]]:
    """Each cluster with its own price, else with those of the list."""
    if options.pair == "zip" and len(prices) != len(entries):
        message = (
            f"zip puts each cluster beside one price, and there are {len(entries)} clusters and {len(prices)} prices"
        )
        fix = "give as many prices as clusters (null for none), or pair them as product"
        raise Refused(Problem(field=PRICES, code="lengths_differ", message=message, fix=fix))
    if not entries or not prices:
        return [(entry, entry.own_price or NO_PRICE) for entry in entries]
    offered = [[price] for price in prices] if options.pair == "zip" else [prices] * len(entries)
    idle = [
        each[0][0] for entry, each in zip(entries, offered, strict=True) if entry.own_price and each[0][1] is not None
    ]
    if options.pair == "zip" and idle:
        raise Refused(*(_idle(place) for place in idle[:MOST_PROBLEMS]))
    if len(idle) == len(entries):
        raise Refused(_idle(prices[0][0].partition(".")[0] if prices[0][0].startswith(PRICES) else prices[0][0]))
    return [(entry, entry.own_price or each) for entry, each in zip(entries, offered, strict=True)]


def _idle(place: str) -> Problem:
    message = f"{place} would change nothing, because the clusters that it is for have prices of their own"
    return Problem(field=place, code="told_twice", message=message, fix="leave it out, or leave their prices out")


def _read_on_cluster(entry: Entry, question: Mapping[str, Any], catalogue: Catalogue) -> ParsedQuestion:
    """The question on a cluster, without a price."""
    body = {name: value for name, value in entry.question(question).items() if name != "price"}
    try:
        return read_question(body, catalogue)
    except Refused as refused:
        raise Refused(*map(entry.placed, refused.problems)) from None
