"""Smaller questions for probes on a machine without a GPU: the same width and layout, fewer layers."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from service.errors import Refused
from service.estimator.estimate import estimate_memory
from service.estimator.model.build import layer_shapes
from service.estimator.model.flop import backward_flop, forward_flop
from service.estimator.question import AttentionName, Cluster, Layout, Model, Question, Recipe, Software
from service.estimator.resolve import ResolvedQuestion, configuration_of
from service.features.launch_checks.items import CPU_DTYPE, reached_flop_per_s
from service.features.launch_checks.targets import Target


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
"""Attention kernels that the step probe runs on a GPU, and that its stack has. Source:
service/worker/supported.py, KERNELS."""

MASKED_MIXERS = frozenset({"sliding_attention", "chunked_attention"})
"""Layers with a mask, which only the `flash` kernels of torch support. Source: PyTorch 2.9,
scaled_dot_product_attention."""

ONE_REPLICA = Software(name="transformers", implementation="eager")
"""Software of the step probe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedQuestion:
    """Questions that the probes measure."""

    resolved: ResolvedQuestion
    """The question whose shapes are measured."""
    steps: tuple[ResolvedQuestion, ...]
    """Questions of the step probe, at the smaller and the larger depth; empty where none fits."""
    whole: ResolvedQuestion | None
    """The same with all layers, only predicted; None without a step probe."""
    judges_memory: bool
    """Whether its attention stores the same tensors as the job's, so that memory can be compared."""
    assumptions: tuple[str, ...]
    """Differences from the job."""


def size_question(question: Question, target: Target, budget_seconds: float) -> SizedQuestion:
    """Size the question for a machine."""
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
    steps = _steps(resolved.question, target)
    if not steps:
        assumptions.append(
            "step and profile: a training step of this width does not fit on this machine, even at one layer"
        )
    else:
        assumptions.extend(_step_assumptions(steps, resolved.question))
    whole = _whole(resolved.question, steps, target) if steps else None
    judges = bool(steps) and _writes_scores(steps[0].question) is _writes_scores(resolved.question)
    return SizedQuestion(
        resolved=resolved, steps=steps, whole=whole, judges_memory=judges, assumptions=tuple(assumptions)
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


def _steps(question: Question, target: Target) -> tuple[ResolvedQuestion, ...]:
    """Training steps with the job's kernel, else with the one that runs everywhere."""
    kernels: tuple[AttentionName, ...] = (_kernel(question), "eager") if target.is_gpu else ("eager",)
    return next((steps for kernel in dict.fromkeys(kernels) if (steps := _steps_of(question, target, kernel))), ())


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
        if all(_fits(one, target) for one in steps):
            return steps
        if tokens // 2 < least:
            return ()
        tokens //= 2


def _whole(question: Question, steps: tuple[ResolvedQuestion, ...], target: Target) -> ResolvedQuestion:
    """A step of the whole model, with the measured sequence length."""
    recipe = steps[0].question.recipe
    question, tokens = _with_attention(question, recipe.attention), recipe.sequence_length
    return _step(question, question.model.num_hidden_layers, tokens, target)


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


def _fits(step: ResolvedQuestion, target: Target) -> bool:
    memory = estimate_memory(step.question).memory
    peak = memory.device_peak_bytes if target.is_gpu else memory.allocated_peak_bytes
    return peak.high < MEMORY_SHARE * target.memory_bytes
