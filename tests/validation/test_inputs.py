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
from service.validation.sentences.question import read_sentence
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
LEAST_IN_SENTENCES = 0.8
"""Share of the texts that a sentence understands beyond doubt; of others it says what it leaves out or assumes."""
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


def sentence_of(row: Mapping[str, str]) -> str:
    """A sentence in which a row's text stands as people write it."""
    part, name, text = row["part"], row["name"], row["text"]
    meant = other_names().get(plain(name), (f"{part}.{plain(name)}",))
    if part == "model":
        return f"{text}, 8xH100, seq 8k"
    if part == "cluster" and (not name or row["field"] == "cluster.gpus") and meant != ("cluster.nodes",):
        return f"llama 3.1 8b, {text}, seq 8k"
    if part == "cluster" and meant == ("cluster.gpu",):
        return f"llama 3.1 8b, 8x {text}, seq 8k"
    stated = text if name in {"", "training_tokens", "usd_per_gpu_hour"} else f"{name}={text}"
    beside = [f"gbs {BATCH}"] * (meant == (STEPS,)) + ["seq 8k"] * (meant != ("recipe.sequence_length",))
    return ", ".join(["llama 3.1 8b, 8xH100", *beside, stated])


def test_no_input_in_a_sentence_is_silently_another(catalogue: Catalogue) -> None:
    """A text has its value, or what was not understood or assumed is named."""
    sure = 0
    plain_rows = [row for row in INPUTS if row["field"] not in {"", "recipe.global_batch_tokens"}]
    for row in plain_rows:
        model = catalogue.models[row["value"]].model if row["field"] == "model" else None
        try:
            sentence = read_sentence(sentence_of(row), catalogue)
            layout = {name: value for name, value in sentence.body.get("layout", {}).items() if name != "auto"}
            read = read_question({**sentence.body, "layout": layout}, catalogue)
            if all(chip.state == "understood" for chip in sentence.chips if chip.text):
                check(row, read, model)
                sure += 1
        except Refused:
            continue
    assert sure >= LEAST_IN_SENTENCES * len(plain_rows)


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


SPELLED = {
    "model": "llama 3.1 8b",
    "seq": "8k",
    "gbs": "512",
    "tokens": "200B",
    "cluster": "64xH100",
    "price": "$2.50/h",
}


def test_a_question_is_the_same_answer_in_every_form(commands: Commands, catalogue: Catalogue) -> None:
    from service.features.ask.ask import ask
    from service.features.estimates.answers import answer
    from service.features.estimates.planned import planned

    apart = {"recipe": {name: SPELLED[name] for name in ("seq", "gbs", "tokens")}, "layout": {"auto": True}}
    whole = {name: SPELLED[name] for name in ("model", "cluster", "price")}
    bodies = ({**whole, **apart}, body_of_flat([*SPELLED.items(), ("auto", "true")]))
    ids = {answer(read_question(body, catalogue, planner=planned), catalogue).id for body in bodies}
    words = [word for name, text in SPELLED.items() for word in (f"--{name}", text)]
    ids.add(json.loads(commands("estimate")(*words, "--auto", "true", "--json").out)["id"])
    ids.add(ask("llama 3.1 8b, seq 8k, gbs 512, 200B tokens, 64xH100, $2.50/h", catalogue).answer.id)
    assert len(ids) == 1
