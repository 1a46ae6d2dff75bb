"""The page requests a launch check, shows progress and measurements, and offers the trace."""

import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.api.fake_worker import FakeWorker
from tests.page.browser import Sight

TRACE = gzip.compress(b'{"traceEvents": []}')


@pytest.fixture
def worker(sight: Sight) -> Iterator[FakeWorker]:
    """A worker without GPUs, beside the page; what others left waiting is stopped first."""
    with httpx.Client(base_url=f"http://{sight.address}", timeout=30) as client:
        for left in client.get("/v1/launch-checks").json()["items"]:
            client.post(f"/v1/launch-checks/{left['id']}/cancel")
        yield FakeWorker(client.request)


def start(sight: Sight, *probes: str) -> None:
    sight.page.click("#tab-measure")
    for name in ("context", "gemm", "attention", "bandwidth", "elementwise", "collective", "step", "profile"):
        sight.page.set_checked(f"#check-{name}", name in probes)
    sight.page.click("#check-start")
    sight.page.locator("#check .probes").wait_for()


def test_what_was_measured_stands_beside_what_is_predicted(sight: Sight, worker: FakeWorker, tmp_path: Path) -> None:
    start(sight, "gemm", "step", "profile")
    assert "waiting for a worker" in sight.text("#check-progress")
    job = worker.claimed()
    half = {"probe": "gemm", "status": "running", "reason": None, "done_fraction": 0.5}
    assert worker.tell(job, {"probes": [half]}) == "run"
    sight.page.locator("#check progress[value='0.5']").wait_for()
    worker.upload(job, "trace.json.gz", TRACE)
    assert worker.finish(job, result={"records": [worker.record(task) for task in job["payload"]["tasks"]]}) == 204
    assert "Caution" in sight.page.locator("#check-verdict").inner_text()
    assert "AMD EPYC 9454" in sight.text("#check")
    sight.page.click("#probe-gemm summary")
    assert "forward" in sight.text("#probe-gemm tbody")
    assert sight.violations() == []
    with sight.page.expect_download() as saved:
        sight.page.click("#check-trace")
    path = tmp_path / "trace.json.gz"
    saved.value.save_as(path)
    assert path.read_bytes() == TRACE


def test_the_address_keeps_which_check_it_was_and_a_check_can_be_stopped(sight: Sight, worker: FakeWorker) -> None:
    start(sight, "bandwidth")
    sight.page.wait_for_url(re.compile("check=lch_"))
    sight.open(f"/#{urlsplit(sight.page.url).fragment}")
    sight.page.locator("#check .probes").wait_for()
    sight.page.click("#check-stop")
    sight.page.locator("#check", has_text="cancelled").wait_for()
    assert sight.page.locator("#check-stop").is_hidden()
    assert worker.claim() is None


def test_what_is_wrong_with_the_question_is_said(sight: Sight) -> None:
    sight.page.click("#tab-measure")
    sight.page.fill("#check-seconds", "1")
    sight.page.click("#check-start")
    sight.page.locator("#check-progress .fault").wait_for()
    assert "5" in sight.text("#check-progress")  # the least that is taken
