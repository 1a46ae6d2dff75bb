"""A check denies what runs out of memory, warns of what may or may exceed a limit, and says why in one line."""

from typing import Any

import pytest

from service.answers.checks import Check
from service.catalogue import Catalogue
from service.errors import Refused
from service.features.checks.check import check
from service.features.checks.schemas import OTHER_FIELDS
from service.features.estimates.answers import answer
from service.features.exports.exports import import_file
from service.validation.json_text import apply_merge_patch
from service.validation.questions import read_question

Body = dict[str, Any]


@pytest.fixture
def body() -> Body:
    """One DGX H100, so many layers of an 8 B model that it fits with room to spare."""
    return {
        "model": "llama-3.1-8b",
        "recipe": {"sequence_length": 8192, "training_tokens": 1e12},
        "layout": {"tensor": 8},
        "cluster": {"gpu": "h100-sxm5-80gb", "gpus": 8},
        "price": {"usd_per_gpu_hour": 2.5},
        "deadline_seconds": 60,
    }


def question(body: Body) -> Body:
    """What POST /v1/estimates takes of it."""
    return {name: value for name, value in body.items() if name not in OTHER_FIELDS}


def refusal(body: Body, catalogue: Catalogue) -> list[tuple[str, str]]:
    with pytest.raises(Refused) as refused:
        check(body, catalogue)
    return [(problem.field, problem.code) for problem in refused.value.problems]


def one_line(found: Check) -> bool:
    return 0 < len(found.reason) <= 255 and found.reason.isprintable()


def test_what_fits_is_ok_and_tells_what_it_takes(body: Body, catalogue: Catalogue) -> None:
    found = check(body, catalogue)
    whole = answer(read_question(question(body), catalogue), catalogue)
    assert whole.totals is not None
    assert (found.verdict, found.fits) == ("ok", True)
    assert (found.id, found.versions) == (whole.id, whole.versions)
    assert (found.gpu_hours, found.cost_usd) == (whole.totals.gpu_hours, whole.totals.cost_usd)
    assert found.device_peak_bytes == whole.memory.device_peak_bytes
    assert found.reason.startswith("fits: ")
    assert "GPU-hours" in found.reason
    assert one_line(found)


def test_the_time_limit_is_the_upper_end_in_whole_minutes(body: Body, catalogue: Catalogue) -> None:
    found = check(body, catalogue)
    assert found.gpu_hours is not None
    assert found.time_limit_seconds is not None
    assert found.time_limit_seconds % 60 == 0
    assert 0 <= found.time_limit_seconds - found.gpu_hours.high / 8 * 3600 < 60 + 1e-6


def test_what_does_not_fit_is_denied_with_advice(body: Body, catalogue: Catalogue) -> None:
    found = check({**body, "model": "llama-3.1-70b"}, catalogue)
    whole = answer(read_question(question({**body, "model": "llama-3.1-70b"}), catalogue), catalogue)
    assert (found.verdict, found.fits) == ("deny", False)
    assert found.reason.startswith("out of memory: ")
    assert whole.memory.suggestions[0] in found.reason
    assert one_line(found)


def test_the_verdict_follows_the_probability_of_running_out_of_memory(body: Body, catalogue: Catalogue) -> None:
    seen = set()
    for tokens in range(12288, 20480, 1024):
        body["recipe"] = {"sequence_length": tokens}
        body["layout"] = {"tensor": 2}
        found = check(body, catalogue)
        risk = found.oom_probability_fraction
        assert found.verdict == ("ok" if risk < 0.05 else "warn" if risk <= 0.5 else "deny")
        assert one_line(found)
        seen.add(found.verdict)
    assert seen == {"ok", "warn", "deny"}


@pytest.mark.parametrize("name", ["days", "cost_usd"])
def test_a_limit_below_the_upper_end_is_warned_of(name: str, body: Body, catalogue: Catalogue) -> None:
    whole = answer(read_question(question(body), catalogue), catalogue)
    assert whole.totals is not None
    predicted = getattr(whole.totals, name)
    for limit, verdict, said in [
        (predicted.high, "ok", "fits"),
        (predicted.value, "warn", "may exceed"),
        (predicted.low / 2, "warn", "even at its low end"),
    ]:
        found = check({**body, "limits": {name: limit}}, catalogue)
        assert (found.verdict, found.fits) == (verdict, True)
        assert said in found.reason
        assert one_line(found)


def test_a_limit_does_not_excuse_what_runs_out_of_memory(body: Body, catalogue: Catalogue) -> None:
    found = check({**body, "model": "llama-3.1-70b", "limits": {"days": 1}}, catalogue)
    assert found.verdict == "deny"
    assert found.reason.startswith("out of memory: ")


def test_without_tokens_or_price_nothing_is_invented(body: Body, catalogue: Catalogue) -> None:
    del body["price"]
    assert check(body, catalogue).cost_usd is None
    body["recipe"] = {"sequence_length": 8192}
    found = check(body, catalogue)
    assert (found.gpu_hours, found.cost_usd, found.time_limit_seconds) == (None, None, None)
    assert "GPU-hours" not in found.reason


def test_a_limit_that_cannot_be_judged_is_warned_of(body: Body, catalogue: Catalogue) -> None:
    del body["price"]
    costly = check({**body, "limits": {"cost_usd": 1.0}}, catalogue)
    assert (costly.verdict, costly.fits) == ("warn", True)
    assert costly.reason.startswith("limits.cost_usd cannot be judged without a price; fits: ")
    body["recipe"] = {"sequence_length": 8192}
    endless = check({**body, "limits": {"days": 1.0}}, catalogue)
    assert endless.verdict == "warn"
    assert endless.reason.startswith("limits.days cannot be judged without recipe.training_tokens; fits: ")
    assert check({**body, "model": "llama-3.1-70b", "limits": {"days": 1.0}}, catalogue).verdict == "deny"
    assert check({**body, "limits": None}, catalogue).verdict == "ok"


def test_an_unknown_field_is_told_of_the_limits(body: Body, catalogue: Catalogue) -> None:
    with pytest.raises(Refused) as refused:
        check({**body, "euros": 3}, catalogue)
    (problem,) = refused.value.problems
    assert "limits.cost_usd, limits.days" in problem.fix


def test_everything_wrong_is_named_at_once(body: Body, catalogue: Catalogue) -> None:
    del body["cluster"]
    problems = refusal({**body, "limits": {"days": 0, "euros": 1}}, catalogue)
    assert problems == [("limits.euros", "unknown_field"), ("limits.days", "out_of_range"), ("cluster", "required")]
    assert refusal({**body, "limits": []}, catalogue)[:1] == [("limits", "not_an_object")]


ARGUMENTS = (
    "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --group-query-attention --num-query-groups 8 "
    "--ffn-hidden-size 14336 --vocab-size 128256 --swiglu --normalization RMSNorm --disable-bias-linear "
    "--position-embedding-type rope --untie-embeddings-and-output-weights --bf16 --seq-length 8192 "
    "--micro-batch-size 1 --global-batch-size 64 --train-iters 1000 --tensor-model-parallel-size 8 "
    "--attention-backend flash"
)


def test_a_launchers_arguments_are_a_question(catalogue: Catalogue) -> None:
    launch = {"format": "megatron-lm", "content": ARGUMENTS}
    cluster = {"gpu": "h100-sxm5-80gb", "gpus": 8}
    found = check({"launch": launch, "cluster": cluster}, catalogue)
    imported = import_file("megatron-lm", ARGUMENTS)
    said = {"model": imported.model, "recipe": imported.recipe, "layout": imported.layout, "cluster": cluster}
    assert found.id == answer(read_question(said, catalogue), catalogue).id
    assert found.gpu_hours is not None


def test_what_the_caller_says_counts_more_than_the_launcher(catalogue: Catalogue) -> None:
    launch = {"format": "megatron-lm", "content": f"{ARGUMENTS} --warp-drive on"}
    body = {"launch": launch, "cluster": {"gpu": "h100-sxm5-80gb", "gpus": 8}, "layout": {"tensor": 4}}
    found, other = check(body, catalogue), check({**body, "layout": {}}, catalogue)
    assert found.device_peak_bytes.value > other.device_peak_bytes.value
    (warning,) = found.warnings
    assert "warp-drive" in warning


@pytest.mark.parametrize("model", ["llama-3.2-1b", "llama-3.1-405b"])
def test_a_setting_that_changes_the_answer_and_is_not_understood_gives_no_verdict(
    model: str, body: Body, catalogue: Catalogue
) -> None:
    content = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}, "amp": {"enabled": true}}'
    body |= {"model": model, "layout": {}, "launch": {"format": "deepspeed", "content": content}}
    found = check(body, catalogue)
    assert (found.verdict, found.fits, found.alternatives) == ("unknown", True, ())
    assert "amp.enabled (line 1)" in found.reason
    assert one_line(found)


def test_a_launchers_wrong_value_is_told_with_its_place(body: Body, catalogue: Catalogue) -> None:
    body["launch"] = {"format": "megatron-lm", "content": "--seq-length many"}
    assert refusal(body, catalogue) == [("launch.content", "not_a_whole_number")]
    body["launch"] = {"format": "script", "content": "echo hello"}
    assert refusal(body, catalogue) == [("launch.content", "no_training")]
    body["launch"] = {"format": "tarot"}
    assert [code for _, code in refusal(body, catalogue)] == ["not_a_choice", "required"]


def test_every_alternative_is_what_a_check_of_it_says(body: Body, catalogue: Catalogue) -> None:
    body |= {"layout": {"tensor": 1, "data": 8}, "free_pool": [{"gpu": "b200", "gpus": 16}, {"gpu": "t4", "gpus": 8}]}
    found = check(body, catalogue)
    assert found.verdict == "deny"
    assert {"gpu": "b200", "gpus": 16} in [one.patch.get("cluster") for one in found.alternatives]
    assert any("cluster" not in one.patch for one in found.alternatives)
    for one in found.alternatives:
        again = check(apply_merge_patch(body, one.patch), catalogue)
        assert (again.verdict, again.device_peak_bytes) == (one.verdict, one.device_peak_bytes)
        assert (again.gpu_hours, again.cost_usd) == (one.gpu_hours, one.cost_usd)
        assert again.time_limit_seconds == one.time_limit_seconds
        assert again.verdict in {"ok", "warn"}


def test_a_change_inside_a_stack_that_is_a_name_is_told_whole(body: Body, catalogue: Catalogue) -> None:
    body["model"], body["layout"] = "llama-3.2-1b", {}
    body["recipe"] |= {"micro_batch": 8, "stack": "transformers", "recompute": "full"}
    found = check(body, catalogue)
    stacks = [one.patch["recipe"]["stack"] for one in found.alternatives if "stack" in one.patch.get("recipe", {})]
    assert [stack["name"] for stack in stacks] == ["transformers"]


def test_without_a_cluster_the_first_free_one_is_judged(body: Body, catalogue: Catalogue) -> None:
    free = {"gpu": "h100-sxm5-80gb", "gpus": 16}
    expected = check({**body, "cluster": free}, catalogue)
    del body["cluster"]
    found = check({**body, "free_pool": [free]}, catalogue)
    assert (found.id, found.alternatives) == (expected.id, ())
    assert refusal({**body, "free_pool": []}, catalogue) == [("cluster", "required")]


def test_a_deadline_that_is_over_leaves_alternatives_out_and_keeps_the_verdict(
    body: Body, catalogue: Catalogue
) -> None:
    body["layout"] = {"tensor": 1}
    whole = check(body, catalogue)
    at_once = check({**body, "deadline_seconds": 0}, catalogue)
    assert whole.alternatives
    assert at_once.alternatives == ()
    assert (at_once.id, at_once.verdict) == (whole.id, whole.verdict) == (whole.id, "deny")
    assert any("deadline_seconds" in one for one in at_once.warnings)


@pytest.mark.parametrize(
    ("beside", "problem"),
    [
        ({"free_pool": {"gpu": "h100", "gpus": 8}}, ("free_pool", "not_a_list")),
        ({"free_pool": [{"gpu": "h100", "gpus": 0}]}, ("free_pool[0].gpus", "out_of_range")),
        ({"free_pool": ["h100x"] * 17}, ("free_pool", "not_a_list")),
        ({"deadline_seconds": -1}, ("deadline_seconds", "out_of_range")),
        ({"deadline_seconds": "soon"}, ("deadline_seconds", "not_a_number")),
        ({"launch": "train.py"}, ("launch", "not_an_object")),
    ],
)
def test_what_stands_beside_the_question_is_judged(
    beside: Body, problem: tuple[str, str], body: Body, catalogue: Catalogue
) -> None:
    assert problem in refusal({**body, **beside}, catalogue)


def test_on_free_gpus_a_single_change_may_be_needed_too(body: Body, catalogue: Catalogue) -> None:
    body |= {"model": "llama-3.1-70b", "layout": {}, "free_pool": [{"gpu": "h100-sxm5-80gb", "gpus": 128}]}
    (found, *_) = check(body, catalogue).alternatives
    assert found.patch["cluster"] == {"gpu": "h100-sxm5-80gb", "gpus": 128}
    assert found.patch["layout"]
    assert check({**apply_merge_patch(body, found.patch), "free_pool": None}, catalogue).verdict == found.verdict
