"""Which defaults does a configuration take? Every field left out, from model, GPU, stack and the other fields."""

from dataclasses import replace
from functools import lru_cache
from typing import Any

from service.errors import Problem, Refused
from service.estimator import consistency, software_demands
from service.estimator.batch import resolve_batch
from service.estimator.build import LEDGERS_KEPT, mixers_of, recurrences_of
from service.estimator.filled import filled
from service.estimator.gpu import Gpu
from service.estimator.job import recompute_of
from service.estimator.mixers import MIXERS
from service.estimator.model import Model
from service.estimator.parallelism.pipeline import dealt_layers, layers_by_cost
from service.estimator.precision import PRECISIONS, default_precision
from service.estimator.question import Cluster, Layout, Question, Recipe, Software
from service.estimator.rules import divisors_of, unmet
from service.estimator.run_stages import filled_stages
from service.estimator.software import software_of
from service.estimator.stacks import STACKS, Stack, default_stack
from service.estimator.state import default_gradient_dtype
from service.estimator.training import method_of

LARGEST_NODE = 16
"""GPUs in the largest single node sold; a larger fast-link domain spans a rack. Source: NVIDIA HGX-2, 16 V100."""


def filled_in(question: Question) -> Question:
    """A configuration with every default filled, whatever rules its layout breaks.

    Args:
        question: the question as asked, names already looked up

    Returns:
        the question, its run left as it is

    Raises:
        Refused: the model contradicts itself, or defaults cannot be filled as batch or replicas do not divide
    """
    problems = (*consistency.problems_of(question.model), *_version_problems(question))
    if problems:
        raise Refused(*problems)
    cluster = _fill_cluster(question.cluster, question.gpu)
    asked = question.recipe
    if asked.stack is None:
        quantizes = method_of(asked).name == "qlora"
        asked = replace(asked, stack=default_stack(recurrences_of(question.model), quantizes=quantizes))
    layout = _fill_layout(question, asked, cluster)
    batched = filled_stages(resolve_batch(asked, filled(layout.data)), layout)
    recipe = _fill_recipe(batched, question.gpu, filled(layout.zero_stage))
    return replace(question, model=_fill_model(question.model), recipe=recipe, layout=layout, cluster=cluster)


def _version_problems(question: Question) -> tuple[Problem, ...]:
    """Versions are compared while defaults are filled, so they have to be readable first."""
    stack = question.recipe.stack
    if not isinstance(stack, Software):
        return ()
    return unmet(software_demands.VERSION_DEMANDS, stack, question.layout)


def _fill_cluster(cluster: Cluster, gpu: Gpu) -> Cluster:
    """A node is always one domain: by the GPU's own link, or over the host's bus where that reaches fewer GPUs."""
    node = min(cluster.gpus_per_node, cluster.gpus)
    rack = gpu.scale_up_gpus if gpu.scale_up_gpus > LARGEST_NODE else node
    return replace(
        cluster,
        gpus_per_node=node,
        scale_up_gpus=cluster.scale_up_gpus or min(rack, cluster.gpus),
        inter_node_bytes_per_s=cluster.inter_node_bytes_per_s or gpu.inter_node_bytes_per_s,
    )


@lru_cache(maxsize=LEDGERS_KEPT)
def _fill_model(model: Model) -> Model:
    """Heads in full, as far as a layer reads them."""
    derived: dict[str, Any] = {
        "num_key_value_heads": model.key_value_heads,
        "head_dim": model.head_width or None,
        "attention_out_bias": model.out_bias,
    }
    read = {name for mixer in mixers_of(model) for name in MIXERS[mixer].takes}
    return replace(model, **{name: value for name, value in derived.items() if name in read})


def _fill_recipe(recipe: Recipe, gpu: Gpu, zero_stage: int) -> Recipe:
    stack = STACKS[software_of(recipe).name]
    name = recipe.precision or default_precision(gpu)
    return replace(
        recipe,
        precision=name,
        gradient_dtype=recipe.gradient_dtype or default_gradient_dtype(PRECISIONS[name], stack, zero_stage),
        vocabulary_multiple=recipe.vocabulary_multiple or stack.vocabulary_multiple,
        recompute=recipe.recompute if isinstance(recipe.recompute, str) else recompute_of(recipe),
        method="full" if recipe.method == "full" else method_of(recipe),
    )


def _fill_layout(question: Question, recipe: Recipe, cluster: Cluster) -> Layout:
    layout = question.layout
    stack = STACKS[software_of(recipe).name]
    replica = layout.tensor * layout.context * layout.pipeline
    if layout.data is None and cluster.gpus % replica:
        raise Refused(_indivisible(layout, cluster.gpus))
    replicas = layout.data or cluster.gpus // replica
    zero_stage = stack.zero_stages[0] if layout.zero_stage is None else layout.zero_stage
    reshard = layout.reshard_after_forward
    if reshard is None:
        reshard = zero_stage == 3 and layout.pipeline == 1
    splits_norms = layout.tensor > 1 and stack.splits_norms
    parallel = splits_norms if layout.sequence_parallel is None else layout.sequence_parallel
    return replace(
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
        stage_layers=layout.stage_layers or _dealt(layout, stack, question.model),
    )


def _dealt(layout: Layout, stack: Stack, model: Model) -> tuple[int, ...] | None:
    """Layers of each chunk where the stack or the layout deals them unevenly."""
    if stack.deals_by_cost and 1 < layout.pipeline <= model.num_hidden_layers:
        return layers_by_cost(layout.pipeline, model)
    return dealt_layers(layout, model)


def _indivisible(layout: Layout, gpus: int) -> Problem:
    replica = layout.tensor * layout.context * layout.pipeline
    return Problem(
        field="layout",
        code="replica_divides_cluster",
        message=f"one replica takes tensor {layout.tensor} x context {layout.context} x pipeline {layout.pipeline} = "
        f"{replica} GPUs, which does not divide {gpus}",
        fix=f"make their product {divisors_of(gpus)}",
    )
