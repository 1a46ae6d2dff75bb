"""Commands that search the shipped catalogue: models, GPUs, clusters and prices."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from service.cli import console
from service.cli.tables import table
from service.errors import TraincostError

app = console.CommandGroup()


class NothingFound(TraincostError):
    """No row of the catalogue has the searched words."""


Search = Annotated[list[str] | None, typer.Argument(help="Words that a row has, e.g. llama 8b or h100 aws.")]

TABLES: Mapping[str, Mapping[str, str]] = {
    "models": {
        "slug": "model",
        "exact_total": "parameters",
        "exact_active": "active",
        "num_hidden_layers": "layers",
        "hidden_size": "width",
        "hugging_face_id": "Hugging Face id",
    },
    "gpus": {
        "slug": "gpu",
        "memory_bytes": "memory",
        "usable_bytes": "usable",
        "bf16_flop_per_s": "bf16",
        "memory_bytes_per_s": "bandwidth",
        "release_year": "year",
        "aliases": "aliases",
    },
    "clusters": {"slug": "cluster", "gpus": "gpus", "gpu": "gpu", "gpus_per_node": "per node", "name": "name"},
    "prices": {
        "gpu": "gpu",
        "usd_per_gpu_hour": "USD/GPU-h",
        "provider": "provider",
        "region": "region",
        "price_model": "terms",
        "instance_type": "instance",
        "as_of": "as of",
    },
}
"""Columns of each list with their headers."""

SEARCHED = (
    *("slug", "name", "family", "aliases", "hugging_face_id"),
    *("provider", "region", "gpu", "instance_type", "price_model"),
)
"""Columns whose words are searched."""


def _cell(name: str, value: Any) -> str:
    from service.units import BYTES, dimension_of, in_units

    if value is None or isinstance(value, str | bool):
        return value or "" if not isinstance(value, bool) else str(value).lower()
    if isinstance(value, list | tuple):
        return ", ".join(value)
    if name.startswith("exact_"):
        return f"{value / 1e9:.4g}B"
    if name.endswith("_per_s"):
        return f"{value / 1e12:.4g} T{dimension_of([name]).base}"
    if name.endswith("_bytes"):
        return in_units(value, BYTES)
    return f"{value:.2f}" if name.startswith("usd") else str(value)


def _is_meant(record: Mapping[str, Any], words: Sequence[str]) -> bool:
    """Whether a row has every word, regardless of case and of spaces and marks between letters."""
    plain = _plain(" ".join(str(record[name]) for name in SEARCHED if record.get(name) is not None))
    return all(_plain(word) in plain for word in words)


def _plain(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold()))


def _add(plural: str, meaning: str) -> None:
    def search(words: Search = None, *, as_json: console.AsJson = False, as_csv: console.AsCsv = False) -> None:
        from service.catalogue import shipped_catalogue
        from service.features.catalogue.lists import LISTINGS, record_of
        from service.tabular.lists import csv_text

        listing = LISTINGS[plural]
        records = [record_of(listing, row) for row in listing.rows(shipped_catalogue())]
        found = [record for record in records if _is_meant(record, words or ())]
        if not found:
            raise NothingFound(
                f"no {plural} with {' and '.join(words or ())}; traincost {plural} lists all {len(records):,}"
            )
        columns = TABLES[plural]
        right = [place for place, name in enumerate(columns) if isinstance(found[0][name], int | float)]
        cells = [[_cell(name, record[name]) for name in columns] for record in found]
        console.print_answer(
            found,
            lambda _: "\n".join(table([[*columns.values()], *cells], right=right)),
            as_json=as_json,
            as_csv=as_csv,
            csv=lambda rows: csv_text(rows[0], (row.values() for row in rows)),
            json_form=lambda items: {"items": items, "next_cursor": None},
        )

    search.__doc__ = meaning
    app.command(plural)(search)


_add("models", "Search the models of the catalogue by name, family or Hugging Face id.")
_add("gpus", "Search the GPUs of the catalogue by name.")
_add("clusters", "Search the clusters of the catalogue by name or GPU.")
_add("prices", "Search the prices of the catalogue by GPU, provider, region or terms.")
