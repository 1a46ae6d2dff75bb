"""Fields of a question that may be left open: their bounds, and the question with one value of each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd, lcm
from typing import Any, get_args, get_origin, get_type_hints

from annotated_types import Interval as Bounded

from service.errors import Refused
from service.estimator.question import Cluster, Layout, Model, Question, Recipe
from service.estimator.resolve import configuration_of
from service.estimator.rule import divisors
from service.planner.feasibility import RUN_LIMITS


def field_bounds(noun: type, field: str) -> tuple[int, int]:
    """Smallest and largest whole number that a field takes.

    >>> from service.estimator.question import Recipe
    >>> field_bounds(Recipe, "micro_batch") == (1, 2**30)
    True
    """
    hints = [get_type_hints(noun, include_extras=True)[field]]
    while hints:
        hint = hints.pop()
        for bound in getattr(hint, "__metadata__", ()):
            if isinstance(bound, Bounded) and isinstance(bound.ge, int) and isinstance(bound.le, int):
                return bound.ge, bound.le
        hints += get_args(hint) if get_origin(hint) is not None else ()
    raise TypeError(f"{noun.__name__}.{field} has no bounds of whole numbers")


SCALED = (
    "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "word_embed_proj_dim",
    "moe_intermediate_size", "shared_expert_intermediate_size", "moe_latent_size", "kv_lora_rank", "q_lora_rank",
    "mamba_d_ssm", "mamba_dt_rank", "mamba_n_heads", "linear_num_key_heads", "linear_num_value_heads", "lru_width",
)  # fmt: skip
"""Fields that grow as the residual stream does: widths and numbers of heads, not the width of a head."""

PROPORTIONS = (
    "heads, widths of the MLP and of mixers grow with hidden_size in the model's own proportions; the width of a head, "
    "the number of layers and of experts stay, as does a single key and value head"
)
"""What is assumed of a wider model, in words."""


def width_unit(model: Model) -> int:
    """The narrowest residual stream that keeps a model's proportions; others are multiples of it.

    >>> from service.estimator.samples import sample_workload
    >>> width_unit(sample_workload().model)
    512
    """
    return model.hidden_size // gcd(*_scaled(model).values())


def with_width(model: Model, hidden_size: int) -> Model:
    """A model with another residual stream.

    >>> from service.estimator.samples import sample_workload
    >>> wide = with_width(sample_workload().model, 8192)
    >>> wide.num_attention_heads, wide.num_key_value_heads, wide.intermediate_size, wide.head_width
    (64, 16, 28672, 128)
    """
    grown = {name: width * hidden_size // model.hidden_size for name, width in _scaled(model).items()}
    return replace(model, **grown)  # type: ignore[arg-type]  # all of them are whole numbers


def _scaled(model: Model) -> dict[str, int]:
    """The fields that grow, but for those that are absent, and but for one key and value head (multi-query)."""
    widths = {name: getattr(model, name) for name in SCALED if getattr(model, name)}
    return {name: width for name, width in widths.items() if (name, width) != ("num_key_value_heads", 1)}


LARGEST_TOKENS = 10**18 - 1
"""Training tokens that the field takes."""

Values = Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """One field that may be left open."""

    is_largest: bool
    """Whether its largest value is asked for, rather than its smallest."""
    values: Callable[[Question, int], Values]
    """What it may be, ascending: nearly all that rules allow, each a multiple of a number."""
    put: Callable[[Question, int], Question]
    """The question with a value."""
    bounds: tuple[int, int]
    """Smallest and largest value of the field."""
    limits: tuple[str, ...] = ()
    """Limits of the run that it can be judged by."""
    needs_limit: bool = False
    """Whether it has no end without one of them."""
    assumptions: tuple[str, ...] = ()
    """What its values bring with them."""


def degrees_unit(layout: Layout) -> int:
    """A number that every degree of a layout divides: lengths, layers and widths are mostly its multiples.

    >>> degrees_unit(Layout(tensor=4, context=3, pipeline=2))
    12
    """
    chunks = layout.pipeline * layout.virtual_pipeline
    return lcm(layout.tensor, 2 * layout.context, chunks, layout.expert, layout.virtual_group or 1)


def _replica(layout: Layout) -> int:
    return layout.tensor * layout.context * layout.pipeline


def _batch(question: Question) -> int | None:
    """Sequences of one step as the question fixes them, in either unit."""
    recipe = question.recipe
    if recipe.global_batch is None and recipe.global_batch_tokens is not None:
        return recipe.global_batch_tokens // recipe.sequence_length
    return recipe.global_batch


def _in_steps_of(multiple: int, noun: type, field: str) -> Values:
    least, most = field_bounds(noun, field)
    return range(-(-least // multiple) * multiple, most + 1, multiple)


def _micro_batches(question: Question, multiple: int) -> Values:
    """With a global batch, what divides the share of one replica; else every number."""
    batch, layout = _batch(question), question.layout
    data = layout.data or max(1, question.cluster.gpus // _replica(layout))
    if batch is None or batch % data:
        return _in_steps_of(multiple, Recipe, "micro_batch")
    return [value for value in divisors(batch // data) if value % multiple == 0]


def _lengths(question: Question, multiple: int) -> Values:
    """With a batch in tokens, what divides it; else every number."""
    recipe = question.recipe
    if recipe.global_batch is not None or recipe.global_batch_tokens is None:
        return _in_steps_of(multiple, Recipe, "sequence_length")
    most = field_bounds(Recipe, "sequence_length")[1]
    return [v for v in divisors(recipe.global_batch_tokens) if v <= most and v % multiple == 0]


def _layers(question: Question, multiple: int) -> Values:
    """With layers dealt by a list, as many as it deals; else every number."""
    partition = question.layout.stage_layers
    if partition is None:
        return _in_steps_of(multiple, Model, "num_hidden_layers")
    return [count for count in (sum(partition),) if count and count % multiple == 0]


def _widths(question: Question, multiple: int) -> Values:
    return _in_steps_of(lcm(width_unit(question.model), multiple), Model, "hidden_size")


def _gpus(question: Question, multiple: int) -> Values:
    """Whole replicas, in whole nodes where they need more than one; with a global batch, replicas that share it."""
    replica, node = _replica(question.layout), question.cluster.gpus_per_node
    most, batch = field_bounds(Cluster, "gpus")[1], _batch(question)
    if question.layout.data is not None:
        results: Values = [replica * question.layout.data]
    elif batch is not None:
        results = [replica * d for d in divisors(max(1, batch // question.recipe.micro_batch))]
    else:
        step = lcm(replica, node)
        results = [*range(replica, min(node, step - 1) + 1, replica), *range(step, most + 1, step)]
    return [gpus for gpus in results if gpus <= most and gpus % multiple == 0 and (gpus <= node or gpus % node == 0)]


def _tokens(question: Question, multiple: int) -> Values:
    """Whole steps of the recipe's own batch."""
    try:
        recipe = configuration_of(_with_tokens(question, LARGEST_TOKENS)).question.recipe
    except Refused:
        return range(multiple, LARGEST_TOKENS + 1, multiple)
    step = lcm(recipe.global_batch_tokens, multiple)
    return range(step, LARGEST_TOKENS + 1, step)


def _of_recipe(field: str) -> Callable[[Question, int], Question]:
    def put(question: Question, value: int) -> Question:
        changed: dict[str, Any] = {field: value}
        return replace(question, recipe=replace(question.recipe, **changed))

    return put


def _with_tokens(question: Question, value: int) -> Question:
    return replace(question, recipe=replace(question.recipe, training_tokens=float(value)))


def _with_layers(question: Question, value: int) -> Question:
    return replace(question, model=replace(question.model, num_hidden_layers=value))


def _with_gpus(question: Question, value: int) -> Question:
    return replace(question, cluster=replace(question.cluster, gpus=value))


UNKNOWNS: Mapping[str, Unknown] = {
    "recipe.micro_batch": Unknown(
        is_largest=True,
        values=_micro_batches,
        put=_of_recipe("micro_batch"),
        bounds=field_bounds(Recipe, "micro_batch"),
        assumptions=("without a global batch, one step is one micro-batch on each replica",),
    ),
    "recipe.sequence_length": Unknown(
        is_largest=True,
        values=_lengths,
        put=_of_recipe("sequence_length"),
        bounds=field_bounds(Recipe, "sequence_length"),
        assumptions=("a global batch keeps its sequences, one in tokens its tokens, as the sequence grows",),
    ),
    "recipe.training_tokens": Unknown(
        is_largest=True,
        values=_tokens,
        put=_with_tokens,
        bounds=(1, LARGEST_TOKENS),
        limits=RUN_LIMITS,
        needs_limit=True,
        assumptions=("tokens are those of whole steps",),
    ),
    "model.num_hidden_layers": Unknown(
        is_largest=True,
        values=_layers,
        put=_with_layers,
        bounds=field_bounds(Model, "num_hidden_layers"),
        limits=RUN_LIMITS,
        assumptions=("layers repeat in the model's own pattern",),
    ),
    "model.hidden_size": Unknown(
        is_largest=True,
        values=_widths,
        put=lambda question, value: replace(question, model=with_width(question.model, value)),
        bounds=field_bounds(Model, "hidden_size"),
        limits=RUN_LIMITS,
        assumptions=(PROPORTIONS,),
    ),
    "cluster.gpus": Unknown(
        is_largest=False,
        values=_gpus,
        put=_with_gpus,
        bounds=field_bounds(Cluster, "gpus"),
        limits=RUN_LIMITS,
        assumptions=(
            "layout.data follows the GPUs unless it is given; beyond one node, whole nodes are taken",
            "without a global batch, the batch follows the replicas",
        ),
    ),
}
"""The fields whose largest or smallest value is searched for."""
