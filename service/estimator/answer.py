"""The dataclasses of an estimate: units in names, predictions with intervals, exact counts; None is never zero."""

from dataclasses import dataclass
from typing import Literal

from service.estimator.complete import CompleteQuestion

Basis = Literal["exact", "analytic", "calibrated", "measured"]


INSIDE_FRACTION = 0.8
"""Intended coverage of an interval: share of measurements inside it. Source: definition."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A predicted quantity: the value, the ends of its 80 % interval, and what it rests on."""

    low: float
    """Lower end of the 80 % interval."""
    value: float
    """The prediction."""
    high: float
    """Upper end of the 80 % interval."""
    basis: Basis
    """exact, analytic (formulas and published constants), calibrated, or measured."""


Verdict = Literal["fits", "at_risk", "out_of_memory"]
Phase = Literal["loss", "backward", "reduction", "optimizer", "idle"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLine:
    """One kind of tensor on one rank of a stage, at that stage's peak."""

    kind: str
    """What the bytes are, e.g. weights, gradients, optimizer_states, activations, logits."""
    bytes: float
    """Bytes on one rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """Memory of one rank of one pipeline stage at its peak."""

    stage: int
    """Stage, from 0."""
    layers: int
    """Transformer layers it holds."""
    micro_batches_in_flight: float
    """Micro-batches whose activations it keeps at once."""
    peak_phase: Phase
    """Phase at which the peak falls."""
    allocated_peak_bytes: float
    """Sum of the lines."""
    reserved_peak_bytes: float
    """The same with what the allocator holds beside live tensors."""
    first_step_peak_bytes: float
    """Live tensors at the peak of the first step, when the optimizer has no states yet."""
    idle_bytes: float
    """Live between two steps."""
    lines: tuple[MemoryLine, ...]
    """Each kind of tensor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One single change of the question that saves memory."""

    field: str
    """Field that changes."""
    value: str
    """Its new value."""
    also: tuple[str, ...]
    """Fields that have to be set with it, e.g. layout.data=4."""
    saves_bytes: float
    """Device peak before, less the device peak with it."""
    device_peak_bytes: float
    """Device peak with it."""
    verdict: Verdict
    """Whether the job fits with it."""
    slower_fraction: float
    """Seconds of a step with it over those before, less one; below 0 it is faster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Memory of the fullest GPU, and of every stage."""

    allocated_peak_bytes: Interval
    """Live tensors at the peak (torch.cuda.max_memory_allocated)."""
    reserved_peak_bytes: Interval
    """With the allocator's slack (torch.cuda.max_memory_reserved)."""
    device_peak_bytes: Interval
    """With context and communicators (what nvidia-smi shows)."""
    usable_bytes: float
    """Memory a job can use on this GPU."""
    headroom_bytes: float
    """usable_bytes - device_peak_bytes; negative when bytes are missing."""
    host_bytes: float
    """Bytes one rank keeps in host memory (offload)."""
    oom_probability_fraction: float
    """Probability that the device peak exceeds the usable memory."""
    peak_stage: int
    """Fullest stage."""
    peak_phase: Phase
    """Phase at which its peak falls."""
    biggest_line: str
    """Largest line of the fullest stage."""
    checkpoint_bytes: float
    """A checkpoint of the whole job on disk: weights, master weights and optimizer states of what is trained."""
    changes: tuple[Change, ...]
    """Single changes when it does not surely fit: those first that make it fit, the cheapest in time before others."""
    suggestions: tuple[str, ...]
    """The same in words."""
    stages: tuple[StageMemory, ...]
    """Every pipeline stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostTime:
    """Wall time of the run in which nothing new is trained."""

    kind: str
    """What it goes to: checkpoints, lost_work (done again after an interruption) or restarts."""
    days: float
    """Days of the run; with ideal_days.value they sum to days.value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """How interruptions and checkpoints divide the time."""

    interruption_seconds: float
    """Mean time between two interruptions of the job."""
    checkpoint_seconds: float
    """Time that training stands still for one checkpoint."""
    checkpoint_interval_seconds: float
    """Useful time between two checkpoints."""
    lost: tuple[LostTime, ...]
    """Where the time goes that trains nothing new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostLine:
    """One line of the cost, whole cents."""

    kind: str
    """What is paid for: gpus, spares, storage, egress; owned: amortisation, maintenance, hosting, electricity."""
    usd: Interval
    """US dollars."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveParameters:
    """Parameters that one token uses, by each of the definitions that vendors use."""

    total: int
    """All but the experts a token does not visit (DeepSeek, Qwen, Mixtral)."""
    without_input_embedding: int
    """The same without the token embedding (gpt-oss)."""
    non_embedding: int
    """The same without embedding and head (MiniMax, Kaplan)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageParameters:
    """Parameters of one pipeline stage."""

    stage: int
    """Stage, from 0."""
    total: int
    """Parameters of the stage, all its ranks together, adapters counted; a tied head on the last stage is a copy."""
    per_rank: int
    """Parameters of one rank of the stage before any data-parallel sharding, padding of the vocabulary included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Parameter counts of the model, exact."""

    total: int
    """Every number of the model once; tied weights once; adapters and multi-token-prediction depths not counted."""
    trained: int
    """Numbers that are trained: the model's but for frozen ones, its depths', or its adapters'."""
    adapters: int
    """Numbers of the adapters that stand beside frozen matrices (LoRA)."""
    active: int
    """Parameters that one token uses: `active_by_definition.total`."""
    active_by_definition: ActiveParameters
    """The vendors' three definitions of active."""
    non_embedding: int
    """Total without token embedding, position embedding and an untied head."""
    input_embedding: int
    """Token embedding."""
    position_embedding: int
    """Learned position table."""
    lm_head: int
    """Head matrix; 0 where tied."""
    routed_experts: int
    """All routed experts."""
    shared_experts: int
    """All shared experts."""
    multi_token_prediction: int
    """Own weights of the multi-token-prediction depths."""
    total_with_multi_token_prediction: int
    """Total and those."""
    stages: tuple[StageParameters, ...]
    """Each pipeline stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conventions:
    """FLOP of one trained token, forward and backward, as different people count it."""

    causal: float
    """Matrix products and attention over visible keys only (Megatron-Core), frozen parts, documents, padding and depths
    as they are; the headline."""
    full: float
    """The same without any mask: attention over all s^2 pairs (Megatron 2021, llm-foundry, torch's own counter)."""
    palm: float
    """6 N + 12 L a d s, every active parameter counted (PaLM appendix B); knows no depth, document or frozen part."""
    six_n: float
    """6 N, every active parameter counted, attention left out; no depth or frozen part either; `6n` on the wire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flop:
    """Floating-point operations, a multiply-add counted as two."""

    per_token_flop: float
    """One trained token, forward and backward, causal convention."""
    per_step_tokens: float
    """Trained tokens of one optimizer step, padding left out."""
    forward_per_step_flop: int
    """Forward passes of one optimizer step."""
    backward_per_step_flop: int
    """Backward passes of one optimizer step."""
    per_step_flop: int
    """Model FLOP of one optimizer step: forward and backward."""
    recompute_per_step_flop: int
    """Activations computed again in one optimizer step."""
    hardware_per_step_flop: int
    """Model FLOP and recompute of one optimizer step."""
    padding_per_step_flop: int
    """Model FLOP of one optimizer step that kernels for variable lengths would spare; 0 unless documents are padded."""
    padding_fraction: float
    """Share of the computed tokens that are padding; 0 unless documents are padded."""
    total_flop: int | None
    """Model FLOP of the whole run."""
    total_pflop_days: float | None
    """The same in PFLOP-days: 1e15 FLOP/s for one day."""
    recompute_fraction: float
    """Recompute over model FLOP, causal convention, each product counted once."""
    recompute_full_fraction: float
    """The same with both counted without the causal mask."""
    recompute_korthikanti_fraction: float | None
    """Cost of recomputing core attention by the formula of arXiv:2205.05198, s / (6 h + s); null for other rules."""
    conventions: Conventions
    """FLOP of one trained token by named convention."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPart:
    """One share of a step."""

    kind: str
    """What the time goes to, e.g. gemm, attention, exposed_tensor, bubble, optimizer."""
    seconds: float
    """Seconds of one step on the slowest stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One optimizer step."""

    step_seconds: Interval
    """Wall time."""
    tokens_per_s_per_gpu: Interval
    """Trained tokens a second on one GPU, padding left out."""
    mfu_fraction: Interval
    """Model FLOP over what the GPUs could do at the dense peak of the compute format."""
    hfu_fraction: Interval
    """The same with recompute counted."""
    peak_flop_per_s: float
    """The peak that mfu and hfu divide by, one GPU."""
    parts: tuple[StepPart, ...]
    """Where the time goes; the parts sum to step_seconds.value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStageTotals:
    """One stage of a run whose batch or length changes."""

    stage: int
    """Stage, from 0, in the order of recipe.stages; the last one has the recipe's own batch and length."""
    steps: int
    """Optimizer steps."""
    tokens: float
    """Tokens that they train."""
    total_flop: int
    """Their model FLOP."""
    step_seconds: Interval
    """Wall time of one of them, on average."""
    gpu_hours: Interval
    """GPUs x hours, goodput counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The whole run."""

    steps: int
    """Optimizer steps."""
    stages: tuple[RunStageTotals, ...]
    """Stages of the run, which sum to it; empty where batch and length never change."""
    gpu_hours: Interval
    """GPUs of the job x hours, goodput counted; spares are not."""
    billed_gpu_hours: Interval
    """GPU-hours that are paid for: those and the spares'."""
    spare_gpus: int
    """GPUs that wait beside the job."""
    days: Interval
    """Wall time in days, goodput counted."""
    ideal_days: Interval
    """Wall time if nothing were lost to interruptions and checkpoints."""
    goodput_fraction: float
    """Useful share of the wall time once failures and checkpoints are counted."""
    goodput: Goodput
    """How often the job is interrupted, how checkpoints are taken, and where the time goes."""
    at_peak_gpu_hours: float
    """GPU-hours if every model FLOP ran at the dense peak."""
    cost_usd: Interval | None
    """What the run is paid for, to the cent: the sum of the lines of cost; null without a price."""
    cost: tuple[CostLine, ...] | None
    """The same line by line, each rounded to the cent, a half to the even cent; null without a price."""
    gpu_busy_watts: float
    """Power at the meter of one GPU at work, its share of hosts and building counted."""
    gpu_idle_watts: float
    """The same of one that waits: spares all the time, the job's while it restarts."""
    energy_kwh: Interval
    """Energy at the meter: GPUs, spares, and their share of the hosts and the building."""
    carbon_kg_co2e: Interval | None
    """Energy x carbon intensity of the grid; null where neither region nor intensity is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The whole answer to one question."""

    resolved: CompleteQuestion
    """The question with every default filled."""
    verdict: Verdict
    """Whether the job fits."""
    parameters: Parameters
    """Parameter counts."""
    memory: Memory
    """Bytes."""
    flop: Flop
    """Operations."""
    step: Step
    """Seconds."""
    totals: Totals | None
    """The whole run; null without training_tokens."""
    assumptions: tuple[str, ...]
    """What was assumed."""
    warnings: tuple[str, ...]
    """What to look at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """The part of an answer that says whether one configuration fits."""

    resolved: CompleteQuestion
    """The question with every default filled."""
    verdict: Verdict
    """Whether the job fits."""
    memory: Memory
    """Bytes."""
    assumptions: tuple[str, ...]
    """What was assumed."""
    warnings: tuple[str, ...]
    """What to look at."""


Inputs = dict[str, float | int | bool | str | None]
"""What goes into a formula, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """One number of the answer, explained."""

    path: str
    """Where it stands in the answer, e.g. `flop.per_step_flop`."""
    value: float
    """The number, computed again from the inputs."""
    exact: str
    """The same as an exact decimal string."""
    unit: str | None
    """Its unit; null for a count or a share."""
    summary: str
    """What it is, and for whom."""
    equation: str
    """How it is computed."""
    inputs: Inputs
    """What goes in, by name."""
    source: str
    """Who says so."""
