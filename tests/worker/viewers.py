"""What other tools read in a trace: TensorBoard's own loader, and Chrome's viewer in a real Chromium."""

import gzip
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from service.calibration.profiles import ROLES, summary_of
from service.calibration.traces import read_trace
from tests.needing import need, tool
from tests.page.browser import chromium

POLYFILL = ("trace-viewer", "node_modules", "webcomponents.js", "webcomponents.min.js")
"""What the viewer asks of browsers since they gave up the first web components."""

HOST = "http://viewer.invalid/"

READ = """() => {
    const model = document.querySelector("tr-ui-timeline-view").model, steps = {};
    let events = 0;
    for (const event of model.getDescendantEvents()) {
        events += 1;
        if (/^ProfilerStep#/.test(event.title)) steps[event.title] = event.duration;
    }
    return {events, steps, warnings: model.importWarnings.map((one) => one.message)};
}"""
"""What stands in the viewer once it has loaded a trace; durations in ms."""


def loader_steps(folder: Path) -> list[Mapping[str, float]]:
    """Steps of the one trace in a folder, as torch-tb-profiler's own run loader has them, by role [us]."""
    need("torch-tb-profiler")
    from torch_tb_profiler import io
    from torch_tb_profiler.profiler.data import RunProfileData
    from torch_tb_profiler.profiler.loader import RunLoader

    run = RunLoader("run", str(folder), io.Cache()).load()
    profile = next(one for (worker, _), one in run.profiles.items() if worker == "worker")
    assert profile.overview["steps"]["rows"]
    (file,) = folder.iterdir()
    data = RunProfileData.parse("worker", 1, str(file), str(folder))
    names = (*(f"{role}_seconds" for role in ROLES), "other_seconds", "seconds")
    return [dict(zip(names, one.costs, strict=True)) for one in data.steps_costs]


def kept(folder: Path, raw: Iterable[Mapping[str, Any]]) -> Path:
    """A trace as TensorBoard finds it."""
    folder.mkdir(exist_ok=True)
    path = folder / "worker.pt.trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": list(raw)}).encode()))
    return path


def same_as_loader(folder: Path, path: Path) -> int:
    """Steps in which the summary of a trace says what the loader says of the folder in which it is alone.

    The loader adds differences of times since an origin of its own, months ago, each as exact as a double of that size.
    """
    told = loader_steps(folder)
    events = read_trace(path.read_bytes()).events
    found = summary_of(events)["steps"]
    assert len(found) == len(told)
    exact = 1e-9 + len(events) * _grain_seconds(path)
    for ours, theirs in zip(found, told, strict=True):
        for name, micros in theirs.items():
            assert ours[name] == pytest.approx(micros / 1e6, rel=1e-6, abs=exact), name
    return len(told)


def _grain_seconds(path: Path) -> float:
    """What the last digit of the latest time in a trace is worth."""
    raw = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return math.ulp(max(float(one["ts"]) for one in raw if "ts" in one)) / 1e6


def _static() -> Path:
    """Files of the viewer as torch-tb-profiler brings them."""
    need("torch-tb-profiler")
    import torch_tb_profiler

    return Path(str(torch_tb_profiler.__file__)).parent / "static"


def in_chrome(path: Path) -> dict[str, Any]:
    """What Chrome's viewer of traces shows of a file, in Chromium.

    It is the viewer behind chrome://tracing, which recent Chromium refuses to open: the same program as a page.
    """
    need("trace-viewer")
    static, polyfill = _static(), tool(*POLYFILL)

    def answer(route: Any) -> None:
        url = route.request.url
        if url.startswith(HOST):
            route.fulfill(path=str(static / url.removeprefix(HOST)), content_type="text/html")
        elif url.endswith("/webcomponents.min.js"):
            route.fulfill(path=str(polyfill), content_type="text/javascript")
        else:
            route.abort()

    with chromium() as browser:
        page = browser.new_page()
        page.route("**/*", answer)
        page.goto(f"{HOST}trace_embedding.html")
        page.wait_for_function("window.tr && tr.importer && document.querySelector('tr-ui-timeline-view')")
        text = gzip.decompress(path.read_bytes()).decode()
        page.evaluate("text => window.postMessage({name: 'trace', data: text}, '*')", text)
        page.wait_for_function("document.querySelector('tr-ui-timeline-view').model?.getDescendantEvents")
        found: dict[str, Any] = page.evaluate(READ)
    return found
