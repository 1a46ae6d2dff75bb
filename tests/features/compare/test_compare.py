"""A comparison is so many estimates: each row is what its question is answered alone, sorted, or says why it is not."""

from dataclasses import fields
from typing import Any

import pytest

from service.answers.rows import MOST_ROWS
from service.catalogue import Catalogue
from service.catalogue.prices import PriceQuery
from service.errors import Problem, Refused
from service.features.compare.compare import FIRST, LAST, Comparison, compare, compare_steps
from service.features.estimates import answers
from service.features.estimates.answers import answer
from service.features.estimates.metrics import COLUMNS, metric_named
from service.validation.questions import read_question
from service.validation.reading import to_bytes, to_wire

Body = dict[str, Any]

JOB: Body = {
    "model": "llama-3.1-8b",
    "recipe": {"sequence_length": 8192, "global_batch": 512, "training_tokens": 2e11},
    "layout": {"tensor": 2},
}
H100 = {"gpu": "h100-sxm5-80gb", "gpus": 8}
A100 = {"gpu": "a100-sxm4-80gb", "gpus": 64}
RATE = {"usd_per_gpu_hour": 2.5}
AWS = {"provider": "aws", "region": "us-east-1", "price_model": "on-demand"}


def records(found: Comparison) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = to_wire(found.answer)["rows"]
    return rows


def compared(catalogue: Catalogue, clusters: list[Any], **said: Any) -> list[dict[str, Any]]:
    return records(compare({"question": JOB, "clusters": clusters, **said}, catalogue))


def test_a_row_is_what_its_question_is_answered_alone(catalogue: Catalogue) -> None:
    rows = compared(catalogue, [H100, "dgx-h100", {"preset": "dgx-h100", "nodes": 4}, A100], prices=[RATE, AWS, None])
    assert len(rows) == 12
    for row in rows:
        price = AWS if row["provider"] else RATE if row["usd_per_gpu_hour"] else None
        cluster = {"gpu": row["gpu"], "gpus": row["gpus"]} if row["cluster"] is None else {
            "preset": row["cluster"], "gpus": row["gpus"],
        }  # fmt: skip
        alone = answer(read_question({**JOB, "cluster": cluster, "price": price}, catalogue), catalogue)
        assert (row["id"], row["verdict"], row["warnings"]) == (alone.id, alone.verdict, list(alone.warnings))
        whole = to_wire(alone)
        for name, path in COLUMNS.items():
            part, _, leaf = path.partition(".")
            assert row[name] == whole[part][leaf], name
        assert list(row) == [*FIRST, *COLUMNS, *LAST]


def test_where_a_price_comes_from_is_told(catalogue: Catalogue) -> None:
    rows = compared(catalogue, [H100], prices=[RATE, AWS])
    told = {row["provider"]: row for row in rows}
    newest = catalogue.newest_price(PriceQuery(gpu=H100["gpu"], **AWS)).row  # type: ignore[arg-type]  # texts
    assert told["aws"]["usd_per_gpu_hour"] == newest.usd_per_gpu_hour
    assert told["aws"]["price_as_of"] == newest.as_of
    assert (told["aws"]["region"], told["aws"]["price_model"]) == ("us-east-1", "on-demand")
    assert told["aws"]["instance_type"] == newest.instance_type
    assert (told[None]["usd_per_gpu_hour"], told[None]["price_as_of"]) == (2.5, None)


def test_every_price_of_the_catalogue(catalogue: Catalogue) -> None:
    body = {"question": {**JOB, "cluster": H100}, "prices": [{"provider": "*"}]}
    rows = records(compare(body, catalogue))
    held = {(p.provider, p.region, p.price_model) for p in catalogue.prices if p.gpu == H100["gpu"]}
    assert {(row["provider"], row["region"], row["price_model"]) for row in rows} == held
    assert len(rows) == len(held) > 20
    assert all(row["status"] == 200 for row in rows)


@pytest.mark.parametrize("fields", [{"price_model": "spot"}, {"region": "us-east-1"}, {"instance_type": "*"}])
def test_some_prices_of_the_catalogue(catalogue: Catalogue, fields: dict[str, str]) -> None:
    rows = compared(catalogue, [H100], prices=[{"provider": "*", **fields}])
    named = ["provider", "region", "price_model", *(["instance_type"] if "instance_type" in fields else [])]
    wanted = {name: text for name, text in fields.items() if text != "*"}
    held = {
        tuple(getattr(price, name) for name in named)
        for price in catalogue.prices
        if price.gpu == H100["gpu"] and all(getattr(price, n) in (text, "all") for n, text in wanted.items())
    }
    assert {tuple(row[name] for name in named) for row in rows} == held
    assert held


def test_a_price_that_the_catalogue_lacks_is_a_row_that_says_so(catalogue: Catalogue) -> None:
    unpriced = next(gpu for gpu in catalogue.gpus if gpu not in {price.gpu for price in catalogue.prices})
    clusters = [H100, {"gpu": unpriced, "gpus": 8}]
    for price in (AWS, {"provider": "*"}, {"rate_card": "nobody"}):
        refused = [row for row in compared(catalogue, clusters, prices=[price]) if row["gpu"] == unpriced]
        assert [row["status"] for row in refused] == [422]
        assert refused[0]["errors"][0]["pointer"].startswith("/prices/0")
        assert refused[0]["reason"]
        assert "cost_usd" not in refused[0]


def test_what_a_gpu_cannot_do_is_a_row_that_says_so(catalogue: Catalogue) -> None:
    fp8 = {"name": "fp8", "recipe": {"precision": "fp8-tensorwise"}}
    rows = compared(catalogue, [{**fp8, "cluster": A100}, H100, {**fp8, "cluster": H100}], prices=[RATE])
    assert [(row["cluster"], row["status"]) for row in rows] == [("fp8", 200), (None, 200), ("fp8", 422)]
    refused = rows[-1]
    assert (refused["gpu"], refused["gpus"], refused["usd_per_gpu_hour"]) == (A100["gpu"], A100["gpus"], 2.5)
    assert [error["pointer"] for error in refused["errors"]] == ["/clusters/0/recipe/precision"]
    assert refused["errors"][0]["message"] in refused["reason"]
    assert (refused["verdict"], refused["id"]) == (None, None)
    everywhere = {**JOB, "recipe": {**JOB["recipe"], "precision": "fp8-tensorwise"}}
    rows = records(compare({"question": everywhere, "clusters": [A100, H100]}, catalogue))
    assert [row["status"] for row in rows] == [200, 422]
    assert rows[1]["errors"][0]["pointer"] == "/question/recipe/precision"


def test_a_cluster_has_a_name_a_layout_and_a_price_of_its_own(catalogue: Catalogue) -> None:
    own = {"name": "ours", "cluster": H100, "layout": {"tensor": 4}, "price": {"usd_per_gpu_hour": 1}}
    rows = compared(catalogue, [own, H100], prices=[RATE, AWS])
    assert (rows[0]["cluster"], rows[0]["usd_per_gpu_hour"]) == ("ours", 1)
    assert len(rows) == 3
    alone = read_question({**JOB, "layout": {"tensor": 4}, "cluster": H100, "price": own["price"]}, catalogue)
    assert rows[0]["id"] == answer(alone, catalogue).id
    (without,) = compared(catalogue, [{"cluster": H100, "layout": {"tensor": None}}])
    assert without["id"] == answer(read_question({**JOB, "layout": {}, "cluster": H100}, catalogue), catalogue).id


def test_zip_puts_each_cluster_beside_one_price(catalogue: Catalogue) -> None:
    own = {"cluster": A100, "price": {"usd_per_gpu_hour": 1}}
    rows = compared(catalogue, [H100, A100, own], prices=[RATE, AWS, None], pair="zip")
    assert {(row["gpu"], row["usd_per_gpu_hour"]) for row in rows} >= {(H100["gpu"], 2.5), (A100["gpu"], 1)}
    assert len(rows) == 3


def test_what_fits_stands_first_then_what_does_not_then_what_is_refused(catalogue: Catalogue) -> None:
    tight = {"gpu": "v100-sxm2-32gb", "gpus": 8}
    odd = {"name": "odd", "cluster": H100, "layout": {"tensor": 3}}
    for descending in (False, True):
        rows = compared(catalogue, [odd, tight, H100, A100], prices=[RATE], descending=descending)
        assert [row["verdict"] for row in rows] == ["fits", "fits", "out_of_memory", None]
        costs = [row["cost_usd"]["value"] for row in rows[:2]]
        assert costs == sorted(costs, reverse=descending)


def test_any_number_sorts_and_equal_rows_stand_as_they_were_asked_for(catalogue: Catalogue) -> None:
    clusters = [{"name": str(place), "cluster": H100} for place in range(5)]
    for descending in (False, True):
        rows = compared(catalogue, clusters, sort_by="memory.stages.0.idle_bytes", descending=descending)
        assert [row["cluster"] for row in rows] == list("01234")
    rows = compared(catalogue, [H100, A100], sort_by="usable_bytes", descending=True)
    assert [row["gpu"] for row in rows] == [A100["gpu"], H100["gpu"]]


@pytest.mark.parametrize(
    ("recipe", "price", "sort_by"),
    [
        (JOB["recipe"], RATE, "cost_usd"),
        (JOB["recipe"], None, "gpu_hours"),
        ({"sequence_length": 8192, "global_batch": 512}, RATE, "step_seconds"),
    ],
)
def test_unless_asked_rows_stand_by_what_is_known(
    catalogue: Catalogue, recipe: Body, price: Body | None, sort_by: str
) -> None:
    body = {"question": {**JOB, "recipe": recipe, "price": price}, "clusters": [A100, H100]}
    found = compare(body, catalogue)
    assert found.answer.sort_by == sort_by
    values = [row[sort_by]["value"] for row in records(found)]
    assert values == sorted(values)


def test_columns_are_any_numbers_by_the_names_of_cells(catalogue: Catalogue) -> None:
    names = ["FITS", "cost_usd.high", "parameters.total", "tensor"]
    staged = {"cluster": H100, "layout": {"pipeline": 2}}
    for row in compared(catalogue, [H100, staged], prices=[RATE], columns=names):
        assert list(row)[len(FIRST) : -len(LAST)] == ["fits", "cost_usd.high", "parameters.total", "tensor"]
        assert (row["fits"], row["parameters.total"], row["tensor"]) == (True, 8_030_261_248, 2)
        assert row["cost_usd.high"] > 0
    rows = compared(catalogue, [H100, staged], columns=["memory.stages.1.allocated_peak_bytes"], sort_by="gpus")
    assert [row["memory.stages.1.allocated_peak_bytes"] is None for row in rows] == [True, False]


def test_intervals_are_told_from_plain_numbers_without_an_answer(catalogue: Catalogue) -> None:
    (row,) = compared(catalogue, [H100], prices=[RATE])
    for name, path in COLUMNS.items():
        if row[name] is not None:
            assert metric_named(path).is_interval == isinstance(row[name], dict), name
    assert metric_named(COLUMNS["carbon_kg_co2e"]).is_interval


def test_others_get_their_turn_between_rows(catalogue: Catalogue) -> None:
    steps = compare_steps({"question": JOB, "clusters": [H100] * 50}, catalogue)
    assert sum(1 for _ in steps) >= 50


def test_no_row_tries_changes(catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(answers, "with_advice", fail)
    (row,) = compared(catalogue, [{"gpu": "v100-sxm2-32gb", "gpus": 8}])
    assert row["verdict"] == "out_of_memory"


def test_as_many_rows_as_may_be_are_answered_and_the_same_each_time(catalogue: Catalogue) -> None:
    prices = [{"usd_per_gpu_hour": price} for price in range(1, 251)]
    body = {"question": JOB, "clusters": [H100, A100, "dgx-h100", "dgx-h100"], "prices": prices}
    assert len(compare(body, catalogue).answer.rows) == MOST_ROWS
    first, second = (to_bytes(compare({**body, "prices": prices[:25]}, catalogue).answer) for _ in range(2))
    assert first == second


def test_the_record_of_a_row_holds_every_field(catalogue: Catalogue) -> None:
    found = compare({"question": JOB, "clusters": [H100]}, catalogue)
    names = {field.name for field in fields(found.answer.rows[0])} - {"numbers"}
    assert names == {*FIRST, *LAST} == to_wire(found.answer.rows[0]).keys() - COLUMNS.keys()


def refusal(body: Body, catalogue: Catalogue) -> list[tuple[str, str]]:
    with pytest.raises(Refused) as refused:
        compare(body, catalogue)
    problems: tuple[Problem, ...] = refused.value.problems
    assert all(problem.message and problem.fix for problem in problems)
    return [(problem.field, problem.code) for problem in problems]


def test_too_many_rows_are_refused(catalogue: Catalogue) -> None:
    clusters = [{"gpu": "h100", "gpus": gpus} for gpus in range(1, 502)]
    assert refusal({"question": JOB, "clusters": clusters, "prices": [RATE, AWS]}, catalogue) == [
        ("clusters", "too_many_rows")
    ]


def test_everything_wrong_is_told_at_once_and_once(catalogue: Catalogue) -> None:
    body = {
        "question": {**JOB, "model": "llama-9"},
        "clusters": ["dgx-h100", "dgx-h1000", {"cluster": H100, "layout": {"tensr": 1}}],
    }
    assert refusal(body, catalogue) == [
        ("question.model", "unknown_model"),
        ("clusters.1", "unknown_cluster"),
        ("clusters.2.layout.tensr", "unknown_field"),
    ]
