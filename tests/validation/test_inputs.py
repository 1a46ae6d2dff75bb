"""What launchers, model cards, consoles and posts print is understood or refused with the right suggestion."""

import csv
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from service.catalogue import Catalogue
from service.catalogue.shipped import csv_rows
from service.errors import Refused
from service.estimator.question import Question
from service.validation.flat import body_of_flat
from service.validation.other_names import STEPS, other_names, plain
from service.validation.questions import ParsedQuestion, read_question
from tests.commands import Commands

BODY: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "recipe": {"sequence_length": 8192},
    "layout": {},
    "cluster": {"gpu": "h100-sxm5-80gb", "gpus": 8},
}
INPUTS = list(csv.DictReader(Path(__file__).with_name("inputs.csv").read_text(encoding="utf-8").splitlines()))
"""Texts with their sources, and the field and value that each means, or a part of the refusal's fix.

A source with an address was read there; one without names the tools that print it.
"""
ADDRESSED = ("https://", "@")
LEAST_ADDRESSED = 200
LEAST_UNDERSTOOD = 0.9
BATCH = 64
"""Sequences of a step where a text counts steps."""
SIZES = {"cluster.nodes", "cluster.gpus"}
SIZED = "gpu_size"
"""The field of a GPU whose text also says how many."""


def fields_of(row: Mapping[str, str]) -> dict[str, dict[str, str] | str]:
    """The parts of a question in which a row's text stands, with what it replaces left out."""
    part, name, text = row["part"], row["name"], row["text"]
    if not name:
        return {part: text}
    meant = other_names().get(plain(name), (f"{part}.{plain(name)}",))
    replaced = {*meant, *({"cluster.gpus"} & SIZES if SIZES & {*meant} else ())}
    left = {key: value for key, value in BODY[part].items() if f"{part}.{key}" not in replaced} if part in BODY else {}
    if meant == (STEPS,):
        left["global_batch"] = BATCH
    if name == SIZED:
        return {part: {"gpu": text}}
    return {part: {**left, name: text}}


def body_of(row: Mapping[str, str]) -> dict[str, Any]:
    return {**BODY, **fields_of(row)}


def parameters_of(row: Mapping[str, str]) -> list[tuple[str, str]]:
    body = body_of(row)
    return [
        (name, str(value))
        for part, fields in body.items()
        for name, value in (fields.items() if isinstance(fields, dict) else [(part, fields)])
    ]


def value_at(question: Question, path: str) -> Any:
    value: Any = asdict(question)
    for step in path.split("."):
        value = value[step]
    return value.get("name", value.get("granularity")) if isinstance(value, dict) else value


def check(row: Mapping[str, str], read: ParsedQuestion, model: Any) -> None:
    if not row["field"]:
        assert any("changes no number" in note for note in read.assumptions)
    elif row["field"] == "model":
        assert read.question.model == model
    else:
        value = value_at(read.question, row["field"])
        short = {"bf16": "bf16-mixed", "fp16": "fp16-mixed"}.get(str(value), value)
        wanted = row["value"]
        assert short == (wanted if isinstance(short, str) else json.loads(wanted)), read.assumptions


def is_of_catalogue(row: Mapping[str, str]) -> bool:
    """Whether a text names a model or a GPU, which the catalogue may lack."""
    return row["part"] in {"model", "cluster"} and row["name"] in {"", "gpu"}


def test_most_inputs_are_understood() -> None:
    known = [row for row in INPUTS if not row["refusal"] or not is_of_catalogue(row)]
    assert sum(not row["refusal"] for row in known) >= LEAST_UNDERSTOOD * len(known)
    assert sum(any(mark in row["source"] for mark in ADDRESSED) for row in INPUTS) >= LEAST_ADDRESSED
    assert all(row["source"] for row in INPUTS)


def test_every_machine_is_read_by_its_name(catalogue: Catalogue) -> None:
    for row in csv_rows("machines.csv"):
        read = read_question({**BODY, "cluster": row["instance_type"]}, catalogue)
        assert (read.question.gpu.slug, read.question.cluster.gpus) == (row["gpu"], int(row["gpus"])), row


@pytest.mark.parametrize("row", INPUTS, ids=lambda row: f"{row['name'] or row['part']} {row['text']}")
def test_an_input_means_the_same_as_json_and_as_parameters(row: Mapping[str, str], catalogue: Catalogue) -> None:
    model = catalogue.models[row["value"]].model if row["field"] == "model" else None
    results: list[Question] = []
    forms: tuple[Callable[[], dict[str, Any]], ...] = (
        lambda: body_of(row),
        lambda: body_of_flat(parameters_of(row)),
    )
    for body in forms:
        if row["refusal"]:
            with pytest.raises(Refused) as refused:
                read_question(body(), catalogue)
            assert any(row["refusal"] in problem.fix for problem in refused.value.problems), refused.value.problems
        else:
            read = read_question(body(), catalogue)
            check(row, read, model)
            results.append(read.question)
    assert results[1:] == results[:-1]


@pytest.mark.parametrize("row", INPUTS[::24], ids=lambda row: f"{row['name'] or row['part']} {row['text']}")
def test_an_input_means_the_same_on_the_command_line(
    row: Mapping[str, str], commands: Commands, catalogue: Catalogue
) -> None:
    words = [word for name, text in parameters_of(row) for word in (f"--{name.replace('_', '-')}", text)]
    ran = commands("estimate")(*words, "--json")
    if row["refusal"]:
        assert (ran.code, row["refusal"] in ran.err or "No such option" in ran.err) == (2, True), ran.err
    else:
        from service.features.estimates.answers import answer

        assert ran.code == 0, ran.err
        assert json.loads(ran.out)["id"] == answer(read_question(body_of(row), catalogue), catalogue).id
