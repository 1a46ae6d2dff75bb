"""A question with every default filled and every rule checked."""

from dataclasses import dataclass, fields, replace
from functools import lru_cache
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

from service.errors import Problem, Refused
from service.estimator.complete import (
    CompleteCluster,
    CompleteLayout,
    CompleteOwnedPrice,
    CompletePrice,
    CompleteQuestion,
    CompleteRecipe,
    completed,
)
from service.estimator.constants import (
    BUSY_POWER_FRACTION,
    FAILURES_PER_GPU_HOUR,
    HOST_POWER_FRACTION,
    IDLE_POWER_FRACTION,
    POWER_USAGE_EFFECTIVENESS,
    PREEMPTIONS_PER_INSTANCE_HOUR,
    RESTART_SECONDS,
)
from service.estimator.degrees import Degrees, degrees_of
from service.estimator.model.build import MIXERS, MOST_CACHED_LEDGERS, method_of, mixers_of
from service.estimator.parallelism import context, data, expert, pipeline, tensor
from service.estimator.parallelism.pipeline import partition_layers, partition_layers_by_cost
from service.estimator.question import (
    Checkpointing,
    Cluster,
    Gpu,
    Layout,
    Model,
    OwnedPrice,
    Price,
    Question,
    Recipe,
    Software,
)
from service.estimator.refusals import refusal
from service.estimator.rule import LayoutRule, WorkloadRule, divisors_of, problems_of
from service.estimator.rules import software, training
from service.estimator.schedule import complete_stages, global_batch_of, placed, questions_of
from service.estimator.software.precision import PRECISIONS, SHORT_NAMES, default_gradient_dtype, default_precision
from service.estimator.software.stacks import DEFAULT_STACKS, STACKS, Stack, software_of
from service.estimator.workload import Workload, recompute_of, workload_of

LARGEST_NODE = 16
"""GPUs in the largest single node sold; a larger fast-link domain spans a rack. Source: NVIDIA HGX-2, 16 V100."""


def fill_defaults(question: Question) -> CompleteQuestion:
    """A configuration with every default filled, whatever rules its layout breaks."""
    problems = training.problems_of_model(question.model)
    if isinstance(question.recipe.stack, Software):  # versions are compared while defaults are filled
        problems = (*problems, *problems_of(software.VERSION_RULES, question.recipe.stack, None))
    if problems:
        raise Refused(*problems)
    return _filled_with_stack(question)[1]


def with_stack(question: Question) -> Question:
    """A question that names its software: where it names none, the first default that breaks the fewest rules."""
    return _filled_with_stack(question)[0]


def _filled_with_stack(question: Question) -> tuple[Question, CompleteQuestion]:
    """A question that names its software, and the same with every default filled."""
    if question.recipe.stack is not None:
        return question, _filled(question)
    tried: list[tuple[int, Question, CompleteQuestion]] = []
    for name in DEFAULT_STACKS:
        named = replace(question, recipe=replace(question.recipe, stack=name))
        full = _filled(named)
        unmet = len(problems_whatever_the_degrees(workload_of(full), full.layout))
        if not unmet:
            return named, full
        tried.append((unmet, named, full))
    return min(tried, key=itemgetter(0))[1:]


def _filled(question: Question) -> CompleteQuestion:
    """A configuration with every default filled but that of the stack."""
    asked, cluster = question.recipe, complete_cluster(question.cluster, question.gpu)
    layout = _fill_layout(question, asked, cluster)
    recipe = complete_stages(asked.stages, _fill_recipe(asked, question.gpu, layout), layout)
    return CompleteQuestion(
        model=fill_model(question.model),
        recipe=recipe,
        layout=layout,
        cluster=cluster,
        gpu=question.gpu,
        price=_fill_price(question.price),
    )


def complete_cluster(cluster: Cluster, gpu: Gpu) -> CompleteCluster:
    """A cluster with every default filled. A node is one domain: by the GPU's own link, or by the host's bus."""
    node = min(cluster.gpus_per_node, cluster.gpus)
    rack = gpu.scale_up_gpus if gpu.scale_up_gpus > LARGEST_NODE else node
    return completed(
        CompleteCluster,
        cluster,
        gpus_per_node=node,
        scale_up_gpus=cluster.scale_up_gpus or min(rack, cluster.gpus),
        inter_node_bytes_per_s=cluster.inter_node_bytes_per_s or gpu.inter_node_bytes_per_s,
        **{name: usual for name, usual in _RUNNING.items() if getattr(cluster, name) is None},
    )


@lru_cache(maxsize=MOST_CACHED_LEDGERS)
def fill_model(model: Model) -> Model:
    """Heads in full, as far as a layer reads them."""
    derived: dict[str, Any] = {
        "num_key_value_heads": model.key_value_heads,
        "head_dim": model.head_width or None,
        "attention_out_bias": model.out_bias,
    }
    read = {name for mixer in mixers_of(model) for name in MIXERS[mixer].optional_fields}
    filled = {name: value for name, value in derived.items() if name in read}
    if model.scalar_head:
        filled |= {"tie_word_embeddings": False, "lm_head_bias": False}
    return replace(model, **filled)


def _fill_recipe(recipe: Recipe, gpu: Gpu, layout: CompleteLayout) -> CompleteRecipe:
    """Everything but the stages of the run."""
    batch = global_batch_of(recipe, layout.data)
    stack = STACKS[software_of(recipe).name]
    name = SHORT_NAMES.get(recipe.precision, recipe.precision) if recipe.precision else default_precision(gpu)
    return completed(
        CompleteRecipe,
        recipe,
        global_batch=batch,
        global_batch_tokens=batch * recipe.sequence_length,
        stages=(),
        precision=name,
        gradient_dtype=recipe.gradient_dtype or default_gradient_dtype(PRECISIONS[name], stack, layout.zero_stage),
        vocabulary_multiple=recipe.vocabulary_multiple or stack.vocabulary_multiple,
        recompute=recipe.recompute if isinstance(recipe.recompute, str) else recompute_of(recipe),
        method="full" if recipe.method == "full" else method_of(recipe),
    )


def _fill_layout(question: Question, recipe: Recipe, cluster: Cluster) -> CompleteLayout:
    layout = question.layout
    stack = STACKS[software_of(recipe).name]
    replica = layout.tensor * layout.context * layout.pipeline
    if layout.data is None and cluster.gpus % replica:
        words = {"layout": layout, "replica": replica, "gpus": cluster.gpus, "divisors": divisors_of(cluster.gpus)}
        raise Refused(refusal("replica_divides_cluster", **words))
    replicas = layout.data or cluster.gpus // replica
    zero_stage = stack.zero_stages[0] if layout.zero_stage is None else layout.zero_stage
    reshard = layout.reshard_after_forward
    if reshard is None:
        reshard = zero_stage == 3 and not (stack.delays_reductions and layout.pipeline > 1)
    splits_norms = layout.tensor > 1 and stack.splits_norms
    parallel = splits_norms if layout.sequence_parallel is None else layout.sequence_parallel
    return completed(
        CompleteLayout,
        layout,
        data=replicas,
        virtual_group=layout.virtual_group or layout.pipeline,
        expert_tensor=layout.expert_tensor or (1 if layout.expert > 1 else layout.tensor),
        zero_stage=zero_stage,
        shard_group=layout.shard_group or replicas * layout.context,
        reshard_after_forward=reshard,
        sequence_parallel=parallel,
        context_method=layout.context_method or stack.context_methods[0],
        rank_order=layout.rank_order or stack.rank_orders[0],
        schedule=layout.schedule or ("interleaved-1f1b" if layout.virtual_pipeline > 1 else "1f1b"),
        stage_layers=layout.stage_layers or _partition(layout, stack, question.model),
    )


def _partition(layout: Layout, stack: Stack, model: Model) -> tuple[int, ...] | None:
    """Layers of each chunk where the stack or the layout deals them unevenly."""
    if stack.partitions_by_cost and 1 < layout.pipeline <= model.num_hidden_layers:
        return partition_layers_by_cost(layout.pipeline, model)
    return partition_layers(layout, model)


_RUNNING: dict[str, Any] = {
    "failures_per_gpu_hour": FAILURES_PER_GPU_HOUR,
    "restart_seconds": RESTART_SECONDS,
    "spare_fraction": 0.0,
    "grid_region": None,
    "grid_kg_co2e_per_kwh": None,
    "pue": POWER_USAGE_EFFECTIVENESS,
    "busy_power_fraction": BUSY_POWER_FRACTION,
    "idle_power_fraction": IDLE_POWER_FRACTION,
    "host_power_fraction": HOST_POWER_FRACTION,
}
"""Fields of a cluster that no step depends on, with their defaults.
Source: constants.py."""


_RECIPE_OF_STEP = tuple(field.name for field in fields(Recipe) if field.name not in {"training_tokens", "checkpoint"})
_CLUSTER_OF_STEP = tuple(field.name for field in fields(Cluster) if field.name not in _RUNNING)
_recipe_of_step = attrgetter(*_RECIPE_OF_STEP)
_cluster_of_step = attrgetter(*_CLUSTER_OF_STEP)
"""Values of the fields that a step depends on, in that order: the key of a cached configuration."""


def _fill_price(price: Price | OwnedPrice | None) -> CompletePrice | CompleteOwnedPrice | None:
    if price is None:
        return None
    if isinstance(price, OwnedPrice):
        return completed(CompleteOwnedPrice, price)
    usual = PREEMPTIONS_PER_INSTANCE_HOUR if price.price_model == "spot" else 0.0
    taken = price.preemptions_per_instance_hour
    return completed(CompletePrice, price, preemptions_per_instance_hour=usual if taken is None else taken)


MOST_CACHED_CONFIGURATIONS = 256
"""Cached configurations. Source: a choice; more than one sheet, or one comparison of prices, has."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ResolvedQuestion:
    """A question with every default filled and every rule checked. Caches compare it by identity."""

    question: CompleteQuestion
    """Every default filled."""
    workload: Workload
    """Its rows and ledger."""
    degrees: Degrees
    """Its degrees as plain numbers."""
    run_stages: "tuple[tuple[ResolvedQuestion, ...], ...]" = ()
    """The first and, where the batch rises, the last configuration of each stage of the run before the last one."""


def resolve(question: Question) -> ResolvedQuestion:
    """Fill every default of a question and check every rule."""
    return with_price(with_run(configuration_of(question), run_options_of(question)), question.price)


def configuration_of(question: Question) -> ResolvedQuestion:
    """The configuration of a question, without its run. Questions that differ in their run alone share one."""
    problems = training.problems_of_run(question)
    asked = question.recipe
    try:
        result = _configuration(
            question.model,
            question.gpu,
            question.layout,
            _recipe_of_step(asked),
            asked.training_tokens if asked.stages else None,  # stages of a run change its memory and keep its tokens
            _cluster_of_step(question.cluster),
        )
    except Refused as refused:
        raise Refused(*refused.problems, *problems) from None
    if problems:
        raise Refused(*problems)
    return result


class RunOptions(NamedTuple):
    """Fields that a run depends on and its configuration does not, but for the price."""

    training_tokens: float | None
    checkpoint: Checkpointing | None
    cluster: tuple[tuple[str, Any], ...]


def run_options_of(question: Question) -> RunOptions:
    """The run of a question."""
    recipe, cluster = question.recipe, question.cluster
    given = tuple((name, value) for name in _RUNNING if (value := getattr(cluster, name)) is not None)
    return RunOptions(recipe.training_tokens, recipe.checkpoint, given)


def with_run(configuration: ResolvedQuestion, run: RunOptions) -> ResolvedQuestion:
    """A configuration with its run, without a price."""
    usual = configuration.question
    recipe = replace(usual.recipe, training_tokens=run.training_tokens, checkpoint=run.checkpoint)
    cluster = replace(usual.cluster, **dict(run.cluster)) if run.cluster else usual.cluster
    workload = replace(configuration.workload, recipe=recipe, cluster=cluster)
    return replace(configuration, question=replace(usual, recipe=recipe, cluster=cluster), workload=workload)


def with_price(resolved: ResolvedQuestion, price: Price | OwnedPrice | None) -> ResolvedQuestion:
    """A question at another price, its defaults filled."""
    return replace(resolved, question=replace(resolved.question, price=_fill_price(price)))


@lru_cache(maxsize=MOST_CACHED_CONFIGURATIONS)
def _configuration(
    model: Model, gpu: Gpu, layout: Layout, recipe: tuple[Any, ...], tokens: float | None, cluster: tuple[Any, ...]
) -> ResolvedQuestion:
    """The configuration of the fields that memory, FLOP and step depend on."""
    question = Question(
        model=model,
        gpu=gpu,
        layout=layout,
        recipe=Recipe(training_tokens=tokens, **dict(zip(_RECIPE_OF_STEP, recipe, strict=True))),
        cluster=Cluster(**dict(zip(_CLUSTER_OF_STEP, cluster, strict=True))),
        price=None,
    )
    full = fill_defaults(question)
    result = ResolvedQuestion(question=full, workload=workload_of(full), degrees=degrees_of(full.recipe, full.layout))
    problems = _problems_of(result)
    if problems:
        raise Refused(*problems)
    return replace(result, run_stages=_run_stages(result)) if question.recipe.stages else result


def problems_whatever_the_degrees(workload: Workload, layout: CompleteLayout) -> tuple[Problem, ...]:
    """What software and GPU cannot do of a workload, whatever its degrees."""
    return problems_of(_RULES, workload, layout)


def _problems_of(result: ResolvedQuestion) -> tuple[Problem, ...]:
    """Every rule that a question with every field filled breaks."""
    workload, layout = result.workload, result.question.layout
    return (*problems_of(_RULES, workload, layout), *problems_of(rules_of(layout), workload, result.degrees))


def _run_stages(own: ResolvedQuestion) -> tuple[tuple[ResolvedQuestion, ...], ...]:
    """The configurations of each stage of the run; those of the recipe's own length share its ledger."""
    stages, problems = [], []
    for index in range(len(own.question.recipe.stages)):
        first, *last = questions_of(own.question, index)
        same = first.recipe.sequence_length == own.question.recipe.sequence_length
        workload = replace(own.workload, recipe=first.recipe) if same else workload_of(first)
        results = [
            ResolvedQuestion(
                question=one, workload=replace(workload, recipe=one.recipe), degrees=degrees_of(one.recipe, one.layout)
            )
            for one in (first, *last)
        ]
        stages.append(tuple(results))
        problems += placed(dict.fromkeys(problem for one in results for problem in _problems_of(one)), index)
    if problems:
        raise Refused(*problems)
    return tuple(stages)


_RULES: dict[str, WorkloadRule] = {
    **software.SOFTWARE_RULES,
    **software.ATTENTION_RULES,
    **training.FORMAT_RULES,
    **software.ABILITY_RULES,
    **software.ORDER_RULES,
    **training.TRAINING_RULES,
    **software.MEASURED_RULES,
}
"""Rules of a workload, whatever its degrees."""


def rules_of(layout: Layout) -> dict[str, LayoutRule]:
    """The rules that a layout's choices bring with them."""
    is_even, is_dualpipe = layout.stage_layers is None, layout.schedule == "dualpipe" and layout.pipeline > 1
    return {
        **software.RULES,
        **data.RULES,
        **tensor.RULES,
        **context.RULES,
        **(context.HEAD_RULES if layout.context_method == "ulysses" else context.BLOCK_RULES),
        **pipeline.RULES,
        **(pipeline.EVEN_RULES if is_even else {}),
        **(pipeline.DUALPIPE_RULES if is_dualpipe else {}),
        **expert.RULES,
    }
