"""Do two replicas behind the proxy answer as one, and is one replaced without anybody noticing?"""

from collections.abc import Iterator
from uuid import uuid4

import httpx
import pytest

from tests.databases import new_database
from tests.replicas import Replica, proxied, replicas
from tests.rolling import SETTINGS, loaded, replace

GPU = {"memory_bytes": 96e9, "memory_bytes_per_s": 3e12, "bf16_flop_per_s": 8e14, "board_watts": 500}
TIMES = 4


@pytest.fixture(scope="module")
def url(postgresql_server: str) -> Iterator[str]:
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


def test_replacing_a_replica_loses_no_request(url: str, running: list[Replica], address: str) -> None:
    with loaded(address, 4) as load:
        replace(url, running, 1)
    assert load.lost == []
    assert load.answered > TIMES
