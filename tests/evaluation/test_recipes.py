"""Public recipes beside the rows that ran them."""

import re
from dataclasses import replace

import pytest

from service.calibration.tables import MeasuredRow, shipped_rows
from service.catalogue import shipped_catalogue
from service.estimator import estimate
from service.estimator.question import Question
from service.evaluation.questions import draft_of, question_of
from service.evaluation.recipes import RunRecipe, completed, released_recipe_of, released_recipes, run_recipes
from tests.evaluation.rows import ROWS, row_of, step_of

CATALOGUE = shipped_catalogue()
NANO = MeasuredRow(
    1,
    {
        **{name: ROWS["M-mbridge_skills-0001"].text(name) for name in ("source_key", "framework", "gpu", "precision")},
        "model": "nemotron-3-nano-30b-a3b", "seq_len": "8192", "n_gpus": "16", "tp": "1", "pp": "1", "ep": "8",
        "dp": "16", "mbs": "1", "gbs": "16", "recompute": "selective", "recompute_detail": "moe",
    },
)  # fmt: skip
"""Nemotron 3 Nano on 16 H100, in Megatron-Bridge's study of recompute."""
OFFLOADED = "M-mbridge_skills-0031"
NONDETERMINISTIC = "M-megatron_functional-0289"


def question(row: MeasuredRow) -> Question:
    """The question of a row."""
    return question_of(row, CATALOGUE)[0]


def test_every_recipe_has_a_row_that_ran_it() -> None:
    rows = (*shipped_rows(), *shipped_rows("throughput"), NANO)
    unused = [run.source for run in run_recipes() if not any(run.holds(row) for row in rows)]
    assert unused == []


@pytest.mark.parametrize("run", run_recipes(), ids=lambda run: run.where.get("model", ""))
def test_a_recipe_names_repository_commit_and_path(run: RunRecipe) -> None:
    assert re.search(r"[\w.-]+/[\w.-]+@[0-9a-f]{6,} \S+", run.source)


def test_cells_of_a_recipe_fill_only_those_that_are_empty() -> None:
    row = row_of(OFFLOADED, mbs="2", config_missing="seq_len mbs gbs recompute heads")
    found = completed(row)
    assert (found.count("mbs"), found.count("seq_len"), found.text("recompute")) == (2, 4096, "full")
    assert found.text("config_missing") == "heads"
    assert completed(found) == found


def test_recompute_that_a_row_leaves_to_its_recipe_is_filled() -> None:
    row = ROWS["M-mbridge_skills-0034"]
    assert (row.text("recompute"), completed(row).text("recompute")) == ("see recipe", "none")


def test_a_row_without_a_recipe_stays_as_it_is() -> None:
    row = ROWS["M-nanotron-0001"]
    assert completed(row) is row


def test_a_hybrid_pattern_gives_the_layers_of_a_bridge_model() -> None:
    asked = question(NANO)
    assert [asked.model.layer_types.count(kind) for kind in ("mamba2", "full_attention", "none")] == [23, 6, 23]
    peaks = [
        estimate(question(replace(NANO, cells={**NANO.cells, "recompute_detail": modules}))).memory.allocated_peak_bytes
        for modules in ("moe", "moe layernorm")
    ]
    assert [peak.value for peak in peaks] == pytest.approx([64.653e9, 63.639e9], rel=0.005)


def test_fields_of_a_recipe_replace_those_of_its_framework() -> None:
    draft = draft_of(ROWS[OFFLOADED], CATALOGUE)
    assert (draft.recipe["gradient_dtype"], draft.layout["offload"]) == ("fp32", "moments")


@pytest.mark.parametrize(("gpu", "torch"), [("gb200", "2.11"), ("h100", None)])
def test_memory_recorded_with_an_older_torch_is_asked_of_it(gpu: str, torch: str | None) -> None:
    test = "gpt3_mcore_te_tp2_pp2_resume_torch_dist_cross_entropy_loss_fusion"
    row = next(row for row in ROWS.values() if f"/{test}/golden_values_dev_dgx_{gpu}.json" in row.text("source"))
    versions = question(row).recipe.stack.versions  # type: ignore[union-attr]
    assert (versions.torch if versions else None) == torch


@pytest.mark.parametrize("model", ["moe/gpt3_mcore_te_fine_grained_offloading", "hybrid/hybrid_mr_mcore_te_tp1"])
def test_a_test_whose_environment_asks_for_determinism_does(model: str) -> None:
    stacks = [draft_of(row_of(NONDETERMINISTIC, model=name), CATALOGUE).stack for name in ("plain", model)]
    assert [stack.get("deterministic") for stack in stacks] == [None, True]


BRIDGE = "T-mbridge-0106"
"""Qwen3 235B on H100 with NeMo 26.04.01."""


@pytest.mark.parametrize(
    ("name", "stack", "recompute"),
    [
        (BRIDGE, ("alltoall", True, False, False, False), "none"),
        ("T-mbridge-0096", ("alltoall", False, False, False, False), "selective"),
        ("T-mbridge-0001", ("flex", True, True, True, True), "none"),
        ("T-mbridge-0009", ("flex", True, True, True, True), "selective"),
        ("T-mbridge-0282", ("alltoall", False, False, False, False), "selective"),
        ("T-mbridge_cards-0068", ("flex", True, True, True, True), "none"),
    ],
)
def test_a_row_runs_the_recipe_of_its_release(name: str, stack: tuple[str | bool, ...], recompute: str) -> None:
    row = completed(step_of(name))
    fields = ("dispatcher", "expert_overlap", "cuda_graphs", "fused_experts", "fp8_attention")
    assert tuple(draft_of(row, CATALOGUE).stack[field] for field in fields) == stack
    assert row.text("recompute") == recompute


@pytest.mark.parametrize(
    "cells", [{"tp": "4"}, {"framework_version": ""}, {"model": "qwen3-1b"}, {"precision": "nvfp4"}]
)
def test_no_other_recipe_stands_in(cells: dict[str, str]) -> None:
    row = step_of(BRIDGE, **cells)
    assert released_recipe_of(row) is None
    assert completed(row) is row


def test_the_nearest_release_with_these_degrees_counts() -> None:
    releases = [
        released_recipe_of(step_of(BRIDGE, framework_version=f"NeMo container {at}")) for at in ("25.10", "99.01")
    ]
    assert [recipe.release for recipe in releases if recipe] == ["25.09", "26.04"]


def test_every_released_recipe_names_its_commit_and_changed_something() -> None:
    rows = released_recipes()
    assert all(re.fullmatch(r"[0-9a-f]{7,}", row.commit) for row in rows)
    assert len({replace(row, commit="") for row in rows}) == len(rows)


@pytest.mark.parametrize(
    ("cells", "path", "value"),
    [
        ({"other_features": "dispatcher DeepEP; +1f1b overlap; no cuda graphs"}, "stack.dispatcher", "flex"),
        ({"other_features": "dispatcher DeepEP; +1f1b overlap; no cuda graphs"}, "stack.expert_overlap", True),
        ({"other_features": "dispatcher DeepEP; +1f1b overlap; no cuda graphs"}, "stack.cuda_graphs", False),
        ({"other_features": "TE cuda graph attn+moe_router"}, "stack.cuda_graphs", True),
        ({"flash_attention": "yes (FA3)"}, "recipe.attention", "flash-3"),
        ({"flash_attention": "FlashAttention-4"}, "recipe.attention", "flash-4"),
        ({"sharding": "FSDP2 full shard + CPU offload of params/grads/optimizer"}, "layout.offload", "model"),
        ({"sharding": "ZeRO-3; CPU offload possible (not per run)"}, "layout.offload", "none"),
        ({"other_features": "optimizer_offload_100pct"}, "layout.offload", "optimizer"),
    ],
)
def test_software_in_words_is_asked(cells: dict[str, str], path: str, value: object) -> None:
    part, _, name = path.partition(".")
    assert getattr(draft_of(step_of("T-mcore_gb200_doc-0001", **cells), CATALOGUE), part)[name] == value


def test_adapters_have_the_rank_that_a_row_names_and_wide_frozen_weights() -> None:
    draft = draft_of(step_of("N-mlperf_v50-0001"), CATALOGUE)
    assert (draft.recipe["method"]["rank"], "fp8_weights" in draft.recipe) == (16, False)
