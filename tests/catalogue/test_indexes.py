"""Names of rows, independent of capitals and separators, and regions by name."""

from dataclasses import replace

import pytest

from service.catalogue import Catalogue, UnsoundFact, shipped_catalogue
from service.catalogue.indexes import normal
from service.catalogue.shipped import check_row, region_row
from service.errors import UnknownName
from tests.catalogue.shapes import catalogue, gpu, model
from tests.echoes import unquoted

HOSTILE = "<script>alert(1)</script>"


@pytest.mark.parametrize(
    "spelled", ["big-model-7b", "Big-Model-7B", "BIG MODEL 7b", "big_model_7b", "bigmodel-7b", "bigmodel7b", "org/Big"]
)
def test_spelling_does_not_matter(spelled: str) -> None:
    found = catalogue(model("big-model-7b", "org/big")).find_model(spelled)
    assert (found.row.slug, found.assumption) == ("big-model-7b", None)


def test_separator_between_digits_matters() -> None:
    facts = catalogue(model("llama-2-7b"), model("llama-27b"))
    assert facts.find_model("Llama 2 7B").row.slug == "llama-2-7b"
    assert facts.find_model("llama_27b").row.slug == "llama-27b"


def test_name_without_any_separator_means_the_same_unless_it_is_taken() -> None:
    assert catalogue(model("llama-2-7b")).find_model("llama27b").row.slug == "llama-2-7b"
    assert catalogue(model("llama-2-7b"), model("llama-27b")).find_model("llama27b").row.slug == "llama-27b"
    with pytest.raises(UnknownName):
        catalogue(model("llama-2-7b")).find_model("llama-27b")


def test_provider_before_a_machine_type_does_not_matter() -> None:
    assert normal("AWS p5.48xlarge") == normal("p5.48xlarge")
    assert catalogue(gpu("h100", "p5.48xlarge")).find_gpu("aws p5.48xlarge").row.slug == "h100"


def test_shared_alias_takes_its_default_and_says_so() -> None:
    facts = catalogue(gpu("h100-pcie", "H100"), gpu("h100-sxm5", "H100", default_for=("h100",)))
    found = facts.find_gpu("H100")
    assert found.row.slug == "h100-sxm5"
    assert found.assumption == "gpu h100 is taken as h100-sxm5; it could also mean h100-pcie"


def test_shared_alias_without_default_names_its_candidates() -> None:
    facts = catalogue(gpu("gaudi2", "habana.ai/gaudi"), gpu("gaudi3", "habana.ai/gaudi"))
    with pytest.raises(UnknownName) as refused:
        facts.find_gpu("habana.ai/gaudi", "cluster.gpu")
    (problem,) = refused.value.problems
    assert (problem.field, problem.code) == ("cluster.gpu", "unknown_gpu")
    assert "gaudi2 or gaudi3" in problem.fix


def test_slug_beats_nothing_it_is_alone() -> None:
    with pytest.raises(UnsoundFact, match="slug of another"):
        catalogue(gpu("h100"), gpu("h100-pcie", "H-100"))


def test_two_rows_of_one_slug_do_not_load() -> None:
    with pytest.raises(UnsoundFact, match="two rows"):
        catalogue(model("twin"), model("twin"))


def test_two_defaults_of_one_alias_do_not_load() -> None:
    with pytest.raises(UnsoundFact, match="both claim"):
        catalogue(gpu("one", "x", default_for=("x",)), gpu("two", "x", default_for=("X",)))


@pytest.mark.parametrize(
    ("kind", "slug"), [("model", "llama-3.1-8b"), ("gpu", "h100-sxm5-80gb"), ("cluster", "dgx-h100")]
)
def test_unknown_name_leads_to_the_nearest(kind: str, slug: str) -> None:
    from service.catalogue import shipped_catalogue

    with pytest.raises(UnknownName) as refused:
        getattr(shipped_catalogue(), f"find_{kind}")(slug + "x", f"some.{kind}")
    (problem,) = refused.value.problems
    assert (problem.field, problem.code) == (f"some.{kind}", f"unknown_{kind}")
    assert slug in problem.fix


@pytest.mark.parametrize(
    "name", [HOSTILE, "", "\ud800", "x" * 100_000, "-" * 1000], ids=["script", "empty", "surrogate", "long", "dashes"]
)
def test_an_unknown_name_is_repeated_as_a_short_text(name: str) -> None:
    from service.catalogue import shipped_catalogue

    for find in (shipped_catalogue().find_model, shipped_catalogue().find_gpu, shipped_catalogue().find_cluster):
        with pytest.raises(UnknownName) as refused:
            find(name)
        (problem,) = refused.value.problems
        assert "script" not in unquoted(problem.message) + problem.fix
        assert len(repr(problem)) < 500
        assert "x" * 65 not in problem.message


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
        check_row(region_row({**ROW, column: cell}))


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
