"""Parts of a question: models, clusters and prices as a request may spell them, read and described in the contract."""

from calendar import monthrange
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from annotated_types import Ge, Interval, Lt
from pydantic import Field

from service.catalogue import SHIPPED, Catalogue, ClusterRow, PriceRow, RegionRow
from service.catalogue.catalogue import calibrated_gpu
from service.catalogue.indexes import Found
from service.catalogue.machines import machine_named
from service.catalogue.prices import PriceQuery, newest_price, rate_of
from service.catalogue.rows import is_date
from service.errors import Problem, Refused, UnknownName, quoted
from service.estimator.question import (
    DESCRIBED,
    Cluster,
    Egress,
    Gpu,
    Layout,
    Model,
    Name,
    OwnedPrice,
    Price,
    PriceModel,
    Recipe,
    Share,
    Storage,
    Strict,
)
from service.estimator.rules.training import problems_of_model
from service.validation.forms import DescribedAs, Patch, Variant, requiring
from service.validation.problems import not_an_object, unknown_field
from service.validation.quantities import number_of
from service.validation.reading import (
    Parsed,
    assumptions_of,
    field_names,
    fields_of,
    purchase_of,
    read_name,
    read_spec,
    with_rows,
    with_sources,
)

MODEL_FIELDS = field_names(Model)

VALUE_IS_A_LIST = ("stage_layers",)
"""Fields of a layout whose value is itself a list."""

CONFIG_PATH = "model.hf_config"


def read_model(value: object, catalogue: Catalogue) -> Parsed[Model]:
    if isinstance(value, str):
        return _preset(value, catalogue, "model")
    if not isinstance(value, Mapping):
        raise Refused(not_an_object("model", ["preset", "hf_config", *MODEL_FIELDS]))
    if "hf_config" in value:
        return _imported(value)
    if "preset" in value:
        preset = _preset(read_name(value["preset"], "model.preset"), catalogue, "model.preset")
        changes = {name: item for name, item in value.items() if name != "preset"}
        changed = {**fields_of(preset.spec), **changes}
        return replace(preset, spec=read_spec(Model, changed, "model", beside=("preset",)))
    return Parsed(read_spec(Model, value, "model", beside=("preset", "hf_config")))


def _preset(name: str, catalogue: Catalogue, field: str) -> Parsed[Model]:
    found = catalogue.find_model(name, field)
    if found.row.model is None:
        message = f"this model cannot be estimated: {found.row.not_estimated}"
        fix = "choose another preset (GET /v1/models), or give the model inline"
        raise Refused(Problem(field=field, code="not_estimable", message=message, fix=fix))
    return with_rows(Parsed(found.row.model, assumptions_of(found)), catalogue, found.row)


def _imported(value: Mapping[str, Any]) -> Parsed[Model]:
    if len(value) > 1:
        beside = next(name for name in value if name != "hf_config")
        raise Refused(unknown_field("model", beside, {"hf_config"}))
    return read_config(value["hf_config"])


def read_config(config: object, path: str = CONFIG_PATH) -> Parsed[Model]:
    try:
        return _config(config)
    except Refused as refused:
        fields = (f"{path}{problem.field.removeprefix(CONFIG_PATH)}".lstrip(".") for problem in refused.problems)
        moved = (replace(problem, field=field) for problem, field in zip(refused.problems, fields, strict=True))
        raise Refused(*moved) from None


def _config(config: object) -> Parsed[Model]:
    if not isinstance(config, Mapping):
        raise Refused(not_an_object(CONFIG_PATH, ["model_type", "hidden_size", "num_hidden_layers"]))
    from service.catalogue.huggingface import import_config

    imported = import_config(config)
    checked = read_spec(Model, fields_of(imported.model), CONFIG_PATH)
    problems = problems_of_model(checked)
    if problems:
        raise Refused(*(replace(problem, field=CONFIG_PATH) for problem in problems))
    return Parsed(checked, imported.assumptions, imported.warnings)


CLUSTER_FIELDS = field_names(Cluster)


@dataclass(frozen=True, slots=True)
class Machine:
    """A cluster with the facts of its GPU."""

    cluster: Cluster
    gpu: Gpu


NETWORK_KEPT = "the preset's nodes and network are kept with the other GPU; inter_node_bytes_per_s changes the network"
"""Warning where a preset's GPU is changed and its network is not."""


NodeCount = Annotated[int, Interval(ge=1, le=1 << 20)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes(Strict):
    """The size of a cluster, counted in nodes."""

    nodes: NodeCount
    """Nodes in all; gpus is nodes x gpus_per_node."""


def read_cluster(value: object, catalogue: Catalogue) -> Parsed[Machine]:
    """The cluster of a request, with its GPU."""
    if isinstance(value, str):
        try:
            found = catalogue.find_cluster(value, "cluster")
        except UnknownName:
            if machine_named(value) is None:
                raise
            return read_cluster({"gpu": value}, catalogue)
        return _with_gpu(found.row.cluster, catalogue, assumptions_of(found), found.row)
    if not isinstance(value, Mapping):
        raise Refused(not_an_object("cluster", ["preset", "nodes", *CLUSTER_FIELDS]))
    if "preset" not in value:
        spelled, assumptions = _of_machine(value)
        return _with_gpu(_sized({}, spelled), catalogue, assumptions)
    try:
        found = catalogue.find_cluster(read_name(value["preset"], "cluster.preset"), "cluster.preset")
    except UnknownName:
        if "gpu" in value or machine_named(value["preset"]) is None:
            raise
        others = {name: item for name, item in value.items() if name != "preset"}
        return read_cluster({"gpu": value["preset"], **others}, catalogue)
    unchanged = (NETWORK_KEPT,) if "gpu" in value and "inter_node_bytes_per_s" not in value else ()
    return _with_gpu(
        _sized(fields_of(found.row.cluster), value), catalogue, (*assumptions_of(found), *unchanged), found.row
    )


def _of_machine(value: Mapping[str, Any]) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """A cluster whose GPU a cloud's machine names, with what that says of it; other clusters as they are."""
    name = value.get("gpu")
    machine = machine_named(name) if isinstance(name, str) else None
    if machine is None:
        return value, ()
    size = {} if "nodes" in value else {"gpus": machine.gpus}
    spelled = {"gpus_per_node": machine.gpus, **size, **value, "gpu": machine.gpu}
    note = f"{quoted(name)} is a machine with {machine.gpus} x {machine.gpu}; gpus_per_node is"
    return spelled, (f"{note} {spelled['gpus_per_node']}",)


def _sized(known: Mapping[str, Any], value: Mapping[str, Any]) -> Cluster:
    """The cluster that a request makes of what is known; its size may be a number of nodes."""
    given = {name: item for name, item in value.items() if name not in {"preset", "nodes"}}
    beside = ("preset", "nodes")
    if "nodes" not in value:
        return read_spec(Cluster, {**known, **given}, "cluster", beside=beside)
    unsized = read_spec(Cluster, {"gpus": 1, **known, **given}, "cluster", beside=beside)
    return _of_nodes(unsized, value)


def _of_nodes(cluster: Cluster, value: Mapping[str, Any]) -> Cluster:
    nodes = read_spec(Nodes, {"nodes": value["nodes"]}, "cluster").nodes
    gpus = nodes * cluster.gpus_per_node
    if "gpus" in value and gpus != cluster.gpus:
        message = f"{nodes} nodes of {cluster.gpus_per_node} GPUs are {gpus} GPUs, but gpus says {cluster.gpus}"
        fix = "leave nodes or gpus out"
        raise Refused(Problem(field="cluster.nodes", code="nodes_contradict_gpus", message=message, fix=fix))
    return read_spec(Cluster, {**fields_of(cluster), "gpus": gpus}, "cluster")


def _with_gpu(
    cluster: Cluster, catalogue: Catalogue, assumptions: tuple[str, ...], preset: ClusterRow | None = None
) -> Parsed[Machine]:
    found = catalogue.find_gpu(cluster.gpu, "cluster.gpu")
    named = cluster if cluster.gpu == found.row.slug else replace(cluster, gpu=found.row.slug)
    machine = Machine(named, calibrated_gpu(found.row.slug, catalogue))
    rates = catalogue.calibrations.get(found.row.slug)
    return with_rows(Parsed(machine, (*assumptions, *assumptions_of(found))), catalogue, preset, found.row, rates)


def with_region(cluster: Cluster, price: object, catalogue: Catalogue) -> Parsed[Cluster]:
    """The cluster with the grid and PUE of its region, where it does not set them itself."""
    if cluster.grid_region is not None:
        row = catalogue.find_region(cluster.grid_region, "cluster.grid_region").row
        return with_rows(_filled(cluster, row, ""), catalogue, row)
    found = None if cluster.grid_kg_co2e_per_kwh is not None else _of_price(price, catalogue)
    if found is None:
        return Parsed(cluster)
    return with_rows(_filled(cluster, found.row, ", the place of the price"), catalogue, found.row)


def region_of_price(price: object, catalogue: Catalogue) -> str | None:
    found = _of_price(price, catalogue)
    return None if found is None else found.row.slug


def _of_price(price: object, catalogue: Catalogue) -> Found[RegionRow] | None:
    """The region of a catalogue price; None where its electricity is unknown."""
    if not isinstance(price, Mapping) or not {"provider", "region"} <= price.keys():
        return None
    try:
        return catalogue.find_region(f"{price['provider']}:{price['region']}")
    except UnknownName:
        return None


def _filled(cluster: Cluster, row: RegionRow, why: str) -> Parsed[Cluster]:
    own = cluster.grid_kg_co2e_per_kwh
    assumptions = []
    if own is None:
        assumptions.append(
            f"electricity of {row.slug} ({row.name}{why}): {row.grid_kg_co2e_per_kwh:.3g} kgCO2e/kWh, as of {row.as_of}"
        )
    if cluster.pue is None and row.pue is not None:
        assumptions.append(f"pue {row.pue:g} of the operator of {row.slug}: {row.pue_source}")
    filled = replace(
        cluster,
        grid_region=row.slug,
        grid_kg_co2e_per_kwh=row.grid_kg_co2e_per_kwh if own is None else own,
        pue=cluster.pue or row.pue,
    )
    return Parsed(filled, tuple(assumptions))


MOST_DAYS = 180
"""Age of a price from which an answer warns. Source: an assumption; AWS cut H100 list prices by 44 % in June 2025."""


def age_warnings(as_of: str | None, catalogue: Catalogue, instead: str) -> tuple[str, ...]:
    """Warnings about an old price, by the dates of the catalogue: the same versions give the same answer on any day."""
    if as_of is None:
        return ()
    newest = newest_as_of(catalogue)
    days = age_days(as_of, newest) if newest else 0
    if days <= MOST_DAYS:
        return ()
    return (
        f"the price is of {as_of}, at least {days} days older than the newest fact of this catalogue "
        f"({newest}): prices move, so ask for a new one and give {instead}",
    )


def newest_as_of(catalogue: Catalogue) -> str:
    """Date of the newest price or GPU of a catalogue."""
    return max((catalogue.price_index.newest_as_of, *(row.as_of for row in catalogue.gpus.values())))


def age_days(as_of: str, newest: str) -> int:
    """Days from the last day that one date may mean to the first day that a newer one may mean.

    >>> age_days("2025", "2026-03"), age_days("2026", "2026-11-21") <= 0
    (60, True)
    """
    return (_day(newest, is_last=False) - _day(as_of, is_last=True)).days


def _day(text: str, *, is_last: bool) -> date:
    """The first or last day that a date may mean; the calendar of Python has no year 0."""
    year, *rest = (int(part) for part in text.split("-"))
    year, month = max(year, 1), rest[0] if rest else 12 if is_last else 1
    last = monthrange(year, month)[1]
    return date(year, month, min(rest[1], last) if len(rest) > 1 else last if is_last else 1)


AnyPrice = Price | OwnedPrice
Dated = TypeVar("Dated", Price, OwnedPrice)
QUERY_FIELDS = ("provider", "region", "price_model", "instance_type")


@dataclass(frozen=True, slots=True, kw_only=True)
class CataloguePrice(Strict):
    """Where to look up what a GPU-hour costs; the newest matching row counts."""

    provider: Name
    """Who rents the GPUs out, e.g. aws."""
    region: Name
    """Where, in the provider's spelling, e.g. us-east-1; the cluster is taken to stand there where it does not say."""
    price_model: PriceModel
    """On what terms."""
    instance_type: Name | None = None
    """Which machine, in the provider's spelling; any where absent."""
    discount_fraction: Share = 0.0
    """Own discount on that price."""
    preemptions_per_instance_hour: Annotated[float, Ge(0), Lt(100)] | None = None
    """How often the provider takes one machine (a node) back; 2.2e-4, some 15 % of machines in a month, for spot where
    absent, else 0."""
    storage: Storage | None = None
    """Bytes that are kept; no such cost where absent."""
    egress: Egress | None = None
    """Bytes that are sent out; no such cost where absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardPrice(Strict):
    """The rate of a team's own card for the cluster's GPU."""

    rate_card: Name
    """Which rate card, by its slug."""
    price_model: PriceModel | None = None
    """On what terms; the rate without terms, or the only one, where absent."""
    discount_fraction: Share = 0.0
    """Own discount on that price."""
    preemptions_per_instance_hour: Annotated[float, Ge(0), Lt(100)] | None = None
    """How often the provider takes one machine (a node) back; 2.2e-4, some 15 % of machines in a month, for spot where
    absent, else 0."""
    storage: Storage | None = None
    """Bytes that are kept; no such cost where absent."""
    egress: Egress | None = None
    """Bytes that are sent out; no such cost where absent."""


KINDS = (Price, CataloguePrice, CardPrice, OwnedPrice)

SHARED_FIELDS = frozenset(name for name in field_names(Price) if sum(name in field_names(kind) for kind in KINDS) > 1)

FIELDS = tuple(dict.fromkeys(name for kind in KINDS for name in field_names(kind)))
TERMS = "price_model"
OWN_FIELDS: Mapping[type, frozenset[str]] = {kind: frozenset(field_names(kind)) - SHARED_FIELDS for kind in KINDS}

RENTAL_FIELD = "usd_per_gpu_hour"
PURCHASE_FIELD = "purchase_usd"

AMBIGUOUS_PRICE = Problem(
    field="price",
    code="priced_twice",
    message="price is given in two ways, and they may differ",
    fix="give usd_per_gpu_hour, or rate_card, or provider, region and price_model, or amortisation_years (own GPUs)",
)

NOT_A_DATE = Problem(
    field="price.as_of",
    code="not_a_date",
    message="as_of is no date, so the age of the price is unknown",
    fix="give 2025, 2025-03 or 2025-03-17, or leave it out",
)


def read_price(value: object, gpu: str | None, catalogue: Catalogue) -> Parsed[AnyPrice | None]:
    if value is None:
        return Parsed(None)
    if not isinstance(value, Mapping):
        rate = number_of(RENTAL_FIELD, value) if isinstance(value, str) else value
        if rate is None:
            message = f"price is {quoted(value)}, not one rate in US dollars"
            fix = f"give a number of USD per GPU-hour, e.g. 2.5 or $2.50/h, or an object with {', '.join(FIELDS)}"
            raise Refused(Problem("price", "not_a_number", message, fix))
        if isinstance(rate, bool) or not isinstance(rate, (int, float)):
            raise Refused(not_an_object("price", FIELDS))
        note = f"price {quoted(value)} -> price.{RENTAL_FIELD} = {quoted(rate)}"
        return Parsed(read_spec(Price, {RENTAL_FIELD: rate}, "price"), (note,))
    given = [kind for kind, marks in OWN_FIELDS.items() if marks & value.keys()]
    if len(given) > 1:
        raise Refused(AMBIGUOUS_PRICE)
    if OwnedPrice in given:
        owned = read_spec(OwnedPrice, value, "price", beside=FIELDS)
        return Parsed(None) if gpu is None else _bought(_dated(owned), gpu, catalogue)
    if CardPrice in given:
        by_card = read_spec(CardPrice, value, "price", beside=FIELDS)
        return Parsed(None) if gpu is None else _of_card(by_card, gpu, catalogue)
    if CataloguePrice in given or (TERMS in value and not given):
        request = read_spec(CataloguePrice, value, "price", beside=FIELDS)
        return Parsed(None) if gpu is None else _newest(request, gpu, catalogue)
    price = _dated(read_spec(Price, value, "price", beside=FIELDS))
    return Parsed(price, (), age_warnings(price.as_of, catalogue, RENTAL_FIELD))


def _dated(price: Dated) -> Dated:
    if price.as_of is not None and not is_date(price.as_of):
        raise Refused(NOT_A_DATE)
    return price


def _of_card(request: CardPrice, gpu: str, catalogue: Catalogue) -> Parsed[AnyPrice | None]:
    found = catalogue.find_rate_card(request.rate_card, "price.rate_card")
    card, rate = found.row, rate_of(found.row, gpu, request.price_model, "price")
    terms = f", {rate.row.price_model}" if rate.row.price_model else ""
    cost = rate.row.usd_per_gpu_hour
    assumption = f"a GPU-hour of {gpu} costs {cost:g} USD: rate card {card.slug}{terms}, as of {card.as_of}"
    price = _price(request, cost, card.as_of, rate.row.price_model or request.price_model)
    read: Parsed[AnyPrice | None] = Parsed(
        price,
        (assumption, *assumptions_of(found), *assumptions_of(rate)),
        age_warnings(card.as_of, catalogue, RENTAL_FIELD),
    )
    return with_rows(read, catalogue, card)


def _newest(request: CataloguePrice, gpu: str, catalogue: Catalogue) -> Parsed[AnyPrice | None]:
    terms = {name: value for name, value in fields_of(request).items() if name in QUERY_FIELDS}
    found = catalogue.newest_price(PriceQuery(gpu=gpu, **terms), "price")
    row = found.row
    assumption = (
        f"a GPU-hour costs {row.usd_per_gpu_hour:g} USD: {row.provider}, {row.instance_type}, as of {row.as_of}"
    )
    price = _price(request, row.usd_per_gpu_hour, row.as_of, request.price_model)
    beside = _beside_shipped(row, PriceQuery(gpu=gpu, **terms), catalogue)
    warnings = (*beside, *age_warnings(row.as_of, catalogue, RENTAL_FIELD))
    return with_rows(Parsed(price, (assumption, *assumptions_of(found)), warnings), catalogue, row)


def _beside_shipped(row: PriceRow, query: PriceQuery, catalogue: Catalogue) -> tuple[str, ...]:
    """A warning where a custom price takes precedence over a shipped one of the same provider and terms."""
    if row.owner == SHIPPED:
        return ()
    shipped = [one for one in catalogue.price_index.offered_by(query.gpu, query.provider) if one.owner == SHIPPED]
    try:
        listed = newest_price(shipped, query, "price").row
    except Refused:
        return ()
    return (
        f"the price of {row.owner} counts, {row.usd_per_gpu_hour:g} USD as of {row.as_of}; the shipped catalogue has "
        f"{listed.usd_per_gpu_hour:g} USD as of {listed.as_of} for the same provider and terms",
    )


def _price(request: CataloguePrice | CardPrice, cost: float, as_of: str, terms: PriceModel | None) -> Price:
    return Price(
        usd_per_gpu_hour=cost,
        price_model=terms,
        discount_fraction=request.discount_fraction,
        preemptions_per_instance_hour=request.preemptions_per_instance_hour,
        as_of=as_of,
        storage=request.storage,
        egress=request.egress,
    )


def _bought(price: OwnedPrice, gpu: str, catalogue: Catalogue) -> Parsed[AnyPrice | None]:
    """Owned hardware, at the catalogue's purchase price where the request has none."""
    bought = catalogue.gpus[gpu].purchase
    if price.purchase_usd is not None or bought is None:
        return Parsed(price, (), age_warnings(price.as_of, catalogue, PURCHASE_FIELD))
    assumption = f"one {gpu} was bought for {bought.usd:,.0f} USD, as of {bought.as_of}: {bought.source}"
    found = replace(price, purchase_usd=bought.usd, as_of=bought.as_of)
    read: Parsed[AnyPrice | None] = Parsed(found, (assumption,), age_warnings(bought.as_of, catalogue, PURCHASE_FIELD))
    return with_sources(read, catalogue, (purchase_of(catalogue.gpus[gpu], bought),))


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned(Strict):
    """Whether the layout is planned."""

    auto: bool = False
    """Plan the layout, micro_batch and recompute but for the fields that are given: the fastest that fits."""


QUESTION_SPECS: Sequence[tuple[str, type]] = (
    ("model", Model),
    ("recipe", Recipe),
    ("layout", Layout),
    ("layout", Planned),
    ("cluster", Cluster),
    ("cluster", Nodes),
    ("price", Price),
    ("price", CataloguePrice),
    ("price", CardPrice),
    ("price", OwnedPrice),
)
"""Part of a question, and the dataclass that defines it."""

PARTS = tuple(dict.fromkeys(part for part, _ in QUESTION_SPECS))

RowName = Annotated[Name, Field(description="A name, alias or Hugging Face id.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class HfConfig:
    """The config.json."""

    __pydantic_config__: ClassVar[dict[str, Any]] = DESCRIBED | {"extra": "allow"}

    model_type: str
    """Which architecture the other keys describe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedModel(Strict):
    """A model as its Hugging Face config.json describes it."""

    hf_config: HfConfig
    """The config.json."""


_PRESET = {"preset": RowName}
ChangedModel = Annotated[
    Any,
    Variant(Model, "ChangedModel", "A model preset with some of its fields given anew.", ("preset",), more=_PRESET),
]
_NODES = Annotated[NodeCount, Field(description="Nodes in all; gpus is nodes x gpus_per_node.")]
_SIZED_PRESET = _PRESET | {"nodes": _NODES}
ChangedCluster = Annotated[
    Any,
    Variant(Cluster, "ChangedCluster", "A cluster preset, resized or changed.", ("preset",), more=_SIZED_PRESET),
]
NodesOfGpu = Annotated[
    Any,
    Variant(Cluster, "NodesOfGpu", "So many nodes of one GPU.", required=("gpu", "nodes"), more={"nodes": _NODES}),
]

ModelFields = Annotated[Any, Variant(Model, "ModelFields", "Some fields of a model.")]
RecipeFields = Annotated[Any, Variant(Recipe, "RecipeFields", "Some fields of a recipe.")]
ClusterFields = Annotated[Any, Variant(Cluster, "ClusterFields", "Some fields of a cluster.", more=_SIZED_PRESET)]

ModelForm = Annotated[Any, DescribedAs(RowName | Model | ChangedModel | ImportedModel)]
RecipeForm = Annotated[Any, DescribedAs(Recipe)]
PlannedLayout = Annotated[
    Any,
    Variant(
        Layout,
        "PlannedLayout",
        "A layout that is planned: fields that are given are kept, or restricted by a list, and the others are chosen.",
        required=("auto",),
        more={"auto": Annotated[Literal[True], Field(description="Plan it, and micro_batch and recompute if absent.")]},
        opened=tuple(name for name in field_names(Layout) if name not in VALUE_IS_A_LIST),
    ),
]
LayoutForm = Annotated[Any, DescribedAs(Layout | PlannedLayout | None)]
ClusterForm = Annotated[Any, DescribedAs(RowName | Cluster | NodesOfGpu | ChangedCluster)]
_RATE = Annotated[float | str, Field(description="USD per GPU-hour, as 2.5 or $2.50/h.")]
PriceForm = Annotated[Any, DescribedAs(Price | CataloguePrice | CardPrice | OwnedPrice | _RATE | None)]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionRequest:
    """One configuration to estimate: four objects, and a price if you want the cost.

    Launchers' names of fields, and texts such as 200B, 8k or $2.50, are understood too; `assumptions` lists each.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = requiring("model", "recipe", "cluster")

    model: ModelForm = None
    """What is trained."""
    recipe: RecipeForm = None
    """How it is trained."""
    layout: LayoutForm = None
    """How it is divided; null for the defaults."""
    cluster: ClusterForm = None
    """What it runs on."""
    price: PriceForm = None
    """What it costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobQuestion(QuestionRequest):
    """What is trained and how; what it runs on and what that costs may be stated elsewhere."""

    __pydantic_config__: ClassVar[dict[str, Any]] = requiring("model", "recipe")


RecipePatch = Annotated[Any, Patch("RecipePatch", (Recipe,))]
LayoutPatch = Annotated[Any, Patch("LayoutPatch", (Layout, Planned))]
_CONFIG = Annotated[dict[str, Any], Field(description="The config.json.")]
_MODEL_PATCH = Patch("ModelPatch", (Model,), more=_PRESET | {"hf_config": _CONFIG})
_CLUSTER_PATCH = Patch("ClusterPatch", (Cluster,), more=_SIZED_PRESET)
_PRICE_PATCH = Patch("PricePatch", (Price, CataloguePrice, CardPrice, OwnedPrice))


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionPatch(Strict):
    """What changes in a question, as an RFC 7396 merge patch: null takes a field away."""

    model: Annotated[Any, DescribedAs(RowName | Annotated[Any, _MODEL_PATCH] | None)] = None
    """What changes in the model."""
    recipe: Annotated[Any, DescribedAs(RecipePatch | None)] = None
    """What changes in the recipe."""
    layout: Annotated[Any, DescribedAs(LayoutPatch | None)] = None
    """What changes in the layout."""
    cluster: Annotated[Any, DescribedAs(RowName | Annotated[Any, _CLUSTER_PATCH] | None)] = None
    """What changes in the cluster."""
    price: Annotated[Any, DescribedAs(Annotated[Any, _PRICE_PATCH] | None)] = None
    """What changes in the price."""
