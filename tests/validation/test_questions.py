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


def test_nodes_of_a_gpu_are_its_size(catalogue: Catalogue) -> None:
    for cluster, gpus in [
        ({"gpu": "h100", "nodes": 2}, 16),
        ({"gpu": "h100", "nodes": 2, "gpus": 16}, 16),
        ({"gpu": "h100", "nodes": 3, "gpus_per_node": 4}, 12),
    ]:
        assert read(catalogue, cluster=cluster).question.cluster.gpus == gpus


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


def test_a_number_that_is_none_is_refused(catalogue: Catalogue) -> None:
    ((_, _, fix),) = refused(catalogue, {**BODY, "price": {"usd_per_gpu_hour": float("nan")}})
    assert fix.startswith("give a number from 0.0001 to below 1000000")


def test_values_that_json_cannot_spell_are_refused(catalogue: Catalogue) -> None:
    for value in ({"sequence_length": object()}, {"sequence_length": 1, "stack": "\ud800"}):
        assert [code for _, code, _ in refused(catalogue, {**BODY, "recipe": value})] == ["not_json"]
