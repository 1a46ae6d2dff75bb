"""A saved question as a spreadsheet: its fields, formulas that ask for its numbers, and nothing else that runs."""

import io
import re
import zipfile
from base64 import b64encode
from hashlib import sha256
from typing import Any
from xml.etree import ElementTree

import pytest
from openpyxl import load_workbook

from service.features.scenarios.budgets import METRICS
from service.features.scenarios.workbook import CONTINGENCY
from tests.api.asking import QUESTION, Ask

CONFIG = {
    "model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
    "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True,
}  # fmt: skip
RAMP = {
    "sequence_length": 4096, "micro_batch": 1, "global_batch": 128, "training_tokens": 1e12,
    "recompute": {"granularity": "full", "method": "block", "layers": 4}, "stack": "megatron-core",
    "stages": [{"until_tokens": 100_000_000_000, "global_batch": 64}],
}  # fmt: skip
QUESTIONS: dict[str, dict[str, Any]] = {
    "preset": QUESTION,
    "config": {**QUESTION, "model": {"hf_config": CONFIG}, "layout": {"zero_stage": 1}},
    "changed": {**QUESTION, "model": {"preset": "llama-3.1-8b", "num_hidden_layers": 16, "tie_word_embeddings": True}},
    "ramp": {**QUESTION, "recipe": RAMP, "layout": {"pipeline": 2, "stage_layers": [15, 17]}},
    "cluster": {**QUESTION, "cluster": {"preset": "dgx-h100", "nodes": 2}, "price": None},
}


def saved(kept: Ask, question: dict[str, Any], name: str = "a budget") -> dict[str, Any]:
    answer = kept("POST", "/v1/scenarios", json={"name": name, "question": question})
    assert answer.status_code == 201, answer.text
    scenario: dict[str, Any] = answer.json()
    return scenario


def sheets_of(file: bytes) -> tuple[Any, Any]:
    book = load_workbook(io.BytesIO(file))
    return book["Inputs"], book["Results"]


def query_of(inputs: Any) -> list[tuple[str, str]]:
    """What the fields of a budget ask, worked out as its formulas do."""
    rows = [(row[0].value, row[1].value) for row in inputs.iter_rows(min_row=8) if row[1].value is not None]
    rates = {name: place for name, place in inputs.parent.defined_names.items() if place.value.startswith("Rates!")}

    def typed(value: Any) -> Any:
        if isinstance(value, str) and value.startswith("="):  # a rate, which stands on the sheet of rates
            sheet, _, place = rates[value[1:]].value.partition("!")
            return inputs.parent[sheet][place.replace("$", "")].value
        return int(value) if isinstance(value, bool) else value

    return [(name, str(typed(value))) for name, value in rows]


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_fields_of_a_budget_ask_the_question(name: str, kept: Ask) -> None:
    scenario = saved(kept, QUESTIONS[name])
    answer = kept("GET", scenario["links"]["budget"])
    assert answer.status_code == 200, answer.text
    inputs, results = sheets_of(answer.content)
    query = query_of(inputs)
    assert dict(query)["rev"] == scenario["versions"]["catalogue"]
    whole = kept("GET", "/v1/estimates", params=[pair for pair in query if pair[0] != "r"])
    assert whole.json()["id"] == scenario["links"]["estimate"].rpartition("/")[2]
    then = {row[0].value: row[5].value for row in results.iter_rows(min_row=5)}
    assert list(then) == list(METRICS)
    assert then["fits"] == 1
    for number in ("device_peak_bytes", "gpu_hours"):
        cell = kept("GET", f"/v1/cell/{number}", params=query).text
        assert float(cell) == float(f"{then[number]:.15g}")
    assert inputs["B4"].value == "http://localhost"


def test_what_has_no_flat_form_is_refused_with_the_way_out(kept: Ask) -> None:
    as_many_as_query_heads = {"preset": "llama-3.1-8b", "num_key_value_heads": None}
    scenario = saved(kept, {**QUESTION, "model": as_many_as_query_heads})
    answer = kept("GET", scenario["links"]["budget"])
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["code"] == "not_flat"
    assert "/v1/models" in error["fix"]


def test_only_formulas_of_ours_run(kept: Ask) -> None:
    scenario = saved(kept, QUESTION, name='=HYPERLINK("http://evil.test","x")')
    inputs, results = sheets_of(kept("GET", scenario["links"]["budget"]).content)
    assert inputs["A1"].value == results["A1"].value == '=HYPERLINK("http://evil.test","x")'
    assert inputs["A1"].data_type == results["A1"].data_type == "s"
    cells = [cell for sheet in (inputs, results) for row in sheet.iter_rows() for cell in row]
    formulas = [cell for cell in cells if cell.data_type == "f"]
    assert {cell.column_letter for cell in formulas} == {"B", "C", "D"}
    book = inputs.parent
    everywhere = [cell for sheet in book for row in sheet.iter_rows() for cell in row if cell.data_type == "f"]
    assert not any("evil" in cell.value for cell in everywhere)
    assert not any("evil" in cell.value for cell in formulas)


def test_the_same_scenario_is_the_same_file_and_another_revision_another(kept: Ask) -> None:
    scenario = saved(kept, QUESTION)
    path = scenario["links"]["budget"]
    first = kept("GET", path)
    assert kept("GET", path, headers={"If-None-Match": first.headers["etag"]}).status_code == 304
    changed = {"question": {"cluster": {"gpus": 16}}}
    kept("PATCH", path.removesuffix(".xlsx"), json=changed, headers={"If-Match": "*"})
    assert dict(query_of(sheets_of(kept("GET", path).content)[0]))["gpus"] == "16"
    assert kept("GET", path, params={"revision": "1"}).content == first.content


def test_open_document_holds_the_same(kept: Ask) -> None:
    scenario = saved(kept, QUESTION, name="<b>&amp; no markup\ufffe")
    path = scenario["links"]["budget"]
    answer = kept("GET", path.replace(".xlsx", ".ods"))
    assert answer.headers["content-type"] == "application/vnd.oasis.opendocument.spreadsheet"
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.namelist()[0] == "mimetype"
        assert archive.read("mimetype").decode() == answer.headers["content-type"]
        root = ElementTree.fromstring(archive.read("content.xml"))  # noqa: S314  # what the service itself wrote
    cells = [cell for cell in root.iter() if cell.tag.endswith("}table-cell")]
    assert "<b>&amp; no markup" in "".join(cells[0].itertext())
    formulas = [value for cell in cells for key, value in cell.attrib.items() if key.endswith("}formula")]
    book = load_workbook(io.BytesIO(kept("GET", path).content))
    excel = [cell for sheet in book for row in sheet.iter_rows() for cell in row if cell.data_type == "f"]
    assert len(formulas) == len(excel) > 40
    assert all(formula.startswith("of:=") for formula in formulas)


@pytest.mark.parametrize("ending", ["xlsx", "ods", "html"])
def test_there_is_none_of_a_scenario_that_is_not_there(ending: str, kept: Ask) -> None:
    assert kept("GET", f"/v1/scenarios/scn_{'a' * 22}.{ending}").status_code == 404
    assert kept("GET", f"/v1/scenarios/none.{ending}").status_code == 404
    assert kept("GET", f"/v1/scenarios/none.{ending}", params={"tp": "1"}).status_code == 422


def book_of(file: bytes, **options: bool) -> Any:
    return load_workbook(io.BytesIO(file), **options)


def test_a_budget_is_laid_out_for_finance(kept: Ask) -> None:
    scenario = saved(kept, QUESTION, name="Llama / 8B: 2027")
    answer = kept("GET", scenario["links"]["budget"])
    assert answer.headers["content-disposition"] == 'attachment; filename="Llama-8B-2027.xlsx"'
    book = book_of(answer.content)
    assert book.sheetnames == ["Summary", "Months", "Scenarios", "Rates", "Inputs", "Results", "Audit"]
    assert {"usd_per_gpu_hour", "discount_fraction", "currency", "exchange_rate", "start_date"} <= {*book.defined_names}
    summary = {row[0].value: row for row in book["Summary"].iter_rows(min_row=6) if row[0].value}
    assert summary["Cost in your currency"][1].number_format.startswith("#,##0.00")
    assert summary["Contingency"][1].value == CONTINGENCY
    assert summary["GPUs"][1].value == "=ROUND(B6*usd_per_gpu_hour*(1-discount_fraction),2)"
    for name in ("Summary", "Months"):
        sheet = book[name]
        assert len(sheet._charts) == 1
        assert sheet.sheet_properties.pageSetUpPr.fitToPage
        assert (sheet.page_setup.orientation, sheet.page_setup.fitToHeight) == ("landscape", None)
        assert sheet.freeze_panes == "A6"
    kinds = {rule.type for sheet in book for rule in sheet.data_validations.dataValidation}
    assert kinds == {"decimal", "date"}
    assert [cell.value for cell in book["Scenarios"][4]][:4] == [None, "As asked", "Twice the GPUs", "Half the GPUs"]
    audit = {row[0].value: row[1].value for row in book["Audit"].iter_rows()}
    assert audit["Answer"] == scenario["links"]["estimate"].rpartition("/")[2]
    assert audit["Scenario"].endswith(f"{scenario['links']['self']}?revision=1")


LINES: dict[str, dict[str, Any]] = {
    "storage": {"usd_per_gpu_hour": 2.5, "discount_fraction": 0.15,
                "storage": {"usd_per_gb_month": 0.023, "data_bytes": 4e13, "checkpoints": 3},
                "egress": {"bytes": 2e12, "usd_per_gb": 0.09}},
    "owned": {"amortisation_years": 4, "purchase_usd": 30_000, "residual_fraction": 0.1, "maintenance_fraction": 0.05,
              "usd_per_kwh": 0.12, "usd_per_kw_month": 150},
}  # fmt: skip


@pytest.mark.parametrize("name", LINES)
def test_each_line_of_a_cost_is_a_formula_of_its_rates(name: str, kept: Ask) -> None:
    question = {**QUESTION, "price": LINES[name], "cluster": {**QUESTION["cluster"], "spare_fraction": 0.05}}
    scenario = saved(kept, question)
    totals = kept("POST", "/v1/estimates", json=question).json()["totals"]
    file = kept("GET", scenario["links"]["budget"]).content
    book, cached = book_of(file), book_of(file, data_only=True)
    rates = {cell.value: row[1].value for row in book["Rates"].iter_rows(min_row=9) for cell in row[3:4]}
    first = next(row[0].row for row in book["Summary"].iter_rows(min_row=6) if row[0].value == "Energy") + 1
    quantities = {f"B{row}": cached["Summary"][f"B{row}"].value for row in range(6, first)}
    for row, line in enumerate(totals["cost"], start=first):
        formula = book["Summary"][f"B{row}"].value
        expression = formula.removeprefix("=ROUND(").removesuffix(",2)")
        value = eval(expression, {"__builtins__": {}}, {**rates, **quantities})  # noqa: S307 - arithmetic of our own
        assert round(value, 2) == pytest.approx(line["usd"]["value"], abs=0.011), (line["kind"], formula)
        assert cached["Summary"][f"B{row}"].value == line["usd"]["value"]


def test_a_page_to_print_shows_the_same_and_refers_to_nothing_else(kept: Ask) -> None:
    scenario = saved(kept, QUESTION, name="<script>alert(1)</script> & others")
    page = kept("GET", f"{scenario['links']['self']}.html")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    style = page.text.partition("<style>")[2].partition("</style>")[0]
    digest = b64encode(sha256(style.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'sha256-{digest}'" in page.headers["content-security-policy"]
    assert "<script>" not in page.text
    assert "<title>&lt;script&gt;alert(1)&lt;/script&gt; &amp; others</title>" in page.text
    assert not re.search(r"(src|href|url)\s*[=(]", page.text)
    totals = kept("POST", "/v1/estimates", json=QUESTION).json()["totals"]
    for amount in (totals["cost_usd"]["low"], totals["cost_usd"]["value"], totals["gpu_hours"]["high"]):
        assert f"{amount:,.2f}" in page.text
    assert page.text.count("<svg") == 2
