"""Changes add up to the whole difference, stored questions stand in for sent ones, and each end is refused in place."""

from copy import deepcopy
from itertools import pairwise
from typing import Any

import pytest

from service.api.openapi import request_bodies
from service.catalogue import Catalogue
from service.errors import Refused
from service.features.differences.differences import METRICS, difference
from service.features.estimates.answers import answer
from service.validation.questions import read_question
from service.validation.reading import to_wire
from tests.api.asking import Ask

BODY: dict[str, Any] = request_bodies("createDifference")["more-gpus"]["value"]
BEFORE, AFTER = BODY["before"], BODY["after"]


def difference_between(catalogue: Catalogue, before: Any, after: Any, **more: Any) -> dict[str, Any]:
    found = to_wire(difference({"before": before, "after": after, **more}, catalogue).answer)
    assert isinstance(found, dict)
    return found


def with_fields(question: dict[str, Any], **parts: Any) -> dict[str, Any]:
    changed = deepcopy(question)
    for part, fields in parts.items():
        changed[part] = {**changed[part], **fields} if isinstance(fields, dict) and part != "price" else fields
    return changed


@pytest.mark.parametrize(
    "after",
    [
        AFTER,
        with_fields(AFTER, model="llama-3.1-70b", layout={"tensor": 8, "pipeline": 2}, cluster={"gpu": "h200"}),
        with_fields(BEFORE, layout={"tensor": 4, "data": 16}),
        with_fields(BEFORE, cluster={"gpus": 8}, recipe={"recompute": "full", "precision": "fp8-tensorwise"}),
        with_fields(BEFORE, model="llama-2-7b"),
    ],
)
def test_changes_lead_from_one_answer_to_the_other_and_add_up(catalogue: Catalogue, after: dict[str, Any]) -> None:
    found = difference_between(catalogue, BEFORE, after)
    ends = [answer(read_question(one, catalogue), catalogue, advise=False) for one in (BEFORE, after)]
    assert [found["before"]["id"], found["after"]["id"]] == [end.id for end in ends]
    assert found["changes"][-1]["id"] == ends[-1].id
    for name in METRICS:
        values = [found["before"][name]["value"], *(change[name]["value"] for change in found["changes"])]
        assert [change["deltas"][name] for change in found["changes"]] == pytest.approx(
            [after - before for before, after in pairwise(values)], abs=0.01
        )
        total = sum(change["deltas"][name] for change in found["changes"])
        assert found["deltas"][name] == pytest.approx(total, rel=1e-9, abs=0.05)


def test_a_change_that_needs_another_is_made_with_it(catalogue: Catalogue) -> None:
    before = with_fields(BEFORE, layout={"tensor": 2, "data": 32})
    after = with_fields(BEFORE, layout={"tensor": 2, "data": 64}, cluster={"gpus": 128})
    (change,) = difference_between(catalogue, before, after)["changes"]
    assert [(one["field"], one["before"], one["after"]) for one in change["fields"]] == [
        ("cluster.gpus", 64, 128),
        ("layout.data", 32, 64),
    ]


def test_another_spelling_is_no_change(catalogue: Catalogue) -> None:
    spelled = with_fields(BEFORE, recipe={"sequence_length": "4k"}, cluster={"gpu": "H100 SXM"}, price="$2.50/h")
    assert difference_between(catalogue, BEFORE, spelled)["changes"] == []


def test_what_is_not_known_has_no_difference(catalogue: Catalogue) -> None:
    found = difference_between(catalogue, BEFORE, with_fields(BEFORE, price=None))
    (change,) = found["changes"]
    assert change["fields"] == [{"field": "price", "before": {"usd_per_gpu_hour": 2.5, "discount_fraction": 0.0,
        "preemptions_per_instance_hour": 0.0}, "after": None}]  # fmt: skip
    assert (change["deltas"]["cost_usd"], change["deltas"]["days"]) == (None, 0)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"before": BEFORE}, [("after", "not_an_object")]),
        ({"before": BEFORE, "after": AFTER, "order": 1}, [("order", "unknown_field")]),
        ({"before": {**BEFORE, "model": "no-such"}, "after": AFTER}, [("before.model", "unknown_model")]),
        (
            {"before": BEFORE, "after": with_fields(AFTER, layout={"tensor": 3})},
            [("after.layout", "replica_divides_cluster")],
        ),
        ({"before": BEFORE, "after": AFTER, "metrics": ["dayz"]}, [("metrics.0", "unknown_metric")]),
    ],
)
def test_each_end_is_refused_in_its_place(
    catalogue: Catalogue, body: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    with pytest.raises(Refused) as refused:
        difference(body, catalogue)
    found = [(problem.field, problem.code) for problem in refused.value.problems]
    assert found[: len(expected)] == expected


def test_tables_have_a_row_a_change_between_the_two_ends(catalogue: Catalogue) -> None:
    found = difference(BODY, catalogue)
    lines = found.csv().splitlines()
    assert lines[0].startswith("change,before,after,verdict,cost_usd,cost_usd.delta,days,days.delta")
    assert [line.partition(",")[0] for line in lines[1:]] == [
        "before",
        "recipe.sequence_length",
        "cluster.gpus",
        "price.usd_per_gpu_hour",
        "after",
    ]


def test_stored_questions_stand_in_for_sent_ones(kept: Ask) -> None:
    saved = kept("POST", "/v1/scenarios", json={"name": "before", "question": BEFORE}).json()
    sent = kept("POST", "/v1/differences", json=BODY).json()
    assert kept("POST", "/v1/differences", json={"before": saved["id"], "after": AFTER}).json() == sent
    by_estimate = kept("POST", "/v1/differences", json={"before": saved["estimate_id"], "after": AFTER}).json()
    assert (by_estimate["before"], by_estimate["after"]) == (sent["before"], sent["after"])
    assert by_estimate["deltas"] == sent["deltas"]
    absent = kept("POST", "/v1/differences", json={"before": f"scn_{'a' * 22}", "after": f"est_{'0' * 32}"})
    assert [(one["pointer"], one["code"]) for one in absent.json()["errors"]] == [
        ("/before", "not_found"),
        ("/after", "not_found"),
    ]


def test_markdown_shows_signs_and_units(kept: Ask) -> None:
    answered = kept("POST", "/v1/differences.md", json=BODY)
    assert answered.headers["content-type"].startswith("text/markdown")
    _, _, first, _, gpus, price, last = (line.strip("| ").split(" | ") for line in answered.text.splitlines())
    assert (first[0], last[0]) == ("before", "after")
    assert gpus[:3] == ["cluster.gpus", "64", "128"]
    assert gpus[5].startswith("-")
    assert gpus[5].endswith(" days")
    assert price[0] == "price.usd_per_gpu_hour"
    assert price[4].startswith("-$")
    assert price[5] == "0 days"
