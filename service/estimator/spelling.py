"""Questions in one spelling, by which those about the same job are known to be the same."""

from dataclasses import fields, replace
from functools import lru_cache
from typing import Any

from service.estimator.complete import CompleteLayout, CompleteQuestion
from service.estimator.degrees import WEIGHTS
from service.estimator.model.build import layer_type, mlp_type
from service.estimator.question import Method, Model, Recompute, RecomputeName, Software, StackName
from service.estimator.resolve import fill_model
from service.estimator.software.precision import PRECISIONS, decouples_gradients
from service.estimator.software.stacks import STACKS, implementation_of, software_of


def in_one_spelling(question: CompleteQuestion) -> CompleteQuestion:
    """A resolved question without values that mean the same as their absence.

    >>> from service.estimator.samples import sample_resolved
    >>> usual = sample_resolved().question
    >>> spelled = replace(usual, recipe=replace(usual.recipe, recompute=Recompute(granularity="none")))
    >>> in_one_spelling(spelled) == in_one_spelling(usual)
    True
    """
    recipe = question.recipe
    if isinstance(recipe.recompute, Recompute):
        recipe = replace(recipe, recompute=_recompute(recipe.recompute, software_of(recipe).name))
    if isinstance(recipe.stack, Software):
        recipe = replace(recipe, stack=_stack(recipe.stack, question))
    if recipe.method == Method(name="full"):
        recipe = replace(recipe, method="full")
    longest = max((recipe.sequence_length, *(stage.sequence_length for stage in recipe.stages)))
    model = model_in_one_spelling(question.model, longest)
    return replace(question, model=model, recipe=recipe, layout=_layout(question))


def _layout(question: CompleteQuestion) -> CompleteLayout:
    """A layout without choices among ranks that are one."""
    layout = question.layout
    idle: dict[str, Any] = {}
    stack = STACKS[software_of(question.recipe).name]
    if layout.context == 1:
        idle["context_method"] = stack.context_methods[0]
    if layout.pipeline == 1:
        idle |= {"schedule": "1f1b", "rank_order": stack.rank_orders[0]}
    if layout.zero_stage == 0:
        idle |= {"shard_group": layout.data * layout.context}
    if layout.zero_stage < WEIGHTS:
        idle |= {"reshard_after_forward": False}
    changed = {name: value for name, value in idle.items() if getattr(layout, name) != value}
    return replace(layout, **changed) if changed else layout


def _recompute(rule: Recompute, stack: StackName) -> Recompute | RecomputeName:
    usual = {
        "none": rule,
        "full": replace(
            rule, method="uniform", layers=rule.layers if rule.layers not in (None, 1) else None, modules=()
        ),
        "selective": replace(rule, modules=() if rule.modules == (STACKS[stack].selects,) else rule.modules),
    }[rule.granularity]
    return rule.granularity if usual == Recompute(granularity=rule.granularity) else rule


def _stack(software: Software, question: CompleteQuestion) -> Software | StackName:
    """Training software by the choices that are not usual, and that have an effect."""
    for one in fields(Software):
        if one.name == "name" or getattr(software, one.name) == one.default:
            continue
        changed: dict[str, Any] = {one.name: one.default}
        without = replace(software, **changed)
        if _is_usual(one.name, software, without, question):
            software = without
    return software.name if software == Software(name=software.name) else software


def _is_usual(field: str, software: Software, without: Software, question: CompleteQuestion) -> bool:
    recipe, layout, model = question.recipe, question.layout, question.model
    value, full = getattr(software, field), software_of(replace(recipe, stack=without))
    overlap = implementation_of(full).overlap
    reduces = overlap.hides_gradients and layout.zero_stage >= overlap.hides_from_stage
    if full.overlap_reduce is not None:
        reduces = full.overlap_reduce
    usual: dict[str, Any] = {
        "overlap_reduce": reduces,
        "overlap_gather": reduces and layout.zero_stage >= overlap.gathers_from_stage,
        "dispatcher": "alltoall",
    }
    if field == "decoupled_gradients":
        precision = PRECISIONS[recipe.precision]
        return bool(decouples_gradients(precision, replace(recipe, stack=without), STACKS[software.name]) == value)
    is_alone = layout.data * layout.context == 1
    is_idle: dict[str, bool] = {
        "overlap_gather": layout.zero_stage == 0 or is_alone,
        "overlap_reduce": is_alone,
        "dispatcher": not model.num_experts,
        "grouped_experts": not model.num_experts,
        "tensor_overlap": layout.tensor == 1 or not layout.sequence_parallel,
    }
    return is_idle.get(field, False) or bool(usual.get(field, getattr(full, field)) == value)


@lru_cache(maxsize=1024)
def model_in_one_spelling(model: Model, longest: int) -> Model:
    """A model with the kind of each layer, and without sizes that no layer or longest sequence reads.

    >>> plain = Model(vocab_size=8, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8)
    >>> model_in_one_spelling(replace(plain, mlp_layer_types=("dense",)), 8) == model_in_one_spelling(plain, 8)
    True
    """
    model = fill_model(model)
    layers = range(model.num_hidden_layers)
    types = tuple(layer_type(model, layer) for layer in layers)
    mlps = tuple(mlp_type(model, layer) for layer in layers)
    usual = "sparse" if model.num_experts else "dense"
    has_window = {*types} != {"full_attention"}
    positions = model.max_position_embeddings
    read: dict[str, Any] = {
        "max_position_embeddings": positions if positions and positions < longest else None,
        "layer_types": () if len({*types}) == 1 and types[0] in ("full_attention", "sliding_attention") else types,
        "sliding_window": model.sliding_window if has_window else None,
        "mlp_layer_types": () if {*mlps} == {usual} else mlps,
        "first_k_dense_replace": 0,
        "intermediate_size": model.intermediate_size if "dense" in mlps else None,
        "moe_intermediate_size": model.expert_width or None,
    }
    if not model.num_experts:
        read |= {"num_experts_per_tok": 0, "shared_expert_intermediate_size": 0, "shared_expert_gate": False}
    return replace(model, **read)
