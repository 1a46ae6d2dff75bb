"""Texts of several fields together: what follows from others, what is given twice, and where a refusal points."""

from typing import Any

import pytest

from service.catalogue import Catalogue
from service.errors import Refused
from service.validation.questions import read_question

BODY: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "recipe": {"sequence_length": 8192},
    "cluster": {"gpu": "h100-sxm5-80gb", "gpus": 8},
}

OF_RECIPE = ("layout.sequence_length", "unknown_field", "did you mean recipe.sequence_length?")


def test_steps_and_accumulation_follow_from_the_batch(catalogue: Catalogue) -> None:
    recipe = {"seq": "4k", "mbs": "2", "gradient_accumulation_steps": 4, "max_steps": 1000, "lr": 1e-4}
    read = read_question({**BODY, "recipe": recipe, "tp": 2, "price": 2.5}, catalogue)
    assert (read.question.recipe.global_batch, read.question.recipe.training_tokens) == (32, 1000 * 32 * 4096)
    assert (read.question.layout.tensor, getattr(read.question.price, "usd_per_gpu_hour", None)) == (2, 2.5)
    assert read.assumptions == (
        "recipe.lr 0.0001 changes no number of this answer",
        "tp 2 -> layout.tensor = 2",
        'recipe.seq "4k" -> recipe.sequence_length = 4096',
        'recipe.mbs "2" -> recipe.micro_batch = 2',
        "recipe.gradient_accumulation_steps 4 -> recipe.global_batch = 32 = 4 x 2 x 4",
        "recipe.max_steps 1000 -> recipe.training_tokens = 131072000 = 1000 x 32 x 4096",
        "price 2.5 -> price.usd_per_gpu_hour = 2.5",
    )


def test_plain_json_has_no_notes(catalogue: Catalogue) -> None:
    assert read_question(BODY, catalogue).assumptions == ()


@pytest.mark.parametrize(
    ("change", "field", "code", "fix"),
    [
        ({"recipe": {"seq_len": 8192, "tensor": 2}}, "recipe.tensor", "unknown_field", "did you mean layout.tensor?"),
        ({"layout": {"sequence_length": 8192}}, *OF_RECIPE),
        ({"tensor": 2}, "tensor", "unknown_field", "did you mean layout.tensor?"),
        ({"layout": {"gpus": 8}}, "layout.gpus", "unknown_field", "did you mean cluster.gpus?"),
        ({"recipe": {"seq_len": 8192, "bf16": False}}, "recipe.bf16", "ambiguous", "give recipe.precision"),
        ({"layout": {"tp": 2, "tensor": 4}}, "layout.tp", "told_twice", "once"),
        ({"cluster": {"gpu": "8xH100", "gpus": 12}}, "cluster.gpus", "told_twice", "once"),
        ({"recipe": {"seq_len": 8192, "batch_size": 4}}, "recipe.batch_size", "unknown_field", "global_batch or micro"),
        ({"recipe": {"seq_len": "10k"}}, "recipe.sequence_length", "ambiguous", "10000, 10240"),
        ({"recipe": {"seq_len": "much"}}, "recipe.seq_len", "not_a_whole_number", "give a whole number"),
        ({"recipe": {"seq_len": 8192, "max_steps": 10}}, "recipe.max_steps", "unknown_field", "recipe.training_tokens"),
        ({"cluster": {"gpu": "h100", "gpus": "1,000"}}, "cluster.gpus", "not_a_whole_number", "without quotes"),
        ({"cluster": {"gpu": "h100", "gpus": "2.5"}}, "cluster.gpus", "not_a_whole_number", "without quotes"),
        (
            {"cluster": {"gpu": "h100", "gpus": 8, "inter_node_bytes_per_s": "50gb/s"}},
            *("cluster.inter_node_bytes_per_s", "ambiguous", "GB/s (bytes), Gbit/s (bits)"),
        ),
        (
            {"recipe": {"seq_len": 8192, "global_batch": 16, "gradient_accumulation_steps": 4}},
            *("recipe.gradient_accumulation_steps", "told_twice", "leave it or recipe.global_batch out"),
        ),
    ],
)
def test_what_is_unclear_is_refused_where_it_stands(
    change: dict[str, Any], field: str, code: str, fix: str, catalogue: Catalogue
) -> None:
    with pytest.raises(Refused) as refused:
        read_question({**BODY, **change}, catalogue)
    (problem,) = refused.value.problems
    assert (problem.field, problem.code) == (field, code)
    assert fix in problem.fix


def test_each_problem_is_named_once_beside_what_is_understood(catalogue: Catalogue) -> None:
    body = {**BODY, "recipe": {"seq": "8k", "stack": "FSDP", "mbs": 0}, "layout": {"tp": 2}}
    with pytest.raises(Refused) as refused:
        read_question(body, catalogue)
    problems = [(problem.field, problem.code) for problem in refused.value.problems]
    assert problems == [("recipe.stack.name", "ambiguous"), ("recipe.mbs", "out_of_range")]
