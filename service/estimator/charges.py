"""What is paid for one thing: rent, storage, traffic, own hardware and its upkeep?

Constants are whole numbers, so that the same formulas serve doubles, columns and the decimals of `money`.
"""

from service.estimator.numeric import Amount

HOURS_A_YEAR = 8_760
HOURS_A_MONTH = 730
BYTES_A_GB = 10**9


def rent_usd(paid_gpu_hours: Amount, usd_per_gpu_hour: Amount, discount_fraction: Amount) -> Amount:
    """Rent of GPUs.

    Formula:
        GPU-hours x price x (1 - discount)

    Args:
        paid_gpu_hours: GPU-hours that are paid for [h]
        usd_per_gpu_hour: price of one GPU for one hour [USD/h]
        discount_fraction: own discount [1]

    Returns:
        the rent [USD]

    Source:
        definition

    >>> rent_usd(1000.0, 2.5, 0.5)
    1250.0
    """
    return paid_gpu_hours * usd_per_gpu_hour * (1 - discount_fraction)


def storage_usd(days: Amount, stored_bytes: Amount, usd_per_gb_month: Amount) -> Amount:
    """Price of bytes that are kept for some days.

    Formula:
        days x 24 / 730 x bytes / 1e9 x price of a GB-month

    Args:
        days: for how long [d]
        stored_bytes: bytes that are kept [byte]
        usd_per_gb_month: price of 1e9 bytes for 730 hours [USD/GB-month]

    Returns:
        the price [USD]

    Source:
        definition

    >>> storage_usd(365.0, 1e12, 0.02)
    240.0
    """
    return days * 24 * stored_bytes * usd_per_gb_month / (BYTES_A_GB * HOURS_A_MONTH)


def egress_usd(sent_bytes: Amount, usd_per_gb: Amount) -> Amount:
    """Price of bytes that leave the provider's network.

    Formula:
        bytes / 1e9 x price of a GB

    Args:
        sent_bytes: bytes sent out [byte]
        usd_per_gb: price of 1e9 bytes [USD/GB]

    Returns:
        the price [USD]

    Source:
        definition

    >>> egress_usd(1e12, 0.125)
    125.0
    """
    return sent_bytes * usd_per_gb / BYTES_A_GB


def amortisation_usd(
    paid_gpu_hours: Amount, purchase_usd: Amount, residual_fraction: Amount, years: Amount, utilisation_fraction: Amount
) -> Amount:
    """Share of the purchase of own hardware that a run uses up, straight line.

    Formula:
        GPU-hours x purchase x (1 - residual) / (years x 8760 x utilisation)

    Args:
        paid_gpu_hours: GPU-hours of the run, spares counted [h]
        purchase_usd: purchase price of one GPU with its share of the rest [USD]
        residual_fraction: share of it that is still there after those years [1]
        years: years over which it is written off [a]
        utilisation_fraction: share of the hours of those years that somebody uses [1]

    Returns:
        the share [USD]

    Source:
        straight-line depreciation over used hours

    >>> amortisation_usd(8760.0, 40_000.0, 0.2, 4.0, 0.8)
    10000.0
    """
    return paid_gpu_hours * purchase_usd * (1 - residual_fraction) / (years * HOURS_A_YEAR * utilisation_fraction)


def maintenance_usd(
    paid_gpu_hours: Amount, purchase_usd: Amount, maintenance_fraction: Amount, utilisation_fraction: Amount
) -> Amount:
    """Maintenance and support of own hardware during a run.

    Formula:
        GPU-hours x purchase x yearly share / (8760 x utilisation)

    Args:
        paid_gpu_hours: GPU-hours of the run, spares counted [h]
        purchase_usd: purchase price of one GPU with its share of the rest [USD]
        maintenance_fraction: maintenance of one year over the purchase price [1]
        utilisation_fraction: share of the hours that somebody uses [1]

    Returns:
        the share of the run [USD]

    Source:
        definition

    >>> maintenance_usd(8760.0, 40_000.0, 0.05, 0.5)
    4000.0
    """
    return paid_gpu_hours * purchase_usd * maintenance_fraction / (HOURS_A_YEAR * utilisation_fraction)


def hosting_usd(
    paid_gpu_hours: Amount, rated_watts: Amount, usd_per_kw_month: Amount, utilisation_fraction: Amount
) -> Amount:
    """Rent of the place where own hardware stands, by its rated power.

    Formula:
        GPU-hours x rated power / 1000 x price of a kW-month / (730 x utilisation)

    Args:
        paid_gpu_hours: GPU-hours of the run, spares counted [h]
        rated_watts: rated power of one GPU with its share of hosts and network [W]
        usd_per_kw_month: price of 1000 W for 730 hours [USD/kW-month]
        utilisation_fraction: share of the hours that somebody uses [1]

    Returns:
        the rent of the run [USD]

    Source:
        definition

    >>> hosting_usd(7300.0, 1250.0, 100.0, 0.5)
    2500.0
    """
    return paid_gpu_hours * rated_watts * usd_per_kw_month / (1000 * HOURS_A_MONTH * utilisation_fraction)


def electricity_usd(used_kwh: Amount, usd_per_kwh: Amount) -> Amount:
    """Price of the electricity of a run.

    Formula:
        energy x price

    Args:
        used_kwh: energy of the run at the meter [kWh]
        usd_per_kwh: price of one kWh [USD/kWh]

    Returns:
        the price [USD]

    Source:
        definition

    >>> electricity_usd(1000.0, 0.125)
    125.0
    """
    return used_kwh * usd_per_kwh
