"""Are rows of throughput asked as their sources mean them?"""

from collections import Counter

import pytest

from service.calibration.tables import MeasuredRow, NotExpressible, shipped_rows
from service.catalogue import shipped_catalogue
from service.evaluation.frameworks import framework_of, network_bytes_per_s
from service.evaluation.judging import APART, Judged, figure_of, is_told, judge_step
from service.evaluation.rows import draft_of, question_of
from tests.evaluation.rows import ROWS, step_of

CATALOGUE = shipped_catalogue()
FOUNDRY = "T-llmfoundry-0001"
TITAN = "T-torchtitan-0001"
BRIDGE = "T-mbridge-0001"
KORTHIKANTI = "T-korthikanti2022_t5-0009"


def test_the_rows_told_in_full_are_those_that_the_table_counts() -> None:
    told = [row for row in shipped_rows("throughput") if is_told(row)]
    assert Counter(row.text("moe_experts") not in ("", "0") for row in told) == {False: 467, True: 38}


def test_every_row_told_in_full_is_compared(steps: tuple[Judged, ...]) -> None:
    assert [one.row.text("id") for one in steps if one.is_told and one.comparison is None] == []


def test_every_other_row_is_compared_or_has_a_reason(steps: tuple[Judged, ...]) -> None:
    assert len(steps) == len(shipped_rows("throughput")) == 1278
    assert all(bool(one.reason) != (one.comparison is not None) for one in steps)


@pytest.mark.parametrize(
    ("column", "said"),
    [("score_class", "B"), ("training_kind", "lora"), ("superseded", "1"), ("recompute", "unknown"), ("recompute", "")],
)
def test_a_row_that_tells_less_judges_nobody(column: str, said: str) -> None:
    assert is_told(step_of(TITAN))
    assert not is_told(step_of(TITAN, **{column: said}))


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
    gpu = question_of(step_of(TITAN), CATALOGUE)[0].gpu
    cluster = question_of(step_of(TITAN), CATALOGUE)[0].cluster
    assert (cluster.power_limit_watts, gpu.memory_bytes_per_s) == (500.0, 2.4e12)
    _, nearly = question_of(step_of(TITAN, gpu="B200 (power limited)", gpu_mem_gb="180"), CATALOGUE)
    assert "gpu: B200 (power limited)" in nearly


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
    row = next(row for row in shipped_rows("throughput") if "SHARD_GRAD_OP" in row.text("sharding") and is_told(row))
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
    assert draft_of(step_of(TITAN, other_features="async TP"), CATALOGUE).stack["tensor_overlap"] is True


def test_checkpointing_of_every_second_layer_is_a_block_of_half() -> None:
    rule = draft_of(step_of(TITAN, recompute="selective (every 2nd layer)"), CATALOGUE).recipe["recompute"]
    assert rule == {"granularity": "full", "method": "block", "layers": 16}


def test_recompute_that_stands_in_recipes_is_theirs() -> None:
    said = {"recompute": "unknown(see perf_recipes)"}
    draft = draft_of(step_of(BRIDGE, **said), CATALOGUE)
    assert draft.recipe["recompute"]["modules"] == ["mla_up_proj"]
    assert draft.nearly == ["recompute: that of the model's recipes of other releases"]
    with pytest.raises(NotExpressible, match="missing: recompute"):
        draft_of(step_of(FOUNDRY, **said), CATALOGUE)


def test_a_step_is_what_all_figures_give_before_what_is_printed() -> None:
    assert figure_of(step_of(TITAN, step_time_s="3")) == "derived_step_time_s"
    assert figure_of(step_of(TITAN, derived_step_time_s="", step_time_s="3")) == "step_time_s"
    assert figure_of(step_of("T-nanotron-0001")) == "implied_step_time_s"
    with pytest.raises(NotExpressible, match="missing: derived_step_time_s"):
        figure_of(step_of(TITAN, derived_step_time_s="", mfu_pct="40"))


def test_mfu_alone_is_a_time_by_the_convention_of_its_source() -> None:
    one = judge_step(step_of(KORTHIKANTI), CATALOGUE)
    per_token = 72 * 105 * 20480**2 * (1 + 2048 / (6 * 20480) + 51200 / (12 * 105 * 20480))
    assert one.measured == pytest.approx(2240 * 2048 * per_token / (0.542 * 312e12 * 2240), rel=1e-3)
    other = judge_step(step_of(KORTHIKANTI, peak_tflops_denominator=""), CATALOGUE)
    assert other.reason == "missing: peak_tflops_denominator"


def test_what_is_counted_apart_says_so() -> None:
    classes = {judge_step(step_of(name), CATALOGUE).figure_class for name in ("T-mtnlg-0001", "T-megatron2021_t2-0001")}
    assert classes == {APART}
    assert judge_step(step_of(FOUNDRY), CATALOGUE).figure_class == "other stack"
    assert judge_step(step_of("T-megatron2021_t1-0001"), CATALOGUE).figure_class == "known stack"
