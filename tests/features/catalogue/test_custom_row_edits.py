"""An edited row keeps the fields that the edit leaves out, and each problem is reported once."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from service.features.catalogue import row_bodies
from tests.api.asking import Ask
from tests.api.own_bodies import OWN

ANY = {"If-Match": "*"}
LONG_AGO = "2020-02-02"
CONFIG = {
    "model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
    "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True,
}  # fmt: skip
GLOBAL = {**CONFIG, "sliding_window": None}
"""The same, where null says something that leaving out does not."""


@pytest.fixture
def slug() -> str:
    return f"own-{uuid4().hex[:12]}"


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


@pytest.mark.parametrize(
    ("plural", "wrong", "told"),
    [
        ("gpus", {"memory_bytes": "96GB"}, [("/memory_bytes", "not_a_number")]),
        ("gpus", {"memory_bytes": None}, [("/memory_bytes", "required")]),
        ("gpus", {"memory_bytes": -1}, [("/memory_bytes", "out_of_range")]),
        ("gpus", {"host_bytes_per_s": "x"}, [("/host_bytes_per_s", "not_a_number")]),
        (
            "gpus",
            {"memory_bytes": "96GB", "usable_bytes": "95GB"},
            [("/memory_bytes", "not_a_number"), ("/usable_bytes", "not_a_number")],
        ),
        *((kind.plural, {"slug": None}, [("/slug", "required")]) for kind in OWN if kind.plural != "prices"),
        ("prices", {"usd_per_gpu_hour": "2"}, [("/usd_per_gpu_hour", "not_a_number")]),
        ("prices", {"gpu_count": 0}, [("/gpu_count", "out_of_range")]),
    ],
)
def test_what_follows_from_a_wrong_value_is_not_told_beside_it(
    own: Ask, slug: str, plural: str, wrong: dict[str, Any], told: list[tuple[str, str]]
) -> None:
    kind = next(kind for kind in OWN if kind.plural == plural)
    answer = own("POST", f"/v1/{plural}", json={**kind.named(slug), **wrong})
    assert answer.status_code == 422
    assert sorted((error["pointer"], error["code"]) for error in answer.json()["errors"]) == told
