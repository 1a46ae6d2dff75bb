"""Two replicas behind the proxy answer as one, and one is replaced without a lost request."""

from collections.abc import Iterator
from uuid import uuid4

import httpx
import pytest

from service.api.limits.http_limits import MAXIMUM_BODY_BYTES
from service.validation.flat import MOST_PARAMETERS
from tests.api.asking import QUESTION
from tests.databases import new_database
from tests.replicas import Replica, program, proxied, replicas
from tests.rolling import SETTINGS, loaded, replace

GPU = {"memory_bytes": 96e9, "memory_bytes_per_s": 3e12, "bf16_flop_per_s": 8e14, "board_watts": 500}
TIMES = 4
LARGER = 8
"""Times the longest body: more than a proxy and two systems hold on the way."""


@pytest.fixture(scope="module")
def url(postgresql_server: str) -> Iterator[str]:
    assert program()  # skipped, or failed, where there is no proxy: before replicas are started
    with new_database(postgresql_server) as found:
        yield found


@pytest.fixture(scope="module")
def running(url: str) -> Iterator[list[Replica]]:
    with replicas(url, 2, SETTINGS) as started:
        yield started


@pytest.fixture(scope="module")
def address(running: list[Replica]) -> Iterator[str]:
    with proxied([one.address for one in running]) as found:
        yield found


def test_who_wrote_reads_it_back_whichever_replica_answers(address: str) -> None:
    path = f"/v1/gpus/{uuid4().hex}"
    with httpx.Client(base_url=f"http://{address}", timeout=30) as client:
        created = client.post("/v1/gpus", json={"slug": path.rpartition("/")[2], **GPU})
        assert created.status_code == 201, created.text
        read = [client.get(path) for _ in range(TIMES)]
        assert [answer.status_code for answer in read] == [200] * TIMES
        for watts in (600, 700):
            client.patch(path, json={"board_watts": watts}, headers={"If-Match": "*"})
            assert [client.get(path).json()["board_watts"] for _ in range(TIMES)] == [watts] * TIMES
        client.delete(path, headers={"If-Match": "*"})
        assert [client.get(path).status_code for _ in range(TIMES)] == [404] * TIMES


def test_what_was_checked_is_read_whichever_replica_answers(address: str) -> None:
    """A check waits for no database, and so is written a moment later by the replica that answered."""
    with httpx.Client(base_url=f"http://{address}", timeout=30) as client:
        for days in range(1, TIMES + 1):
            recipe = {**QUESTION["recipe"], "training_tokens": 1e9 * days}
            checked = client.post("/v1/check", json={**QUESTION, "recipe": recipe}).json()["id"]
            assert client.get(f"/v1/estimates/{checked}").json()["id"] == checked
        for _ in range(TIMES):
            assert client.get(f"/v1/estimates/est_{uuid4().hex}").status_code == 404


def test_who_sends_too_much_is_told_so_through_the_proxy(address: str) -> None:
    with httpx.Client(base_url=f"http://{address}", timeout=30) as client:
        for _ in range(TIMES):
            refused = client.post("/v1/check", content=b" " * (LARGER * MAXIMUM_BODY_BYTES))
            assert (refused.status_code, refused.json()["code"]) == (413, "body_too_large")
        long = client.get("/v1/gpus?" + "&".join(["vendor=AMD"] * (MOST_PARAMETERS + 1)))
        assert (long.status_code, long.json()["errors"][0]["code"]) == (422, "too_many")


def test_replacing_a_replica_loses_no_request(url: str, running: list[Replica], address: str) -> None:
    with loaded(address, 4) as load:
        replace(url, running, 1)
    assert load.lost == []
    assert load.answered > TIMES
