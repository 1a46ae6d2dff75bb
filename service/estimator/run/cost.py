"""Cost of a run, line by line, in whole cents, and the electricity and carbon behind it.

Costs are exact: a double such as 2.3 counts as the decimal that it prints as. Each line, at both ends of its
interval, is rounded once to the cent (ROUND_HALF_EVEN), and a sum adds the rounded lines. Constants are integers, so
that the same formulas serve doubles, columns and decimals.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext
from math import isfinite
from typing import Any

from service.estimator.answer import CostLine, Interval
from service.estimator.complete import CompleteOwnedPrice
from service.estimator.memory.states import checkpoint_bytes
from service.estimator.numeric import Amount
from service.estimator.question import OwnedPrice, Price
from service.estimator.resolve import ResolvedQuestion


def gpu_watts(
    board_watts: float, limit_watts: float, host_power_fraction: float, power_fraction: float, pue: float
) -> float:
    """Power at the meter of one GPU with its share of host, network and building.

    Formula: (min(limit, load x board power) + load x host share x board power) x PUE
    Args:
        board_watts: rated power of one GPU board [W]
        limit_watts: power limit of the board, its rated power if it has none [W]
        host_power_fraction: rated power of hosts and network over that of the boards [1]
        power_fraction: power of the node over its rated power [1]
        pue: energy of the building over that of its machines [1]
    Returns: power at the meter [W]
    Source: Patterson et al. 2021, arXiv:2104.10350, section 2.5, rated power split into boards and hosts

    >>> gpu_watts(500.0, 500.0, 0.5, 0.8, 1.25), gpu_watts(500.0, 300.0, 0.5, 0.8, 1.25)
    (750.0, 625.0)
    """
    load_watts = power_fraction * board_watts
    return (min(limit_watts, load_watts) + load_watts * host_power_fraction) * pue


def energy_kwh(busy_gpu_hours: float, busy_watts: float, idle_gpu_hours: float, idle_watts: float) -> float:
    """Energy of a run: GPUs at work and GPUs that wait, each with its share of hosts and building.

    Formula: (busy GPU-hours x busy power + idle GPU-hours x idle power) / 1000
    Args:
        busy_gpu_hours: GPU-hours in which steps and checkpoints run [h]
        busy_watts: power at the meter of one GPU at work [W]
        idle_gpu_hours: GPU-hours of spares, and of restarts [h]
        idle_watts: power at the meter of one GPU that waits [W]
    Returns: energy of the run [kWh]
    Source: definition

    >>> energy_kwh(1000.0, 700.0, 100.0, 200.0)
    720.0
    """
    return (busy_gpu_hours * busy_watts + idle_gpu_hours * idle_watts) / 1000


def carbon_kg_co2e(used_kwh: float, grid_kg_co2e_per_kwh: float) -> float:
    """Greenhouse gases of the electricity of a run, without those of making the hardware.

    Formula: energy x carbon intensity of the grid
    Args:
        used_kwh: energy of the run [kWh]
        grid_kg_co2e_per_kwh: carbon intensity of its electricity [kgCO2e/kWh]
    Returns: carbon dioxide equivalent of the run [kgCO2e]
    Source: Patterson et al. 2021, arXiv:2104.10350, section 2.5

    >>> carbon_kg_co2e(1000.0, 0.25)
    250.0
    """
    return used_kwh * grid_kg_co2e_per_kwh


HOURS_A_YEAR = 8_760
HOURS_A_MONTH = 730
BYTES_A_GB = 10**9


def rent_usd(paid_gpu_hours: Amount, usd_per_gpu_hour: Amount, discount_fraction: Amount) -> Amount:
    """Rent of GPUs.

    Formula: GPU-hours x price x (1 - discount)
    Args:
        paid_gpu_hours: GPU-hours that are paid for [h]
        usd_per_gpu_hour: price of one GPU for one hour [USD/h]
        discount_fraction: own discount [1]
    Returns: the rent [USD]
    Source: definition

    >>> rent_usd(1000.0, 2.5, 0.5)
    1250.0
    """
    return paid_gpu_hours * usd_per_gpu_hour * (1 - discount_fraction)


def storage_usd(days: Amount, stored_bytes: Amount, usd_per_gb_month: Amount) -> Amount:
    """Price of storing bytes for some days.

    Formula: days x 24 / 730 x bytes / 1e9 x price of a GB-month
    Args:
        days: duration of storage [d]
        stored_bytes: stored bytes [byte]
        usd_per_gb_month: price of 1e9 bytes for 730 hours [USD/GB-month]
    Returns: the price [USD]
    Source: definition

    >>> storage_usd(365.0, 1e12, 0.02)
    240.0
    """
    return days * 24 * stored_bytes * usd_per_gb_month / (BYTES_A_GB * HOURS_A_MONTH)


def egress_usd(sent_bytes: Amount, usd_per_gb: Amount) -> Amount:
    """Price of bytes that leave the provider's network.

    Formula: bytes / 1e9 x price of a GB
    Args:
        sent_bytes: bytes sent out [byte]
        usd_per_gb: price of 1e9 bytes [USD/GB]
    Returns: the price [USD]
    Source: definition

    >>> egress_usd(1e12, 0.125)
    125.0
    """
    return sent_bytes * usd_per_gb / BYTES_A_GB


def amortisation_usd(
    paid_gpu_hours: Amount, purchase_usd: Amount, residual_fraction: Amount, years: Amount, utilisation_fraction: Amount
) -> Amount:
    """Share of the purchase of own hardware that a run uses up, straight line.

    Formula: GPU-hours x purchase x (1 - residual) / (years x 8760 x utilisation)
    Args:
        paid_gpu_hours: GPU-hours of the run, spares counted [h]
        purchase_usd: purchase price of one GPU with its share of the rest [USD]
        residual_fraction: residual value after those years over the purchase price [1]
        years: years over which it is written off [a]
        utilisation_fraction: share of the hours of those years in use [1]
    Returns: the share [USD]
    Source: straight-line depreciation over used hours

    >>> amortisation_usd(8760.0, 40_000.0, 0.2, 4.0, 0.8)
    10000.0
    """
    return paid_gpu_hours * purchase_usd * (1 - residual_fraction) / (years * HOURS_A_YEAR * utilisation_fraction)


def maintenance_usd(
    paid_gpu_hours: Amount, purchase_usd: Amount, maintenance_fraction: Amount, utilisation_fraction: Amount
) -> Amount:
    """Maintenance and support of own hardware during a run.

    Formula: GPU-hours x purchase x yearly share / (8760 x utilisation)
    Args:
        paid_gpu_hours: GPU-hours of the run, spares counted [h]
        purchase_usd: purchase price of one GPU with its share of the rest [USD]
        maintenance_fraction: maintenance of one year over the purchase price [1]
        utilisation_fraction: share of the hours in use [1]
    Returns: the share of the run [USD]
    Source: definition

    >>> maintenance_usd(8760.0, 40_000.0, 0.05, 0.5)
    4000.0
    """
    return paid_gpu_hours * purchase_usd * maintenance_fraction / (HOURS_A_YEAR * utilisation_fraction)


def hosting_usd(
    paid_gpu_hours: Amount, rated_watts: Amount, usd_per_kw_month: Amount, utilisation_fraction: Amount
) -> Amount:
    """Price of hosting own hardware during a run, by its rated power.

    Formula: GPU-hours x rated power / 1000 x price of a kW-month / (730 x utilisation)
    Args:
        paid_gpu_hours: GPU-hours of the run, spares counted [h]
        rated_watts: rated power of one GPU with its share of hosts and network [W]
        usd_per_kw_month: price of 1000 W for 730 hours [USD/kW-month]
        utilisation_fraction: share of the hours in use [1]
    Returns: the rent of the run [USD]
    Source: definition

    >>> hosting_usd(7300.0, 1250.0, 100.0, 0.5)
    2500.0
    """
    return paid_gpu_hours * rated_watts * usd_per_kw_month / (1000 * HOURS_A_MONTH * utilisation_fraction)


def electricity_usd(used_kwh: Amount, usd_per_kwh: Amount) -> Amount:
    """Price of the electricity of a run.

    Formula: energy x price
    Args:
        used_kwh: energy of the run at the meter [kWh]
        usd_per_kwh: price of one kWh [USD/kWh]
    Returns: the price [USD]
    Source: definition

    >>> electricity_usd(1000.0, 0.125)
    125.0
    """
    return used_kwh * usd_per_kwh


CENT = Decimal("0.01")

CONTEXT = Context(prec=60, rounding=ROUND_HALF_EVEN)
"""Precision of a product of three doubles; a double of 1e16 or more has no cents."""

MOST_DIGITS = 50
"""Digits before the point up to which an amount is rounded to the cent."""


def usd(formula: Callable[..., Any], *quantities: float) -> float:
    """Result of a cost formula in decimal arithmetic, to the cent.

    Formula: round(formula(decimals), 2), a half to the even cent
    Args:
        formula: one of `charges`
        quantities: its arguments, in order [1]
    Returns: the amount as the nearest double; what doubles give where one is not finite [USD]
    Source: ISO 4217 (USD has two decimals); General Decimal Arithmetic, round-half-even

    >>> usd(lambda hours, price: hours * price, 0.5, 2.33), usd(lambda hours, price: hours * price, 0.5, 2.35)
    (1.16, 1.18)
    """
    first, *rates = quantities
    return usd_of(formula, Interval(first, first, first, "exact"), tuple(rates)).value


def usd_of(formula: Callable[..., Any], quantity: Interval, rates: tuple[float, ...]) -> Interval:
    """Amount of money for the value and both ends of a quantity, each rounded to the cent."""
    ends = (quantity.low, quantity.value, quantity.high)
    if not all(map(isfinite, (*ends, *rates))):
        low, value, high = (float(formula(end, *rates)) for end in ends)
        return Interval(low, value, high, quantity.basis)
    with localcontext(CONTEXT):
        exact_rates = tuple(map(_exact, rates))
        amounts = {end: _rounded(formula(_exact(end), *exact_rates)) for end in ends}
    return Interval(amounts[ends[0]], amounts[ends[1]], amounts[ends[2]], quantity.basis)


def _exact(number: float) -> Decimal:
    return Decimal(repr(float(number)))


def _rounded(amount: Decimal) -> float:
    return float(amount.quantize(CENT)) if amount.adjusted() < MOST_DIGITS else float(amount)


def sum_usd(lines: Iterable[float]) -> float:
    """Sum of amounts in whole cents, in whole cents.

    Formula: the sum of the decimals
    Args:
        lines: amounts [USD]
    Returns: the nearest double to the sum [USD]
    Source: definition

    >>> sum_usd([0.1, 0.2])
    0.3
    """
    amounts = tuple(lines)
    if not all(map(isfinite, amounts)):
        return sum(amounts)
    with localcontext(CONTEXT):
        return float(sum(map(_exact, amounts)))


def sum_of(lines: Iterable[Interval]) -> Interval:
    """Sum of amounts of money and of the ends of their intervals."""
    first, *others = lines
    if not others:
        return first
    low, value, high = (sum_usd(getattr(line, end) for line in (first, *others)) for end in ("low", "value", "high"))
    return Interval(low, value, high, first.basis)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Quantities of a run that its cost depends on."""

    gpu_hours: Interval
    spare_gpu_hours: Interval
    billed_gpu_hours: Interval
    """GPU-hours of the job and its spares."""
    days: Interval
    energy_kwh: Interval
    """Electricity at the meter."""


@dataclass(frozen=True, slots=True)
class Charge:
    """One line of a cost before it is computed."""

    kind: str
    """What is paid for."""
    quantity: Interval
    """Quantity that the rates multiply: hours, days, energy or bytes."""
    formula: Callable[..., Any]
    """Its formula, the quantity first."""
    rates: dict[str, float]
    """The other arguments of the formula, in order, by name."""

    def line(self) -> CostLine:
        """The line, its value and interval rounded to the cent."""
        return CostLine(kind=self.kind, usd=usd_of(self.formula, self.quantity, tuple(self.rates.values())))


def charges_of(resolved: ResolvedQuestion, used: Usage) -> tuple[Charge, ...]:
    """Charges of a run; empty without a price."""
    price = resolved.question.price
    if price is None:
        return ()
    charges = (
        _ownership_charges(resolved, price, used)
        if isinstance(price, CompleteOwnedPrice)
        else _rental_charges(price, used)
    )
    return (*charges, *_storage_and_egress(resolved, price, used))


def _rental_charges(price: Price, used: Usage) -> Iterator[Charge]:
    rates = {"usd_per_gpu_hour": price.usd_per_gpu_hour, "discount_fraction": price.discount_fraction}
    yield Charge("gpus", used.gpu_hours, rent_usd, rates)
    if used.spare_gpu_hours.value:
        yield Charge("spares", used.spare_gpu_hours, rent_usd, rates)


def _ownership_charges(resolved: ResolvedQuestion, price: CompleteOwnedPrice, used: Usage) -> Iterator[Charge]:
    purchase_usd, utilisation_fraction = price.purchase_usd, price.utilisation_fraction
    purchase = {"purchase_usd": purchase_usd, "residual_fraction": price.residual_fraction}
    share = {"years": price.amortisation_years, "utilisation_fraction": utilisation_fraction}
    yield Charge("amortisation", used.billed_gpu_hours, amortisation_usd, {**purchase, **share})
    if price.maintenance_fraction:
        upkeep = {"purchase_usd": purchase_usd, "maintenance_fraction": price.maintenance_fraction}
        yield Charge(
            "maintenance",
            used.billed_gpu_hours,
            maintenance_usd,
            {**upkeep, "utilisation_fraction": utilisation_fraction},
        )
    if price.usd_per_kw_month is not None:
        board, host = resolved.workload.gpu.board_watts, resolved.question.cluster.host_power_fraction
        rated = gpu_watts(board, board, host, 1.0, 1.0)
        rates = {
            "rated_watts": rated,
            "usd_per_kw_month": price.usd_per_kw_month,
            "utilisation_fraction": utilisation_fraction,
        }
        yield Charge("hosting", used.billed_gpu_hours, hosting_usd, rates)
    if price.usd_per_kwh is not None:
        yield Charge("electricity", used.energy_kwh, electricity_usd, {"usd_per_kwh": price.usd_per_kwh})


def _storage_and_egress(resolved: ResolvedQuestion, price: Price | OwnedPrice, used: Usage) -> Iterator[Charge]:
    storage, egress = price.storage, price.egress
    if storage is not None:
        stored_bytes = storage.data_bytes + storage.checkpoints * checkpoint_bytes(resolved.workload)
        rates = {"stored_bytes": stored_bytes, "usd_per_gb_month": storage.usd_per_gb_month}
        yield Charge("storage", used.days, storage_usd, rates)
    if egress is not None:
        once = Interval(egress.bytes, egress.bytes, egress.bytes, "exact")
        yield Charge("egress", once, egress_usd, {"usd_per_gb": egress.usd_per_gb})
