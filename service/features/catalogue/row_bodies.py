"""Bodies of custom rows: the columns of a list, nested into the dataclasses that they describe."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from math import isfinite
from types import NoneType
from typing import Any, get_args, get_type_hints

from pydantic import GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from service.answers.names import component
from service.catalogue import GpuRow, ModelRow, PriceRow, RegionRow, Row
from service.catalogue.rows import is_date
from service.errors import MOST_PROBLEMS, Problem, Refused, refuse
from service.estimator.model.counts import count_parameters
from service.estimator.question import Model
from service.features.catalogue.lists import LISTINGS
from service.features.catalogue.row_rules import is_free_slug
from service.tabular.lists import columns_of
from service.validation.forms import ReadElsewhere, described_as, object_schema, or_null
from service.validation.json_text import apply_merge_patch, normalized, text_problems
from service.validation.problems import unknown_field
from service.validation.question_parts import HfConfig, read_config
from service.validation.reading import Parsed, fields_of, read_spec

Flat = Mapping[str, Any]

NOT_SETTABLE = ("id", "owner", "revision")


def read_row(kind: type, flat: Flat) -> Row:
    names = body_columns(kind)
    unknown = [name for name in flat if name not in names]
    problems = [unknown_field("", name, set(names), "the row") for name in unknown[:MOST_PROBLEMS]]
    given = {name: normalized(value) for name, value in flat.items() if value is not None and name in names}
    problems += text_problems(given)
    problems += [*_origin_problems(given), *(_absence_problems(given) if kind is ModelRow else ())]
    refuse(problems)
    try:
        row: Row = read_spec(kind, _nested(kind, given), "")
    except Refused as refused:
        raise Refused(*(replace(one, field=_column_at(kind, one.field)) for one in refused.problems)) from None
    return row


@cache
def body_columns(kind: type) -> tuple[str, ...]:
    return tuple(column.name for column in columns_of(kind) if column.name not in NOT_SETTABLE)


@cache
def columns_below(kind: type, field: str) -> tuple[str, ...]:
    """Columns that make up one field of a row."""
    return tuple(column.name for column in columns_of(kind) if column.path[0] == field)


def _nested(kind: type, given: Flat) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for column in columns_of(kind):
        *outer, last = column.path
        place = nested
        for step in outer:
            place = place.setdefault(step, {})
        if column.name in given:
            place[last] = given[column.name]
    return {
        name: None if value == {} and NoneType in get_args(get_type_hints(kind)[name]) else value
        for name, value in nested.items()
    }


def _column_at(kind: type, field: str) -> str:
    steps = tuple(field.split("."))
    for column in columns_of(kind):
        if steps[: len(column.path)] == column.path:
            return ".".join((column.name, *steps[len(column.path) :]))
    return ""


def _origin_problems(given: Flat) -> list[Problem]:
    problems: list[Problem] = []
    source, as_of = given.get("source"), given.get("as_of")
    if isinstance(source, str) and not source.strip():
        message = "source is blank; a number without a source is none that others can rely on"
        problems.append(Problem(field="source", code="wrong_length", message=message, fix="say where it comes from"))
    for name in ("as_of", "purchase_as_of"):
        if isinstance(given.get(name), str) and not is_date(given[name]):
            message = f"{name} is no date, so it is unknown which number is the newer one"
            fix = "give 2025, 2025-03 or 2025-03-17"
            problems.append(Problem(field=name, code="not_a_date", message=message, fix=fix))
    today = datetime.now(UTC).date().isoformat()
    if isinstance(as_of, str) and is_date(as_of) and as_of > today[: len(as_of)]:
        message = "as_of lies in the future; the newest row counts, so what holds later would count already today"
        problems.append(Problem(field="as_of", code="out_of_range", message=message, fix=f"give {today} or earlier"))
    return problems


def _absence_problems(given: Flat) -> list[Problem]:
    is_there = any(name in given for name in columns_below(ModelRow, "model"))
    if is_there and "not_estimated" in given:
        message = "not_estimated says why there is no model, and the columns of one are given"
        return [Problem(field="not_estimated", code="contradiction", message=message, fix="leave one of them out")]
    if not is_there and "not_estimated" not in given:
        message = "the row holds no model, so nothing could be estimated with it"
        fix = "give vocab_size, hidden_size, num_hidden_layers and the other columns of the model, or hf_config"
        return [Problem(field="vocab_size", code="required", message=message, fix=fix)]
    return []


Record = dict[str, Any]

SOURCE = "stated by the owner"
"""Source of a row whose body names none."""

LABEL_SHARE = 0.985
"""Usable share of stated memory, if not measured. Source: usable_basis in gpus.csv, label x 0.985."""

LABEL_BASIS = "estimate: label x 0.985"
"""Basis of the usable memory in that case."""

HOST_BYTES_PER_S = 16e9
"""Host link where none is stated. Source: PCIe 4 x8, as the shipped catalogue assumes it (note in gpus.csv)."""
NETWORK_BYTES_PER_S = 12.5e9 / 8
"""Network of one GPU where none is stated. Source: 100 Gbit/s shared by 8 GPUs as in AWS g5.48xlarge, as the shipped
catalogue assumes it (note in gpus.csv)."""

DERIVED_PREFIX = "derived, not stated: "
"""Start of the note on derived values."""
DERIVED_NOTE = re.compile(rf"(?:; )?{DERIVED_PREFIX}[^;]*$")

NODE_GPUS = 8
"""GPUs on one fast link where a link is stated and their number is not. Source: the usual node."""


def with_defaults(kind: type, body: Mapping[str, Any]) -> Record:
    """Columns of a custom row with defaults for what its body omits."""
    given = {name: value for name, value in body.items() if value is not None}
    today = datetime.now(UTC).date().isoformat()
    common = {"source": SOURCE, "as_of": today, "verified": "no"}
    if "slug" in given and kind is not PriceRow:
        common["name"] = given["slug"]
    return DEFAULTS.get(kind, dict)({**common, **given})


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
"""Columns that are derived when not stated, with the columns that they follow from."""


def without_derived(kind: type, stored: Mapping[str, Any], edited: Mapping[str, Any]) -> Record:
    """An edited row without the derived values that the edit left unchanged, so that they are derived again."""
    derived = _derived(kind, stored)
    stated = {name: value for name, value in edited.items() if name not in derived or value != stored[name]}
    if isinstance(stated.get("note"), str):
        stated["note"] = DERIVED_NOTE.sub("", stated["note"])
    return stated


def _derived(kind: type, stored: Mapping[str, Any]) -> set[str]:
    names, derived_names = tuple(DERIVED.get(kind, ())), set[str]()
    for place, name in enumerate(names):
        absent = {*derived_names, *names[place:]}
        again = with_defaults(kind, {other: value for other, value in stored.items() if other not in absent})
        derived_names |= {name} if again.get(name) == stored[name] else set()
    return derived_names


def without_consequences(kind: type, given: Mapping[str, Any], problems: Sequence[Problem]) -> list[Problem]:
    """Problems of a row, except those of derived columns that follow from another wrong column."""
    follows = {"name": ("slug",), **DERIVED.get(kind, {})}
    wrong = {problem.field for problem in problems}
    return [
        problem
        for problem in problems
        if given.get(problem.field) is not None or wrong.isdisjoint(follows.get(problem.field, ()))
    ]


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
    year = given["as_of"][:4] if isinstance(given["as_of"], str) else ""
    words = {
        "vendor": "not stated",
        "architecture": "own",
        "release_year": int(year) if year.isascii() and year.isdigit() else None,
        "usable_basis": "stated by the owner" if "usable_bytes" in given else LABEL_BASIS,
        "link_name": "not stated" if has_link else "host link",
    }
    row = {**words, **absent, **given}
    note = row.get("note", "")
    if not absent or not isinstance(note, str):
        return row
    text = DERIVED_PREFIX + ", ".join(f"{name} {value:g}" for name, value in absent.items())
    return {**row, "note": f"{note}; {text}" if note else text}


def _price(given: Record) -> Record:
    words = {"instance_type": "any", "region": "all", "price_model": "on-demand", "stat": "point", "gpu_count": 1}
    whole = {**words, **given}
    cost, count = _number(whole.get("usd_per_gpu_hour")), _number(whole["gpu_count"])
    return whole if cost is None or count is None else {"usd_per_instance_hour": cost * count, **whole}


DEFAULTS: Mapping[type, Callable[[Record], Record]] = {
    ModelRow: lambda given: {"family": "own", **given},
    GpuRow: _gpu,
    PriceRow: _price,
    RegionRow: lambda given: {"kind": "own", **({"pue_source": given["source"]} if "pue" in given else {}), **given},
}
"""Defaults by kind of row; other kinds have none beside the common ones."""


def _number(value: object) -> float | None:
    """A finite number to derive others from; None for anything else, which the reader of the row refuses."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        return None
    return float(value)


CONFIG = "hf_config"
"""Column of a body in place of all columns of the model."""

READ_FROM = "read from a Hugging Face config"
"""Start of the note with the assumptions made to read a config."""

NOT_IN_SLUGS = re.compile(r"[^a-z0-9.]+")
LONGEST_ASSUMPTIONS = 3500


def with_model(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """A body with the columns of its config."""
    if body.get(CONFIG) is None:
        return {name: value for name, value in body.items() if name != CONFIG}
    beside = [name for name in columns_below(ModelRow, "model") if body.get(name) is not None]
    if beside:
        message = "the model is given twice, by its config and by columns of its own, and they may differ"
        fix = f"leave {beside[0]} out, or hf_config"
        raise Refused(Problem(field=CONFIG, code="told_twice", message=message, fix=fix))
    given = {name: value for name, value in body.items() if name != CONFIG and value is not None}
    return {**columns_of_config(read_config(body[CONFIG], CONFIG)), **given}


def patched(record: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """A row after a merge patch; a config replaces all columns of the model."""
    config = patch.get(CONFIG)
    if config is None:
        return dict(apply_merge_patch(record, patch))
    replaced = {*columns_below(ModelRow, "model")}
    if str(record.get("note", "")).startswith(READ_FROM):
        replaced.add("note")
    return {
        **apply_merge_patch({name: value for name, value in record.items() if name not in replaced}, patch),
        CONFIG: config,
    }


def columns_of_config(read: Parsed[Model]) -> dict[str, Any]:
    assumed = "; ".join(read.assumptions)[:LONGEST_ASSUMPTIONS]
    note = f"{READ_FROM}; {assumed}" if assumed else READ_FROM
    return {**fields_of(read.spec), "note": note}


def slug_of_config(config: Mapping[str, Any], model: Model) -> str:
    """Slug of a model without a name: from its repository, else from type and size."""
    named = config.get("_name_or_path")
    last = named.rstrip("/").rpartition("/")[2] if isinstance(named, str) else ""
    size = _size(count_parameters(model).total)
    fields_of = (_slug(name) for name in (last, f"{config.get('model_type')}-{size}"))
    return next(filter(is_free_slug, fields_of), _slug(f"model-{size}"))


def _slug(text: str) -> str:
    return NOT_IN_SLUGS.sub("-", text.lower())[:80].strip("-.")


def _size(parameters: int) -> str:
    """Parameter count as in model names.

    >>> _size(494_032_768), _size(8_030_261_248), _size(1_234)
    ('494m', '8.03b', '1234')
    """
    for unit, letter in ((10**12, "t"), (10**9, "b"), (10**6, "m")):
        if parameters >= unit:
            return f"{parameters / unit:.3g}{letter}"
    return str(parameters)


SINGULAR: Mapping[str, str] = {
    "models": "Model",
    "gpus": "Gpu",
    "clusters": "Cluster",
    "prices": "Price",
    "rate-cards": "RateCard",
    "regions": "Region",
}

REQUIRED_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "models": ("slug",),
    "gpus": ("slug", "memory_bytes", "memory_bytes_per_s", "board_watts"),
    "clusters": ("slug", "gpu", "gpus"),
    "prices": ("provider", "gpu", "usd_per_gpu_hour"),
    "rate-cards": ("slug", "rates"),
    "regions": ("slug", "grid_kg_co2e_per_kwh"),
}


@dataclass(frozen=True)
class RowColumns(ReadElsewhere):
    """Describes the body that creates a row of a list, or a patch of one."""

    plural: str
    is_patch: bool = False

    def __get_pydantic_json_schema__(self, _schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        columns, required = LISTINGS[self.plural].columns, REQUIRED_COLUMNS[self.plural]
        fields = {one.name: dict(one.schema) if one.name in required else or_null(dict(one.schema)) for one in columns}
        for name in fields.keys() & {*NOT_SETTABLE}:
            fields[name]["description"] = "Follows from the row; leave it out."
        if self.plural == "models":
            fields["hf_config"] = described_as(HfConfig, handler)
        if self.is_patch:
            described = "Columns to change; null for derived or unknown."
            return component(f"{SINGULAR[self.plural]}RowPatch", object_schema(described, fields))
        described = f"One of your own {self.plural}, column by column; null or absent means derived or unknown."
        return component(f"{SINGULAR[self.plural]}RowRequest", object_schema(described, fields, required))


PRICE_ID = "example-cloud-any-h100-sxm5-80gb-frankfurt-reserved-1y-point-2025-06-01-e0b45c36"
