"""Predicted GPU-hours against those of published runs, and the share inside the predicted interval."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from math import log, log2
from statistics import fmean
from typing import Any

from service.answers.accuracy import TotalsAccuracy, TotalsGroup, TotalsRow
from service.calibration.scores import Residuals, run_spread
from service.calibration.tables import MeasuredRow, NotExpressible, describes_main_run, shipped_totals
from service.catalogue import Catalogue, shipped_catalogue
from service.errors import Refused
from service.estimator import estimate, estimate_memory
from service.estimator.answer import Interval
from service.estimator.model.counts import count_parameters
from service.estimator.question import Model, Question
from service.estimator.run.totals import run_interval, scaled
from service.estimator.software.stacks import STACKS
from service.evaluation.frameworks import table_of
from service.evaluation.questions import gpu_slug, reason_of
from service.validation.questions import read_question
from service.validation.reading import to_bytes

SAME_SIZE_FRACTION = 0.05
"""How far the parameters of a row and its model may differ: rows are rounded, and count embeddings or not."""

TABLE = "runs.toml"


def model_body(row: MeasuredRow, catalogue: Catalogue) -> Any:
    """The model of a row, as a question names it."""
    shape = table_of(TABLE)["shapes"].get(row.text("model"))
    model = _preset(row, catalogue) if shape is None else Model(**shape)
    if model is None:
        raise NotExpressible("model: no shape of it is known")
    stated, counted = row.number_of("n_params_b"), count_parameters(model).total
    if not stated or abs(counted / (stated * 1e9) - 1) > SAME_SIZE_FRACTION:
        raise NotExpressible("model: the catalogue's has another size")
    return _slug(row.text("model")) if shape is None else dict(shape)


def _preset(row: MeasuredRow, catalogue: Catalogue) -> Model | None:
    found = catalogue.models.get(_slug(row.text("model")))
    return None if found is None else found.model


def _slug(name: str) -> str:
    for pattern, slug in table_of(TABLE)["presets"].items():
        if found := re.match(pattern, name):
            return found.expand(slug).lower()
    return name.lower().replace(" ", "-")


@dataclass(frozen=True, slots=True, kw_only=True)
class LabDefaults:
    """Training software and settings that a lab's runs share."""

    name: str
    """Regular expression for the start of the model's cell."""
    stack: Mapping[str, Any]
    """The stack that represents the lab's software."""
    recipe: Mapping[str, Any] = field(default_factory=dict)
    layout: Mapping[str, Any] = field(default_factory=dict)
    """Layout settings other than the degrees that rows state."""
    cells: Mapping[str, str] = field(default_factory=dict)
    """Cells that the lab's paper fills where a row leaves them empty."""
    assumes: str = ""
    """What a prediction assumes of its software; empty where that is published."""
    why: str

    def filled(self, row: MeasuredRow) -> MeasuredRow:
        """A row with the cells that the paper fills."""
        return replace(row, cells={**self.cells, **row.cells})


@cache
def lab_defaults() -> tuple[LabDefaults, ...]:
    """Defaults by lab; the last entry is for labs whose software is not published."""
    return tuple(LabDefaults(**row) for row in table_of(TABLE)["lab"])


USUAL_BATCH_TOKENS = 1 << 22
"""Tokens in one step if a row states none. Source: LLaMA, arXiv:2302.13971, table 2; most rows that state theirs."""
USUAL_SEQUENCE = 4096
"""Tokens in one sequence if a row states none, at most the model's longest. Source: most rows from 2023 on."""
ROUNDED_FRACTION = 0.05
"""How far a batch in round millions may lie from the power of two of sequences that it means.
Source: 4 million tokens for 2,048 sequences of 2,048 (LLaMA), 4.9 %."""

USUAL_DAYS = 30.0
USUAL_UTILISATION = 0.4
"""Size of an unstated cluster: 6 N D at this share of the peak takes about so many days.
Source: a choice; GPU-hours hardly depend on the number of GPUs."""


def gpu_of(row: MeasuredRow, catalogue: Catalogue) -> str:
    """Catalogue name of a row's GPU; the largest memory and fastest link if it does not state them."""
    cell = row.text("gpu").replace(" GB", "GB").split(",")[-1]
    size = next((word.removesuffix("GB") for word in cell.split() if word.endswith("GB")), "80")
    form = "" if "PCIe" in cell else " SXM"
    return gpu_slug(MeasuredRow(row.number, {"gpu": f"{cell}{form}", "gpu_mem_gb": size}), catalogue)


def sequence_of(row: MeasuredRow, catalogue: Catalogue) -> int:
    """Tokens in one sequence of a row's run."""
    model = _preset(row, catalogue)
    longest = None if model is None else model.max_position_embeddings
    return row.whole("seq_len") or min(USUAL_SEQUENCE, longest or USUAL_SEQUENCE)


def sequences_of(row: MeasuredRow, tokens: int, replicas: int) -> int:
    """Sequences in one step of a row's run: the multiple of its replicas closest to its batch."""
    sequences = (row.number_of("batch_tokens") or USUAL_BATCH_TOKENS) / tokens
    meant = 2.0 ** round(log2(sequences))
    near = meant if abs(meant / sequences - 1) <= ROUNDED_FRACTION else sequences
    return max(1, round(near / replicas)) * replicas


def gpus_of(row: MeasuredRow, tokens: int, catalogue: Catalogue) -> int:
    """GPUs of a row's run; if unstated, the power of two that takes about a month."""
    stated = row.whole("n_gpus")
    if stated:
        return stated
    parameters, trained = row.number_of("n_params_b"), row.number_of("tokens_t")
    if not parameters or not trained:
        raise NotExpressible("missing: n_gpus")
    peak = catalogue.gpus[gpu_of(row, catalogue)].gpu.bf16_flop_per_s or 0.0
    needed = 6 * parameters * 1e9 * trained * 1e12 / (USUAL_UTILISATION * peak * USUAL_DAYS * 24 * 3600)
    most = (row.number_of("batch_tokens") or USUAL_BATCH_TOKENS) / tokens
    return int(2 ** min(round(log2(max(needed, 8.0))), int(log2(max(most, 8.0)))))


TENSOR = (1, 2, 4, 8)
"""Degrees of tensor parallelism within a node of eight."""

PIPELINE = (1, 2, 4, 8, 16)
"""Degrees of pipeline parallelism, beside a whole node of tensor parallelism."""

MOST_MICRO_BATCH = 16
"""Largest micro-batch. Source: a choice; more is hardly faster."""
MICRO_BATCHES_A_STAGE = 4
"""Least micro-batches for each pipeline stage in a step, which keeps bubbles small. Source: a choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutSearch:
    """Layouts to try for a run."""

    row: MeasuredRow
    defaults: LabDefaults
    body: dict[str, Any]
    """The question without layout and batch."""
    gpus: int
    is_sparse: bool

    def bodies(self) -> Iterator[dict[str, Any]]:
        """The question with each layout: the fewest GPUs a replica first, without recompute before with it."""
        kinds = [("none", "selective"), ("full",)]
        stated = self.defaults.recipe.get("recompute")
        for recomputes in [(stated,)] if stated else kinds:
            for tensor, pipeline in self._degrees():
                for recompute in recomputes:
                    if body := self.body_of(tensor, pipeline, recompute, 1):
                        yield body

    def body_of(self, tensor: int, pipeline: int, recompute: Any, micro_batch: int) -> dict[str, Any] | None:
        """The question with one layout; None if its GPUs or its batch are no multiple."""
        context, expert = self.row.count("cp", 1), self.row.whole("ep") or 1
        replica = tensor * context * pipeline
        if self.gpus % replica:
            return None
        data = self.gpus // replica
        recipe = self.body["recipe"]
        batch = sequences_of(self.row, recipe["sequence_length"], data)
        if batch % (data * micro_batch):
            return None
        if self.is_sparse and not self.row.text("ep"):
            expert = 8 if data % 8 == 0 else 1
        layout = {"tensor": tensor, "pipeline": pipeline, "context": context, "expert": expert, **self.defaults.layout}
        more = {"global_batch": batch, "micro_batch": micro_batch, "recompute": recompute}
        return {**self.body, "layout": layout, "recipe": {**recipe, **more}}

    def _degrees(self) -> Iterator[tuple[int, int]]:
        axes = STACKS[self.defaults.stack["name"]].axes
        tensor, pipeline = self.row.whole("tp"), self.row.whole("pp")
        if pipeline and not tensor:
            tensor = 1
        if tensor and not pipeline and self.row.text("dp"):
            pipeline = max(1, self.gpus // (tensor * self.row.count("dp")))
        tensors = (tensor,) if tensor else TENSOR if "tensor" in axes else (1,)
        pipelines = (pipeline,) if pipeline else PIPELINE if "pipeline" in axes else (1,)
        for stages in pipelines:
            for ranks in tensors:
                if stages == 1 or ranks == tensors[-1]:
                    yield ranks, stages


def with_layout(plan: LayoutSearch, catalogue: Catalogue) -> tuple[Question, bool]:
    """The question of a run with the first layout that fits and its largest micro-batch, and whether it fits."""
    found: tuple[Question, bool] | None = None
    reason = "layout: the GPUs are no multiple of any replica"
    for body in plan.bodies():
        try:
            question = read_question(body, catalogue).question
            verdict = estimate_memory(question).verdict
        except Refused as refused:
            reason = reason_of(refused)
            continue
        found = question, verdict != "out_of_memory"
        if verdict == "fits":
            return _with_micro_batch(plan, body, catalogue) or question, True
    if found is None:
        raise NotExpressible(reason)
    return found


def _with_micro_batch(plan: LayoutSearch, body: dict[str, Any], catalogue: Catalogue) -> Question | None:
    """The question with the largest micro-batch that fits and leaves a pipeline enough of them; None for one."""
    layout, recipe = body["layout"], body["recipe"]
    data = plan.gpus // (layout["tensor"] * layout["context"] * layout["pipeline"])
    each = recipe["global_batch"] // data
    fewest = 1 if layout["pipeline"] == 1 else MICRO_BATCHES_A_STAGE * layout["pipeline"]
    for micro_batch in range(min(each, MOST_MICRO_BATCH), 1, -1):
        if each % micro_batch or each // micro_batch < fewest:
            continue
        larger = {**body, "recipe": {**recipe, "micro_batch": micro_batch}}
        try:
            question = read_question(larger, catalogue).question
            if estimate_memory(question).verdict == "fits":
                return question
        except Refused:
            continue
    return None


PRECISIONS = {"": None, "bf16": "bf16-mixed", "fp16": "fp16-mixed", "fp8": "fp8-tensorwise"}

NO_LAYOUT = "no layout fits"
"""What a prediction assumes where the smallest layout does not fit."""

ASSUMABLE = ("n_gpus", "seq_len", "batch_tokens", "tp", "pp", "precision")
"""Cells that a rule fills if they are empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuestion:
    """The question of a published run."""

    question: Question
    assumed: tuple[str, ...]
    """Empty cells that a rule filled, whether no layout fits, and what is assumed of the software."""


def question_of_run(row: MeasuredRow, catalogue: Catalogue) -> RunQuestion:
    """The question of a published run."""
    if not row.number_of("gpu_hours"):
        raise NotExpressible("missing: gpu_hours")
    trained = row.number_of("tokens_t")
    if not trained:
        raise NotExpressible("missing: tokens_t")
    defaults = next(one for one in lab_defaults() if re.match(one.name, row.text("model")))
    row = defaults.filled(row)
    model, tokens = model_body(row, catalogue), sequence_of(row, catalogue)
    gpus = gpus_of(row, tokens, catalogue)
    recipe: dict[str, Any] = {
        "sequence_length": tokens,
        "training_tokens": trained * 1e12,
        "stack": dict(defaults.stack),
        "precision": _precision(row),
        **defaults.recipe,
    }
    preset = _preset(row, catalogue)
    plan = LayoutSearch(
        row=row,
        defaults=defaults,
        body={"model": model, "recipe": recipe, "cluster": {"gpu": gpu_of(row, catalogue), "gpus": gpus}},
        gpus=gpus,
        is_sparse=preset is not None and preset.num_experts > 0,
    )
    question, fits = with_layout(plan, catalogue)
    assumed = [name for name in ASSUMABLE if not row.text(name)]
    beside = ("" if fits else NO_LAYOUT, defaults.assumes)
    return RunQuestion(question=question, assumed=(*assumed, *filter(None, beside)))


def _precision(row: MeasuredRow) -> str | None:
    cell = row.text("precision")
    if cell not in PRECISIONS:
        raise NotExpressible("precision: not understood")
    return PRECISIONS[cell]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedRun:
    """One published run and its prediction."""

    row: MeasuredRow
    published_gpu_hours: float | None
    run_question: RunQuestion | None = None
    """None if no question expresses the row."""
    gpu_hours: Interval | None = None
    """Predicted GPU-hours; None without a question."""
    by_steps_gpu_hours: Interval | None = None
    """The same, with the relative interval of its step alone."""
    reason: str = ""
    """Why there is no prediction; empty if there is one."""

    @property
    def source(self) -> str:
        """Publication of the run."""
        return self.row.text("source")


def evaluate_run(row: MeasuredRow, catalogue: Catalogue) -> EvaluatedRun:
    """Prediction of a published run."""
    published, run_question = row.number_of("gpu_hours"), None
    try:
        run_question = question_of_run(row, catalogue)
        found = estimate(run_question.question)
    except NotExpressible as why:
        return EvaluatedRun(row=row, published_gpu_hours=published, reason=str(why))
    except Refused as refused:
        return EvaluatedRun(
            row=row, published_gpu_hours=published, run_question=run_question, reason=reason_of(refused)
        )
    hours = None if found.totals is None else found.totals.gpu_hours
    step = found.step.step_seconds
    return EvaluatedRun(
        row=row,
        published_gpu_hours=published,
        run_question=run_question,
        gpu_hours=hours,
        by_steps_gpu_hours=None if hours is None else scaled(step, hours.value / step.value),
    )


def run_residuals(runs: Sequence[EvaluatedRun]) -> Residuals:
    """Residuals of published main runs, by source."""
    found: dict[str, list[float]] = {}
    for run in runs:
        if describes_main_run(run.row) and run.gpu_hours and run.published_gpu_hours:
            found.setdefault(run.source, []).append(log(run.published_gpu_hours / run.gpu_hours.value))
    return found


def held_out_interval(run: EvaluatedRun, residuals: Residuals) -> Interval | None:
    """Interval of a run from the residuals of all other sources."""
    ends = run_spread({source: own for source, own in residuals.items() if source != run.source})
    return None if run.by_steps_gpu_hours is None or ends is None else run_interval(run.by_steps_gpu_hours, ends)


def totals_accuracy_of(rows: Sequence[MeasuredRow], catalogue: Catalogue) -> TotalsAccuracy:
    """Accuracy on some published runs."""
    runs = [evaluate_run(row, catalogue) for row in rows]
    residuals = run_residuals(runs)
    compared = [_row(run, held_out_interval(run, residuals)) for run in runs]
    main = [one for one in compared if one.describes_main_run]
    others = [one for one in compared if not one.describes_main_run]
    return TotalsAccuracy(main_runs=_group("main runs", main), beside=_group("beside", others), rows=(*main, *others))


@cache
def totals_accuracy() -> TotalsAccuracy:
    """Accuracy on the shipped runs."""
    return totals_accuracy_of(shipped_totals(), shipped_catalogue())


def totals_accuracy_json() -> bytes:
    """The same as JSON."""
    return to_bytes(totals_accuracy())


def _row(run: EvaluatedRun, held_out: Interval | None) -> TotalsRow:
    published, found = run.published_gpu_hours, run.gpu_hours
    return TotalsRow(
        id=run.row.text("id"),
        model=run.row.text("model"),
        source=run.source,
        describes_main_run=describes_main_run(run.row),
        decided=run.row.text("reason"),
        published_gpu_hours=published,
        gpu_hours=found,
        held_out_gpu_hours=held_out,
        error_fraction=found.value / published - 1 if found and published else None,
        is_inside=_is_inside(published, found),
        is_inside_held_out=_is_inside(published, held_out),
        assumed=() if run.run_question is None else run.run_question.assumed,
        layout="" if run.run_question is None else _layout_summary(run.run_question),
        reason=run.reason,
    )


def _is_inside(published: float | None, interval: Interval | None) -> bool | None:
    return interval.low <= published <= interval.high if interval and published else None


def _layout_summary(run_question: RunQuestion) -> str:
    layout, recipe = run_question.question.layout, run_question.question.recipe
    degrees = [f"{name} {degree}" for name in ("tensor", "pipeline", "context", "expert")
               if (degree := getattr(layout, name)) > 1]  # fmt: skip
    again = recipe.recompute if isinstance(recipe.recompute, str) else recipe.recompute.granularity
    named = [f"micro-batch {recipe.micro_batch}", f"recompute {again}"]
    return ", ".join([f"{run_question.question.cluster.gpus} x {run_question.question.gpu.slug}", *degrees, *named])


def _group(name: str, rows: Sequence[TotalsRow]) -> TotalsGroup:
    errors = [one.error_fraction for one in rows if one.error_fraction is not None]
    inside = sum(one.is_inside is True for one in rows)
    held_out = sum(one.is_inside_held_out is True for one in rows)
    return TotalsGroup(
        name=name,
        rows=len(rows),
        scored=len(errors),
        inside=inside,
        inside_fraction=inside / len(errors) if errors else None,
        held_out_inside=held_out,
        held_out_inside_fraction=held_out / len(errors) if errors else None,
        mape_fraction=fmean(map(abs, errors)) if errors else None,
        bias_fraction=fmean(errors) if errors else None,
        not_expressible=dict(sorted(Counter(one.reason for one in rows if one.reason).items())),
    )
