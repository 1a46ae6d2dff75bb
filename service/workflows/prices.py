"""What does one GPU-hour cost: a stated rate, the newest matching row of the catalogue, or a rate of a team's card?"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from service.catalogue import Catalogue
from service.catalogue.prices import PriceQuery
from service.catalogue.rate_cards import rate_of
from service.errors import Problem, Refused
from service.estimator.names import PriceModel
from service.estimator.noun import STRICT, Name
from service.estimator.question import Price
from service.workflows.findings import not_an_object
from service.workflows.nouns import field_names, read_noun, spelled
from service.workflows.reading import Read, assumed


@dataclass(frozen=True, slots=True, kw_only=True)
class CataloguePrice:
    """Where to look up what a GPU-hour costs; the newest matching row counts."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    provider: Name
    """Who rents the GPUs out, e.g. aws."""
    region: Name
    """Where, in the provider's spelling, e.g. us-east-1."""
    price_model: PriceModel
    """On what terms."""
    instance_type: Name | None = None
    """Which machine, in the provider's spelling; any where absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardPrice:
    """The rate of a team's own card for the cluster's GPU."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    rate_card: Name
    """Which rate card, by its slug."""
    price_model: PriceModel | None = None
    """On what terms; the rate without terms, or the only one, where absent."""


FIELDS = tuple(dict.fromkeys((*field_names(Price), *field_names(CataloguePrice), *field_names(CardPrice))))
TERMS = "price_model"
MARKS: Mapping[type, frozenset[str]] = {
    Price: frozenset(field_names(Price)),
    CataloguePrice: frozenset(field_names(CataloguePrice)) - {TERMS},
    CardPrice: frozenset(field_names(CardPrice)) - {TERMS},
}
"""The ways to tell a price, and the fields that only one of them has."""

PRICED_TWICE = Problem(
    field="price",
    code="priced_twice",
    message="price is told in two ways, and they may differ",
    fix="give usd_per_gpu_hour, or rate_card, or provider, region and price_model",
)


def read_price(value: object, gpu: str | None, catalogue: Catalogue) -> Read[Price | None]:
    """The price that a request means.

    Args:
        value: {"usd_per_gpu_hour"}, {"provider", "region", "price_model"}, {"rate_card"}, each with values, or None
        gpu: catalogue name of the GPU that is rented; None where the request's cluster was refused
        catalogue: the prices

    Returns:
        the price, and from which row it was taken; None where no price is given

    Raises:
        Refused: a wrong value, or no such row
    """
    if value is None:
        return Read(None)
    if not isinstance(value, Mapping):
        raise Refused(not_an_object("price", FIELDS))
    told = [kind for kind, marks in MARKS.items() if marks & value.keys()]
    if len(told) > 1 or (TERMS in value and Price in told):
        raise Refused(PRICED_TWICE)
    if CardPrice in told:
        by_card = read_noun(CardPrice, value, "price", beside=FIELDS)
        return Read(None) if gpu is None else _of_card(by_card, gpu, catalogue)
    if CataloguePrice in told or TERMS in value:
        wanted = read_noun(CataloguePrice, value, "price", beside=FIELDS)
        return Read(None) if gpu is None else _newest(wanted, gpu, catalogue)
    return Read(read_noun(Price, value, "price", beside=FIELDS))


def _of_card(wanted: CardPrice, gpu: str, catalogue: Catalogue) -> Read[Price | None]:
    found = catalogue.find_rate_card(wanted.rate_card, "price.rate_card")
    card, rate = found.row, rate_of(found.row, gpu, wanted.price_model, "price")
    terms = f", {rate.row.price_model}" if rate.row.price_model else ""
    cost = rate.row.usd_per_gpu_hour
    said = f"a GPU-hour of {gpu} costs {cost:g} USD: rate card {card.slug}{terms}, as of {card.as_of}"
    return Read(Price(usd_per_gpu_hour=cost), (said, *assumed(found), *assumed(rate)))


def _newest(wanted: CataloguePrice, gpu: str, catalogue: Catalogue) -> Read[Price | None]:
    query = PriceQuery(gpu=gpu, **spelled(wanted))
    found = catalogue.newest_price(query, "price")
    row = found.row
    said = f"a GPU-hour costs {row.usd_per_gpu_hour:g} USD: {row.provider}, {row.instance_type}, as of {row.as_of}"
    return Read(Price(usd_per_gpu_hour=row.usd_per_gpu_hour), (said, *assumed(found)))
