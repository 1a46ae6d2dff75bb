"""On which electricity does the cluster run: its own region's, or that of the place where its price holds?"""

from collections.abc import Mapping
from dataclasses import replace

from service.catalogue import Catalogue, RegionRow
from service.catalogue.names import Found
from service.errors import UnknownName
from service.estimator.question import Cluster
from service.workflows.reading import Read, resting_on


def placed(cluster: Cluster, price: object, catalogue: Catalogue) -> Read[Cluster]:
    """The cluster with the facts of its place filled in, as far as it does not say them itself.

    Args:
        cluster: the cluster
        price: the price as the request spells it; one of the catalogue tells a place too
        catalogue: the regions

    Returns:
        the cluster, and what was taken from where

    Raises:
        UnknownName: no such region
    """
    if cluster.grid_region is not None:
        row = catalogue.find_region(cluster.grid_region, "cluster.grid_region").row
        return resting_on(_filled(cluster, row, ""), catalogue, row)
    found = None if cluster.grid_kg_co2e_per_kwh is not None else _of_price(price, catalogue)
    if found is None:
        return Read(cluster)
    return resting_on(_filled(cluster, found.row, ", the place of the price"), catalogue, found.row)


def place_of(price: object, catalogue: Catalogue) -> str | None:
    """The region where a price holds.

    Args:
        price: the price as the request spells it
        catalogue: the regions

    Returns:
        its name in the catalogue; None where the price tells no place, or its electricity is not known
    """
    found = _of_price(price, catalogue)
    return None if found is None else found.row.slug


def _of_price(price: object, catalogue: Catalogue) -> Found[RegionRow] | None:
    """The region where a price of the catalogue holds; None where its electricity is not known."""
    if not isinstance(price, Mapping) or not {"provider", "region"} <= price.keys():
        return None
    try:
        return catalogue.find_region(f"{price['provider']}:{price['region']}")
    except UnknownName:
        return None


def _filled(cluster: Cluster, row: RegionRow, why: str) -> Read[Cluster]:
    own = cluster.grid_kg_co2e_per_kwh
    said = []
    if own is None:
        said.append(
            f"electricity of {row.slug} ({row.name}{why}): {row.grid_kg_co2e_per_kwh:.3g} kgCO2e/kWh, as of {row.as_of}"
        )
    if cluster.pue is None and row.pue is not None:
        said.append(f"pue {row.pue:g} of the operator of {row.slug}: {row.pue_source}")
    filled = replace(
        cluster,
        grid_region=row.slug,
        grid_kg_co2e_per_kwh=row.grid_kg_co2e_per_kwh if own is None else own,
        pue=cluster.pue or row.pue,
    )
    return Read(filled, tuple(said))
