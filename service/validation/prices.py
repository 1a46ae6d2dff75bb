"""Prices: a rate, the newest matching row of the catalogue, a rate card, or owned hardware.

The age of a price depends on the catalogue alone, never on today's date: it is the number of days from the last day
that its date may mean to the first day that the date of the newest price or GPU may mean. So an answer stays the
same under the same versions.
"""

from calendar import monthrange
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Annotated, TypeVar

from annotated_types import Ge, Lt

from service.catalogue import SHIPPED, Catalogue, PriceRow
from service.catalogue.prices import PriceQuery, newest_price, rate_of
from service.catalogue.rows import is_date
from service.errors import Problem, Refused
from service.estimator.question import Egress, Name, OwnedPrice, Price, PriceModel, Share, Storage, Strict
from service.validation.problems import not_an_object
from service.validation.reading import (
    Parsed,
    assumptions_of,
    field_names,
    fields_of,
    purchase_of,
    read_spec,
    with_rows,
    with_sources,
)

MOST_DAYS = 180
"""Age of a price from which an answer warns. Source: an assumption; AWS cut H100 list prices by 44 % in June 2025."""


def age_warnings(as_of: str | None, catalogue: Catalogue, instead: str) -> tuple[str, ...]:
    """Warnings about a price that is old."""
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
    """Days by which one date is older than another, at least.

    >>> age_days("2025", "2026-03"), age_days("2026", "2026-11-21") <= 0
    (60, True)
    """
    return (_first_day(newest) - _last_day(as_of)).days


def _parts(text: str) -> list[int]:
    """Year, month and day as far as they are given; the calendar of Python has no year 0."""
    year, *rest = (int(part) for part in text.split("-"))
    return [max(year, 1), *rest]


def _first_day(text: str) -> date:
    year, month, day = (*_parts(text), 1, 1)[:3]
    return date(year, month, min(day, monthrange(year, month)[1]))


def _last_day(text: str) -> date:
    year, *rest = _parts(text)
    month = rest[0] if rest else 12
    last = monthrange(year, month)[1]
    return date(year, month, min(rest[1], last) if len(rest) > 1 else last)


AnyPrice = Price | OwnedPrice
Dated = TypeVar("Dated", Price, OwnedPrice)
QUERY_FIELDS = ("provider", "region", "price_model", "instance_type")
"""Fields of a catalogue lookup."""


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
"""The ways to tell a price."""

SHARED_FIELDS = frozenset(name for name in field_names(Price) if sum(name in field_names(kind) for kind in KINDS) > 1)
"""Fields of more than one form."""

FIELDS = tuple(dict.fromkeys(name for kind in KINDS for name in field_names(kind)))
TERMS = "price_model"
OWN_FIELDS: Mapping[type, frozenset[str]] = {kind: frozenset(field_names(kind)) - SHARED_FIELDS for kind in KINDS}
"""Fields that only one form of price has."""

RENTAL_FIELD = "usd_per_gpu_hour"
PURCHASE_FIELD = "purchase_usd"
"""Price fields."""

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
    """The price of a request."""
    if value is None:
        return Parsed(None)
    if not isinstance(value, Mapping):
        raise Refused(not_an_object("price", FIELDS))
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
