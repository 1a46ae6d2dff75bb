"""A sweep is so many estimates, each what its question is answered alone, in an order that arithmetic tells."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from service.catalogue import Catalogue
from service.errors import Refused
from service.estimator.constants import DeviceCalibration, MatrixCalibration, calibrated
from service.estimator.estimate import estimate
from service.features.estimates.answers import answer
from service.features.estimates.metrics import COLUMNS, Metric, metric_named, number_in, whole_of
from service.features.estimates.metrics import _paths as known_paths
from service.features.sweeps.rows import (
    LISTS,
    MOST_ITEMS,
    MOST_ROWS,
    Combination,
    Rows,
    Sweep,
    columns_of,
    reader_of,
    sweep_from_bytes,
    sweep_to_bytes,
)
from service.features.sweeps.schemas import read_sweep
from service.features.sweeps.sweeps import shards_of
from service.validation.questions import read_question

Body = dict[str, Any]
Row = dict[str, Any]

LAYOUTS = [{"tensor": 2}, {"tensor": 3}, {"tensor": 4, "sequence_parallel": False}]
RECIPES = [
    {"sequence_length": 8192, "global_batch": 512, "training_tokens": 2e11},
    {"sequence_length": 8192, "global_batch": 512, "training_tokens": 3e11, "checkpoint": {"asynchronous": False}},
    {"sequence_length": 4096, "global_batch": 512},
]
PRICES = [
    None,
    {"usd_per_gpu_hour": 2.5},
    {"provider": "aws", "region": "us-east-1", "price_model": "on-demand"},
    {"purchase_usd": 30000, "amortisation_years": 4, "utilisation_fraction": 0.7},
    {"amortisation_years": 4, "utilisation_fraction": 0.7},
]
CROSSED: Body = {
    "models": ["llama-3.1-8b", {"preset": "qwen3-0.6b", "num_hidden_layers": 12}],
    "clusters": ["dgx-h100", {"gpu": "a100-sxm4-80gb", "gpus": 64}, {"gpu": "mi355x", "gpus": 8}],
    "layouts": LAYOUTS,
    "recipes": RECIPES,
    "prices": PRICES,
}


FAST = MatrixCalibration(format="bf16", flop_per_s=2e15)


def rows(sweep: Sweep, first: int = 0, count: int | None = None) -> list[Row]:
    names = [column.name for column in columns_of(sweep)]
    return [
        dict(zip(names, cells, strict=True))
        for cells in Rows(sweep).of(first, sweep.axes.rows - first if count is None else count)
    ]


def answered(body: Body, catalogue: Catalogue) -> tuple[Body | None, str]:
    """The answer to one question alone, or why there is none."""
    try:
        return whole_of(answer(read_question(body, catalogue), catalogue, advise=False)), ""
    except Refused as refused:
        return None, refused.problems[0].message


@pytest.fixture(scope="module")
def crossed(catalogue: Catalogue) -> Sweep:
    return read_sweep(CROSSED, catalogue)


def test_every_row_is_what_its_question_is_answered_alone(crossed: Sweep, catalogue: Catalogue) -> None:
    found = rows(crossed)
    combined = product(*(enumerate(CROSSED[name]) for name in LISTS))
    refused = 0
    for row, items in zip(found, combined, strict=True):
        positions = tuple(row[f"{name.removesuffix('s')}_index"] for name in LISTS)
        assert positions == tuple(place for place, _ in items)
        body = {name.removesuffix("s"): item for name, (_, item) in zip(LISTS, items, strict=True)}
        whole, why = answered(body, catalogue)
        if whole is None:
            refused += 1
            assert (row["status"], row["verdict"]) == (422, None)
            assert row["reason"].startswith(why[:200])
            assert all(row[name] is None for name in COLUMNS)
            continue
        assert (row["status"], row["verdict"], row["reason"]) == (200, whole["verdict"], None)
        for name in COLUMNS:
            number = number_in(metric_named(COLUMNS[name]), whole)
            if isinstance(number, dict):
                assert [row[f"{name}.low"], row[name], row[f"{name}.high"]] == [
                    number[e] for e in ("low", "value", "high")
                ]
            else:
                assert row[name] == number
    assert 0 < refused < len(found)


def test_a_sweep_that_was_sent_is_the_same_sweep(crossed: Sweep) -> None:
    assert sweep_from_bytes(sweep_to_bytes(crossed)) == crossed


def test_what_was_measured_of_a_gpu_is_sent_with_it(crossed: Sweep) -> None:
    own = calibrated(crossed.axes.clusters[0].gpu, DeviceCalibration(id="cal_1", matrix=(FAST,)))
    clusters = (replace(crossed.axes.clusters[0], gpu=own), *crossed.axes.clusters[1:])
    sweep = replace(crossed, axes=replace(crossed.axes, clusters=clusters))
    assert sweep_from_bytes(sweep_to_bytes(sweep)) == sweep
    assert rows(sweep, 0, 1)[0]["step_seconds"] < rows(crossed, 0, 1)[0]["step_seconds"]


def test_rows_do_not_depend_on_those_before_them(crossed: Sweep) -> None:
    whole = rows(crossed)
    for first, count in ((0, 7), (7, 1), (8, 60), (len(whole) - 3, 3)):
        assert rows(crossed, first, count) == whole[first : first + count]


def test_every_combination_has_one_row(crossed: Sweep) -> None:
    axes = crossed.axes
    assert [axes.at(row) for row in range(axes.rows)] == [
        Combination(*positions) for positions in product(*map(range, axes.lengths))
    ]


@pytest.mark.parametrize(("count", "each"), [(1, 1), (25, 10), (30, 10), (5_000_000, 20_000)])
def test_every_row_is_in_one_shard(count: int, each: int) -> None:
    shards = shards_of(count, each)
    assert [shard.number for shard in shards] == list(range(len(shards)))
    assert [shard.first for shard in shards] == [0, *(shard.first + shard.rows for shard in shards)][: len(shards)]
    assert sum(shard.rows for shard in shards) == count
    assert max(shard.rows for shard in shards) <= each


def test_rows_given_one_by_one_are_those_rows(catalogue: Catalogue) -> None:
    questions = [
        {"model": CROSSED["models"][place % 2], "cluster": "dgx-h100", "recipe": RECIPES[place % 2 * 2]}
        for place in range(6)
    ]
    questions[4] = {**questions[4], "layout": LAYOUTS[2], "price": PRICES[1]}
    sweep = read_sweep({"rows": questions, "columns": ["gpu_hours", "tensor", "cost_usd"]}, catalogue)
    assert [len(getattr(sweep.axes, name)) for name in LISTS] == [2, 1, 2, 2, 2]
    found = rows(sweep)
    assert [row["row"] for row in found] == list(range(6))
    assert "model_index" not in found[0]
    for row, question in zip(found, questions, strict=True):
        whole = whole_of(answer(read_question(question, catalogue), catalogue, advise=False))
        for name in ("gpu_hours", "tensor", "cost_usd"):
            number = number_in(metric_named(name), whole)
            assert row[name] == (number["value"] if isinstance(number, dict) else number)


def test_every_number_of_an_answer_is_found_where_its_json_has_it(catalogue: Catalogue) -> None:
    question = {
        "model": "deepseek-v3",
        "cluster": {"preset": "dgx-h100", "nodes": 16, "grid_region": "gcp:us-central1"},
        "recipe": {
            "sequence_length": 4096, "global_batch": 512, "training_tokens": 1e12, "recompute": "full",
            "stages": [{"until_tokens": 1e10, "global_batch": 256}],
        },
        "layout": {"tensor": 4, "expert": 8},
        "price": {"usd_per_gpu_hour": 2, "storage": {"usd_per_gb_month": 0.02, "checkpoints": 3}},
    }  # fmt: skip
    asked = read_question(question, catalogue)
    found, whole = estimate(asked.question), whole_of(answer(asked, catalogue, advise=False))
    known = 0
    for path in known_paths():
        metric = Metric(tuple("0" if step == "*" else step for step in path))
        said = number_in(metric, whole)
        held = reader_of(metric)(found)
        if isinstance(said, dict):
            assert [said["low"], said["value"], said["high"]] == [held.low, held.value, held.high], path
        else:
            assert said == (None if held is None else pytest.approx(held, rel=0)), path
        known += said is not None
    assert known > 100
    assert reader_of(metric_named("parts.gemm.seconds"))(found) > 0
    assert reader_of(metric_named("parts.nothing.seconds"))(found) is None


WRONG: dict[str, tuple[Body, dict[str, str]]] = {
    "too many items": ({**CROSSED, "prices": [None] * (MOST_ITEMS + 1)}, {"prices": "not_a_list"}),
    "too many rows": (
        {**CROSSED, "prices": [{"usd_per_gpu_hour": 1 + n} for n in range(MOST_ITEMS - 1)], "recipes": RECIPES * 40},
        {"": "too_many_rows"},
    ),
    "too many plans": (
        {**CROSSED, "kind": "plan", "prices": [None] * (MOST_ROWS["plan"] // 50)},
        {"": "too_many_rows"},
    ),
}


@pytest.mark.parametrize(("body", "expected"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_named(body: Body, expected: dict[str, str], catalogue: Catalogue) -> None:
    with pytest.raises(Refused) as refused:
        read_sweep(body, catalogue)
    assert {problem.field: problem.code for problem in refused.value.problems} == expected
