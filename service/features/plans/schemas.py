"""Requests for plans: a question whose layout, micro-batch and recompute may be pinned, restricted or left out."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Gt, Interval, Len, Lt

from service.answers.plans import Objective
from service.catalogue import Catalogue
from service.errors import MOST_PROBLEMS, Problem, Refused, refuse
from service.estimator.question import Degree, Layout, Question, Recipe, Recompute, RecomputeName, Sequences, Strict
from service.features.estimates.planned import ONE_BATCH
from service.planner.space import Constraints
from service.validation.forms import DescribedAs, Variant, requiring
from service.validation.open_fields import SEARCHED, constraints_of
from service.validation.problems import not_an_object, unknown_field
from service.validation.question_parts import PARTS, VALUE_IS_A_LIST, ClusterForm, ModelForm, PriceForm
from service.validation.questions import ParsedQuestion, read_question
from service.validation.reading import field_names, read_spec

MOST_PLANS = 100
MOST_CLUSTERS = 16
MOST_MACHINES = 64
"""Most combinations of a cluster and a number of GPUs in a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLimits(Strict):
    """What a plan has to keep to."""

    days: Annotated[float, Gt(0), Lt(1e6)] | None = None
    """Wall time of the whole run, as predicted."""
    cost_usd: Annotated[float, Ge(0), Lt(1e15)] | None = None
    """Cost of the whole run, as predicted."""
    gpus: Annotated[tuple[Degree, ...], Len(2, 2)] | None = None
    """Fewest and most GPUs: both of them are tried, and whole nodes between them, each twice as many as before; those
    of the cluster alone where absent."""
    headroom_fraction: Annotated[float, Ge(0), Lt(1)] = 0.0
    """Share of the usable memory that has to stay free."""


DEFAULT_LAYOUT = Layout()

OpenRecipe = Annotated[
    Any,
    Variant(
        Recipe,
        "OpenRecipe",
        "How the model is trained, and on how much. A list restricts a field.",
        required=("sequence_length",),
        opened=SEARCHED["recipe"][1],
    ),
]
OpenLayout = Annotated[
    Any,
    Variant(
        Layout,
        "OpenLayout",
        "How the work is divided over GPUs. A list restricts a field.",
        opened=tuple(name for name in SEARCHED["layout"][1] if name not in VALUE_IS_A_LIST),
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenRecipe(Strict):
    """What is chosen of the recipe."""

    micro_batch: Sequences = 1
    """Sequences that one replica runs through the model at once, b."""
    recompute: RecomputeName | Recompute = "none"
    """Activations computed again in the backward pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyNotPlan(Strict):
    """One plan out of all that are legal."""

    layout: Layout = DEFAULT_LAYOUT
    """How the work is divided."""
    recipe: ChosenRecipe = ChosenRecipe()
    """What is chosen of the recipe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """A question whose layout, micro-batch and recompute are open.

    A value pins a field, a list restricts it, and what is left out is chosen.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = requiring("model", "recipe")

    model: ModelForm = None
    """What is trained."""
    recipe: OpenRecipe = None
    """How it is trained."""
    layout: Annotated[Any, DescribedAs(OpenLayout | None)] = None
    """How it is divided; null where all of it is open."""
    cluster: ClusterForm = None
    """What it runs on."""
    price: PriceForm = None
    """What it costs."""
    clusters: Annotated[Any, DescribedAs(Annotated[tuple[ClusterForm, ...], Len(1, MOST_CLUSTERS)])] = None
    """Clusters to plan on, in place of cluster."""
    objective: Objective = "time"
    """What the best plan has least of: time (of a step without training_tokens), cost, gpus or energy."""
    limits: PlanLimits = PlanLimits()
    """What every plan has to keep to."""
    top: Annotated[int, Interval(ge=1, le=MOST_PLANS)] = 10
    """How many plans are named."""
    why_not: Annotated[Any, DescribedAs(WhyNotPlan)] = None
    """A layout of which is asked why it is not the best."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSearch:
    """A request for plans, looked up in the catalogue."""

    machines: tuple[ParsedQuestion, ...]
    """The question on each cluster and number of GPUs."""
    constraints: Constraints
    """Allowed values of the searched fields."""
    request: PlanRequest
    """How plans are ranked, and what they have to keep to."""
    why_not: Question | None
    """Layout to explain, on the first cluster."""


FIELDS = field_names(PlanRequest)


def read_plan(body: Mapping[str, Any], catalogue: Catalogue) -> PlanSearch:
    """Parse a request body."""
    if not isinstance(body, Mapping):
        raise Refused(not_an_object("", FIELDS))
    request = read_spec(PlanRequest, body, "", whole="the plan")
    allowed, rest = constraints_of({name: body[name] for name in PARTS if name in body})
    machines = [
        replace(one, question=question)
        for cluster in _clusters(request)
        for one in (read_question({**rest, "cluster": cluster}, catalogue, beside=FIELDS),)
        for question in on_each_size(one.question, request.limits)
    ]
    problems = ranking_problems(
        machines[0].question.recipe, request.limits, is_priced=machines[0].question.price is not None
    )
    if len(machines) > MOST_MACHINES:
        message = f"clusters and limits.gpus make {len(machines)} machines to plan on"
        fix = f"narrow limits.gpus, or list fewer clusters: at most {MOST_MACHINES} machines"
        problems.append(Problem(field="limits.gpus", code="too_many_machines", message=message, fix=fix))
    refuse(problems)
    return PlanSearch(
        machines=tuple(machines),
        constraints=Constraints(allowed),
        request=request,
        why_not=_why_not(request.why_not, machines[0].question),
    )


def _clusters(request: PlanRequest) -> list[Any]:
    given: Any = request.clusters
    if given is None:
        return [request.cluster]
    if request.cluster is not None:
        message = "cluster would change nothing, because clusters tells what is planned on"
        raise Refused(Problem(field="cluster", code="told_twice", message=message, fix="leave one of them out"))
    if not isinstance(given, list) or not 1 <= len(given) <= MOST_CLUSTERS:
        message = "clusters is not a list of clusters"
        fix = f"give a list of 1 to {MOST_CLUSTERS}, each as cluster would be"
        raise Refused(Problem(field="clusters", code="not_a_list", message=message, fix=fix))
    return given


def on_each_size(question: Question, limits: PlanLimits) -> list[Question]:
    """The question on each number of GPUs within the limits."""
    refuse_empty_range(limits)
    if limits.gpus is None:
        return [question]
    fewest, most = limits.gpus
    sizes = {fewest, most}
    size = question.cluster.gpus_per_node
    while size < most:
        sizes.update({size} if size > fewest else ())
        size *= 2
    return [replace(question, cluster=replace(question.cluster, gpus=size)) for size in sorted(sizes)]


def refuse_empty_range(limits: PlanLimits) -> None:
    """Refuse a range of GPUs that runs backwards."""
    if limits.gpus is not None and limits.gpus[0] > limits.gpus[1]:
        message = f"limits.gpus runs from {limits.gpus[0]} to {limits.gpus[1]}, which is no range"
        raise Refused(Problem(field="limits.gpus", code="empty_range", message=message, fix="give the fewest first"))


def ranking_problems(recipe: Recipe, limits: PlanLimits, *, is_priced: bool) -> list[Problem]:
    """Missing inputs of a ranking."""
    problems = []
    if recipe.global_batch is None and recipe.global_batch_tokens is None:
        message = "without a batch every layout would train another one, and none could be compared"
        fix = "give recipe.global_batch or recipe.global_batch_tokens"
        problems.append(Problem(field="recipe.global_batch", code="plan_needs_batch", message=message, fix=fix))
    if recipe.stages:
        problems.append(ONE_BATCH)
    if recipe.training_tokens is None and limits.days is not None:
        message = "a deadline needs the length of the run"
        problems.append(_needs_tokens("limits.days", message))
    if recipe.training_tokens is None and limits.cost_usd is not None:
        problems.append(_needs_tokens("limits.cost_usd", "a budget needs the length of the run"))
    if not is_priced and limits.cost_usd is not None:
        message = "a budget needs a price"
        problems.append(Problem(field="limits.cost_usd", code="limit_needs_price", message=message, fix="give price"))
    return problems


def _needs_tokens(field: str, message: str) -> Problem:
    return Problem(field=field, code="limit_needs_tokens", message=message, fix="give recipe.training_tokens")


def _why_not(given: Any, question: Question) -> Question | None:
    """Question with the layout to explain, its micro-batch and recompute."""
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise Refused(not_an_object("why_not", list(SEARCHED)))
    unknown = [name for name in given if name not in SEARCHED][:MOST_PROBLEMS]
    if unknown:
        raise Refused(*(unknown_field("why_not", name, {*SEARCHED}, "why_not") for name in unknown))
    layout = read_spec(Layout, given.get("layout", {}), "why_not.layout")
    chosen = read_spec(ChosenRecipe, given.get("recipe", {}), "why_not.recipe")
    recipe = replace(question.recipe, micro_batch=chosen.micro_batch, recompute=chosen.recompute)
    return replace(question, layout=layout, recipe=recipe)
