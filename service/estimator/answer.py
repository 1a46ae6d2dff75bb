"""Dataclasses of an estimate: names carry units, predictions have intervals, counts are exact; None is never zero."""

from dataclasses import dataclass
from typing import Literal

from service.estimator.complete import CompleteQuestion

Basis = Literal["exact", "analytic", "calibrated", "measured"]


INSIDE_FRACTION = 0.8
"""Intended coverage of an interval: share of measurements inside it. Source: definition."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A predicted quantity: the value, the ends of its 80 % interval, and its basis."""

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
    """Transformer layers of the stage."""
    micro_batches_in_flight: float
    """Most micro-batches whose activations are in memory at the same time."""
    peak_phase: Phase
    """Phase at which the peak falls."""
    allocated_peak_bytes: float
    """Sum of the lines."""
    cached_bytes: float
    """What the allocator caches beside live tensors where there is room: pools of other streams, holes, flat copies."""
    reserved_peak_bytes: float
    """The most that the allocator reserves: live tensors, fragments and cached bytes, up to the device's end."""
    settled_reserved_bytes: float
    """Reserved memory at the peak of a later step, after the allocator has freed what it cached on a full device."""
    first_step_peak_bytes: float
    """Live tensors at the peak of the first step, when the optimizer has no states yet."""
    first_step_reserved_bytes: float
    """The most that the allocator reserves in the first step; the optimizer's states may raise it in the next."""
    idle_bytes: float
    """Live bytes between two steps."""
    lines: tuple[MemoryLine, ...]
    """Bytes by kind of tensor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change of the question that saves memory."""

    field: str
    """Field that changes."""
    value: str
    """Its new value."""
    also: tuple[str, ...]
    """Fields to set together with it, e.g. layout.data=4."""
    saves_bytes: float
    """Device peak before the change minus the device peak with it."""
    device_peak_bytes: float
    """Device peak with the change."""
    verdict: Verdict
    """Whether the job fits with the change."""
    slower_fraction: float
    """Relative increase of the step time; negative if the step is faster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Memory of the GPU with the highest peak, and of every stage."""

    allocated_peak_bytes: Interval
    """Live tensors at the peak (torch.cuda.max_memory_allocated)."""
    reserved_peak_bytes: Interval
    """With what the allocator caches (torch.cuda.max_memory_reserved)."""
    device_peak_bytes: Interval
    """With CUDA context and communicators (as nvidia-smi shows)."""
    usable_bytes: float
    """Memory a job can use on this GPU."""
    headroom_bytes: float
    """usable_bytes - device_peak_bytes; negative if memory is missing."""
    host_bytes: float
    """Bytes one rank keeps in host memory (offload)."""
    oom_probability_fraction: float
    """Probability that the device peak exceeds the usable memory."""
    peak_stage: int
    """Stage with the highest peak."""
    peak_phase: Phase
    """Phase at which its peak falls."""
    biggest_line: str
    """Largest line of the peak stage."""
    checkpoint_bytes: float
    """Checkpoint of the whole job on disk: weights, master weights and optimizer states of trained parameters."""
    changes: tuple[Change, ...]
    """Changes that save memory if the job may not fit, first those that make it fit, by the time that they cost."""
    suggestions: tuple[str, ...]
    """The changes in words."""
    stages: tuple[StageMemory, ...]
    """Every pipeline stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostTime:
    """Wall time of the run in which nothing new is trained."""

    kind: str
    """Cause: checkpoints, lost_work (repeated after an interruption) or restarts."""
    days: float
    """Days of the run; all lost days and ideal_days.value sum to days.value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """Time that interruptions and checkpoints cost."""

    interruption_seconds: float
    """Mean time between two interruptions of the job."""
    checkpoint_seconds: float
    """Time for which one checkpoint stops training."""
    checkpoint_interval_seconds: float
    """Useful time between two checkpoints."""
    lost: tuple[LostTime, ...]
    """Lost time by cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostLine:
    """One line of the cost, in whole cents."""

    kind: str
    """Cost item: gpus, spares, storage, egress; owned: amortisation, maintenance, hosting, electricity."""
    usd: Interval
    """US dollars."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveParameters:
    """Parameters that one token uses, by three definitions of model vendors."""

    total: int
    """All parameters except experts that the token is not routed to (DeepSeek, Qwen, Mixtral)."""
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
    """Parameters of all ranks of the stage, adapters included; a tied head on the last stage counts as a copy."""
    per_rank: int
    """Parameters of one rank of the stage before any data-parallel sharding, padding of the vocabulary included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Parameter counts of the model, exact."""

    total: int
    """All parameters of the model, tied weights once; without adapters and multi-token-prediction depths."""
    trained: int
    """Trained parameters: those of the model and its depths except frozen ones, and those of adapters."""
    adapters: int
    """Parameters of the adapters of frozen matrices (LoRA)."""
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
    """Total, with the multi-token-prediction depths."""
    stages: tuple[StageParameters, ...]
    """Each pipeline stage. Their totals sum to total_with_multi_token_prediction + adapters, and
    + input_embedding where the last of several stages has a copy of it, for a tied head or multi-token prediction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conventions:
    """FLOP of one trained token, forward and backward, by the conventions in use."""

    causal: float
    """Matrix products and attention over visible keys only (Megatron-Core); counts frozen parts, documents, padding and
    depths as they are. per_token_flop uses it."""
    full: float
    """The same without any mask: attention over all s^2 pairs (Megatron 2021, llm-foundry, torch's own counter)."""
    palm: float
    """6 N + 12 L a d s, with every active parameter (PaLM appendix B); ignores depths, documents and frozen parts."""
    six_n: float
    """6 N, with every active parameter; ignores attention, depths and frozen parts; `6n` on the wire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flop:
    """Floating-point operations, a multiply-add counted as two."""

    per_token_flop: float
    """One trained token, forward and backward, causal convention."""
    per_step_tokens: float
    """Trained tokens of one optimizer step, without padding."""
    forward_per_step_flop: int
    """Forward passes of one optimizer step."""
    backward_per_step_flop: int
    """Backward passes of one optimizer step."""
    per_step_flop: int
    """Model FLOP of one optimizer step: forward and backward."""
    recompute_per_step_flop: int
    """FLOP of recomputed activations in one optimizer step."""
    hardware_per_step_flop: int
    """Model FLOP and recompute of one optimizer step."""
    padding_per_step_flop: int
    """Model FLOP of one optimizer step that kernels for variable lengths would save; 0 unless documents are padded."""
    padding_fraction: float
    """Share of the computed tokens that are padding; 0 unless documents are padded."""
    total_flop: int | None
    """Model FLOP of the whole run."""
    total_pflop_days: float | None
    """The same in PFLOP-days: 1e15 FLOP/s for one day."""
    recompute_fraction: float
    """Recompute over model FLOP, causal convention, each product counted once."""
    recompute_full_fraction: float
    """The same, with both counted without the causal mask."""
    recompute_korthikanti_fraction: float | None
    """Cost of recomputing core attention by the formula of arXiv:2205.05198, s / (6 h + s); null for other rules."""
    conventions: Conventions
    """FLOP of one trained token by named convention."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPart:
    """One share of a step."""

    kind: str
    """Kind of work or waiting, e.g. gemm, attention, exposed_tensor, bubble, optimizer."""
    seconds: float
    """Seconds of one step on the slowest stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One optimizer step."""

    step_seconds: Interval
    """Wall time."""
    tokens_per_s_per_gpu: Interval
    """Trained tokens a second on one GPU, without padding."""
    mfu_fraction: Interval
    """Model FLOP over what the GPUs could do at the dense peak of the compute format."""
    hfu_fraction: Interval
    """The same with recompute counted."""
    peak_flop_per_s: float
    """Peak of one GPU, by which mfu_fraction and hfu_fraction divide."""
    parts: tuple[StepPart, ...]
    """Time by kind of work or waiting; the parts sum to step_seconds.value."""


CollectiveName = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send"]
Content = Literal[
    "activations", "keys_and_values", "tokens", "weights", "expert_weights", "gradients", "expert_gradients",
    "updates", "expert_updates",
]  # fmt: skip
CommunicationAxis = Literal["tensor", "context", "expert", "data", "pipeline", "offload"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Communication:
    """What one rank of the slowest stage sends in one step along one axis, by one collective."""

    kind: str
    """Axis, collective and content together, e.g. data_reduce_scatter_gradients, with _once at the end where the same
    is sent for each micro-batch, too; unique in the list."""
    axis: CommunicationAxis
    """Ranks that take part: those of a tensor, context, expert or data group, or neighbouring stages of the pipeline;
    offload: one rank and its host. Exposed seconds of an axis sum to the part of the step `exposed_` + axis."""
    collective: CollectiveName | Literal["copy"]
    """Operation; copy for offload."""
    content: Content
    """What is sent. Backward passes send gradients of activations, keys and values, and tokens."""
    every: Literal["micro_batch", "step"]
    """Whether the calls recur for each micro-batch, or run once a step."""
    calls: float
    """Calls in one step."""
    ranks: int
    """Ranks of the group."""
    local_ranks: int
    """Those of them in one fast-link domain."""
    link: Literal["scale_up", "host_bus", "network", "host"]
    """Slowest link that the group uses: the fast links of one domain, the bus of a host whose GPUs have none, or the
    network between domains; host: the link between a GPU and its host."""
    tensor_bytes: float
    """Whole tensor of one call; of a send, an all-to-all or a copy what one rank holds."""
    sent_bytes: float
    """Bytes that one rank sends in one call, by rings."""
    call_seconds: float
    """Seconds of one call."""
    seconds: float
    """Seconds of all calls in one step, hidden and exposed together."""
    hidden_seconds: float
    """Seconds that run beside compute and cost no time."""
    exposed_seconds: float
    """Seconds that lengthen the step, by waiting or by slowing compute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStageTotals:
    """One stage of a run whose batch or length changes."""

    stage: int
    """Stage, from 0, in the order of recipe.stages; the last one has the recipe's own batch and length."""
    steps: int
    """Optimizer steps."""
    tokens: float
    """Trained tokens of the stage."""
    total_flop: int
    """Model FLOP of the stage."""
    step_seconds: Interval
    """Mean wall time of one step of the stage."""
    gpu_hours: Interval
    """GPUs x hours, with the time lost to interruptions and checkpoints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The whole run."""

    steps: int
    """Optimizer steps."""
    stages: tuple[RunStageTotals, ...]
    """Stages of the run, which sum to it; empty where batch and length never change."""
    gpu_hours: Interval
    """GPUs of the job x hours, with lost time, without spares."""
    billed_gpu_hours: Interval
    """Billed GPU-hours: those of the job and of the spares."""
    spare_gpus: int
    """Spare GPUs, which wait to replace failed ones."""
    days: Interval
    """Wall time in days, with lost time."""
    ideal_days: Interval
    """Wall time if nothing were lost to interruptions and checkpoints."""
    goodput_fraction: float
    """Useful share of the wall time once failures and checkpoints are counted."""
    goodput: Goodput
    """Interruptions, checkpoints and the time that they cost."""
    at_peak_gpu_hours: float
    """GPU-hours if every model FLOP ran at the dense peak."""
    cost_usd: Interval | None
    """Cost of the run to the cent, the sum of the lines of cost; null without a price."""
    cost: tuple[CostLine, ...] | None
    """Lines of the cost, each rounded to the cent, a half to the even cent; null without a price."""
    gpu_busy_watts: float
    """Power at the meter of one working GPU, with its share of hosts and building."""
    gpu_idle_watts: float
    """Power at the meter of one waiting GPU: a spare at any time, one of the job during a restart."""
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
    """Memory by stage and kind of tensor."""
    flop: Flop
    """Floating-point operations."""
    step: Step
    """Time of one optimizer step."""
    communication: tuple[Communication, ...]
    """What one rank sends in that step, by axis and collective; empty on one GPU."""
    totals: Totals | None
    """The whole run; null without training_tokens."""
    assumptions: tuple[str, ...]
    """Assumptions of the estimate."""
    warnings: tuple[str, ...]
    """Warnings about the question or the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """The memory part of an answer: whether one configuration fits."""

    resolved: CompleteQuestion
    """The question with every default filled."""
    verdict: Verdict
    """Whether the job fits."""
    memory: Memory
    """Memory by stage and kind of tensor."""
    assumptions: tuple[str, ...]
    """Assumptions of the estimate."""
    warnings: tuple[str, ...]
    """Warnings about the question or the answer."""


Inputs = dict[str, float | int | bool | str | tuple[float, ...] | None]
"""Inputs of a formula, by name."""


ReferenceKind = Literal[
    "definition", "derivation", "paper", "software", "document", "measured", "catalogue", "question", "assumption"
]
"""What a number rests on: a definition, what follows from stated facts, a paper, the code of a framework, a
specification or data sheet, measurements, a row of the catalogue, the question, or an assumption of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """One source of a number."""

    kind: ReferenceKind
    """What it is: a definition, a derivation from stated facts, a paper, a framework's code, another document,
    measurements, a row of the catalogue, the question itself, or an assumption."""
    text: str
    """The source; a row of the catalogue with its date."""
    url: str | None
    """Where it is read; null where there is no page of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownInput:
    """One input of an explanation, as people read it."""

    name: str
    """Its name in `inputs`."""
    label: str
    """What it is called."""
    shown: str
    """Its value to five digits, with the unit that people use."""
    ref: str | None
    """Name of its own explanation; null for a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """One number of the answer, or one input of its numbers, explained."""

    path: str
    """Its cell name, e.g. `flop.per_step_flop`; that of an input begins with `resolved`, `constants`
    or `inputs`."""
    label: str
    """What it is called."""
    value: float
    """The number, computed again from the inputs."""
    shown: str
    """The value to five digits, with the unit that people use; a whole number below ten million has all its digits."""
    exact: str
    """The value as an exact decimal string."""
    unit: str | None
    """Unit of `value`; null for a count or a share."""
    summary: str
    """What the number means, and what it covers."""
    equation: str
    """Equation that computes it, in the letters of papers; empty for what is read: a field or a constant."""
    in_numbers: str | None
    """The equation with the numbers put in, `5,835.8 GPU-h × $2.50/GPU-h = $14,590`: what adds nothing is left out, a
    long sum has its largest parts. The numbers shown give the value to the digits shown. Null for an input."""
    expression: str
    """The same as arithmetic over `inputs` by name: + - * / // % **, comparisons, `and`, `or`, `not`, `a if c else b`,
    and min, max, sum, ceil, floor, round, sqrt, log, log2, exp, erf. It gives the value to 1e-9."""
    inputs: Inputs
    """Inputs of the expression, by name; a list holds one number for each batch of a stage of the run."""
    shown_inputs: tuple[ShownInput, ...]
    """The inputs that are numbers, as people read them, each with its own explanation."""
    source: str
    """Sources of the equation, or of the input, in one text."""
    references: tuple[Reference, ...]
    """The same one by one, with kinds and links."""
