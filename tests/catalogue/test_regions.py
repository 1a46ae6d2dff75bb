"""Is every place found by the names that people have for it, and by no name of another cloud's region?"""

from dataclasses import replace

import pytest

from service.catalogue import Catalogue, UnsoundFact, shipped_catalogue
from service.catalogue.shipped import region_row
from service.errors import UnknownName

ROW = {
    "slug": "gcp:here",
    "name": "Here",
    "kind": "cloud-region",
    "country": "DEU",
    "aliases": "",
    "grid_kg_co2e_per_kwh": "0.4",
    "carbon_free_fraction": "0.5",
    "pue": "1.1",
    "pue_source": "a page",
    "source": "a table",
    "as_of": "2024",
    "verified": "yes",
    "note": "",
}


@pytest.mark.parametrize(
    ("name", "slug", "grams"),
    [
        ("gcp:us-central1", "gcp:us-central1", 412.72),
        ("GCP:US-Central1", "gcp:us-central1", 412.72),
        ("aws:us-east-1", "aws:us-east-1", 323.05),
        ("azure:eastus", "azure:eastus", 323.05),
        ("gcp:europe-north2", "gcp:europe-north2", 2.73),
        ("FRA", "FRA", 56.039),
        ("fr", "FRA", 56.039),
        ("France", "FRA", 56.039),
        ("world", "world", 475.0),
    ],
)
def test_a_place_is_found_by_its_names(name: str, slug: str, grams: float) -> None:
    row = shipped_catalogue().find_region(name).row
    assert row.slug == slug
    assert row.grid_kg_co2e_per_kwh == pytest.approx(grams / 1000, rel=1e-12)


@pytest.mark.parametrize("name", ["us-east1", "us-east-1", "aws:us-east1", "Iowa", "gcp", ""])
def test_a_name_without_its_cloud_means_nothing(name: str) -> None:
    with pytest.raises(UnknownName) as refused:
        shipped_catalogue().find_region(name)
    (problem,) = refused.value.problems
    assert (problem.field, problem.code) == ("cluster.grid_region", "unknown_region")
    assert "grid_kg_co2e_per_kwh" in problem.fix


def test_regions_of_one_place_run_on_one_grid_and_each_operator_has_its_pue() -> None:
    regions = shipped_catalogue().regions
    names = ("gcp:us-east4", "aws:us-east-1", "azure:eastus")
    assert len({regions[name].grid_kg_co2e_per_kwh for name in names}) == 1
    assert [regions[name].pue for name in names] == [1.09, 1.15, 1.16]
    assert all(row.pue_source and "recalled" in row.pue_source for row in regions.values() if row.pue)
    assert all(0 < row.grid_kg_co2e_per_kwh < 1 for row in regions.values())
    assert len(regions) > 100


@pytest.mark.parametrize(
    ("column", "cell", "words"),
    [
        ("grid_kg_co2e_per_kwh", "412.72", "grid_kg_co2e_per_kwh"),
        ("grid_kg_co2e_per_kwh", "", "could not convert"),
        ("carbon_free_fraction", "1.5", "carbon_free_fraction"),
        ("pue", "0.9", "pue"),
        ("pue_source", "", "pue_source"),
        ("source", " ", "source"),
        ("as_of", "soon", "as_of"),
        ("kind", "planet", "kind"),
        ("country", "Germany", "country"),
    ],
)
def test_a_wrong_cell_does_not_load(column: str, cell: str, words: str) -> None:
    assert region_row(ROW).slug == "gcp:here"
    with pytest.raises(UnsoundFact, match=words):
        region_row({**ROW, column: cell})


def test_one_slug_is_one_row_and_counts_in_the_revision() -> None:
    row = region_row(ROW)
    none = Catalogue.of(models=[], gpus=[], clusters=[], prices=[])
    one = none.changed(put=[row])
    greener = one.changed(put=[replace(row, grid_kg_co2e_per_kwh=0.1)])
    assert len({none.revision, one.revision, greener.revision}) == 3
    assert greener.changed(drop=[row]).revision == none.revision
    assert one.rows() == (row,)
    with pytest.raises(UnsoundFact, match="two rows are region gcp:here"):
        Catalogue.of(models=[], gpus=[], clusters=[], prices=[], regions=[row, row])


def test_purchase_prices_have_source_and_date() -> None:
    bought = {slug: row.purchase for slug, row in shipped_catalogue().gpus.items() if row.purchase}
    assert len(bought) == 25
    assert 28_000 < bought["h100-sxm5-80gb"].usd < 48_000
    assert all(one.source and one.as_of >= "2020" for one in bought.values())
