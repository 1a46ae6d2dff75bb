"""Public recipes beside the rows that ran them."""

import re
from dataclasses import replace

import pytest

from service.calibration.tables import MeasuredRow, shipped_rows
from service.catalogue import shipped_catalogue
from service.estimator import estimate
from service.estimator.question import Question
from service.evaluation.questions import draft_of, question_of
from service.evaluation.recipes import RunRecipe, completed, run_recipes
from tests.evaluation.rows import ROWS, row_of

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
    rows = (*shipped_rows(), NANO)
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
