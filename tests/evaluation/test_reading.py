"""Are other columns read as their sources mean them?"""

from dataclasses import replace

import pytest

from service.calibration.tables import NotExpressible, shipped_rows
from service.catalogue import shipped_catalogue
from service.evaluation.drafts import layers_by_cost
from service.evaluation.frameworks import FRAMEWORKS, framework_of
from service.evaluation.gpus import gpu_slug
from service.evaluation.recipes import offload_of
from service.evaluation.rows import draft_of, question_of
from service.evaluation.sources import (
    UNSAID,
    measured_peak_bytes,
    measured_static_bytes,
    memory_class_of,
    place_of,
)
from service.formats.frameworks.megatron_model import layers_of_layout, layers_with_ends
from tests.evaluation.rows import row_of

CATALOGUE = shipped_catalogue()
TITAN = "M-torchtitan-0001"
BLOOM = "M-bloom-0080"
QWEN = "M-qwen_readme-0043"


@pytest.mark.parametrize(
    ("gpu", "size", "slug"),
    [
        ("A100-SXM", "40", "a100-sxm4-40gb"),
        ("A100-SXM4", "80", "a100-sxm4-80gb"),
        ("H100-SXM (HBM2e, 500 W cap)", "96", "h100-sxm5-80gb"),
        ("V100-SXM2", "16", "v100-sxm2-16gb"),
        ("B200 (power limited)", "180", "b200-sxm-180gb"),
        ("GB200", "186", "gb200-186gb"),
        ("Blackwell 184 GiB class (model not named)", "192", "gb200-186gb"),
        ("A10G", "24", "a10g"),
        ("RTX 4090", "24", "rtx-4090"),
        ("A6000", "48", "rtx-a6000"),
    ],
)
def test_gpu_is_the_one_of_its_family_and_size(gpu: str, size: str, slug: str) -> None:
    assert gpu_slug(row_of(gpu=gpu, gpu_mem_gb=size), CATALOGUE) == slug


def test_a_gpu_of_another_size_has_that_much_memory() -> None:
    question, _ = question_of(row_of(TITAN), CATALOGUE)
    assert question.gpu.memory_bytes == 96 * (1 << 30)
    assert question.gpu.usable_bytes < question.gpu.memory_bytes


def test_an_unknown_gpu_is_a_reason() -> None:
    with pytest.raises(NotExpressible, match="gpu: not in the catalogue"):
        gpu_slug(row_of(gpu="Abacus 9"), CATALOGUE)


def test_every_framework_has_a_stack_and_says_why() -> None:
    assert all(known.stack["name"] and known.why for known in FRAMEWORKS)


def test_a_framework_without_a_stack_is_a_reason() -> None:
    with pytest.raises(NotExpressible, match="framework"):
        framework_of(row_of(framework="MaxText (JAX)"))


@pytest.mark.parametrize(
    ("unit", "printed", "expected"),
    [
        ("GiB", "2", 2.0 * (1 << 30)),
        ("GB=1e9 bytes", "2", 2e9),
        ("bytes", "7", 7.0),
        ("MiB (printed MB)", "2", 2.0 * (1 << 20)),
    ],
)
def test_units_are_those_that_are_printed(unit: str, printed: str, expected: float) -> None:
    assert measured_peak_bytes(row_of(peak_mem_unit=unit, peak_mem_reported=printed)) == expected


def test_an_unknown_unit_is_a_reason() -> None:
    with pytest.raises(NotExpressible, match="unit: not known"):
        measured_peak_bytes(row_of(peak_mem_unit="firkin"))


def test_an_unknown_base_is_decided_once_for_its_source() -> None:
    row = row_of(BLOOM, peak_mem_reported="50")
    assert measured_peak_bytes(row) == 50 * UNSAID["bloom"].unit_bytes
    assert all(reading.why for reading in UNSAID.values())


def test_a_sum_over_gpus_is_shared_by_them() -> None:
    row = row_of(QWEN, peak_mem_reported="139.2", n_gpus="2")
    assert measured_peak_bytes(row) == pytest.approx(69.6 * UNSAID["qwen_readme"].unit_bytes)


def test_no_figure_is_none() -> None:
    assert measured_peak_bytes(row_of(peak_mem_reported="")) is None
    assert measured_static_bytes(row_of(static_mem_gib="")) is None


@pytest.mark.parametrize(
    ("rank", "place"),
    [
        ("last global rank", "last"),
        ("rank 0 (log rank)", "first"),
        ("max", "fullest"),
        ("first/last pipeline node", "ends"),
    ],
)
def test_rank_is_a_stage(rank: str, place: str) -> None:
    assert place_of(row_of(mem_rank=rank)) == place


@pytest.mark.parametrize(
    ("said", "memory_class"),
    [
        ("torch reserved", "reserved"),
        ("nvidia-smi like", "device"),
        ("exact bytes", "allocated"),
        ("not told", "allocated"),
    ],
)
def test_class_is_said_or_decided(said: str, memory_class: str) -> None:
    assert memory_class_of(row_of(mem_class=said)) == memory_class


def test_the_embedding_counts_as_a_layer_where_the_run_said_so() -> None:
    layout = draft_of(row_of(BLOOM), CATALOGUE).layout
    assert (layout["embedding_in_split"], layout["loss_in_split"]) == (True, True)


@pytest.mark.parametrize(
    ("said", "choice"),
    [
        ("", "none"),
        ("CPU offload of params, grads, optimizer", "model"),
        ("optimizer_offload_100pct", "optimizer"),
        ("AdamW on CPU", "optimizer"),
        ("activation", "activations"),
    ],
)
def test_offload_is_what_moves(said: str, choice: str) -> None:
    assert offload_of(row_of(offload=said)) == choice


@pytest.mark.parametrize("said", ["optimizer_offload_25pct", "activation_offload_24_layers", "something"])
def test_offload_of_a_part_is_a_reason(said: str) -> None:
    with pytest.raises(NotExpressible, match="offload"):
        offload_of(row_of(offload=said))


@pytest.mark.parametrize("column", ["layers", "hidden", "heads", "vocab", "seq_len", "mbs", "tp", "dp", "recompute"])
def test_a_needed_column_that_is_empty_is_the_reason(column: str) -> None:
    with pytest.raises(NotExpressible, match=f"missing: {column}"):
        draft_of(row_of(TITAN, **{column: ""}), CATALOGUE)


def test_degrees_of_one_gpu_follow() -> None:
    layout = draft_of(row_of("M-litgpt-0054", tp="", pp="", dp=""), CATALOGUE).layout
    assert (layout["tensor"], layout["pipeline"], layout["data"]) == (1, 1, 1)


@pytest.mark.parametrize("written", ["Et||x", "(t|", "E[t]L", "t*99999"])
def test_a_layout_that_is_none_is_a_reason(written: str) -> None:
    with pytest.raises(NotExpressible, match="pipeline-model-parallel-layout"):
        layers_of_layout(written)


def test_a_layout_cannot_grow_without_end() -> None:
    with pytest.raises(NotExpressible, match="too long"):
        layers_of_layout("((((t*999)*999)*999)*999)*999")


def test_layers_are_dealt_out_whole() -> None:
    assert layers_with_ends(12, 4, None, 3) == (3, 3, 3, 3)
    assert sum(layers_by_cost(28, 4, 1.0, 7.0)) == 28
    with pytest.raises(NotExpressible, match="no even split"):
        layers_with_ends(12, 4, 20, None)


def test_adapters_may_stand_beside_trained_embeddings() -> None:
    row = next(row for row in shipped_rows() if "embedding" in row.text("trainable_params"))
    assert draft_of(row, CATALOGUE).recipe["method"]["whole"] == ["embedding", "head"]


def test_a_method_without_a_noun_is_a_reason() -> None:
    with pytest.raises(NotExpressible, match="training_kind: adapter has no noun"):
        draft_of(row_of(TITAN, training_kind="adapter"), CATALOGUE)


def test_a_refusal_of_the_border_is_a_reason() -> None:
    row = row_of(TITAN)
    with pytest.raises(NotExpressible, match=r"refused: model\.vocab_size"):
        question_of(replace(row, cells={**row.cells, "vocab": "900000000"}), CATALOGUE)
