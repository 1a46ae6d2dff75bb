"""Does the attention kernel that is asked for run on the GPU, and does the software call it?"""

from service.estimator.implementations import IMPLEMENTATIONS
from service.estimator.job import Job
from service.estimator.names import AttentionName
from service.estimator.question import Layout
from service.estimator.rules import Demand
from service.estimator.workspaces import generation

_WRITTEN_FOR: dict[AttentionName, str] = {"flash-3": "Hopper", "flash-4": "Blackwell"}
"""Generation that a kernel is written for, where it runs on no other."""


_RUNS_NOT_ON: dict[AttentionName, tuple[str, ...]] = {
    "flash-1": ("Pascal", "Volta"),
    "flash-2": ("Pascal", "Volta", "Turing"),
    "cudnn": ("Pascal", "Volta", "Turing", "CDNA2", "CDNA3", "CDNA4"),
}
"""Generations that lack the instructions of a kernel. Source: Dao-AILab/flash-attention README, CUDA support; NVIDIA
cuDNN support matrix (fused attention from Ampere on)."""


def _lacks_no_kernel(job: Job, _: Layout) -> bool:
    if job.software.implementation not in IMPLEMENTATIONS[job.software.name]:
        return True
    if job.recipe.attention in _WRITTEN_FOR:
        return generation(job.gpu) == _WRITTEN_FOR[job.recipe.attention]
    if generation(job.gpu) in _RUNS_NOT_ON.get(job.recipe.attention, ()):
        return False
    return job.recipe.attention != "cudnn" or _runs_cudnn(job)


def _runs_cudnn(job: Job) -> bool:
    return job.implementation.uses_transformer_engine or job.software.name == "torchtitan"


def _missing_kernel(job: Job, _: Layout) -> tuple[str, str]:
    if written := _WRITTEN_FOR.get(job.recipe.attention):
        message = f"{job.recipe.attention} is written for {written}, and the GPU is {generation(job.gpu)}"
    elif generation(job.gpu) in _RUNS_NOT_ON.get(job.recipe.attention, ()):
        message = f"{job.recipe.attention} does not run on {generation(job.gpu)}"
    else:
        run = job.software
        message = f"{run.name} with {run.implementation} operations does not call cuDNN's attention"
    return message, "use flash to take the kernel that runs there"


DEMANDS = (Demand("kernel_runs_there", "recipe.attention", _lacks_no_kernel, _missing_kernel),)
"""What the attention kernel of a job has to meet."""
