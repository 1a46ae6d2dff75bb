"""Which jobs does a question make, before any layout divides them? One for each recompute rule and kind of numbers."""

from collections import Counter
from dataclasses import dataclass, replace

from service.errors import Problem, Refused
from service.estimator.names import RankOrder, ZeroStage
from service.estimator.question import Layout, Question, Recompute
from service.estimator.resolve import demands_unmet, filled_in
from service.estimator.workload import Job, job_of
from service.planner.fitting import most_reserved_bytes
from service.planner.freedom import Axes


@dataclass(frozen=True, slots=True)
class Variant:
    """A job as one recompute rule and some ZeRO stages make it."""

    job: Job
    recompute: str | Recompute
    zero_stages: tuple[ZeroStage, ...]
    most_reserved_bytes: float
    """What the allocator may hold on the fullest GPU of a layout that fits."""


def variants_of(question: Question, axes: Axes, headroom_fraction: float) -> tuple[list[Variant], Counter[str]]:
    """The jobs of a question: one for each recompute rule, and for each kind of numbers that ZeRO stages keep.

    Args:
        question: the question
        axes: what recompute and ZeRO stage may be
        headroom_fraction: share of the usable memory that has to stay free [1]

    Returns:
        the jobs; and how many pairs of both software or GPU cannot do, by demand

    Raises:
        Refused: none of them can be done
    """
    found: list[Variant] = []
    problems: list[Problem] = []
    refused: Counter[str] = Counter()
    for recompute in axes.recompute:
        by_kind: dict[tuple[object, ...], tuple[Job, list[ZeroStage]]] = {}
        for zero in axes.zero_stage:
            job = plain_job(question, recompute, zero)
            unmet = demands_unmet(job, _plainest(job, zero, axes.rank_order[0]))
            if unmet:
                problems.extend(unmet)
                refused[unmet[0].code] += 1
                continue
            by_kind.setdefault((job.state, job.recipe.gradient_dtype), (job, []))[1].append(zero)
        for job, zeros in by_kind.values():
            found.append(Variant(job, recompute, tuple(zeros), most_reserved_bytes(job, headroom_fraction)))
    if not found:
        raise Refused(*dict.fromkeys(problems))
    return found, refused


def plain_job(question: Question, recompute: str | Recompute = "none", zero_stage: ZeroStage | None = None) -> Job:
    """The job of a question, before a layout divides it.

    Args:
        question: the question
        recompute: its recompute rule
        zero_stage: what the data group shards; the stack's own where None

    Returns:
        the job, its batch and its cluster filled
    """
    plain = Layout(data=1, zero_stage=zero_stage)
    recipe = replace(question.recipe, micro_batch=1, recompute=recompute)  # type: ignore[arg-type]  # a name of the table
    return job_of(filled_in(replace(question, recipe=recipe, layout=plain)))


def _plainest(job: Job, zero: ZeroStage, order: RankOrder) -> Layout:
    """A layout that asks nothing of the software but its ZeRO stage and an order of ranks."""
    return Layout(
        data=job.cluster.gpus,
        zero_stage=zero,
        schedule=job.stack.schedules[0],
        context_method=job.stack.context_methods[0],
        virtual_group=1,
        expert_tensor=1,
        sequence_parallel=False,
        reshard_after_forward=zero == 3,
        rank_order=order,
    )
