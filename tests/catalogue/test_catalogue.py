"""Rows of a catalogue agree with each other, and its revision identifies exactly those rows."""

import re
import subprocess
import sys
from dataclasses import replace
from itertools import permutations

import pytest

from service.catalogue import Catalogue, UnsoundFact, shipped_catalogue
from service.estimator.samples import H100, LLAMA_3_8B
from tests.catalogue.shapes import Row, catalogue, cluster, gpu, model, price


@pytest.mark.parametrize("row", [cluster("box", "h200"), price(gpu="h200")], ids=["cluster", "price"])
def test_row_about_an_absent_gpu_does_not_load(row: Row) -> None:
    with pytest.raises(UnsoundFact, match="h200"):
        catalogue(gpu("h100"), row)


def test_prices_are_held_by_id_in_whatever_order_they_come() -> None:
    rows = [price(instance_type=name, usd_per_gpu_hour=usd) for name, usd in [("c", 1.0), ("a", 2.0), ("b", 3.0)]]
    for order in permutations(rows):
        held = catalogue(gpu("h100"), *order).prices
        assert [row.instance_type for row in held] == ["a", "b", "c"]


def test_id_of_a_price_tells_it_from_any_other_and_needs_no_quoting() -> None:
    row = price(provider="Some Cloud", instance_type="8x/H100_SXM5")
    assert re.fullmatch(r"some-cloud-8x-h100-sxm5-h100-us-east-1-on-demand-point-2026-01-[0-9a-f]{8}", row.id)
    for other in ({"region": "all"}, {"price_model": "spot"}, {"stat": "max"}, {"as_of": "2026-02"}):
        assert price(**other).id != price().id


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"region": "München"}, {"region": "Mänchen"}),
        ({"region": "東京"}, {"region": "大阪"}),
        ({"region": "us-east"}, {"region": "US East"}),
        ({"provider": "a-b", "instance_type": "c"}, {"provider": "a", "instance_type": "b-c"}),
    ],
)
def test_prices_that_differ_in_a_character_have_different_ids(one: dict[str, str], other: dict[str, str]) -> None:
    assert price(**one).id != price(**other).id


def test_price_told_twice_does_not_load() -> None:
    with pytest.raises(UnsoundFact, match=price().id):
        catalogue(gpu("h100"), price(), price(usd_per_gpu_hour=3.0))


def test_revision_is_of_the_rows_in_any_order() -> None:
    rows: list[Row] = [gpu("h100"), gpu("a100"), model("one"), model("two"), cluster("box", "h100"), price()]
    assert catalogue(*rows).revision == catalogue(*reversed(rows)).revision


@pytest.mark.parametrize(
    "changed",
    [
        replace(gpu("h100"), release_year=2023),
        replace(gpu("h100"), gpu=replace(gpu("h100").gpu, board_watts=701.0)),
        replace(gpu("h100"), source="another data sheet"),
    ],
    ids=["year", "watts", "source"],
)
def test_any_change_is_another_revision(changed: Row) -> None:
    assert catalogue(changed).revision != catalogue(gpu("h100")).revision


def test_revision_is_the_same_in_another_process() -> None:
    told = "from service.catalogue import shipped_catalogue; print(shipped_catalogue().revision)"
    other = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == shipped_catalogue().revision


def test_catalogue_can_be_rebuilt_from_its_rows() -> None:
    shipped = shipped_catalogue()
    again = Catalogue.of(
        models=shipped.models.values(),
        gpus=shipped.gpus.values(),
        clusters=shipped.clusters.values(),
        prices=reversed(shipped.prices),
        regions=reversed(tuple(shipped.regions.values())),
    )
    assert again.revision == shipped.revision
    assert again.prices == shipped.prices
    assert len(shipped.revision) == 12


def test_import_opens_no_data_file() -> None:
    told = (
        "import sys\n"
        "opened = []\n"
        "sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == 'open' else None)\n"
        "import service.catalogue.huggingface\n"
        "print([name for name in opened if name.endswith(('.csv', '.json', '.toml'))])\n"
    )
    other = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == "[]"


def test_sample_gpu_is_the_catalogues() -> None:
    assert shipped_catalogue().gpus["h100-sxm5-80gb"].gpu == H100


def test_sample_model_is_the_catalogues() -> None:
    assert shipped_catalogue().models["llama-3.1-8b"].model == LLAMA_3_8B
