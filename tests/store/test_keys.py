"""Keys are read as they were stored, and memory follows the changes of other processes."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from hmac import compare_digest

import pytest
from sqlalchemy import delete

from service.errors import Unreachable
from service.store import Engine, keys
from service.store.engine import writing
from service.store.keys import ApiKey, KeyRing, create_key, limit_key, read_keys, revoke_key
from service.store.tables import API_KEYS
from tests.store.conftest import Prepare

NOW = datetime(2026, 11, 23, 12, 0, 0, 250_000, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
KEY = ApiKey(
    id="tck_a",
    name="größer 模型",
    owner="team",
    scopes=("read", "sheet"),
    digest=sha256(b"secret").digest(),
    created_at=NOW,
    expires_at=NOW + MINUTE,
)
OTHER = replace(KEY, id="tck_b", created_at=NOW + MINUTE, expires_at=None)


@pytest.fixture
def store(prepare: Prepare) -> Engine:
    engine = prepare()
    create_key(engine, OTHER)
    create_key(engine, KEY)
    return engine


def last_used(store: Engine) -> list[datetime | None]:
    return [key.last_used_at for key in read_keys(store)]


def test_keys_come_back_equal_and_in_order(store: Engine) -> None:
    assert read_keys(store) == [KEY, OTHER]


def test_no_secret_and_no_digest_is_told_by_accident(store: Engine) -> None:
    assert "digest" not in repr(read_keys(store))


def test_a_key_is_found_by_its_whole_secret_alone(store: Engine) -> None:
    ring = KeyRing(store)
    assert ring.find("tck_a.secret") == KEY
    for wrong in ("tck_a.secre", "tck_a", "tck_a.", ".secret", "tck_c.secret", "", "tck_a.secret.", "tck_a.\udc80"):
        assert ring.find(wrong) is None, wrong


def test_another_process_makes_and_revokes_keys(store: Engine) -> None:
    ring = KeyRing(store)
    create_key(store, replace(KEY, id="tck_c"))
    assert revoke_key(store, "tck_a", NOW) == NOW
    assert revoke_key(store, "tck_z", NOW) is None
    ring.refresh()
    assert ring.find("tck_c.secret") is not None
    found = ring.find("tck_a.secret")
    assert found is not None
    assert found.revoked_at == NOW
    assert revoke_key(store, "tck_a", NOW + MINUTE) == NOW
    assert read_keys(store)[0].revoked_at == NOW


def test_limits_come_back_and_another_process_changes_them(store: Engine) -> None:
    ring = KeyRing(store)
    create_key(store, replace(KEY, id="tck_c", requests_per_minute=0, request_burst=300))
    ring.refresh()
    for per_minute, burst in ((60, 9), (9, 60), (None, None)):
        assert limit_key(store, "tck_c", per_minute, burst)
        ring.refresh()
        found = ring.find("tck_c.secret")
        assert found is not None
        assert (found.requests_per_minute, found.request_burst) == (per_minute, burst)
    assert not limit_key(store, "tck_z", 1, 1)
    assert read_keys(store)[0] == KEY


def test_the_service_is_locked_from_the_first_key_on(prepare: Prepare) -> None:
    engine = prepare()
    ring = KeyRing(engine)
    was_locked = ring.is_locked
    assert not was_locked
    create_key(engine, KEY)
    revoke_key(engine, KEY.id, NOW)
    ring.refresh()
    assert ring.is_locked
    with writing(engine) as connection:
        connection.execute(delete(API_KEYS))  # as the restore of a backup without keys does
    ring.refresh()
    assert ring.is_locked, "nobody is let in who was not before"
    assert ring.find("tck_a.secret") is None


def test_uses_are_written_once_a_minute_and_never_backwards(store: Engine) -> None:
    ring, replica = KeyRing(store), KeyRing(store)
    ring.note_use(KEY, NOW)
    assert last_used(store) == [None, None]
    ring.write_uses()
    assert last_used(store) == [NOW, None]
    ring.note_use(KEY, NOW + MINUTE / 2)
    ring.write_uses()
    assert last_used(store) == [NOW, None]
    replica.note_use(KEY, NOW - MINUTE)
    replica.write_uses()
    assert last_used(store) == [NOW, None]
    ring.note_use(KEY, NOW + MINUTE)
    ring.write_uses()
    assert last_used(store) == [NOW + MINUTE, None]
    ring.note_use(KEY, NOW + 1.5 * MINUTE)
    ring.write_uses(all_of_them=True)
    assert last_used(store) == [NOW + 1.5 * MINUTE, None]


def test_of_many_that_make_the_signing_secret_all_get_the_same(store: Engine) -> None:
    rings = [KeyRing(store) for _ in range(4)]
    with ThreadPoolExecutor() as pool:
        secrets = {ring.signing_secret for ring in rings} | set(pool.map(KeyRing.make_signing_secret, rings))
    assert secrets - {None} == {rings[0].signing_secret}
    assert KeyRing(store).signing_secret == rings[0].signing_secret
    assert len(rings[0].make_signing_secret()) == 32


def test_without_a_database_there_are_no_keys() -> None:
    ring = KeyRing(None)
    ring.refresh()
    ring.note_use(KEY, NOW)
    ring.write_uses()
    assert not ring.is_locked
    assert ring.find("tck_a.secret") is None
    with pytest.raises(Unreachable):
        ring.make_signing_secret()


def test_an_unknown_id_does_the_work_of_a_known_one(store: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    ring = KeyRing(store)
    compared: list[tuple[int, int]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return compare_digest(one, other)

    monkeypatch.setattr(keys, "compare_digest", compare)
    for presented, is_known in (
        ("tck_a.secret", True),
        ("tck_a.secre", False),
        ("tck_nobody.secret", False),
        ("tck_nobody", False),
        (".", False),
        ("", False),
        ("." + "\0" * 32, False),
    ):
        assert (ring.find(presented) is not None) is is_known
        assert compared.pop() == (32, 32)
        assert compared == []


def test_a_key_that_is_lent_is_held_in_memory_alone_and_locks_nothing(prepare: Prepare) -> None:
    engine = prepare()
    ring = KeyRing(engine)
    ring.add_temporary(KEY)
    assert ring.find("tck_a.secret") == KEY
    assert ring.find("tck_a.other") is None
    assert not ring.is_locked
    ring.note_use(KEY, NOW)
    ring.write_uses(all_of_them=True)
    ring.refresh()
    assert ring.find("tck_a.secret") == KEY
    assert read_keys(engine) == []
    assert KeyRing(engine).find("tck_a.secret") is None
