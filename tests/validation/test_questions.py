"""A body becomes a question of plain facts, or names everything that is to be mended."""

from dataclasses import replace
from typing import Any

import pytest

from service.catalogue import Catalogue
from service.errors import Refused
from service.estimator.question import Cluster, Layout, Model, Price, Recipe, Recompute
from service.validation.questions import ParsedQuestion, read_question

BODY: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "recipe": {"sequence_length": 8192},
    "cluster": {"gpu": "h100-sxm5-80gb", "gpus": 8},
}

TINY: dict[str, Any] = {
    "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
    "num_attention_heads": 32,
}  # fmt: skip


def read(catalogue: Catalogue, **changes: Any) -> ParsedQuestion:
    return read_question({**BODY, **changes}, catalogue)


def refused(catalogue: Catalogue, body: Any) -> list[tuple[str, str, str]]:
    with pytest.raises(Refused) as refusal:
        read_question(body, catalogue)
    return [(problem.field, problem.code, problem.fix) for problem in refusal.value.problems]


def test_a_body_becomes_a_question(catalogue: Catalogue) -> None:
    asked = read(catalogue, layout={"tensor": 2, "stage_layers": [16, 16]}, price={"usd_per_gpu_hour": 2})
    question = asked.question
    assert question.model == catalogue.models["llama-3.1-8b"].model
    assert question.recipe == Recipe(sequence_length=8192)
    assert question.layout == Layout(tensor=2, stage_layers=(16, 16))
    assert question.cluster == Cluster(gpu="h100-sxm5-80gb", gpus=8)
    assert question.gpu == catalogue.gpus["h100-sxm5-80gb"].gpu
    assert question.price == Price(usd_per_gpu_hour=2.0)
    assert asked.assumptions == ()


def test_absent_parts_are_their_defaults(catalogue: Catalogue) -> None:
    assert read(catalogue).question == read(catalogue, layout=None, price=None).question
    assert read(catalogue).question == read(catalogue, layout={}).question
    assert read(catalogue).question.price is None


@pytest.mark.parametrize("name", ["llama-3.1-8b", "LLAMA-3.1-8B", "meta-llama/Llama-3.1-8B"])
def test_a_model_is_found_by_any_of_its_names(catalogue: Catalogue, name: str) -> None:
    assert read(catalogue, model=name).question.model == catalogue.models["llama-3.1-8b"].model


def test_a_model_may_be_spelled_out(catalogue: Catalogue) -> None:
    assert read(catalogue, model=TINY).question.model == Model(**TINY)


def test_a_preset_may_be_changed(catalogue: Catalogue) -> None:
    changed = read(catalogue, model={"preset": "llama-3.1-70b", "num_hidden_layers": 12}).question.model
    preset = catalogue.models["llama-3.1-70b"].model
    assert preset is not None
    assert changed.num_hidden_layers == 12
    assert (changed.hidden_size, changed.num_key_value_heads) == (preset.hidden_size, preset.num_key_value_heads)


def test_a_model_that_cannot_be_estimated_is_refused_with_its_reason(catalogue: Catalogue) -> None:
    row = replace(catalogue.models["llama-3.1-70b"], slug="unknown-9b", name="", aliases=(), hugging_face_id=None)
    row = replace(row, model=None, not_estimated="its layers are of no kind that is known")
    larger = Catalogue.of(
        models=[*catalogue.models.values(), row],
        gpus=catalogue.gpus.values(),
        clusters=catalogue.clusters.values(),
        prices=catalogue.prices,
    )
    with pytest.raises(Refused) as refusal:
        read(larger, model=row.slug)
    (problem,) = refusal.value.problems
    assert (problem.field, problem.code) == ("model", "not_estimable")
    assert str(row.not_estimated) in problem.message


def test_a_cluster_preset_may_be_named_resized_and_changed(catalogue: Catalogue) -> None:
    preset = catalogue.clusters["dgx-h100"].cluster
    assert read(catalogue, cluster="dgx-h100").question.cluster == preset
    resized = read(catalogue, cluster={"preset": "dgx-h100", "nodes": 16}).question.cluster
    assert resized.gpus == 16 * preset.gpus_per_node
    changed = read(catalogue, cluster={"preset": "dgx-h100", "gpus": 4, "gpu": "a100-sxm4-80gb"}).question
    assert (changed.cluster.gpus, changed.cluster.gpu, changed.gpu.slug) == (4, "a100-sxm4-80gb", "a100-sxm4-80gb")
    assert read(catalogue, cluster={"preset": "dgx-h100", "nodes": 2, "gpus": 16}).question.cluster.gpus == 16
    swapped = {"preset": "dgx-h100", "gpu": "a100-sxm4-80gb"}
    assert any("network are kept" in said for said in read(catalogue, cluster=swapped).assumptions)
    rewired = {**swapped, "inter_node_bytes_per_s": 25e9}
    assert not any("network are kept" in said for said in read(catalogue, cluster=rewired).assumptions)


def test_nodes_and_gpus_may_not_contradict_each_other(catalogue: Catalogue) -> None:
    body = {**BODY, "cluster": {"preset": "dgx-h100", "nodes": 2, "gpus": 8}}
    assert [problem[:2] for problem in refused(catalogue, body)] == [("cluster.nodes", "nodes_contradict_gpus")]


def test_nodes_of_a_gpu_are_its_size(catalogue: Catalogue) -> None:
    for cluster, gpus in [
        ({"gpu": "h100", "nodes": 2}, 16),
        ({"gpu": "h100", "nodes": 2, "gpus": 16}, 16),
        ({"gpu": "h100", "nodes": 3, "gpus_per_node": 4}, 12),
    ]:
        assert read(catalogue, cluster=cluster).question.cluster.gpus == gpus
    (problem,) = refused(catalogue, {**BODY, "cluster": {"gpu": "h100", "nodes": 2, "gpus": 8}})
    assert problem[:2] == ("cluster.nodes", "nodes_contradict_gpus")
    missing = refused(catalogue, {**BODY, "cluster": {"nodes": 2}})
    assert [problem[:2] for problem in missing] == [("cluster.gpu", "required")]


def test_a_price_is_stated_or_looked_up(catalogue: Catalogue) -> None:
    both = {"usd_per_gpu_hour": 2.5, "provider": "aws", "region": "us-east-1", "price_model": "on-demand"}
    (problem,) = refused(catalogue, {**BODY, "price": both})
    assert problem[:2] == ("price", "priced_twice")
    assert "give usd_per_gpu_hour, or rate_card, or provider, region and price_model" in problem[2]
    for twice in ({"rate_card": "ours", "usd_per_gpu_hour": 2}, {"rate_card": "ours", "provider": "aws"}):
        assert [problem[:2] for problem in refused(catalogue, {**BODY, "price": twice})] == [("price", "priced_twice")]


def test_too_many_nodes_are_too_many_gpus(catalogue: Catalogue) -> None:
    body = {**BODY, "cluster": {"preset": "dgx-h100", "nodes": 1 << 20}}
    assert [problem[:2] for problem in refused(catalogue, body)] == [("cluster.gpus", "out_of_range")]


def test_an_ambiguous_name_is_assumed_and_said(catalogue: Catalogue) -> None:
    asked = read(catalogue, cluster={"gpu": "H100", "gpus": 8})
    assert asked.question.cluster.gpu == asked.question.gpu.slug == "h100-sxm5-80gb"
    assert any("h100-sxm5-80gb" in assumption for assumption in asked.assumptions)


def test_a_price_is_looked_up_and_dated(catalogue: Catalogue) -> None:
    row = next(row for row in catalogue.prices if row.gpu == "h100-sxm5-80gb" and row.price_model == "on-demand")
    wanted = {"provider": row.provider, "region": row.region, "price_model": "on-demand"}
    asked = read(catalogue, price=wanted)
    assert isinstance(asked.question.price, Price)
    assert any(
        f"{asked.question.price.usd_per_gpu_hour:g} USD" in said and "as of" in said for said in asked.assumptions
    )
    exact = read(catalogue, price={**wanted, "instance_type": row.instance_type}).question.price
    assert exact is not None


def test_a_price_that_nobody_asks_is_refused(catalogue: Catalogue) -> None:
    body = {**BODY, "price": {"provider": "nobody", "region": "nowhere", "price_model": "spot"}}
    assert [problem[:2] for problem in refused(catalogue, body)] == [("price.provider", "unknown_price")]


def test_recompute_is_a_name_or_an_object(catalogue: Catalogue) -> None:
    for said, meant in (
        ("full", "full"),
        ({"granularity": "full", "layers": 2}, Recompute(granularity="full", layers=2)),
    ):
        recipe = {"sequence_length": 8192, "recompute": said}
        assert read(catalogue, recipe=recipe).question.recipe.recompute == meant


@pytest.mark.parametrize("body", [None, [], "text", 1])
def test_a_body_that_is_no_object_is_refused(catalogue: Catalogue, body: Any) -> None:
    assert [problem[:2] for problem in refused(catalogue, body)] == [("", "not_an_object")]


def test_what_has_no_default_is_asked_for_by_name(catalogue: Catalogue) -> None:
    found = [problem[:2] for problem in refused(catalogue, {})]
    assert found == [("model", "required"), ("recipe.sequence_length", "required"), ("cluster", "required")]


def test_everything_to_be_mended_is_named_at_once(catalogue: Catalogue) -> None:
    body = {
        "model": {"preset": "llama-3.1-8b", "num_hidden_layers": 0},
        "recipe": {"sequence_length": "8192", "precision": "fp7", "recompute": {"granularity": "ful"}},
        "layout": {"tensor": True, "stage_layers": [1, 2.5]},
        "cluster": {"gpu": "h900", "gpus": 8},
        "price": {"usd_per_gpu_hour": -1},
        "budget": 1,
    }
    assert [problem[:2] for problem in refused(catalogue, body)] == [
        ("", "unknown_field"),
        ("model.num_hidden_layers", "out_of_range"),
        ("recipe.sequence_length", "not_a_whole_number"),
        ("recipe.precision", "not_a_choice"),
        ("recipe.recompute.granularity", "not_a_choice"),
        ("layout.tensor", "not_a_whole_number"),
        ("layout.stage_layers.1", "not_a_whole_number"),
        ("cluster.gpu", "unknown_gpu"),
        ("price.usd_per_gpu_hour", "out_of_range"),
    ]


@pytest.mark.parametrize(
    ("part", "value", "fix"),
    [
        ("recipe", {"sequence_length": 1, "seqence_lenght": 2}, "did you mean sequence_length?"),
        ("recipe", {"sequence_length": 1, "globalbatch": 2}, "did you mean global_batch"),
        ("layout", {"Tensor": 2}, "did you mean tensor"),
        ("cluster", {"preset": "dgx-h100", "node": 2}, "did you mean nodes?"),
        ("price", {"usd_per_gpu_hours": 2}, "did you mean usd_per_gpu_hour"),
        ("price", {"rate_crad": "ours"}, "did you mean rate_card?"),
        ("price", {"budget": 1}, "leave it out"),
        ("model", {"hf_config": {}, "num_hidden_layer": 2}, "the fields are hf_config"),
        ("recipe", {"sequence_length": 1, "recompute": {"granularity": "full", "layer": 1}}, "did you mean layers?"),
    ],
)
def test_the_nearest_known_field_is_named(catalogue: Catalogue, part: str, value: Any, fix: str) -> None:
    _, code, said = refused(catalogue, {**BODY, part: value})[0]
    assert code == "unknown_field"
    assert fix in said


@pytest.mark.parametrize(
    ("part", "value", "fix"),
    [
        ("recipe", {"sequence_length": 0}, "give a whole number from 1 to 67108864"),
        ("recipe", {"sequence_length": "8"}, "give a whole number from 1 to 67108864, without quotes"),
        ("recipe", {"sequence_length": 8, "training_tokens": 1e19}, "give a number from 1 to below 1e+18"),
        ("recipe", {"sequence_length": 8, "gradient_dtype": "fp8"}, "give one of fp32, bf16, fp16"),
        ("layout", {"zero_stage": 4}, "give one of 0, 1, 2, 3"),
        ("layout", {"zero_stage": True}, "give one of 0, 1, 2, 3"),
        ("layout", {"sequence_parallel": 1}, "give true or false"),
        ("layout", {"stage_layers": []}, "give a list of 1 to 2048 values"),
        ("layout", {"stage_layers": 4}, "give a list of 1 to 2048 values"),
        ("recipe", {"sequence_length": 8, "recompute": 4}, "give one of none, selective, full or an object"),
        ("recipe", {"sequence_length": 8, "method": "prefix"}, "give one of full, lora, qlora or an object"),
        ("recipe", [], "give an object with the fields sequence_length"),
        ("cluster", {"gpu": "h100", "gpus": 0}, "give a whole number from 1 to"),
        ("cluster", {"gpu": "", "gpus": 1}, "give text of 1 to 200 characters"),
        ("cluster", {"preset": 1}, "give a name, in quotes"),
        ("cluster", {"preset": "dgx-h100", "nodes": 0}, "give a whole number from 1 to"),
        ("price", {"usd_per_gpu_hour": float("nan")}, "give a number from 0.0001 to below 1000000"),
        ("price", {"provider": "aws", "region": "us-east-1", "price_model": "free"}, "give one of on-demand, spot"),
    ],
)
def test_the_fix_says_what_would_be_right(catalogue: Catalogue, part: str, value: Any, fix: str) -> None:
    (found,) = refused(catalogue, {**BODY, part: value})
    assert found[2].startswith(fix)


def test_values_that_json_cannot_spell_are_refused(catalogue: Catalogue) -> None:
    for value in ({"sequence_length": object()}, {"sequence_length": 1, "stack": "\ud800"}):
        assert [code for _, code, _ in refused(catalogue, {**BODY, "recipe": value})] == ["not_json"]


def test_a_wrong_cluster_hides_no_wrong_price(catalogue: Catalogue) -> None:
    body = {**BODY, "cluster": {"gpu": "h900", "gpus": 8}, "price": {"provider": "aws", "region": 5}}
    fields = [field for field, _, _ in refused(catalogue, body)]
    assert fields == ["cluster.gpu", "price.region", "price.price_model"]
