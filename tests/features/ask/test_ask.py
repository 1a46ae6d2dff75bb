"""A sentence answers as its question does: by the API, in a cell, in a table and on the command line."""

import json
from typing import Any

import pytest

from service.catalogue import Catalogue
from service.errors import Refused
from service.features.ask.ask import ask as ask_sentence
from tests.api.asking import Ask
from tests.commands import Commands

SENTENCE = "qwen2.5 0.5b, 10M tokens, 2xH100, seq 1k, gbs 64, $2.50/h, in 2 days, under $1"


def test_one_text_has_one_answer_by_sentence_json_cell_and_command(ask: Ask, commands: Commands) -> None:
    answer = ask("GET", "/v1/ask", params={"q": SENTENCE}).json()
    estimate = ask("POST", "/v1/estimates", json=answer["question"]).json()
    assert estimate == answer["answer"]
    cell = ask("GET", "/v1/cell/estimate.xml", params={"question": f"={SENTENCE}"}).text
    assert f'id="{estimate["id"]}"' in cell
    ran = commands(SENTENCE)("--json")
    assert (ran.code, json.loads(ran.out)) == (0, answer)
    assert json.loads(commands("ask")(SENTENCE, "--json").out) == answer


def test_chips_say_what_each_part_means(ask: Ask) -> None:
    chips = ask("GET", "/v1/ask", params={"q": "llama 8b on 2 H100, mbs 1, rainbow"}).json()["chips"]
    assert [(chip["text"], chip["field"], chip["value"], chip["state"]) for chip in chips] == [
        ("llama 8b", "/model", "llama-3.1-8b", "assumed"),
        ("2", "/cluster/gpus", 2, "understood"),
        ("H100", "/cluster/gpu", "h100-sxm5-80gb", "understood"),
        ("mbs 1", "/recipe/micro_batch", 1, "understood"),
        ("rainbow", None, None, "not_understood"),
        ("", "/recipe/sequence_length", 8192, "assumed"),
        ("", "/recipe/global_batch", 512, "assumed"),
        ("", "/layout/auto", True, "assumed"),
    ]
    assert chips[0]["choices"] == [{"value": "llama-3-8b", "label": "Llama 3 8B"}]


def test_limits_are_checked_against_the_whole_interval(catalogue: Catalogue) -> None:
    found = ask_sentence(SENTENCE, catalogue)
    assert found.answer.totals is not None
    assert found.answer.totals.cost_usd is not None
    assert [(one.days, one.cost_usd, one.verdict) for one in found.limits] == [
        (2.0, None, "kept"),
        (None, 1.0, "kept" if found.answer.totals.cost_usd.high <= 1 else "at_risk"),
    ]
    late = ask_sentence(SENTENCE.replace("in 2 days", "in 0.01 hours").replace("10M tokens", "1T tokens"), catalogue)
    assert [one.verdict for one in late.limits] == ["missed", "missed"]
    assert [one.verdict for one in ask_sentence("gpt2 on a 4090 in 2 days", catalogue).limits] == ["unknown"]


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({}, "q", "required"),
    ({"q": ""}, "q", "not_text"),
    ({"q": "64xH100"}, "q", "required"),
    ({"q": "llama 3.1 8b"}, "q", "required"),
    ({"q": "llama 3.1 8b on 64 GPUs"}, "q", "required"),
    ({"q": "llama 3 on 64xH100"}, "q", "unknown_model"),
    ({"q": "x" * 501}, "q", "wrong_length"),
    ({"q": "llama 3.1 8b on 8 H100 tp 3"}, "q", "replica_divides_cluster"),
    ({"q": [SENTENCE, SENTENCE]}, "q", "repeated"),
]


@pytest.mark.parametrize(("query", "parameter", "code"), REFUSED)
def test_a_sentence_without_model_or_gpus_is_refused_with_an_example(
    ask: Ask, query: dict[str, Any], parameter: str, code: str
) -> None:
    answer = ask("GET", "/v1/ask", params=query)
    assert answer.status_code == 422
    assert [(error["parameter"], error["code"]) for error in answer.json()["errors"]] == [(parameter, code)]


def test_cells_take_a_sentence_in_place_of_fields(ask: Ask) -> None:
    answer = ask("GET", "/v1/ask", params={"q": SENTENCE}).json()["answer"]
    query = {"question": f"={SENTENCE}"}
    cell = ask("GET", "/v1/cell/gpu_hours", params=query)
    assert float(cell.text) == pytest.approx(answer["totals"]["gpu_hours"]["value"])
    table = ask("GET", "/v1/cell/table.csv", params=query | {"metrics": "fits;days"}).text
    assert [line.split(",")[0] for line in table.splitlines()] == ["metric", "fits", "days"]
    assert ask("GET", "/v1/cell/why", params=query).text == "ok"
    assert ask("GET", "/v1/cell/why", params={"question": "8 H100"}).text.startswith("required: ")
    beside = ask("GET", "/v1/cell/gpu_hours", params=query | {"gpus": "8"})
    assert [error["code"] for error in beside.json()["errors"]] == ["told_twice"]


def test_the_command_prints_what_was_understood_above_the_answer(commands: Commands) -> None:
    ran = commands(SENTENCE.replace("gbs 64", "rainbow"))()
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert lines[0].split() == ["Understood", "qwen2.5", "0.5b", "/model", "=", "qwen2.5-0.5b"]
    assert any(line.startswith("Not understood  rainbow") for line in lines)
    assert any("/recipe/global_batch = " in line for line in lines if line.startswith("Assumed"))
    assert any(line.startswith("at most 2 days: kept") for line in lines)
    assert any(line.startswith("fits: ") for line in lines)


def test_a_word_is_a_command_and_no_sentence(commands: Commands) -> None:
    ran = commands("llama-3.1-8b")()
    assert ran.code == 2
    assert "llama-3.1-8b" in ran.err


def test_what_a_sentence_breaks_names_the_field_of_its_question(catalogue: Catalogue) -> None:
    with pytest.raises(Refused) as refused:
        ask_sentence("llama 3.1 8b on 8 H100 tp 3", catalogue)
    assert all(problem.message.startswith("layout") for problem in refused.value.problems)
