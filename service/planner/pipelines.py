"""Which pipelines can the layers of a model fill, and how are they dealt?"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from service.estimator.job import Job
from service.estimator.parallelism.pipeline import dealt_layers, layers_by_cost
from service.estimator.question import Layout
from service.planner.freedom import Axes
from service.planner.stages import Distinct, balanced_layers, distinct_stages


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One way to deal the layers of a model out."""

    layout: Layout
    """Stages, virtual stages, layers of each; the other fields unsaid."""
    alone: tuple[Distinct, ...]
    """Its stages that differ."""
    mirrored: tuple[Distinct, ...]
    """The same where each rank serves a stage from either end (DualPipe)."""


@dataclass(frozen=True, slots=True)
class Pipelines:
    """The pipelines of a search."""

    every: tuple[Pipeline, ...]
    """All that the layers of the model fill."""
    refused: Counter[str]
    """How many pairs of stages and virtual stages were left out, by rule."""


def pipelines_of(job: Job, axes: Axes) -> Pipelines:
    """Every pipeline that the layers of a model can fill.

    Layers are dealt evenly, with embedding and head counted as layers or not; where no such dealing is even, each chunk
    gets as many as go, fewer at the ends; a stack that deals by cost does so.

    Args:
        job: the job
        axes: what stages, virtual stages and dealing may be

    Returns:
        the pipelines, and the rules that others broke
    """
    found: list[Pipeline] = []
    refused: Counter[str] = Counter()
    for stages in axes.pipeline:
        for virtual in axes.virtual_pipeline:
            dealt = tuple(_dealt(job, axes, stages, virtual))
            if virtual > 1 and stages == 1:
                refused["virtual_pipeline_needs_pipeline"] += 1
            elif dealt:
                found.extend(_pipeline(job, layout) for layout in dealt)
            else:
                refused["stage_layers_cover_the_model" if axes.stage_layers else "pipeline_divides_layers"] += 1
    return Pipelines(tuple(found), refused)


def _pipeline(job: Job, layout: Layout) -> Pipeline:
    alone = distinct_stages(job, layout, mirrors=False)
    mirrors = layout.virtual_pipeline == 1 and layout.pipeline > 1
    return Pipeline(layout, alone, distinct_stages(job, layout, mirrors=True) if mirrors else ())


def _dealt(job: Job, axes: Axes, stages: int, virtual: int) -> Iterator[Layout]:
    model, chunks = job.model, stages * virtual
    plain = Layout(pipeline=stages, virtual_pipeline=virtual, virtual_group=axes.virtual_group or stages)
    if axes.stage_layers:
        if len(axes.stage_layers) == chunks and sum(axes.stage_layers) == model.num_hidden_layers:
            yield _with_layers(plain, axes.stage_layers)
        return
    if job.stack.deals_by_cost and 1 < stages <= model.num_hidden_layers:
        yield _with_layers(plain, layers_by_cost(stages, model))
        return
    evenly = False
    for embedding, loss in axes.ends_in_split:
        counted = Layout(
            pipeline=stages, virtual_pipeline=virtual, virtual_group=plain.virtual_group,
            embedding_in_split=embedding, loss_in_split=loss,
        )  # fmt: skip
        layers = dealt_layers(counted, model)
        if layers is not None and chunks > 1:
            evenly = True
            yield _with_layers(counted, layers)
        elif not (embedding or loss) and model.num_hidden_layers % chunks == 0:
            evenly = True
            yield counted
    uneven = balanced_layers(model, chunks)
    if not evenly and virtual == 1 and uneven and (False, False) in axes.ends_in_split:
        yield _with_layers(plain, uneven)


def _with_layers(layout: Layout, layers: tuple[int, ...]) -> Layout:
    return Layout(
        pipeline=layout.pipeline,
        virtual_pipeline=layout.virtual_pipeline,
        virtual_group=layout.virtual_group,
        embedding_in_split=layout.embedding_in_split,
        loss_in_split=layout.loss_in_split,
        stage_layers=layers,
    )
