"""What does a row of a team's own say where its body says nothing? Derived values are told in the row itself."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite
from typing import Any

from service.catalogue import ClusterRow, GpuRow, ModelRow, PriceRow, RateCardRow, RegionRow
from service.errors import Problem

Record = dict[str, Any]

SOURCE = "stated by the owner"
"""Source of a row whose body names none."""

LABEL_SHARE = 0.985
"""Usable share of a device's stated memory, where nobody has looked. Source: the rule of the shipped catalogue, label x
0.985 (usable_basis in gpus.csv)."""

LABEL_BASIS = "estimate: label x 0.985"
"""How the usable memory is known then."""

HOST_BYTES_PER_S = 16e9
"""Host link where none is stated. Source: PCIe 4 x8, as the shipped catalogue assumes it (note in gpus.csv)."""

NETWORK_BYTES_PER_S = 12.5e9 / 8
"""Network of one GPU where none is stated. Source: 100 Gbit/s shared by 8 GPUs as in AWS g5.48xlarge, as the shipped
catalogue assumes it (note in gpus.csv)."""

DERIVED_SAID = "derived, not stated: "
"""What a note says before the values that nobody stated."""
DERIVED_NOTE = re.compile(rf"(?:; )?{DERIVED_SAID}[^;]*$")

NODE_GPUS = 8
"""GPUs on one fast link where a link is stated and their number is not. Source: the usual node."""


def filled(kind: type, body: Mapping[str, Any]) -> Record:
    """The columns of an own row, with what its body leaves open.

    Args:
        kind: class of the row
        body: the columns that are given; null counts as not given

    Returns:
        the columns, nothing judged yet
    """
    given = {name: value for name, value in body.items() if value is not None}
    today = datetime.now(UTC).date().isoformat()
    common = {"source": SOURCE, "as_of": today, "verified": "no"}
    if "slug" in given and kind is not PriceRow:
        common["name"] = given["slug"]
    return FILLING[kind]({**common, **given})


DERIVED: Mapping[type, Mapping[str, tuple[str, ...]]] = {
    GpuRow: {
        "usable_bytes": ("memory_bytes",),
        "usable_basis": ("usable_bytes",),
        "host_bytes_per_s": (),
        "link_bytes_per_s": ("host_bytes_per_s",),
        "link_name": ("link_bytes_per_s",),
        "scale_up_gpus": ("link_bytes_per_s",),
        "inter_node_bytes_per_s": (),
        "release_year": ("as_of",),
    },
    PriceRow: {"usd_per_instance_hour": ("usd_per_gpu_hour", "gpu_count")},
}
"""Columns that follow from others where nobody states them: from which ones, which stand before them."""


def underived(kind: type, held: Mapping[str, Any], edited: Mapping[str, Any]) -> Record:
    """An edited row without what was derived before the edit and left as it was, so that it follows the edit.

    Args:
        kind: class of the row
        held: the columns of the row before
        edited: the columns after

    Returns:
        the columns to fill again
    """
    derived = _derived(kind, held)
    kept = {name: value for name, value in edited.items() if name not in derived or value != held[name]}
    if isinstance(kept.get("note"), str):
        kept["note"] = DERIVED_NOTE.sub("", kept["note"])
    return kept


def _derived(kind: type, held: Mapping[str, Any]) -> set[str]:
    """The columns of a row that hold what they would hold if nobody had stated them."""
    names, found = tuple(DERIVED.get(kind, ())), set[str]()
    for place, name in enumerate(names):
        absent = {*found, *names[place:]}
        again = filled(kind, {other: value for other, value in held.items() if other not in absent})
        found |= {name} if again.get(name) == held[name] else set()
    return found


def judged_once(kind: type, given: Mapping[str, Any], problems: Sequence[Problem]) -> list[Problem]:
    """The problems of a row without those of columns that nobody stated and that follow from a column with one.

    Args:
        kind: class of the row
        given: the columns that were given; null counts as not given
        problems: what is wrong with the filled row, by column

    Returns:
        what there is to mend
    """
    follows = {"name": ("slug",), **DERIVED.get(kind, {})}
    wrong = {problem.field for problem in problems}
    return [
        problem
        for problem in problems
        if given.get(problem.field) is not None or wrong.isdisjoint(follows.get(problem.field, ()))
    ]


def _model(given: Record) -> Record:
    return {"family": "own", **given}


def _gpu(given: Record) -> Record:
    has_link = "link_bytes_per_s" in given
    memory, host = _number(given.get("memory_bytes")), given.get("host_bytes_per_s", HOST_BYTES_PER_S)
    derived: Record = {
        "usable_bytes": None if memory is None else memory * LABEL_SHARE,
        "host_bytes_per_s": host,
        "link_bytes_per_s": host,
        "scale_up_gpus": NODE_GPUS if has_link else 1,
        "inter_node_bytes_per_s": NETWORK_BYTES_PER_S,
    }
    absent = {name: value for name, value in derived.items() if name not in given and _number(value) is not None}
    words = {
        "vendor": "not stated",
        "architecture": "own",
        "release_year": _year(given["as_of"]),
        "usable_basis": "stated by the owner" if "usable_bytes" in given else LABEL_BASIS,
        "link_name": "not stated" if has_link else "host link",
    }
    return _noted({**words, **absent, **given}, absent)


def _price(given: Record) -> Record:
    words: Record = {
        "instance_type": "any",
        "region": "all",
        "price_model": "on-demand",
        "stat": "point",
        "gpu_count": 1,
    }
    whole = {**words, **given}
    cost, count = _number(whole.get("usd_per_gpu_hour")), _number(whole["gpu_count"])
    return whole if cost is None or count is None else {"usd_per_instance_hour": cost * count, **whole}


def _region(given: Record) -> Record:
    words = {"kind": "own", **({"pue_source": given["source"]} if "pue" in given else {})}
    return {**words, **given}


def _as_given(given: Record) -> Record:
    return given


FILLING: Mapping[type, Callable[[Record], Record]] = {
    ModelRow: _model,
    GpuRow: _gpu,
    ClusterRow: _as_given,
    PriceRow: _price,
    RateCardRow: _as_given,
    RegionRow: _region,
}
"""How the rows of each kind are filled."""


def _noted(row: Record, derived: Record) -> Record:
    """The row, its note saying which values nobody stated."""
    note = row.get("note", "")
    if not derived or not isinstance(note, str):
        return row
    said = DERIVED_SAID + ", ".join(f"{name} {value:g}" for name, value in derived.items())
    return {**row, "note": f"{note}; {said}" if note else said}


def _number(value: object) -> float | None:
    """A number to derive others from; anything else is judged where the row is read."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        return None
    return float(value)


def _year(as_of: object) -> int | None:
    year = as_of[:4] if isinstance(as_of, str) else ""
    return int(year) if year.isascii() and year.isdigit() else None
