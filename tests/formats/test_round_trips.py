"""A written file reads back the same: degrees, batches and recompute of random questions."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from service.answers.exports import Imported
from service.catalogue import shipped_catalogue
from service.estimator import Layout, Recipe
from service.estimator.complete import CompleteQuestion
from service.estimator.question import Normalization, Software
from service.estimator.resolve import resolve
from service.estimator.software.stacks import STACKS
from service.estimator.workload import recompute_of
from service.features.estimates.answers import answer
from service.features.exports.exports import export, import_file, with_replicas
from service.formats.rules import ExportedFile, ExportRequest
from service.formats.targets import FORMATS, TARGETS
from service.validation.questions import read_question
from tests.ask import question
from tests.estimator.legal_questions import questions
from tests.estimator.small_models import DENSE
from tests.formats.round_trips import read_content, trips

DEGREES = ("data", "tensor", "context", "pipeline", "virtual_pipeline", "expert", "expert_tensor", "zero_stage")
BATCHES = ("sequence_length", "micro_batch", "global_batch")
CATALOGUE = shipped_catalogue()


def read_back(name: str, resolved: CompleteQuestion) -> tuple[ExportedFile, Imported]:
    """The file that a question with every default filled is written as, and what that says."""
    written = TARGETS[name].write(ExportRequest(question=resolved, version=next(iter(TARGETS[name].versions))))
    return written, import_file(name, written.content)


def differences(resolved: CompleteQuestion, written: ExportedFile, found: Imported) -> dict[str, Any]:
    """Degrees, batches and recompute that the file was to hold and that came back otherwise."""
    listed = {one.field for one in written.not_expressible}
    recipe, stated = with_replicas(found, found.recipe, found.layout, resolved.cluster.gpus)
    layout: Mapping[str, Any] = {"pipeline": 1, "virtual_pipeline": 1, "expert": 1, "zero_stage": 0, **stated}
    left_out = set() if "data" in stated else {"layout.data"}  # it follows from the number of processes
    if resolved.layout.expert == 1 or "expert_tensor" not in layout:
        left_out.add("layout.expert_tensor")
    if resolved.layout.shard_group == 1:
        left_out.add("layout.zero_stage")  # one rank that shards is one that does not
    wanted = {f"layout.{field}": getattr(resolved.layout, field) for field in DEGREES}
    wanted |= {f"recipe.{field}": getattr(resolved.recipe, field) for field in BATCHES}
    got = {f"layout.{field}": layout.get(field) for field in DEGREES}
    got |= {f"recipe.{field}": recipe.get(field) for field in BATCHES}
    wanted["recipe.recompute"] = recompute_of(resolved.recipe).granularity
    said = recipe["recompute"]
    got["recipe.recompute"] = said if isinstance(said, str) else said["granularity"]
    return {
        field: (wanted[field], got[field]) for field in wanted.keys() - listed - left_out if wanted[field] != got[field]
    }


@settings(max_examples=200)
@given(asked=questions())
def test_degrees_batches_and_recompute_come_back(asked: CompleteQuestion) -> None:
    resolved = resolve(asked).question
    for name in STACKS_OF:
        written, found = read_back(name, resolved)
        assert differences(resolved, written, found) == {}, name
        assert found.unknown == (), name


def test_weights_that_a_pipeline_always_frees_come_back() -> None:
    layout = Layout(data=8, pipeline=2, zero_stage=3, reshard_after_forward=True)
    recipe = Recipe(sequence_length=1024, global_batch=32, stack="torchtitan")
    written, found = read_back("torchtitan", resolve(question(DENSE, recipe, layout, gpus=16)).question)
    assert 'fsdp_reshard_after_forward = "always"' in written.content
    assert found.layout["reshard_after_forward"] is True


@pytest.mark.parametrize("kind", ["rmsnorm", "rmsnorm_1p", "layernorm"])
def test_norms_come_back_from_options_of_megatron(kind: Normalization) -> None:
    model = replace(DENSE, normalization=kind)
    recipe = Recipe(sequence_length=1024, global_batch=8, stack="megatron-core")
    written, found = read_back("megatron-lm", resolve(question(model, recipe)).question)
    assert ("--apply-layernorm-1p" in written.content) == (kind == "rmsnorm_1p")
    assert isinstance(found.model, Mapping)
    assert found.model["normalization"] == kind
    assert found.unknown == ()


@pytest.mark.parametrize("chosen", [None, False, True])
@pytest.mark.parametrize("moments", [None, "bf16"])
def test_how_an_optimizer_reads_gradients_comes_back_from_megatron(moments: Any, chosen: bool | None) -> None:
    stack = Software(name="megatron-core", decoupled_gradients=chosen)
    recipe = Recipe(sequence_length=1024, global_batch=8, stack=stack, moment_dtype=moments)
    _, found = read_back("megatron-lm", resolve(question(DENSE, recipe)).question)
    stack_found = found.recipe["stack"]
    assert isinstance(stack_found, Mapping)
    assert bool(stack_found.get("decoupled_gradients")) == (moments is not None if chosen is None else chosen)


@pytest.mark.parametrize(
    ("line", "recipe"),
    [
        ("cfg.mixed_precision.grad_reduce_in_fp32 = False", {"gradient_dtype": "bf16"}),
        ("cfg.mixed_precision.grad_reduce_in_fp32 = True", {"precision": "fp16-mixed", "gradient_dtype": "fp32"}),
        ("cfg.ddp.grad_reduce_in_fp32 = True", {"precision": "fp32"}),
        ('cfg.mixed_precision.fp8_recipe = "delayed"', {"moment_dtype": "bf16"}),
    ],
)
def test_mixed_precision_of_megatron_bridge_is_set_where_it_decides(line: str, recipe: dict[str, Any]) -> None:
    asked = Recipe(sequence_length=1024, global_batch=8, stack="megatron-core", **recipe)
    resolved = resolve(question(DENSE, asked)).question
    written = TARGETS["megatron-bridge"].write(ExportRequest(question=resolved, version="0.7"))
    assert f"    {line}\n" in written.content


def test_what_precision_recipes_of_megatron_bridge_turn_on_is_set_as_asked() -> None:
    recipe = Recipe(sequence_length=1024, global_batch=8, stack="megatron-core", precision="fp8-tensorwise")
    asked = resolve(question(DENSE, recipe, Layout(zero_stage=1), gpus=8)).question
    written = TARGETS["megatron-bridge"].write(ExportRequest(question=asked, version="0.7"))
    assert "cfg.mixed_precision.first_last_layers_bf16 = False\n" in written.content
    assert "cfg.mixed_precision.fp8_param_gather = False\n" in written.content


@pytest.mark.parametrize("name", ["megatron-lm", "megatron-bridge"])
def test_scaling_that_leaves_masters_to_megatron_core_copies_gradients(name: str) -> None:
    stack = Software(name="megatron-core", decoupled_gradients=True)
    recipe = Recipe(sequence_length=1024, global_batch=8, stack=stack, precision="fp8-blockwise")
    resolved = resolve(question(DENSE, recipe)).question
    written = TARGETS[name].write(ExportRequest(question=resolved, version=next(iter(TARGETS[name].versions))))
    assert "recipe.stack.decoupled_gradients" in {one.field for one in written.not_expressible}


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_all_that_a_file_does_not_list_comes_back(name: str) -> None:
    for trip in trips(name, 40 if name in FORMATS else 4):
        assert trip.unlisted == {}, name


@pytest.mark.parametrize("model", ["llama-3.1-8b", "llama-2-7b", "qwen3-30b-a3b", "deepseek-v3"])
@pytest.mark.parametrize("name", ["megatron-lm", "sbatch", "jobset"])
def test_a_question_about_a_preset_keeps_its_id(name: str, model: str) -> None:
    body: dict[str, Any] = {
        "model": model,
        "recipe": {
            "sequence_length": 4096,
            "global_batch": 64,
            "training_tokens": 4096 * 64 * 1e3,
            "recompute": "full",
        },
        "layout": {"tensor": 2, "pipeline": 1},
        "cluster": {"gpu": "h100", "gpus": 16},
    }
    own = answer(read_question(body, CATALOGUE), CATALOGUE)
    written = export(body, CATALOGUE, TARGETS[name], next(iter(TARGETS[name].versions)))
    found = read_content(name, written.content)
    recipe, layout = with_replicas(found, found.recipe, found.layout, 16)
    again = {"model": found.model, "recipe": recipe, "layout": layout, "cluster": body["cluster"]}
    assert written.not_expressible == ()
    assert found.model == model
    assert answer(read_question(again, CATALOGUE), CATALOGUE).id == own.id


def test_tokens_that_are_no_whole_number_of_steps_are_listed() -> None:
    recipe = Recipe(sequence_length=1000, global_batch=10, training_tokens=1.5e4, stack="torchtitan")
    written, found = read_back("torchtitan", resolve(question(DENSE, recipe)).question)
    (gap,) = [one for one in written.not_expressible if one.field == "recipe.training_tokens"]
    assert "2 x 10,000 tokens, 5,000 more" in gap.message
    assert found.recipe["training_tokens"] == 2e4


STACKS_OF = {
    "megatron-lm": "megatron-core",
    "megatron-bridge": "megatron-core",
    "nanotron": "nanotron",
    "torchtitan": "torchtitan",
    "deepspeed": "deepspeed",
    "accelerate": "transformers",
}


def test_every_format_belongs_to_a_stack_that_is_known() -> None:
    assert set(STACKS_OF.values()) <= STACKS.keys()
    assert TARGETS.keys() & FORMATS.keys() == STACKS_OF.keys()


@pytest.mark.parametrize("version", ["0.2", "0.3"])
def test_exchanges_in_pieces_are_not_written_for_torchtitan_without_compiled_layers(version: str) -> None:
    stack = Software(name="torchtitan", implementation="eager", cross_entropy="compiled", tensor_overlap=True)
    recipe = Recipe(sequence_length=2048, global_batch=8, stack=stack)
    asked = resolve(question(DENSE, recipe, Layout(tensor=2, sequence_parallel=True), gpus=4)).question
    written = TARGETS["torchtitan"].write(ExportRequest(question=asked, version=version))
    assert "async" not in written.content
    assert "recipe.stack.tensor_overlap" in {one.field for one in written.not_expressible}


@pytest.mark.parametrize(
    ("layout", "kind", "listed"),
    [
        (Layout(tensor=2, zero_stage=0), "FSDP", {"layout.zero_stage"}),
        (Layout(tensor=8, zero_stage=0), "MULTI_GPU", set()),
        (Layout(tensor=2, zero_stage=3), "FSDP", set()),
        (Layout(zero_stage=3, shard_group=1), "MULTI_GPU", {"layout.zero_stage"}),
    ],
)
def test_accelerate_has_no_whole_replicas_beside_tensor_ranks(layout: Layout, kind: str, listed: set[str]) -> None:
    recipe = Recipe(sequence_length=1024, global_batch=8, stack="transformers")
    written, found = read_back("accelerate", resolve(question(DENSE, recipe, layout, gpus=8)).question)
    assert f"distributed_type: {kind}\n" in written.content
    assert {one.field for one in written.not_expressible if not one.left_open} == listed
    assert found.layout["tensor"] * found.layout["data"] == 8


def test_deepspeed_counts_the_batch_of_autotp_itself() -> None:
    recipe = Recipe(sequence_length=1024, global_batch=8, stack="deepspeed")
    resolved = resolve(question(DENSE, recipe, Layout(tensor=2), gpus=8)).question
    written, found = read_back("deepspeed", resolved)
    assert "train_batch_size" not in written.content
    assert (found.accumulation_steps, found.recipe["micro_batch"]) == (2, 1)
