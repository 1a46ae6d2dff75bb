"""Which software does a recipe mean: whose operations, which loss, which versions?"""

from dataclasses import replace
from functools import lru_cache

from service.estimator.cross_entropy import CROSS_ENTROPIES, CrossEntropy
from service.estimator.filled import filled
from service.estimator.implementations import IMPLEMENTATIONS, Implementation
from service.estimator.names import CrossEntropyName, ImplementationName, StackName
from service.estimator.overlap import OVERLAPS, Overlap
from service.estimator.question import Recipe, Software
from service.estimator.stacks import STACKS
from service.estimator.versions import Range, at_least

ENGINE_LOSS_SINCE: dict[str, Range] = {"transformer_engine": Range("2.2"), "megatron_core": Range("0.12", "0.19")}
"""Versions that have Transformer Engine's cross entropy, by library. Source: NVIDIA/TransformerEngine@v2.2
pytorch/cross_entropy.py; NVIDIA/Megatron-LM@0f60adbd (added in 0.12) and @168cb15d (turned off in 0.19)."""

_IN_PLACE_BEFORE = "2.18"
"""Transformer Engine keeps an fp32 gradient from here on. Source: NVIDIA/TransformerEngine@01bbe3ee."""


_PLAIN: dict[StackName, Software] = {name: Software(name=name) for name in STACKS}


def asked_of(recipe: Recipe) -> Software:
    """The training software as a recipe says it.

    Args:
        recipe: the recipe; its stack is filled

    Returns:
        the software, nothing filled
    """
    given: StackName | Software = filled(recipe.stack)
    return given if isinstance(given, Software) else _PLAIN[given]


def software_of(recipe: Recipe) -> Software:
    """The training software of a recipe in its full form, every choice filled but the versions.

    Args:
        recipe: the recipe; its stack is filled

    Returns:
        the software
    """
    return _filled(asked_of(recipe))


@lru_cache(maxsize=64)
def _filled(asked: Software) -> Software:
    rows = IMPLEMENTATIONS[asked.name]
    named = next(iter(rows)) if asked.implementation is None else asked.implementation
    if named not in rows:
        return asked
    run = rows[named]
    fused = run.uses_transformer_engine if asked.gradient_fusion is None else asked.gradient_fusion
    usually = OVERLAPS[asked.name, named].overlaps_tensor and not asked.deterministic
    overlaps = usually if asked.tensor_overlap is None else asked.tensor_overlap
    losses = asked.cross_entropy or default_cross_entropy(run, asked)
    grouped = run.uses_transformer_engine if asked.grouped_experts is None else asked.grouped_experts
    grows = STACKS[asked.name].grows_segments if asked.expandable_segments is None else asked.expandable_segments
    return replace(
        asked,
        expandable_segments=grows,
        fused_update=STACKS[asked.name].fuses_update if asked.fused_update is None else asked.fused_update,
        implementation=named,
        cross_entropy=losses,
        gradient_fusion=fused,
        grouped_experts=grouped,
        tensor_overlap=overlaps,
    )


def version_of(software: Software, library: str) -> str | None:
    """The version of a library that a software names.

    Args:
        software: the software
        library: the library's field of `Versions`

    Returns:
        the version; None where it is not told
    """
    return None if software.versions is None else getattr(software.versions, library)


def default_cross_entropy(run: Implementation, software: Software) -> CrossEntropyName:
    """How the loss is computed where the recipe does not say.

    Args:
        run: whose operations run
        software: the software

    Returns:
        the implementation's first; Transformer Engine's own where its version is named and it and Megatron-Core have
        it, as Megatron-Bridge turns it on there, unless only deterministic kernels run; an eager one with torchtitan
        of 2024, which compiled no loss

    Source:
        NVIDIA-NeMo/Megatron-Bridge@067f987 recipes (cross_entropy_fusion_impl te); NVIDIA/TransformerEngine@v2.2;
        pytorch/torchtitan@9dec370 train.py
    """
    version = version_of(software, "transformer_engine")
    titan = version_of(software, "torchtitan")
    if titan is not None and not at_least(titan, "2025.1"):
        return "eager"
    core = ENGINE_LOSS_SINCE["megatron_core"].holds(version_of(software, "megatron_core"))
    has_it = version is not None and core and Range("2.2", _IN_PLACE_BEFORE).holds(version)
    is_on = run.uses_transformer_engine and has_it and not software.deterministic
    return "transformer-engine" if is_on else run.cross_entropies[0]


def implementation_of(software: Software) -> Implementation:
    """Whose operations a software runs.

    Args:
        software: the software, its implementation filled

    Returns:
        the row; the stack's first where the stack has none of that name, which a demand refuses
    """
    rows = IMPLEMENTATIONS[software.name]
    named = software.implementation
    return rows[named] if named is not None and named in rows else next(iter(rows.values()))


def overlap_of(software: Software) -> Overlap:
    """What a software sends beside its compute.

    Args:
        software: the software, its implementation filled

    Returns:
        the row; that of the stack's first implementation where the stack has none of that name
    """
    named: ImplementationName = filled(software.implementation)
    return OVERLAPS.get((software.name, named)) or OVERLAPS[software.name, next(iter(IMPLEMENTATIONS[software.name]))]


def cross_entropy_of(software: Software) -> CrossEntropy:
    """The row of a software's cross entropy, as its version computes it.

    Args:
        software: the software, its cross entropy filled

    Returns:
        the row
    """
    name: CrossEntropyName = software.cross_entropy or "eager"
    version = version_of(software, "transformer_engine")
    if name == "transformer-engine" and version is not None and at_least(version, _IN_PLACE_BEFORE):
        return CROSS_ENTROPIES["vocab-parallel"]
    return CROSS_ENTROPIES[name]
