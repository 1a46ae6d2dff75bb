"""A diagnosis finds the cause of a lack of memory, the line that was off, and what to change."""

from collections.abc import Mapping
from typing import Any

import pytest

from service.answers.diagnoses import Diagnosis
from service.catalogue import Catalogue, shipped_catalogue
from service.errors import Refused
from service.estimator.resolve import resolve
from service.estimator.run.run import Peak, peak_stage_in, timeline
from service.features.diagnose.diagnose import diagnose, segment_bytes
from service.validation.json_text import apply_merge_patch
from service.validation.questions import read_question

GIB = 2.0**30

FITS: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "recipe": {"sequence_length": 4096, "micro_batch": 1, "attention": "flash", "stack": "transformers"},
    "layout": {"data": 8, "zero_stage": 3},
    "cluster": {"gpu": "h100-sxm5-80gb", "gpus": 8},
}
"""Needs some 50 of 79 GiB."""

MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {requested:.2f} GiB. GPU 0 has a total capacity of "
    "{capacity:.2f} GiB of which {free:.2f} GiB is free. Including non-PyTorch memory, this process has "
    "{process:.2f} GiB memory in use. Of the allocated memory {allocated:.2f} GiB is allocated by PyTorch, and "
    "{spare:.2f} GiB is reserved by PyTorch but unallocated."
)


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return shipped_catalogue()


def message(**said: float) -> str:
    """A message of a GPU of 79.1 GiB, in GiB; what is not said follows."""
    told = {"requested": 0.0, "capacity": 79.1, "allocated": 70.0, "spare": 0.5, **said}
    told.setdefault("process", told["allocated"] + told["spare"] + 0.6)
    told.setdefault("free", max(told["capacity"] - told["process"], 0.0))
    return MESSAGE.format(**told)


def peak(body: Mapping[str, Any], catalogue: Catalogue) -> Peak:
    stages = timeline(peak_stage_in(resolve(read_question(body, catalogue).question)).resolved)
    return max(stages, key=lambda stage: stage.peak.allocated_bytes).peak


def found(text: str, catalogue: Catalogue, **changes: Any) -> Diagnosis:
    return diagnose({**apply_merge_patch(FITS, changes), "message": text}, catalogue)


def test_what_was_predicted_is_said_to_be(catalogue: Catalogue) -> None:
    answer = found(message(requested=2.0, allocated=76.0), catalogue, recipe={"sequence_length": 16384})
    assert (answer.cause, answer.verdict, answer.supposition) == ("too_large", "out_of_memory", None)
    assert answer.reason.startswith("as predicted")
    assert answer.changes[0].verdict == "fits"
    assert all(change.saves_bytes > 0 for change in answer.changes)
    assert {row.difference_bytes for row in answer.lines if row.kind != "unexplained"} == {0.0}


SMALL = "llama-3.2-3b"
"""Its weights are few enough that their sharding is told from other differences below the size of a GPU."""

DIFFERENCES = [
    ({"recipe": {"attention": "eager"}}, "activations"),
    ({"recipe": {"micro_batch": 2}}, "activations"),
    ({"recipe": {"sequence_length": 8192}}, "activations"),
    ({"layout": {"zero_stage": 0}}, "optimizer_states"),
]


@pytest.mark.parametrize(("patch", "kind"), DIFFERENCES)
def test_the_difference_that_was_run_is_among_those_that_explain(
    patch: dict[str, Any], kind: str, catalogue: Catalogue
) -> None:
    asked = apply_merge_patch(FITS, {"model": SMALL})
    needed = min(peak(apply_merge_patch(asked, patch), catalogue).allocated_bytes, 0.99 * 79.1 * GIB)
    requested = 0.7  # GiB, of no tensor
    answer = found(message(allocated=needed / GIB - requested, requested=requested), catalogue, model=SMALL)
    assert answer.cause == "larger_than_predicted"
    assert answer.supposition is not None
    assert answer.lines[0].difference_bytes > 0
    likely = sum(row.likely_bytes for row in answer.lines)
    assert likely >= needed * 0.97
    (live,) = [row for row in answer.totals if row.quantity == "live_bytes"]
    assert live.difference_bytes == pytest.approx(live.said_bytes - peak(asked, catalogue).allocated_bytes, rel=1e-3)
    assert kind in {row.kind for row in answer.lines}


def test_scores_of_all_pairs_give_eager_attention_away(catalogue: Catalogue) -> None:
    scores = 32 * 4096**2 * 2 / GIB
    answer = found(message(requested=scores, allocated=30.0, free=0.4, process=31.0, capacity=31.4), catalogue)
    assert (answer.cause, answer.confidence) == ("larger_than_predicted", "high")
    assert answer.supposition is not None
    assert answer.supposition.patch == {"recipe": {"attention": "eager"}}
    assert "scores of all pairs" in answer.tensors[0].tensor
    assert answer.tensors[0].bytes == scores * GIB
    assert answer.warnings == ("the message is from a GPU with another amount of memory than the one in the question",)


def test_a_tensor_of_the_question_is_named(catalogue: Catalogue) -> None:
    logits = segment_bytes(4096 * 128_256 * 4) / GIB
    answer = found(message(requested=logits, allocated=76.0), catalogue, recipe={"sequence_length": 4096})
    assert (answer.tensors[0].kind, answer.tensors[0].bytes) == ("logits", logits * GIB)


def test_a_summary_without_a_request_is_compared_by_its_peak(catalogue: Catalogue) -> None:
    stats = {"allocated_bytes.all.peak": int(60 * GIB), "reserved_bytes.all.current": int(65 * GIB)}
    answer = diagnose({**FITS, "memory_stats": stats}, catalogue)
    assert answer.said.peak_allocated_bytes == 60 * GIB
    assert {row.quantity for row in answer.totals} == {"live_bytes", "reserved_bytes"}
    assert answer.tensors == ()


OTHERS = "Process 77 has 40.00 GiB memory in use. Including"

CAUSES = {
    "other_processes": message(requested=1.0, allocated=30.0, free=0.5).replace("Including", OTHERS),
    "fragmentation": message(requested=2.0, allocated=40.0, spare=36.0, free=1.0),
    "limited": message(requested=2.0, allocated=39.0).replace("GiB is free.", "GiB is free. 40.00 GiB allowed;"),
    "less_room": message(requested=2.1, allocated=20.0, capacity=24.0, free=1.0, process=23.0),
    "outside_allocator": "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "host_memory": "slurmstepd: error: Detected 1 oom_kill event in StepId=11300781.0.",
    "not_told": "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 7406166528 bytes.",
}


@pytest.mark.parametrize("cause", CAUSES)
def test_other_causes_are_told_apart(cause: str, catalogue: Catalogue) -> None:
    answer = found(CAUSES[cause], catalogue)
    assert (answer.cause, answer.verdict) == (cause, "fits")
    assert answer.suggestions


def test_what_others_held_is_inferred_where_nobody_names_them(catalogue: Catalogue) -> None:
    answer = found(message(requested=2.0, allocated=30.0, process=32.0, free=0.1), catalogue)
    assert answer.cause == "other_processes"
    assert "47 GiB" in answer.reason


def test_a_bare_kill_is_doubted(catalogue: Catalogue) -> None:
    answer = found("Killed\n", catalogue)
    assert (answer.cause, answer.confidence) == ("host_memory", "low")
    assert any("killed for other reasons than memory" in warning for warning in answer.warnings)


def test_the_first_step_is_told_from_later_ones(catalogue: Catalogue) -> None:
    first = found(message(requested=1.0, allocated=20.0, free=0.5, process=22.0, capacity=22.5), catalogue)
    assert first.step == "first"
    traced = "File torch/optim/adamw.py in _multi_tensor_adamw\n" + message(requested=1.0, allocated=14.0)
    assert found(traced, catalogue).moment == "optimizer"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "message"),
        ({"message": 3}, "message"),
        ({"message": "hello"}, "message"),
        ({"memory_stats": []}, "memory_stats"),
        ({"message": CAUSES["host_memory"], "mesage": 1}, "mesage"),
        ({"message": CAUSES["host_memory"], "model": "no-such"}, "model"),
    ],
)
def test_what_cannot_be_diagnosed_is_refused(body: dict[str, Any], field: str, catalogue: Catalogue) -> None:
    with pytest.raises(Refused) as refused:
        diagnose({**FITS, **body}, catalogue)
    assert {problem.field for problem in refused.value.problems} == {field}
