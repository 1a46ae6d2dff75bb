"""How far do measured steps lie from predicted ones? One spread for each class of models, GPUs and stacks."""

from collections.abc import Collection
from math import exp
from typing import Literal

from service.estimator.gpu import Gpu
from service.estimator.interval import Interval
from service.estimator.job import Job
from service.estimator.names import ImplementationName, StackName
from service.estimator.workspaces import generation

StepClass = Literal["known stack", "other stack", "new GPU", "old GPU", "MoE"]
"""What the error of a step depends on most: was the stack fitted, was the GPU's generation, are there experts?"""

FITTED_GENERATIONS = ("Ampere", "Hopper")
"""Generations of GPUs whose published steps may give constants; all others are predicted from their data sheets and
microbenchmarks alone."""

OLD_GENERATIONS = ("Pascal", "Volta", "Turing")
"""Generations before those, which run the software of their time."""

Operations = tuple[StackName, ImplementationName | None]
"""A stack and whose operations it runs."""

FITTED_STACKS: tuple[Operations, ...] = (
    ("megatron-core", "transformer-engine"),
    ("megatron-core", "local"),
    ("torchtitan", "eager"),
    ("torchtitan", "compiled"),
    ("fsdp1", "eager"),
    ("deepspeed", "local"),
    ("deepspeed", "eager"),
    ("nanotron", "eager"),
)
"""Stacks and operations with published steps on fitted GPUs.
Source: the measurements that ship with service.calibration."""

RESIDUALS: dict[StepClass, float] = {
    "known stack": 0.052,
    "other stack": 0.145,
    "new GPU": 0.143,
    "old GPU": 0.173,
    "MoE": 0.342,
}
"""80 % of published steps lie within exp(-r) and exp(r) of a prediction by constants that never saw their source (for
mixtures of experts their model), by class; each source counts as much as any other, and r is at least LEAST_RESIDUAL.
Source: service.calibration, published/held_out.toml against published/throughput.csv."""

LEAST_RESIDUAL = 0.030
"""Runs of one configuration differ by so much between releases of one stack.
Source: NVIDIA-NeMo/Megatron-Bridge performance summaries: Llama 3.1 405B on H100, 311 and 328 tokens a second in two
releases."""


def step_class_of(
    stack: Operations, gpu: Gpu, *, is_sparse: bool, fitted_stacks: Collection[Operations] = FITTED_STACKS
) -> StepClass:
    """The class of a step.

    Args:
        stack: the training stack, and whose operations it runs
        gpu: the GPU
        is_sparse: whether the model has routed experts
        fitted_stacks: those whose published steps gave constants

    Returns:
        experts before all, then the GPU's generation, then the stack

    >>> from service.estimator.samples import H100
    >>> step_class_of(("transformers", "eager"), H100, is_sparse=False)
    'other stack'
    >>> step_class_of(("fsdp1", "eager"), H100, is_sparse=True)
    'MoE'
    """
    if is_sparse:
        return "MoE"
    made = generation(gpu)
    if made not in FITTED_GENERATIONS:
        return "old GPU" if made in OLD_GENERATIONS else "new GPU"
    return "known stack" if stack in fitted_stacks else "other stack"


def step_interval(job: Job, step_seconds: float) -> Interval:
    """The 80 % interval of one step around its predicted time, with the spread that published steps of its class show.

    Formula:
        t exp(-r) to t exp(r)

    Args:
        job: the job
        step_seconds: predicted seconds of one step, t [s]

    Returns:
        the interval [s]

    Source:
        RESIDUALS

    >>> from service.estimator.samples import sample_job
    >>> step_interval(sample_job(), 10.0).value
    10.0
    """
    stack = (job.software.name, job.software.implementation)
    spread = RESIDUALS[step_class_of(stack, job.gpu, is_sparse=bool(job.model.num_experts))]
    return Interval(step_seconds * exp(-spread), step_seconds, step_seconds * exp(spread), "analytic")
