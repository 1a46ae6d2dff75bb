"""Where is a price among a million? By id, and by what most questions name: a GPU and who rents it out."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from service.catalogue.provenance import UnsoundFact
from service.catalogue.rows import PriceRow

Offer = tuple[str, str]
"""A GPU, and a provider without regard to capitals."""


@dataclass(frozen=True, slots=True)
class PriceIndex:
    """Every price."""

    rows: Mapping[str, PriceRow]
    """Prices by id, in the order of the ids."""
    offers: Mapping[Offer, tuple[PriceRow, ...]]
    """Prices of one provider for one GPU, in the order of their ids."""
    newest_as_of: str
    """Date of the newest one; empty where there is none."""

    @classmethod
    def of(cls, prices: Iterable[PriceRow]) -> "PriceIndex":
        """The index of some prices.

        Args:
            prices: the prices

        Returns:
            the index

        Raises:
            UnsoundFact: two of them have one id
        """
        held: dict[str, PriceRow] = {}
        for row in prices:
            key = row.id
            if key in held:
                raise UnsoundFact(f"two rows are price {key}")
            held[key] = row
        in_order = {key: held[key] for key in sorted(held)}
        offers: dict[Offer, list[PriceRow]] = {}
        for row in in_order.values():
            offers.setdefault(_offer_of(row), []).append(row)
        return cls(in_order, {offer: tuple(rows) for offer, rows in offers.items()}, _newest(in_order))

    def changed(self, change: Mapping[str, PriceRow | None]) -> "PriceIndex":
        """The index after a change; offers that it does not touch stay as they are.

        Args:
            change: by id what is put there; None where a price goes

        Returns:
            the index; the same where nothing changes
        """
        if not change:
            return self
        after = dict(self.rows)
        touched: dict[Offer, dict[str, PriceRow]] = {}
        for key, row in change.items():
            offer = _offer_of(row or self.rows[key])  # an id is made of both parts of it, among others
            if offer not in touched:
                touched[offer] = {one.id: one for one in self.offers.get(offer, ())}
            for held in (after, touched[offer]):
                held.pop(key, None)
                if row is not None:
                    held[key] = row
        in_order = {key: after[key] for key in sorted(after)}
        sorted_offers = {offer: tuple(held[key] for key in sorted(held)) for offer, held in touched.items()}
        offers = {offer: rows for offer, rows in {**self.offers, **sorted_offers}.items() if rows}
        return PriceIndex(in_order, offers, _newest(in_order))

    def offered_by(self, gpu: str, provider: str) -> tuple[PriceRow, ...]:
        """What one provider asks for one GPU.

        Args:
            gpu: catalogue name of the GPU
            provider: who rents it out, in any capitals

        Returns:
            the prices, in the order of their ids
        """
        return self.offers.get((gpu, provider.casefold()), ())

    def of_gpu(self, gpu: str) -> Iterator[PriceRow]:
        """What anybody asks for one GPU.

        Args:
            gpu: catalogue name of the GPU

        Yields:
            the prices
        """
        for (offered, _), rows in self.offers.items():
            if offered == gpu:
                yield from rows

    def gpus(self) -> set[str]:
        """The GPUs that have a price.

        Returns:
            their catalogue names
        """
        return {gpu for gpu, _ in self.offers}


def _offer_of(row: PriceRow) -> Offer:
    return (row.gpu, row.provider.casefold())


def _newest(rows: Mapping[str, PriceRow]) -> str:
    return max((row.as_of for row in rows.values()), default="")
