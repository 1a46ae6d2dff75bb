"""Units in names: the suffixes, their dimensions, and other units of the same quantity, and text for people.

The suffix of a name is its unit, in base units: `step_seconds`, `usable_bytes`, `total_flop`. The table of this module
defines the suffixes, and the units that a caller may request instead.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import floor, log10
from typing import NamedTuple

SECONDS_PER_HOUR = 3_600.0
SECONDS_PER_DAY = 86_400.0


@dataclass(frozen=True, slots=True, eq=False)
class Dimension:
    """A dimension: the unit in a name, and other units of the same quantity."""

    base: str
    scales: Mapping[str, float]
    ladder: tuple[str, ...] = ()
    """Units of texts for people, smallest first; only the base where empty."""
    forms: Mapping[str, str] = field(default_factory=dict)
    """How people write a number in a unit, `${} million` for `MUSD`; `{}` and the unit where absent."""


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
_WORDS = {"thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}
_LARGE = ("million", "billion", "trillion")
COUNT = Dimension("1", {"1": 1.0, **_WORDS}, ("1", *_LARGE), {"1": "{}"})


def _usd(unit: str, others: Mapping[str, float]) -> Dimension:
    """Money for one of a unit."""
    return Dimension(f"USD/{unit}", {f"USD/{unit}": 1.0, **others}, (), {f"USD/{unit}": f"${{}}/{unit}"})


def _for_each(what: str) -> Dimension:
    """How often something happens in an hour of each of so many."""
    return Dimension(
        f"1/{what}-h", {f"1/{what}-h": 1.0, f"1/{what}-d": 1 / 24.0}, (), {f"1/{what}-h": f"{{}}/{what}-h"}
    )


DIMENSIONS: Mapping[str, Dimension] = {
    "usd_per_million_tokens": _usd("million tokens", {"USD/token": 1e6}),
    "tokens_per_s_per_gpu": Dimension(
        "tokens/s", {"tokens/s": 1.0, "tokens/h": 1 / SECONDS_PER_HOUR, "tokens/d": 1 / SECONDS_PER_DAY}
    ),
    "usd_per_instance_hour": Dimension("USD/h", {"USD/h": 1.0, "USD/d": 1 / 24.0}, (), {"USD/h": "${}/h"}),
    "usd_per_gpu_hour": _usd("GPU-h", {"USD/GPU-d": 1 / 24.0}),
    "per_instance_hour": _for_each("instance"),
    "usd_per_gb_month": _usd("GB-month", {"USD/TB-month": 1e-3}),
    "usd_per_kw_month": _usd("kW-month", {}),
    "kg_co2e_per_kwh": Dimension("kg/kWh", {"kg/kWh": 1.0, "g/kWh": 1e-3}),
    "per_gpu_hour": _for_each("GPU"),
    "usd_per_kwh": _usd("kWh", {"USD/MWh": 1e-3}),
    "usd_per_gb": _usd("GB", {"USD/TB": 1e-3}),
    "bytes_per_s": Dimension(
        "B/s", {f"{name}/s": scale for name, scale in BYTES.scales.items()}, ("B/s", "MB/s", "GB/s", "TB/s")
    ),
    "flop_per_s": Dimension(
        "FLOP/s", {"FLOP/s": 1.0, **_prefixed("FLOP/s", "kMGTPE")}, ("FLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s")
    ),
    "pflop_days": Dimension(
        "PFLOP-day", {name: scale / FLOP.scales["PFLOP-day"] for name, scale in FLOP.scales.items()}
    ),
    "gpu_hours": Dimension("GPU-h", {"GPU-h": 1.0, "GPU-d": 24.0, "h": 1.0, "d": 24.0}),
    "kg_co2e": Dimension("kg", {"kg": 1.0, "t": 1e3}, ("kg", "t"), {"kg": "{} kg CO2e", "t": "{} t CO2e"}),
    "fraction": Dimension("1", {"1": 1.0, "%": 0.01, "percent": 0.01}, ("%",)),
    "seconds": SECONDS,
    "tokens": Dimension(
        "tokens", {"tokens": 1.0, **_WORDS}, ("tokens", *_LARGE), {name: f"{{}} {name} tokens" for name in _LARGE}
    ),
    "bytes": BYTES,
    "hz": Dimension("Hz", {"Hz": 1.0, **_prefixed("Hz", "kMG")}, ("Hz", "MHz", "GHz")),
    "watts": Dimension("W", {"W": 1.0, **_prefixed("W", "kM")}, ("W", "kW", "MW")),
    "years": Dimension("a", {"a": 1.0}, (), {"a": "{} years"}),
    "nats": Dimension("nat", {"nat": 1.0, "bit": 0.6931471805599453}),
    "days": Dimension(
        "d", {name: scale / SECONDS_PER_DAY for name, scale in SECONDS.scales.items()}, (), {"d": "{} days"}
    ),
    "flop": FLOP,
    "usd": Dimension(
        "USD", {"USD": 1.0, **_prefixed("USD", "kM")}, ("USD", "MUSD"), {"USD": "${}", "MUSD": "${} million"}
    ),
    "kwh": Dimension("kWh", {"kWh": 1.0, "MWh": 1e3, "GWh": 1e6, "J": 1 / 3.6e6, "MJ": 1 / 3.6}, ("kWh", "MWh", "GWh")),
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


WHOLE = 1e7
"""Below it a whole count is written out, all its digits. Source: a choice."""


class Shown(NamedTuple):
    """A quantity as people read it."""

    text: str
    value: float
    """What the text says, in the base unit."""


@lru_cache(4096)  # an answer says one number in many places
def shown(value: float, dimension: Dimension, digits: int = 5) -> Shown:
    """A quantity to so many digits, in the largest unit that leaves a whole part; a whole count is not rounded.

    >>> shown(12.61009707, SECONDS).text, shown(402787.8, DIMENSIONS["gpu_hours"]), shown(1788140, COUNT).text
    ('12.61 s', Shown(text='402,790 GPU-h', value=402790.0), '1,788,140')
    >>> shown(2.5, DIMENSIONS["usd_per_gpu_hour"]).text, shown(1006969.54, DIMENSIONS["usd"]).text
    ('$2.50/GPU-h', '$1.007 million')
    """
    is_count = dimension.base in ("1", "tokens") and "%" not in dimension.scales
    if is_count and abs(value) < WHOLE and float(value).is_integer():
        return Shown(dimension.forms.get(dimension.base, "{} tokens").format(f"{value:,.0f}"), value)
    ladder = dimension.ladder or (dimension.base,)
    reached = [unit for unit in ladder if abs(value) >= dimension.scales[unit]]
    unit = reached[-1] if reached else ladder[0] if value or dimension.base not in ladder else dimension.base
    rounded, form = float(f"{value / dimension.scales[unit]:.{digits - 1}e}"), dimension.forms.get(unit, f"{{}} {unit}")
    text = _digits_of(rounded, digits)
    if form[0] == "$" and rounded == round(rounded, 2) and (abs(rounded) < 1000 or "." in text):
        text = f"{rounded:,.2f}"
    return Shown(form.format(text), rounded * dimension.scales[unit])


def _digits_of(rounded: float, digits: int) -> str:
    """A number of so many digits, thousands set apart, without zeros at its end."""
    if rounded and not 1e-4 <= abs(rounded) < 1e15:
        return f"{rounded:.{digits}g}"
    decimals = max(0, digits - 1 - floor(log10(abs(rounded)))) if rounded else 0
    text = f"{rounded:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def in_units(value: float, dimension: Dimension) -> str:
    """A quantity as text: four digits, in the largest unit that leaves a whole part.

    >>> in_units(61.25 * 2**30, BYTES), in_units(0.0021, SECONDS), in_units(7.2e23, FLOP)
    ('61.25 GiB', '2.1 ms', '720 ZFLOP')
    """
    return shown(value, dimension, 4).text


def readable(value: float) -> str:
    """A number as text: at least four digits, thousands set apart.

    >>> readable(1234567.8), readable(0.42371), readable(80)
    ('1,234,568', '0.4237', '80')
    """
    if value and not 1e-4 <= abs(value) < 1e15:
        return f"{value:.4g}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
