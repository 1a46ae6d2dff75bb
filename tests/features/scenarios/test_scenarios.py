"""A saved question is read again with its answer, by its link alone."""

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from openapi_schema_validator import OAS31Validator

from service.store.engine import open_engine
from tests.api.asking import QUESTION, Ask, AskTogether


@pytest.fixture
def ask(kept: Ask) -> Ask:
    """Scenarios are kept in the database."""
    return kept


@pytest.fixture
def saved(ask: Ask) -> Iterator[httpx.Response]:
    answer = ask("POST", "/v1/scenarios", json={"name": "8B on one node", "note": "first", "question": QUESTION})
    assert answer.status_code == 201, answer.text
    yield answer
    ask("DELETE", answer.headers["location"], headers={"If-Match": "*"})


def _path(saved: httpx.Response) -> str:
    return saved.headers["location"]


def _changed(ask: Ask, method: str, saved: httpx.Response, body: Any, **headers: str) -> httpx.Response:
    return ask(method, _path(saved), json=body, headers={"If-Match": saved.headers["etag"], **headers})


def test_a_saved_question_says_what_was_answered_and_under_which_versions(ask: Ask, saved: httpx.Response) -> None:
    scenario = saved.json()
    answer = ask("POST", "/v1/estimates", json=QUESTION).json()
    assert re.fullmatch(r"scn_[A-Za-z0-9_-]{22}", scenario["id"])
    assert (scenario["name"], scenario["note"], scenario["owner"]) == ("8B on one node", "first", "team")
    assert (scenario["revision"], scenario["question"]) == (1, QUESTION)
    assert scenario["estimate_id"] == answer["id"]
    assert scenario["versions"] == answer["versions"]
    assert scenario["summary"] == {
        "gpu": "h100-sxm5-80gb",
        "gpus": 8,
        "verdict": answer["verdict"],
        "device_peak_bytes": answer["memory"]["device_peak_bytes"]["value"],
        "usable_bytes": answer["memory"]["usable_bytes"],
        "step_seconds": answer["step"]["step_seconds"]["value"],
        "gpu_hours": answer["totals"]["gpu_hours"]["value"],
        "cost_usd": answer["totals"]["cost_usd"]["value"],
    }
    assert scenario["created_at"] == scenario["changed_at"]
    assert _path(saved) == scenario["links"]["self"] == f"/v1/scenarios/{scenario['id']}"


def test_whoever_has_the_link_reads_it_and_where_it_leads(ask: Ask, saved: httpx.Response) -> None:
    again = ask("GET", _path(saved))
    assert (again.content, again.headers["etag"]) == (saved.content, saved.headers["etag"])
    assert ask("GET", _path(saved), headers={"If-None-Match": saved.headers["etag"]}).status_code == 304
    links = saved.json()["links"]
    assert ask("GET", links["revision"]).content == saved.content
    assert saved.json()["id"] in ask("GET", links["list"]).text
    asked_again = ask("POST", "/v1/estimates", json=again.json()["question"])
    assert ask("GET", links["estimate"]).content == asked_again.content


def test_two_scenarios_may_ask_the_same_under_the_same_name(ask: Ask, saved: httpx.Response) -> None:
    other = ask("POST", "/v1/scenarios", json={"name": "8B on one node", "question": QUESTION})
    assert other.status_code == 201
    assert other.json()["id"] != saved.json()["id"]
    assert other.json()["note"] == ""
    assert other.json()["estimate_id"] == saved.json()["estimate_id"]


def test_put_says_all_of_it_anew(ask: Ask, saved: httpx.Response) -> None:
    question = {**QUESTION, "cluster": {"gpu": "h100-sxm5-80gb", "gpus": 16}}
    changed = _changed(ask, "PUT", saved, {"name": "on two", "question": question})
    assert changed.status_code == 200, changed.text
    scenario = changed.json()
    assert (scenario["revision"], scenario["name"], scenario["note"]) == (2, "on two", "")
    assert scenario["summary"]["gpus"] == 16
    assert scenario["question"] == question
    assert changed.headers["etag"] != saved.headers["etag"]
    assert ask("GET", _path(saved)).content == changed.content
    assert ask("GET", f"{_path(saved)}?revision=1").content == saved.content
    assert ask("GET", saved.json()["links"]["estimate"]).status_code == 200


@pytest.mark.parametrize("media_type", ["application/json", "application/merge-patch+json"])
def test_patch_changes_only_what_it_names(ask: Ask, saved: httpx.Response, media_type: str) -> None:
    kinds = {"Content-Type": media_type}
    noted = _changed(ask, "PATCH", saved, {"note": "second"}, **kinds)
    assert noted.status_code == 200, noted.text
    assert {**noted.json(), "note": "first", "revision": 1} | {
        name: saved.json()[name] for name in ("changed_at", "links")
    } == saved.json()


def test_patch_reaches_into_the_question(ask: Ask, saved: httpx.Response) -> None:
    changed = _changed(ask, "PATCH", saved, {"note": None, "question": {"cluster": {"gpus": 16}, "price": None}})
    assert changed.status_code == 200, changed.text
    scenario = changed.json()
    assert (scenario["name"], scenario["note"], scenario["revision"]) == ("8B on one node", "", 2)
    assert scenario["question"]["cluster"] == {"gpu": "h100-sxm5-80gb", "gpus": 16}
    assert "price" not in scenario["question"]
    assert (scenario["summary"]["gpus"], scenario["summary"]["cost_usd"]) == (16, None)


def test_a_patch_to_an_equal_number_of_another_kind_is_judged(ask: Ask) -> None:
    layout = {"tensor": 2, "sequence_parallel": True}
    saved = ask("POST", "/v1/scenarios", json={"name": "a", "question": {**QUESTION, "layout": layout}})
    refused = _changed(ask, "PATCH", saved, {"question": {"layout": {"sequence_parallel": 1}}})
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == "/question/layout/sequence_parallel"


def test_a_change_names_what_it_starts_from(ask: Ask, saved: httpx.Response) -> None:
    path, body = _path(saved), {"name": "b", "question": QUESTION}
    for method in ("PUT", "PATCH", "DELETE"):
        request = {} if method == "DELETE" else {"json": body}
        missing = ask(method, path, **request)
        assert (missing.status_code, missing.json()["code"]) == (428, "precondition_required")
        for etag in ('"other"', f"W/{saved.headers['etag']}", saved.headers["etag"].strip('"')):
            stale = ask(method, path, headers={"If-Match": etag}, **request)
            assert (stale.status_code, stale.json()["code"]) == (412, "stale"), etag
    assert ask("GET", path).content == saved.content
    listed = ask("PUT", path, json=body, headers={"If-Match": f'"other", {saved.headers["etag"]}'})
    assert listed.json()["revision"] == 2
    assert ask("PUT", path, json=body, headers={"If-Match": saved.headers["etag"]}).status_code == 412
    assert ask("PUT", path, json=body, headers={"If-Match": "*"}).json()["revision"] == 3


def test_a_deleted_scenario_is_gone_and_its_answer_is_not(ask: Ask, saved: httpx.Response) -> None:
    gone = ask("DELETE", _path(saved), headers={"If-Match": saved.headers["etag"]})
    assert (gone.status_code, gone.content) == (204, b"")
    assert ask("GET", _path(saved)).status_code == 404
    assert ask("GET", f"{_path(saved)}?revision=1").status_code == 404
    assert ask("DELETE", _path(saved), headers={"If-Match": "*"}).status_code == 404
    assert ask("GET", saved.json()["links"]["estimate"]).status_code == 200


@pytest.mark.parametrize(
    "scenario_id", ["scn_AAAAAAAAAAAAAAAAAAAAAA", "scn_", "any", "%00", "a%2Fb", "\N{SNOWMAN}", "scn_" + "A" * 999]
)
def test_an_unknown_scenario_is_not_found(ask: Ask, scenario_id: str) -> None:
    for method, request in (("GET", {}), ("PUT", {"json": {"name": "a", "question": QUESTION}}), ("DELETE", {})):
        answer = ask(method, f"/v1/scenarios/{scenario_id}", headers={"If-Match": "*"}, **request)
        assert answer.status_code == 404


@pytest.mark.parametrize(
    "revision", ["0", "-1", "x", "", "1.5", "2147483648", "9" * 5000, "%00", "1&revision=1", "\u0663"]
)
def test_a_wrong_revision_is_refused(ask: Ask, saved: httpx.Response, revision: str) -> None:
    answer = ask("GET", f"{_path(saved)}?revision={revision}")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["parameter"] == "revision"
    assert ask("GET", f"{_path(saved)}?revision=2").status_code == 404


@pytest.mark.parametrize("estimate_id", ["est_" + "0" * 32, "est_", "any"])
def test_an_answer_that_nobody_stored_says_how_to_store_one(ask: Ask, estimate_id: str) -> None:
    answer = ask("GET", f"/v1/estimates/{estimate_id}")
    assert answer.status_code == 404
    assert "POST /v1/scenarios" in answer.json()["detail"]


def test_asking_alone_stores_nothing(ask: Ask) -> None:
    question = {**QUESTION, "recipe": {"sequence_length": 4096, "global_batch": 24}}
    asked = ask("POST", "/v1/estimates", json=question).json()
    assert ask("GET", f"/v1/estimates/{asked['id']}").status_code == 404


def test_the_list_filters_sorts_pages_and_leaves_as_tables(ask: Ask) -> None:
    made = [
        ask("POST", "/v1/scenarios", json={
            "name": f"series {gpus}", "note": "=1+1",
            "question": {**QUESTION, "cluster": {"gpu": "h100-sxm5-80gb", "gpus": gpus}},
        }).json()
        for gpus in (8, 32, 16)
    ]  # fmt: skip
    query = "&".join(f"id={scenario['id']}" for scenario in made)
    page = ask("GET", f"/v1/scenarios?{query}&sort=-gpus&limit=2").json()
    rest = ask("GET", f"/v1/scenarios?{query}&sort=-gpus&limit=2&cursor={page['next_cursor']}").json()
    assert [item["gpus"] for item in page["items"] + rest["items"]] == [32, 16, 8]
    assert rest["next_cursor"] is None
    assert [item["gpu_hours"] for item in rest["items"]] == [made[0]["summary"]["gpu_hours"]]
    table = ask("GET", f"/v1/scenarios.csv?{query}&sort=gpus&verdict=fits").text
    assert [line.split(",")[1:3] for line in table.splitlines()[1:]] == [[f"series {n}", "'=1+1"] for n in (8, 16, 32)]
    assert ask("GET", f"/v1/scenarios.xlsx?{query}").content.startswith(b"PK")


def test_everything_shown_is_as_the_contract_says(document: dict[str, Any], ask: Ask, saved: httpx.Response) -> None:
    listed = ask("GET", "/v1/scenarios")
    for path, method, status, body in (
        ("/v1/scenarios", "post", "201", saved.json()),
        ("/v1/scenarios/{scenario_id}", "get", "200", saved.json()),
        ("/v1/scenarios", "get", "200", listed.json()),
    ):
        schema = document["paths"][path][method]["responses"][status]["content"]["application/json"]["schema"]
        OAS31Validator({**schema, "components": document["components"]}).validate(body)
    assert {"412", "428", "404"} <= document["paths"]["/v1/scenarios/{scenario_id}"]["put"]["responses"].keys()


def test_of_many_changes_from_one_version_one_is_made(own: Ask, own_together: AskTogether) -> None:
    path = own("POST", "/v1/scenarios", json={"name": "raced", "question": QUESTION}).headers["location"]
    for revision in (2, 3):
        headers = {"If-Match": own("GET", path).headers["etag"]}
        requests = [
            {"method": "PATCH", "url": path, "json": {"note": f"{revision} {writer}"}, "headers": headers}
            for writer in range(8)
        ]
        answers = own_together(requests)
        assert sorted(answer.status_code for answer in answers) == [200] + [412] * 7
        (made,) = [answer for answer in answers if answer.status_code == 200]
        assert own("GET", path).content == made.content
        assert made.json()["revision"] == revision


def test_of_many_changes_from_any_version_all_are_made(own: Ask, own_together: AskTogether) -> None:
    path = own("POST", "/v1/scenarios", json={"name": "raced", "question": QUESTION}).headers["location"]
    writers = 20
    requests = [
        {"method": "PATCH", "url": path, "json": {"note": f"{writer}"}, "headers": {"If-Match": "*"}}
        for writer in range(writers)
    ]
    answers = own_together(requests)
    assert [answer.status_code for answer in answers] == [200] * writers
    assert sorted(answer.json()["revision"] for answer in answers) == [*range(2, writers + 2)]
    newest = next(answer for answer in answers if answer.json()["revision"] == writers + 1)
    assert own("GET", path).content == newest.content
    gone = own_together([{"method": "DELETE", "url": path, "headers": {"If-Match": "*"}}] * 5)
    assert sorted(answer.status_code for answer in gone) == [204] + [404] * 4


def test_a_database_that_is_down_is_said(own: Ask, own_app: FastAPI) -> None:
    path = own("POST", "/v1/scenarios", json={"name": "kept", "question": QUESTION}).headers["location"]
    kept = own_app.state.engine
    for engine in (open_engine("postgresql://somebody@127.0.0.1:1/costs"), None):
        own_app.state.engine = engine
        for answer in (
            own("GET", "/v1/scenarios"),
            own("GET", path),
            own("POST", "/v1/scenarios", json={"name": "lost", "question": QUESTION}),
            own("DELETE", path, headers={"If-Match": "*"}),
            own("GET", f"/v1/estimates/est_{'0' * 32}"),
        ):
            assert (answer.status_code, answer.json()["code"]) == (503, "not_ready")
            assert answer.headers["retry-after"]
    own_app.state.engine = kept
    assert own("GET", path).status_code == 200
