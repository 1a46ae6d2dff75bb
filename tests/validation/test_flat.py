"""A flat question is the nested one, strictly typed, and a refusal shows its example in the form of the question."""

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.catalogue import Catalogue
from service.errors import Refused
from service.estimator.question import Checkpointing, Egress, Method, Recompute, Software, Storage, Versions
from service.validation.flat import (
    ALIASES,
    COMMAND_LINE,
    PRESETS,
    QUERY,
    DecimalMark,
    ErrorStyle,
    FlatField,
    body_of_flat,
    flat_fields,
    flat_name,
    rephrased,
)
from service.validation.question_parts import QUESTION_SPECS
from service.validation.questions import read_question

PLACES = list(dict.fromkeys((part, field.name) for part, noun in QUESTION_SPECS for field in fields(noun)))
FIELD_NAMES = [name for _, name in PLACES]
EXAMPLE: dict[str, tuple[str, Any]] = {
    "integer": ("8", 8),
    "integers": ("512:300", {"tokens": 512, "count": 300}),
    "numbers": ("9.8:1e1", {"predicted_seconds": 9.8, "measured_seconds": 10.0}),
    "number": ("2.5", 2.5),
    "truth": ("true", True),
    "text": ("a-name", "a-name"),
}


def codes(*parameters: tuple[str, str], decimal_mark: DecimalMark = ".") -> list[tuple[str, str]]:
    with pytest.raises(Refused) as refused:
        body_of_flat(parameters, decimal_mark=decimal_mark)
    return [(problem.field, problem.code) for problem in refused.value.problems]


def test_field_names_are_unique_over_the_parts_of_a_question() -> None:
    every = [*FIELD_NAMES, *PRESETS, *ALIASES]
    assert len(set(every)) == len(every)


def test_every_field_of_every_noun_is_a_parameter() -> None:
    inner = [f"recompute_{field.name}" for field in fields(Recompute) if field.name != "granularity"]
    inner += [f"method_{field.name}" for field in fields(Method) if field.name != "name"]
    inner += [f"stack_{field.name}" for field in fields(Software) if field.name not in {"name", "versions"}]
    inner += [f"stack_versions_{field.name}" for field in fields(Versions)]
    nouns = {"checkpoint": Checkpointing, "storage": Storage, "egress": Egress}
    inner += [f"{name}_{field.name}" for name, noun in nouns.items() for field in fields(noun)]
    assert list(flat_fields()) == list(dict.fromkeys([*PRESETS, *flat_fields()]))
    assert set(flat_fields()) == {*PRESETS, *FIELD_NAMES, *inner} - nouns.keys()
    assert all(field.meaning for field in flat_fields().values())


def test_aliases_stand_for_fields() -> None:
    assert set(ALIASES.values()) <= set(FIELD_NAMES)


@pytest.mark.parametrize("field", flat_fields().values(), ids=lambda field: field.name)
def test_every_parameter_lands_at_its_path(field: FlatField) -> None:
    text, value = EXAMPLE[field.form]
    beside = [("cluster", "dgx-h100")] if field.name == "nodes" else []
    place: Any = body_of_flat([(field.name, text), *beside])
    for step in field.path:
        place = place[step] if isinstance(place, dict) else place
    if field.members:
        value = dict(zip(field.members, value.values(), strict=False))
    assert place == ([value] if field.is_list else value)
    assert flat_name(".".join(field.path)) == field.name


def test_a_whole_question() -> None:
    flat = [
        ("model", "llama-3.1-70b"), ("num_hidden_layers", "12"), ("seq", "8192"), ("training_tokens", "15e12"),
        ("tp", "8"), ("stage_layers", "3"), ("stage_layers", "4;5"), ("cluster", "dgx-h100"), ("nodes", "16"),
        ("recompute", "full"), ("recompute_layers", "2"), ("sequence_parallel", "TRUE"), ("usd_per_gpu_hour", "2.5"),
    ]  # fmt: skip
    assert body_of_flat(flat) == {
        "model": {"preset": "llama-3.1-70b", "num_hidden_layers": 12},
        "recipe": {
            "sequence_length": 8192,
            "training_tokens": 15e12,
            "recompute": {"granularity": "full", "layers": 2},
        },
        "layout": {"tensor": 8, "stage_layers": [3, 4, 5], "sequence_parallel": True},
        "cluster": {"preset": "dgx-h100", "nodes": 16},
        "price": {"usd_per_gpu_hour": 2.5},
    }


def test_documents_and_methods() -> None:
    flat = [
        ("seq", "4096"), ("document_lengths", "512:300;2048:1e2"), ("document_lengths", "4096:7"),
        ("batching", "padded"), ("method", "lora"), ("method_rank", "16"), ("method_targets", "q_proj;k_proj"),
    ]  # fmt: skip
    bars = [{"tokens": tokens, "count": count} for tokens, count in ((512, 300), (2048, 100), (4096, 7))]
    method = {"name": "lora", "rank": 16, "targets": ["q_proj", "k_proj"]}
    recipe = {"sequence_length": 4096, "document_lengths": bars, "batching": "padded", "method": method}
    assert body_of_flat(flat) == {"recipe": recipe}
    assert body_of_flat([("method", "lora")]) == {"recipe": {"method": "lora"}}


@pytest.mark.parametrize("text", ["512", "512:", ":300", "512:300:2", "a:b", "512:1.5", "1e50:1"])
def test_a_document_length_is_two_whole_numbers(text: str) -> None:
    assert codes(("document_lengths", text)) == [("document_lengths", "not_whole_numbers")]


@pytest.mark.parametrize("text", ["9.8", "9.8:", ":10.3", "9.8:10.3:2", "a:b", "nan:1"])
def test_a_measured_step_is_two_numbers(text: str) -> None:
    assert codes(("measured_steps", text)) == [("measured_steps", "not_numbers")]


def test_a_stage_of_a_run_tells_what_changes() -> None:
    flat = [("seq", "4096"), ("stages", "252e6:1024;469e9::8192"), ("stages", "1e12:3072::15360")]
    stages = [
        {"until_tokens": 252_000_000, "global_batch": 1024},
        {"until_tokens": 469_000_000_000, "sequence_length": 8192},
        {"until_tokens": 10**12, "global_batch": 3072, "final_global_batch": 15360},
    ]
    assert body_of_flat(flat) == {"recipe": {"sequence_length": 4096, "stages": stages}}


@pytest.mark.parametrize("text", ["", ":8", "1e9:1:2:3:4:5", "1e9:x", "1e9:1.5", "1e9::x"])
def test_a_stage_of_a_run_begins_with_where_it_ends(text: str) -> None:
    assert codes(("stages", text))[0] == ("stages", "not_whole_numbers")


def test_a_name_alone_stays_a_name() -> None:
    body = body_of_flat([("model", "gpt2-124m"), ("cluster", "dgx-h100"), ("recompute", "selective"), ("seq", "1024")])
    assert body["model"] == "gpt2-124m"
    assert body["cluster"] == "dgx-h100"
    assert body["recipe"]["recompute"] == "selective"


def test_a_missing_sequence_length_is_asked_for_by_its_own_name() -> None:
    assert body_of_flat([("model", "gpt2-124m")]) == {"model": "gpt2-124m", "recipe": {}}


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("gpus", "1024", 1024), ("gpus", "1e3", 1000), ("gpus", "8.0", 8), ("global_batch_tokens", "4E 6", 4_000_000),
        ("training_tokens", "15e12", 15e12), ("training_tokens", "1.5E+13", 15e12), ("usd_per_gpu_hour", ".5", 0.5),
        ("usd_per_gpu_hour", "-1", -1.0), ("gated_mlp", "0", False), ("gated_mlp", "True", True),
    ],
)  # fmt: skip
def test_values_are_read_by_their_fields_type(name: str, text: str, value: object) -> None:
    part, key = flat_fields()[name].path
    read = body_of_flat([(name, text)])[part][key]
    assert read == value
    assert type(read) is type(value)


def test_a_decimal_comma_is_read_only_where_it_is_announced() -> None:
    assert body_of_flat([("usd_per_gpu_hour", "1,5")], decimal_mark=",")["price"] == {"usd_per_gpu_hour": 1.5}
    assert codes(("usd_per_gpu_hour", "1.5"), decimal_mark=",") == [("usd_per_gpu_hour", "decimal_point")]


def test_a_field_given_twice_is_refused_under_any_of_its_names() -> None:
    assert codes(("tp", "2"), ("tensor", "2")) == [("tensor", "repeated")]


def test_an_unknown_parameter_names_the_nearest_and_itself() -> None:
    with pytest.raises(Refused) as refused:
        body_of_flat([("sequence_lenght", "8192")])
    (problem,) = refused.value.problems
    assert problem.code == "unknown_field"
    assert problem.fix == "did you mean sequence_length?"
    assert (problem.field, '"sequence_lenght"' in problem.message) == ("sequence_lenght", True)


def test_nodes_need_a_cluster_or_a_gpu() -> None:
    assert codes(("nodes", "2")) == [("nodes", "nodes_without_cluster")]
    assert body_of_flat([("gpu", "h100"), ("nodes", "2")])["cluster"] == {"gpu": "h100", "nodes": 2}


def test_all_problems_are_named_at_once() -> None:
    assert codes(("tp", "x"), ("gpus", "1,5"), ("seq", "")) == [
        ("tensor", "not_a_whole_number"), ("gpus", "decimal_comma"), ("sequence_length", "empty"),
    ]  # fmt: skip


def test_a_flood_of_parameters_is_refused_with_few_words() -> None:
    assert codes(*[("stage_layers", "1")] * 5_000) == [("", "too_many")]
    assert len(codes(*[(f"unknown_{place}", "1") for place in range(4_000)])) == 20


@given(st.integers(-(10**18), 10**18))
def test_whole_numbers_round_trip(number: int) -> None:
    assert body_of_flat([("gpus", str(number))])["cluster"]["gpus"] == number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_round_trip_in_either_locale(number: float) -> None:
    text = repr(number)
    assert body_of_flat([("training_tokens", text)])["recipe"]["training_tokens"] == number
    with_comma = body_of_flat([("training_tokens", text.replace(".", ","))], decimal_mark=",")
    assert with_comma["recipe"]["training_tokens"] == number


@given(st.text(max_size=60))
def test_no_text_breaks_the_reading_of_numbers(text: str) -> None:
    try:
        value = body_of_flat([("gpus", text)])["cluster"]["gpus"]
    except Refused:
        return
    assert isinstance(value, int)


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
