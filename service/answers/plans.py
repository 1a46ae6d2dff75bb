"""Plans for an open layout, counts of what was searched, and solutions for open fields."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from service.answers.estimates import Versions
from service.answers.names import Described, component, mapping_of_fields
from service.answers.rows import ChosenCluster, RowProblem
from service.estimator.answer import Interval, Verdict
from service.estimator.question import Cluster, Documented, Layout, Model, Recipe

Objective = Literal["time", "cost", "gpus", "energy"]
"""What the best plan has least of: days (seconds of a step without training_tokens), dollars, GPUs, kilowatt-hours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow(Documented):
    """One plan; its recipe, layout and cluster are a question that an estimate answers with the same values.

    Days, GPU-hours, cost and energy of a plan have wider intervals: those of published runs beside their best plans.
    """

    rank: int
    """From 1; that of the front is by time."""
    recipe: Recipe
    """The recipe, micro-batch and recompute chosen."""
    layout: Layout
    """The layout, every field filled."""
    cluster: Cluster
    """What it runs on."""
    verdict: Verdict
    """fits, but for the nearest of layouts of which none does."""
    step_seconds: Interval
    """Wall time of one optimizer step."""
    mfu_fraction: Interval
    """Model FLOP over what the GPUs could do."""
    device_peak_bytes: Interval
    """Memory of the fullest GPU."""
    headroom_bytes: float
    """Memory left on it; negative where bytes are missing."""
    days: Interval | None
    """Wall time of the run; null without training_tokens."""
    gpu_hours: Interval | None
    """The run's; null without training_tokens."""
    cost_usd: Interval | None
    """The run's; null without training_tokens or a price."""
    energy_kwh: Interval | None
    """The run's; null without training_tokens."""
    reason: str | None
    """Why its step takes longer than that of the first plan; null where it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCounts(Documented):
    """How many layouts were looked at, and what became of them."""

    generated: int
    """Layouts of the space; those that are refused and those that are scored."""
    refused: dict[str, int]
    """Those that break a rule, by the first one that they break."""
    scored: int
    """Legal layouts whose memory and time were computed."""
    fitting: int
    """Those of them that fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawback(Documented):
    """What keeps a layout from being the best plan."""

    reason: str
    """In one sentence."""
    errors: tuple[RowProblem, ...]
    """Rules that it breaks; empty where it is legal."""
    plan: PlanRow | None
    """What it takes; null where it is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAnswer(Documented):
    """The best layouts for a job."""

    objective: Objective
    """What the plans have least of."""
    plans: tuple[PlanRow, ...]
    """The best that keep to all limits, best first."""
    pareto: tuple[PlanRow, ...]
    """Plans of which none is faster, cheaper and leaves more memory at once, fastest first."""
    nearest: PlanRow | None
    """The layout that takes least memory, where none fits; else null."""
    counts: PlanCounts
    """Numbers of layouts, on all clusters."""
    why_not: Drawback | None
    """Why the requested layout is not the best; null where the request names none."""
    assumptions: tuple[str, ...]
    """Assumptions of the answer."""
    warnings: tuple[str, ...]
    """Warnings for the caller."""
    versions: Versions
    """Versions under which the answer holds."""


UnknownName = Literal[
    "recipe.micro_batch",
    "recipe.sequence_length",
    "recipe.training_tokens",
    "model.num_hidden_layers",
    "model.hidden_size",
    "cluster.gpus",
    "recipe.global_batch",
    "cluster",
    "model",
]
"""What may be left open: a field, or a whole object."""

_SOLVED = [f"{kind.__name__.lower()}.{one.name}" for kind in (Model, Recipe, Layout, Cluster) for one in fields(kind)]
SOLVED_FIELDS = Described(
    component("SolvedFields", mapping_of_fields("Fields that a solution changes, by dotted name.", _SOLVED))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan(Documented):
    """A batch, factor by factor."""

    sequence_length: int
    """Tokens in one sequence."""
    micro_batch: int
    """Sequences that one replica runs at once."""
    accumulation: int
    """Micro-batches of one replica in one step."""
    data: int
    """Data-parallel replicas."""
    global_batch: int
    """Sequences in one step: micro_batch x accumulation x data."""
    global_batch_tokens: int
    """Tokens in one step."""
    wanted_tokens: int
    """Tokens of the question."""
    best_tokens: float | None
    """Tokens that came out best in sweeps with as many FLOP; null without training_tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeByFit(Documented):
    """The best size by one fit."""

    fit: str
    """besiroglu-2024, hoffmann-2022 or 20-tokens-per-parameter."""
    parameters: int
    """Parameters of the model, N."""
    training_tokens: float
    """Tokens of the run, D."""
    tokens_per_parameter: float
    """D over N."""
    loss_nats: float | None
    """Loss that the fit expects, in nats a token; null for the rule, which knows none."""
    caution: str | None
    """What is known to be wrong with the fit; null where nothing is."""
    source: str
    """Source of the number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimalSize(Documented):
    """The model that makes the most of a budget."""

    total_flop: float
    """Operations of the run that the budget buys."""
    parameters: int
    """Parameters of the model, N, by the first of the fits."""
    training_tokens: float
    """Tokens of the run, D."""
    tokens_per_parameter: float
    """D over N."""
    loss_nats: float | None
    """Loss that the fit expects, in nats a token."""
    inference_per_token_flop: float
    """Operations of one token once the model is used, 2 N."""
    inference_usd_per_million_tokens: float | None = None
    """What a million of such tokens cost; null unless limits.inference_usd_per_million_tokens asks for it."""
    is_capped: bool
    """Whether the limit of its use makes the model smaller than the budget alone would."""
    fits: tuple[SizeByFit, ...]
    """The same by each fit; the rule last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyNot(Documented):
    """Why a value will not do."""

    code: str
    """out_of_memory, at_risk, headroom_missing, deadline_missed, budget_exceeded, gpu_hours_exceeded,
    inference_limit_exceeded, or the rule that refuses the value."""
    message: str
    """The same in words, with the numbers."""
    fix: str | None = None
    """What the rule proposes; null where none is broken."""
    missing_bytes: float | None = None
    """Bytes that the fullest GPU lacks; null where memory is not the reason."""
    over_days: float | None = None
    """Days beyond limits.days; null where the limit is met or not set."""
    over_usd: float | None = None
    """Dollars beyond limits.cost_usd; null likewise."""
    over_gpu_hours: float | None = None
    """GPU-hours beyond limits.gpu_hours; null likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyNumbers(Documented):
    """Estimate at one value."""

    id: str | None
    """Of the estimate."""
    verdict: Verdict | None
    """Whether the job fits."""
    oom_probability_fraction: float | None
    """Probability that the device peak exceeds the usable memory."""
    device_peak_bytes: Interval | None
    """Memory of the fullest GPU, as nvidia-smi shows it."""
    usable_bytes: float | None
    """Memory a job can use on this GPU."""
    step_seconds: Interval | None
    """Wall time of one step."""
    tokens_per_s_per_gpu: Interval | None
    """Trained tokens a second on one GPU."""
    mfu_fraction: Interval | None
    """Model FLOP over what the GPUs could do at their peak."""
    gpu_hours: Interval | None
    """The whole run; null without training_tokens."""
    days: Interval | None
    """The whole run; null without training_tokens."""
    cost_usd: Interval | None
    """The whole run; null without training_tokens or a price."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence(Documented):
    """The numbers behind both values."""

    value: KeyNumbers | None
    """Estimate at the value; null without a value, or where the request has no question."""
    next: KeyNumbers | None
    """Of the next one; null where a rule refuses it, or there is none."""
    tried: int
    """Values that were tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextValue(Documented):
    """The nearest value that will not do: the next larger one where the unknown is maximised, else the next smaller."""

    value: int | ChosenCluster
    """The value; of a plan of a batch its sequences (global_batch), of a model its parameters."""
    why_not: WhyNot
    """Why it will not do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution(Documented):
    """One open field, solved."""

    unknown: UnknownName
    """The open field."""
    value: int | BatchPlan | ChosenCluster | OptimalSize | None
    """The value; null where none is possible, and then `next` is the nearest one, with what it lacks."""
    next: NextValue | None
    """The nearest value that will not do; null where the field, or the list, ends before it."""
    changes: Annotated[Mapping[str, Any], SOLVED_FIELDS]
    """Fields that change with the value, beside the unknown."""
    evidence: Evidence
    """The numbers that prove both."""
    assumptions: tuple[str, ...]
    """Assumptions of the answer."""
    warnings: tuple[str, ...]
    """Warnings for the caller."""
    versions: Versions
    """Versions under which the answer holds."""
