"""A calibration holds in every answer from its promotion to its rollback, if it is better."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from service.errors import Refused
from service.features.calibrations import calibrations
from service.features.calibrations.fitting import fit_calibration, read_fit_data
from service.features.measurements.routes import MEASUREMENT_ID
from service.store.history import History, load_catalogue
from service.store.keys import UNRESTRICTED
from tests.api.asking import CHOSEN, PRODUCTS, RECORDS, Ask
from tests.fixtures import NewUrl, asking, one_by_one, running

QUESTION = {"model": "llama-3.1-8b", "recipe": {"sequence_length": 8192}, "cluster": {"gpu": "h100", "gpus": 8}}
OTHER = {**QUESTION, "cluster": {"gpu": "a100-sxm4-80gb", "gpus": 8}}
PATH = "/v1/calibrations"


class Service:
    """A service with a database of its own, into which the example came."""

    def __init__(self, ask: Ask, app: Any) -> None:
        self.ask, self.app = ask, app

    def post(self, path: str, body: Any = None, status: int = 200) -> Any:
        answer = self.ask("POST", path, json=body) if body is not None else self.ask("POST", path)
        assert answer.status_code == status, answer.text
        return answer.json()

    def get(self, path: str) -> Any:
        answer = self.ask("GET", path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def estimate(self, question: Any = QUESTION, query: str = "") -> bytes:
        answer = self.ask("POST", f"/v1/estimates{query}", json=question)
        assert answer.status_code == 200, answer.text
        return bytes(answer.content)

    def versions(self, question: Any = QUESTION) -> Any:
        return self.ask("POST", "/v1/estimates", json=question).json()["versions"]

    def fitted(self, **changed: Any) -> Any:
        return self.post(PATH, {**CHOSEN, **changed}, 201)


@pytest.fixture(scope="module")
def started(new_url: NewUrl) -> Iterator[Service]:
    with running(new_url()) as app, asking(app) as together:
        found = Service(one_by_one(together), app)
        found.post("/v1/measurements", RECORDS)
        yield found


@pytest.fixture
def service(started: Service) -> Iterator[Service]:
    """The service; what a test promotes is retired after it."""
    yield started
    for row in started.get(f"{PATH}?status=promoted")["items"]:
        started.post(f"{PATH}/{row['id']}/retire")


def another_run(factor: float, run: str, measured_at: str = "2026-11-23T09:00:00Z") -> dict[str, Any]:
    """The example once more, each product so many times as long."""
    body = deepcopy(RECORDS)
    body |= {"run": run, "measured_at": measured_at}
    for one in body["records"][0]["measurements"]:
        one |= {name: one[name] * factor for name in ("low", "value", "high")}
    return body


def test_promoting_and_rolling_back_restores_every_answer_byte_for_byte(service: Service) -> None:
    before, other = service.estimate(), service.estimate(OTHER)
    revision = service.versions()["catalogue"]
    draft = service.fitted()
    assert service.estimate() == before, "a draft changes nothing"
    held = service.post(f"{PATH}/{draft['id']}/promote")
    assert (held["status"], held["replaces"]) == ("promoted", None)
    assert service.versions()["calibration"] == draft["id"]
    assert service.estimate() != before
    assert service.versions(OTHER)["calibration"] is None
    assert service.estimate(query=f"?rev={revision}") == before
    back = service.post(f"{PATH}/{draft['id']}/rollback")
    assert back["status"] == "retired"
    assert service.estimate() == before
    assert service.estimate(OTHER) == other


def test_a_process_fits_what_this_one_does(service: Service) -> None:
    first = service.fitted()
    service.post(f"{PATH}/{first['id']}/promote")
    service.post("/v1/measurements", another_run(1.3, "again"))
    for chosen in ({"runs": ["again"]}, {}, {"measurements": [MEASUREMENT_ID]}):
        again = service.fitted(**chosen)
        engine, catalogue = service.app.state.engine, service.app.state.history.view(UNRESTRICTED.owner)
        here = fit_calibration(read_fit_data(engine, catalogue, UNRESTRICTED, {**CHOSEN, **chosen}), catalogue)
        assert (here.id, here.fitted_on) == (again["id"], tuple(again["fitted_on"]))
        assert (here.held_out_fraction, here.before_fraction) == (again["held_out_fraction"], again["before_fraction"])
    with pytest.raises(Refused, match="no measurement"):
        read_fit_data(engine, catalogue, UNRESTRICTED, {**CHOSEN, "runs": ["no such run"]})


def test_answers_under_a_calibration_are_worked_out_again_once_another_one_holds(service: Service) -> None:
    first = service.fitted()["id"]
    service.post(f"{PATH}/{first}/promote")
    answer, versions = service.estimate(), service.versions()
    checked = service.post("/v1/check", QUESTION)["id"]
    saved = service.post("/v1/scenarios", {"name": "a", "question": QUESTION}, 201)
    service.app.state.checked_questions.write()
    service.post(f"{PATH}/{first}/rollback")
    assert service.versions()["calibration"] is None
    assert service.estimate(query=f"?rev={versions['catalogue']}") == answer
    for estimate in (checked, saved["links"]["estimate"].rpartition("/")[2]):
        assert service.get(f"/v1/estimates/{estimate}")["versions"] == versions
    assert saved["versions"]["calibration"] == first


def test_a_rollback_brings_back_the_calibration_before(service: Service) -> None:
    first = service.fitted()["id"]
    service.post(f"{PATH}/{first}/promote")
    answer = service.estimate()
    service.post("/v1/measurements", another_run(1.5, "slow"))
    second = service.fitted(runs=["slow"], note="")
    assert second["id"] != first
    held = service.post(f"{PATH}/{second['id']}/promote")
    assert held["replaces"] == first
    assert service.get(f"{PATH}/{first}")["status"] == "retired"
    assert service.versions()["calibration"] == second["id"]
    service.post(f"{PATH}/{second['id']}/rollback")
    assert service.estimate() == answer
    assert service.get(f"{PATH}/{first}")["status"] == "promoted"


def test_what_was_compared_with_something_else_is_fitted_again_before_it_holds(service: Service) -> None:
    service.post("/v1/measurements", another_run(1.2, "one"))
    service.post("/v1/measurements", another_run(1.5, "two"))
    first, second = service.fitted(runs=["one"]), service.fitted(runs=["two"])
    assert (first["replaces"], second["replaces"]) == (None, None)
    service.post(f"{PATH}/{second['id']}/promote")
    before = service.estimate()
    refused = service.post(f"{PATH}/{first['id']}/promote", status=409)["errors"][0]
    assert (refused["code"], second["id"] in refused["message"]) == ("other_before", True)
    assert service.estimate() == before
    again = service.fitted(runs=["one"])
    assert (again["id"], again["replaces"]) == (first["id"], second["id"])
    assert again["before_fraction"] != first["before_fraction"]
    held = service.post(f"{PATH}/{first['id']}/promote")
    assert (held["status"], held["replaces"]) == ("promoted", second["id"])


def test_what_other_formulas_fitted_is_fitted_again_before_it_holds(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = service.fitted()
    monkeypatch.setattr(calibrations, "FORMULAS_VERSION", "1999.1.1")
    refused = service.post(f"{PATH}/{draft['id']}/promote", status=409)["errors"][0]
    assert refused["code"] == "other_formulas"


def test_retiring_what_holds_puts_published_rates_in_its_place(service: Service) -> None:
    plain = service.estimate()
    first = service.fitted()["id"]
    service.post(f"{PATH}/{first}/promote")
    assert service.post(f"{PATH}/{first}/retire")["status"] == "retired"
    assert service.estimate() == plain
    again = service.fitted(note="again")
    assert (again["id"], again["status"]) == (first, "retired"), "the same fit is the same calibration"


def test_a_calibration_that_is_no_better_is_refused_with_its_figures(service: Service) -> None:
    body = another_run(1.0, "as published")
    listed = service.get("/v1/measurements?run=node-7")["items"]
    predicted = {row["value"]: row["predicted_value"] for row in listed}
    for number, one in enumerate(body["records"][0]["measurements"]):
        value = predicted[one["value"]] * (1.04 if number % 2 else 0.96)
        one |= {"low": value, "value": value, "high": value}
    service.post("/v1/measurements", body)
    draft = service.fitted(runs=["as published"])
    assert draft["held_out_fraction"] >= draft["before_fraction"]
    before = service.estimate()
    refused = service.post(f"{PATH}/{draft['id']}/promote", status=409)
    assert refused["code"] == "conflict"
    assert refused["errors"][0]["code"] == "not_better"
    assert f"{100 * draft['held_out_fraction']:.1f} %" in refused["detail"]
    assert f"{100 * draft['before_fraction']:.1f} %" in refused["detail"]
    assert service.estimate() == before
    assert service.post(f"{PATH}/{draft['id']}/rollback", status=409)["errors"][0]["code"] == "not_promoted"


def test_what_nothing_can_be_held_out_of_is_refused(service: Service) -> None:
    draft = service.fitted(measurements=[MEASUREMENT_ID])
    assert draft["held_out_fraction"] is None
    assert service.post(f"{PATH}/{draft['id']}/promote", status=409)["errors"][0]["code"] == "not_judged"


def test_errors_stand_beside_those_of_before_by_probe(service: Service) -> None:
    found = service.fitted()
    (part,) = found["parts"]
    assert (part["probe"], part["left_out"], part["measurements"]) == ("gemm", "shape", len(PRODUCTS))
    assert part["held_out_fraction"] < 0.05 < part["before_fraction"]
    assert part["held_out_fraction"] == found["held_out_fraction"]
    assert len(found["fitted_on"]) == found["measurements"] == len(PRODUCTS)
    (row,) = service.get(f"{PATH}?id={found['id']}")["items"]
    assert row == {name: found[name] for name in row}


def test_newer_measurements_show_that_a_device_has_changed(service: Service) -> None:
    first = service.fitted()["id"]
    service.post(f"{PATH}/{first}/promote")
    others = service.get("/v1/measurements?limit=1000")["items"]
    elsewhere = [row["id"] for row in others if row["run"] != "node-7"]
    if elsewhere:
        service.post("/v1/measurements/quarantine", {"ids": elsewhere, "reason": "they belong to other tests"})
    assert service.get(f"{PATH}/{first}/drift")["measurements"] == 0
    service.post("/v1/measurements", another_run(1.01, "later", "2099-01-01T00:00:00Z"))
    steady = service.get(f"{PATH}/{first}/drift")
    assert (steady["measurements"], steady["is_drifting"]) == (len(PRODUCTS), False)
    service.post("/v1/measurements", another_run(1.4, "older", "2099-02-01T00:00:00Z"))
    drifted = service.get(f"{PATH}/{first}/drift")
    assert drifted["is_drifting"]
    assert drifted["parts"][0]["bias_fraction"] > 0.1
    newest = service.get("/v1/measurements?run=later")["items"][0]
    assert newest["calibration"] == first
    if elsewhere:
        service.post("/v1/measurements/release", {"ids": elsewhere})


def test_another_replica_takes_over_what_was_promoted(service: Service) -> None:
    engine = service.app.state.engine
    replica = History(engine, load_catalogue(engine))
    replica.refresh()
    before = replica.view("team").revision
    first = service.fitted()["id"]
    service.post(f"{PATH}/{first}/promote")
    replica.refresh()
    assert replica.view("team").calibrations["h100-sxm5-80gb"].calibration.id == first
    assert replica.view("team").revision == service.versions()["catalogue"]
    service.post(f"{PATH}/{first}/rollback")
    replica.refresh()
    assert replica.view("team").calibrations == {}
    assert replica.view("team").revision == before


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"gpu": None, "runs": [], "probes": []}, "required"),
        ({"gpu": "b200-sxm-180gb"}, "nothing_chosen"),
        ({"measurements": ["msr_none"]}, "not_found"),
        ({"probes": ["teapot"]}, "not_a_choice"),
        ({"since": "2099-01-01T00:00:00Z"}, "nothing_chosen"),
        ({"unknown": 1}, "unknown_field"),
    ],
)
def test_a_wrong_choice_is_refused(service: Service, changed: dict[str, Any], code: str) -> None:
    refused = service.post(PATH, {**CHOSEN, **changed}, 422)
    assert refused["errors"][0]["code"] == code


def test_what_is_in_quarantine_is_fitted_on_by_nobody(service: Service) -> None:
    service.post("/v1/measurements/quarantine", {"ids": [MEASUREMENT_ID], "reason": "x"})
    assert service.fitted()["measurements"] == len(PRODUCTS) - 1
    service.post("/v1/measurements/release", {"ids": [MEASUREMENT_ID]})
    assert service.fitted()["measurements"] == len(PRODUCTS)


def test_one_calibration_is_of_one_device(service: Service) -> None:
    other = another_run(1.0, "many")
    other["records"][0]["environment"]["device"] = "NVIDIA H200"
    other["records"][0]["environment"]["memory_bytes"] = 150e9
    service.post("/v1/measurements", other)
    service.post("/v1/measurements", another_run(1.1, "many"))
    body = {"runs": ["many"]}
    assert service.post(PATH, body, 422)["errors"][0]["code"] == "several_devices"


def test_a_gpu_that_answers_rest_on_cannot_be_deleted(service: Service) -> None:
    gpu = {
        "slug": "ours", "name": "Ours", "aliases": ["Our own GPU"], "memory_bytes": 80e9, "memory_bytes_per_s": 3e12,
        "bf16_flop_per_s": 1e15, "board_watts": 700,
    }  # fmt: skip
    service.post("/v1/gpus", gpu, 201)
    body = another_run(1.0, "ours")
    body["records"][0]["environment"] |= {"device": "ours", "memory_bytes": 80e9}
    service.post("/v1/measurements", body)
    draft = service.fitted(gpu="ours", runs=["ours"])
    service.post(f"{PATH}/{draft['id']}/promote")
    refused = service.ask("DELETE", "/v1/gpus/ours", headers={"if-match": "*"})
    assert refused.status_code == 409
    assert "1 calibration" in refused.json()["detail"]
    service.post(f"{PATH}/{draft['id']}/retire")
    assert service.ask("DELETE", "/v1/gpus/ours", headers={"if-match": "*"}).status_code == 204


@pytest.mark.parametrize("seconds", [5e-324, 1e-300, 1e-12, 1e-7, 3.2e7, 1e308], ids=str)
def test_a_value_that_no_device_has_counts_nowhere(service: Service, seconds: float) -> None:
    body = another_run(1.0, f"impossible {seconds}")
    for one in body["records"][0]["measurements"]:
        one.update(dict.fromkeys(("low", "value", "high"), seconds))
    kept = service.post("/v1/measurements", body)
    assert kept["quarantined"] == kept["measurements"] == len(PRODUCTS)
    service.post("/v1/measurements/release", {"ids": kept["ids"]})
    refused = service.post(PATH, {"runs": [body["run"]], "gpu": CHOSEN["gpu"]}, 422)
    assert refused["errors"][0]["code"] == "nothing_chosen"
    service.post("/v1/measurements/quarantine", {"ids": kept["ids"], "reason": "no device has it"})


def test_rates_above_the_peak_are_quarantined_and_those_below_are_not(service: Service) -> None:
    for factor, most in ((0.02, len(PRODUCTS)), (0.9, 0)):
        kept = service.post("/v1/measurements", another_run(factor, f"at {factor}"))
        assert kept["quarantined"] == most
        service.post("/v1/measurements/quarantine", {"ids": kept["ids"], "reason": "only for this test"})


def test_a_calibration_that_is_far_off_is_refused_however_far_off_the_one_before_was(service: Service) -> None:
    runs = []
    for number, factor in enumerate((3.0, 60.0)):
        body = another_run(factor, f"scattered {number}", f"2026-11-23T1{number}:00:00Z")
        runs.append((body["run"], service.post("/v1/measurements", body)["ids"]))
        service.post("/v1/measurements/release", {"ids": runs[-1][1]})
    draft = service.fitted(runs=[run for run, _ in runs])
    assert draft["held_out_fraction"] > 0.5
    refused = service.post(f"{PATH}/{draft['id']}/promote", None, 409)
    assert "too_far_off" in {problem["code"] for problem in refused["errors"]}
    for _, ids in runs:
        service.post("/v1/measurements/quarantine", {"ids": ids, "reason": "only for this test"})


def test_accuracy_counts_no_rate_above_the_peak_of_a_known_gpu_even_if_it_is_released(service: Service) -> None:
    kept = service.post("/v1/measurements", another_run(0.02, "too fast"))
    before = service.get("/v1/accuracy")["measured"]["own"]
    service.post("/v1/measurements/release", {"ids": kept["ids"]})
    assert service.get("/v1/accuracy")["measured"]["own"] == before
    service.post("/v1/measurements/quarantine", {"ids": kept["ids"], "reason": "only for this test"})
