"""Requests for a comparison: one question, a list of clusters, their prices, and the order of the rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Annotated, Any, ClassVar, Literal, cast

from annotated_types import Len

from service.answers.rows import MOST_ROWS
from service.catalogue import Catalogue
from service.catalogue.prices import PriceQuery
from service.catalogue.rows import PriceRow
from service.errors import MOST_PROBLEMS, Problem, Refused, refuse
from service.estimator.question import Name, OwnedPrice, Price, PriceModel, Strict
from service.planner.steps import Steps
from service.validation import question_parts
from service.validation.flat import ALIASES, EXAMPLE, LIST_MARK, FlatForm, body_of_flat, flat_fields, read_value
from service.validation.forms import DescribedAs, requiring
from service.validation.json_text import apply_merge_patch
from service.validation.problems import Collector, DistinctCollector, not_an_object, refused_at
from service.validation.questions import ParsedQuestion, read_question
from service.validation.reading import field_names, read_spec

Pairing = Literal["product", "zip"]

ANY = "*"
"""Wildcard for every value in the catalogue."""

SPREAD = ("provider", "region", "price_model", "instance_type")
"""Fields of a catalogue price that take the wildcard."""

IMPLIED = dict.fromkeys(SPREAD[1:3], ANY)
"""Implied fields of a price of any provider."""

TERMS = (*SPREAD, "rate_card", "price_as_of")
"""Fields of a row that tell the origin of its price; null where unknown."""

Wildcard = Annotated[Any, DescribedAs(Annotated[str, Len(1)])]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedPrices:
    """Prices of the catalogue, one row for each provider, region and terms; * stands for all of them."""

    __pydantic_config__: ClassVar[dict[str, Any]] = requiring("provider")

    provider: Wildcard = None
    """A name; * for each that the catalogue holds."""
    region: Wildcard = None
    """A name; * for each that the catalogue holds."""
    price_model: Wildcard = None
    """A name; * for each that the catalogue holds."""
    instance_type: Wildcard = None
    """A name; * for each that the catalogue holds."""


OfferForm = Annotated[
    Any,
    DescribedAs(Price | question_parts.CataloguePrice | question_parts.CardPrice | OwnedPrice | ComparedPrices | None),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedCluster:
    """A cluster of a comparison, with what is its own."""

    __pydantic_config__: ClassVar[dict[str, Any]] = requiring("cluster")

    cluster: question_parts.ClusterForm = None
    """What it is."""
    name: Annotated[str, Len(1, 120)] | None = None
    """What to call it; the name of its preset where absent."""
    recipe: Annotated[Any, DescribedAs(question_parts.RecipePatch | None)] = None
    """Fields of the recipe that are its own."""
    layout: Annotated[Any, DescribedAs(question_parts.LayoutPatch | None)] = None
    """Fields of the layout that are its own."""
    price: OfferForm = None
    """Its own price, instead of those of the list."""


ClusterList = Annotated[
    Any, DescribedAs(Annotated[tuple[question_parts.ClusterForm | ComparedCluster, ...], Len(1, MOST_ROWS)] | None)
]
PriceList = Annotated[Any, DescribedAs(Annotated[tuple[OfferForm, ...], Len(1, MOST_ROWS)] | None)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonOptions(Strict):
    """How the rows of a comparison are made, shown and ordered."""

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
class ComparisonRequest(ComparisonOptions):
    """One question, the clusters and the prices that it is compared on, and the order of the rows."""

    __pydantic_config__: ClassVar[dict[str, Any]] = requiring("question")

    question: Annotated[Any, DescribedAs(question_parts.JobQuestion)] = None
    """What POST /v1/estimates takes; its cluster and price may be in the lists instead."""
    clusters: ClusterList = None
    """What the job is compared on; null for the cluster of the question alone."""
    prices: PriceList = None
    """Prices that clusters without one of their own are compared at; null for that of the question, or for none."""


QUESTION, CLUSTERS, PRICES = "question", "clusters", "prices"

CHANGED = ("recipe", "layout")
"""Parts of the question that a cluster may override."""

OF_A_CLUSTER = field_names(ComparedCluster)

COMPARED = (*field_names(ComparisonRequest), *OF_A_CLUSTER)

OTHER_FIELDS = field_names(ComparisonOptions)

LISTS: Mapping[str, str] = {"cluster": CLUSTERS, "price": PRICES}
"""Parts of a question whose fields may repeat, with the list that they make."""

FlatComparison = Annotated[
    Any,
    FlatForm(
        "FlatComparison",
        "A question in its flat form, with several values of the fields of a cluster and of a price.",
        several=(*LISTS,),
        wildcard=dict.fromkeys(SPREAD, ANY),
        beside=ComparisonOptions,
        example=EXAMPLE | {"gpu": [EXAMPLE["gpu"]], "gpus": [EXAMPLE["gpus"]]},
    ),
]


def refuse_price(value: object, catalogue: Catalogue) -> None:
    """Refuse an invalid price, whatever the GPU."""
    if isinstance(value, Mapping) and _has_wildcard(value):
        whole = {**IMPLIED, **value} if value.get("provider") == ANY else value
        value = {**whole, "price_model": "on-demand"} if whole.get("price_model") == ANY else whole
    question_parts.read_price(value, None, catalogue)


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


def terms_given(value: Any) -> dict[str, str | None]:
    """Terms of a price as given in the request."""
    given = value if isinstance(value, Mapping) else {}
    known = {name: given[name] for name in (*SPREAD, "rate_card") if isinstance(given.get(name), str)}
    return dict.fromkeys(TERMS) | known


def terms_of(value: Any, gpu: str, catalogue: Catalogue) -> dict[str, str | None]:
    """Where a price comes from."""
    unknown: dict[str, str | None] = dict.fromkeys(TERMS)
    if not isinstance(value, Mapping):
        return unknown
    if "rate_card" in value:
        card = catalogue.find_rate_card(value["rate_card"]).row
        return unknown | {"rate_card": card.slug, "price_model": value.get("price_model"), "price_as_of": card.as_of}
    if "provider" not in value:
        return unknown | {"price_model": value.get("price_model"), "price_as_of": value.get("as_of")}
    query = PriceQuery(
        provider=value["provider"],
        region=value["region"],
        price_model=cast(PriceModel, value["price_model"]),
        gpu=gpu,
        instance_type=value.get("instance_type"),
    )
    row = catalogue.newest_price(query).row
    return unknown | {name: getattr(row, name) for name in SPREAD} | {"price_as_of": row.as_of}


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
    cluster: Any
    cluster_place: str
    name: str | None = None
    """Name that the caller gave."""
    changes: Mapping[str, Mapping[str, Any]]
    """Fields of the question that it overrides, by part."""
    price: Any = None
    """Its own price; None without one."""

    @property
    def own_price(self) -> Sequence[tuple[str, Any]]:
        """Its own price with its dotted path; empty without one."""
        return () if self.price is None else ((f"{self.place}.price", self.price),)

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
    problems = Collector()
    own = problems.read(read_spec, ComparedCluster, value, place)
    changes = {part: value[part] for part in CHANGED if value.get(part) is not None}
    for part, change in changes.items():
        if not isinstance(change, Mapping):
            problems.add(not_an_object(f"{place}.{part}", ["fields that are this cluster's own"]))
    problems.refuse()
    return Entry(
        place=place,
        cluster=value.get("cluster"),
        cluster_place=f"{place}.cluster",
        name=None if own is None else own.name,
        changes=changes,
        price=value.get("price"),
    )


def _below(place: str, rest: str) -> str:
    return f"{place}.{rest}" if rest else place


Parameters = Sequence[tuple[str, str]]


def body_of_flat_comparison(parameters: Parameters) -> dict[str, Any]:
    """Body of a flat comparison: of repeated fields of the cluster and of the price, all combinations are compared."""
    options = [(name, text) for name, text in parameters if name in OTHER_FIELDS]
    fields = [(name, text) for name, text in parameters if name not in OTHER_FIELDS]
    rest = [(name, text) for name, text in fields if _part_of(name) not in LISTS]
    body = _flat_options(options) | {QUESTION: body_of_flat(rest, beside=OTHER_FIELDS)}
    for part, many in LISTS.items():
        given: dict[str, list[str]] = {}
        for name, text in fields:
            if _part_of(name) == part:
                given.setdefault(ALIASES.get(name, name), []).append(text)
        if given:
            count = prod(map(len, given.values()))
            if count > MOST_ROWS:
                longest = max(given, key=lambda name: len(given[name]))
                message = f"the values make {count} combinations, and one comparison takes {MOST_ROWS} rows"
                raise Refused(Problem(field=longest, code="too_many_rows", message=message, fix="give fewer values"))
            combinations = (tuple(zip(given, one, strict=True)) for one in product(*given.values()))
            body[many] = [body_of_flat(one)[part] for one in combinations]
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


def _flat_options(given: Parameters) -> dict[str, Any]:
    """Options of a flat comparison: columns may repeat or be separated by semicolons; others occur once."""
    options: dict[str, Any] = {}
    for name, text in given:
        if name == "columns":
            options.setdefault(name, []).extend(text.split(LIST_MARK))
        elif name in options:
            message = f"{name} is given more than once, and takes one value"
            raise Refused(Problem(field=name, code="repeated", message=message, fix="give it once"))
        else:
            options[name] = read_value(name, "truth", text, ".") if name == "descending" else text
    return options


Placed = tuple[str, Any]
"""A value of the request with its dotted path."""

NO_PRICE: Sequence[Placed] = ((PRICES, None),)


@dataclass(frozen=True, slots=True)
class Variant:
    """The question on one of the clusters, at some prices."""

    entry: Entry
    """The cluster and its overrides."""
    parsed: ParsedQuestion
    prices: Sequence[Placed]
    """Each unparsed price; None for no price."""


def read_comparison(
    body: Mapping[str, Any], catalogue: Catalogue
) -> Steps[tuple[ComparisonRequest, Sequence[Variant]]]:
    """Parse a request body: the request, and its question on each cluster."""
    problems = DistinctCollector()
    request = problems.read(_request, body)
    question = problems.read(_question, body)
    problems.refuse()
    if request is None or question is None:
        raise Refused
    clusters, prices = _listed(body, question, CLUSTERS), _listed(body, question, PRICES)
    for price in prices:
        problems.read(_refuse_price, price, catalogue)
    entries = [problems.read(read_entry, *cluster) for cluster in clusters]
    problems.refuse()
    paired = _paired([entry for entry in entries if entry is not None], prices, request)
    variants: list[Variant] = []
    for entry, own in paired:
        parsed = problems.read(_read_on_cluster, entry, question, catalogue)
        for price in entry.own_price:
            problems.read(_refuse_price, price, catalogue)
        variants += [] if parsed is None else [Variant(entry, parsed, own)]
        if len(problems.problems) >= MOST_PROBLEMS:
            break
        yield None
    problems.refuse()
    return request, tuple(variants)


def _request(body: Mapping[str, Any]) -> ComparisonRequest:
    try:
        return read_spec(ComparisonRequest, body, "", whole="the comparison")
    except Refused as refused:
        unknown = [problem for problem in refused.problems if problem.code == "unknown_field"]
        raise Refused(*(unknown or refused.problems)) from None


def _question(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The unparsed question, without parts that are also in a list."""
    question = body.get(QUESTION)
    if question is None:
        message = "question is missing; it says which job is compared"
        fix = "give what POST /v1/estimates takes; its cluster and price may stand in clusters and prices instead"
        raise Refused(Problem(field=QUESTION, code="required", message=message, fix=fix))
    if not isinstance(question, Mapping):
        raise Refused(not_an_object(QUESTION, question_parts.PARTS))
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
    refuse(twice)
    return question


def _listed(body: Mapping[str, Any], question: Mapping[str, Any], name: str) -> list[Placed]:
    one = name.removesuffix("s")
    items = body.get(name)
    if items is None:
        if question.get(one) is not None:
            return [(f"{QUESTION}.{one}", question[one])]
        if name == PRICES:
            return []
        message = "clusters is missing; it says what the job is compared on"
        fix = 'give clusters, e.g. ["dgx-h100", {"gpu": "a100-sxm4-80gb", "gpus": 8}]'
        raise Refused(Problem(field=name, code="required", message=message, fix=fix))
    if not isinstance(items, list) or not 0 < len(items) <= MOST_ROWS:
        fix = f"give a list, or leave it out and give {QUESTION}.{one}"
        message = f"{name} is not a list of 1 to {MOST_ROWS} {name}"
        raise Refused(Problem(field=name, code="not_a_list", message=message, fix=fix))
    return [(f"{name}.{place}", item) for place, item in enumerate(items)]


def _refuse_price(price: Placed, catalogue: Catalogue) -> None:
    place, value = price
    try:
        refuse_price(value, catalogue)
    except Refused as refused:
        raise refused_at(place, refused, "price") from None


def _paired(
    entries: Sequence[Entry], prices: Sequence[Placed], request: ComparisonRequest
) -> list[tuple[Entry, Sequence[Placed]]]:
    """Each cluster with its own price, else with those of the list."""
    if request.pair == "zip" and len(prices) != len(entries):
        message = (
            f"zip puts each cluster beside one price, and there are {len(entries)} clusters and {len(prices)} prices"
        )
        fix = "give as many prices as clusters (null for none), or pair them as product"
        raise Refused(Problem(field=PRICES, code="lengths_differ", message=message, fix=fix))
    if not entries or not prices:
        return [(entry, entry.own_price or NO_PRICE) for entry in entries]
    offered = [[price] for price in prices] if request.pair == "zip" else [prices] * len(entries)
    idle = [
        each[0][0] for entry, each in zip(entries, offered, strict=True) if entry.own_price and each[0][1] is not None
    ]
    if request.pair == "zip" and idle:
        raise Refused(*(_idle(place) for place in idle[:MOST_PROBLEMS]))
    if len(idle) == len(entries):
        raise Refused(_idle(prices[0][0].partition(".")[0] if prices[0][0].startswith(PRICES) else prices[0][0]))
    return [(entry, entry.own_price or each) for entry, each in zip(entries, offered, strict=True)]


def _idle(place: str) -> Problem:
    message = f"{place} would change nothing, because the clusters that it is for have prices of their own"
    return Problem(field=place, code="told_twice", message=message, fix="leave it out, or leave their prices out")


def _read_on_cluster(entry: Entry, question: Mapping[str, Any], catalogue: Catalogue) -> ParsedQuestion:
    body = {name: value for name, value in entry.question(question).items() if name != "price"}
    try:
        return read_question(body, catalogue)
    except Refused as refused:
        raise Refused(*map(entry.placed, refused.problems)) from None
