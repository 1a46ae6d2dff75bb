"""Which facts come with the package? Its data files, read and checked when somebody asks."""

import csv
import json
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from service.catalogue.catalogue import Catalogue
from service.catalogue.parsing import cluster_row, gpu_row, model_row, price_row, region_row
from service.catalogue.provenance import UnsoundFact

DATA = "service.catalogue"


@cache
def shipped_catalogue() -> Catalogue:
    """The catalogue that the package ships.

    Returns:
        the catalogue, read once a process

    Raises:
        UnsoundFact: a data file holds a row that does not load; the message names it
    """
    return Catalogue.of(
        models=[
            model_row(row)
            for file in sorted(files(DATA).joinpath("models").iterdir(), key=lambda file: file.name)
            if file.name.endswith(".json")
            for row in json.loads(file.read_text(encoding="utf-8"))
        ],
        gpus=[gpu_row(row) for row in _csv("gpus.csv")],
        clusters=[cluster_row(slug, row) for slug, row in _toml("clusters.toml").items()],
        prices=[price_row(row) for row in _csv("prices.csv")],
        regions=[region_row(row) for row in _csv("regions.csv")],
    )


def _csv(name: str) -> Iterator[Mapping[str, str]]:
    for row in csv.DictReader(files(DATA).joinpath(name).read_text(encoding="utf-8").splitlines()):
        if None in row or None in row.values():
            raise UnsoundFact(f"a row of {name} has more or fewer cells than the header")
        yield row


def _toml(name: str) -> Mapping[str, Any]:
    return tomllib.loads(files(DATA).joinpath(name).read_text(encoding="utf-8"))
