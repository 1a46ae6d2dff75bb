"""The client against a running service: answers are typed, lists are read whole, changes start from a version."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import httpx
import pytest

from service.answers.checks import Check
from service.answers.estimates import Answer, FlopAnswer, GpuHoursAnswer, MemoryAnswer
from service.answers.plans import PlanCounts
from service.client import Client, Cluster, Layout, Price, Problem, Recipe, Retries, Unreachable
from service.client.client import MOST_BYTES, requests_of
from tests.api.asking import QUESTION

NOUNS: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "recipe": Recipe(sequence_length=8192, micro_batch=1, global_batch=128, training_tokens=15e12),
    "layout": Layout(tensor=2),
    "cluster": Cluster(gpu="h100-sxm5-80gb", gpus=8),
    "price": Price(usd_per_gpu_hour=2.5),
}
"""QUESTION in nouns."""

FLAT: dict[str, Any] = {"model": "llama-3.1-8b", "sequence_length": 8192, "gpu": "h100", "gpus": 8}


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[Client]:
    with Client(f"http://{address}") as opened:
        yield opened


def test_a_question_has_the_same_answer_in_dicts_and_in_nouns(client: Client) -> None:
    found = client.estimate(QUESTION, explain=True)
    assert found.parameters.total == 8_030_261_248
    assert found.totals is not None
    assert found.totals.cost_usd is not None
    assert found.totals.cost_usd.value == pytest.approx(2.5 * found.totals.gpu_hours.value)
    assert found.explain is not None
    assert found.explain["parameters.total"].value == found.parameters.total
    assert client.estimate(NOUNS) == replace(found, explain=None)
    assert client.estimate(found.resolved, rev=found.versions.catalogue).id == found.id


def test_each_part_is_that_of_the_whole(client: Client) -> None:
    whole = client.estimate(QUESTION)
    assert client.memory(QUESTION).memory == whole.memory
    assert client.flop(QUESTION).flop == whole.flop
    assert client.gpu_hours(QUESTION).totals == whole.totals
    assert client.timeline(QUESTION).usable_bytes == whole.memory.usable_bytes
    assert client.check(QUESTION).id == whole.id
    alone = {"model": "smollm3-3b", "recipe": {"sequence_length": 4096}, "cluster": {"gpu": "h100", "gpus": 1}}
    assert client.memory_by("nanotron-predict-memory", alone).peak_bytes > 0
    shown = client.cell("total_flop", **FLAT, training_tokens=1e9, sequence_parallel=False, price_model=None)
    assert (float(shown.text) > 1e19, shown.unit, shown.verdict) == (True, "FLOP", "out_of_memory")


def test_open_fields_are_answered(client: Client) -> None:
    question = {**NOUNS, "recipe": Recipe(sequence_length=8192)}
    solved = client.solve({"unknown": "recipe.micro_batch", "question": question})
    assert solved.next is not None
    assert solved.value != solved.next.value
    job = {name: NOUNS[name] for name in ("model", "recipe")}
    compared = client.compare({"question": job, "clusters": ["dgx-h100"]})
    assert [row.gpus for row in compared.rows] == [8]
    assert compared.rows[0].numbers["days"]["value"] > 0
    varied = client.sensitivity({"question": NOUNS, "vary": {"recipe.recompute": ["full"]}})
    assert [row.values["recipe.recompute"] for row in varied.rows] == ["none", "full"]
    changed = client.differences({"before": NOUNS, "after": {**NOUNS, "price": None}})
    assert [one.field for change in changed.changes for one in change.fields] == ["price"]


def test_a_search_tells_how_far_it_is(client: Client) -> None:
    told: list[PlanCounts] = []
    body = {**QUESTION, "layout": {"context": 1}, "top": 2}
    found = client.plans(body, on_progress=told.append)
    assert found == client.plans(body)
    assert [plan.rank for plan in found.plans] == [1, 2]
    assert 0 < told[0].generated <= found.counts.generated
    with pytest.raises(Problem, match="422 refused"):
        client.plans({**body, "top": 0}, on_progress=told.append)


def test_a_refusal_is_a_typed_problem(client: Client) -> None:
    with pytest.raises(Problem) as caught:
        client.memory({**NOUNS, "layout": Layout(tensor=3)})
    found = caught.value
    assert (found.status, found.code, bool(found.request_id)) == (422, "refused", True)
    assert [finding.pointer for finding in found.errors] == ["/layout"]
    with pytest.raises(Problem, match="404 unknown_metric"):
        client.cell("no_such_number", **FLAT)


def test_a_batch_of_any_length_is_answered_in_order(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.client.client.MOST_QUESTIONS", 3)
    sent: list[int] = []

    class Counting(httpx.HTTPTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            sent.append(request.content.count(b'"kind"'))
            return super().handle_request(request)

    with Client(f"http://{address}", transport=Counting()) as client:
        answers = client.batch(
            (kind, {**NOUNS, "layout": Layout(tensor=tensor)})
            for tensor in (1, 2, 3)
            for kind in ("estimate", "memory", "flops", "gpu-hours", "check")
        )
        first = list(islice(answers, 4))
        assert sent == [3, 3]
        found = [*first, *answers]
    assert sent == [3] * 5
    kinds = [Answer, MemoryAnswer, FlopAnswer, GpuHoursAnswer, Check]
    assert [type(answer) for answer in found] == [*kinds, *kinds, *[Problem] * 5]
    assert isinstance(found[5], Answer)
    assert found[5].resolved.layout.tensor == 2


def test_a_batch_is_cut_by_its_bytes_too() -> None:
    long = {"model": {"hf_config": {"name": "x" * (MOST_BYTES // 3)}}}
    packed = [(kinds, len(body)) for kinds, body in requests_of([("memory", long)] * 5)]
    assert [len(kinds) for kinds, _ in packed] == [2, 2, 1]
    assert all(size < 2 * MOST_BYTES for _, size in packed)
    assert list(requests_of([])) == []


def test_files_are_written_and_read_back(client: Client) -> None:
    assert "torchtitan" in {target.target for target in client.export_targets()}
    question = {**QUESTION, "layout": {"zero_stage": 2}, "recipe": {"sequence_length": 8192, "stack": "deepspeed"}}
    written = client.export("deepspeed", question)
    assert client.import_file("deepspeed", written.content).layout["zero_stage"] == 2
    assert "train.py --lr 1e-4" in client.export("sbatch", NOUNS, command="train.py --lr 1e-4").content


def test_lists_are_read_page_by_page(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = list(client.gpus.rows())
    monkeypatch.setattr("service.client.lists.PAGE_ROWS", 7)
    paged = list(client.gpus.rows())
    assert len(paged) > 20
    assert paged == whole
    models = ["spot", "on-demand"]
    chosen = list(client.prices.rows(gpu="h100-sxm5-80gb", price_model=models, sort=["-usd_per_gpu_hour"]))
    rates = [row["usd_per_gpu_hour"] for row in chosen]
    assert rates == sorted(rates, reverse=True)
    assert {row["price_model"] for row in chosen} == {"spot", "on-demand"}
    assert client.gpus.read("H100").row["slug"] == "h100-sxm5-80gb"
    assert client.choices()["recipe.precision"][0]["source"]


def test_a_scenario_is_kept_and_changed_from_its_version(client: Client) -> None:
    made = client.scenarios.create({"name": "nightly", "question": NOUNS})
    key = made.row["id"]
    assert client.scenarios.read(key) == made
    assert client.stored_estimate(made.row["estimate_id"]).id == made.row["estimate_id"]
    changed = client.scenarios.update(key, {"note": "smaller"}, made.etag)
    assert (changed.row["revision"], changed.row["note"]) == (2, "smaller")
    with pytest.raises(Problem, match="412 stale"):
        client.scenarios.update(key, {"note": "larger"}, made.etag)
    assert client.scenarios.read(key, revision=1).row["note"] == ""
    replaced = client.scenarios.replace(key, {"name": "daily", "question": QUESTION}, changed.etag)
    assert [row["name"] for row in client.scenarios.rows(name="daily")] == ["daily"]
    client.scenarios.delete(key, replaced.etag)
    with pytest.raises(Problem, match="404 not_found"):
        client.scenarios.read(key)


def test_a_row_of_one_s_own(client: Client) -> None:
    own = {"slug": "ours", "gpu": "h100-sxm5-80gb", "gpus": 16}
    made = client.clusters.create(own)
    assert client.memory({**NOUNS, "cluster": "ours"}).resolved.cluster.gpus == 16
    client.clusters.delete("ours", made.etag)
    assert [row["owner"] for row in islice(client.revisions.rows(), 2)]


def test_threads_may_share_one(client: Client) -> None:
    found: list[Answer] = []
    threads = [threading.Thread(target=lambda: found.append(client.estimate(QUESTION))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [found[0]] * 4


def test_a_service_that_is_not_there() -> None:
    with (
        Client("http://127.0.0.1:9", retries=Retries(most=1, sleep=lambda _: None)) as nobody,
        pytest.raises(Unreachable, match=r"127\.0\.0\.1:9"),
    ):
        nobody.choices()


def test_a_scenario_is_shared_by_links_that_open_without_a_key(client: Client) -> None:
    place = client.scenarios.create({"name": "shared", "question": QUESTION}).row["links"]["self"]
    found = client.share(place.rpartition("/")[2], days=2)
    assert httpx.get(found.links.scenario).json()["name"] == "shared"
    assert httpx.get(f"{found.links.scenario}x").status_code == 401
    scenario_id = place.rpartition("/")[2]
    assert [(one.id, one.status) for one in client.shares(scenario_id)] == [(found.id, "active")]
    client.revoke_share(scenario_id, found.id)
    assert [one.status for one in client.shares(scenario_id)] == ["revoked"]
    assert httpx.get(found.links.scenario).status_code == 401
