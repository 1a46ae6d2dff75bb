"""What is computed beside the event loop: the same answers, while someone waits, and a fair share for each caller."""

import asyncio
import http.client
import json
import pickle
import socket
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import uvicorn

from service import errors
from service.api import compute, compute_process
from service.api.access.key_rules import KeyRequest, make_key
from service.api.compute import Compute
from service.api.metrics import Metrics
from service.api.server import configured
from service.app import create_app
from service.catalogue import shipped_catalogue
from service.errors import Problem, Refused, TraincostError
from service.evaluation.totals import totals_accuracy_json
from service.features.cells.tables import table_csv
from service.features.checks import check
from service.features.compare.compare import comparison_bytes, flat_comparison_bytes
from service.features.diagnose.diagnose import diagnosis_json
from service.features.diagnose.schemas import EXAMPLE
from service.features.estimates.answers import timeline_json
from service.features.plans import routes
from service.features.plans.search_plans import plans_json
from service.features.sensitivity.vary import sensitivity_bytes
from service.features.solve.solve import solution_json
from service.settings import Settings
from service.store.keys import Scope
from service.validation.reading import to_bytes
from tests.api import computations
from tests.api.asking import QUESTION, Ask, example_of
from tests.databases import prepared
from tests.waiting import wait_until

Send = Callable[..., http.client.HTTPConnection]


class Served:
    """A service that asks for keys, with two callers and one computing process."""

    def __init__(self, folder: Path, listener: socket.socket) -> None:
        engine = prepared(f"sqlite:///{folder}/traincost.db", shipped_catalogue())
        scopes: dict[str, Scope] = {"a": "write", "b": "write"}
        made = {name: make_key(engine, KeyRequest(name=name, scopes=[scope])) for name, scope in scopes.items()}
        self.keys = {name: one.presented for name, one in made.items()}
        self.app = create_app(Settings(), shipped_catalogue(), engine)
        self.app.state.compute = Compute(1, self.app.state.metrics)
        self.address: tuple[str, int] = listener.getsockname()
        self.server = uvicorn.Server(configured(self.app, Settings()))
        self.thread = Thread(target=self.server.run, kwargs={"sockets": [listener]})

    def send(self, caller: str, path: str, body: Any = None) -> http.client.HTTPConnection:
        """A connection on which something was asked; a text is a table."""
        connection = http.client.HTTPConnection(*self.address, timeout=60)
        media_type, content = ("text/csv", body) if isinstance(body, str) else ("application/json", json.dumps(body))
        headers = {"Authorization": f"Bearer {self.keys[caller]}", "Content-Type": media_type}
        connection.request("GET" if body is None else "POST", path, body and content, headers)
        return connection

    def asked(self, caller: str, path: str, body: Any = None) -> tuple[http.client.HTTPResponse, bytes]:
        """An answer, and its content."""
        with closing(self.send(caller, path, body)) as connection:
            answer = connection.getresponse()
            return answer, answer.read()

    def figure(self, name: str) -> float:
        """A figure as Prometheus reads it."""
        lines = self.app.state.metrics.exposed("", None).decode().splitlines()
        (found,) = [line for line in lines if line.startswith(f"{name} ")]
        return float(found.split()[-1])


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        found = Served(tmp_path_factory.mktemp("compute"), listener)
        found.thread.start()
        wait_until(lambda: found.server.started)
        yield found
        found.server.should_exit = True
        found.thread.join(20)
        found.app.state.engine.dispose()


@contextmanager
def searching(served: Served, caller: str = "a", *, running: float = 1.0) -> Iterator[http.client.HTTPConnection]:
    """A search that goes on until its caller hangs up."""
    wait_until(lambda: served.figure("traincost_compute_running") == running - 1)  # an earlier one has ended
    with closing(served.send(caller, "/v1/plans", QUESTION)) as connection:
        wait_until(lambda: served.figure("traincost_compute_running") == running)
        yield connection


def outcome(steps: Generator[Any, None, Any]) -> Any:
    """What a search leads to in this process."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value


SWEPT = [("model", "llama-3.1-8b"), ("sequence_length", "8192"), ("gpu", "h100"), ("gpus", "8;16;32;64")]
COMPARED = {
    "question": {name: part for name, part in QUESTION.items() if name != "cluster"},
    "clusters": [{"gpu": "h100", "gpus": 8}, {"gpu": "a100-sxm4-80gb", "gpus": 16}],
}
VARIED = {"question": QUESTION, "vary": {"recipe.micro_batch": [1, 2, 3]}}
SOLVED = {"question": QUESTION, "unknown": "recipe.micro_batch"}
DIAGNOSED = {**QUESTION, "message": EXAMPLE}
FLAT = [("model", "llama-3.1-8b"), ("sequence_length", "8192"), ("gpu", "h100"), ("gpus", "8"), ("gpus", "16")]
PATIENT = {
    **{name: part for name, part in QUESTION.items() if name != "layout"},
    "model": "llama-3.1-70b",
    "free_pool": [{"gpu": "h100-sxm5-80gb", "gpus": 64 * (n + 1)} for n in range(16)],
    "deadline_seconds": 60,
}
SMALL = example_of("createPlans")


@pytest.mark.parametrize(
    ("method", "path", "sent", "expected"),
    [
        ("POST", "/v1/plans", SMALL, lambda facts: outcome(plans_json(SMALL, facts))),
        ("POST", "/v1/solve", SOLVED, lambda facts: outcome(solution_json(SOLVED, facts))),
        ("POST", "/v1/compare", COMPARED, lambda facts: outcome(comparison_bytes(COMPARED, facts, "json"))),
        ("POST", "/v1/compare.csv", COMPARED, lambda facts: outcome(comparison_bytes(COMPARED, facts, "csv"))),
        ("POST", "/v1/compare.xlsx", COMPARED, lambda facts: outcome(comparison_bytes(COMPARED, facts, "xlsx"))),
        ("GET", "/v1/compare", FLAT, lambda facts: outcome(flat_comparison_bytes(FLAT, facts, "json"))),
        ("POST", "/v1/sensitivity", VARIED, lambda facts: outcome(sensitivity_bytes(VARIED, facts, "json"))),
        ("POST", "/v1/sensitivity.xlsx", VARIED, lambda facts: outcome(sensitivity_bytes(VARIED, facts, "xlsx"))),
        ("GET", "/v1/cell/table.csv", SWEPT, lambda facts: outcome(table_csv(SWEPT, facts)).encode()),
        ("POST", "/v1/diagnose", DIAGNOSED, lambda facts: diagnosis_json(DIAGNOSED, facts)),
        ("POST", "/v1/memory/timeline", QUESTION, lambda facts: timeline_json(QUESTION, facts)),
    ],
)
def test_answers_are_those_of_this_process(ask: Ask, method: str, path: str, sent: Any, expected: Any) -> None:
    given = {"params": sent} if method == "GET" else {"json": sent}
    answer = ask(method, path, **given)
    assert answer.status_code == 200
    assert answer.content == expected(shipped_catalogue())


def test_a_hang_up_ends_the_work(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "plans_json", computations.endless)
    before = served.figure('traincost_computations_total{outcome="cancelled"}')
    with searching(served):
        waiting = served.send("b", "/v1/solve", SOLVED)
        wait_until(lambda: served.figure("traincost_compute_waiting") == 1.0)
    with closing(waiting):
        assert waiting.getresponse().status == 200
    assert served.figure('traincost_computations_total{outcome="cancelled"}') == before + 1
    assert served.figure("traincost_compute_running") == 0.0


def test_who_hangs_up_while_waiting_leaves_the_queue(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "plans_json", computations.endless)
    with searching(served):
        with closing(served.send("b", "/v1/solve", SOLVED)):
            wait_until(lambda: served.figure("traincost_compute_waiting") == 1.0)
        wait_until(lambda: served.figure("traincost_compute_waiting") == 0.0)


def test_a_caller_with_too_many_is_refused_and_another_is_served(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "plans_json", computations.endless)
    monkeypatch.setattr(compute, "MOST_PER_CALLER", 1)
    monkeypatch.setattr(served.app.state.compute, "processes", 2)
    with searching(served):
        answer, content = served.asked("a", "/v1/solve", SOLVED)
        problem = json.loads(content)
        assert (answer.status, problem["code"]) == (429, "too_many_computations")
        assert 1 <= int(answer.headers["retry-after"]) <= compute.LONGEST_WAIT_SECONDS
        assert served.asked("b", "/v1/solve", SOLVED)[0].status == 200


def test_a_full_service_says_when_to_ask_again(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "plans_json", computations.endless)
    monkeypatch.setattr(compute, "MOST_WAITING", 0)
    with searching(served):
        answer, content = served.asked("b", "/v1/solve", SOLVED)
    assert (answer.status, json.loads(content)["code"]) == (503, "computing_full")
    assert int(answer.headers["retry-after"]) >= 1


def test_callers_take_turns(served: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(routes, "plans_json", computations.noted)
    asked = []
    for number, (caller, name) in enumerate((("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"))):
        until = {"until": "go"} if name == "a1" else {}
        asked.append(served.send(caller, "/v1/plans", {"folder": str(tmp_path), "name": name, **until}))
        wait_until(lambda waiting=number: served.figure("traincost_compute_waiting") == waiting)  # type: ignore[misc]
    wait_until((tmp_path / "begun").exists)
    (tmp_path / "go").touch()
    for connection in asked:
        with closing(connection):
            assert connection.getresponse().status == 200
    assert (tmp_path / "begun").read_text().split() == ["a1", "a2", "b1", "a3"]


def test_what_all_ask_is_computed_once(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute, "_computed_once", {})
    before = served.figure("traincost_computations_shared_total"), _done(served)
    together = [served.send(caller, "/v1/accuracy/totals") for caller in "ababab"]
    contents = []
    for connection in together:
        with closing(connection):
            contents.append(connection.getresponse().read())
    assert contents == [totals_accuracy_json()] * len(contents)
    assert _done(served) == before[1] + 1
    assert served.figure("traincost_computations_shared_total") <= before[0] + len(contents) - 1
    served.asked("a", "/v1/accuracy/totals")
    assert _done(served) == before[1] + 1


def _done(served: Served) -> float:
    return served.figure('traincost_computations_total{outcome="done"}')


def test_a_process_that_dies_is_replaced_and_its_work_done_again(
    served: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(routes, "plans_json", computations.dying_once)
    before = served.figure('traincost_compute_restarts_total{reason="lost"}')
    answer, content = served.asked("a", "/v1/plans", {"folder": str(tmp_path)})
    assert (answer.status, content) == (200, b"{}")
    assert served.figure('traincost_compute_restarts_total{reason="lost"}') == before + 1


@pytest.mark.parametrize("function", [computations.dying, computations.greedy])
def test_work_that_kills_its_process_is_answered_and_the_next_is_done(
    served: Served, monkeypatch: pytest.MonkeyPatch, function: Callable[..., Any]
) -> None:
    monkeypatch.setattr(routes, "plans_json", function)
    answer, content = served.asked("a", "/v1/plans", QUESTION)
    assert (answer.status, json.loads(content)["code"]) == (503, "computation_lost")
    assert int(answer.headers["retry-after"]) >= 1
    assert served.asked("a", "/v1/solve", SOLVED)[0].status == 200


def test_work_that_takes_too_long_is_refused(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "plans_json", computations.endless)
    monkeypatch.setattr(compute, "DEADLINE_SECONDS", 0.2)
    answer, content = served.asked("a", "/v1/plans", QUESTION)
    assert (answer.status, json.loads(content)["errors"][0]["code"]) == (422, "took_too_long")
    assert served.figure("traincost_compute_running") == 0.0


def test_a_patient_check_has_its_alternatives_from_a_process(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "INLINE_SECONDS", 0.0)  # of this process alone
    before = _done(served)
    answer, content = served.asked("a", "/v1/check", PATIENT)
    found = json.loads(content)
    assert (answer.status, found["verdict"], _done(served)) == (200, "deny", before + 1)
    assert found["alternatives"]
    assert content == to_bytes(check.check(PATIENT, shipped_catalogue()))


def test_an_impatient_check_is_answered_by_the_process_that_took_it(served: Served) -> None:
    before = _done(served)
    answer, _ = served.asked("a", "/v1/check", {**PATIENT, "deadline_seconds": 0.005})
    assert (answer.status, _done(served)) == (200, before)


def test_a_check_whose_caller_has_no_computation_left_is_answered(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "INLINE_SECONDS", 0.0)
    monkeypatch.setattr(routes, "plans_json", computations.endless)
    monkeypatch.setattr(compute, "MOST_PER_CALLER", 1)
    with searching(served):
        _answered_without_a_process(served, "a", 60)


def test_a_check_whose_deadline_passes_in_the_queue_is_answered(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "INLINE_SECONDS", 0.0)
    monkeypatch.setattr(routes, "plans_json", computations.endless)
    with searching(served):
        _answered_without_a_process(served, "b", 0.2)
        assert served.figure("traincost_compute_waiting") == 0.0


def _answered_without_a_process(served: Served, caller: str, deadline_seconds: float) -> None:
    answer, content = served.asked(caller, "/v1/check", {**PATIENT, "deadline_seconds": deadline_seconds})
    found = json.loads(content)
    assert (answer.status, found["verdict"]) == (200, "deny")
    assert found["warnings"] == [check.NO_TURN]


def test_a_check_that_is_left_ends(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "INLINE_SECONDS", 0.0)
    monkeypatch.setattr(routes, "plans_json", computations.endless)
    with searching(served):
        with closing(served.send("b", "/v1/check", PATIENT)):
            wait_until(lambda: served.figure("traincost_compute_waiting") == 1.0)
        wait_until(lambda: served.figure("traincost_compute_waiting") == 0.0)


def test_a_batch_that_is_left_ends(served: Served) -> None:
    questions = [{"kind": "check", "body": {**QUESTION, "recipe": {"sequence_length": 1024 + n}}} for n in range(999)]
    with closing(served.send("a", "/v1/batch", {"questions": questions})) as connection:
        assert connection.getresponse().read(1) == b"{"
    wait_until(lambda: served.figure("traincost_http_requests_in_flight") == 0.0)
    assert served.figure("traincost_compute_running") == 0.0


def _kinds(kind: type[TraincostError]) -> Iterator[type[TraincostError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _kinds(below)


@pytest.mark.parametrize("kind", [kind for kind in _kinds(TraincostError) if kind.__module__ == errors.__name__])
def test_every_error_crosses_to_another_process_as_it_is(kind: type[TraincostError]) -> None:
    problem = Problem(field="layout.tensor", code="a_rule", message="what is wrong", fix="what to do")
    error = kind(problem) if issubclass(kind, Refused) else kind("what is wrong")
    found = pickle.loads(pickle.dumps(error))  # noqa: S301 - of this test
    assert (type(found), str(found), vars(found)) == (kind, str(error), vars(error))


def test_a_body_is_sent_as_it_is() -> None:
    body = bytes(range(256)) * 256
    call, *bodies = map(bytes, compute_process.packed_call(len, (compute_process.Large(body), 1)))
    assert len(call) < 200
    assert pickle.loads(call, buffers=bodies) == (len, [body, 1])  # noqa: S301 - packed here


def test_packed_catalogues_that_are_kept_are_few_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def packed(catalogue: Any) -> bytes:
        made.append(catalogue)
        return bytes(40)

    monkeypatch.setattr(compute, "packed_catalogue", packed)
    monkeypatch.setattr(compute, "MOST_PACKED_BYTES", 100)
    found = Compute(1, Metrics())
    names: Any = {token: token for token in "abc"}

    async def ask() -> list[int]:
        return [len(await found._packed_catalogue(names, token)) for token in "abccab"]

    assert asyncio.run(ask()) == [40] * 6
    assert made == [*"abcab"]


def test_long_tables_are_read_and_written_in_a_process(served: Served) -> None:
    rows = [f"p{number},h100,all,on-demand,{1 + number / 1e4}" for number in range(1_500)]
    table = "\n".join(["provider,gpu,region,price_model,usd_per_gpu_hour", *rows])
    before = _done(served)
    report = json.loads(served.asked("b", "/v1/prices/import", table)[1])
    assert (report["is_written"], report["created"], report["failed"]) == (True, 1_500, 0)
    assert _done(served) == before + 1
    again = json.loads(served.asked("b", "/v1/prices/import?dry_run=true", table)[1])
    assert (again["is_written"], again["unchanged"]) == (False, 1_500)
    assert _done(served) == before + 2
    answer, written = served.asked("b", "/v1/prices.csv?owner=team")
    assert (answer.status, written.count(b"\n"), _done(served)) == (200, 1_501, before + 3)
    few, first = served.asked("b", "/v1/prices.csv?owner=team&limit=3")
    assert (few.status, _done(served)) == (200, before + 3)
    assert written.startswith(first)
    wrong, refusal = served.asked("b", "/v1/prices/import", f"{table}\np1,no such gpu,all,on-demand,1")
    assert (wrong.status, json.loads(refusal)["report"]["failed"]) == (422, 1)
