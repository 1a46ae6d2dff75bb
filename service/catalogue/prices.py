"""What does a GPU-hour cost by the catalogue? The newest row that matches, and what was assumed to choose it."""

from collections.abc import Iterable
from dataclasses import dataclass

from service.catalogue.names import Found
from service.catalogue.price_index import PriceIndex
from service.catalogue.rows import PriceRow
from service.errors import Problem, UnknownName
from service.estimator.names import PriceModel

MOST_CHOICES = 8
"""Names that an error lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceQuery:
    """Which price is meant."""

    provider: str
    """Who rents the GPU out."""
    region: str
    """Where, in the provider's spelling; a provider with one price for everywhere answers to any region."""
    price_model: PriceModel
    """On what terms."""
    gpu: str
    """Catalogue name of the GPU."""
    instance_type: str | None = None
    """Machine, in the provider's spelling; any where absent."""


def find_price(index: PriceIndex, query: PriceQuery, field: str) -> Found[PriceRow]:
    """The newest price of an index that answers a query.

    Args:
        index: the prices
        query: who, where, on what terms, which GPU
        field: dotted path of the query in the question, for the error

    Returns:
        the row, and what was assumed where others of the same date answer too

    Raises:
        UnknownName: nothing answers; the fix lists what there is
    """
    offered = index.offered_by(query.gpu, query.provider) or index.of_gpu(query.gpu)
    return newest_price(offered, query, field)


def newest_price(prices: Iterable[PriceRow], query: PriceQuery, field: str) -> Found[PriceRow]:
    """The newest of the prices that answer a query.

    A row dated by its year alone counts as older than one of the same year with a month. Of rows of one date, the
    largest machine comes first; of one machine, the price itself before the upper and that before the lower end of
    a range; then the cheapest row.

    Args:
        prices: rows to choose from
        query: who, where, on what terms, which GPU
        field: dotted path of the query in the question, for the error

    Returns:
        the row, and what was assumed where others of the same date answer too

    Raises:
        UnknownName: nothing answers; the fix lists what there is
    """
    rows = [row for row in prices if row.gpu == query.gpu]
    rows = _narrowed(rows, "provider", query.provider, query, field)
    rows = _narrowed(rows, "region", query.region, query, field)
    rows = _narrowed(rows, "price_model", query.price_model, query, field)
    if query.instance_type is not None:
        rows = _narrowed(rows, "instance_type", query.instance_type, query, field)
    newest = max(row.as_of for row in rows)
    dated = [row for row in rows if row.as_of == newest]
    chosen = min(dated, key=_preference)
    return Found(chosen, _assumption(chosen, dated))


def _narrowed(rows: list[PriceRow], column: str, wanted: str, query: PriceQuery, field: str) -> list[PriceRow]:
    kept = [row for row in rows if getattr(row, column).casefold() == wanted.casefold()]
    if not kept and column == "region":
        kept = [row for row in rows if row.region == "all"]
    if kept:
        return kept
    known = sorted({str(getattr(row, column)) for row in rows})
    told = ", ".join(known[:MOST_CHOICES]) + (", ..." if len(known) > MOST_CHOICES else "")
    fix = f"for {query.gpu}, {column} may be {told}" if known else "give usd_per_gpu_hour instead"
    message = f"the catalogue holds no price of {query.gpu} with this {column}"
    raise UnknownName(Problem(field=f"{field}.{column}", code="unknown_price", message=message, fix=fix))


def _preference(row: PriceRow) -> tuple[int, int, float, str]:
    return (-row.gpu_count, ("point", "max", "min").index(row.stat), row.usd_per_gpu_hour, row.instance_type)


def _assumption(chosen: PriceRow, dated: list[PriceRow]) -> str | None:
    others = {row.usd_per_gpu_hour for row in dated} - {chosen.usd_per_gpu_hour}
    if not others:
        return None
    ends = sorted({*others, chosen.usd_per_gpu_hour})
    return (
        f"{chosen.provider} asked {ends[0]:g} to {ends[-1]:g} USD for one hour of {chosen.gpu} in {chosen.as_of}; "
        f"{chosen.usd_per_gpu_hour:g} ({chosen.instance_type}) is taken"
    )
