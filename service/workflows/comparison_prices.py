"""At which prices is a cluster compared? Those that are listed for it, or all of the catalogue's where * is said."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from service.catalogue import Catalogue
from service.catalogue.prices import PriceQuery
from service.catalogue.rows import PriceRow
from service.errors import Problem, Refused
from service.estimator.names import PriceModel
from service.workflows.prices import read_price

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
    """Refuse what is no price in any form, whichever GPU it is for.

    Args:
        value: an item of the list of prices
        catalogue: the facts

    Raises:
        Refused: a wrong value, an unknown field
    """
    if isinstance(value, Mapping) and _is_spread(value):
        whole = {**IMPLIED, **value} if value.get("provider") == ANY else value
        value = {**whole, "price_model": "on-demand"} if whole.get("price_model") == ANY else whole
    read_price(value, None, catalogue)


def prices_meant(value: Any, gpu: str, catalogue: Catalogue) -> list[Any]:
    """The prices that an item of the list means for one GPU.

    Args:
        value: an item that `refuse_price` let through
        gpu: catalogue name of the GPU
        catalogue: the prices

    Returns:
        the item itself; where * stands in it one for each provider, region and terms that the catalogue holds

    Raises:
        Refused: the catalogue holds none
    """
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
    """Which price a caller asks for, by the caller's own words.

    Args:
        value: an item of the list of prices

    Returns:
        what is said of where it comes from
    """
    told = value if isinstance(value, Mapping) else {}
    return Terms(**{name: told[name] for name in (*SPREAD, "rate_card") if isinstance(told.get(name), str)})


def terms_of(value: Any, gpu: str, catalogue: Catalogue) -> Terms:
    """Where a price comes from.

    Args:
        value: a price that `read_price` takes for this GPU
        gpu: catalogue name of the GPU
        catalogue: the prices

    Returns:
        who, where, on what terms, of which date
    """
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
