"""What is wrong with a comparison is refused as a whole, each thing once and where it stands."""

from typing import Any

import pytest

from service.catalogue import Catalogue
from service.errors import Problem, Refused
from service.features.compare.compare import compare
from tests.features.compare.test_compare import AWS, H100, JOB, RATE

Body = dict[str, Any]


def refusal(body: Body, catalogue: Catalogue) -> list[tuple[str, str]]:
    with pytest.raises(Refused) as refused:
        compare(body, catalogue)
    problems: tuple[Problem, ...] = refused.value.problems
    assert all(problem.message and problem.fix for problem in problems)
    return [(problem.field, problem.code) for problem in problems]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"question": None}, [("question", "required")]),
        ({"question": "llama"}, [("question", "not_an_object")]),
        ({"question": {**JOB, "cluster": "dgx-h100"}}, [("question.cluster", "told_twice")]),
        ({"question": {**JOB, "price": RATE}, "prices": [RATE]}, [("question.price", "told_twice")]),
        ({"question": {**JOB, "modle": 1}}, [("question", "unknown_field")]),
        ({"question": {**JOB, "model": "llama-9"}}, [("question.model", "unknown_model")]),
        (
            {"question": {**JOB, "recipe": {"sequence_length": 0}}},
            [("question.recipe.sequence_length", "out_of_range")],
        ),
        ({"clusters": None}, [("clusters", "required")]),
        ({"clusters": []}, [("clusters", "not_a_list")]),
        ({"clusters": "dgx-h100"}, [("clusters", "not_a_list")]),
        ({"clusters": ["dgx-h1000"]}, [("clusters.0", "unknown_cluster")]),
        ({"clusters": [H100, {"gpu": "h100", "gpus": 0}]}, [("clusters.1.gpus", "out_of_range")]),
        ({"clusters": [{"gpu": "h100", "gpuz": 8, "gpus": 8}]}, [("clusters.0", "unknown_field")]),
        ({"clusters": [5]}, [("clusters.0", "not_an_object")]),
        ({"clusters": [None]}, [("clusters.0", "required")]),
        (
            {"clusters": [{"name": "a", "cluster": {"gpu": "h1000", "gpus": 8}}]},
            [("clusters.0.cluster.gpu", "unknown_gpu")],
        ),
        ({"clusters": [{"name": "", "cluster": H100}]}, [("clusters.0.name", "wrong_length")]),
        ({"clusters": [{"nmae": "a", "cluster": H100}]}, [("clusters.0", "unknown_field")]),
        ({"clusters": [{"name": "a"}]}, [("clusters.0.cluster", "required")]),
        ({"clusters": [{"cluster": H100, "layout": [1]}]}, [("clusters.0.layout", "not_an_object")]),
        ({"clusters": [{"cluster": H100, "layout": {"tensr": 1}}]}, [("clusters.0.layout", "unknown_field")]),
        (
            {"clusters": [{"cluster": H100, "recipe": {"micro_batch": 0}}]},
            [("clusters.0.recipe.micro_batch", "out_of_range")],
        ),
        (
            {"clusters": [{"cluster": H100, "price": {"usd": 1}}]},
            [("clusters.0.price", "unknown_field"), ("clusters.0.price.usd_per_gpu_hour", "required")],
        ),
        ({"prices": [{"provider": "*", "regoin": "x"}]}, [("prices.0", "unknown_field")]),
        ({"prices": [RATE, {"usd_per_gpu_hour": 0}]}, [("prices.1.usd_per_gpu_hour", "out_of_range")]),
        ({"prices": [3]}, [("prices.0", "not_an_object")]),
        ({"prices": [{"provider": "aws", "region": "*"}]}, [("prices.0.price_model", "required")]),
        ({"prices": {}}, [("prices", "not_a_list")]),
        ({"pair": "cross"}, [("pair", "not_a_choice")]),
        ({"pair": "zip", "prices": [RATE, RATE]}, [("prices", "lengths_differ")]),
        ({"pair": "zip"}, [("prices", "lengths_differ")]),
        ({"clusters": [{"cluster": H100, "price": RATE}], "prices": [AWS]}, [("prices", "told_twice")]),
        (
            {"clusters": [{"cluster": H100, "price": RATE}, H100], "prices": [AWS, AWS], "pair": "zip"},
            [("prices.0", "told_twice")],
        ),
        ({"sort_by": "cost"}, [("sort_by", "unknown_metric")]),
        ({"sort_by": "value"}, [("sort_by", "ambiguous_metric")]),
        ({"sort_by": 5}, [("sort_by", "not_text")]),
        ({"descending": "yes"}, [("descending", "not_true_or_false")]),
        ({"columns": []}, [("columns", "wrong_length")]),
        ({"columns": ["days", "speed"]}, [("columns.1", "unknown_metric")]),
        ({"columns": ["days", "days"]}, [("columns.1", "repeated")]),
        ({"columns": ["gpus"]}, [("columns.0", "repeated")]),
        ({"sort": "days"}, [("", "unknown_field")]),
        (
            {"clusters": [{"gpu": "h100", "gpus": n} for n in range(1, 502)], "prices": [RATE, AWS]},
            [("clusters", "too_many_rows")],
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_with_the_request_is_refused_where_it_stands(
    catalogue: Catalogue, change: Body, expected: list[tuple[str, str]]
) -> None:
    assert refusal({"question": JOB, "clusters": [H100], **change}, catalogue) == expected


def test_everything_wrong_is_told_at_once_and_once(catalogue: Catalogue) -> None:
    body = {
        "question": {**JOB, "model": "llama-9"},
        "clusters": ["dgx-h100", "dgx-h1000", {"cluster": H100, "layout": {"tensr": 1}}],
    }
    assert refusal(body, catalogue) == [
        ("question.model", "unknown_model"), ("clusters.1", "unknown_cluster"), ("clusters.2.layout", "unknown_field"),
    ]  # fmt: skip
