"""Each path takes the methods of the contract alone, and names that cannot exist are 404 on every database."""

from typing import Any

from tests.api.asking import ADMISSION_TOKEN, Ask
from tests.fixtures import NewUrl, asking, one_by_one, running

HOSTILE = ("a%00b", "%ff", "x" * 2_000)
"""What may stand where a name should: what texts of PostgreSQL cannot hold, what is no UTF-8, what is too long."""


def test_every_path_takes_the_methods_of_the_contract_alone(ask: Ask, document: dict[str, Any]) -> None:
    for path, methods in document["paths"].items():
        taken = {method.upper() for method in methods} | {"OPTIONS"} | ({"HEAD"} if "get" in methods else set())
        asked = ask("OPTIONS", path.replace("{", "").replace("}", ""))
        assert (path, asked.headers["allow"]) == (path, ", ".join(sorted(taken)))
        assert asked.status_code == 204


def test_a_path_that_is_spelled_out_is_no_name(ask: Ask) -> None:
    for path in ("/v1/models/import", "/v1/prices/import", "/v1/adapters/slurm/check", "/v1/measurements/release"):
        for method in ("GET", "HEAD", "PUT", "DELETE"):
            refused = ask(method, path)
            assert (refused.status_code, refused.headers["allow"]) == (405, "OPTIONS, POST")
    assert ask("GET", "/v1/models/imported").status_code == 404


def test_no_operation_fails_at_a_name_that_there_cannot_be(new_url: NewUrl, document: dict[str, Any]) -> None:
    tried, failed = 0, []
    with running(new_url()) as app, asking(app) as together:
        ask = one_by_one(together)
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
