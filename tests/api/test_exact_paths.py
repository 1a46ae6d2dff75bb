"""Each path takes the methods of the contract, also where a path parameter would match it."""

from typing import Any

from tests.api.asking import Ask


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
