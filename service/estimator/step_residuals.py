"""How far do measured steps lie from predicted ones? One spread for each class of models, GPUs and stacks."""

from collections.abc import Collection, Mapping
from math import exp
from typing import Literal

from service.estimator.device_calibration import calibration_of
from service.estimator.gpu import Gpu
from service.estimator.interval import Basis, Interval
from service.estimator.job import Job
from service.estimator.names import ImplementationName, StackName
from service.estimator.own_steps import own_spread_fraction
from service.estimator.workspaces import generation

StepClass = Literal["known stack", "other stack", "new GPU", "old GPU", "MoE"]
"""What the error of a step depends on most: do several sources run its stack, is its GPU's generation fitted, are
there experts?"""

FITTED_GENERATIONS = ("Ampere", "Hopper")
"""Generations of GPUs whose published steps of dense models give constants; dense models on all others are predicted
from data sheets and benchmarks of kernels alone."""

OLD_GENERATIONS = ("Pascal", "Volta", "Turing")
"""Generations before those, which run the software of their time."""

Operations = tuple[StackName, ImplementationName | None]
"""A stack and whose operations it runs."""

KNOWN_STACKS: tuple[Operations, ...] = (("megatron-core", "transformer-engine"), ("megatron-core", "local"))
"""Stacks and operations that two sources or more of published steps on fitted GPUs run: of all others no source could
be judged by another one.
Source: the measurements that ship with service.calibration."""

RESIDUALS: dict[StepClass, float] = {
    "known stack": 0.015,
    "other stack": 0.062,
    "new GPU": 0.103,
    "old GPU": 0.065,
    "MoE": 0.092,
}
"""80 % of published steps lie within exp(-s) and exp(s), s = max(LEAST_RESIDUAL, r (1 + 11 u)), of a prediction by
constants that never saw their source (for mixtures of experts their model), by class, u the share of waiting; each
source counts as much as any other.
Source: service.calibration, published/held_out.toml against published/throughput.csv."""

LEAST_RESIDUAL = 0.030
"""Runs of one configuration differ by so much between releases of one stack.
Source: NVIDIA-NeMo/Megatron-Bridge performance summaries: Llama 3.1 405B on H100, 311 and 328 tokens a second in two
releases."""


def step_class_of(
    stack: Operations, gpu: Gpu, *, is_sparse: bool, known_stacks: Collection[Operations] = KNOWN_STACKS
) -> StepClass:
    """The class of a step.

    Args:
        stack: the training stack, and whose operations it runs
        gpu: the GPU
        is_sparse: whether the model has routed experts
        known_stacks: those that other sources run too

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
    return "known stack" if stack in known_stacks else "other stack"


WAITING_WEIGHT = 11.0
"""How many times as uncertain as compute the waiting of a step is: for transfers, for other stages, for the host.
Source: of the weights 0 to 16, the least with which every source of 8 steps or more has 65 % of them inside intervals
that never saw it (service.calibration.step_spreads)."""


def waiting_fraction(parts: Mapping[str, float]) -> float:
    """Share of a step in which a device waits: for transfers, for other stages, for the host.

    Formula:
        (exposed transfers + bubble + host) / T

    Args:
        parts: seconds of one step by kind, which sum to it [s]

    Returns:
        share of the step [1]

    Source:
        definition

    >>> waiting_fraction({"gemm": 6.0, "exposed_data": 1.0, "bubble": 1.0})
    0.25
    """
    waiting = sum(seconds for kind, seconds in parts.items() if kind.startswith("exposed_") or kind in _WAITING)
    return waiting / sum(parts.values())


_WAITING = ("bubble", "host")
"""Parts in which a device waits, beside exposed transfers."""


def spread_scale(waiting: float) -> float:
    """Spread of a step over that of one that never waits.

    Formula:
        1 + WAITING_WEIGHT u

    Args:
        waiting: share of the step in which a device waits, u [1]

    Returns:
        the scale [1]

    Source:
        locally weighted conformal prediction: Lei et al. 2018, arXiv:1604.04173, section 5.2; WAITING_WEIGHT

    >>> spread_scale(0.5)
    6.5
    """
    return 1 + WAITING_WEIGHT * waiting


def step_interval(job: Job, step_seconds: float, waiting: float) -> Interval:
    """The 80 % interval of one step, with the spread of published steps of its class and of the caller's own.

    Formula:
        t exp(-s) to t exp(s), s = max(LEAST_RESIDUAL, own_spread_fraction(r (1 + 11 u)))

    Args:
        job: the job
        step_seconds: predicted seconds of one step, t [s]
        waiting: share of the step in which a device waits, u [1]

    Returns:
        the interval [s]; basis calibrated where the caller measured steps or the GPU's kernels were, else analytic

    Source:
        RESIDUALS; own_steps.own_spread_fraction

    >>> from service.estimator.samples import sample_job
    >>> step_interval(sample_job(), 10.0, 0.0).value
    10.0
    """
    stack = (job.software.name, job.software.implementation)
    usual = RESIDUALS[step_class_of(stack, job.gpu, is_sparse=bool(job.model.num_experts))]
    measured = job.cluster.measured_steps
    known = own_spread_fraction(job.calibrated_steps, usual * spread_scale(waiting))
    spread = max(LEAST_RESIDUAL, own_spread_fraction(measured, known))
    calibration = calibration_of(job.gpu)
    is_calibrated = bool(measured) or (calibration is not None and calibration.tells_seconds)
    basis: Basis = "calibrated" if is_calibrated else "analytic"
    return Interval(step_seconds * exp(-spread), step_seconds, step_seconds * exp(spread), basis)
