"""A database is ready after a start, from any state and with any number of starting processes."""

import logging
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, inspect, text

from service.catalogue import Catalogue, GpuRow, PriceRow, Row, Snapshot
from service.errors import StartupError
from service.estimator import Cluster
from service.store.database import prepare_database
from service.store.engine import writing
from service.store.history import Rows, load_catalogue
from tests.store.conftest import Prepare
from tests.store.racing import race, start
from tests.store.small import CLUSTER, GPU, MODEL, PRICE, SMALL
from tests.store.test_history import OWN_CARD, OWN_CLUSTER, OWN_GPU, opened, put

EMPTY = Catalogue.of(models=(), gpus=(), clusters=(), prices=())
STARTED_AGAIN = """
import sys
from service.store.database import prepare_database
from tests.store.small import SMALL
prepare_database(sys.argv[1], SMALL).dispose()
sys.exit("alembic" in sys.modules)
"""


def test_processes_that_start_at_once_seed_once(database_url: str) -> None:
    reports = race(start, database_url, 4)
    assert reports[0].startswith(f"{SMALL.revision} seeded at ")
    assert set(reports) == {reports[0]}


def test_a_second_start_does_not_import_alembic(database_url: str, prepare: Prepare) -> None:
    prepare()
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", STARTED_AGAIN, database_url], cwd=root, check=True)


def test_a_newer_database_is_left_alone(prepare: Prepare) -> None:
    engine = prepare()
    with writing(engine) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(StartupError, match=r"revision 9999.*newer traincost"):
        prepare(EMPTY)
    with writing(engine) as connection:
        assert connection.execute(text("SELECT count(*) FROM gpus")).scalar_one() == len(SMALL.gpus)


def test_tables_of_another_program_are_left_alone(prepare: Prepare, engine: Engine) -> None:
    with writing(engine) as connection:
        connection.execute(text("CREATE TABLE models (kept INTEGER)"))
    with pytest.raises(StartupError, match=r"cannot be used: .*models.* already exists"):
        prepare()
    with writing(engine) as connection:
        assert inspect(connection).get_table_names() == ["models"]


def test_an_unreachable_server_is_one_line_without_the_password() -> None:
    with pytest.raises(StartupError, match=r"127.0.0.1") as refusal:
        prepare_database("postgresql://somebody:secret@127.0.0.1:1/costs?password=secret", SMALL)
    assert "secret" not in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StartupError, match=r"folder .*file cannot be made"):
        prepare_database(f"sqlite:///{tmp_path / 'file' / 'traincost.db'}", SMALL)


def test_a_folder_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"unable to open database file"):
        prepare_database(f"sqlite:///{tmp_path}", SMALL)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "traincost.db"
    path.write_text("These are not the pages of a database. " * 100)
    with pytest.raises(StartupError, match=r"file is not a database"):
        prepare_database(f"sqlite:///{path}", SMALL)


OTHER_GPU = replace(GPU, gpu=replace(GPU.gpu, slug="other"), name="Other", aliases=("o",), default_for=())
OWN_PRICE = replace(PRICE, provider="us", owner="team")


def release(*rows: Row) -> Catalogue:
    """The shipped catalogue with other rows in the place of those of their key, or beside them."""
    return SMALL.changed(rows)


@pytest.mark.parametrize(
    "shipped",
    [
        replace(GPU, gpu=replace(GPU.gpu, slug="ours"), name="Shipped", aliases=(), default_for=()),
        replace(OTHER_GPU, gpu=replace(OTHER_GPU.gpu, slug="our-gpu")),
    ],
    ids=["the slug", "an alias"],
)
def test_a_shipped_row_is_left_out_where_its_slug_is_a_name_of_an_own_row(
    prepare: Prepare, caplog: pytest.LogCaptureFixture, shipped: GpuRow
) -> None:
    put(opened(prepare()), OWN_GPU)
    newer = release(shipped, replace(PRICE, gpu=shipped.slug))
    with caplog.at_level(logging.WARNING):
        snapshot = load_catalogue(prepare(newer))
    loaded = snapshot.view("team")
    assert loaded.gpus["ours"] == OWN_GPU
    assert loaded.gpus["ours"].owner == "team"
    assert shipped.slug not in loaded.gpus.keys() - {"ours"}
    assert snapshot.view("another").gpus[shipped.slug] == shipped
    assert snapshot.everyone.revision == newer.revision
    assert "left out" not in caplog.text
    prices = {row.gpu for row in loaded.prices}
    assert prices == ({GPU.slug, "ours"} if shipped.slug == "ours" else {GPU.slug})
    assert load_catalogue(prepare(newer)).view("team").revision == loaded.revision


@pytest.mark.parametrize("user", [OWN_PRICE, OWN_CLUSTER, OWN_CARD], ids=["price", "cluster", "rate card"])
@pytest.mark.parametrize(
    ("changes", "left"),
    [
        ({"aliases": (*GPU.aliases, "Ours")}, {}),
        ({"aliases": (*GPU.aliases, "OUR-gpu")}, {}),
        ({"default_for": (*GPU.default_for, "ours")}, {}),
        ({"name": "Our GPU"}, {"name": GPU.slug}),
    ],
    ids=["the slug as an alias", "an alias as an alias", "a shared name", "an alias as the name"],
)
def test_a_shipped_row_goes_without_the_names_of_own_rows(
    prepare: Prepare,
    caplog: pytest.LogCaptureFixture,
    user: Row,
    changes: dict[str, Any],
    left: dict[str, Any],
) -> None:
    before = put(opened(prepare()), OWN_GPU, user)
    newer = release(replace(GPU, **changes), replace(PRICE, region="there"))
    with caplog.at_level(logging.WARNING):
        snapshot = load_catalogue(prepare(newer))
    loaded = snapshot.view("team")
    assert snapshot.everyone.gpus == {GPU.slug: replace(GPU, **changes)}
    assert loaded.gpus == {GPU.slug: replace(GPU, **left), "ours": OWN_GPU}
    assert loaded.clusters.keys() == before.clusters.keys()
    assert set(loaded.prices) == {*before.prices} - {PRICE} | {*newer.prices}
    assert loaded.find_gpu("our gpu") == (OWN_GPU, None)
    assert not caplog.text


def test_a_shipped_model_goes_without_the_repository_of_an_own_one(prepare: Prepare) -> None:
    own = replace(MODEL, slug="mine", name="Mine", aliases=(), hugging_face_id="us/tiny", owner="team")
    put(opened(prepare()), own)
    loaded = load_catalogue(prepare(release(replace(MODEL, hugging_face_id="Us/Tiny")))).view("team")
    assert loaded.models["tiny"] == MODEL
    assert loaded.find_model("us/tiny") == (own, None)


@pytest.mark.parametrize(
    "shipped",
    [
        replace(GPU, gpu=replace(GPU.gpu, slug="ours"), name="Shipped", aliases=(), default_for=()),
        replace(OTHER_GPU, aliases=("o", "ours")),
        replace(GPU, default_for=("h100", "ours")),
    ],
    ids=["left out", "without an alias", "without a shared name"],
)
def test_what_was_in_the_way_comes_back_once_the_own_row_is_gone(prepare: Prepare, shipped: GpuRow) -> None:
    put(opened(prepare()), OWN_GPU)
    newer = release(shipped, replace(PRICE, gpu=shipped.slug))
    history = opened(prepare(newer))
    assert history.view("team").gpus.get(shipped.slug) != shipped
    history.change("team", _without_own_gpu)
    assert opened(prepare(newer)).view("team").revision == newer.revision
    changes = len(history.changes("team"))
    assert opened(prepare(newer)).view("team").revision == newer.revision
    assert len(history.changes("team")) == changes


def _without_own_gpu(_: Snapshot) -> Rows:
    return Rows(drop=(OWN_GPU,))


def test_a_start_that_leaves_something_out_again_is_no_change(prepare: Prepare) -> None:
    put(opened(prepare()), OWN_GPU)
    newer = release(replace(OTHER_GPU, aliases=("ours",)))
    for _ in range(3):
        history = opened(prepare(newer))
    assert [change.owner for change in history.changes("team")] == ["catalogue", "team", "catalogue"]


def test_a_gpu_that_is_no_longer_shipped_stays_for_own_rows(prepare: Prepare, caplog: pytest.LogCaptureFixture) -> None:
    history = opened(prepare())
    put(history, OWN_CLUSTER, OWN_CARD)
    renamed = replace(GPU, gpu=replace(GPU.gpu, slug="h100-new"), name="H100 new", aliases=("h100", GPU.slug))
    newer = Catalogue.from_rows([MODEL, renamed, replace(CLUSTER, cluster=Cluster(gpu="h100-new", gpus=8))])
    with caplog.at_level(logging.WARNING):
        history = opened(prepare(newer))
    assert history.view("team").gpus.keys() == {"h100-new", GPU.slug}
    assert history.view("team").find_gpu("h100").row.slug == "h100-new"
    assert history.view("team").find_gpu(GPU.slug).row.slug == GPU.slug
    assert history.view("team").clusters.keys() == {"box", "our-box"}
    assert "no longer shipped" in caplog.text
    assert history.snapshot.everyone.revision == newer.revision, "what one owner keeps is nothing to others"
    handed_on = history.view("team").gpus[GPU.slug]
    assert (handed_on.owner, handed_on.holds_for) == ("team", "owner")
    history.change("team", lambda _: Rows(drop=(OWN_CLUSTER, OWN_CARD, handed_on)))
    assert load_catalogue(prepare(newer)).view("team").revision == newer.revision


def test_an_own_price_stays_beside_a_shipped_one_of_its_id(prepare: Prepare, caplog: pytest.LogCaptureFixture) -> None:
    put(opened(prepare()), OWN_PRICE)
    dearer: PriceRow = replace(PRICE, provider="us", usd_per_gpu_hour=0.2)
    with caplog.at_level(logging.WARNING):
        loaded = load_catalogue(prepare(release(dearer))).view("team")
    assert loaded.prices == tuple(sorted((PRICE, OWN_PRICE), key=lambda row: row.id))
    assert not caplog.text
