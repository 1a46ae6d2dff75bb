"""Profiles of training steps beside their predictions."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, get_args

from service.answers.estimates import Answer
from service.answers.profiles import ComparedKind, ComparedPart, ProfileAnswer, ProfilePrediction
from service.calibration.profiles import Profile, product_records, profile_of
from service.calibration.traces import Trace, read_trace
from service.catalogue import Catalogue
from service.estimator.answer import Interval
from service.estimator.question import MeasuredStep
from service.estimator.resolve import resolve
from service.estimator.rules.software import MOST_RATIO
from service.features.estimates.answers import answer
from service.features.profiles.findings import findings_of
from service.validation.devices import gpu_of_device
from service.validation.questions import ParsedQuestion, read_question
from service.validation.reading import to_bytes

MEASURED: Mapping[str, ComparedKind] = {
    "gemm": "gemm",
    "attention": "attention",
    **dict.fromkeys(("norm", "softmax_and_loss", "embedding", "reduction", "elementwise", "other"), "elementwise"),
    "optimizer": "optimizer",
    "exposed_communication": "exposed_communication",
    "copies": "copies",
    "waiting_for_data": "idle",
    "idle": "idle",
}  # fmt: skip

PREDICTED: Mapping[str, ComparedKind] = {
    "gemm": "gemm",
    "attention": "attention",
    **dict.fromkeys(("elementwise", "cast", "accumulation", "loss"), "elementwise"),
    "optimizer": "optimizer",
    **dict.fromkeys((f"exposed_{axis}" for axis in ("tensor", "context", "expert", "data", "pipeline")),
                    "exposed_communication"),
    "bubble": "exposed_communication",
    "straggler": "exposed_communication",
    "exposed_offload": "copies",
    **dict.fromkeys(("host", "allocator", "other"), "idle"),
}  # fmt: skip
"""Compared part of each part of an estimate's step. A rank that waits for another, for a stage of the pipeline or for a
slow node, does so in a kernel of a collective operation, which a trace shows as communication."""

RECOMPUTE = "recompute"
"""Part of an estimate's step whose kernels a trace shows among those that they repeat."""

REPEATED = ("gemm", "attention", "elementwise")

SLOWED = "the profiler recorded stacks or memory, which slows the host: record without with_stack and profile_memory"
NO_STEPS = "the trace names no steps, so all of it counts as one: call profiler.step() after each optimizer step"
NO_UPDATE = (
    "no optimizer step is inside the profiled step, so it may be one micro-batch of several: call profiler.step() once "
    "for each optimizer step"
)
FEW_STEPS = "the trace has one step, which may be slower than others: record three or more after some without recording"
ON_HOST = "the trace has no kernels, so operations of the processor are compared with a GPU's prediction"


def profile_json(
    content: bytes,
    question: Mapping[str, Any] | None,
    catalogue: Catalogue,
    has_records: bool,  # noqa: FBT001 - processes pass arguments by position
) -> bytes:
    """Read a trace, compare it with its prediction, and serialize the answer."""
    return to_bytes(profile(content, question, catalogue, has_records=has_records))


def profile(
    content: bytes, question: Mapping[str, Any] | None, catalogue: Catalogue, *, has_records: bool = False
) -> ProfileAnswer:
    """The profile of a trace, beside the prediction of a question."""
    parsed = None if question is None else read_question(question, catalogue)
    trace = read_trace(content)
    profiled = profile_of(trace)
    seconds = [step.seconds for step in profiled.steps]
    kernel = None if parsed is None else str(resolve(parsed.question).workload.kernel)
    gpu = None if trace.device is None else gpu_of_device(trace.device, trace.memory_bytes or None, catalogue)
    is_same = gpu is not None and parsed is not None and gpu == parsed.question.gpu.slug
    prediction = None if parsed is None else _predicted(profiled, parsed, catalogue, is_same=is_same)
    return ProfileAnswer(
        step_seconds=Interval(min(seconds), profiled.step.seconds, max(seconds), "measured"),
        device=trace.device,
        gpu=gpu,
        ranks=trace.ranks,
        profile=profiled,
        prediction=prediction,
        findings=findings_of(profiled, () if prediction is None else prediction.parts, kernel),
        records=product_records(trace) if has_records else None,
        warnings=tuple(_warnings(trace, profiled, gpu, parsed)),
    )


def _predicted(profiled: Profile, parsed: ParsedQuestion, catalogue: Catalogue, *, is_same: bool) -> ProfilePrediction:
    estimate = answer(parsed, catalogue, advise=False)
    measured, predicted = profiled.step.seconds, estimate.step.step_seconds
    return ProfilePrediction(
        estimate_id=estimate.id,
        step_seconds=predicted,
        measured_over_predicted_fraction=measured / predicted.value,
        is_inside=predicted.low <= measured <= predicted.high,
        parts=tuple(_compared(profiled, estimate)),
        measured_step=_measured_step(measured, parsed, estimate, catalogue) if is_same else None,
    )


def _compared(profiled: Profile, estimate: Answer) -> Iterator[ComparedPart]:
    parts = {part.kind: part.seconds for part in estimate.step.parts}
    repeated = {kind: parts.get(kind, 0.0) for kind in REPEATED}
    recompute = estimate.resolved.recipe.recompute
    if getattr(recompute, "granularity", recompute) == "selective" and repeated["attention"]:
        repeated = {"attention": 1.0}  # by default it repeats attention alone
    for kind in get_args(ComparedKind):
        measured = [part for part in profiled.parts if MEASURED[part.kind] == kind and part.seconds > 0]
        own = [name for name, seconds in parts.items() if PREDICTED.get(name) == kind and seconds > 0]
        share = repeated.get(kind, 0.0) / (sum(repeated.values()) or 1.0)
        again = share * parts.get(RECOMPUTE, 0.0)
        seconds, expected = sum(part.seconds for part in measured), sum(parts[name] for name in own) + again
        yield ComparedPart(
            kind=kind,
            measured_seconds=seconds,
            predicted_seconds=expected,
            difference_seconds=seconds - expected,
            measured_parts=tuple(part.kind for part in measured),
            predicted_parts=(*own, *([RECOMPUTE] if again > 0 else [])),
        )


def _measured_step(
    measured: float, parsed: ParsedQuestion, estimate: Answer, catalogue: Catalogue
) -> MeasuredStep | None:
    """The item of cluster.measured_steps, whose prediction is one without any of them."""
    question = parsed.question
    if question.cluster.measured_steps:
        alone = replace(question, cluster=replace(question.cluster, measured_steps=()))
        estimate = answer(replace(parsed, question=alone), catalogue, advise=False)
    predicted = estimate.step.step_seconds.value
    is_plausible = 1 / MOST_RATIO <= measured / predicted <= MOST_RATIO
    return MeasuredStep(predicted_seconds=predicted, measured_seconds=measured) if is_plausible else None


def _warnings(trace: Trace, profiled: Profile, gpu: str | None, parsed: ParsedQuestion | None) -> Iterator[str]:
    if trace.has_stacks:
        yield SLOWED
    if not profiled.has_steps:
        yield NO_STEPS
    elif len(profiled.steps) == 1:
        yield FEW_STEPS
    if profiled.has_steps and not profiled.updates:
        yield NO_UPDATE
    if parsed is None:
        return
    cluster = parsed.question.cluster
    if profiled.on == "host":
        yield ON_HOST
    if gpu is not None and gpu != parsed.question.gpu.slug:
        yield f"the trace is of {gpu}, and the question of {parsed.question.gpu.slug}"
    if trace.ranks is not None and trace.ranks != cluster.gpus:
        yield f"the trace is of a job of {trace.ranks} processes, and the question of {cluster.gpus} GPUs"
    if (parsed.question.layout.pipeline or 1) > 1:
        yield "the prediction is of the pipeline's slowest stage, so the trace should be of a rank of that stage"
