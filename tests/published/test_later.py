"""What a document states and no estimate can yet show is refused, never ignored."""

from typing import Any

import pytest

from service.catalogue import shipped_catalogue
from service.errors import Refused
from service.workflows.questions import read_question
from tests.published.cases import Case, cases


@pytest.mark.parametrize("case", cases("later", "fields"))
def test_what_comes_later_is_refused(case: Case) -> None:
    body: dict[str, dict[str, Any]] = {
        "model": {"preset": "deepseek-v3"},
        "recipe": {"sequence_length": 4096},
        "cluster": {"gpu": "h100-sxm5-80gb", "gpus": 2048},
        "price": {"usd_per_gpu_hour": 2.0},
    }
    catalogue = shipped_catalogue()
    read_question(body, catalogue)
    body[case.inputs["part"]][case.inputs["field"]] = case.inputs["value"]
    with pytest.raises(Refused) as refused:
        read_question(body, catalogue)
    (problem,) = refused.value.problems
    assert (problem.field, problem.code) == (case.expected, case.inputs["code"])
    assert case.inputs["field"] not in problem.fix
