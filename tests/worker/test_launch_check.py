"""A launch check from request to verdict with the worker of `serve`: live bytes as predicted."""

import gzip
import json
from pathlib import Path

from service.client import Client
from tests.live import serving
from tests.worker.probing import need_torch

BODY = {
    "question": {
        "model": {"preset": "smollm2-135m", "vocab_size": 4096},  # its own takes half a minute
        "recipe": {"sequence_length": 256},
        "cluster": {"gpu": "h100-sxm5-80gb", "gpus": 8},
    },
    "probes": ["step", "profile"],
    "time_budget_seconds": 10,
    "on": "any",
}
MOST_OFF_FRACTION = 0.03


def test_a_check_of_a_real_model_at_reduced_depth(tmp_path: Path) -> None:
    need_torch()
    heard: list[str] = []
    with serving(tmp_path, with_worker=True) as address, Client(f"http://{address}") as client:
        found = client.launch_check(BODY, lambda event: heard.append(event.name))
        trace = json.loads(gzip.decompress(client.launch_checks.trace(found.id)))
    assert (found.status, found.verdict, found.error) == ("succeeded", "caution", None)
    assert heard[:2] == ["queued", "running"]
    assert heard[-1] == "succeeded"
    assert "progress" in heard
    assert [(probe.probe, probe.status) for probe in found.probes] == [("step", "succeeded"), ("profile", "succeeded")]
    assert trace["traceEvents"]
    live = [one for probe in found.probes for one in probe.measurements if one.operation == "live_bytes_peak"]
    told = [(one.shape["depth"], one.shape["step"]) for one in live]
    assert told[:2] == [(1, 1), (1, 3)]  # the other depth where there is time
    assert all(one.ratio is not None and abs(one.ratio - 1) <= MOST_OFF_FRACTION for one in live)
