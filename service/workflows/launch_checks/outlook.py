"""What is a job expected to take, before anything of it is measured and after?"""

from collections.abc import Sequence

from service.answers.launch_checks import Outlook, Reestimate
from service.calibration.device_fit import StepsOn
from service.calibration.records import ProbeRecord
from service.estimator.estimate import estimate
from service.estimator.question import Question
from service.workflows.calibrations.own import with_measured

CARRIED_OVER = ("rates measured alone on this device stand for every GPU of the cluster, inside steps too",)
"""What a new estimate takes for granted."""


def outlook_of(question: Question) -> Outlook:
    """What a job is expected to take, in short.

    Args:
        question: the question

    Returns:
        memory, time and cost
    """
    found = estimate(question)
    memory, totals = found.memory, found.totals
    return Outlook(
        verdict=found.verdict,
        oom_probability_fraction=memory.oom_probability_fraction,
        device_peak_bytes=memory.device_peak_bytes,
        usable_bytes=memory.usable_bytes,
        step_seconds=found.step.step_seconds,
        mfu_fraction=found.step.mfu_fraction,
        gpu_hours=None if totals is None else totals.gpu_hours,
        cost_usd=None if totals is None else totals.cost_usd,
    )


def reestimated(
    question: Question, before: Outlook, records: Sequence[ProbeRecord], steps_on: StepsOn | None = None
) -> Reestimate:
    """The estimate before and after some measurements.

    Args:
        question: the question
        before: what was expected
        records: what was measured
        steps_on: whole steps among it, each beside what is predicted of it on a GPU; None for none

    Returns:
        both; nothing after where no measurement says anything about the question's GPU
    """
    measured = with_measured(question, records, steps_on)
    if measured == question:
        return Reestimate(before=before, after=None, assumptions=())
    return Reestimate(before=before, after=outlook_of(measured), assumptions=CARRIED_OVER)
