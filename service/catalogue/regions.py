"""On which electricity does a cluster run? The region or country that a name means."""

from collections.abc import Iterable, Mapping

from service.catalogue.names import Found
from service.catalogue.provenance import UnsoundFact
from service.catalogue.rows import RegionRow
from service.errors import Problem, UnknownName, did_you_mean, nearest


def regions_by_slug(regions: Iterable[RegionRow]) -> dict[str, RegionRow]:
    """Regions by slug, in the order of the slugs.

    Args:
        regions: the regions

    Returns:
        the regions

    Raises:
        UnsoundFact: two of them have one slug
    """
    held: dict[str, RegionRow] = {}
    for row in regions:
        if row.slug in held:
            raise UnsoundFact(f"two rows are region {row.slug}")
        held[row.slug] = row
    return dict(sorted(held.items()))


def find_region(regions: Mapping[str, RegionRow], name: str, field: str) -> Found[RegionRow]:
    """The region that a name means.

    A machine's region is told with its cloud, because us-east1 of one is not us-east-1 of another.

    Args:
        regions: the regions by slug
        name: slug, or code or name of a country, in any capitals
        field: dotted path of the name in the question, for the error

    Returns:
        its row

    Raises:
        UnknownName: no such region; the fix lists the nearest names
    """
    wanted = name.casefold()
    row = regions.get(name) or next((row for row in regions.values() if wanted in names_of_region(row)), None)
    if row is not None:
        return Found(row, None)
    near = nearest(wanted, [row.slug for row in regions.values()])
    some = (
        "known are, for example, gcp:us-central1, aws:us-east-1, azure:eastus, USA or world; GET /v1/regions lists all"
    )
    message = "the catalogue holds no region of this name, so nothing is known of its electricity"
    fix = f"{did_you_mean(near) or some + ';'} or give grid_kg_co2e_per_kwh"
    raise UnknownName(Problem(field=field, code="unknown_region", message=message, fix=fix))


def names_of_region(row: RegionRow) -> tuple[str, ...]:
    """Every name that means a region, as it is compared.

    Args:
        row: the region

    Returns:
        slug and aliases; of a country its name too
    """
    names = (row.slug, *row.aliases, *(() if row.kind == "cloud-region" else (row.name,)))
    return tuple(name.casefold() for name in names)
