"""Quantities and choices as people and launchers write them, read for a field by the unit in its name."""

import csv
import re
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from service.errors import Problem, Refused, quoted

LONGEST = 40
"""Characters of one quantity, and most powers of ten of its number."""

NUMBER = r"-?(?:\d+(?:_\d{3})*|\d{1,3}(?:,\d{3}){2,})(?:\.\d+)?(?:e[+-]?\d{1,3})?|-?\.\d+"
QUANTITY = re.compile(
    rf"(?:~|\u2248)?\s*(?:(?P<before>(?:US)?\$|USD)\s*)?(?P<number>{NUMBER})(?:\s*(?P<unit>[^\d\s].*))?", re.ASCII
)

DECIMAL: Mapping[str, Decimal] = {"": Decimal(1), "k": Decimal(10**3), "m": Decimal(10**6), "b": Decimal(10**9),
                                  "g": Decimal(10**9), "t": Decimal(10**12), "p": Decimal(10**15),
                                  "e": Decimal(10**18)}  # fmt: skip
"""Powers of ten by their first letter; B is a billion, of bytes as well G."""
BINARY: Mapping[str, Decimal] = {"ki": Decimal(1 << 10), "mi": Decimal(1 << 20), "gi": Decimal(1 << 30),
                                 "ti": Decimal(1 << 40)}  # fmt: skip
SECONDS: Mapping[str, Decimal] = {
    **dict.fromkeys(("ms", "msec"), Decimal("0.001")),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), Decimal(1)),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), Decimal(60)),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), Decimal(3600)),
    **dict.fromkeys(("d", "day", "days"), Decimal(86_400)),
    **dict.fromkeys(("w", "wk", "week", "weeks"), Decimal(7 * 86_400)),
    **dict.fromkeys(("y", "yr", "yrs", "year", "years"), Decimal(365 * 86_400)),
}
PER_HOUR = re.compile(
    r"(?:usd|us\$|\$|dollars?)?(?:(?:/|per)(?:gpu|accelerator|chip)?[-/ ]?(?:h|hr|hour))?", re.IGNORECASE
)
KINDS = (
    "_bytes_per_s",
    "_flop_per_s",
    "_bytes",
    "_flop",
    "_tokens",
    "_seconds",
    "_days",
    "_years",
    "_watts",
    "_fraction",
    "_gpus",
    "_nodes",
    "_batch",
)
"""Endings of names that say a unit, the longest first."""
NAMES: Mapping[str, Sequence[str]] = {
    "_tokens": ("token", "tokens", "tok", "toks"),
    "_flop": ("flop", "flops"),
    "_flop_per_s": ("flop/s", "flops", "flops/s"),
    "_watts": ("w", "watt", "watts"),
    "_gpus": ("gpu", "gpus"),
    "_nodes": ("node", "nodes"),
    "_batch": ("sequence", "sequences", "seqs", "sample", "samples"),
}
"""What follows a prefix, by the unit of a field."""
DECIMAL_KINDS = frozenset({"_tokens", "_flop", "_flop_per_s", "_watts"})
"""Units whose thousands and millions are powers of ten; those of other counts may be powers of two."""
POWERS_OF_TWO = frozenset(1 << power for power in range(11))


class Ambiguous(Exception):
    """A text that means several numbers; `readings` lists them."""

    def __init__(self, *readings: str) -> None:
        super().__init__(*readings)
        self.readings = readings


def number_of(field: str, text: str) -> int | float | None:
    """The number that a text means for a field; None where it means none.

    >>> number_of("training_tokens", "200B"), number_of("sequence_length", "8k"), number_of("gpus", "1_000")
    (200000000000, 8192, 1000)
    >>> number_of("usd_per_gpu_hour", "$2.50/h"), number_of("inter_node_bytes_per_s", "400 Gbit/s")
    (2.5, 50000000000)
    >>> number_of("days", "36 h"), number_of("utilisation_fraction", "40%"), number_of("gpus", "many")
    (1.5, 0.4, None)
    """
    match = QUANTITY.fullmatch(text) if len(text) <= LONGEST else None
    if match is None or (match["before"] and "usd" not in field):
        return None
    given = Decimal(match["number"].replace("_", "").replace(",", ""))
    unit = match["unit"] or ""
    factor = _factor(field, given, unit) if unit else Decimal(1)
    if factor is None:
        return None
    number = given * factor
    if number.adjusted() > LONGEST:
        return None
    return int(number) if number == number.to_integral_value() else float(number)


def _factor(field: str, number: Decimal, unit: str) -> Decimal | None:
    """What one of a unit is in the unit of a field; None where it is none."""
    if "usd" in field:
        is_price = field == "usd_per_gpu_hour" or not re.search("/|per", unit)
        return Decimal(1) if is_price and PER_HOUR.fullmatch(unit.replace(" ", "")) else None
    kind = next((one for one in KINDS if f"_{field}".endswith(one)), "")
    match kind:
        case "_seconds" | "_days" | "_years":
            seconds = SECONDS.get(unit.lower())
            return seconds and seconds / SECONDS[{"_days": "day", "_years": "year"}.get(kind, "s")]
        case "_fraction":
            return Decimal("0.01") if unit == "%" else None
        case "_bytes" | "_bytes_per_s":
            return _bytes(unit, is_rate=kind == "_bytes_per_s")
    return _scaled(field, kind, number, unit)


def _bytes(unit: str, *, is_rate: bool) -> Decimal | None:
    """Bytes in one of a unit: of a rate, Gb is a gigabit and GB a gigabyte, and without capitals it may be either."""
    match = re.fullmatch(r"([kmgtp]i?)?(B|b|bytes?|bits?)(ps|/s|/sec)?", unit, re.IGNORECASE)
    if match is None or is_rate is not bool(match[3]):
        return None
    prefix, name = match[1] or "", match[2]
    if is_rate and name == "b" and prefix == prefix.lower():
        raise Ambiguous(f"{prefix.upper()}B/s (bytes)", f"{prefix.upper()}bit/s (bits)")
    is_bits = name.lower().startswith("bit") or (is_rate and name == "b")
    return (BINARY.get(prefix.lower()) or DECIMAL[prefix.lower()]) / (8 if is_bits else 1)


def _scaled(field: str, kind: str, number: Decimal, unit: str) -> Decimal | None:
    """The factor of a count: `k` is 1,024 for the length of a sequence that is then a power of two."""
    names = "|".join(map(re.escape, NAMES.get(kind, NAMES["_tokens"] if field == "sequence_length" else ())))
    words = "[kmbgtpe]i?|thousand|million|billion|trillion"
    match = re.fullmatch(rf"({words})?(?:\+)?\s*(?:{names})?", unit, re.IGNORECASE)
    prefix = (match[1] or "").lower() if match else "?"
    prefix = prefix[:1] if len(prefix) > 2 else prefix
    if prefix in BINARY:
        return BINARY[prefix]
    if field == "sequence_length" and prefix == "k" and number in POWERS_OF_TWO:
        return BINARY["ki"]
    is_decimal = prefix not in {"k", "m"} or (kind in DECIMAL_KINDS and field != "global_batch_tokens")
    if prefix and prefix in DECIMAL and not is_decimal:
        raise Ambiguous(*(str(int(number * one)) for one in (DECIMAL[prefix], BINARY[f"{prefix}i"])))
    return DECIMAL.get(prefix) if prefix != "e" or "flop" in kind else None


@cache
def _other_values() -> Mapping[tuple[str, str], tuple[str, ...]]:
    with Path(__file__).with_name("other_values.csv").open(encoding="utf-8", newline="") as rows:
        return {(row["field"], row["name"]): tuple(row["value"].split(";")) for row in csv.DictReader(rows)}


def other_choices(field: str) -> Mapping[str, tuple[str, ...]]:
    """The choices of a field that other tools' names mean."""
    return {name: values for (own, name), values in _other_values().items() if own == field}


def choice_of(field: str, text: str, choices: Collection[str | int]) -> str | int | None:
    """The choice that a text means for a field: regardless of case and separators, or by another tool's name.

    >>> choice_of("optimizer", "AdamW", ["adam", "adamw"]), choice_of("attention", "flash_attention_2", ["flash-2"])
    ('adamw', 'flash-2')
    """
    form = _form(text)
    meant = _other_values().get((field, form))
    if meant is not None and len(meant) > 1:
        raise Ambiguous(*meant)
    wanted = meant[0] if meant else form
    return next((choice for choice in choices if _form(str(choice)) == wanted or choice == wanted), None)


def _form(text: str) -> str:
    return re.sub(r"[\s_]+", "-", text.strip().casefold())


def is_meant(field: str, form: str, text: str, choices: Collection[str | int]) -> bool:
    """Whether a text means something for a field, if not one thing alone."""
    try:
        return value_of(field, form, text, choices) is not None
    except Ambiguous:
        return True


def value_of(field: str, form: str, text: str, choices: Collection[str | int]) -> Any:
    """What a text means for a field: a choice or a number."""
    if choices:
        return choice_of(field, text, choices)
    number = number_of(field, text) if form in {"integer", "number"} else None
    return None if form == "integer" and isinstance(number, float) else number


def ambiguous(path: str, text: str, meant: Ambiguous) -> Refused:
    """The refusal of a text that means several values."""
    readings = " or ".join(meant.readings)
    message = f"{path} {quoted(text)} could mean {readings}; the answer would differ, so it is refused"
    return Refused(Problem(path, "ambiguous", message, f"give one of {', '.join(meant.readings)}"))
