"""Open fields of a question: their values and bounds, and whether the question with one value is feasible.

Live tensors only grow with the batch, the sequence and the layers. The allocator's cache grows too, up to the device's
end, where it is given back: there the bytes of a stage fall, and a larger value may fit where a smaller one did not.
Hence two monotonic conditions for each stage: too many live tensors, and too many bytes reserved while nothing is given
back.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd, lcm
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Lt
from annotated_types import Interval as Bounded

from service.answers.solutions import WhyNot
from service.errors import Problem, Refused
from service.estimator import estimate, estimate_memory
from service.estimator.answer import Estimate, Interval, Memory, MemoryEstimate
from service.estimator.memory.device import largest_fitting_bytes, reserved_bytes, reserved_shares, verdict_of
from service.estimator.question import STRICT, Cluster, Layout, Model, Question, Recipe
from service.estimator.resolve import configuration_of, resolve
from service.estimator.rule import divisors
from service.planner.steps import Steps
from service.units import BYTES, in_units, readable

End = Literal["value", "high"]
"""End of an interval that a limit is held against."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveLimits:
    """What the job may take at most while the open field grows or shrinks; it has to fit in any case."""

    __pydantic_config__: ClassVar[dict[str, Any]] = STRICT

    headroom_fraction: Annotated[float, Ge(0), Lt(1)] = 0.0
    """Share of the usable memory that stays free, beyond what the verdict `fits` asks for."""
    days: Annotated[float, Gt(0), Lt(1e6)] | None = None
    """Wall time of the whole run."""
    cost_usd: Annotated[float, Ge(0), Lt(1e15)] | None = None
    """Cost of the whole run."""
    gpu_hours: Annotated[float, Gt(0), Lt(1e15)] | None = None
    """GPU-hours of the whole run."""
    total_flop: Annotated[float, Gt(0), Lt(1e35)] | None = None
    """Operations of the whole run (unknown `model`), instead of what time or money buys."""
    inference_per_token_flop: Annotated[float, Gt(0), Lt(1e20)] | None = None
    """Operations that one token may take when the trained model is used, 2 N (unknown `model`)."""
    inference_usd_per_million_tokens: Annotated[float, Gt(0), Lt(1e6)] | None = None
    """What a million tokens may cost when the trained model is used (unknown `model`), on what `serving` says."""
    end: End = "value"
    """Whether days, cost and GPU-hours have to stay below their limits as predicted, or at their high end."""


RUN_LIMITS = ("days", "cost_usd", "gpu_hours")
"""Limits of the whole run, by the names that its totals have."""


SIZE_LIMITS = ("total_flop", "inference_per_token_flop", "inference_usd_per_million_tokens")
"""Limits that bound the size of a model alone."""


def limits_given(limits: SolveLimits) -> Mapping[str, float]:
    """The limits of the whole run that are given."""
    named = {name: getattr(limits, name) for name in RUN_LIMITS}
    return {name: limit for name, limit in named.items() if limit is not None}


MISSED: Mapping[str, str] = {
    "days": "deadline_missed",
    "cost_usd": "budget_exceeded",
    "gpu_hours": "gpu_hours_exceeded",
}
"""What a limit of the run that does not hold is called."""


def refused_because(problems: tuple[Problem, ...]) -> WhyNot:
    """The reason of a value that a rule refuses."""
    return WhyNot(
        code=problems[0].code,
        message="; ".join(problem.message for problem in problems),
        fix="; ".join(problem.fix for problem in problems),
    )


def memory_missing(device: Interval, usable_bytes: float, risk_fraction: float, limits: SolveLimits) -> WhyNot | None:
    """Why a job does not surely fit."""
    verdict = verdict_of(risk_fraction)
    usable = (1 - limits.headroom_fraction) * usable_bytes
    if verdict == "fits" and device.value <= usable:
        return None
    missing = max(0.0, device.value - most_device_bytes(device, usable_bytes, limits))
    amount = f"{in_units(device.value, BYTES)} of {in_units(usable_bytes, BYTES)}"
    words = {
        "out_of_memory": f"out of memory: {amount} on the fullest GPU",
        "at_risk": f"at risk: {amount} on the fullest GPU, out of memory with a probability of {risk_fraction:.2%}",
        "fits": f"{amount} on the fullest GPU leave less than the headroom of {limits.headroom_fraction:.1%}",
    }
    return WhyNot(
        code="headroom_missing" if verdict == "fits" else verdict,
        message=f"{words[verdict]}; {in_units(missing, BYTES)} are missing",
        missing_bytes=missing,
    )


def most_device_bytes(device: Interval, usable_bytes: float, limits: SolveLimits) -> float:
    """The largest device peak that will do, with a spread as wide as that of another one.

    Formula:
        min((1 - headroom) usable, the largest that has the verdict `fits`)

    Args:
        device: the device peak whose spread is taken
        usable_bytes: memory a job can use [byte]
        limits: what has to stay free

    Returns:
        bytes [byte]

    Source:
        definition

    >>> most_device_bytes(Interval(9.0, 10.0, 11.0, "analytic"), 10.0, SolveLimits(headroom_fraction=0.5))
    5.0
    """
    usable = (1 - limits.headroom_fraction) * usable_bytes
    return min(usable, largest_fitting_bytes(device, usable_bytes))


def limits_missed(predicted: Mapping[str, Interval | None], limits: SolveLimits) -> WhyNot | None:
    """Why a run takes more than it may."""
    over: dict[str, float] = {}
    words: list[str] = []
    for name, limit in limits_given(limits).items():
        interval = predicted[name]
        if interval is None:
            continue
        taken = interval.high if limits.end == "high" else interval.value
        if taken > limit:
            over[name] = taken - limit
            words.append(f"{name} {readable(taken)} exceeds {readable(limit)} by {readable(taken - limit)}")
    if not over:
        return None
    return WhyNot(
        code=MISSED[next(iter(over))],
        message="; ".join(words),
        over_days=over.get("days"),
        over_usd=over.get("cost_usd"),
        over_gpu_hours=over.get("gpu_hours"),
    )


@dataclass(frozen=True, slots=True)
class MemoryShortfall:
    """What keeps a job from fitting."""

    is_final: bool
    """Whether no larger value can do: live tensors are too many."""
    stages: frozenset[int] = frozenset()
    """Stages that hold too many bytes, of which the allocator would give some back if it had to."""


NONE = MemoryShortfall(is_final=False)


def memory_shortfall(question: Question, memory: Memory, limits: SolveLimits) -> MemoryShortfall:
    """What keeps a job from fitting that does not."""
    device = memory.device_peak_bytes
    beside = device.value - memory.reserved_peak_bytes.value
    room = most_device_bytes(device, memory.usable_bytes, limits) - beside
    share = reserved_shares(resolve(question).workload)[1]
    final = any(reserved_bytes(one.allocated_peak_bytes, 0.0, share, room) > room for one in memory.stages)
    stages = frozenset(one.stage for one in memory.stages if one.reserved_peak_bytes > room)
    return MemoryShortfall(is_final=final or not stages, stages=stages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One value of the open field."""

    value: int
    """The value."""
    question: Question
    """The question with it."""
    refused: Refused | None
    """The rules that it breaks; None where it is legal."""
    why_not: WhyNot | None
    """Why it will not do; None where it does."""
    shortfall: MemoryShortfall = NONE
    """What keeps it from fitting, stage by stage."""

    @property
    def is_legal(self) -> bool:
        """Whether no rule refuses it."""
        return self.refused is None

    @property
    def will_do(self) -> bool:
        """Whether it is legal, fits and keeps every limit."""
        return self.why_not is None

    def may_do(self, short: frozenset[int]) -> bool:
        """Whether nothing final keeps it from doing, nor one of some stages."""
        return not self.shortfall.is_final and not self.shortfall.stages & short


class Attempts:
    """The values that were tried so far."""

    def __init__(self, put: Callable[[int], Question], limits: SolveLimits) -> None:
        self._put, self._limits = put, limits
        self._attempts: dict[int, Attempt] = {}

    @property
    def count(self) -> int:
        """How many values were tried."""
        return len(self._attempts)

    @property
    def legal(self) -> list[Attempt]:
        """Those that no rule refuses, in the order in which they were tried."""
        return [attempt for attempt in self._attempts.values() if attempt.is_legal]

    @property
    def broken_by_all(self) -> frozenset[str]:
        """Rules that every refused value breaks."""
        codes = [{problem.code for problem in refused.problems} for refused in self._refusals]
        return frozenset(set.intersection(*codes)) if codes else frozenset()

    @property
    def refusal(self) -> Refused | None:
        """What the first value that was refused is refused for; of it, what all are refused for, if anything."""
        first = next(iter(self._refusals), None)
        if first is None:
            return None
        shared = [problem for problem in first.problems if problem.code in self.broken_by_all]
        return Refused(*shared) if shared else first

    @property
    def _refusals(self) -> list[Refused]:
        return [attempt.refused for attempt in self._attempts.values() if attempt.refused is not None]

    def at(self, value: int) -> Steps[Attempt]:
        """Judge one value, once."""
        if value not in self._attempts:
            self._attempts[value] = _attempt_at(value, self._put(value), self._limits)
            yield None
        return self._attempts[value]


def _attempt_at(value: int, question: Question, limits: SolveLimits) -> Attempt:
    try:
        result = estimate(question) if limits_given(limits) else estimate_memory(question)
    except Refused as refused:
        why_not = refused_because(refused.problems)
        return Attempt(value=value, question=question, refused=refused, why_not=why_not)
    reason = reason_against(result, limits)
    if reason is None:
        return Attempt(value=value, question=question, refused=None, why_not=None)
    is_memory = reason.missing_bytes is not None
    shortfall = memory_shortfall(question, result.memory, limits) if is_memory else NONE
    return Attempt(value=value, question=question, refused=None, why_not=reason, shortfall=shortfall)


def reason_against(result: Estimate | MemoryEstimate, limits: SolveLimits) -> WhyNot | None:
    """Why an estimated job will not do."""
    memory = result.memory
    missing = memory_missing(memory.device_peak_bytes, memory.usable_bytes, memory.oom_probability_fraction, limits)
    if missing is not None or isinstance(result, MemoryEstimate) or result.totals is None:
        return missing
    totals = result.totals
    predicted = {"days": totals.days, "cost_usd": totals.cost_usd, "gpu_hours": totals.gpu_hours}
    return limits_missed(predicted, limits)


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
