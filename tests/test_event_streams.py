"""Do streams of events leave their connections to others, and does nobody miss or hear twice what they say?"""

import json
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection

import pytest

from tests.api.asking import QUESTION
from tests.live import serving


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("streams")) as found:
        yield found


def test_head_of_a_stream_leaves_the_connection_to_the_next_request(address: str) -> None:
    with closing(HTTPConnection(address, timeout=20)) as connection:
        body = json.dumps({"question": QUESTION, "probes": ["gemm"]})
        connection.request("POST", "/v1/launch-checks", body, {"Content-Type": "application/json"})
        check = json.loads(connection.getresponse().read())
        for method, path in (("HEAD", f"/v1/launch-checks/{check['id']}/events"), ("GET", "/healthz")):
            connection.request(method, path)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200
