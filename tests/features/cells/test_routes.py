"""GET /v1/cell answers what a spreadsheet can read: a number and nothing else, or an error it can show."""

import re
from typing import Any

import httpx
import pytest

from service.features.cells import cells
from tests.api.asking import Ask

FLAT = {
    "model": "llama-3.1-8b", "gpu": "h100-sxm5-80gb", "gpus": "8", "tp": "2", "seq": "8192", "gbs": "128",
    "training_tokens": "15e12", "usd_per_gpu_hour": "2.5",
}  # fmt: skip


def get(ask: Ask, metric: str, method: str = "GET", etag: str = "", **more: str) -> httpx.Response:
    headers = {"If-None-Match": etag} if etag else {}
    return ask(method, f"/v1/cell/{metric}", params={**FLAT, **more}, headers=headers)


def leaf(document: dict[str, Any], path: str) -> Any:
    for step in path.split("."):
        document = document[step]
    return document


@pytest.mark.parametrize(
    ("metric", "path"),
    [
        ("parameters.total", "parameters.total"), ("gpu_hours", "totals.gpu_hours.value"),
        ("cost_usd.high", "totals.cost_usd.high"), ("step_seconds", "step.step_seconds.value"),
        ("device_peak_bytes", "memory.device_peak_bytes.value"), ("mfu_fraction", "step.mfu_fraction.value"),
        ("total_flop", "flop.total_flop"), ("6n", "flop.conventions.6n"),
    ],
)  # fmt: skip
def test_a_cell_is_the_number_of_the_json(metric: str, path: str, ask: Ask) -> None:
    number = leaf(ask("GET", "/v1/estimates", params=FLAT).json(), path)
    answer = get(ask, metric)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert re.fullmatch(r"-?[0-9]+(e-?[0-9]+)?", answer.text)
    assert float(answer.text) == float(f"{number:.15g}")


def test_a_cell_has_its_unit_in_a_header(ask: Ask) -> None:
    assert get(ask, "device_peak_bytes").headers["x-unit"] == "B"
    answer = get(ask, "device_peak_bytes", unit="GiB", num=".")
    assert answer.headers["x-unit"] == "GiB"
    assert re.fullmatch(r"[0-9]+\.[0-9]+", answer.text)
    assert float(answer.text) == pytest.approx(float(get(ask, "device_peak_bytes").text) / 2**30)


def test_a_cell_may_be_kept_and_asked_for_again(ask: Ask) -> None:
    first = get(ask, "gpu_hours")
    etag = first.headers["etag"]
    assert re.fullmatch(r'"[0-9a-f]{32}"', etag)
    assert first.headers["cache-control"] == "private, max-age=300"
    again = get(ask, "gpu_hours", etag=etag)
    assert (again.status_code, again.content) == (304, b"")
    other = get(ask, "gpu_hours", etag=etag, tp="4")
    assert other.status_code == 200
    assert other.headers["etag"] != etag


def test_a_cache_buster_changes_nothing(ask: Ask) -> None:
    assert get(ask, "gpu_hours", r="17").text == get(ask, "gpu_hours").text


def test_head_tells_the_headers_and_computes_nothing(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = get(ask, "gpu_hours")

    def refuse(*_: object) -> None:
        raise AssertionError("HEAD ran the estimate")

    monkeypatch.setattr(cells, "cell", refuse)
    monkeypatch.setattr(cells, "why", refuse)
    for metric in ("gpu_hours", "why"):
        head = get(ask, metric, method="HEAD")
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-type"] == asked.headers["content-type"]
        assert "content-length" not in head.headers
    assert get(ask, "gpu_hours", method="HEAD").headers["etag"] == asked.headers["etag"]


@pytest.mark.parametrize("path", ["/v1/cell/gpu_hours", "/v1/cell/why"])
def test_options_names_the_methods(path: str, ask: Ask) -> None:
    answer = ask("OPTIONS", path)
    assert answer.status_code == 204
    assert {"GET", "HEAD", "OPTIONS"} <= set(answer.headers["allow"].split(", "))


def test_nothing_redirects(ask: Ask) -> None:
    for path in ("/v1/cell/gpu_hours/", "/v1/cell/", "/v1/cell"):
        assert ask("GET", path, params=FLAT).status_code == 404


def test_an_unknown_metric_is_404_with_the_nearest(ask: Ask) -> None:
    answer = get(ask, "gpu_huors")
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown_metric")
    assert "gpu_hours" in answer.json()["detail"]
    assert '"gpu_huors"' in answer.json()["detail"]


@pytest.mark.parametrize(
    ("metric", "change", "code"),
    [
        ("gpu_hours", {"tp": "x"}, "not_a_whole_number"), ("gpu_huors", {}, "unknown_metric"),
        ("gpu_hours", {"unit": "GiB"}, "unknown_unit"), ("gpu_hours", {"num": "x"}, "not_a_choice"),
        ("high", {}, "ambiguous_metric"), ("carbon_kg_co2e", {}, "not_known"), ("gpu_hours", {"model": "gpt-17"}, None),
    ],
)  # fmt: skip
def test_an_error_may_stand_in_the_cell(metric: str, change: dict[str, str], code: str | None, ask: Ask) -> None:
    text = get(ask, metric, **{**change, "on_error": "text"})
    assert text.status_code == 200
    assert text.headers["content-type"] == "text/plain; charset=utf-8"
    assert text.text.startswith(f"#ERR {code}: " if code else "#ERR ")
    assert len(text.text) <= 255
    assert text.text.isprintable()
    blank = get(ask, metric, **{**change, "on_error": "blank"})
    assert (blank.status_code, blank.content) == (200, b"")
    assert get(ask, metric, **change).status_code in {404, 422}


def test_not_fitting_is_a_number(ask: Ask) -> None:
    assert get(ask, "fits").text == "1"
    assert get(ask, "fits", model="llama-3.1-70b").text == "0"
    assert get(ask, "gpu_hours").headers["x-verdict"] == "fits"
    assert get(ask, "gpu_hours", model="llama-3.1-70b").headers["x-verdict"] == "out_of_memory"


def test_why_is_always_text(ask: Ask) -> None:
    assert get(ask, "why").text == "ok"
    assert ask("GET", "/v1/cell/why", params={**FLAT, "metric": "gpu_huors"}).text.startswith("unknown_metric: ")
    answer = get(ask, "why", tp="x", unit="GiB", r="3")
    assert answer.status_code == 200
    assert answer.text.startswith("not_a_whole_number: tensor ")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"


def test_a_repeated_key_is_a_list(ask: Ask) -> None:
    query = [*FLAT.items(), ("pp", "2"), ("stage_layers", "15"), ("stage_layers", "17")]
    once = [*FLAT.items(), ("pp", "2"), ("stage_layers", "15;17")]
    answers = [ask("GET", "/v1/cell/memory.stages.1.layers", params=pairs) for pairs in (query, once)]
    assert [answer.text for answer in answers] == ["17", "17"]
