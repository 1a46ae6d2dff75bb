"""Many numbers in one request: a CSV table, with or without a sweep, and XML that FILTERXML reads."""

import csv
import io
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest

from service.features.cells import tables
from tests.api.asking import Ask
from tests.features.cells.test_routes import FLAT

TABLE, XML = "/v1/cell/table.csv", "/v1/cell/estimate.xml"


def get(ask: Ask, path: str, **more: Any) -> httpx.Response:
    return ask("GET", path, params={**FLAT, **more})


def rows_of(answer: httpx.Response) -> list[dict[str, str]]:
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    return list(csv.DictReader(io.StringIO(answer.text, newline="")))


def read_xml(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)  # noqa: S314  # what the service itself wrote


def test_a_table_tells_the_numbers_of_the_cells(ask: Ask) -> None:
    rows = {row["metric"]: row for row in rows_of(get(ask, TABLE))}
    assert list(rows) == list(tables.MAIN)
    for name in ("fits", "parameters.total", "gpu_hours", "step_seconds", "cost_usd"):
        cell = ask("GET", f"/v1/cell/{name}", params=FLAT)
        assert (rows[name]["value"], rows[name]["unit"]) == (cell.text, cell.headers["x-unit"])
    assert rows["gpu_hours"]["low"] == ask("GET", "/v1/cell/gpu_hours.low", params=FLAT).text
    assert rows["fits"]["high"] == ""


def test_what_is_not_known_says_what_it_needs(ask: Ask) -> None:
    row = {row["metric"]: row for row in rows_of(get(ask, TABLE, metrics="carbon_kg_co2e;days"))}["carbon_kg_co2e"]
    assert row["value"] == ""
    assert "grid_region" in row["reason"]
    element = read_xml(get(ask, XML, metrics="carbon_kg_co2e").text)[0]
    assert not element.text
    assert "grid_region" in element.attrib["reason"]


def test_a_field_with_several_values_is_swept(ask: Ask) -> None:
    asked = {"metrics": "gpu_hours;fits", "tp": "1;2;3", "mbs": ["1", "2"]}
    rows = rows_of(get(ask, TABLE, **asked))
    assert [(row["tp"], row["mbs"]) for row in rows] == [(tp, mbs) for tp in "123" for mbs in "12"]
    assert list(rows[0]) == ["tp", "mbs", "verdict", "gpu_hours", "fits", "reason"]
    for row in rows[:4]:
        cell = ask("GET", "/v1/cell/gpu_hours", params={**FLAT, "tp": row["tp"], "mbs": row["mbs"]})
        assert (row["gpu_hours"], row["verdict"]) == (cell.text, cell.headers["x-verdict"])
        assert not row["reason"]
    for row in rows[4:]:
        assert row["gpu_hours"] == row["verdict"] == ""
        assert "replica_divides_cluster" in row["reason"]


def test_too_many_rows_are_refused(ask: Ask) -> None:
    answer = get(ask, TABLE, seq=";".join(map(str, range(1, 300))))
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, "too_many_rows")


def test_no_text_of_a_table_runs(ask: Ask) -> None:
    marked = {"=1+1": "'=1+1", "@SUM(1)": "'@SUM(1)", "+1": "'+1", "\t=1": "'\t'=1", "-x": "'-x"}
    for text, shown in marked.items():
        rows = rows_of(get(ask, TABLE, model=["llama-3.1-8b", text], metrics="fits"))
        assert rows[1]["model"] == shown
        assert rows[1]["fits"] == ""


def test_a_negative_number_stays_a_number(ask: Ask) -> None:
    (row,) = rows_of(get(ask, TABLE, model="llama-3.1-70b", metrics="headroom_bytes"))
    assert float(row["value"]) < 0


def test_xml_has_an_element_for_each_number_and_no_namespace(ask: Ask) -> None:
    answer = get(ask, XML, metrics="gpu_hours;6n;parameters.total;parts.gemm.seconds", num=".")
    assert answer.headers["content-type"] == "application/xml"
    root = read_xml(answer.text)
    whole = ask("GET", "/v1/estimates", params=FLAT).json()
    assert (root.tag, root.attrib) == ("estimate", {"id": whole["id"], "verdict": "fits"})
    assert [child.tag for child in root][:3] == ["gpu_hours", "flop.conventions.6n", "parameters.total"]
    hours = whole["totals"]["gpu_hours"]
    assert float(root[0].text or "") == float(f"{hours['value']:.15g}")
    assert float(root[0].attrib["low"]) == float(f"{hours['low']:.15g}")
    assert root[0].attrib["unit"] == "GPU-h"
    assert len(get(ask, XML).text) < 32_767


def test_an_error_may_stand_in_the_table(ask: Ask) -> None:
    for path, blank in ((TABLE, ""), (XML, "<estimate/>")):
        wrong = {"tp": "x<&", "on_error": "text"}
        assert get(ask, path, tp="x").status_code == 422
        assert get(ask, path, **{**wrong, "on_error": "blank"}).text == blank
        shown = get(ask, path, **wrong)
        assert shown.status_code == 200
        assert "#ERR not_a_whole_number" in shown.text
    error = read_xml(get(ask, XML, tp="x", on_error="text").text)[0]
    assert error.tag == "error"
    assert get(ask, TABLE, rev="none", on_error="text").headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", [TABLE, XML])
def test_head_and_options_compute_nothing(path: str, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = get(ask, path)
    assert ask("GET", path, params=FLAT, headers={"If-None-Match": asked.headers["etag"]}).status_code == 304

    def refuse(*_: object) -> None:
        raise AssertionError("HEAD ran the estimate")

    monkeypatch.setattr(tables, "cell_answer", refuse)
    head = ask("HEAD", path, params=FLAT)
    assert (head.status_code, head.headers["etag"]) == (200, asked.headers["etag"])
    assert head.headers["content-type"] == asked.headers["content-type"]
    assert ask("OPTIONS", path).status_code == 204
