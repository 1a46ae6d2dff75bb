"""Facts are read as they were stored, and seeding changes shipped rows only."""

from dataclasses import fields, replace
from typing import Any

import pytest
from sqlalchemy import Engine, Table, insert, inspect, select, update

from service.catalogue import (
    SHIPPED,
    CalibrationRow,
    Catalogue,
    ClusterRow,
    GpuRow,
    ModelRow,
    PriceRow,
    RateCardRow,
    RegionRow,
    shipped_catalogue,
)
from service.estimator import Cluster, Gpu
from service.store.database import prepare_database
from service.store.engine import reading, writing
from service.store.history import load_catalogue
from service.store.tables import CLUSTERS, GPUS, MODELS, PRICES, PROMOTED_CALIBRATIONS, RATE_CARDS, REGIONS, SEEDINGS
from tests.store.conftest import Prepare
from tests.store.small import CALIBRATION, CLUSTER, GPU, MODEL, NOT_ESTIMATED, PRICE, REGION, SMALL

OWN_GPU = {"owner": "team-a", "slug": "own-gpu", "name": "Own GPU"}


def _names(*kinds: Any) -> set[str]:
    return {field.name for kind in kinds for field in fields(kind)}


@pytest.mark.parametrize(
    ("table", "names"),
    [
        (MODELS, _names(ModelRow)),
        (GPUS, _names(GpuRow, Gpu) - {"gpu"}),
        (CLUSTERS, _names(ClusterRow, Cluster) - {"cluster"}),
        (PRICES, _names(PriceRow)),
        (RATE_CARDS, _names(RateCardRow)),
        (REGIONS, _names(RegionRow)),
        (PROMOTED_CALIBRATIONS, _names(CalibrationRow)),
    ],
    ids=["models", "gpus", "clusters", "prices", "rate_cards", "regions", "promoted_calibrations"],
)
def test_columns_are_the_fields_of_the_row(table: Table, names: set[str]) -> None:
    assert set(table.columns.keys()) == names | {"since_change", "until_change"}


def test_every_row_comes_back_equal(prepare: Prepare) -> None:
    loaded = load_catalogue(prepare()).view("team")
    assert loaded.models == {"linear": NOT_ESTIMATED, "tiny": MODEL}
    assert loaded.gpus == {GPU.slug: GPU}
    assert loaded.clusters == {"box": CLUSTER}
    assert loaded.prices == (PRICE,)
    assert loaded.regions == {"hall": REGION}
    assert loaded.calibrations == {GPU.slug: CALIBRATION}
    assert loaded.revision == SMALL.revision


def test_the_shipped_catalogue_comes_back_equal(prepare: Prepare) -> None:
    shipped = shipped_catalogue()
    loaded = load_catalogue(prepare(shipped)).view("team")
    assert loaded.models == shipped.models
    assert loaded.gpus == shipped.gpus
    assert loaded.clusters == shipped.clusters
    assert set(loaded.prices) == set(shipped.prices)
    assert loaded.regions == shipped.regions
    assert loaded.revision == shipped.revision


def test_seeding_again_writes_nothing(prepare: Prepare) -> None:
    engine = prepare()
    with writing(engine) as connection:
        connection.execute(update(GPUS).values(note="lost if written again"))
        seeded_at = connection.execute(select(SEEDINGS.c.seeded_at)).scalar_one()
    prepare()
    with reading(engine) as connection:
        assert connection.execute(select(GPUS.c.note)).scalars().all() == ["lost if written again"]
        assert connection.execute(select(SEEDINGS.c.seeded_at)).scalars().all() == [seeded_at]


def test_another_shipped_catalogue_replaces_the_shipped_rows_only(prepare: Prepare) -> None:
    engine = prepare()
    with writing(engine) as connection:
        shipped = connection.execute(select(GPUS)).mappings().one()
        connection.execute(insert(GPUS), {**shipped, **OWN_GPU, "aliases": [], "default_for": []})
    cheaper = replace(PRICE, usd_per_gpu_hour=0.05)
    newer = Catalogue.of(models=[MODEL], gpus=[GPU], clusters=[CLUSTER], prices=[cheaper])

    loaded = load_catalogue(prepare(newer)).view("team-a")

    assert loaded.models == {"tiny": MODEL}
    assert loaded.prices == (cheaper,)
    assert set(loaded.gpus) == {GPU.slug, "own-gpu"}
    with reading(engine) as connection:
        assert connection.execute(select(SEEDINGS.c.catalogue_revision)).scalars().all() == [newer.revision]
        assert set(connection.execute(select(GPUS.c.owner)).scalars()) == {SHIPPED, "team-a"}


def test_a_failed_seeding_leaves_nothing_behind(
    engine: Engine, prepare: Prepare, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("service.store.database.seed", fail)
    with pytest.raises(KeyboardInterrupt):
        prepare_database(database_url, SMALL)
    with reading(engine) as connection:
        assert inspect(connection).get_table_names() == []
    monkeypatch.undo()
    assert load_catalogue(prepare()).view("team").revision == SMALL.revision
