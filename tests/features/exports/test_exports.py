"""Exports and imports over HTTP: listed, written, alone or inside JSON, read back, refused."""

from typing import Any

import pytest

from service.formats.targets import FORMATS, TARGETS
from service.formats.text import LONGEST_FILE_BYTES
from tests.api.asking import QUESTION, Ask


def test_every_target_is_listed_with_its_versions_and_source(ask: Ask) -> None:
    items = {item["target"]: item for item in ask("GET", "/v1/exports").json()["items"]}
    assert items.keys() == TARGETS.keys()
    assert all(item["source"] and item["versions"] for item in items.values())
    assert [one["version"] for one in items["torchtitan"]["versions"]] == ["0.2", "0.3", "main"]


def test_every_format_is_listed_with_its_source_and_the_fates_of_its_settings(ask: Ask) -> None:
    items = {item["format"]: item for item in ask("GET", "/v1/imports").json()["items"]}
    assert items.keys() == FORMATS.keys()
    assert all(item["source"] and item["covers"] and item["syntax"] for item in items.values())
    megatron = items["megatron-lm"]["settings"]
    assert megatron["understood"] > 100
    assert min(megatron["without_effect"], megatron["not_understood"]) > 100


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_and_version_is_written(ask: Ask, target: str) -> None:
    for version in TARGETS[target].versions:
        answer = ask("POST", f"/v1/exports/{target}", json=QUESTION, params={"version": version})
        assert answer.status_code == 200, answer.text
        found = answer.json()
        assert (found["target"], found["version"]) == (target, version)
        assert found["content"].endswith("\n")
        assert all(one["fix"] and one["message"] for one in found["not_expressible"])


def test_a_file_comes_alone_where_text_is_accepted(ask: Ask) -> None:
    whole = ask("POST", "/v1/exports/deepspeed", json=QUESTION).json()
    alone = ask("POST", "/v1/exports/deepspeed", json=QUESTION, headers={"accept": "text/plain"})
    assert alone.headers["content-type"] == "text/plain; charset=utf-8"
    assert alone.text == whole["content"]
    assert "deepspeed.json" in alone.headers["content-disposition"]
    assert alone.headers["x-not-expressible"].split(", ") == [one["field"] for one in whole["not_expressible"]]


WRONG: list[tuple[str, dict[str, Any], dict[str, str], int, str]] = [
    ("warp-drive", QUESTION, {}, 404, ""),
    ("torchtitan", QUESTION, {"version": "9"}, 422, "not_a_choice"),
    ("torchtitan", QUESTION, {"command": "train.py"}, 422, "no_launcher"),
    ("sbatch", QUESTION, {"command": "train.py 'x"}, 422, "not_a_command"),
    ("sbatch", {**QUESTION, "layout": {"tensor": 7}}, {}, 422, "replica_divides_cluster"),
]


@pytest.mark.parametrize(("target", "body", "query", "status", "code"), WRONG)
def test_what_cannot_be_written_is_refused(
    ask: Ask, target: str, body: dict[str, Any], query: dict[str, str], status: int, code: str
) -> None:
    answer = ask("POST", f"/v1/exports/{target}", json=body, params=query)
    assert answer.status_code == status
    assert "warp-drive" not in answer.text
    assert [error["code"] for error in answer.json()["errors"]] == ([code] if code else [])


@pytest.mark.parametrize("name", sorted(TARGETS.keys() & FORMATS.keys()))
def test_what_is_written_is_read_back_alone_and_inside_json(ask: Ask, name: str) -> None:
    content = ask("POST", f"/v1/exports/{name}", json=QUESTION).json()["content"]
    alone = ask("POST", f"/v1/imports/{name}", content=content, headers={"content-type": "text/plain"})
    inside = ask("POST", f"/v1/imports/{name}", json={"content": content})
    assert alone.status_code == 200, alone.text
    assert alone.content == inside.content
    assert alone.json()["unknown"] == []


def test_what_is_read_back_is_a_question(ask: Ask) -> None:
    content = ask("POST", "/v1/exports/megatron-lm", json=QUESTION).json()["content"]
    found = ask("POST", "/v1/imports/megatron-lm", json={"content": content}).json()
    question = {name: found[name] for name in ("model", "recipe", "layout")} | {"cluster": QUESTION["cluster"]}
    first, again = (ask("POST", "/v1/memory", json=one).json() for one in (QUESTION, question))
    assert again["memory"]["stages"] == first["memory"]["stages"]


def test_wrong_files_are_refused(ask: Ask) -> None:
    plain = {"content-type": "text/plain"}
    assert ask("POST", "/v1/imports/warp", content="x", headers=plain).status_code == 404
    assert ask("POST", "/v1/imports/nanotron", content=b"\xff", headers=plain).status_code == 422
    assert ask("POST", "/v1/imports/nanotron", json={"text": "a: 1"}).status_code == 422
    assert ask("POST", "/v1/imports/nanotron", content="a: 1", headers={"content-type": "text/html"}).status_code == 415
    long = ask("POST", "/v1/imports/nanotron", content="#" * (LONGEST_FILE_BYTES + 1), headers=plain)
    assert long.json()["errors"][0]["code"] == "too_long"
    (error,) = ask("POST", "/v1/imports/nanotron", content="a: 1\na: 2", headers=plain).json()["errors"]
    assert "line 2, column 1" in error["message"]


ZERO_3 = '{"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}}'
SCRIPT = "--model_name_or_path Qwen/Qwen3-8B --per_device_train_batch_size 2 --block_size 4096 --bf16 --output_dir out"


def test_a_file_is_recognised_and_read_with_the_files_beside_it(ask: Ask) -> None:
    named = {"content": f"{SCRIPT} --deepspeed conf/zero3.json", "files": {"zero3.json": ZERO_3}}
    unnamed = {"content": ZERO_3, "files": {"train.sh": SCRIPT}}
    for body in (named, unnamed):
        found = ask("POST", "/v1/imports", json=body).json()
        assert (found["format"], found["layout"]["zero_stage"]) == ("transformers", 3)
        assert (found["recipe"]["micro_batch"], found["recipe"]["precision"]) == (2, "bf16-mixed")
        assert "per_device_train_batch_size stands in files of transformers" in found["recognised"]
    missing = ask("POST", "/v1/imports", json={"content": named["content"]})
    assert [error["code"] for error in missing.json()["errors"]] == ["missing_file"]


def test_a_file_that_tells_no_tool_counts_under_the_setting_that_names_it(ask: Ask) -> None:
    script = SCRIPT + " --fsdp 'full_shard auto_wrap' --fsdp_config train/own.json"
    body = {"content": script, "files": {"own.json": '{"transformer_layer_cls_to_wrap": "Layer", "colour": 1}'}}
    found = ask("POST", "/v1/imports", json=body).json()
    assert (found["layout"]["zero_stage"], found["not_understood"][0]["name"]) == (3, "fsdp_config.colour")


@pytest.mark.parametrize(
    ("files", "code"),
    [
        ({"a.yaml": "base_model: x\nsequence_len: 8\n"}, "not_named"),
        ({"a.yaml": "colour: red\n"}, "not_recognised"),
        ({"a.yaml": 1}, "not_files"),
        (["a"], "not_files"),
        (False, "not_files"),
        ({f"{n}.json": "{}" for n in range(9)}, "not_files"),
    ],
)
def test_wrong_files_beside_another_are_refused(ask: Ask, files: Any, code: str) -> None:
    answer = ask("POST", "/v1/imports", json={"content": SCRIPT, "files": files})
    assert answer.status_code == 422, answer.text
    assert [error["code"] for error in answer.json()["errors"]] == [code]
