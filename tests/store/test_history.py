"""Every earlier catalogue is kept, and a change is written whole or not at all."""

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import ColumnElement, Connection, Engine, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from service.catalogue import Catalogue, ClusterRow, PriceRow, Rate, RateCardRow, Row
from service.errors import Conflict, UnknownRevision
from service.estimator import Cluster
from service.store import history as room
from service.store.engine import reading, writing
from service.store.history import (
    MOST_NAMED,
    ROW_TABLES,
    Change,
    History,
    OtherVersions,
    Rows,
    RowTable,
    load_catalogue,
    load_numbered,
    newest_change,
)
from service.store.tables import CHANGED_PARTS, CHANGES, GPUS
from tests.store.conftest import Prepare
from tests.store.small import CLUSTER, GPU, MODEL, PRICE, REGION, SMALL

OWN_GPU = replace(
    GPU, gpu=replace(GPU.gpu, slug="ours"), name="Ours", aliases=("our gpu",), default_for=(), owner="team"
)
OWN_CLUSTER = ClusterRow(
    slug="our-box", name="Our box", cluster=Cluster(gpu=GPU.slug, gpus=8), source="us", as_of="2026", verified="no",
    owner="team",
)  # fmt: skip
OWN_CARD = RateCardRow(
    slug="card", name="Card", rates=(Rate(gpu=GPU.slug, usd_per_gpu_hour=1.5, price_model="spot"),), source="us",
    as_of="2026", verified="no", owner="team",
)  # fmt: skip


def put(history: History, *rows: Row) -> Catalogue:
    return history.change("team", lambda _: Rows(put=rows)).catalogue


def opened(engine: Engine) -> History:
    return History(engine, load_catalogue(engine))


def test_every_catalogue_that_there_was_is_read_again(prepare: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MOST_CACHED", 2)
    engine = prepare()
    history = opened(engine)
    held = [history.view("team"), put(history, OWN_GPU), put(history, OWN_CARD, OWN_CLUSTER)]
    held.append(put(history, replace(OWN_GPU, note="changed")))
    held.append(history.change("team", lambda _: Rows(drop=(OWN_CARD,))).catalogue)
    assert len({catalogue.revision for catalogue in held}) == len(held)
    for reader in (history, opened(engine)):
        for catalogue in held * 2:
            assert reader.at(catalogue.revision, "team") == catalogue
    with pytest.raises(UnknownRevision):
        history.at("0" * 12, "team")


def test_a_later_release_is_a_change_like_any_other(prepare: Prepare) -> None:
    first = load_catalogue(prepare()).view("team")
    cheaper = replace(PRICE, usd_per_gpu_hour=0.05)
    newer = Catalogue.from_rows([MODEL, GPU, CLUSTER, cheaper, REGION])
    engine = prepare(newer)
    history = opened(engine)
    assert history.view("team").revision == newer.revision
    assert history.view("team").prices[0].revision == 2
    assert history.at(first.revision, "team") == first
    again = opened(prepare(SMALL))
    assert again.view("team").revision == first.revision
    assert again.view("team").prices[0].revision == 3
    assert [change.owner for change in again.changes("team")] == ["catalogue"] * 3
    assert again.changes("team")[1].summary == "1 prices changed, 1 models deleted, 1 promoted calibrations deleted"
    assert again.changes("team")[2].summary == (
        "2 models created, 1 gpus created, 1 clusters created, 1 prices created, 1 regions created, "
        "1 promoted calibrations created"
    )


def test_a_start_that_ships_the_same_is_no_change(prepare: Prepare) -> None:
    for _ in range(2):
        engine = prepare()
    with reading(engine) as connection:
        assert connection.execute(select(func.count()).select_from(CHANGES)).scalar_one() == 1
        assert connection.execute(select(GPUS.c.since_change, GPUS.c.until_change)).all() == [(1, None)]


@pytest.mark.parametrize(
    "rows",
    [
        Rows(put=(replace(OWN_CLUSTER, cluster=Cluster(gpu="nothing", gpus=1)),)),
        Rows(put=(replace(OWN_GPU, gpu=replace(OWN_GPU.gpu, slug="another"), aliases=(GPU.slug,)),)),
        Rows(drop=(GPU,)),
    ],
    ids=["no such gpu", "a taken slug", "a gpu in use"],
)
def test_a_change_that_contradicts_the_catalogue_writes_nothing(prepare: Prepare, rows: Rows) -> None:
    engine = prepare()
    history = opened(engine)
    with pytest.raises(Conflict):
        history.change("team", lambda _: rows)
    assert history.view("team") == load_catalogue(engine).view("team")
    assert len(history.changes("team")) == 1


def test_an_error_while_deciding_writes_nothing(prepare: Prepare) -> None:
    engine = prepare()
    history = opened(engine)

    def fail(_: Any) -> Rows:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        history.change("team", fail)
    assert len(history.changes("team")) == 1


def test_an_older_catalogue_never_takes_the_place_of_a_newer(prepare: Prepare) -> None:
    engine = prepare()
    seen: list[str] = []
    history = History(engine, load_catalogue(engine), lambda catalogue: seen.append(catalogue.revision))
    elsewhere = opened(engine)
    first, second = put(elsewhere, OWN_GPU), put(history, OWN_CARD)
    assert history.view("team").revision == second.revision
    elsewhere.refresh()
    history.refresh()
    assert elsewhere.view("team").revision == history.view("team").revision == second.revision
    assert OWN_GPU.slug in second.gpus
    assert set(seen) == {load_catalogue(engine).everyone.revision}
    assert history.at(first.revision, "team").gpus.keys() == first.gpus.keys()


def test_a_row_that_was_made_again_is_another_version_elsewhere_too(prepare: Prepare) -> None:
    engine = prepare()
    history, elsewhere = opened(engine), opened(engine)
    made = put(history, OWN_CARD)
    elsewhere.refresh()
    history.change("team", lambda _: Rows(drop=(OWN_CARD,)))
    assert put(history, OWN_CARD).revision == made.revision
    elsewhere.refresh()
    assert [held.view("team").rate_cards["card"].revision for held in (history, elsewhere)] == [2, 2]


@pytest.mark.parametrize("looks", [True, False], ids=["seen by a look", "seen by a change"])
def test_a_restored_backup_is_taken_over(prepare: Prepare, looks: bool) -> None:
    engine = prepare()
    history, elsewhere = opened(engine), opened(engine)
    first = put(history, OWN_GPU)
    for note in ("second", "third"):
        put(history, replace(OWN_GPU, note=note))
    with writing(engine) as connection:  # what a backup of the time after the first change holds
        connection.execute(delete(CHANGES).where(CHANGES.c.number > 2))
        connection.execute(delete(CHANGED_PARTS).where(CHANGED_PARTS.c.number > 2))
        connection.execute(delete(GPUS).where(GPUS.c.since_change > 2))
        connection.execute(update(GPUS).where(GPUS.c.until_change > 2).values(until_change=None))
    if looks:
        history.refresh()
        assert history.view("team") == first
    after = put(history, OWN_CARD)
    assert after == first.changed((OWN_CARD,), revision=after.revision)
    elsewhere.refresh()
    assert history.view("team") == elsewhere.view("team") == after
    assert [change.number for change in history.changes("team")] == [3, 2, 1]


def test_a_look_that_is_late_undoes_no_change_of_its_own_process(
    prepare: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = opened(prepare())
    history.refresh()

    def late(connection: Connection) -> Change | None:
        found = newest_change(connection)
        monkeypatch.undo()
        put(history, OWN_CARD)
        return found if found is None else replace(found, catalogue="another")

    monkeypatch.setattr(room, "newest_change", late)
    history.refresh()
    assert "card" in history.view("team").rate_cards


def test_a_version_that_does_not_hold_cannot_end(prepare: Prepare) -> None:
    engine = prepare()
    history = opened(engine)
    put(history, OWN_GPU, OWN_CARD)
    with writing(engine) as connection:
        connection.execute(update(GPUS).where(GPUS.c.slug == "ours").values(until_change=2))
    with pytest.raises(OtherVersions, match="2 versions of gpus were to end, 1 held"):
        put(history, OWN_GPU, replace(GPU, note="changed"))
    assert len(history.changes("team")) == 2
    assert history.view("team").gpus[GPU.slug].revision == 1


@pytest.mark.parametrize("table", ROW_TABLES.values(), ids=lambda kept: kept.table.name)
def test_two_versions_of_one_row_cannot_hold(prepare: Prepare, table: RowTable) -> None:
    engine = prepare()
    put(opened(engine), OWN_CARD)
    with writing(engine) as connection:
        held = dict(connection.execute(select(table.table)).mappings().first() or {})
    with pytest.raises(IntegrityError), writing(engine) as connection:
        connection.execute(insert(table.table), {**held, "revision": 9})
    with writing(engine) as connection:
        connection.execute(insert(table.table), {**held, "revision": 9, "until_change": 9})


def test_versions_of_a_price_are_read_while_it_holds_and_after(prepare: Prepare) -> None:
    history = opened(prepare())
    own = replace(PRICE, provider="us", owner="team")
    put(history, own)
    put(history, replace(own, note="second"))
    for _ in range(2):
        versions = [history.version(PriceRow, own.id, revision, lambda _: True) for revision in (1, 2, 3)]
        assert [row.note if row else None for row in versions] == ["", "second", None]
        history.change("team", lambda _: Rows(drop=(own,) if own.id in history.view("team").price_index.rows else ()))
    assert history.version(PriceRow, "no-such-id", 1, lambda _: True) is None


@pytest.mark.parametrize("count", [1, MOST_NAMED, MOST_NAMED + 1])
def test_few_and_many_rows_are_numbered(prepare: Prepare, count: int) -> None:
    history = opened(prepare())
    many = [replace(PRICE, provider=f"us {number}", owner="team") for number in range(count)]
    for revision in (1, 2):
        put(history, *(replace(row, note=str(revision)) for row in many))
        assert {row.revision for row in history.view("team").prices if row.owner == "team"} == {revision}


def test_of_a_change_elsewhere_only_its_rows_are_read(prepare: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = prepare()
    number, current = load_numbered(engine)
    follower, elsewhere = History(engine, current, number=number), opened(engine)
    put(elsewhere, OWN_GPU, OWN_CARD, OWN_CLUSTER)
    put(elsewhere, replace(OWN_GPU, note="changed"), replace(PRICE, provider="us", owner="team"))
    elsewhere.change("team", lambda _: Rows(drop=(OWN_CARD,)))
    last = put(elsewhere, replace(OWN_CARD, note="made again"))
    read: list[Row] = []
    whole = RowTable.read

    def counted(kept: RowTable, connection: Connection, which: ColumnElement[bool]) -> list[Any]:
        rows = whole(kept, connection, which)
        read.extend(rows)
        return rows

    monkeypatch.setattr(RowTable, "read", counted)
    follower.refresh()
    assert (follower.number, follower.view("team")) == (elsewhere.number, last)
    assert len(read) == len((OWN_GPU, OWN_CARD, OWN_CLUSTER, PRICE))
    assert follower.view("team").gpus[GPU.slug] is current.everyone.gpus[GPU.slug]
    assert follower.view("team").rate_cards["card"].revision == 2
    monkeypatch.undo()
    assert load_catalogue(engine).view("team") == last


def test_of_many_rows_only_the_last_catalogue_stays_in_memory(
    prepare: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "MOST_CACHED_ROWS", 2 * len(SMALL.digests))
    history = opened(prepare())
    revisions = [history.view("team").revision, *(put(history, replace(OWN_GPU, note=note)).revision for note in "abc")]
    assert [history.cached(revision, "team") is not None for revision in revisions] == [True, False, True, True]
