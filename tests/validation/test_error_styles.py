"""A refusal shows its example in the form in which the question was asked, and is otherwise left as it is."""

import pytest

from service.catalogue import Catalogue
from service.errors import Refused
from service.validation.flat import COMMAND_LINE, QUERY, ErrorStyle, rephrased
from service.validation.questions import read_question


@pytest.mark.parametrize(
    ("dialect", "model", "cluster"),
    [
        (QUERY, "give model, e.g. model=llama-3.1-8b", "give cluster, e.g. gpu=h100-sxm5-80gb&gpus=8"),
        (
            COMMAND_LINE,
            "give model, e.g. --model llama-3.1-8b",
            "give cluster, e.g. --gpu h100-sxm5-80gb --gpus 8",
        ),
    ],
)
def test_what_is_missing_is_shown(dialect: ErrorStyle, model: str, cluster: str, catalogue: Catalogue) -> None:
    with pytest.raises(Refused) as refused:
        read_question({"recipe": {"sequence_length": 8}}, catalogue)
    assert [rephrased(problem, dialect).fix for problem in refused.value.problems] == [model, cluster]


def test_a_field_is_called_as_it_was_given(catalogue: Catalogue) -> None:
    body = {"model": "llama-3.1-8b", "cluster": "dgx-h100", "recipe": {"sequence_length": 8}}
    with pytest.raises(Refused) as refused:
        read_question({**body, "layout": {"zero_stage": 7}}, catalogue)
    (problem,) = refused.value.problems
    told = [rephrased(problem, dialect) for dialect in (QUERY, COMMAND_LINE)]
    assert [one.field for one in told] == ["zero_stage", "--zero-stage"]
    assert {(one.message, one.fix) for one in told} == {(problem.message, problem.fix)}
