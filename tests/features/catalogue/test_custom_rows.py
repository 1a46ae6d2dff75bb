"""Own rows over HTTP: created, read, changed and deleted, each from the version that holds; shipped rows never."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from fastapi import FastAPI
from openapi_schema_validator import OAS31Validator

from service.catalogue import shipped_catalogue
from service.features.catalogue import row_bodies
from service.features.catalogue.row_bodies import REQUIRED_COLUMNS
from service.store.history import load_catalogue
from tests.api.asking import QUESTION, Ask
from tests.api.own_bodies import IDS, OWN, Own

SHIPPED = {
    "models": "llama-3.1-8b",
    "gpus": "h100-sxm5-80gb",
    "clusters": "dgx-h100",
    "prices": next(iter(shipped_catalogue().prices)).id,
}
MERGE_PATCH = {"content-type": "application/merge-patch+json"}

each = pytest.mark.parametrize("kind", OWN, ids=IDS)


@pytest.fixture
def slug() -> str:
    return f"own-{uuid4().hex[:12]}"


def code_of(answer: Any) -> tuple[int, str, list[str]]:
    document = answer.json()
    return answer.status_code, document["code"], [error["code"] for error in document["errors"]]


@each
def test_a_row_lives_from_post_to_delete(own: Ask, own_app: FastAPI, kind: Own, slug: str) -> None:
    created = own("POST", f"/v1/{kind.plural}", json=kind.named(slug))
    assert created.status_code == 201, created.text
    path = kind.path(slug)
    read = own("GET", path)
    assert created.headers["location"] == path
    assert (read.content, read.headers["etag"]) == (created.content, created.headers["etag"])
    row = read.json()
    assert (row["owner"], row["revision"], row["verified"]) == ("team", 1, "no")
    assert row["source"] == "stated by the owner"
    assert row["as_of"] == kind.body.get("as_of", datetime.now(UTC).date().isoformat())

    patched = own("PATCH", path, json=kind.change, headers={"If-Match": read.headers["etag"], **MERGE_PATCH})
    assert patched.status_code == 200, patched.text
    expected = row | {"revision": 2} | kind.change
    if kind.plural == "prices":
        expected |= {"usd_per_instance_hour": 2.25}
    assert patched.json() == expected
    assert patched.headers["etag"] != read.headers["etag"]

    replaced = own("PUT", path, json=patched.json() | {"note": "edited"}, headers={"If-Match": patched.headers["etag"]})
    assert replaced.status_code == 200, replaced.text
    note = f"edited; {row['note']}" if row["note"] else "edited"
    assert replaced.json() == patched.json() | {"note": note, "revision": 3}
    assert own("GET", path).content == replaced.content
    assert [own("GET", f"{path}?revision={n}").json()["revision"] for n in (1, 2, 3)] == [1, 2, 3]
    assert own("GET", f"{path}?revision=1").json() == row
    assert own("GET", f"{path}?revision=4").status_code == 404

    assert load_catalogue(own_app.state.engine).revision == own_app.state.history.snapshot.revision
    gone = own("DELETE", path, headers={"If-Match": replaced.headers["etag"]})
    assert (gone.status_code, gone.content) == (204, b"")
    assert own("GET", path).status_code == 404
    assert own("GET", f"{path}?revision=2").json() == patched.json()
    again = own("POST", f"/v1/{kind.plural}", json=kind.named(slug))
    assert again.json()["revision"] == 4
    assert own("DELETE", path, headers={"If-Match": "*"}).status_code == 204


@each
def test_a_change_needs_the_version_that_holds(own: Ask, kind: Own, slug: str) -> None:
    etag = own("POST", f"/v1/{kind.plural}", json=kind.named(slug)).headers["etag"]
    path = kind.path(slug)
    body = own("GET", path).json()
    requests = [("PUT", {"json": body}), ("PATCH", {"json": kind.change}), ("DELETE", {})]
    for method, request in requests:
        assert code_of(own(method, path, **request)) == (428, "precondition_required", [])
        for stale in ('"stale"', f"W/{etag}", '"a", "b"', etag.strip('"'), ""):
            answer = own(method, path, headers={"If-Match": stale}, **request)
            assert code_of(answer) == (412, "stale", [])
            assert "revision 1" in answer.json()["detail"]
    assert own("PATCH", path, json=kind.change, headers={"If-Match": f'"other", {etag}'}).status_code == 200
    assert own("PATCH", path, json=kind.change, headers={"If-Match": etag}).status_code == 412
    assert own("DELETE", path, headers={"If-Match": "*"}).status_code == 204
    assert own("DELETE", path, headers={"If-Match": "*"}).status_code == 404


@pytest.mark.parametrize("plural", SHIPPED)
def test_a_shipped_row_is_never_changed(own: Ask, plural: str) -> None:
    path = f"/v1/{plural}/{SHIPPED[plural]}"
    row = own("GET", path)
    assert (row.json()["owner"], row.json()["revision"]) == ("catalogue", 1)
    for method, request in (("PUT", {"json": row.json()}), ("PATCH", {"json": {"note": "mine"}}), ("DELETE", {})):
        answer = own(method, path, headers={"If-Match": row.headers["etag"]}, **request)
        assert code_of(answer) == (409, "conflict", ["shipped"])
        assert "POST" in answer.json()["detail"]
    assert own("GET", path).content == row.content


@each
def test_a_name_is_taken_once(own: Ask, kind: Own, slug: str) -> None:
    assert own("POST", f"/v1/{kind.plural}", json=kind.named(slug)).status_code == 201
    twice = own("POST", f"/v1/{kind.plural}", json=kind.named(slug))
    assert code_of(twice) == (409, "conflict", ["name_taken"])
    assert slug not in twice.text
    own("DELETE", kind.path(slug), headers={"If-Match": "*"})


@pytest.mark.parametrize(
    ("plural", "names", "fields"),
    [
        ("models", {"slug": "llama-3.1-8b"}, ["slug"]),
        ("models", {"aliases": ["meta-llama/Llama-3.1-8B"]}, ["aliases"]),
        ("models", {"name": "Llama 3.1 8B", "hugging_face_id": "meta-llama/llama-3.1-8b"}, ["name", "hugging_face_id"]),
        ("gpus", {"aliases": ["spare", "H100"]}, ["aliases"]),
        ("gpus", {"default_for": ["h100"]}, ["default_for"]),
        ("clusters", {"name": "DGX H100"}, ["name"]),
    ],
)
def test_a_name_that_means_another_row_is_refused_by_its_field(
    own: Ask, slug: str, plural: str, names: dict[str, Any], fields: list[str]
) -> None:
    kind = next(kind for kind in OWN if kind.plural == plural)
    answer = own("POST", f"/v1/{plural}", json={**kind.named(slug), **names})
    assert code_of(answer)[:2] == (409, "conflict")
    assert [error["pointer"] for error in answer.json()["errors"]] == [f"/{field}" for field in fields]


@each
def test_what_follows_from_the_row_is_not_set(own: Ask, kind: Own, slug: str) -> None:
    for wrong in ({"owner": "catalogue"}, {"owner": "me"}, {"revision": 7}, {"revision": True}, {"id": "x"}):
        answer = own("POST", f"/v1/{kind.plural}", json={**kind.named(slug), **wrong})
        assert (answer.status_code, [error["pointer"] for error in answer.json()["errors"]]) == (
            422,
            [f"/{next(iter(wrong))}"],
        )
    etag = own("POST", f"/v1/{kind.plural}", json={**kind.named(slug), "owner": "team"}).headers["etag"]
    for wrong in ({"owner": "catalogue"}, {"revision": 2}, {"slug": "another"}, {"provider": "another"}):
        if next(iter(wrong)) in {*kind.named(slug), "owner", "revision"}:
            answer = own("PATCH", kind.path(slug), json=wrong, headers={"If-Match": etag})
            assert code_of(answer) == (422, "refused", ["not_settable"])
    assert own("DELETE", kind.path(slug), headers={"If-Match": etag}).status_code == 204


@each
def test_the_least_that_makes_a_row_is_what_the_contract_says(own: Ask, kind: Own, slug: str) -> None:
    body = kind.named(slug)
    needed = {*REQUIRED_COLUMNS[kind.plural], *(["vocab_size"] if kind.plural == "models" else ())}
    for name in body:
        rest = {key: value for key, value in body.items() if key != name}
        answer = own("POST", f"/v1/{kind.plural}", json=rest)
        if name in needed:
            assert code_of(answer)[:2] == (422, "refused"), name
            assert f"/{name}" in [error["pointer"] for error in answer.json()["errors"]]
    assert set(REQUIRED_COLUMNS[kind.plural]) <= body.keys()


@each
def test_rows_and_changes_are_as_the_contract_says(own: Ask, document: dict[str, Any], kind: Own, slug: str) -> None:
    def check(method: str, status: str, body: Any, place: str) -> None:
        content = document["paths"][place][method]["responses"][status]["content"]["application/json"]
        OAS31Validator({**content["schema"], "components": document["components"]}).validate(body)

    asked = document["paths"][f"/v1/{kind.plural}"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    OAS31Validator({**asked, "components": document["components"]}).validate(kind.named(slug))
    created = own("POST", f"/v1/{kind.plural}", json=kind.named(slug))
    check("post", "201", created.json(), f"/v1/{kind.plural}")
    OAS31Validator({**asked, "components": document["components"]}).validate(created.json())
    patched = own("PATCH", kind.path(slug), json=kind.change, headers={"If-Match": "*"})
    check("patch", "200", patched.json(), f"/v1/{kind.plural}/{{name}}")
    own("DELETE", kind.path(slug), headers={"If-Match": "*"})


def test_a_gpu_in_use_is_not_deleted(own: Ask, slug: str) -> None:
    gpu = next(kind for kind in OWN if kind.plural == "gpus")
    assert own("POST", "/v1/gpus", json=gpu.named(slug)).status_code == 201
    own("POST", "/v1/clusters", json={"slug": f"{slug}-box", "gpu": slug, "gpus": 8})
    own("POST", "/v1/prices", json={"provider": slug, "gpu": slug, "usd_per_gpu_hour": 1, "as_of": "2026"})
    own("POST", "/v1/rate-cards", json={"slug": f"{slug}-card", "rates": [{"gpu": slug, "usd_per_gpu_hour": 1}]})
    used = own("DELETE", f"/v1/gpus/{slug}", headers={"If-Match": "*"})
    assert code_of(used) == (409, "conflict", ["in_use"])
    assert "1 cluster and 1 price and 1 rate card," in used.json()["detail"]
    (price,) = own("GET", f"/v1/prices?provider={slug}").json()["items"]
    for path in (
        f"/v1/clusters/{slug}-box",
        f"/v1/prices/{price['id']}",
        f"/v1/rate-cards/{slug}-card",
        f"/v1/gpus/{slug}",
    ):
        assert own("DELETE", path, headers={"If-Match": "*"}).status_code == 204, path


def test_what_a_gpu_leaves_open_is_derived_and_said(own: Ask, slug: str) -> None:
    gpu = next(kind for kind in OWN if kind.plural == "gpus")
    row = own("POST", "/v1/gpus", json=gpu.named(slug)).json()
    assert row["usable_bytes"] == 96e9 * 0.985
    assert row["usable_basis"] == "estimate: label x 0.985"
    assert (row["host_bytes_per_s"], row["link_bytes_per_s"], row["scale_up_gpus"]) == (16e9, 16e9, 1)
    assert "usable_bytes 9.456e+10" in row["note"]
    asked = own("POST", "/v1/estimates", json={**QUESTION, "cluster": {"gpu": slug, "gpus": 8}})
    assert asked.status_code == 200, asked.text
    assert asked.json()["memory"]["usable_bytes"] == row["usable_bytes"]
    own("DELETE", f"/v1/gpus/{slug}", headers={"If-Match": "*"})


def test_a_row_that_is_refused_is_not_stored(own: Ask, slug: str) -> None:
    for kind in OWN:
        assert own("POST", f"/v1/{kind.plural}", json={**kind.named(slug), "as_of": "yesterday"}).status_code == 422
        assert own("GET", kind.path(slug)).status_code == 404


def test_what_was_derived_follows_what_it_was_derived_from(own: Ask, slug: str) -> None:
    gpu = {"slug": slug, "memory_bytes": 80e9, "memory_bytes_per_s": 3e12, "bf16_flop_per_s": 8e14, "board_watts": 500}
    path, any_version = f"/v1/gpus/{slug}", {"If-Match": "*", **MERGE_PATCH}
    first = own("POST", "/v1/gpus", json=gpu).json()
    larger = own("PATCH", path, json={"memory_bytes": 160e9}, headers=any_version).json()
    assert larger["usable_bytes"] == 2 * first["usable_bytes"]
    assert larger["note"].count("derived") == 1
    linked = own("PATCH", path, json={"link_bytes_per_s": 450e9}, headers=any_version).json()
    assert (first["scale_up_gpus"], linked["scale_up_gpus"]) == (1, 8)
    stated = own("PATCH", path, json={"usable_bytes": 150e9}, headers=any_version).json()
    assert (stated["usable_basis"], "usable_bytes" in stated["note"]) == ("stated by the owner", False)
    smaller = own("PATCH", path, json={"memory_bytes": 155e9}, headers=any_version).json()
    assert smaller["usable_bytes"] == 150e9
    assert own("DELETE", path, headers={"If-Match": "*"}).status_code == 204


def test_a_price_does_not_become_another(own: Ask, own_app: FastAPI, slug: str) -> None:
    body = {"provider": slug, "gpu": "h100", "region": "us-east", "price_model": "spot", "usd_per_gpu_hour": 2}
    path = own("POST", "/v1/prices", json=body).headers["location"]
    for change in ({"region": "US East"}, {"provider": slug.upper()}, {"as_of": "2026"}):
        moved = own("PATCH", path, json=change, headers={"If-Match": "*", **MERGE_PATCH})
        assert code_of(moved) == (422, "refused", ["not_settable"])
    assert load_catalogue(own_app.state.engine).revision == own_app.state.history.snapshot.revision
    assert own("DELETE", path, headers={"If-Match": "*"}).status_code == 204


def test_a_price_of_tomorrow_does_not_count_today(own: Ask, slug: str) -> None:
    body = {"provider": slug, "gpu": "h100", "usd_per_gpu_hour": 2, "as_of": "2999-01"}
    refused = own("POST", "/v1/prices", json=body)
    assert code_of(refused) == (422, "refused", ["out_of_range"])
    assert "future" in refused.json()["errors"][0]["message"]


ANY = {"If-Match": "*"}
LONG_AGO = "2020-02-02"
CONFIG = {
    "model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
    "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True,
}  # fmt: skip
GLOBAL = {**CONFIG, "sliding_window": None}
"""The same, where null says something that leaving out does not."""


class _Yesterday(datetime):
    """A clock on which rows were created long ago."""

    @classmethod
    def now(cls, tz: Any = UTC) -> "_Yesterday":
        return cls.fromisoformat(LONG_AGO).replace(tzinfo=tz)


@pytest.fixture(params=OWN, ids=lambda kind: kind.plural)
def old(
    request: pytest.FixtureRequest, own: Ask, slug: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Path and body of a row that was created on another day, without a word of its date."""
    body = {name: value for name, value in request.param.named(slug).items() if name != "as_of"}
    with monkeypatch.context() as patch:
        patch.setattr(row_bodies, "datetime", _Yesterday)
        created = own("POST", f"/v1/{request.param.plural}", json=body)
    assert created.json()["as_of"] == LONG_AGO
    yield created.headers["location"], body
    assert own("DELETE", created.headers["location"], headers=ANY).status_code == 204


@pytest.mark.parametrize("said", [{}, {"as_of": None}])
def test_a_row_that_is_said_anew_keeps_its_date(
    own: Ask, old: tuple[str, dict[str, Any]], said: dict[str, Any]
) -> None:
    path, body = old
    again = own("PUT", path, json={**body, **said, "note": "again"}, headers=ANY)
    assert again.status_code == 200, again.text
    assert (again.json()["as_of"], again.json()["revision"]) == (LONG_AGO, 2)


def test_a_config_takes_the_place_of_the_whole_model(own: Ask, slug: str) -> None:
    first = own("POST", f"/v1/models/import?slug={slug}", json=GLOBAL).json()["row"]
    path, windows = f"/v1/models/{slug}", {"use_sliding_window": True, "sliding_window": 512, "max_window_layers": 12}
    windowed = own("PATCH", path, json={"hf_config": {**CONFIG, **windows}}, headers=ANY)
    assert windowed.status_code == 200, windowed.text
    assert windowed.json()["sliding_window"] == 512
    back = own("PATCH", path, json={"hf_config": GLOBAL, "name": "Ours"}, headers=ANY)
    assert back.json() == {**first, "name": "Ours", "revision": 3}
    told = own("PATCH", path, json={"hf_config": CONFIG, "hidden_size": 896}, headers=ANY)
    assert [error["code"] for error in told.json()["errors"]] == ["told_twice"]
    assert own("DELETE", path, headers=ANY).status_code == 204


def test_a_note_that_a_team_wrote_survives_a_config(own: Ask, slug: str) -> None:
    body = {"slug": slug, "hf_config": CONFIG, "note": "for the spring run"}
    assert own("POST", "/v1/models", json=body).json()["note"] == body["note"]
    path = f"/v1/models/{slug}"
    changed = own("PATCH", path, json={"hf_config": {**CONFIG, "num_hidden_layers": 12}}, headers=ANY).json()
    assert (changed["note"], changed["num_hidden_layers"]) == (body["note"], 12)
    assert own("DELETE", path, headers=ANY).status_code == 204
