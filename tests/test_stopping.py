"""A service that gets SIGTERM says that it is not ready, answers every caller, and ends.

How soon it does is measured by `.ci/proof stopping`.
"""

import json
import re
from pathlib import Path

import pytest

from tests.stopping import Stopped, stopped_while_asked


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Stopped, Path]:
    folder = tmp_path_factory.mktemp("stopping")
    return stopped_while_asked(folder, callers=3, slow_callers=1, drain=6, pause=0.1), folder / "log"


def test_whoever_asked_is_answered(stopped: tuple[Stopped, Path]) -> None:
    found, _ = stopped
    assert found.failed == []
    assert set(found.answers) == {200}
    assert found.answered_after > 0


def test_it_is_not_ready_before_it_takes_no_more_and_ends(stopped: tuple[Stopped, Path]) -> None:
    found, _ = stopped
    assert found.not_ready_seconds is not None
    assert found.code == -15 or found.code == 0  # noqa: PLR1714 - ended by the signal, or in good order


def test_each_line_of_the_log_is_an_object_and_those_of_requests_name_them(stopped: tuple[Stopped, Path]) -> None:
    found, log = stopped
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    requests = [line for line in lines if line["logger"] == "service.api.envelope"]
    assert len(requests) >= sum(found.answers.values())
    assert all(re.fullmatch(r"[0-9a-f]{32}", line["request_id"]) for line in requests)
    assert {"time", "level", "message", "client", "method", "path", "status", "seconds"} <= requests[0].keys()
    assert not any("request_id" in line for line in lines if line["logger"].startswith("uvicorn"))
