"""Can the training software run so: has it these operations, this loss, these versions, this kernel?"""

from service.estimator.cross_entropy import CROSS_ENTROPIES
from service.estimator.implementations import IMPLEMENTATIONS
from service.estimator.job import Job
from service.estimator.question import Layout, Software, Versions
from service.estimator.rules import Demand
from service.estimator.software import ENGINE_LOSS_SINCE, asked_of, version_of
from service.estimator.stacks import STACKS
from service.estimator.versions import is_version, is_year_and_month

_LIBRARIES = ("transformer_engine", "megatron_core", "torch", "torchtitan")
"""Fields of `Versions`."""

FIRST_YEAR = 2023
"""The earliest year that a version of torchtitan may name: there was no torchtitan before."""


def _named(versions: Versions | None) -> dict[str, str]:
    """The versions that are named, by library."""
    every = {} if versions is None else {library: getattr(versions, library) for library in _LIBRARIES}
    return {library: version for library, version in every.items() if version is not None}


def _unreadable(software: Software) -> list[str]:
    return [library for library, version in _named(software.versions).items() if not is_version(version)]


def _is_undated(software: Software) -> bool:
    """Whether torchtitan's version can be read, but is no month that torchtitan has seen."""
    version = version_of(software, "torchtitan")
    return version is not None and is_version(version) and not is_year_and_month(version, FIRST_YEAR)


VERSION_DEMANDS: tuple[Demand[Software], ...] = (
    Demand(
        "versions_are_readable",
        "recipe.stack.versions",
        lambda software, _: not _unreadable(software),
        lambda software, _: (
            f"the version of {' and '.join(_unreadable(software))} is not one: versions are compared number by number",
            "write numbers with dots between them, such as 2.11",
        ),
    ),
    Demand(
        "torchtitan_is_told_by_month",
        "recipe.stack.versions.torchtitan",
        lambda software, _: not _is_undated(software),
        lambda software, _: (
            f"torchtitan {version_of(software, 'torchtitan')} is no year from {FIRST_YEAR} on with a month of 1 to 12: "
            "torchtitan is told by year and month, and any other number would be read as a very old or new one",
            "write the year and month of its commit, such as 2025.6",
        ),
    ),
)
"""What has to hold before anything else is read of a software."""


def _used(job: Job) -> tuple[str, ...]:
    """Libraries that the software is made of, as far as their versions change what it keeps."""
    engine = ("transformer_engine", "megatron_core") if job.implementation.uses_transformer_engine else ()
    return (*engine, *(("torchtitan",) if job.software.name == "torchtitan" else ()), "torch")


def _unused(job: Job) -> list[str]:
    return [library for library in _named(job.software.versions) if library not in _used(job)]


def _engine_has_loss(job: Job) -> bool:
    if job.software.cross_entropy != "transformer-engine":
        return True
    return all(since.holds(version_of(job.software, library)) for library, since in ENGINE_LOSS_SINCE.items())


def _told(job: Job) -> str:
    named = _named(job.software.versions)
    return " and ".join(f"{library} {named[library]}" for library in ENGINE_LOSS_SINCE if library in named)


def _loss_in_implementation(job: Job) -> bool:
    return job.software.cross_entropy is None or job.software.cross_entropy in job.implementation.cross_entropies


def _has_implementation(job: Job) -> bool:
    return job.software.implementation in IMPLEMENTATIONS[job.software.name]


def _op_stands_alone(job: Job) -> bool:
    if "op" not in job.recompute.modules:
        return True
    return job.stack.selects == "op" and job.recompute.modules == ("op",)


def _offloads(job: Job, layout: Layout) -> bool:
    return layout.offload not in ("activations", "optimizer-and-activations") or job.stack.offloads_activations


DEMANDS: tuple[Demand[Job], ...] = (
    Demand(
        "stack_has_the_implementation",
        "recipe.stack.implementation",
        lambda job, _: _has_implementation(job),
        lambda job, _: (
            f"{job.software.name} has no {job.software.implementation} operations",
            f"use {' or '.join(IMPLEMENTATIONS[job.software.name])}, or leave implementation out",
        ),
    ),
    Demand(
        "implementation_computes_the_loss_so",
        "recipe.stack.cross_entropy",
        lambda job, _: not _has_implementation(job) or _loss_in_implementation(job),
        lambda job, _: (
            f"{job.software.name} with {job.software.implementation} operations has no {job.software.cross_entropy} "
            "cross entropy",
            f"use {', '.join(job.implementation.cross_entropies)}, or leave cross_entropy out",
        ),
    ),
    Demand(
        "libraries_have_the_loss",
        "recipe.stack.cross_entropy",
        lambda job, _: not _loss_in_implementation(job) or _engine_has_loss(job),
        lambda job, _: (
            f"{CROSS_ENTROPIES['transformer-engine'].meaning} is not to be had with {_told(job)}: it came with "
            "transformer_engine 2.2 and megatron_core 0.12, and megatron_core 0.19 turned it off",
            "use vocab-parallel or fused, or leave cross_entropy out",
        ),
    ),
    Demand(
        "fused_gradients_need_megatron",
        "recipe.stack.gradient_fusion",
        lambda job, _: not asked_of(job.recipe).gradient_fusion or job.software.name == "megatron-core",
        lambda job, _: (
            f"{job.software.name} writes gradients of weights by themselves: only megatron-core's products add them up",
            "leave gradient_fusion out, or use megatron-core",
        ),
    ),
    Demand(
        "versions_are_of_the_stack",
        "recipe.stack.versions",
        lambda job, _: not _has_implementation(job) or not _unused(job),
        lambda job, _: (
            f"nothing that {job.software.name} with {job.software.implementation} operations keeps depends on "
            f"{' and '.join(_unused(job))}",
            f"name versions of {' and '.join(_used(job))} alone",
        ),
    ),
    Demand(
        "experts_are_grouped_by_transformer_engine",
        "recipe.stack.grouped_experts",
        lambda job, _: (
            not asked_of(job.recipe).grouped_experts
            or (bool(job.model.num_experts) and job.implementation.uses_transformer_engine)
        ),
        lambda job, _: (
            f"grouped products of experts are Transformer Engine's, and here {job.model.num_experts} experts run with "
            f"{job.software.implementation} operations of {job.software.name}",
            "leave grouped_experts out, or use megatron-core with transformer-engine and a model with experts",
        ),
    ),
    Demand(
        "graphs_need_the_engine_or_a_compiler",
        "recipe.stack.cuda_graphs",
        lambda job, _: (
            not asked_of(job.recipe).cuda_graphs
            or job.implementation.uses_transformer_engine
            or job.software.implementation == "compiled"
        ),
        lambda job, _: (
            f"{job.software.name} with {job.software.implementation} operations launches kernels one by one",
            "leave cuda_graphs out, or use megatron-core with transformer-engine",
        ),
    ),
    Demand(
        "overlapped_exchange_needs_experts",
        "recipe.stack.expert_overlap",
        lambda job, _: (
            not asked_of(job.recipe).expert_overlap
            or (job.implementation.uses_transformer_engine and bool(job.model.num_experts))
        ),
        lambda job, _: (
            f"expert_overlap hides what megatron-core's experts exchange, and here {job.model.num_experts} experts run "
            f"with {job.software.name}",
            "leave expert_overlap out, or use megatron-core and a model with experts",
        ),
    ),
    Demand(
        "tensor_overlap_is_of_the_stack",
        "recipe.stack.tensor_overlap",
        lambda job, _: (
            not asked_of(job.recipe).tensor_overlap
            or job.implementation.uses_transformer_engine
            or job.software.name == "torchtitan"
        ),
        lambda job, _: (
            f"tensor_overlap hides what tensor ranks of megatron-core or of torchtitan send, and {job.software.name} "
            "waits for it",
            "leave tensor_overlap out, or use one of those",
        ),
    ),
    Demand(
        "tokens_are_sent_to_experts",
        "recipe.stack.dispatcher",
        lambda job, _: (
            job.software.dispatcher is None or (bool(job.model.num_experts) and job.software.name == "megatron-core")
        ),
        lambda job, _: (
            f"a dispatcher is megatron-core's way to {job.model.num_experts} experts, and the stack is "
            f"{job.software.name}",
            "leave dispatcher out, or use megatron-core and a model with experts",
        ),
    ),
    Demand(
        "imbalance_needs_experts",
        "recipe.expert_imbalance",
        lambda job, _: bool(job.model.num_experts) or job.recipe.expert_imbalance == 1,
        lambda job, _: (
            f"expert_imbalance {job.recipe.expert_imbalance:g} is about tokens of experts, and the model has none",
            "leave expert_imbalance out, or name a model with experts",
        ),
    ),
    Demand(
        "capacity_needs_experts",
        "recipe.expert_capacity_factor",
        lambda job, _: bool(job.model.num_experts) or job.recipe.expert_capacity_factor is None,
        lambda job, _: (
            f"expert_capacity_factor {job.recipe.expert_capacity_factor:g} is about tokens of experts, and the model "
            "has none",
            "leave expert_capacity_factor out, or name a model with experts",
        ),
    ),
    Demand(
        "recompute_by_operation_stands_alone",
        "recipe.recompute",
        lambda job, _: _op_stands_alone(job),
        lambda job, _: (
            f"op says for every operation of a layer whether it runs again, as torchtitan does; here "
            f"{job.software.name} is asked for {', '.join(job.recompute.modules)}",
            "use op alone with torchtitan, or name other modules",
        ),
    ),
    Demand(
        "stack_offloads_activations",
        "layout.offload",
        _offloads,
        lambda job, _: (
            f"{job.software.name} keeps activations on the GPU until the backward pass",
            f"use {', '.join(name for name, row in STACKS.items() if row.offloads_activations)}, or offload the "
            "optimizer alone",
        ),
    ),
)
