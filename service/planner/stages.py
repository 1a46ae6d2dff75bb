"""Which stages of a pipeline differ, so that each is worked out once? For many pipelines at a time."""

from dataclasses import dataclass

from service.estimator.degrees import Degrees
from service.estimator.numeric import Amount
from service.estimator.parallelism.stages import Stage, stage_at
from service.estimator.question import Layout
from service.estimator.workload import Job

Shape = tuple[Amount, ...]


@dataclass(frozen=True, slots=True)
class Distinct:
    """Stages of one pipeline that are alike."""

    stage: Stage
    """The first of them, which holds most micro-batches."""
    far: Stage
    """The stage as far from the other end, whose weights a DualPipe rank holds too."""
    count: int
    """How many they are."""


def distinct_stages(job: Job, layout: Layout, *, mirrors: bool) -> tuple[Distinct, ...]:
    """The stages of one pipeline that differ in what they hold.

    Args:
        job: the job
        layout: the layout, its dealing of layers filled
        mirrors: each rank serves a stage from either end (DualPipe)

    Returns:
        one for each kind of stage, in the order of the pipeline
    """
    degrees = _degrees(layout)
    stages = [
        stage_at(job, degrees, index, layout.stage_layers, layout.virtual_pipeline) for index in range(layout.pipeline)
    ]
    shapes = [_shape(stage) for stage in stages]
    far_shapes = shapes[::-1] if mirrors else [()] * len(shapes)
    counts: dict[tuple[Shape, Shape], int] = {}
    first: dict[tuple[Shape, Shape], int] = {}
    for index, key in enumerate(zip(shapes, far_shapes, strict=True)):
        counts[key] = counts.get(key, 0) + 1
        first.setdefault(key, index)
    return tuple(Distinct(stages[index], stages[-1 - index], counts[key]) for key, index in first.items())


def _shape(stage: Stage) -> Shape:
    return (*(count for chunk in stage.chunk_counts for count in chunk), bool(stage.is_first), bool(stage.is_last))


def _degrees(layout: Layout) -> Degrees:
    """What `stage_at` reads of a layout; every other degree is 1."""
    ones = dict.fromkeys(Degrees.__slots__, 1)
    return Degrees(**{**ones, "pipeline": layout.pipeline, "virtual_pipeline": layout.virtual_pipeline})
