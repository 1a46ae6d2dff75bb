"""What is the run paid for, line by line: rented or owned GPUs, spares, storage, traffic?"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from service.estimator.charges import (
    amortisation_usd,
    egress_usd,
    electricity_usd,
    hosting_usd,
    maintenance_usd,
    rent_usd,
    storage_usd,
)
from service.estimator.checkpoint import checkpoint_bytes
from service.estimator.energy import gpu_watts
from service.estimator.filled import filled
from service.estimator.interval import Interval
from service.estimator.money import usd_of
from service.estimator.price import OwnedPrice, Price
from service.estimator.resolve import Resolved
from service.estimator.run_parts import CostLine


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """What a run takes, as far as money goes by it."""

    gpu_hours: Interval
    """GPU-hours of the job."""
    spare_gpu_hours: Interval
    """GPU-hours of spares."""
    billed_gpu_hours: Interval
    """Both."""
    days: Interval
    """Wall time."""
    energy_kwh: Interval
    """Electricity at the meter."""


@dataclass(frozen=True, slots=True)
class Charge:
    """One line of a cost before it is computed."""

    kind: str
    """What is paid for."""
    quantity: Interval
    """What the amount grows with: hours, days or energy."""
    formula: Callable[..., Any]
    """Its formula, the quantity first."""
    rates: dict[str, float]
    """The other arguments of the formula, in order, by name."""

    def line(self) -> CostLine:
        """The line, both ends of its interval to the cent."""
        return CostLine(kind=self.kind, usd=usd_of(self.formula, self.quantity, tuple(self.rates.values())))


def charges_of(resolved: Resolved, used: Used) -> tuple[Charge, ...]:
    """Everything that a run is paid for; nothing without a price.

    Args:
        resolved: the question, defaults filled
        used: what the run takes

    Returns:
        the charges, in the order of the lines of the cost
    """
    price = resolved.question.price
    if price is None:
        return ()
    own = _owned(resolved, price, used) if isinstance(price, OwnedPrice) else _rented(price, used)
    return (*own, *_beside(resolved, price, used))


def _rented(price: Price, used: Used) -> Iterator[Charge]:
    rates = {"usd_per_gpu_hour": price.usd_per_gpu_hour, "discount_fraction": price.discount_fraction}
    yield Charge("gpus", used.gpu_hours, rent_usd, rates)
    if used.spare_gpu_hours.value:
        yield Charge("spares", used.spare_gpu_hours, rent_usd, rates)


def _owned(resolved: Resolved, price: OwnedPrice, used: Used) -> Iterator[Charge]:
    bought, works = filled(price.purchase_usd), price.utilisation_fraction
    written_off = {"purchase_usd": bought, "residual_fraction": price.residual_fraction}
    share = {"years": price.amortisation_years, "utilisation_fraction": works}
    yield Charge("amortisation", used.billed_gpu_hours, amortisation_usd, {**written_off, **share})
    if price.maintenance_fraction:
        upkeep = {"purchase_usd": bought, "maintenance_fraction": price.maintenance_fraction}
        yield Charge("maintenance", used.billed_gpu_hours, maintenance_usd, {**upkeep, "utilisation_fraction": works})
    if price.usd_per_kw_month is not None:
        board, host = resolved.job.gpu.board_watts, filled(resolved.question.cluster.host_power_fraction)
        rated = gpu_watts(board, board, host, 1.0, 1.0)
        place = {"rated_watts": rated, "usd_per_kw_month": price.usd_per_kw_month, "utilisation_fraction": works}
        yield Charge("hosting", used.billed_gpu_hours, hosting_usd, place)
    if price.usd_per_kwh is not None:
        yield Charge("electricity", used.energy_kwh, electricity_usd, {"usd_per_kwh": price.usd_per_kwh})


def _beside(resolved: Resolved, price: Price | OwnedPrice, used: Used) -> Iterator[Charge]:
    kept, sent = price.storage, price.egress
    if kept is not None:
        held = kept.data_bytes + kept.checkpoints * checkpoint_bytes(resolved.job)
        rates = {"stored_bytes": held, "usd_per_gb_month": kept.usd_per_gb_month}
        yield Charge("storage", used.days, storage_usd, rates)
    if sent is not None:
        once = Interval(sent.bytes, sent.bytes, sent.bytes, "exact")
        yield Charge("egress", once, egress_usd, {"usd_per_gb": sent.usd_per_gb})
