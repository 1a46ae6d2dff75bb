"""The audit log holds every change with its actor, and nothing else."""

from typing import Any

from tests.api.asking import NCCL_TESTS, QUESTION
from tests.api.callers import Service
from tests.api.matrix import Operation, Tried
from tests.api.own_bodies import TINY

NOT_MADE_HERE = {"createReconciliation"}
"""Changes of which nothing is written here: no job of the example was estimated before."""


def test_every_change_is_in_the_audit_log(service: Service, tried: Tried, operations: list[Operation]) -> None:
    assert tried.cells
    service.made("/v1/models/import?slug=matrix-imported", {**TINY, "model_type": "llama", "num_key_value_heads": 4})
    text = "provider,gpu,usd_per_gpu_hour,as_of\r\nmatrix csv,h100,1,2026\r\nmatrix csv,a100-sxm4-80gb,1,2026\r\n"
    prices = service.by("a", "POST", "/v1/prices/import", content=text, headers={"Content-Type": "text/csv"})
    assert prices.json()["created"] == 2
    path = "/v1/measurements/imports/nccl-tests"
    file = service.by("a", "POST", path, content=NCCL_TESTS, headers={"Content-Type": "text/plain"})
    assert file.status_code == 200, file.text
    some = service.object("measurements", "noted")
    for what in ("quarantine", "release"):
        service.made(
            f"/v1/measurements/{what}", {"ids": [some], **({"reason": "x"} if what == "quarantine" else {})}, 200
        )
    log = audit(service)
    done = {entry["operation"] for entry in log if entry["outcome"] == "done"}
    assert done == {one.name for one in operations if one.scope == "write" and one.method != "GET"} - NOT_MADE_HERE
    assert {entry["caller"] for entry in log} <= {*service.ids.values()}
    assert all(entry["request_id"] for entry in log)
    assert all(entry["object"] for entry in log if entry["outcome"] == "done")
    (one,) = [entry for entry in log if entry["request_id"] == prices.headers["x-request-id"]]
    assert (one["owner"], one["caller"], one["object"].rpartition("/")[0]) == (
        "a", service.ids["a"], "catalogue/revisions",
    )  # fmt: skip


def test_what_was_refused_is_in_the_audit_log(service: Service) -> None:
    scenario = service.object("scenarios", "refused")
    path, patch = f"/v1/scenarios/{scenario}", {"json": {"note": "x"}}
    refused = {
        "not_found": service.by("b", "PATCH", path, **patch, headers={"If-Match": "*"}),
        "forbidden": service.by("reader", "PATCH", path, **patch, headers={"If-Match": "*"}),
        "stale": service.by("a", "PATCH", path, **patch, headers={"If-Match": '"x"'}),
        "conflict": service.by("a", "DELETE", "/v1/gpus/h100-sxm5-80gb", headers={"If-Match": "*"}),
    }
    service.by("anonymous", "PATCH", path, **patch, headers={"If-Match": "*"})
    found = {entry["request_id"]: entry for entry in audit(service)}
    for outcome, answer in refused.items():
        entry = found[answer.headers["x-request-id"]]
        assert entry["outcome"] == outcome
        assert entry["object"] == ("h100-sxm5-80gb" if outcome == "conflict" else scenario)
    odd = service.by("a", "DELETE", "/v1/scenarios/%3Cb%3E", headers={"If-Match": "*"})
    (entry,) = [one for one in audit(service) if one["request_id"] == odd.headers["x-request-id"]]
    assert (entry["outcome"], entry["object"]) == ("not_found", None)


def test_nothing_is_noted_of_what_was_not_done(service: Service) -> None:
    before = audit(service)
    assert service.by("a", "POST", "/v1/scenarios", json={"name": "x"}).status_code == 422
    assert service.by("a", "POST", "/v1/estimates", json=QUESTION).status_code == 200
    assert service.by("anonymous", "POST", "/v1/scenarios", json={"name": "x"}).status_code == 401
    assert audit(service) == before


def test_the_audit_log_is_a_list_like_any_other(service: Service) -> None:
    service.object("scenarios", "counted")
    answer = service.by("admin", "GET", "/v1/audit?operation=createScenario&limit=1")
    assert answer.status_code == 200
    (first,) = answer.json()["items"]
    assert first["operation"] == "createScenario"
    table = service.by("admin", "GET", "/v1/audit.csv?operation=createScenario").text
    assert table.startswith("number,at,caller,owner,operation,object,outcome,request_id\r\n")
    assert not any(key.partition(".")[2] in table for key in service.keys.values())
    assert service.by("admin", "GET", "/v1/audit.xlsx").status_code == 200


def audit(service: Service) -> list[dict[str, Any]]:
    return service.listed("/v1/audit", "admin")
