"""Open fields of a question: their values and bounds, and whether the question with one value is feasible.

Live tensors only grow with the batch, the sequence and the layers, and so does what the allocator caches, up to the
device's end. Hence two monotonic conditions for each stage: too many live tensors, and too many bytes reserved.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import gcd, lcm
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Lt
from annotated_types import Interval as Bounded

from service.answers.plans import WhyNot
from service.errors import Refused
from service.estimator import estimate, estimate_memory
from service.estimator.answer import Interval, Memory, MemoryEstimate
from service.estimator.memory.device import largest_fitting_bytes, reserved_bytes, reserved_shares, verdict_of
from service.estimator.question import Cluster, Layout, Model, Question, Recipe, Strict
from service.estimator.resolve import configuration_of, resolve
from service.estimator.rule import divisors
from service.planner.steps import Steps
from service.units import BYTES, in_units, readable

End = Literal["value", "high"]
"""End of an interval that a limit is compared with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveLimits(Strict):
    """Limits of a job while the open field grows or shrinks; it has to fit in any case."""

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
"""Code of each limit of the run where it does not hold."""


def memory_missing(device: Interval, usable_bytes: float, risk_fraction: float, limits: SolveLimits) -> WhyNot | None:
    """Reason why a job does not surely fit."""
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

    Formula: min((1 - headroom) usable, the largest that has the verdict `fits`)
    Args:
        device: the device peak whose spread is taken
        usable_bytes: memory a job can use [byte]
        limits: what has to stay free
    Returns: bytes [byte]
    Source: definition

    >>> most_device_bytes(Interval(9.0, 10.0, 11.0, "analytic"), 10.0, SolveLimits(headroom_fraction=0.5))
    5.0
    """
    usable = (1 - limits.headroom_fraction) * usable_bytes
    return min(usable, largest_fitting_bytes(device, usable_bytes))


def limits_missed(predicted: Mapping[str, Interval | None], limits: SolveLimits) -> WhyNot | None:
    """Reason why a run exceeds its limits."""
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
    question: Question
    refused: Refused | None = None
    """The rules that it breaks; None where it is legal."""
    why_not: WhyNot | None = None
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

    def is_acceptable(self, short: frozenset[int]) -> bool:
        """Whether neither a final shortfall nor one of these stages rules it out."""
        return not self.shortfall.is_final and not self.shortfall.stages & short


class Attempts:
    """Values tried so far."""

    def __init__(self, put: Callable[[int], Question], limits: SolveLimits) -> None:
        self._put, self._limits = put, limits
        self._attempts: dict[int, Attempt] = {}

    @property
    def count(self) -> int:
        """Number of values tried."""
        return len(self._attempts)

    @property
    def legal(self) -> list[Attempt]:
        """Legal values in the order of the attempts."""
        return [attempt for attempt in self._attempts.values() if attempt.is_legal]

    @property
    def broken_by_all(self) -> frozenset[str]:
        """Rules that every refused value breaks."""
        codes = [{problem.code for problem in refused.problems} for refused in self._refusals]
        return frozenset(set.intersection(*codes)) if codes else frozenset()

    @property
    def refusal(self) -> Refused | None:
        """The refusal of the first refused value, reduced to the problems that all refused values share, if any."""
        first = next(iter(self._refusals), None)
        if first is None:
            return None
        shared = [problem for problem in first.problems if problem.code in self.broken_by_all]
        return Refused(*shared) if shared else first

    @property
    def _refusals(self) -> list[Refused]:
        return [attempt.refused for attempt in self._attempts.values() if attempt.refused is not None]

    def at(self, value: int) -> Steps[Attempt]:
        """Evaluate one value, once."""
        if value not in self._attempts:
            self._attempts[value] = _attempt_at(value, self._put(value), self._limits)
            yield None
        return self._attempts[value]


def _attempt_at(value: int, question: Question, limits: SolveLimits) -> Attempt:
    attempt = partial(Attempt, value=value, question=question)
    try:
        result = estimate(question) if limits_given(limits) else estimate_memory(question)
    except Refused as refused:
        why_not = WhyNot(
            code=refused.problems[0].code,
            message="; ".join(problem.message for problem in refused.problems),
            fix="; ".join(problem.fix for problem in refused.problems),
        )
        return attempt(refused=refused, why_not=why_not)
    memory = result.memory
    missing = memory_missing(memory.device_peak_bytes, memory.usable_bytes, memory.oom_probability_fraction, limits)
    if missing is not None:
        return attempt(why_not=missing, shortfall=memory_shortfall(question, memory, limits))
    if isinstance(result, MemoryEstimate) or result.totals is None:
        return attempt()
    totals = result.totals
    predicted = {"days": totals.days, "cost_usd": totals.cost_usd, "gpu_hours": totals.gpu_hours}
    return attempt(why_not=limits_missed(predicted, limits))


def field_bounds(kind: type, field: str) -> tuple[int, int]:
    """Smallest and largest whole number that a field takes.

    >>> from service.estimator.question import Recipe
    >>> field_bounds(Recipe, "micro_batch") == (1, 2**30)
    True
    """
    hints = [get_type_hints(kind, include_extras=True)[field]]
    while hints:
        hint = hints.pop()
        for bound in getattr(hint, "__metadata__", ()):
            if isinstance(bound, Bounded) and isinstance(bound.ge, int) and isinstance(bound.le, int):
                return bound.ge, bound.le
        hints += get_args(hint) if get_origin(hint) is not None else ()
    raise TypeError(f"{kind.__name__}.{field} has no bounds of whole numbers")


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
"""Assumption about a wider model."""


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

    values: Callable[[Question, int], Values]
    """Its values, ascending: nearly all that rules allow, each a multiple of a number."""
    put: Callable[[Question, int], Question]
    bounds: tuple[int, int]
    """Smallest and largest value of the field."""
    assumptions: tuple[str, ...]
    """Assumptions that its values bring with them."""
    is_largest: bool = True
    """Whether you ask for its largest value, rather than its smallest."""
    limits: tuple[str, ...] = ()
    """Limits of the run that its values are evaluated by."""
    needs_limit: bool = False


def degrees_unit(layout: Layout) -> int:
    """A number that every degree of a layout divides: lengths, layers and widths are mostly its multiples.

    >>> degrees_unit(Layout(tensor=4, context=3, pipeline=2))
    12
    """
    chunks = layout.pipeline * layout.virtual_pipeline
    return lcm(layout.tensor, 2 * layout.context, chunks, layout.expert, layout.virtual_group or 1)


def _replica(layout: Layout) -> int:
    return layout.tensor * layout.context * layout.pipeline


def replicas_of(question: Question) -> int:
    """Data-parallel replicas, as many as the GPUs hold where the layout does not fix them."""
    return question.layout.data or max(1, question.cluster.gpus // _replica(question.layout))


def _batch(question: Question) -> int | None:
    """Sequences of one step, where the question fixes them in either unit."""
    recipe = question.recipe
    if recipe.global_batch is None and recipe.global_batch_tokens is not None:
        return recipe.global_batch_tokens // recipe.sequence_length
    return recipe.global_batch


def _multiples_of(multiple: int, kind: type, field: str) -> Values:
    least, most = field_bounds(kind, field)
    return range(-(-least // multiple) * multiple, most + 1, multiple)


def _micro_batches(question: Question, multiple: int) -> Values:
    """Divisors of the share of one replica in a global batch, or every number without one."""
    batch, data = _batch(question), replicas_of(question)
    if batch is None or batch % data:
        return _multiples_of(multiple, Recipe, "micro_batch")
    return [value for value in divisors(batch // data) if value % multiple == 0]


def _lengths(question: Question, multiple: int) -> Values:
    """Divisors of a batch in tokens, or every number without one."""
    recipe = question.recipe
    if recipe.global_batch is not None or recipe.global_batch_tokens is None:
        return _multiples_of(multiple, Recipe, "sequence_length")
    most = field_bounds(Recipe, "sequence_length")[1]
    return [v for v in divisors(recipe.global_batch_tokens) if v <= most and v % multiple == 0]


def _layers(question: Question, multiple: int) -> Values:
    """The sum of a list of layers a stage, or every number without one."""
    partition = question.layout.stage_layers
    if partition is None:
        return _multiples_of(multiple, Model, "num_hidden_layers")
    return [count for count in (sum(partition),) if count and count % multiple == 0]


def _widths(question: Question, multiple: int) -> Values:
    return _multiples_of(lcm(width_unit(question.model), multiple), Model, "hidden_size")


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


def _with_tokens(question: Question, value: int) -> Question:
    return replace(question, recipe=replace(question.recipe, training_tokens=float(value)))


_PARTS: dict[str, type] = {"recipe": Recipe, "model": Model, "cluster": Cluster}


def _unknown(
    name: str, values: Callable[[Question, int], Values], *assumptions: str, **others: Any
) -> tuple[str, Unknown]:
    """An open field by its name; its values are put as they are unless `put` is given."""
    part, field = name.split(".")

    def put(question: Question, value: int) -> Question:
        return replace(question, **{part: replace(getattr(question, part), **{field: value})})

    bounds = others.pop("bounds", None) or field_bounds(_PARTS[part], field)
    return name, Unknown(values=values, bounds=bounds, assumptions=assumptions, **{"put": put, **others})


UNKNOWNS: Mapping[str, Unknown] = dict(
    (
        _unknown(
            "recipe.micro_batch", _micro_batches, "without a global batch, one step is one micro-batch on each replica"
        ),
        _unknown(
            "recipe.sequence_length",
            _lengths,
            "a global batch keeps its sequences, one in tokens its tokens, as the sequence grows",
        ),
        _unknown(
            "recipe.training_tokens",
            _tokens,
            "tokens are those of whole steps",
            put=_with_tokens,
            bounds=(1, LARGEST_TOKENS),
            limits=RUN_LIMITS,
            needs_limit=True,
        ),
        _unknown("model.num_hidden_layers", _layers, "layers repeat in the model's own pattern", limits=RUN_LIMITS),
        _unknown(
            "model.hidden_size",
            _widths,
            PROPORTIONS,
            put=lambda question, value: replace(question, model=with_width(question.model, value)),
            limits=RUN_LIMITS,
        ),
        _unknown(
            "cluster.gpus",
            _gpus,
            "layout.data follows the GPUs unless it is given; beyond one node, whole nodes are taken",
            "without a global batch, the batch follows the replicas",
            is_largest=False,
            limits=RUN_LIMITS,
        ),
    )
)
"""The fields whose largest or smallest value is searched for."""
