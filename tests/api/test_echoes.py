"""What an error repeats runs nowhere: in JSON, cells, tables, workbooks, terminals, logs; no secret is repeated."""

import json
import logging
from itertools import chain

import pytest

from service.catalogue import shipped_catalogue
from service.errors import LONGEST_ECHO, Refused, quoted
from service.validation.questions import read_question
from tests.api.asking import QUESTION, Ask
from tests.api.injections import INJECTIONS, LETTERS, UNSEEN, formulas_of_csv, formulas_of_workbook
from tests.commands import Commands
from tests.echoes import unquoted

SOME = [*INJECTIONS[::40], *LETTERS[::4], *UNSEEN[::3], "x" * 5000, "[/red]", "\\", '","fix":"'.ljust(70, "\n")]


def test_a_quoted_text_is_short_json_without_active_characters() -> None:
    for text in chain(INJECTIONS, SOME):
        assert unquoted(f"a {quoted(text)} b") == "a  b"
        assert json.loads(quoted(text)).removesuffix("...") == text[:LONGEST_ECHO]
    assert quoted("\ud800") == '"\\ud800"'


@pytest.mark.parametrize("text", SOME)
def test_a_text_comes_back_as_a_text_everywhere(ask: Ask, text: str) -> None:
    bodies = [
        {**QUESTION, "recipe": {**QUESTION["recipe"], text: 1, "precision": text, "micro_batch": text}},
        {**QUESTION, "model": text or "x", "cluster": {"gpu": text or "x", "gpus": 8}, text: text},
    ]
    for body in bodies:
        answer = ask("POST", "/v1/estimates", json=body)
        assert answer.status_code == 422
        for error in answer.json()["errors"]:
            unquoted(error["message"])
            assert error["pointer"].isprintable()
            assert not set("<>&;") & {*error["pointer"]}
        assert "<" not in answer.text
    flat = {"model": text[:200] or "x", "sequence_length": text or "x", "gpu": "h100", "gpus": "8"}
    cell = ask("GET", "/v1/cell/gpu_hours", params={**flat, "on_error": "text"})
    assert cell.text.startswith("#ERR ")
    assert cell.text.isprintable()
    why = ask("GET", "/v1/cell/why", params=flat)
    assert all(line.isprintable() for line in why.text.split("\n"))


def test_a_name_in_a_row_of_a_table_opens_no_formula(ask: Ask) -> None:
    question = {name: QUESTION[name] for name in ("model", "recipe")}
    prices = [{"rate_card": text} for text in SOME if 0 < len(text) <= 200]
    body = {"question": question, "clusters": [{"gpu": "h100", "gpus": 8}], "prices": prices}
    table = ask("POST", "/v1/compare.csv", json=body)
    assert table.status_code == 200, table.text[:300]
    assert list(formulas_of_csv(table.text)) == []
    assert list(formulas_of_workbook(ask("POST", "/v1/compare.xlsx", json=body).content)) == []


@pytest.mark.parametrize("text", ["\x1b[2Jx", "[/red]", "a\u202eb", "=1+1;-2", "\x07"])
def test_a_terminal_and_a_log_show_it_escaped(text: str, commands: Commands, caplog: pytest.LogCaptureFixture) -> None:
    code, _, shown = commands("estimate")("--model", text, "--gpu", text, "--sequence-length", text)
    assert code == 2
    assert all(line.isprintable() for line in shown.split("\n"))
    with pytest.raises(Refused) as refused:
        read_question({**QUESTION, "model": text}, shipped_catalogue())
    with caplog.at_level(logging.INFO):
        logging.getLogger("tests").info("%s", refused.value)
    assert all(record.getMessage().isprintable() for record in caplog.records)


@pytest.mark.parametrize(
    "secret",
    [
        "tck_abcdefgh." + "a" * 43,
        "sk-proj-abcdefghijklmnop",
        "hf_abcdefghijklmnopqrstuvwx",
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_abcdefghijklmnopqrst",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
        "Zk9x" * 10 + "Q1a",
    ],
)
def test_a_secret_is_not_repeated_and_neither_is_the_value_of_an_unknown_field(ask: Ask, secret: str) -> None:
    bodies = (
        {**QUESTION, "model": secret},
        {**QUESTION, secret: 1, "api_key": secret},
        {**QUESTION, "cluster": {"gpu": f"x {secret}", "gpus": secret}},
    )
    for body in bodies:
        answer = ask("POST", "/v1/estimates", json=body)
        assert answer.status_code == 422
        assert secret[:12] not in answer.text
    assert secret[:12] not in ask("GET", "/v1/cell/why", params={"model": secret, secret: secret}).text
