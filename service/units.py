"""Units in names: the suffixes, their dimensions, and other units of the same quantity, and text for people.

The suffix of a name is its unit, in base units: `step_seconds`, `usable_bytes`, `total_flop`. The table of this module
defines the suffixes, and the units that a caller may request instead.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SECONDS_PER_HOUR = 3_600.0
SECONDS_PER_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Dimension:
    """A dimension: the unit in a name, and other units of the same quantity."""

    base: str
    scales: Mapping[str, float]
    ladder: tuple[str, ...] = ()
    """Units of texts for people, smallest first; only the base where empty."""


def _prefixed(symbol: str, prefixes: str) -> dict[str, float]:
    """A symbol under decimal prefixes; the first step is 1e3."""
    return {prefix + symbol: 1e3**power for power, prefix in enumerate(prefixes, start=1)}


_BINARY = {f"{prefix}iB": 2.0 ** (10 * power) for power, prefix in enumerate("KMGTP", start=1)}

BYTES = Dimension("B", {"B": 1.0, **_prefixed("B", "kMGTP"), **_BINARY}, ("B", "KiB", "MiB", "GiB", "TiB"))
FLOP = Dimension(
    "FLOP",
    {"FLOP": 1.0, **_prefixed("FLOP", "kMGTPEZY"), "PFLOP-day": 1e15 * SECONDS_PER_DAY},
    ("FLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP", "ZFLOP", "YFLOP"),
)
SECONDS = Dimension(
    "s",
    {"s": 1.0, "ms": 1e-3, "us": 1e-6, "min": 60.0, "h": SECONDS_PER_HOUR, "d": SECONDS_PER_DAY},
    ("us", "ms", "s", "min", "h", "d"),
)
COUNT = Dimension("1", {"1": 1.0, "thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12})

DIMENSIONS: Mapping[str, Dimension] = {
    "usd_per_million_tokens": Dimension("USD/million tokens", {"USD/million tokens": 1.0, "USD/token": 1e6}),
    "tokens_per_s_per_gpu": Dimension(
        "tokens/s", {"tokens/s": 1.0, "tokens/h": 1 / SECONDS_PER_HOUR, "tokens/d": 1 / SECONDS_PER_DAY}
    ),
    "usd_per_instance_hour": Dimension("USD/h", {"USD/h": 1.0, "USD/d": 1 / 24.0}),
    "usd_per_gpu_hour": Dimension("USD/GPU-h", {"USD/GPU-h": 1.0, "USD/GPU-d": 1 / 24.0}),
    "per_instance_hour": Dimension("1/instance-h", {"1/instance-h": 1.0, "1/instance-d": 1 / 24.0}),
    "usd_per_gb_month": Dimension("USD/GB-month", {"USD/GB-month": 1.0, "USD/TB-month": 1e-3}),
    "usd_per_kw_month": Dimension("USD/kW-month", {"USD/kW-month": 1.0}),
    "kg_co2e_per_kwh": Dimension("kg/kWh", {"kg/kWh": 1.0, "g/kWh": 1e-3}),
    "per_gpu_hour": Dimension("1/GPU-h", {"1/GPU-h": 1.0, "1/GPU-d": 1 / 24.0}),
    "usd_per_kwh": Dimension("USD/kWh", {"USD/kWh": 1.0, "USD/MWh": 1e-3}),
    "usd_per_gb": Dimension("USD/GB", {"USD/GB": 1.0, "USD/TB": 1e-3}),
    "bytes_per_s": Dimension("B/s", {f"{name}/s": scale for name, scale in BYTES.scales.items()}),
    "flop_per_s": Dimension("FLOP/s", {"FLOP/s": 1.0, **_prefixed("FLOP/s", "kMGTPE")}),
    "pflop_days": Dimension(
        "PFLOP-day", {name: scale / FLOP.scales["PFLOP-day"] for name, scale in FLOP.scales.items()}
    ),
    "gpu_hours": Dimension("GPU-h", {"GPU-h": 1.0, "GPU-d": 24.0, "h": 1.0, "d": 24.0}),
    "kg_co2e": Dimension("kg", {"kg": 1.0, "t": 1e3}),
    "fraction": Dimension("1", {"1": 1.0, "%": 0.01, "percent": 0.01}),
    "seconds": SECONDS,
    "tokens": Dimension("tokens", {"tokens": 1.0, **{k: v for k, v in COUNT.scales.items() if k != "1"}}),
    "bytes": BYTES,
    "hz": Dimension("Hz", {"Hz": 1.0, **_prefixed("Hz", "kMG")}),
    "watts": Dimension("W", {"W": 1.0, **_prefixed("W", "kM")}),
    "years": Dimension("a", {"a": 1.0}),
    "nats": Dimension("nat", {"nat": 1.0, "bit": 0.6931471805599453}),
    "days": Dimension("d", {name: scale / SECONDS_PER_DAY for name, scale in SECONDS.scales.items()}),
    "flop": FLOP,
    "usd": Dimension("USD", {"USD": 1.0, **_prefixed("USD", "kM")}),
    "kwh": Dimension("kWh", {"kWh": 1.0, "MWh": 1e3, "GWh": 1e6, "J": 1 / 3.6e6, "MJ": 1 / 3.6}),
}
"""Dimension of each suffix; a suffix that ends another comes after it."""

UNITS = frozenset(unit for dimension in (COUNT, *DIMENSIONS.values()) for unit in dimension.scales)
"""Every unit that a caller may request."""


def dimension_of(path: Sequence[str]) -> Dimension:
    """Dimension of a value, by the nearest name on its path that ends in a unit; a plain count where none does.

    >>> dimension_of(["totals", "gpu_hours", "low"]).base
    'GPU-h'
    """
    for name in reversed(path):
        for suffix, dimension in DIMENSIONS.items():
            if name == suffix or name.endswith(f"_{suffix}"):
                return dimension
    return COUNT


def in_units(value: float, dimension: Dimension) -> str:
    """A quantity as text: four digits, in the largest unit that leaves a whole part.

    >>> in_units(61.25 * 2**30, BYTES), in_units(0.0021, SECONDS), in_units(7.2e23, FLOP)
    ('61.25 GiB', '2.1 ms', '720 ZFLOP')
    """
    ladder = dimension.ladder or (dimension.base,)
    reached = [unit for unit in ladder if abs(value) >= dimension.scales[unit]]
    unit = reached[-1] if reached else ladder[0] if value else dimension.base
    text = readable(value / dimension.scales[unit])
    return text if unit == "1" else f"{text} {unit}"


def readable(value: float) -> str:
    """A number as text: at least four digits, thousands set apart.

    >>> readable(1234567.8), readable(0.42371), readable(80)
    ('1,234,568', '0.4237', '80')
    """
    if value and not 1e-4 <= abs(value) < 1e15:
        return f"{value:.4g}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
