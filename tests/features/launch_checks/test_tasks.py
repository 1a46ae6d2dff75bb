"""Tasks fit the worker's machine and time, the largest first, and the rest is reported."""

from collections.abc import Mapping
from typing import Any, get_args

import pytest

from service.calibration.records import ProbeName, ProbeTask
from service.catalogue import shipped_catalogue
from service.estimator.resolve import ResolvedQuestion
from service.features.launch_checks.schemas import ALL_PROBES, read_launch_check
from service.features.launch_checks.targets import (
    CPU_RANKS,
    CPU_TOKENS,
    LEAST_TOKENS,
    RUN_KERNELS,
    Target,
    depths_of,
    size_question,
)
from service.features.launch_checks.tasks import FEWEST_REPEATS, REPEATS, SHARES, START_SECONDS, product_items
from tests.features.launch_checks.sizing import H100, LAPTOP, NODE, asked, plan, worked_out
from tests.needing import needs

SMALL = asked("smollm2-135m")


def tasks_of(found: Any) -> Mapping[str, ProbeTask]:
    return {task.probe: task for task in found.tasks}


def test_every_probe_has_a_share_and_they_add_up() -> None:
    assert SHARES.keys() == {*get_args(ProbeName)}
    assert sum(SHARES.values()) == pytest.approx(1.0)


@pytest.mark.parametrize("target", [LAPTOP, NODE], ids=["processor", "node"])
def test_all_probes_keep_within_the_time(target: Target) -> None:
    found = plan(SMALL, target, seconds=120)
    assert [task.probe for task in found.tasks] == [*ALL_PROBES]
    assert sum(task.parameters["seconds"] + START_SECONDS for task in found.tasks) <= 120.1
    assert all(task.timeout_seconds > task.parameters["seconds"] for task in found.tasks)


def test_a_processor_gets_shorter_sequences_of_the_same_width() -> None:
    found = plan(SMALL, LAPTOP)
    tokens = {entry["length"] for entry in tasks_of(found)["attention"].parameters["kernels"]}
    (length,) = tokens
    assert LEAST_TOKENS <= length <= CPU_TOKENS
    products = tasks_of(found)["gemm"].parameters["products"]
    assert {entry["dtype"] for entry in products} == {"fp32"}
    assert {entry["rows"] for entry in products if entry["operation"] == "forward"} == {length}
    assert max(entry["columns"] for entry in products) == 49152
    assert any(f"shapes are those of {length} tokens" in said for said in found.assumptions)
    assert tasks_of(found)["collective"].ranks == CPU_RANKS


def test_a_node_gets_the_job_s_own_shapes() -> None:
    found = plan(asked("llama-3.1-8b", length=4096, tensor=2), NODE)
    products = tasks_of(found)["gemm"].parameters["products"]
    assert {entry["rows"] for entry in products if entry["operation"] == "forward"} == {4096}
    assert tasks_of(found)["gemm"].parameters["repeats"] == REPEATS
    kernels = tasks_of(found)["attention"].parameters["kernels"]
    assert [(one["kernel"], one["heads"], one["kv_heads"]) for one in kernels] == [("cudnn", 16, 4), ("flash", 16, 4)]
    stream_bytes = 2 * 4096 * 4096
    assert stream_bytes in tasks_of(found)["collective"].parameters["sizes_bytes"]
    assert all(one.predicted is not None for one in found.expected if one.probe in ("gemm", "attention", "collective"))


def test_less_time_leaves_the_smallest_shares_of_a_step_out() -> None:
    whole = tasks_of(plan(SMALL, LAPTOP, ("gemm",), 120))["gemm"].parameters["products"]
    short = plan(SMALL, LAPTOP, ("gemm",), 5)
    kept = tasks_of(short)["gemm"].parameters
    assert 0 < len(kept["products"]) < len(whole)
    assert kept["repeats"] == FEWEST_REPEATS
    assert any("left out for want of time" in said for said in short.assumptions)


def test_what_is_too_large_for_the_machine_is_left_out_and_said() -> None:
    tiny = Target(on="any", is_matching=False, gpu=H100, device="x", memory_bytes=2e9, measures=True)
    found = plan(asked("llama-3.1-8b"), tiny)
    assert any("takes too much memory" in said for said in found.assumptions)
    assert any("does not fit on this machine" in said for said in found.assumptions)
    assert not {"step", "profile"} & tasks_of(found).keys()


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("deepseek-v3", "attention: latent attention"),
        ("gemma-2-9b", "attention: attention with a window of 4096 tokens"),
    ],
)
def test_attention_that_no_probe_runs_is_said(model: str, said: str) -> None:
    found = plan(asked(model, gpus=64, length=8192, **({"expert": 64} if model == "deepseek-v3" else {})), NODE)
    assert any(said in one for one in found.assumptions)


def test_one_gpu_sends_nothing_and_gets_sizes_of_common_use() -> None:
    one = asked("smollm2-135m", gpus=1)
    assert len(tasks_of(plan(one, LAPTOP))["collective"].parameters["operations"]) == 5
    alone = Target(on="any", is_matching=True, gpu=H100, device="x", devices=1, memory_bytes=8e10, measures=True)
    assert "collective" not in tasks_of(plan(one, alone))


def test_a_job_of_one_gpu_is_not_asked_for_collectives_unless_somebody_names_them() -> None:
    catalogue = shipped_catalogue()

    def probes_of(gpus: int, **said: Any) -> tuple[ProbeName, ...]:
        cluster = {"gpu": "h100-sxm5-80gb", "gpus": gpus}
        question = {"model": "smollm2-135m", "recipe": {"sequence_length": 512}, "cluster": cluster}
        return read_launch_check({"question": question, **said}, catalogue, lambda _: b"").probes

    assert {*ALL_PROBES} - {*probes_of(1)} == {"collective"}
    assert probes_of(2) == ALL_PROBES
    assert probes_of(1, probes=["collective"]) == ("collective",)


@pytest.mark.parametrize(
    ("asked_for", "target", "runs", "judges"),
    [
        ("flash", NODE, "flash", True),
        ("cudnn", NODE, "flash", True),
        ("flash-2", NODE, "flash-2", True),
        ("flash-3", NODE, "flash", True),
        ("eager", NODE, "eager", True),
        ("flash", LAPTOP, "eager", False),
        ("eager", LAPTOP, "eager", True),
    ],
)
def test_a_step_keeps_the_job_s_attention_on_a_gpu(asked_for: str, target: Target, runs: str, judges: bool) -> None:
    sized = size_question(asked("smollm2-135m", recipe={"attention": asked_for}), target, 120)
    assert {one.question.recipe.attention for one in (*sized.steps, sized.whole) if one is not None} == {runs}
    assert sized.judges_memory is judges
    (said,) = [one for one in sized.assumptions if "attention is" in one] or [""]
    assert (f"attention is {runs}, not the job's {asked_for}" in said) is (runs != asked_for)
    assert ("not carried over" in said) is not judges


def test_a_kernel_that_takes_no_mask_is_not_asked_for_one() -> None:
    windows = asked("gemma-2-9b", recipe={"attention": "flash-2"})
    assert {one.question.recipe.attention for one in size_question(windows, NODE, 120).steps} == {"flash"}


@needs("torch")
def test_the_worker_knows_the_kernels_that_it_is_told() -> None:
    from service.worker.supported import KERNELS

    assert {*KERNELS} >= {*RUN_KERNELS}


@pytest.mark.parametrize(
    ("model", "depths"),
    [("smollm2-135m", (1, 2)), ("gemma-2-9b", (2, 4)), ("deepseek-v3", (4, 5)), ("gpt2-124m", (1, 2))],
)
def test_depths_differ_by_one_period_of_the_model(model: str, depths: tuple[int, int]) -> None:
    assert depths_of(asked(model, gpus=64, length=1024, **({"expert": 64} if "deep" in model else {})).model) == depths


def test_a_step_is_one_replica_at_two_depths_beside_the_whole() -> None:
    sized = size_question(SMALL, LAPTOP, 120)
    assert [one.question.model.num_hidden_layers for one in sized.steps] == [1, 2]
    assert {(one.question.cluster.gpus, one.question.recipe.precision) for one in sized.steps} == {(1, "fp32")}
    assert sized.whole is not None
    assert sized.whole.question.model.num_hidden_layers == 30
    found = plan(SMALL, LAPTOP, ("step",))
    by_depth = {one.shape["depth"]: one for one in found.whole}
    assert by_depth.keys() == {30}
    parameters = tasks_of(found)["step"].parameters
    assert (parameters["depths"], parameters["steps"]) == ([1, 2], 3)
    live = [one for one in found.expected if one.operation == "live_bytes_peak"]
    assert all(one.predicted is not None for one in live)
    assert [one.predicted for one in found.expected if one.operation == "step"] == [None, None]


DENSE: Mapping[str, Any] = {
    "vocab_size": 4096, "hidden_size": 512, "num_hidden_layers": 3, "num_attention_heads": 8,
    "intermediate_size": 1024,
}  # fmt: skip
GROUPED = {**DENSE, "num_key_value_heads": 2}
TIED = {**DENSE, "tie_word_embeddings": True}
SPARSE = {
    **GROUPED, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 256,
    "shared_expert_intermediate_size": 512,
}  # fmt: skip
LORA = {"method": {"name": "lora", "targets": ["q_proj", "down_proj"]}}

CASES: Mapping[str, tuple[Any, dict[str, Any]]] = {
    "dense": (DENSE, {"gpus": 1}),
    "dense, tied": (TIED, {"gpus": 1}),
    "grouped queries": (GROUPED, {"gpus": 2}),
    "accumulated": (GROUPED, {"gpus": 2, "recipe": {"global_batch": 8, "micro_batch": 2}}),
    "tensor ranks": (GROUPED, {"gpus": 4, "tensor": 2, "sequence_parallel": False}),
    "tensor ranks that split the sequence": (GROUPED, {"gpus": 2, "tensor": 2, "sequence_parallel": True}),
    "context ranks": (DENSE, {"gpus": 2, "context": 2}),
    "stages": (DENSE, {"gpus": 3, "pipeline": 3, "recipe": {"global_batch": 4}}),
    "experts": (SPARSE, {"gpus": 1}),
    "experts on ranks of their own": (SPARSE, {"gpus": 4, "expert": 4}),
    "experts one after another": (SPARSE, {"gpus": 1, "recipe": {"stack": "transformers"}}),
    "a model of the catalogue": ("llama-3.1-8b", {"gpus": 8, "tensor": 2, "length": 4096}),
    "adapters": (GROUPED, {"gpus": 1, "recipe": LORA}),
    "first layers frozen": (GROUPED, {"gpus": 1, "recipe": {"method": {"name": "full", "frozen_layers": 2}}}),
}


def resolved_case(name: str) -> ResolvedQuestion:
    model, said = CASES[name]
    return worked_out(asked(model, **said))


def step_product_flop(resolved: ResolvedQuestion) -> int:
    """FLOP of all matrix products of one step, by the ledger."""
    batch = resolved.question.recipe.global_batch or 0
    each = sum(
        times * (op.flop + op.backward_flop)
        for times, ops in resolved.workload.ledger.groups()
        for op in ops
        if op.kind == "gemm"
    )
    return each * batch


def ranks(resolved: ResolvedQuestion) -> int:
    """Ranks that divide a micro-batch of one stage, and replicas."""
    layout = resolved.question.layout
    return (layout.data or 1) * layout.context * layout.tensor


@pytest.mark.parametrize("name", CASES)
def test_flop_of_all_ranks_are_those_of_the_ledger(name: str) -> None:
    resolved = resolved_case(name)
    items, left_out = product_items(resolved, NODE)
    measured = sum(
        2 * one.shape["rows"] * one.shape["columns"] * one.shape["inner"] * one.shape["copies"] * (one.count or 0)
        for item in items
        for one in item.expected
    )
    assert left_out == ()
    assert measured * ranks(resolved) == step_product_flop(resolved)


@pytest.mark.parametrize("name", CASES)
def test_equal_products_are_measured_once(name: str) -> None:
    items, _ = product_items(resolved_case(name), NODE)
    entries = [{key: value for key, value in item.entry.items() if key != "name"} for item in items]
    assert len({tuple(entry.items()) for entry in entries}) == len(entries)


def test_the_three_products_of_a_matrix_have_the_shapes_of_its_gradients() -> None:
    items, _ = product_items(resolved_case("tensor ranks"), NODE)
    up = {item.entry["operation"]: item.entry for item in items if item.entry["name"] == "mlp.up"}
    sizes = {name: (entry["rows"], entry["columns"], entry["inner"]) for name, entry in up.items()}
    assert sizes == {
        "forward": (2048, 1024, 512), "input_gradient": (2048, 512, 1024), "weight_gradient": (512, 1024, 2048),
    }  # fmt: skip


def test_only_gradients_that_are_needed_are_measured() -> None:
    items, _ = product_items(resolved_case("adapters"), NODE)
    assert {item.entry["operation"] for item in items if item.entry["name"] == "mlp.up"} == {
        "forward",
        "input_gradient",
    }


def test_formats_without_kernels_are_left_out_and_said() -> None:
    question = asked("llama-3.1-8b", recipe={"precision": "bf16-mixed"})
    items, left_out = product_items(worked_out(question), NODE)
    assert (left_out, {item.entry["dtype"] for item in items}) == ((), {"bf16"})
    narrow = asked("llama-3.1-8b", recipe={"precision": "fp8-tensorwise"})
    items, _ = product_items(worked_out(narrow), NODE)
    assert {item.entry["dtype"] for item in items} == {"bf16", "fp8"}
