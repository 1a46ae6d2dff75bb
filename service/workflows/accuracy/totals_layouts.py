"""Which layout would a competent team use, where a published run does not tell its own? The smallest that fits."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from service.calibration.tables import MeasuredRow, NotExpressible
from service.catalogue import Catalogue
from service.errors import Refused
from service.estimator import estimate_memory
from service.estimator.question import Question
from service.estimator.software.stacks import STACKS
from service.validation.questions import read_question
from service.workflows.accuracy.asking import reason_of
from service.workflows.accuracy.totals_habits import Habits
from service.workflows.accuracy.totals_sizes import sequences_of

TENSOR = (1, 2, 4, 8)
"""Degrees of tensor parallelism within a node of eight."""

PIPELINE = (1, 2, 4, 8, 16)
"""Degrees of pipeline parallelism, beside a whole node of tensor parallelism."""

MOST_MICRO_BATCH = 16
"""Sequences that a replica runs through the model at once, at most. Source: a choice; more is hardly faster."""

MICRO_BATCHES_A_STAGE = 4
"""Micro-batches for each pipeline stage that a step keeps, so that bubbles stay small. Source: a choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What of a run a layout leaves to be decided."""

    row: MeasuredRow
    """The row."""
    habits: Habits
    """How its lab trains."""
    body: dict[str, Any]
    """The question without layout and batch."""
    gpus: int
    """GPUs of the run."""
    is_sparse: bool
    """A mixture of experts."""

    def bodies(self) -> Iterator[dict[str, Any]]:
        """The question with each layout, that of the fewest GPUs a replica first, without recompute before with it."""
        kinds = [("none", "selective"), ("full",)]
        told = self.habits.recipe.get("recompute")
        for recomputes in [(told,)] if told else kinds:
            for tensor, pipeline in self._degrees():
                for recompute in recomputes:
                    if body := self.body_of(tensor, pipeline, recompute, 1):
                        yield body

    def body_of(self, tensor: int, pipeline: int, recompute: Any, micro_batch: int) -> dict[str, Any] | None:
        """The question with one layout; None where its GPUs or its batch are no multiple."""
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
        layout = {"tensor": tensor, "pipeline": pipeline, "context": context, "expert": expert, **self.habits.layout}
        more = {"global_batch": batch, "micro_batch": micro_batch, "recompute": recompute}
        return {**self.body, "layout": layout, "recipe": {**recipe, **more}}

    def _degrees(self) -> Iterator[tuple[int, int]]:
        """Tensor and pipeline degrees, those that the row tells as they are."""
        axes = STACKS[self.habits.stack["name"]].axes
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


def laid_out(plan: Plan, catalogue: Catalogue) -> tuple[Question, bool]:
    """The question of a run: the first layout that fits, with the largest micro-batch that still does.

    Args:
        plan: the run
        catalogue: models and GPUs

    Returns:
        the question, and whether it fits; the last layout that is legal where none does

    Raises:
        NotExpressible: no layout is legal
    """
    found: tuple[dict[str, Any], Question] | None = None
    reason = "layout: the GPUs are no multiple of any replica"
    for body in plan.bodies():
        try:
            question = read_question(body, catalogue).question
            verdict = estimate_memory(question).verdict
        except Refused as refused:
            reason = reason_of(refused)
            continue
        found = (body, question)
        if verdict == "fits":
            return _with_micro_batch(plan, body, catalogue) or question, True
    if found is None:
        raise NotExpressible(reason)
    return found[1], False


def _with_micro_batch(plan: Plan, body: dict[str, Any], catalogue: Catalogue) -> Question | None:
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
