"""Target machine of a launch check: the live worker that suits it best, and the question sized for it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Final

from service.answers.launch_checks import Where
from service.answers.workers import Device, Requirements, SeenWorker
from service.calibration.records import ProbeName
from service.catalogue import Catalogue
from service.catalogue.catalogue import calibrated_gpu
from service.errors import NoWorker, Problem, Refused
from service.estimator.answer import Interval
from service.estimator.estimate import estimate_memory
from service.estimator.model.build import layer_shapes
from service.estimator.model.counts import backward_flop, forward_flop
from service.estimator.question import AttentionName, Cluster, Gpu, Layout, Model, Question, Recipe, Software
from service.estimator.resolve import ResolvedQuestion, configuration_of
from service.estimator.software.precision import Format, peak_flop_per_s

MOST_RANKS = 8
"""Processes of one probe: those of a node. Source: a choice."""
CPU_RANKS = 2
"""Processes of a collective on a machine without a GPU. Source: a choice; the fewest that exchange anything."""
UNSEEN_THREADS = 2
"""Threads assumed of a worker that has not connected yet. Source: a choice."""
UNSEEN_MEMORY_BYTES = 4e9
"""Memory that probes may fill where the worker did not report it. Source: a choice; a small machine has it."""

NO_WORKER_FIX = 'start `traincost worker` on a machine that has it, or say "on": "any", which leads to caution at best'


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The machine that tasks are sized for."""

    on: Where
    """Whether it must have the cluster's own GPU."""
    is_matching: bool
    gpu: Gpu | None = None
    """Its GPU, used for predictions; None without a GPU or outside the catalogue."""
    device: str | None = None
    """Name of its GPU; None for a processor."""
    devices: int = 1
    memory_bytes: float = UNSEEN_MEMORY_BYTES
    threads: int = UNSEEN_THREADS
    measures: bool = False
    """Whether a live worker of the kind has torch."""

    @property
    def is_gpu(self) -> bool:
        return self.device is not None

    @property
    def ranks(self) -> int:
        """Processes in which a collective can run on it, one a device [1]."""
        return min(self.devices, MOST_RANKS) if self.is_gpu else CPU_RANKS

    def requires(self, ranks: int) -> Requirements:
        """Requirements for a worker that runs the tasks of this machine."""
        slug = None if self.gpu is None else self.gpu.slug
        return Requirements(gpu=slug, gpus=ranks if self.is_gpu else 0, measures=self.measures)


def target_of(on: Where | None, gpu: Gpu, workers: Sequence[SeenWorker], catalogue: Catalogue) -> Target:
    """The machine that a launch check is sized for."""
    targets = [
        _target(device, worker, gpu, catalogue)
        for worker in workers
        if worker.is_alive
        for device in worker.capabilities.devices or (None,)
    ]
    matching = [one for one in targets if one.is_matching]
    if on == "matching" and not matching:
        raise NoWorker(_none_matches(gpu, workers))
    chosen: Where = on or ("matching" if matching else "any")
    worth = attrgetter(
        "measures", "is_matching", "is_gpu", "devices", "memory_bytes", "threads"
    )  # no torch, no figures
    best = max(matching if chosen == "matching" else targets, key=worth, default=Target(on="any", is_matching=False))
    return replace(best, on=chosen)


def _target(device: Device | None, worker: SeenWorker, gpu: Gpu, catalogue: Catalogue) -> Target:
    able = worker.capabilities
    machine = Target(on="any", is_matching=False, threads=max(1, able.cpu_threads), measures=able.measures)
    if device is None:
        return machine
    slug = device.gpu if device.gpu in catalogue.gpus else None
    known = None if slug is None else calibrated_gpu(slug, catalogue)
    return replace(
        machine,
        is_matching=known is not None and known.slug == gpu.slug,
        gpu=known,
        device=device.name,
        devices=max(1, device.count),
        memory_bytes=device.memory_bytes or (known.memory_bytes if known is not None else UNSEEN_MEMORY_BYTES),
    )


def _none_matches(gpu: Gpu, workers: Sequence[SeenWorker]) -> Problem:
    seen = []
    for worker in workers[:10]:
        able = worker.capabilities
        devices = ", ".join(f"{one.count} x {one.gpu or one.name}" for one in able.devices)
        described = devices or f"no GPU, {able.cpu_threads} threads"
        seen.append(f"{worker.id}{'' if worker.is_alive else ' (gone)'}: {described}")
    message = f"no live worker has the GPU {gpu.slug}; workers seen: {'; '.join(seen) or 'none'}"
    return Problem(field="on", code="no_matching_worker", message=message, fix=NO_WORKER_FIX)


CPU_FLOP_PER_S = 10e9
"""Conservative fp32 rate of a processor thread. Source: a choice; threads of cloud machines reach 20e9 and more."""
CPU_BYTES_PER_S = 5e9
"""Conservative memory rate of one processor thread. Source: a choice; half of what one DDR4 channel does."""
GPU_FLOP_PER_S = 20e12
"""Conservative 16-bit rate of a GPU outside the catalogue. Source: a choice."""
GPU_BYTES_PER_S = 200e9
"""Conservative memory rate of such a GPU. Source: a choice."""
EXPECTED_FRACTION = 0.4
"""Fraction of data sheet rates that every GPU reaches. Source: a choice; below every row of MATRIX_RATES."""

DTYPES: Mapping[Format, str] = {"fp32": "fp32", "fp16": "fp16", "bf16": "bf16", "fp8": "fp8"}
"""Names of number formats in probes; no probe has kernels for fp4 and int8."""

CPU_DTYPE: Final = "fp32"
"""Format measured on a processor: few have units for narrower ones, others take a hundred times as long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """One planned measurement of a probe."""

    probe: ProbeName
    operation: str
    shape: Mapping[str, Any]
    quantity: str
    """seconds, bytes or bytes_per_s."""
    predicted: Interval | None = None
    """Prediction; None where no formula applies to the device."""
    count: float | None = None
    """Runs in one step on one rank; None where it is not part of a step."""


def expected_seconds(probe: ProbeName, operation: str, shape: Mapping[str, Any], count: float | None) -> Expected:
    """A planned measurement of time, not predicted yet."""
    return Expected(probe=probe, operation=operation, shape=shape, quantity="seconds", count=count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One entry of a probe's parameters."""

    entry: Any
    name: str
    once_seconds: float
    weight_flop: float
    """FLOP of it in one step, or bytes where it has none; items run in descending order."""
    memory_bytes: float
    expected: tuple[Expected, ...]


def reached_flop_per_s(target: Target, dtype: str) -> float:
    """Conservative matrix product rate of a machine, to size tasks."""
    if not target.is_gpu:
        return CPU_FLOP_PER_S * target.threads
    if target.gpu is None:
        return GPU_FLOP_PER_S
    number_format: Format = next((name for name, probe_name in DTYPES.items() if probe_name == dtype), "bf16")
    peak = peak_flop_per_s(target.gpu, number_format) or target.gpu.fp32_flop_per_s or GPU_FLOP_PER_S
    return EXPECTED_FRACTION * peak


def moved_bytes_per_s(target: Target) -> float:
    """Conservative memory rate of a machine, to size tasks."""
    if not target.is_gpu:
        return CPU_BYTES_PER_S * target.threads
    return GPU_BYTES_PER_S if target.gpu is None else EXPECTED_FRACTION * target.gpu.memory_bytes_per_s


def depths_of(model: Model) -> tuple[int, int]:
    """Two depths one period of layer kinds apart, with the leading layers of a kind of their own.

    >>> from service.estimator.samples import LLAMA_3_8B
    >>> depths_of(LLAMA_3_8B)
    (1, 2)
    """
    shapes = layer_shapes(model)
    layers = len(shapes)
    candidates = [
        (lead + 2 * period, lead + period)
        for period in range(1, layers // 2 + 1)
        for lead in range(layers - 2 * period + 1)
        if all(shapes[place] == shapes[place + period] for place in range(lead, layers - period))
    ]
    if not candidates:
        return layers, layers
    larger, smaller = min(candidates)
    return smaller, larger


STEP_SHARE = 0.3
"""Share of the time that training steps take on a processor. Source: a choice."""
STEPS = 14
"""Steps of either depth that the step and profile probes run together, about: three and two timed ones at two depths,
five for the profile. Source: definition."""
LEAST_TOKENS = 32
"""Shortest sequence that is measured. Source: a choice; shorter products are all launch."""
CPU_TOKENS = 512
"""Longest sequence that is measured on a processor. Source: a choice."""
GPU_LEAST_TOKENS = 512
"""Shortest sequence of a step that is measured on a GPU. Source: a choice."""
MEMORY_SHARE = 0.9
"""Share of the memory that a step may be expected to take. Source: a choice."""

RUN_KERNELS = ("eager", "flash", "flash-2")
"""Attention kernels that the step probe runs on a GPU. Source: service/worker/supported.py, KERNELS."""

MASKED_MIXERS = frozenset({"sliding_attention", "chunked_attention"})
"""Layers with a mask, which torch's `flash` kernels alone take. Source: PyTorch 2.9, scaled_dot_product_attention."""

ONE_REPLICA = Software(name="transformers", implementation="eager")


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedQuestion:
    """Questions that the probes measure."""

    resolved: ResolvedQuestion
    steps: tuple[ResolvedQuestion, ...]
    """Questions of the step probe, at the smaller and the larger depth; empty where none fits."""
    whole: ResolvedQuestion | None
    """The same with all layers, only predicted; None without a step probe."""
    judges_memory: bool
    """Whether its attention stores the same tensors as the job's, so that memory can be compared."""
    assumptions: tuple[str, ...]


def size_question(question: Question, target: Target, budget_seconds: float) -> SizedQuestion:
    assumptions: list[str] = []
    resolved = configuration_of(question)
    if not target.is_gpu:
        tokens = _tokens(resolved, target, budget_seconds)
        resolved = _shorter(question, tokens) or resolved
        recipe = resolved.question.recipe
        assumptions.append(
            f"no GPU: shapes are those of {recipe.sequence_length} tokens and {recipe.micro_batch} sequence(s), in "
            f"{CPU_DTYPE}, not of {question.recipe.sequence_length} tokens and {question.recipe.micro_batch}"
        )
    sized = resolved.question
    kernels: tuple[AttentionName, ...] = (_kernel(sized), "eager") if target.is_gpu else ("eager",)
    steps = next((steps for kernel in dict.fromkeys(kernels) if (steps := _steps_of(sized, target, kernel))), ())
    if not steps:
        assumptions.append(
            "step and profile: a training step of this width does not fit on this machine, even at one layer"
        )
        return SizedQuestion(
            resolved=resolved, steps=(), whole=None, judges_memory=False, assumptions=tuple(assumptions)
        )
    recipe, layers = steps[0].question.recipe, sized.model.num_hidden_layers
    return SizedQuestion(
        resolved=resolved,
        steps=steps,
        whole=_step(_with_attention(sized, recipe.attention), layers, recipe.sequence_length, target),
        judges_memory=_writes_scores(steps[0].question) is _writes_scores(sized),
        assumptions=(*assumptions, *_step_assumptions(steps, sized)),
    )


def _writes_scores(question: Question) -> bool:
    """Whether attention stores its scores; all fused kernels store the same, smaller tensors."""
    return question.recipe.attention == "eager"


def _step_assumptions(steps: tuple[ResolvedQuestion, ...], question: Question) -> Iterator[str]:
    recipe = steps[0].question.recipe
    layers = " and ".join(str(one.question.model.num_hidden_layers) for one in steps)
    yield (
        f"step and profile: {layers} of {question.model.num_hidden_layers} layers at full width on one device, plain "
        f"PyTorch operations in {recipe.precision}, {recipe.micro_batch} x {recipe.sequence_length} tokens"
    )
    if recipe.attention != question.recipe.attention:
        across = _writes_scores(steps[0].question) is not _writes_scores(question)
        yield (
            f"step and profile: attention is {recipe.attention}, not the job's {question.recipe.attention}"
            f"{', so their memory is not carried over to the job' if across else ''}"
        )


def _tokens(resolved: ResolvedQuestion, target: Target, budget_seconds: float) -> int:
    """Sequence length whose training steps fit the time share: a power of two."""
    smaller, _ = depths_of(resolved.question.model)
    ledger, tokens = resolved.workload.ledger, resolved.question.recipe.sequence_length
    groups = ((1, ledger.embedding), (smaller, ledger.kinds[-1]), (1, ledger.head))
    each = sum(times * (forward_flop(ops) + backward_flop(ops)) for times, ops in groups) / tokens
    most = STEP_SHARE * budget_seconds * reached_flop_per_s(target, CPU_DTYPE) / (STEPS * each)
    power = 1 << max(0, int(most).bit_length() - 1)
    return min(tokens, CPU_TOKENS, max(LEAST_TOKENS, power))


def _shorter(question: Question, tokens: int) -> ResolvedQuestion | None:
    """The question with the shortest sequence of at least `tokens` that its layout allows; None if there is none."""
    while tokens < question.recipe.sequence_length:
        try:
            return configuration_of(replace(question, recipe=_plain(question.recipe, tokens)))
        except Refused:
            tokens *= 2
    return None


def _plain(recipe: Recipe, tokens: int) -> Recipe:
    """A recipe of one sequence of some tokens, the smallest batch, without documents and without a run."""
    return replace(
        recipe, sequence_length=tokens, micro_batch=1, global_batch=None, global_batch_tokens=None, stages=(),
        document_lengths=(), training_tokens=None,
    )  # fmt: skip


def _steps_of(question: Question, target: Target, kernel: AttentionName) -> tuple[ResolvedQuestion, ...]:
    """Training steps of one replica at both depths; shortened on a GPU until they fit; empty if they never do."""
    with_kernel = _with_attention(question, kernel)
    tokens, least = question.recipe.sequence_length, GPU_LEAST_TOKENS if target.is_gpu else LEAST_TOKENS
    while True:
        try:
            steps = tuple(
                _step(with_kernel, depth, tokens, target) for depth in dict.fromkeys(depths_of(question.model))
            )
        except Refused:
            return ()
        if all(_peak_bytes(one, target) < MEMORY_SHARE * target.memory_bytes for one in steps):
            return steps
        if tokens // 2 < least:
            return ()
        tokens //= 2


def _step(question: Question, depth: int, tokens: int, target: Target) -> ResolvedQuestion:
    model = replace(question.model, num_hidden_layers=depth, num_nextn_predict_layers=0)
    recipe = replace(_plain(question.recipe, tokens), micro_batch=question.recipe.micro_batch, stack=ONE_REPLICA)
    recipe = replace(recipe, gradient_dtype=None, vocabulary_multiple=None, checkpoint=None)
    if not target.is_gpu:
        recipe = replace(recipe, precision=CPU_DTYPE, fp8_weights=False, moment_dtype=None, master_dtype=None)
    gpu = target.gpu or question.gpu
    one = Cluster(gpu=gpu.slug, gpus=1, gpus_per_node=1)
    return configuration_of(
        replace(question, model=model, recipe=recipe, layout=Layout(), cluster=one, gpu=gpu, price=None)
    )


def _with_attention(question: Question, kernel: AttentionName) -> Question:
    return replace(question, recipe=replace(question.recipe, attention=kernel))


def _kernel(question: Question) -> AttentionName:
    """The job's kernel if torch has it and it supports the model's masks, else one that is always available."""
    kernel = question.recipe.attention
    if kernel not in RUN_KERNELS:
        return "flash"
    is_masked = any(shape.mixer in MASKED_MIXERS for shape in layer_shapes(question.model))
    return "flash" if is_masked and kernel != "eager" else kernel


def _peak_bytes(step: ResolvedQuestion, target: Target) -> float:
    memory = estimate_memory(step.question).memory
    return (memory.device_peak_bytes if target.is_gpu else memory.allocated_peak_bytes).high
