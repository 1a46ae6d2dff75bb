"""Random training software that can run a model: every stack, with choices that it has and that have an effect."""

from collections.abc import Collection
from dataclasses import replace

from hypothesis import strategies as st

from service.estimator import Model
from service.estimator.model.build import recurrences_of
from service.estimator.question import AttentionName, Software, StackName, Versions
from service.estimator.software.implementations import IMPLEMENTATIONS, Implementation
from service.estimator.software.stacks import STACKS

ENGINE = (
    Versions(transformer_engine="2.1", megatron_core="0.11"),
    Versions(transformer_engine="2.11", megatron_core="0.14", torch="2.9"),
    Versions(transformer_engine="2.19", megatron_core="0.19"),
)
TITAN = (Versions(torchtitan="2024.11", torch="2.5"), Versions(torchtitan="2025.8"))
OTHER = (Versions(), Versions(torch="1.10"), Versions(torch="2.1"))


def stacks_for(model: Model, among: Collection[StackName] = tuple(STACKS)) -> list[StackName]:
    """Stacks that have code for every layer of a model."""
    return [name for name in among if set(recurrences_of(model)) <= set(STACKS[name].recurrences)]


def implementation_in(software: Software) -> Implementation:
    """Whose operations a software runs, the stack's usual ones where it does not say."""
    rows = IMPLEMENTATIONS[software.name]
    return next(iter(rows.values())) if software.implementation is None else rows[software.implementation]


@st.composite
def software(draw: st.DrawFn, model: Model, among: Collection[StackName] = tuple(STACKS)) -> Software:
    """A stack by its usual ways, or with any of its choices made."""
    name = draw(st.sampled_from(stacks_for(model, among)))
    plain = Software(name=name)
    if draw(st.booleans()):
        return plain
    asked = replace(plain, implementation=draw(st.sampled_from((None, *IMPLEMENTATIONS[name]))))
    run = implementation_in(asked)
    libraries = ENGINE if run.uses_transformer_engine else TITAN if name == "torchtitan" else OTHER
    versions = draw(st.sampled_from((None, *libraries)))
    lacks_loss = versions in (ENGINE[0], ENGINE[2])
    deterministic = draw(st.booleans())
    lacking = {"transformer-engine"} if lacks_loss else set()
    lacking |= {"transformer-engine", "fused"} if deterministic and name == "megatron-core" else set()
    losses = [loss for loss in run.cross_entropies if loss not in lacking]
    optional = (None, False, True)
    engine = optional if run.uses_transformer_engine else (None, False)
    fuses = optional if name == "megatron-core" else (None, False)
    launches = (False, True) if run.uses_transformer_engine or asked.implementation == "compiled" else (False,)
    sends = (None, "alltoall", "allgather", "flex") if model.num_experts and name == "megatron-core" else (None,)
    return replace(
        asked,
        versions=versions,
        cross_entropy=draw(st.sampled_from((None, *losses))),
        gradient_fusion=draw(st.sampled_from(fuses)),
        cuda_graphs=draw(st.sampled_from(launches)),
        fused_update=draw(st.sampled_from(optional)),
        deterministic=deterministic,
        grouped_experts=draw(st.sampled_from(engine if model.num_experts else (None, False))),
        dispatcher=draw(st.sampled_from(sends)),
        attention_mask=draw(st.booleans()),
        expandable_segments=draw(st.sampled_from(optional)),
    )


def kernels_of(asked: Software) -> tuple[AttentionName, ...]:
    """Attention kernels that a software calls on Hopper."""
    run = implementation_in(asked)
    plain: tuple[AttentionName, ...] = ("eager", "flash", "flash-2", "flash-3")
    return (*plain, "cudnn") if run.uses_transformer_engine or asked.name == "torchtitan" else plain
