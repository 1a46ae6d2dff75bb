"""The shipped catalogue: rows from the data files of the package, read on first use."""

import csv
import json
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any

from service.catalogue import rows
from service.catalogue.bounds import faults_of
from service.catalogue.catalogue import Catalogue
from service.estimator.question import Cluster, Gpu, Model
from service.estimator.time.rates import MATRIX_RATES

GIB_BYTES = 2**30
GB_PER_S_BYTES_PER_S = 1e9
GBIT_PER_S_BYTES_PER_S = 1e9 / 8
TFLOP_PER_S_FLOP_PER_S = 1e12

UNMEASURED_ARCHITECTURES = frozenset({
    "CDNA2", "CDNA3 APU", "NeuronCore", "Pascal", "TPU", "Turing", "Volta", "Xe-HPC (Ponte Vecchio)",
})  # fmt: skip
"""GPU generations without measured efficiencies; any other unknown name is a spelling error."""


def model_row(row: Mapping[str, Any]) -> rows.ModelRow:
    """A model preset from an object of `models/*.json`, whose names are those of ModelRow and Model."""
    with _named("model", row.get("slug")):
        values = dict(row)
        if "model" in row:
            fields: dict[str, Any] = row["model"]
            lists = {name: tuple(value) for name, value in fields.items() if isinstance(value, list)}
            values["model"] = Model(**{**fields, **lists})
        if "exact" in row:
            values["exact"] = rows.ExactCounts(**row["exact"])
        if "published" in row:
            values["published"] = rows.PublishedCounts(**row["published"])
        return rows.ModelRow(**{"model": None, **values, "aliases": tuple(row.get("aliases", ()))})


def gpu_row(row: Mapping[str, str]) -> rows.GpuRow:
    """An accelerator from a line of `gpus.csv`; frameworks run fp32 matrix products in TF32 where a GPU has it."""
    with _named("gpu", row.get("slug")):
        if row["architecture"] not in MATRIX_RATES.keys() | UNMEASURED_ARCHITECTURES:
            raise rows.UnsoundFact(
                "its architecture is neither measured (MATRIX_RATES) nor in UNMEASURED_ARCHITECTURES"
            )
        rates = {name: _rate(row, name) for name in ("bf16", "fp16", "fp8", "fp4", "int8")}
        gpu = Gpu(
            slug=row["slug"],
            architecture=row["architecture"],
            memory_bytes=_number(row, "memory_gib") * GIB_BYTES,
            usable_bytes=_number(row, "usable_gib") * GIB_BYTES,
            memory_bytes_per_s=_number(row, "memory_gb_per_s") * GB_PER_S_BYTES_PER_S,
            fp32_flop_per_s=_rate(row, "tf32") or _rate(row, "fp32"),
            **{f"{name}_flop_per_s": rate for name, rate in rates.items()},
            link_bytes_per_s=_number(row, "link_gb_per_s") * GB_PER_S_BYTES_PER_S,
            scale_up_gpus=int(row["scale_up_gpus"]),
            inter_node_bytes_per_s=_number(row, "network_gbit_per_s") * GBIT_PER_S_BYTES_PER_S,
            host_bytes_per_s=_number(row, "host_gb_per_s") * GB_PER_S_BYTES_PER_S,
            board_watts=_number(row, "board_watts"),
        )
        columns = ("name", "vendor", "usable_basis", "link_name", "source", "as_of", "verified", "note")
        texts: dict[str, Any] = {column: row[column] for column in columns}
        return rows.GpuRow(
            gpu=gpu,
            purchase=_purchase(row),
            release_year=int(row["release_year"]),
            aliases=_names(row["aliases"]),
            default_for=_names(row["default_for"]),
            **texts,
        )


def cluster_row(slug: str, row: Mapping[str, Any]) -> rows.ClusterRow:
    """A machine from a table of `clusters.toml`."""
    with _named("cluster", slug):
        cluster = Cluster(
            **{name: row[name] for name in ("gpu", "gpus", "gpus_per_node", "scale_up_gpus")},
            inter_node_bytes_per_s=row["network_gbit_per_s"] * GBIT_PER_S_BYTES_PER_S,
        )
        texts = {name: row[name] for name in ("name", "source", "as_of", "verified")}
        return rows.ClusterRow(
            slug=slug, cluster=cluster, aliases=tuple(row.get("aliases", ())), note=row.get("note", ""), **texts
        )


def price_row(row: Mapping[str, str]) -> rows.PriceRow:
    """A price from a line of `prices.csv`."""
    with _named("price", f"{row.get('provider')} {row.get('instance_type')}"):
        numbers = {name: _number(row, name) for name in ("usd_per_gpu_hour", "usd_per_instance_hour")}
        values: dict[str, Any] = {**row, **numbers, "gpu_count": int(row["gpu_count"])}
        price = rows.PriceRow(**values)
        if (
            price.gpu_count < 1
            or abs(price.usd_per_instance_hour / price.gpu_count / price.usd_per_gpu_hour - 1) > 0.01
        ):
            raise rows.UnsoundFact("the machine's price is not that of its GPUs together")
        return price


def region_row(row: Mapping[str, str]) -> rows.RegionRow:
    """A place from a line of `regions.csv`."""
    with _named("region", row.get("slug")):
        shares = {name: float(row[name]) for name in ("carbon_free_fraction", "pue") if row[name]}
        words: dict[str, Any] = {name: cell for name, cell in row.items() if cell and name not in shares}
        aliases, intensity = _names(row["aliases"]), float(row["grid_kg_co2e_per_kwh"])
        place = rows.RegionRow(**{**words, **shares, "aliases": aliases, "grid_kg_co2e_per_kwh": intensity})
        if (place.pue is None) != (place.pue_source is None):
            raise rows.UnsoundFact("a pue needs a pue_source, and nothing else does")
        return place


def _purchase(row: Mapping[str, str]) -> rows.Purchase | None:
    if not row["purchase_usd"]:
        return None
    bought = rows.Purchase(usd=_number(row, "purchase_usd"), as_of=row["purchase_as_of"], source=row["purchase_source"])
    if not rows.is_date(bought.as_of):
        raise rows.UnsoundFact("purchase_as_of is no date")
    return bought


@contextmanager
def _named(kind: str, slug: object) -> Iterator[None]:
    try:
        yield
    except KeyError as error:
        raise rows.UnsoundFact(f"{kind} {slug}: {error} is missing") from None
    except (rows.UnsoundFact, TypeError, ValueError) as error:
        raise rows.UnsoundFact(f"{kind} {slug}: {error}") from None


SPECS = {rows.ModelRow: ("model",), rows.GpuRow: ("gpu", "purchase"), rows.ClusterRow: ("cluster",)}


def check_row(row: rows.Row) -> None:
    """Refuse a row with a value outside the bounds of its field."""
    specs = [getattr(row, part) for part in SPECS[type(row)]] if type(row) in SPECS else [row]
    with _named(type(row).__name__.removesuffix("Row").lower(), rows.key_of(row)):
        for spec in filter(None, specs):
            if faults := faults_of(spec):
                raise rows.UnsoundFact("; ".join(fault.message(name) for name, fault in faults.items()))


def _number(row: Mapping[str, str], column: str) -> float:
    value = float(row[column])
    if not (isfinite(value) and value > 0):
        raise rows.UnsoundFact(f"{column} is not above 0")
    return value


def _rate(row: Mapping[str, str], column: str) -> float | None:
    name = f"{column}_tflop_per_s"
    return _number(row, name) * TFLOP_PER_S_FLOP_PER_S if row[name] else None


def _names(cell: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in cell.split(";") if name.strip())


DATA = Path(__file__).parent
"""Folder of the data; importlib.resources would take 7 ms to load."""


def checked_catalogue() -> Catalogue:
    """The shipped catalogue with all values checked; its tests do so too, and an estimate need not."""
    catalogue = shipped_catalogue()
    for row in catalogue.rows():
        check_row(row)
    return catalogue


@cache
def shipped_catalogue() -> Catalogue:
    clusters = tomllib.loads((DATA / "clusters.toml").read_text(encoding="utf-8"))
    return Catalogue.of(
        models=[
            model_row(row)
            for file in sorted((DATA / "models").glob("*.json"))
            for row in json.loads(file.read_text(encoding="utf-8"))
        ],
        gpus=[gpu_row(row) for row in csv_rows("gpus.csv")],
        clusters=[cluster_row(slug, row) for slug, row in clusters.items()],
        prices=[price_row(row) for row in csv_rows("prices.csv")],
        regions=[region_row(row) for row in csv_rows("regions.csv")],
    )


def csv_rows(name: str) -> Iterator[Mapping[str, str]]:
    """Rows of a data file of the package, each with a cell for every column."""
    for row in csv.DictReader((DATA / name).read_text(encoding="utf-8").splitlines()):
        if None in row or None in row.values():
            raise rows.UnsoundFact(f"a row of {name} has more or fewer cells than the header")
        yield row
