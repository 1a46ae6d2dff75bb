"""Every rule has a question that breaks it alone; its message carries the numbers, and its fix mends the question."""

import ast
import importlib
import pkgutil
import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import service.estimator
from service.errors import Problem, Refused
from service.estimator import Layout, Question, Recipe, Recompute, estimate
from service.estimator.question import (
    Checkpointing,
    DocumentLength,
    MeasuredStep,
    Method,
    OwnedPrice,
    RunStage,
    Software,
    Versions,
)
from service.estimator.refusals import REFUSALS as TEXTS
from service.estimator.rule import Rule
from tests.ask import question
from tests.cases import each_case
from tests.estimator.small_models import FAMILIES

REFUSALS: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("refusals.toml").read_text(encoding="utf-8"))[
    "refusal"
]
EVERY_REFUSAL = [pytest.param(row, id=row["code"]) for row in REFUSALS]
ESTIMATOR = Path(service.estimator.__file__).parent


def fields(changes: dict[str, Any]) -> dict[str, Any]:
    """The fields of a noun as a test table writes them: lists for tuples, "absent" for what is left out."""
    values = {name: None if value == "absent" else value for name, value in changes.items()}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def software(written: dict[str, Any]) -> Software:
    """The training software as a test table writes it."""
    versions = {"versions": Versions(**written["versions"])} if "versions" in written else {}
    return Software(**{**written, **versions})


def asked(row: dict[str, Any], *changes: dict[str, Any]) -> Question:
    """The question of a row: a small model and 8,192 tokens, with the nouns of the later changes replaced."""
    nouns: dict[str, Any] = {"gpus": 1, "model": {}, "recipe": {}, "layout": {}}
    for change in changes:
        nouns.update(change)
    recipe = {"sequence_length": 8192, **nouns["recipe"]}
    if isinstance(recipe.get("recompute"), dict):
        recipe["recompute"] = Recompute(**fields(recipe["recompute"]))
    if isinstance(recipe.get("stack"), dict):
        recipe["stack"] = software(recipe["stack"])
    if isinstance(recipe.get("method"), dict):
        recipe["method"] = Method(**fields(recipe["method"]))
    recipe["stages"] = tuple(RunStage(**stage) for stage in recipe.get("stages", ()))
    if isinstance(recipe.get("checkpoint"), dict):
        recipe["checkpoint"] = Checkpointing(**recipe["checkpoint"])
    recipe["document_lengths"] = tuple(DocumentLength(**bar) for bar in recipe.get("document_lengths", ()))
    model = replace(FAMILIES[row.get("model", "dense")], **fields(nouns["model"]))
    asked = question(model, Recipe(**recipe), Layout(**fields(nouns["layout"])), gpus=nouns["gpus"])
    cluster = {**nouns.get("cluster", {})}
    cluster["measured_steps"] = tuple(MeasuredStep(**step) for step in cluster.get("measured_steps", ()))
    asked = replace(asked, cluster=replace(asked.cluster, **cluster))
    return replace(asked, price=OwnedPrice(**nouns["price"])) if "price" in nouns else asked


def problem_of(row: dict[str, Any]) -> Problem:
    """The only problem that a row's question has."""
    with pytest.raises(Refused) as refused:
        estimate(asked(row, row["asked"]))
    (problem,) = refused.value.problems
    return problem


@each_case("row", EVERY_REFUSAL)
def test_question_breaks_this_rule_alone(row: dict[str, Any]) -> None:
    problem = problem_of(row)
    assert (problem.code, problem.field) == (row["code"], row["field"])


@each_case("row", EVERY_REFUSAL)
def test_message_says_the_numbers_and_fix_what_to_do(row: dict[str, Any]) -> None:
    problem = problem_of(row)
    unsaid = [words for words in row["says"] if not re.search(rf"(?<![\w.]){re.escape(words)}", problem.message)]
    assert not unsaid, problem.message
    assert row["fix"] in problem.fix


@each_case("row", EVERY_REFUSAL)
def test_following_the_fix_mends_the_question(row: dict[str, Any]) -> None:
    assert estimate(asked(row, row["asked"], row["mended"])).resolved


def test_a_kernel_for_hopper_runs_on_no_other_gpu() -> None:
    row = {"asked": {"recipe": {"attention": "flash-3"}}}
    on_hopper = asked(row, row["asked"])
    assert estimate(on_hopper).resolved
    older = replace(on_hopper, gpu=replace(on_hopper.gpu, architecture="Ampere"))
    with pytest.raises(Refused) as refused:
        estimate(older)
    (problem,) = refused.value.problems
    assert problem.code == "kernel_runs_there"
    assert "Ampere" in problem.message


def named_rules() -> list[str]:
    """The name of every rule in any module of the estimator, each object once."""
    names = [found.name for found in pkgutil.walk_packages([str(ESTIMATOR)], "service.estimator.")]
    tables = [value for name in names for value in vars(importlib.import_module(name)).values()]
    rows = [row for value in tables if isinstance(value, dict) for row in value.items()]
    return [name for name, rule in {id(rule): (name, rule) for name, rule in rows}.values() if isinstance(rule, Rule)]


def written_codes() -> list[str]:
    """Every code that the estimator's source names in a refusal."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in ESTIMATOR.rglob("*.py")]
    calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    codes = [call.args[0] for call in calls if isinstance(call.func, ast.Name) and call.func.id == "refusal"]
    return [str(code.value) for code in codes if isinstance(code, ast.Constant)]


def test_no_rule_lacks_a_case() -> None:
    rules = {*named_rules(), *written_codes()}
    assert len(rules) > 40
    assert {row["code"] for row in REFUSALS} == rules


def test_every_rule_has_a_name_of_its_own() -> None:
    names = [*named_rules(), *written_codes()]
    assert len(set(names)) == len(names)
    assert set(names) == set(TEXTS)
