"""How far do measured peaks lie from predicted ones? One spread for each class of models and stacks."""

from math import exp

from service.estimator.interval import Interval
from service.estimator.job import Job

RESIDUALS = {
    ("megatron-core", "dense"): 0.030,
    ("megatron-core", "sparse"): 0.051,
    ("other", "dense"): 0.102,
    ("other", "sparse"): 0.304,
}
"""80 % of published peaks lie within exp(-r) and exp(r) of the prediction, by stack and kind of model.
Source: the measurements that ship with service.calibration, those with the full configuration; each publisher counts
as much as any other, and r is never below LEAST_RESIDUAL."""

LEAST_RESIDUAL = 0.030
"""Runs of one configuration differ by so much between releases of one stack.
Source: NVIDIA/Megatron-LM functional tests, the same cases on three generations of GPUs."""


def class_of(stack: str, *, is_sparse: bool) -> tuple[str, str]:
    """The class of some stack and kind of model.

    Args:
        stack: the stack's name
        is_sparse: whether the model has routed experts

    Returns:
        stack and kind of model, a key of RESIDUALS

    >>> class_of("fsdp1", is_sparse=False)
    ('other', 'dense')
    """
    return "megatron-core" if stack == "megatron-core" else "other", "sparse" if is_sparse else "dense"


def residual_class(job: Job) -> tuple[str, str]:
    """The class of a job whose published residuals are known.

    Args:
        job: the job

    Returns:
        stack and kind of model, a key of RESIDUALS
    """
    return class_of(job.software.name, is_sparse=bool(job.model.num_experts))


def allocated_interval(job: Job, peak_bytes: float) -> Interval:
    """Live tensors at the peak, with the spread that published peaks of the class show.

    Formula:
        sum of the lines of the fullest stage, x exp(-r) and exp(r) at the ends

    Args:
        job: the job
        peak_bytes: sum of the lines of the fullest stage [byte]

    Returns:
        the interval [byte]

    Source:
        RESIDUALS

    >>> from service.estimator.samples import sample_job
    >>> allocated_interval(sample_job(), 100.0).low < 97.1
    True
    """
    spread = RESIDUALS[residual_class(job)]
    return Interval(peak_bytes * exp(-spread), peak_bytes, peak_bytes * exp(spread), "analytic")
