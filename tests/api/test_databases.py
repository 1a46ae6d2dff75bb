"""Answers from memory are the same bytes on SQLite and on PostgreSQL."""

from collections.abc import Iterator

import pytest

from service.features.catalogue.lists import LISTINGS
from tests.api.asking import QUESTION, Ask
from tests.fixtures import NewUrl, asking, one_by_one, running


@pytest.fixture(scope="module")
def untouched(new_url: NewUrl) -> Iterator[Ask]:
    """Asks an application on either database to which nobody sent measurements."""
    with running(new_url()) as app, asking(app) as together:
        yield one_by_one(together)


@pytest.fixture(scope="module")
def untouched_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """Asks such an application on SQLite."""
    with running(f"sqlite:///{tmp_path_factory.mktemp('untouched') / 'traincost.db'}") as app, asking(app) as together:
        yield one_by_one(together)


def test_health_needs_no_database_and_readiness_does(kept: Ask) -> None:
    assert kept("GET", "/healthz").json() == {"status": "ok"}
    assert kept("GET", "/readyz").json() == {"status": "ready"}


@pytest.mark.parametrize("plural", LISTINGS)
@pytest.mark.parametrize("form", [".csv", "?limit=1000", ".xlsx"])
def test_a_list_is_the_same_on_either_database(ask: Ask, kept: Ask, plural: str, form: str) -> None:
    here, there = (asked("GET", f"/v1/{plural}{form}") for asked in (ask, kept))
    assert here.status_code == there.status_code == 200
    assert here.content == there.content


@pytest.mark.parametrize("path", ["estimates?explain=true", "memory", "flops", "gpu-hours", "check"])
def test_an_answer_is_the_same_on_either_database(ask: Ask, kept: Ask, path: str) -> None:
    here, there = (asked("POST", f"/v1/{path}", json=QUESTION) for asked in (ask, kept))
    assert here.status_code == there.status_code == 200
    assert here.content == there.content


def test_a_catalogue_price_is_the_same_on_either_database(ask: Ask, kept: Ask) -> None:
    price = {"provider": "aws", "region": "us-east-1", "price_model": "on-demand"}
    here, there = (asked("POST", "/v1/estimates", json={**QUESTION, "price": price}) for asked in (ask, kept))
    assert here.json()["totals"]["cost_usd"] is not None
    assert here.content == there.content


@pytest.mark.parametrize("path", ["/v1/choices", "/openapi.json", "/v1/accuracy"])
def test_a_document_is_the_same_on_either_database(untouched_file: Ask, untouched: Ask, path: str) -> None:
    assert untouched_file("GET", path).content == untouched("GET", path).content
