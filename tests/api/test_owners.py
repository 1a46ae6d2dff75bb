"""Do callers see and change their own, and facts stay everybody's?"""

import pytest

from service.api.measurement_examples import CHOSEN
from tests.api.asking import QUESTION
from tests.api.authorisation import FACTS, LISTS
from tests.api.callers import Service, run
from tests.api.own_bodies import OWN


@pytest.mark.parametrize("plural", LISTS)
def test_a_list_shows_ones_own_and_an_admin_all(service: Service, plural: str) -> None:
    made = service.object(plural, "listed")
    for caller, sees in (("a", True), ("reader", True), ("b", False), ("admin", True)):
        items = service.listed(f"/v1/{plural}", caller)
        assert (made in [item["id"] for item in items]) is sees, caller
        if not sees:
            assert all(item["owner"] == "b" or item.get("promoted_at") for item in items)
        text = service.by(caller, "GET", f"/v1/{plural}.csv").text
        assert (made in text) is sees, caller


def test_facts_are_read_by_everybody_and_say_whose_they_are(service: Service) -> None:
    for plural in FACTS:
        key = service.object(plural, "fact")
        answer = service.by("b", "GET", f"/v1/{plural}/{key}")
        assert (answer.status_code, answer.json()["owner"]) == (200, "a")


def test_a_sheet_key_reads_budgets_of_its_owner_alone(service: Service) -> None:
    other = service.made("/v1/scenarios", {"name": "b's", "question": QUESTION}, caller="b").json()["id"]
    assert service.by("anonymous", "GET", f"/v1/scenarios/{other}.xlsx?key={service.keys['sheet']}").status_code == 404
    own = service.object("scenarios", "sheet")
    assert service.by("anonymous", "GET", f"/v1/scenarios/{own}.xlsx?key={service.keys['sheet']}").status_code == 200


def test_what_others_measured_is_named_by_nobody_else(service: Service) -> None:
    of_a = service.object("measurements", "named")
    for what in ("quarantine", "release"):
        body = {"ids": [of_a], **({"reason": "x"} if what == "quarantine" else {})}
        refused = service.by("b", "POST", f"/v1/measurements/{what}", json=body)
        unknown = service.by("b", "POST", f"/v1/measurements/{what}", json={**body, "ids": ["msr_none"]})
        assert refused.status_code == unknown.status_code == 422
        assert refused.json()["detail"] == unknown.json()["detail"]
        assert service.by("a", "POST", f"/v1/measurements/{what}", json=body).status_code == 200
    refused = service.by("b", "POST", "/v1/calibrations", json={**CHOSEN, "runs": ["named"]})
    assert refused.status_code == 422
    mine = service.made("/v1/measurements", run("named"), 200, caller="b").json()["ids"]
    assert of_a not in mine, "the same of two owners is kept twice"


def test_a_name_that_others_gave_a_row_is_taken(service: Service) -> None:
    for own in OWN:
        service.object(own.plural, "taken")
        body = own.named("matrix taken" if own.plural == "prices" else "matrix-taken")
        answer = service.by("b", "POST", f"/v1/{own.plural}", json=body)
        assert (answer.status_code, answer.json()["errors"][0]["code"]) == (409, "name_taken")
    text = "provider,gpu,usd_per_gpu_hour,as_of\r\nmatrix taken,h100,1,2026\r\n"
    answer = service.by("b", "POST", "/v1/prices/import", content=text, headers={"Content-Type": "text/csv"})
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, "name_taken")


def test_an_admin_changes_a_row_and_its_owner_keeps_it(service: Service) -> None:
    service.object("rate-cards", "kept")
    path = "/v1/rate-cards/matrix-kept"
    for caller, status in (("admin", 200), ("b", 404), ("a", 200)):
        answer = service.by(caller, "PATCH", path, json={"note": caller}, headers={"If-Match": "*"})
        assert answer.status_code == status
    assert service.by("b", "GET", path).json()["owner"] == "a"
    answer = service.by("admin", "PATCH", path, json={"owner": "b"}, headers={"If-Match": "*"})
    assert answer.json()["errors"][0]["code"] == "not_settable"


def test_what_holds_of_another_owner_is_replaced_by_an_admin_alone(service: Service) -> None:
    of_a = service.object("calibrations", "first one")
    assert service.by("a", "POST", f"/v1/calibrations/{of_a}/promote").status_code == 200
    assert service.by("b", "GET", f"/v1/calibrations/{of_a}").status_code == 200, "answers name it"
    assert service.by("b", "POST", f"/v1/calibrations/{of_a}/retire").status_code == 404
    service.made("/v1/measurements", run("another of b's"), 200, caller="b")
    of_b = service.made("/v1/calibrations", {**CHOSEN, "runs": ["another of b's"]}, caller="b").json()["id"]
    refused = service.by("b", "POST", f"/v1/calibrations/{of_b}/promote")
    assert (refused.status_code, refused.json()["errors"][0]["code"]) == (409, "held_by_another")
    assert service.by("admin", "POST", f"/v1/calibrations/{of_b}/promote").status_code == 200
    assert service.by("b", "POST", f"/v1/calibrations/{of_b}/retire").status_code == 200
