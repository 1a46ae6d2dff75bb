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
        "exact.total": "parameters",
        "exact.active": "active",
        "model.num_hidden_layers": "layers",
        "model.hidden_size": "width",
        "hugging_face_id": "Hugging Face id",
    },
    "gpus": {
        "slug": "gpu",
        "gpu.memory_bytes": "memory",
        "gpu.usable_bytes": "usable",
        "gpu.bf16_flop_per_s": "bf16",
        "gpu.memory_bytes_per_s": "bandwidth",
        "release_year": "year",
        "aliases": "aliases",
    },
    "clusters": {
        "slug": "cluster",
        "cluster.gpus": "gpus",
        "cluster.gpu": "gpu",
        "cluster.gpus_per_node": "per node",
        "name": "name",
    },
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
"""Fields of the rows of each list, with their headers."""

SEARCHED = (
    *("slug", "name", "family", "aliases", "hugging_face_id", "cluster.gpu"),
    *("provider", "region", "gpu", "instance_type", "price_model"),
)
"""Fields whose words are searched."""


def _value(row: Any, path: str) -> Any:
    """A field of a row, or of a part of it; None where the row has none."""
    for name in path.split("."):
        row = getattr(row, name, None)
    return row


def _cell(name: str, value: Any) -> str:
    from service.units import BYTES, dimension_of, in_units

    if value is None or isinstance(value, str | bool):
        return value or "" if not isinstance(value, bool) else str(value).lower()
    if isinstance(value, list | tuple):
        return ", ".join(value)
    if name.startswith("exact."):
        return f"{value / 1e9:.4g}B"
    if name.endswith("_per_s"):
        return f"{value / 1e12:.4g} T{dimension_of([name]).base}"
    if name.endswith("_bytes"):
        return in_units(value, BYTES)
    return f"{value:.2f}" if name.startswith("usd") else str(value)


def _is_meant(row: Any, words: Sequence[str]) -> bool:
    """Whether a row has every word, regardless of case and of spaces and marks between letters."""
    values = (_value(row, path) for path in SEARCHED)
    plain = _plain(" ".join(str(value) for value in values if isinstance(value, str | tuple)))
    return all(_plain(word) in plain for word in words)


def _plain(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold()))


def _report(columns: Mapping[str, str], rows: Sequence[Any]) -> str:
    values = [[_value(row, path) for path in columns] for row in rows]
    right = {place for row in values for place, value in enumerate(row) if isinstance(value, int | float)}
    cells = [[_cell(path, value) for path, value in zip(columns, row, strict=True)] for row in values]
    return "\n".join(table([[*columns.values()], *cells], right=right))


def _records(plural: str, rows: Sequence[Any]) -> list[Mapping[str, Any]]:
    from service.features.catalogue.lists import LISTINGS, record_of

    return [record_of(LISTINGS[plural], row) for row in rows]


def _csv(plural: str, rows: Sequence[Any]) -> str:
    from service.tabular.lists import csv_text

    records = _records(plural, rows)
    return csv_text(records[0], (record.values() for record in records))


def _add(plural: str, meaning: str) -> None:
    def search(words: Search = None, *, as_json: console.AsJson = False, as_csv: console.AsCsv = False) -> None:
        from service.catalogue import shipped_catalogue

        catalogue = shipped_catalogue()
        rows = [*(catalogue.prices if plural == "prices" else getattr(catalogue, plural).values())]
        found = [row for row in rows if _is_meant(row, words or ())]
        if not found:
            raise NothingFound(
                f"no {plural} with {' and '.join(words or ())}; traincost {plural} lists all {len(rows):,}"
            )
        console.print_answer(
            found,
            lambda _: _report(TABLES[plural], found),
            as_json=as_json,
            as_csv=as_csv,
            csv=lambda _: _csv(plural, found),
            json_form=lambda _: {"items": _records(plural, found), "next_cursor": None},
        )

    search.__doc__ = meaning
    app.command(plural)(search)


_add("models", "Search the models of the catalogue by name, family or Hugging Face id.")
_add("gpus", "Search the GPUs of the catalogue by name.")
_add("clusters", "Search the clusters of the catalogue by name or GPU.")
_add("prices", "Search the prices of the catalogue by GPU, provider, region or terms.")
