"""Options of a question: the same for every command, over a file's question, with the API's answer as JSON."""

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from service.answers.plans import PlanAnswer
from service.catalogue import shipped_catalogue
from service.features.checks.check import check
from service.features.compare.compare import compare
from service.features.estimates.answers import answer, memory_answer
from service.features.exports.exports import export, target_named
from service.features.plans.search_plans import search
from service.features.sensitivity.vary import vary
from service.features.solve.solve import solve
from service.validation.questions import read_question
from service.validation.reading import to_bytes
from tests.commands import Commands

Body = dict[str, Any]

JOB = ["llama-3.1-8b", "--seq", "8192", "--gbs", "64", "--gpu", "h100", "--gpus", "8"]
QUESTION: Body = {
    "model": "llama-3.1-8b",
    "recipe": {"sequence_length": 8192, "global_batch": 64},
    "cluster": {"gpu": "h100", "gpus": 8},
}
CATALOGUE = shipped_catalogue()


def plans(body: Mapping[str, Any]) -> PlanAnswer:
    *_, found = search(body, CATALOGUE)
    assert isinstance(found, PlanAnswer)
    return found


ANSWERS: Mapping[str, Callable[[Body], Any]] = {
    "estimate": lambda body: answer(read_question(body, CATALOGUE), CATALOGUE),
    "memory": lambda body: memory_answer(read_question(body, CATALOGUE), CATALOGUE),
    "check": lambda body: check(body, CATALOGUE),
    "plan": plans,
    "solve": lambda body: solve(body, CATALOGUE),
    "compare": lambda body: compare(body, CATALOGUE).answer,
    "sensitivity": lambda body: vary(body, CATALOGUE).answer,
}


def recipe(**fields: Any) -> Body:
    return {**QUESTION, "recipe": {**QUESTION["recipe"], **fields}}


CASES: list[tuple[str, list[str], Body]] = [
    ("estimate", ["--tp", "2", "--sequence-parallel"],
     {**QUESTION, "layout": {"tensor": 2, "sequence_parallel": True}}),
    ("estimate", ["--no-sequence-parallel"], {**QUESTION, "layout": {"sequence_parallel": False}}),
    ("estimate", ["--tensor-model-parallel-size=2"], {**QUESTION, "layout": {"tensor": 2}}),
    ("memory", ["--mbs", "2"], recipe(micro_batch=2)),
    ("check", ["--max-days", "2w", "--training-tokens", "1e9", "--deadline-seconds", "60"],
     {**recipe(training_tokens=1e9), "limits": {"days": 14}, "deadline_seconds": 60}),
    ("plan", ["--tp", "1", "--tp", "2", "--pp", "1", "--recompute", "none", "--top", "2", "--headroom-fraction", "5%"],
     {**QUESTION, "layout": {"tensor": [1, 2], "pipeline": 1}, "recipe": {**QUESTION["recipe"], "recompute": "none"},
      "top": 2, "limits": {"headroom_fraction": 0.05}}),
    ("plan", ["--max-gpus", "16", "--top", "1", "--vpp", "1"],
     {**QUESTION, "layout": {"virtual_pipeline": 1}, "limits": {"gpus": [8, 16]}, "top": 1}),
    ("solve", ["--unknown", "micro-batch", "--tp", "8"],
     {"unknown": "recipe.micro_batch",
      "question": {**QUESTION, "layout": {"tensor": 8}}}),
    ("compare", ["--gpus", "16", "--columns", "days"],
     {"question": {name: QUESTION[name] for name in ("model", "recipe")}, "columns": ["days"],
      "clusters": [{"gpu": "h100", "gpus": 8}, {"gpu": "h100", "gpus": 16}]}),
    ("sensitivity", ["--mbs", "1", "--mbs", "2", "--metrics", "step_seconds"],
     {"question": recipe(micro_batch=1), "vary": {"recipe.micro_batch": [2]}, "metrics": ["step_seconds"]}),
    ("sensitivity", ["--mbs", "1", "--mbs", "2", "--recompute", "none", "--recompute", "full", "--mode", "grid"],
     {"question": recipe(micro_batch=1, recompute="none"), "mode": "grid",
      "vary": {"recipe.micro_batch": [1, 2], "recipe.recompute": ["none", "full"]}}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "words", "body"), CASES)
def test_options_ask_what_the_body_asks(name: str, words: list[str], body: Body, commands: Commands) -> None:
    ran = commands(name)(*JOB, *words, "--json")
    assert ran.code in (0, 1), ran.err
    assert json.loads(ran.out) == json.loads(to_bytes(ANSWERS[name](body)))


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """The question in a file of each kind."""
    for name, text in (("json", json.dumps(QUESTION)), ("yaml", yaml.safe_dump(QUESTION))):
        (tmp_path / f"question.{name}").write_text(text, encoding="utf-8")
    return {path.suffix[1:]: str(path) for path in tmp_path.iterdir()}


def piped(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def test_a_file_and_standard_input_give_the_same_answer(
    files: dict[str, str], commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = commands("estimate")
    expected = to_bytes(ANSWERS["estimate"](QUESTION)).decode() + "\n"
    bare = Path(files["json"]).with_name("question")
    bare.write_text(json.dumps(QUESTION), encoding="utf-8")
    for words in ([files["json"]], [files["yaml"]], ["--file", files["yaml"]], ["-f", files["json"]], [str(bare)]):
        assert run(*words, "--json") == (0, expected, "")
    for text in (json.dumps(QUESTION), yaml.safe_dump(QUESTION)):
        piped(monkeypatch, text)
        assert run("-", "--json") == (0, expected, "")


def test_options_change_the_question_of_a_file(files: dict[str, str], commands: Commands) -> None:
    for words, part, value in (
        (["--nodes", "2"], "cluster", {"gpu": "h100", "nodes": 2}),
        (["--global-batch-tokens", "524288"], "recipe", {"sequence_length": 8192, "global_batch_tokens": 524288}),
        (["--model", "smollm2-135m", "--seq", "1024"], "model", "smollm2-135m"),
        (["--num-hidden-layers", "4"], "model", {"preset": "llama-3.1-8b", "num_hidden_layers": 4}),
    ):
        body = {**QUESTION, part: value}
        body["recipe"] = {**body["recipe"], "sequence_length": 1024} if "--seq" in words else body["recipe"]
        ran = commands("estimate")(files["json"], *words, "--json")
        assert json.loads(ran.out)["id"] == ANSWERS["estimate"](body).id


def test_a_bare_question_serves_commands_whose_body_holds_it(files: dict[str, str], commands: Commands) -> None:
    found = json.loads(commands("solve")(files["json"], "--unknown", "gpus", "--json").out)
    assert found == json.loads(to_bytes(solve({"unknown": "cluster.gpus", "question": QUESTION}, CATALOGUE)))
    one = json.loads(commands("compare")(files["yaml"], "--gpus", "8", "--gpus", "16", "--json").out)
    assert {row["gpus"] for row in one["rows"]} == {8, 16}
    assert {row["gpu"] for row in one["rows"]} == {"h100-sxm5-80gb"}


@pytest.mark.parametrize(
    ("name", "words", "expected"),
    [
        ("estimate", ["no.json", "other.yaml"], "one file holds the question"),
        ("estimate", ["no.yaml"], "no.yaml cannot be read"),
        ("plan", [*JOB, "--max-days", "soon"], '--max-days: max_days is "soon", not a number'),
        ("plan", [*JOB, "--objective", "speed"], "--objective: objective"),
        ("plan", [*JOB[:3], *JOB[5:]], "--global-batch: without a batch"),
        ("solve", [*JOB, "--unknown", "colour"], "--unknown: unknown names"),
        ("solve", JOB, "--unknown: unknown"),
        ("compare", [*JOB, "--gpus", "some"], "--gpus: "),
        ("sensitivity", JOB, "no field is varied"),
        ("check", [*JOB, "--max-cost-usd", "-1"], "--max-cost-usd: cost_usd"),
        ("export", ["megatron", *JOB], "nothing is written for that"),
        ("export", ["torchtitan", *JOB, "--command", "train.py"], "--command: TorchTitan starts no command"),
        ("models", ["no-such-model"], "no models with no-such-model"),
    ],
)
def test_a_wrong_option_is_named_on_stderr(name: str, words: list[str], expected: str, commands: Commands) -> None:
    ran = commands(name)(*words)
    assert (ran.code, ran.out) == (2, "")
    assert expected.casefold() in ran.err.casefold()


OUT_OF_MEMORY = ["llama-3.1-70b", *JOB[1:]]


def test_a_job_that_does_not_fit_ends_a_script_that_asks_for_it(commands: Commands) -> None:
    solving = [*OUT_OF_MEMORY, "--unknown", "micro-batch"]
    planning = [*OUT_OF_MEMORY, "--tp", "1", "--zero-stage", "1", "--recompute", "none"]
    for name, words in (("estimate", OUT_OF_MEMORY), ("memory", OUT_OF_MEMORY), ("plan", planning), ("solve", solving)):
        assert commands(name)(*words).code == 0
        assert commands(name)(*words, "--fail-if-oom").code == 3
        assert commands(name)(*JOB, *words[len(JOB) :], "--tp", "8", "--fail-if-oom").code in (0, 2)
    assert [commands("check")(*words).code for words in (OUT_OF_MEMORY, [*JOB, "--tp", "2"])] == [1, 0]
    assert commands("check")(*OUT_OF_MEMORY, "--fail-if-oom").code == 3


def test_an_export_comes_back_through_import(tmp_path: Path, commands: Commands) -> None:
    written = commands("export")("megatron-lm", *JOB, "--tp", "2")
    tool = target_named("megatron-lm")
    body = {**QUESTION, "layout": {"tensor": 2}}
    assert written.out.rstrip() == export(body, CATALOGUE, tool, next(iter(tool.versions))).content.rstrip()
    assert commands("export")("deepspeed", *JOB, "--tp", "2", "--allow-loss").err.startswith("not in the file: ")
    (tmp_path / "train.sh").write_text(written.out, encoding="utf-8")
    read = commands("import")(str(tmp_path / "train.sh"))
    question = json.loads(read.out)
    assert (question["layout"]["tensor"], question["recipe"]["global_batch"]) == (2, 64)
    assert "recognised as megatron-lm" in read.err
    checked = commands("check")("--launch", str(tmp_path / "train.sh"), "--gpu", "h100", "--gpus", "8", "--json")
    assert json.loads(checked.out)["verdict"] == "ok"


@pytest.mark.parametrize(
    ("plural", "words", "slug", "shown"),
    [
        ("models", ["llama3", "8B"], "llama-3-8b", "8.03B"),
        ("gpus", ["H100 SXM"], "h100-sxm5-80gb", "80 GiB"),
        ("clusters", ["dgx", "h200"], "dgx-h200", "h200-sxm5-141gb"),
        ("prices", ["h100", "lambda"], None, " lambda "),
    ],
)
def test_the_catalogue_is_searched(
    plural: str, words: list[str], slug: str | None, shown: str, commands: Commands
) -> None:
    run = commands(plural)
    found = json.loads(run(*words, "--json").out)
    assert found["next_cursor"] is None
    assert slug is None or slug in [row["slug"] for row in found["items"]]
    header, *lines = run(*words).out.splitlines()
    assert len(lines) == len(found["items"]) < len(json.loads(run("--json").out)["items"])
    assert all(shown in line for line in lines if slug is None or line.startswith(f"{slug} "))
    assert run(*words, "--csv").out.splitlines()[0].startswith(next(iter(found["items"][0])))
    assert header.split()[0] in ("model", "gpu", "cluster")
