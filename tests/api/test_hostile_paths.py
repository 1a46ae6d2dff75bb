"""Paths that no name can have are 404, whatever the database makes of them."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.asking import ADMISSION_TOKEN, Ask
from tests.fixtures import NewUrl, asking, one_by_one, running

HOSTILE = ("a%00b", "%ff", "x" * 2_000)
"""What may stand where a name should: what texts of PostgreSQL cannot hold, what is no UTF-8, what is too long."""


@pytest.fixture
def ask(new_url: NewUrl) -> Iterator[Ask]:
    with running(new_url()) as app, asking(app) as together:
        yield one_by_one(together)


def test_no_operation_fails_at_a_name_that_there_cannot_be(ask: Ask) -> None:
    document: dict[str, Any] = ask("GET", "/openapi.json").json()
    tried, failed = 0, []
    for path, methods in document["paths"].items():
        for method in methods if "{" in path else ():
            head, _, rest = path.replace("{token}", ADMISSION_TOKEN).partition("{")
            for name in HOSTILE:
                place = head + name + "".join(part.partition("}")[2] for part in rest.split("{"))
                answer = ask(method.upper(), place, headers={"If-Match": "*"}, json={})
                tried += 1
                failed += [(method, place, answer.text[:200])] if answer.status_code >= 500 else []
    assert failed == []
    assert tried > 100
