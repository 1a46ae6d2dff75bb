"""Which pipelines can the layers of a model fill, and how are they dealt?"""

from collections import Counter
from dataclasses import dataclass

from service.estimator.question import Layout
from service.estimator.workload import Job
from service.planner.dealing import dealings
from service.planner.freedom import Axes
from service.planner.stages import Distinct, distinct_stages


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One way to deal the layers of a model out."""

    layout: Layout
    """Stages, virtual stages, layers of each, order of ranks; the other fields unsaid."""
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

    Args:
        job: the job
        axes: what stages, virtual stages and dealing may be

    Returns:
        the pipelines, and the rules that others broke
    """
    found: list[Pipeline] = []
    refused: Counter[str] = Counter()
    for stages in axes.pipeline:
        for virtual, dealt in dealings(job, axes, stages):
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
