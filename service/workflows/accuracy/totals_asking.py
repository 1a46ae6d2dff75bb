"""Which question does a published run ask? Its row as a body, and what it leaves open by one rule for all rows."""

from dataclasses import dataclass
from typing import Any

from service.calibration.tables import MeasuredRow, NotExpressible
from service.catalogue import Catalogue
from service.estimator.question import Question
from service.workflows.accuracy.totals_habits import habits_of
from service.workflows.accuracy.totals_layouts import Plan, laid_out
from service.workflows.accuracy.totals_models import is_sparse, model_body
from service.workflows.accuracy.totals_sizes import gpu_of, gpus_of, sequence_of

PRECISIONS = {"": None, "bf16": "bf16-mixed", "fp16": "fp16-mixed", "fp8": "fp8-tensorwise"}
"""Precision recipes by the cell of a row; the default of recipe and GPU where it is empty."""

OPEN = ("n_gpus", "seq_len", "batch_tokens", "tp", "pp", "precision")
"""Cells that a rule fills where they are empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedRun:
    """A published run as a question."""

    question: Question
    """The question."""
    assumed: tuple[str, ...]
    """Cells of the row that are empty, which a rule filled, and whether no layout fits."""


def run_question(row: MeasuredRow, catalogue: Catalogue) -> AskedRun:
    """The question that a published run asks.

    Args:
        row: the row
        catalogue: models and GPUs

    Returns:
        the question, and what had to be assumed

    Raises:
        NotExpressible: the row cannot be put as one, with the reason
    """
    if not row.number_of("gpu_hours"):
        raise NotExpressible("missing: gpu_hours")
    trained = row.number_of("tokens_t")
    if not trained:
        raise NotExpressible("missing: tokens_t")
    model, habits, tokens = model_body(row, catalogue), habits_of(row), sequence_of(row, catalogue)
    gpus = gpus_of(row, tokens, catalogue)
    recipe: dict[str, Any] = {
        "sequence_length": tokens,
        "training_tokens": trained * 1e12,
        "stack": dict(habits.stack),
        "precision": _precision(row),
        **habits.recipe,
    }
    plan = Plan(
        row=row,
        habits=habits,
        body={"model": model, "recipe": recipe, "cluster": {"gpu": gpu_of(row, catalogue), "gpus": gpus}},
        gpus=gpus,
        is_sparse=is_sparse(row, catalogue),
    )
    question, fits = laid_out(plan, catalogue)
    empty = tuple(name for name in OPEN if not row.text(name))
    return AskedRun(question=question, assumed=empty if fits else (*empty, "no layout fits"))


def _precision(row: MeasuredRow) -> str | None:
    said = row.text("precision")
    if said not in PRECISIONS:
        raise NotExpressible("precision: not understood")
    return PRECISIONS[said]
