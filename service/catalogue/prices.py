"""Prices of GPU-hours: the newest matching row with its assumptions, an index of a million, and rate cards."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from service.catalogue.indexes import Found, rows_by_key
from service.catalogue.rows import PriceRow, Rate, RateCardRow
from service.errors import Problem, Refused, UnknownName, quoted
from service.estimator.question import PriceModel

Offer = tuple[str, str]
"""A GPU and a provider, independent of capitals."""


@dataclass(frozen=True, slots=True)
class PriceIndex:
    rows: Mapping[str, PriceRow]
    """Prices by id, in the order of the ids."""
    offers: Mapping[Offer, tuple[PriceRow, ...]]
    """Prices of one provider for one GPU, in the order of their ids."""
    newest_as_of: str
    """Date of the newest one; empty where there is none."""

    @classmethod
    def of(cls, prices: Iterable[PriceRow]) -> "PriceIndex":
        rows = rows_by_key(prices, "two rows are price")
        offers: dict[Offer, list[PriceRow]] = {}
        for row in rows.values():
            offers.setdefault(_offer_of(row), []).append(row)
        return cls(rows, {offer: tuple(offered) for offer, offered in offers.items()}, _newest(rows))

    def changed(self, change: Mapping[str, PriceRow | None]) -> "PriceIndex":
        """The index after a change; offers that it does not touch stay as they are."""
        if not change:
            return self
        after = dict(self.rows)
        touched: dict[Offer, dict[str, PriceRow]] = {}
        for key, row in change.items():
            offer = _offer_of(row or self.rows[key])  # an id is made of both parts of it, among others
            if offer not in touched:
                touched[offer] = {one.id: one for one in self.offers.get(offer, ())}
            for index in (after, touched[offer]):
                index.pop(key, None)
                if row is not None:
                    index[key] = row
        in_order = {key: after[key] for key in sorted(after)}
        sorted_offers = {offer: tuple(own[key] for key in sorted(own)) for offer, own in touched.items()}
        offers = {offer: rows for offer, rows in {**self.offers, **sorted_offers}.items() if rows}
        return PriceIndex(in_order, offers, _newest(in_order))

    def offered_by(self, gpu: str, provider: str) -> tuple[PriceRow, ...]:
        """Prices of one provider for one GPU."""
        return self.offers.get((gpu, provider.casefold()), ())

    def of_gpu(self, gpu: str) -> Iterator[PriceRow]:
        for (offered, _), rows in self.offers.items():
            if offered == gpu:
                yield from rows

    def gpus(self) -> set[str]:
        return {gpu for gpu, _ in self.offers}


def _offer_of(row: PriceRow) -> Offer:
    return (row.gpu, row.provider.casefold())


def _newest(rows: Mapping[str, PriceRow]) -> str:
    return max((row.as_of for row in rows.values()), default="")


MOST_CHOICES = 8
"""GPUs or terms that an error lists."""


def rate_of(card: RateCardRow, gpu: str, price_model: PriceModel | None, field: str) -> Found[Rate]:
    rates = {rate.price_model: rate for rate in card.rates if rate.gpu == gpu}
    if not rates:
        priced = _list_text(sorted({rate.gpu for rate in card.rates}))
        message = f"the rate card has no rate for {gpu}, the GPU of the cluster; its rates are for {priced}"
        raise Refused(
            Problem(f"{field}.rate_card", "no_rate", message, "add a rate to the card, or give another price")
        )
    if price_model in rates:
        return Found(rates[price_model], None)
    if None in rates:
        assumption = f"the rate card prices {gpu} on any terms alike"
        return Found(rates[None], assumption if price_model else None)
    terms = _list_text(sorted(filter(None, rates)))
    if price_model is None and len(rates) == 1:
        (only,) = rates.values()
        return Found(only, f"the rate card prices {gpu} only as {only.price_model}")
    wrong = f"the rate card prices {gpu} as {terms}, and "
    wrong += "no terms are asked for" if price_model is None else "these are other terms"
    raise Refused(Problem(f"{field}.price_model", "no_rate", wrong, f"give price_model as one of {terms}"))


def _list_text(names: list[str]) -> str:
    return ", ".join(names[:MOST_CHOICES]) + (", ..." if len(names) > MOST_CHOICES else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceQuery:
    provider: str
    region: str
    """Where, in the provider's spelling; a provider with one price for everywhere answers to any region."""
    price_model: PriceModel
    """On what terms."""
    gpu: str
    instance_type: str | None = None
    """Machine, in the provider's spelling; any where absent."""


def find_price(index: PriceIndex, query: PriceQuery, field: str) -> Found[PriceRow]:
    """The newest price of an index that matches a query."""
    offered = index.offered_by(query.gpu, query.provider) or index.of_gpu(query.gpu)
    return newest_price(offered, query, field)


def newest_price(prices: Iterable[PriceRow], query: PriceQuery, field: str) -> Found[PriceRow]:
    """The newest price that matches a query, a year alone older than its months; of one date, the largest machine."""
    rows = [row for row in prices if row.gpu == query.gpu]
    for column in ("provider", "region", "price_model", "instance_type"):
        value = getattr(query, column)
        rows = rows if value is None else _narrowed(rows, column, value, query, field)
    newest = max(row.as_of for row in rows)
    dated = [row for row in rows if row.as_of == newest]
    ends = ("point", "max", "min")
    chosen = min(dated, key=lambda row: (-row.gpu_count, ends.index(row.stat), row.usd_per_gpu_hour, row.instance_type))
    return Found(chosen, _assumption(chosen, dated))


def _narrowed(rows: list[PriceRow], column: str, value: str, query: PriceQuery, field: str) -> list[PriceRow]:
    matching = [row for row in rows if getattr(row, column).casefold() == value.casefold()]
    if not matching and column == "region":
        matching = [row for row in rows if row.region == "all"]
    if matching:
        return matching
    known = sorted({str(getattr(row, column)) for row in rows})
    fix = f"for {query.gpu}, {column} may be {_list_text(known)}" if known else "give usd_per_gpu_hour instead"
    message = f"the catalogue holds no price of {query.gpu} with {column} {quoted(value)}"
    raise UnknownName(Problem(f"{field}.{column}", "unknown_price", message, fix))


def _assumption(chosen: PriceRow, dated: list[PriceRow]) -> str | None:
    others = {row.usd_per_gpu_hour for row in dated} - {chosen.usd_per_gpu_hour}
    if not others:
        return None
    ends = sorted({*others, chosen.usd_per_gpu_hour})
    return (
        f"{chosen.provider} asked {ends[0]:g} to {ends[-1]:g} USD for one hour of {chosen.gpu} in {chosen.as_of}; "
        f"{chosen.usd_per_gpu_hour:g} ({chosen.instance_type}) is taken"
    )
