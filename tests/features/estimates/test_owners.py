"""A stored answer is read by those whose scenario, launch check or check it is of, and by admins."""

from collections.abc import Iterator

import pytest

from tests.api.asking import QUESTION
from tests.api.callers import Service, service_of_callers
from tests.features.launch_checks.test_routes import QUESTION as MEASURED
from tests.fixtures import NewUrl


@pytest.fixture(scope="module")
def service(new_url: NewUrl) -> Iterator[Service]:
    with service_of_callers(new_url()) as found:
        yield found


def question(tokens: int) -> dict[str, object]:
    return {**QUESTION, "recipe": {**QUESTION["recipe"], "training_tokens": tokens}}


def readers(service: Service, estimate_id: str) -> list[int]:
    """What A, a reader of A's, B and an admin are answered."""
    path = f"/v1/estimates/{estimate_id}"
    return [service.by(caller, "GET", path).status_code for caller in ("a", "reader", "b", "admin")]


def test_the_answer_of_a_scenario_is_its_owners(service: Service) -> None:
    body = {"name": "x", "question": question(10**9)}
    made = service.made("/v1/scenarios", body).json()
    estimate_id = made["links"]["estimate"].rpartition("/")[2]
    assert readers(service, estimate_id) == [200, 200, 404, 200]
    hidden = service.by("b", "GET", f"/v1/estimates/{estimate_id}").json()["detail"]
    assert hidden == service.by("b", "GET", f"/v1/estimates/est_{'0' * 32}").json()["detail"]
    again = service.made("/v1/scenarios", body, caller="b").json()
    assert again["links"]["estimate"].endswith(estimate_id)
    assert readers(service, estimate_id) == [200, 200, 200, 200]
    gone = service.by("a", "DELETE", made["links"]["self"], headers={"If-Match": "*"})
    assert gone.status_code == 204
    assert readers(service, estimate_id) == [200, 200, 200, 200]


def test_a_check_is_read_by_the_owner_who_asked_it(service: Service) -> None:
    asked = {
        "/v1/check": question(2 * 10**9),
        "/v1/batch": {"questions": [{"kind": "check", "body": question(3 * 10**9)}]},
    }
    for path, body in asked.items():
        told = service.made(path, body, 200).json()
        estimate_id = (told["answers"][0]["body"] if path == "/v1/batch" else told)["id"]
        for _ in range(2):
            assert readers(service, estimate_id) == [200, 200, 404, 200], path
            service.app.state.checked_questions.write()
        service.made(path, body, 200, caller="b")
        for _ in range(2):
            assert readers(service, estimate_id) == [200, 200, 200, 200], path
            service.app.state.checked_questions.write()


def test_a_launch_check_is_made_of_ones_own_answers_alone(service: Service) -> None:
    made = service.made("/v1/launch-checks", {"question": MEASURED, "probes": ["profile"]}, 202).json()
    assert readers(service, made["estimate_id"]) == [200, 200, 404, 200]
    body = {"estimate_id": made["estimate_id"], "probes": ["profile"]}
    unknown = {**body, "estimate_id": f"est_{'0' * 32}"}
    refused, of_nothing = (service.by("b", "POST", "/v1/launch-checks", json=one) for one in (body, unknown))
    assert (refused.status_code, refused.json()["errors"]) == (of_nothing.status_code, of_nothing.json()["errors"])
    assert refused.status_code in {404, 422}
    service.made("/v1/launch-checks", body, 202)
