"""Columns of published rows are read as their sources define them."""

from collections import Counter
from dataclasses import replace

import pytest

from service.calibration.tables import MeasuredRow, NotExpressible, shipped_rows
from service.catalogue import shipped_catalogue
from service.estimator.question import Recompute, Software
from service.evaluation.frameworks import framework_of, frameworks, layers_by_cost, table_of
from service.evaluation.questions import (
    UNSTATED_PART,
    draft_of,
    gpu_slug,
    network_bytes_per_s,
    offload_of,
    question_of,
)
from service.evaluation.recipes import completed
from service.evaluation.scoring import (
    APART,
    SOURCES,
    Evaluation,
    convention_of,
    evaluate_row,
    evaluate_step,
    figure_of,
    is_complete,
    known_differences,
    measured_peak_bytes,
    measured_rank_of,
    measured_static_bytes,
    memory_class_of,
    rounding_fraction,
)
from service.formats.frameworks.megatron_core.megatron import layers_of_layout, layers_with_ends
from tests.evaluation.rows import ROWS, row_of, step_of

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
    assert all(known.stack["name"] and known.why for known in frameworks())


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
    assert measured_peak_bytes(row) == 50 * table_of(SOURCES)["conventions"]["bloom"]["unit_bytes"]
    assert all(convention["why"] for convention in table_of(SOURCES)["conventions"].values())


@pytest.mark.parametrize(("source", "is_known"), [("bloom", False), ("qwen_readme", False), ("nanotron", True)])
def test_a_source_says_whether_its_unit_is_known(source: str, is_known: bool) -> None:
    row = next(row for row in ROWS.values() if row.text("source_key") == source)
    given = convention_of(row)
    assert (given.other_unit_bytes is None) == is_known
    assert rounding_fraction(row) == pytest.approx(given.rounding_bytes / 2 / (measured_peak_bytes(row) or 0))


def test_every_known_difference_is_of_one_shipped_row_and_has_a_reason() -> None:
    groups = table_of("known_differences.toml")["difference"]
    assert len(known_differences()) == sum(len(group["rows"]) for group in groups)
    steps = {row.text("id") for row in shipped_rows("throughput")}
    assert known_differences().keys() <= ROWS.keys() | steps
    assert all(known_differences().values())


def test_a_sum_over_gpus_is_shared_by_them() -> None:
    row = row_of(QWEN, peak_mem_reported="139.2", n_gpus="2")
    assert measured_peak_bytes(row) == pytest.approx(
        69.6 * table_of(SOURCES)["conventions"]["qwen_readme"]["unit_bytes"]
    )


@pytest.mark.parametrize(
    ("name", "stack", "zero_stage", "is_complete"),
    [
        ("M-qwen_readme-0001", "transformers", 0, True),
        ("M-qwen_readme-0013", "deepspeed", 2, True),
        ("M-qwen_readme-0019", "deepspeed", 3, False),
        ("M-qwen_readme-0043", "deepspeed", 3, True),
    ],
)
def test_scripts_name_a_stage_for_one_gpu_or_leave_it_open(
    name: str, stack: str, zero_stage: int, is_complete: bool
) -> None:
    question, unmodelled = question_of(ROWS[name], CATALOGUE)
    assert isinstance(question.recipe.stack, Software)
    assert (question.recipe.stack.name, question.layout.zero_stage) == (stack, zero_stage)
    assert any(detail.startswith(UNSTATED_PART) for detail in unmodelled) != is_complete
    assert evaluate_row(ROWS[name], CATALOGUE)[0].is_complete == is_complete


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
    assert measured_rank_of(row_of(mem_rank=rank)) == place


@pytest.mark.parametrize(
    ("text", "memory_class"),
    [
        ("torch reserved", "reserved"),
        ("nvidia-smi like", "device"),
        ("exact bytes", "allocated"),
        ("not told", "allocated"),
    ],
)
def test_class_is_said_or_decided(text: str, memory_class: str) -> None:
    assert memory_class_of(row_of(mem_class=text)) == memory_class


def test_the_embedding_counts_as_a_layer_where_the_run_said_so() -> None:
    layout = draft_of(row_of(BLOOM), CATALOGUE).layout
    assert (layout["embedding_in_split"], layout["loss_in_split"]) == (True, True)


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("", "none"),
        ("CPU offload of params, grads, optimizer", "model"),
        ("optimizer_offload_100pct", "optimizer"),
        ("AdamW on CPU", "optimizer"),
        ("activation", "activations"),
    ],
)
def test_offload_is_what_moves(text: str, choice: str) -> None:
    assert offload_of(row_of(offload=text)) == choice


@pytest.mark.parametrize("text", ["optimizer_offload_25pct", "activation_offload_24_layers", "something"])
def test_offload_of_a_part_is_a_reason(text: str) -> None:
    with pytest.raises(NotExpressible, match="offload"):
        offload_of(row_of(offload=text))


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


FOUNDRY = "T-llmfoundry-0001"
STEP_TITAN = "T-torchtitan-0001"
BRIDGE = "T-mbridge-0001"
KORTHIKANTI = "T-korthikanti2022_t5-0009"


def test_the_rows_told_in_full_are_those_that_the_table_counts() -> None:
    stated = [row for row in map(completed, shipped_rows("throughput")) if is_complete(row)]
    assert Counter(row.text("moe_experts") not in ("", "0") for row in stated) == {False: 551, True: 68}


def test_every_row_told_in_full_is_compared(steps: tuple[Evaluation, ...]) -> None:
    assert [one.row.text("id") for one in steps if one.is_complete and one.comparison is None] == []


def test_every_other_row_is_compared_or_has_a_reason(steps: tuple[Evaluation, ...]) -> None:
    assert len(steps) == len(shipped_rows("throughput")) == 1372
    assert all(bool(one.reason) != (one.comparison is not None) for one in steps)


@pytest.mark.parametrize(
    ("column", "text"),
    [("score_class", "B"), ("training_kind", "lora"), ("superseded", "1"), ("recompute", "unknown"), ("recompute", "")],
)
def test_a_row_that_tells_less_judges_nobody(column: str, text: str) -> None:
    assert is_complete(step_of(STEP_TITAN))
    assert not is_complete(step_of(STEP_TITAN, **{column: text}))


@pytest.mark.parametrize(
    ("words", "gigabytes_per_s"),
    [
        ("NVLink; RoCE 1600Gbps/node", 25.0),
        ("NVLink3/NVSwitch; 8x HDR IB 200Gb/s per node (Selene)", 25.0),
        ("NVLink3; HDR IB (Selene)", 25.0),
        ("NVLink; RDMA 400Gb/s per GPU (Grand Teton)", 50.0),
        ("NVLink3; Omni-Path 4x100Gb/s per node (Jean Zay)", 6.25),
        ("NVLink2; InfiniBand 100Gb/s per node", 1.5625),
        ("NVLink4; IB NDR 400Gb/s per GPU (DGX H100)", 50.0),
        ("NVLink4; EFA 3200Gb/s per node (AWS p5; from memory)", 50.0),
    ],
)
def test_networks_are_those_that_are_named(words: str, gigabytes_per_s: float) -> None:
    found = network_bytes_per_s(MeasuredRow(1, {"interconnect": words, "gpus_per_node": "8"}))
    assert found == gigabytes_per_s * 1e9


@pytest.mark.parametrize("words", ["", "NVLink5; IB", "NVL72 NVLink5", "NVLink; inter-node not told"])
def test_a_network_without_a_rate_is_the_usual_one(words: str) -> None:
    assert network_bytes_per_s(MeasuredRow(1, {"interconnect": words})) is None
    assert "inter_node_bytes_per_s" not in draft_of(step_of(FOUNDRY, interconnect=words), CATALOGUE).cluster


def test_a_power_cap_and_older_memory_are_the_gpus() -> None:
    gpu = question_of(step_of(STEP_TITAN), CATALOGUE)[0].gpu
    cluster = question_of(step_of(STEP_TITAN), CATALOGUE)[0].cluster
    assert (cluster.power_limit_watts, gpu.memory_bytes_per_s) == (500.0, 2.4e12)
    _, unmodelled = question_of(step_of(STEP_TITAN, gpu="B200 (power limited)", gpu_mem_gb="180"), CATALOGUE)
    assert "gpu: B200 (power limited)" in unmodelled


def test_megatron_before_its_core_has_its_own_layers() -> None:
    draft = draft_of(step_of("T-megatron2021_t1-0001"), CATALOGUE)
    assert draft.stack["implementation"] == "local"
    assert (draft.recipe["attention"], draft.recipe["gradient_dtype"]) == ("eager", "fp16")
    assert draft.model["position_embedding_rows"] == 2048


def test_a_compiler_stands_for_time_and_not_for_memory() -> None:
    row = next(row for row in shipped_rows("throughput") if row.text("framework").startswith("OneFlow"))
    assert framework_of(row).stack["name"] == "megatron-core"
    memory = next(row for row in ROWS.values() if row.text("framework").startswith("OneFlow"))
    with pytest.raises(NotExpressible, match="no stack stands for it"):
        framework_of(memory)


def test_weights_that_stay_gathered_until_the_backward_pass() -> None:
    row = next(
        row for row in shipped_rows("throughput") if "SHARD_GRAD_OP" in row.text("sharding") and is_complete(row)
    )
    layout = draft_of(row, CATALOGUE).layout
    assert (layout["zero_stage"], layout["reshard_after_forward"]) == (3, False)


def test_a_shard_group_is_smaller_than_the_data_group() -> None:
    sharding = {"sharding": "ZeRO-1 group 8"}
    wide = next(row for row in shipped_rows("throughput") if row.text("id") == "T-internevo-0016")
    assert wide.text("sharding") == sharding["sharding"]
    assert draft_of(wide, CATALOGUE).layout["shard_group"] == 8
    assert "shard_group" not in draft_of(step_of("T-internevo-0009", **sharding), CATALOGUE).layout


@pytest.mark.parametrize(
    ("cells", "layout"),
    [
        ({"pp": "8", "vpp": "3", "layers": "94"}, {"embedding_in_split": True, "loss_in_split": True}),
        ({"pp": "2", "vpp": "8", "layers": "61"}, {"stage_layers": [*(4,) * 15, 1]}),
    ],
)
def test_layers_of_the_bridge_fill_uneven_chunks(cells: dict[str, str], layout: dict[str, object]) -> None:
    found = draft_of(step_of(BRIDGE, dp="32", **cells), CATALOGUE).layout
    assert found | layout == found


def test_depths_are_trained_unless_the_row_says_without() -> None:
    assert draft_of(step_of(BRIDGE), CATALOGUE).model["num_nextn_predict_layers"] == 1
    without = draft_of(step_of(BRIDGE, other_features="variant: w/o MTP"), CATALOGUE)
    assert "num_nextn_predict_layers" not in without.model


def test_latent_widths_are_read_in_both_spellings() -> None:
    model = draft_of(step_of(BRIDGE), CATALOGUE).model
    assert (model["q_lora_rank"], model["kv_lora_rank"], model["v_head_dim"]) == (1536, 512, 128)


@pytest.mark.parametrize(("gpu", "recipe"), [("GB200", "mxfp8"), ("B200", "mxfp8"), ("H100-SXM", "fp8-blockwise")])
def test_a_column_of_two_fp8_recipes_means_that_of_the_generation(gpu: str, recipe: str) -> None:
    row = step_of(BRIDGE, precision="fp8_subchannel/mx", gpu=gpu)
    assert draft_of(row, CATALOGUE).recipe["precision"] == recipe


def test_the_default_of_several_optimizers_is_meant() -> None:
    assert draft_of(step_of(FOUNDRY), CATALOGUE).recipe["optimizer"] == "adamw"


def test_features_have_nouns_or_are_told_beside() -> None:
    dropped = draft_of(step_of(BRIDGE, other_features="tokendrop; Muon optimizer"), CATALOGUE)
    assert (dropped.recipe["expert_capacity_factor"], dropped.recipe["optimizer"]) == (1.0, "muon")
    assert draft_of(step_of(STEP_TITAN, other_features="async TP"), CATALOGUE).stack["tensor_overlap"] is True


def test_checkpointing_of_every_second_layer_is_a_block_of_half() -> None:
    rule = draft_of(step_of(STEP_TITAN, recompute="selective (every 2nd layer)"), CATALOGUE).recipe["recompute"]
    assert rule == {"granularity": "full", "method": "block", "layers": 16}


@pytest.mark.parametrize("detail", ["block 21", "full recompute of the first 21 layers (block)"])
def test_recompute_of_the_first_layers_is_a_block_of_them(detail: str) -> None:
    question, _ = question_of(step_of("N-mlperf_v50-0001", recompute_detail=detail), CATALOGUE)
    assert question.recipe.recompute == Recompute(granularity="full", method="block", layers=21)


def test_recompute_that_stands_in_recipes_is_theirs() -> None:
    text = {"recompute": "unknown(see perf_recipes)", "framework_version": ""}
    draft = draft_of(step_of(BRIDGE, **text), CATALOGUE)
    assert draft.recipe["recompute"]["modules"] == ["mla_up_proj"]
    assert draft.unmodelled == ["recompute: that of the model's recipes of other releases"]
    with pytest.raises(NotExpressible, match="missing: recompute"):
        draft_of(step_of(FOUNDRY, **text), CATALOGUE)


def test_a_step_is_what_all_figures_give_before_what_is_printed() -> None:
    assert figure_of(step_of(STEP_TITAN, step_time_s="3")) == "derived_step_time_s"
    assert figure_of(step_of(STEP_TITAN, derived_step_time_s="", step_time_s="3")) == "step_time_s"
    assert figure_of(step_of("T-nanotron-0001")) == "implied_step_time_s"
    with pytest.raises(NotExpressible, match="missing: derived_step_time_s"):
        figure_of(step_of(STEP_TITAN, derived_step_time_s="", mfu_pct="40"))


def test_mfu_alone_is_a_time_by_the_convention_of_its_source() -> None:
    one = evaluate_step(step_of(KORTHIKANTI), CATALOGUE)
    per_token = 72 * 105 * 20480**2 * (1 + 2048 / (6 * 20480) + 51200 / (12 * 105 * 20480))
    assert one.measured == pytest.approx(2240 * 2048 * per_token / (0.542 * 312e12 * 2240), rel=1e-3)
    other = evaluate_step(step_of(KORTHIKANTI, peak_tflops_denominator=""), CATALOGUE)
    assert other.reason == "missing: peak_tflops_denominator"


def test_what_is_counted_apart_says_so() -> None:
    classes = {
        evaluate_step(step_of(name), CATALOGUE).figure_class for name in ("T-mtnlg-0001", "T-megatron2021_t2-0001")
    }
    assert classes == {APART}
    assert evaluate_step(step_of(FOUNDRY), CATALOGUE).figure_class == "other stack"
    assert evaluate_step(step_of("T-megatron2021_t1-0001"), CATALOGUE).figure_class == "known stack"
