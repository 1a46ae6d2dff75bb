"""Every column of every own row against hostile values: a row or a small refusal without an echo, never a failure.

Each column is tried with some of the values, each with others; `.ci/proof sweeps` tries all.
"""

import json
from typing import Any
from uuid import uuid4

import pytest
from fastapi import FastAPI

from service.api.errors import MOST_BYTES
from service.errors import MOST_PROBLEMS
from service.features.catalogue.lists import LISTINGS
from service.features.catalogue.row_bodies import body_columns
from tests.amounts import WHOLE, amount
from tests.api.asking import QUESTION, Ask
from tests.api.own_bodies import IDS, OWN, Own
from tests.echoes import beyond_echo

CANARY = "c4n4ry"
JSON = {"content-type": "application/json"}
NUMBERS = ("-1", "1e308", "5e-324", "1e3")
STORED_NUMBERS = ("1e308", "1e3")
"""Numbers that reach PostgreSQL; most columns refuse the others first."""
TEXTS = ("true", '"a\\u0000"', f'"{CANARY} <script>"', '""')
"""Other values that reach the database from some columns, or that databases treat differently."""
REFUSED = ("NaN", "[]", f'{{"{CANARY}": 1}}', f'"{"x" * 5000}"', f'[{{"{CANARY}": "{CANARY}"}}]')
"""Values that are refused before the database sees them."""
EACH = amount(3, len(TEXTS) + len(REFUSED))
"""How many values beside the numbers each column is tried with; the columns take turns."""

COLUMNS = [
    (own, column)
    for own in OWN
    for column in (*body_columns(LISTINGS[own.plural].row), "owner", "revision", "id", "hf_config")
]


def texts_for(place: int, plural: str, database: str) -> list[str]:
    """JSON texts for the column at a place; PostgreSQL keeps a model in one column, so some of its fields suffice."""
    if database == "postgresql" and plural == "models" and place % 4 and not WHOLE:
        return []
    others = [*TEXTS, *(REFUSED if database == "sqlite" else ())]
    each = EACH if database == "sqlite" else amount(1, len(others))
    numbers = NUMBERS if database == "sqlite" or WHOLE else STORED_NUMBERS
    return [*numbers, *(others[(place + turn) % len(others)] for turn in range(each))]


def check(answer: Any, statuses: set[int], where: str = "") -> None:
    assert answer.status_code in statuses, (where, answer.text[:500])
    if answer.status_code >= 400:
        document = answer.json()
        assert len(answer.content) <= MOST_BYTES
        assert len(document["errors"]) <= MOST_PROBLEMS
        assert all(error["code"] and error["message"] and error["fix"] for error in document["errors"])
        assert CANARY not in beyond_echo(answer)


@pytest.mark.parametrize("kind", OWN, ids=IDS)
def test_a_column_takes_values_within_its_bounds_only(own: Ask, own_app: FastAPI, kind: Own) -> None:
    database = own_app.state.engine.dialect.name
    for place, (owner, column) in enumerate(COLUMNS):
        for text in texts_for(place, kind.plural, database) if owner is kind else ():
            body = {**kind.named(f"hostile-{uuid4().hex[:12]}"), column: "@here@"}
            answer = own("POST", f"/v1/{kind.plural}", content=json.dumps(body).replace('"@here@"', text), headers=JSON)
            check(answer, {201, 409, 422}, column)
            if answer.status_code == 201:
                path = answer.headers["location"]
                if database == "sqlite" and text in NUMBERS and kind.plural in {"models", "clusters", "gpus"}:
                    _ask(own, kind.plural, path.rpartition("/")[2])
                assert own("DELETE", path, headers={"If-Match": answer.headers["etag"]}).status_code == 204, column


def _ask(own: Ask, plural: str, slug: str) -> None:
    """An estimate with a strange row is an answer or a refusal too."""
    part = {"cluster": {"gpu": slug, "gpus": 8}} if plural == "gpus" else {plural[:-1]: slug}
    check(own("POST", "/v1/estimates?explain=true", json={**QUESTION, **part, "layout": {}}), {200, 422})


@pytest.mark.parametrize("kind", OWN, ids=IDS)
def test_unknown_names_come_back_in_quotes_only(own: Ask, kind: Own) -> None:
    for body in ({CANARY: 1}, {f"{CANARY}{i}": i for i in range(3000)}, {**kind.body, CANARY: {CANARY: CANARY}}):
        check(own("POST", f"/v1/{kind.plural}", json=body), {422})
        check(own("PUT", f"/v1/{kind.plural}/{CANARY}", json=body, headers={"If-Match": f'"{CANARY}"'}), {404, 422})
        check(own("PATCH", f"/v1/{kind.plural}/{CANARY}", json=body, headers={"If-Match": "*"}), {404, 422})
    check(own("DELETE", f"/v1/{kind.plural}/{CANARY}", headers={"If-Match": "*"}), {404})
    check(own("GET", f"/v1/{kind.plural}/{CANARY}?revision=1"), {404})
    for wrong in ("0", "-1", "1.5", CANARY, "9" * 30, "", "\0"):
        check(own("GET", f"/v1/{kind.plural}/{CANARY}", params={"revision": wrong}), {422})


@pytest.mark.parametrize("kind", OWN, ids=IDS)
def test_a_body_that_is_no_object_or_no_json_is_refused(own: Ask, kind: Own) -> None:
    for body in ("[]", "1", "null", f'"{CANARY}"', "{", ""):
        check(own("POST", f"/v1/{kind.plural}", content=body, headers=JSON), {400})
    for media in ("text/plain", "application/json-patch+json", "application/json; charset=latin-1"):
        for method in ("POST", "PUT", "PATCH"):
            path = f"/v1/{kind.plural}" + ("" if method == "POST" else "/x")
            answer = own(method, path, content="{}", headers={"content-type": media, "If-Match": "*"})
            check(answer, {415})
    merge = {"content-type": "application/merge-patch+json", "If-Match": "*"}
    check(own("PUT", f"/v1/{kind.plural}/x", content="{}", headers=merge), {415})
    deep = '{"a":' * 40 + "1" + "}" * 40
    check(own("PATCH", f"/v1/{kind.plural}/x", content=deep, headers=merge), {422})


@pytest.mark.parametrize(
    "config", [{CANARY: CANARY}, {"model_type": "llama", "hidden_size": CANARY}, {"model_type": [CANARY]}]
)
def test_a_config_is_not_repeated(own: Ask, config: dict[str, Any]) -> None:
    check(own("POST", "/v1/models/import", json=config), {422})
    check(own("POST", "/v1/models", json={"slug": "x", "hf_config": config}), {422})


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "llama", "num_hidden_layers": 2048, "hidden_size": 1 << 24, "vocab_size": 1 << 24},
        {"model_type": "mixtral", "num_local_experts": 1 << 20, "num_experts_per_tok": 1, "hidden_size": 1 << 24},
        {"model_type": "gpt2", "_name_or_path": "../../../\u202e" + "x" * 5000},
        {"model_type": "gpt2", "_name_or_path": "<script>"},
    ],
)
def test_an_extreme_config_is_a_row_or_a_refusal(own: Ask, config: dict[str, Any]) -> None:
    answer = own("POST", "/v1/models/import", json=config)
    check(answer, {201, 422})
    if answer.status_code == 201:
        assert own("DELETE", answer.headers["location"], headers={"If-Match": "*"}).status_code == 204
