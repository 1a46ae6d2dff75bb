"""What does one GPU-hour cost: a stated rate, or the newest matching row of the catalogue?"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from service.catalogue import Catalogue
from service.catalogue.prices import PriceQuery
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


STATED, LOOKED_UP = field_names(Price), field_names(CataloguePrice)

PRICED_TWICE = Problem(
    field="price",
    code="priced_twice",
    message="price states a rate and asks for one of the catalogue, and they may differ",
    fix="give either usd_per_gpu_hour, or provider, region and price_model",
)


def read_price(value: object, gpu: str | None, catalogue: Catalogue) -> Read[Price | None]:
    """The price that a request means.

    Args:
        value: {"usd_per_gpu_hour": ...}, {"provider": ..., "region": ..., "price_model": ...}, or None
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
        raise Refused(not_an_object("price", [*STATED, *LOOKED_UP]))
    if not any(name in value for name in LOOKED_UP):
        return Read(read_noun(Price, value, "price", beside=LOOKED_UP))
    if any(name in value for name in STATED):
        raise Refused(PRICED_TWICE)
    wanted = read_noun(CataloguePrice, value, "price", beside=STATED)
    return Read(None) if gpu is None else _newest(wanted, gpu, catalogue)


def _newest(wanted: CataloguePrice, gpu: str, catalogue: Catalogue) -> Read[Price | None]:
    query = PriceQuery(gpu=gpu, **spelled(wanted))
    found = catalogue.newest_price(query, "price")
    row = found.row
    said = f"a GPU-hour costs {row.usd_per_gpu_hour:g} USD: {row.provider}, {row.instance_type}, as of {row.as_of}"
    return Read(Price(usd_per_gpu_hour=row.usd_per_gpu_hour), (said, *assumed(found)))
