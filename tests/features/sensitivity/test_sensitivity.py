"""A row of a table is what its question is answered alone, and what is wrong is refused where it stands."""

import csv
import io
from typing import Any

import pytest

from service.answers.rows import MOST_ROWS
from service.catalogue import Catalogue
from service.cli.reports import table_report
from service.errors import Refused
from service.features.estimates.answers import answer
from service.features.estimates.metrics import COLUMNS
from service.features.sensitivity.vary import vary
from service.validation.flat import flat_fields, variable_fields, with_value
from service.validation.questions import read_question
from service.validation.reading import to_wire

QUESTION: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "recipe": {"sequence_length": 8192, "recompute": "full", "training_tokens": 1e11},
    "cluster": "dgx-h100",
    "price": {"usd_per_gpu_hour": 2.5},
}
VALUES: dict[str, list[Any]] = {
    "recipe.micro_batch": [1, 2, 4, "x", 0],
    "model.num_hidden_layers": [16, 48],
    "cluster.gpus": [16, 0],
    "layout.tensor": [2, 3],
    "recipe.recompute": ["none", {"granularity": "full", "method": "block", "layers": 3}],
    "recipe.stack.cuda_graphs": [True],
    "price.usd_per_gpu_hour": [5.0],
    "recipe.optimizer": ["lion", "lyon"],
}


def table(catalogue: Catalogue, values: dict[str, list[Any]], **more: Any) -> dict[str, Any]:
    found = to_wire(vary({"question": QUESTION, "vary": values, **more}, catalogue).answer)
    assert isinstance(found, dict)
    return found


def refusal(catalogue: Catalogue, body: dict[str, Any]) -> list[tuple[str, str, str]]:
    with pytest.raises(Refused) as refused:
        vary({"question": QUESTION, "vary": {"layout.tensor": [2]}, **body}, catalogue)
    return [(problem.field, problem.code, problem.fix) for problem in refused.value.problems]


def test_a_row_is_what_its_question_is_answered_alone(catalogue: Catalogue) -> None:
    first, *rows = table(catalogue, VALUES)["rows"]
    assert (first["varied"], first["ratios"]["days"]) == ([], 1)
    assert [row["varied"] for row in rows] == [[name] for name, items in VALUES.items() for _ in items]
    for row in rows:
        (name,) = row["varied"]
        usual = {"recipe": {"stack": "megatron-core"}}
        body = with_value(QUESTION, variable_fields()[name], row["values"][name], usual)
        if row["status"] == 422:
            with pytest.raises(Refused) as refused:
                answer(read_question(body, catalogue), catalogue)
            assert [error["code"] for error in row["errors"]] == [problem.code for problem in refused.value.problems]
            assert (row["verdict"], row["id"], bool(row["reason"])) == (None, None, True)
            continue
        alone = answer(read_question(body, catalogue), catalogue)
        assert (row["status"], row["id"], row["verdict"]) == (200, alone.id, alone.verdict)
        whole = to_wire(alone)
        for number, path in COLUMNS.items():
            part, _, leaf = path.partition(".")
            assert row[number] == whole[part][leaf]
            if isinstance(row[number], dict) and first[number]["value"]:
                assert row["ratios"][number] == row[number]["value"] / first[number]["value"]
    assert sum(row["status"] == 422 for row in rows) == 5


def test_what_one_field_brings_with_it_stands_in_its_row(catalogue: Catalogue) -> None:
    values: dict[str, list[Any]] = {"layout.zero_stage": [3, 1], "layout.reshard_after_forward": [None]}
    rows = table(catalogue, values)["rows"]
    assert [row["values"]["layout.reshard_after_forward"] for row in rows] == [False, True, False, None]


def test_a_grid_holds_every_combination_once(catalogue: Catalogue) -> None:
    values = {"recipe.micro_batch": [1, 2], "cluster.gpus": [8, 16, 32]}
    rows = table(catalogue, values, mode="grid", metrics=["fits", "days"])["rows"]
    assert [tuple(row["values"].values()) for row in rows[1:]] == [(b, g) for b in (1, 2) for g in (8, 16, 32)]
    assert {name for row in rows for name in row} >= {"fits", "days"}
    assert "cost_usd" not in rows[0]


def test_every_field_of_the_flat_form_can_be_varied(catalogue: Catalogue) -> None:
    paths = {".".join(field.path) for field in flat_fields().values() if field.path[-1] != "preset"}
    assert paths < variable_fields().keys()
    assert {"model", "cluster", "price", "recipe.recompute", "recipe.stack.versions"} < variable_fields().keys()
    rows = table(catalogue, {"model": ["llama-3.1-70b", None], "cluster": [{"gpu": "h200", "gpus": 16}]})["rows"]
    assert [row["status"] for row in rows] == [200, 200, 422, 200]
    assert rows[0]["values"] == {"model": "llama-3.1-8b", "cluster": "dgx-h100"}


@pytest.mark.parametrize(
    ("name", "likely"),
    [
        ("micro_batch", "recipe.micro_batch"), ("mbs", "recipe.micro_batch"),
        ("recipe.micro_bach", "recipe.micro_batch"),
        ("layout.zero_stages", "layout.zero_stage"), ("recipe.tensor", "layout.tensor"),
        ("usd_per_gpu_hour", "price.usd_per_gpu_hour"), ("tensr", "layout.tensor"),
    ],
)  # fmt: skip
def test_an_unknown_field_meets_the_nearest_one(catalogue: Catalogue, name: str, likely: str) -> None:
    ((field, code, fix),) = refusal(catalogue, {"vary": {name: [1]}})
    assert (field, code) == ("vary", "unknown_field")
    assert fix.startswith("did you mean ")
    assert likely in fix


def test_too_many_rows_are_refused(catalogue: Catalogue) -> None:
    ((field, code, _),) = refusal(catalogue, {"vary": {"recipe.micro_batch": list(range(MOST_ROWS))}})
    assert (field, code) == ("vary", "too_many_rows")


def test_a_table_holds_what_the_rows_hold(catalogue: Catalogue) -> None:
    found = vary({"question": QUESTION, "vary": VALUES}, catalogue)
    rows = to_wire(found.answer)["rows"]
    lines = list(csv.DictReader(io.StringIO(found.csv(), newline="")))
    assert len(lines) == len(rows)
    for row, line in zip(rows, lines, strict=True):
        assert line["recipe.micro_batch"] == str(row["values"]["recipe.micro_batch"])
        assert line["varied"] == ";".join(row["varied"])
        assert (line["id"] or None, line["verdict"] or None) == (row["id"], row["verdict"])
        if row["status"] == 200:
            assert float(line["days"]) == row["days"]["value"]
            assert float(line["days.high"]) == row["days"]["high"]
            assert float(line["days.ratio"]) == row["ratios"]["days"]
    report = table_report(found)
    assert "refused" in report
    assert f"row {len(rows) - 1}: " in report
