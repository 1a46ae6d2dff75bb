"""A body costs no memory before its sender is authenticated."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from service.api.limits.http_limits import LARGER_BODY_BYTES
from tests.api.asking import QUESTION
from tests.api.slow_clients import held_bodies
from tests.live import bearer, serving

COUNT = 20
MOST_GROWN_BYTES = 5_000_000
BATCH = "/v1/batch"


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A service that asks for keys, asked with one."""
    folder: Path = tmp_path_factory.mktemp("locked")
    headers = bearer(folder, "read")
    with serving(folder) as address, httpx.Client(base_url=f"http://{address}", headers=headers, timeout=30) as client:
        yield client


def resident_bytes(client: httpx.Client) -> float:
    figures = client.get("/metrics").text.splitlines()
    return next(float(line.split()[1]) for line in figures if line.startswith("process_resident_memory_bytes "))


def test_strangers_fill_no_memory(locked: httpx.Client) -> None:
    address = (str(locked.base_url.host), int(locked.base_url.port or 0))
    with held_bodies(address, BATCH, LARGER_BODY_BYTES[BATCH], 1) as statuses:
        assert statuses == [401]
    before = resident_bytes(locked)
    with held_bodies(address, BATCH, LARGER_BODY_BYTES[BATCH], COUNT) as statuses:
        grown = resident_bytes(locked) - before
        assert grown < MOST_GROWN_BYTES, f"{grown / 1e6:.1f} MB for {COUNT} bodies of strangers"
    assert statuses == [401] * COUNT


def test_whoever_is_known_is_answered_beside_them(locked: httpx.Client) -> None:
    body = {"questions": [{"kind": "estimate", "body": QUESTION}]}
    told = locked.post(BATCH, json=body)
    assert [one["status"] for one in told.json()["answers"]] == [200]
    refused = locked.post(BATCH, json=body, headers={"Authorization": "Bearer tck_no.body"})
    assert (refused.status_code, refused.json()["code"]) == (401, "unauthorized")
    assert locked.post(BATCH, json=body).status_code == 200, "the connection goes on"
