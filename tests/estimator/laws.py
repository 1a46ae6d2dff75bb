"""Laws of memory over random questions: what more work never lowers, and what more sharding never raises.

`violations` tries every law on a question, and `shrink` takes away all that a violation does not need.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from service.errors import Refused
from service.estimator import Question, estimate, estimate_memory
from service.estimator.answer import MemoryEstimate, Verdict
from service.estimator.memory.device import RESERVED_SHARE, flat_copy_bytes
from service.estimator.memory.states import REDUCTION_BYTES
from service.estimator.model.build import layer_shapes
from service.estimator.parallelism.buckets import gather_bucket_numbers
from service.estimator.parallelism.data import waits_for_last
from service.estimator.question import Method, Software, StackName
from service.estimator.resolve import resolve
from service.estimator.run.run import rank_bytes_of, stages_of
from service.estimator.software.stacks import STACKS
from tests.estimator.random_questions import RECOMPUTES, filled, gpus, models

TOLERANCE = 1e-6
"""Share of a number by which two sums may differ where rows are padded to whole ones."""

WIDTHS = (
    "hidden_size",
    "intermediate_size",
    "moe_intermediate_size",
    "shared_expert_intermediate_size",
    "vocab_size",
    "head_dim",
    "v_head_dim",
    "q_lora_rank",
    "kv_lora_rank",
    "num_experts",
)
"""Fields of a model that more work widens."""


@dataclass(frozen=True, slots=True)
class Change:
    """A question and one that asks for more of one thing."""

    law: str
    """What changes, e.g. `sequence_length`."""
    words: str
    """From what to what."""
    question: Question


def with_recipe(question: Question, **changes: Any) -> Question:
    """The question with some fields of the recipe changed."""
    return replace(question, recipe=replace(question.recipe, **changes))


def with_layout(question: Question, **changes: Any) -> Question:
    """The question with some fields of the layout changed, on as many GPUs as that needs."""
    return filled(replace(question, layout=replace(question.layout, **changes)))


def with_model(question: Question, **changes: Any) -> Question:
    """The question with some fields of the model changed."""
    return replace(question, model=replace(question.model, **changes))


def batch_of(question: Question) -> int:
    """Sequences of one step."""
    return question.recipe.global_batch or question.recipe.micro_batch * (question.layout.data or 1)


def more_work(question: Question) -> Iterator[Change]:
    """The question with more work of one kind, everything else alike: bytes never fall, a verdict never improves."""
    recipe, layout, model = question.recipe, question.layout, question.model
    length, blocks = recipe.sequence_length, 2 * layout.context
    for longer in (length + blocks, (length * 5 // 4 + blocks - 1) // blocks * blocks, 2 * length):
        yield Change("sequence_length", f"{length} -> {longer}", with_recipe(question, sequence_length=longer))
    for sequences in {recipe.micro_batch + 1, 2 * recipe.micro_batch}:
        changes = {"micro_batch": sequences, "global_batch": batch_of(question) * sequences // recipe.micro_batch}
        yield Change("micro_batch", f"{recipe.micro_batch} -> {sequences}", with_recipe(question, **changes))
    if layout.pipeline == 1 or (len(set(layer_shapes(model))) == 1 and not frozen_layers(question)):
        chunks = layout.pipeline * layout.virtual_pipeline
        for layers in (model.num_hidden_layers + chunks, 2 * model.num_hidden_layers):
            words = f"{model.num_hidden_layers} -> {layers}"
            yield Change("num_hidden_layers", words, with_model(question, num_hidden_layers=layers))
    for name in WIDTHS:
        width = getattr(model, name)
        for wider in (2 * width, width + 256) if width else ():
            yield Change(name, f"{width} -> {wider}", with_model(question, **{name: wider}))


def less_held(question: Question) -> Iterator[Change]:
    """The question with more sharding or recompute: bytes never rise beyond the buffers that this needs."""
    recipe, layout, row = question.recipe, question.layout, STACKS[software_name(question)]
    for stage in sorted(row.zero_stages):
        if stage > (zero := zero_stage(question)):
            yield Change("zero_stage", f"{zero} -> {stage}", with_layout(question, zero_stage=stage))
    for rule in RECOMPUTES if recipe.recompute == "none" else ():
        if rule != "none":
            yield Change("recompute", f"none -> {plainly(rule)}", with_recipe(question, recompute=rule))
    if recipe.recompute == "selective":
        yield Change("recompute", "selective -> full", with_recipe(question, recompute="full"))
    data = layout.data or 1
    for times in (2, 3) if data > 1 and layout.shard_group is None else ():
        wider = with_layout(question, data=times * data)
        words = f"{data} -> {times * data}"
        yield Change("data", words, with_recipe(wider, global_batch=times * batch_of(question)))


def software_name(question: Question) -> StackName:
    """The stack of a question."""
    stack = question.recipe.stack
    return stack.name if isinstance(stack, Software) else stack or "megatron-core"


def frozen_layers(question: Question) -> int:
    """Layers that a question does not train."""
    method = question.recipe.method
    return method.frozen_layers if isinstance(method, Method) else 0


def zero_stage(question: Question) -> int:
    """The ZeRO stage of a question."""
    given = question.layout.zero_stage
    return STACKS[software_name(question)].zero_stages[0] if given is None else given


VERDICTS: tuple[Verdict, ...] = ("fits", "at_risk", "out_of_memory")


@dataclass(frozen=True, slots=True)
class Violation:
    """A law that does not hold."""

    law: str
    number: str
    """The number that moves the wrong way."""
    words: str
    question: Question

    @property
    def kind(self) -> str:
        """Class of the violation."""
        return f"{self.law}: {self.number}: {software_name(self.question)}"

    def __str__(self) -> str:
        """One line."""
        return f"{self.law}: {self.words} | {plainly(self.question)}"


def answer_of(question: Question) -> MemoryEstimate | None:
    """The memory of a question; None where the service refuses it."""
    try:
        return estimate_memory(question)
    except Refused:
        return None


def numbers_of(answer: MemoryEstimate) -> dict[str, float]:
    """What a law compares of one answer: of all stages the one that holds most of it."""
    memory = answer.memory
    return {
        "allocated_peak_bytes": max(stage.allocated_peak_bytes for stage in memory.stages),
        "reserved_peak_bytes": memory.reserved_peak_bytes.value,
        "device_peak_bytes": memory.device_peak_bytes.value,
        "device_peak_bytes.high": memory.device_peak_bytes.high,
        "idle_bytes": max(stage.idle_bytes for stage in memory.stages),
        "first_step_peak_bytes": max(stage.first_step_peak_bytes for stage in memory.stages),
        "checkpoint_bytes": memory.checkpoint_bytes,
    }


LIVE_NUMBERS = ("allocated_peak_bytes", "idle_bytes", "first_step_peak_bytes")
HELD = (*LIVE_NUMBERS, "reserved_peak_bytes", "device_peak_bytes")
"""Numbers that more sharding and recompute never raise."""


def violations(question: Question) -> Iterator[Violation]:
    """Laws that a question breaks."""
    yield from of_sums(question)
    before = estimate_memory(question)
    for change in more_work(question):
        yield from _grown(before, change, question)
    for change in less_held(question):
        yield from _shrunk(before, change, question)


def of_sums(question: Question) -> Iterator[Violation]:
    """Lines of a stage sum to its peak, and parameters of the stages to those of the model.

    Parameters of stages hold what `total_with_multi_token_prediction` counts, adapters too, and the copy of a matrix
    that the last of several stages keeps where it is tied, or where the stack trains depths that embed tokens again.
    """
    answer = estimate(question)
    for stage in answer.memory.stages:
        lines = sum(line.bytes for line in stage.lines)
        if lines != stage.allocated_peak_bytes:
            yield Violation(
                "sum of lines", f"stage {stage.stage}", f"{lines} of {stage.allocated_peak_bytes}", question
            )
    counts, model = answer.parameters, resolve(question).workload.model
    is_copied = question.layout.pipeline > 1 and (model.tie_word_embeddings or model.num_nextn_predict_layers)
    whole = counts.total_with_multi_token_prediction + counts.adapters + (counts.input_embedding if is_copied else 0)
    stages = sum(stage.total for stage in counts.stages)
    if stages != whole:
        yield Violation("parameters of stages", "parameters", f"{stages:,} of {whole:,}", question)


def _grown(before: MemoryEstimate, change: Change, question: Question) -> Iterator[Violation]:
    after = answer_of(change.question)
    if after is None or before.resolved.layout.stage_layers != after.resolved.layout.stage_layers:
        return
    least = numbers_of(before)
    shared = max(0.0, placeholder_bytes(before) - placeholder_bytes(after)) * RESERVED_SHARE[1]
    for name, number in numbers_of(after).items():
        if number < least[name] * (1 - TOLERANCE) - shared:
            yield Violation(change.law, name, f"{change.words}: {name} {gigabytes(least[name], number)}", question)
    verdicts = before.verdict, after.verdict
    if VERDICTS.index(verdicts[1]) < VERDICTS.index(verdicts[0]):
        yield Violation(change.law, "verdict", f"{change.words}: verdict {' -> '.join(verdicts)}", question)


def placeholder_bytes(answer: MemoryEstimate) -> float:
    """Most bytes of empty gradients on a stage: one for all weights of a shape, and a width may make two shapes one."""
    lines = ([line for line in stage.lines if line.kind == "gradient_placeholders"] for stage in answer.memory.stages)
    return max(sum(line.bytes for line in one) for one in lines)


def _shrunk(before: MemoryEstimate, change: Change, question: Question) -> Iterator[Violation]:
    after = answer_of(change.question)
    if after is None:
        return
    most, is_sharded = numbers_of(before), change.law == "zero_stage"
    live, cached, stepping = buffer_bytes(after, change.question) if is_sharded else (0.0, 0.0, 0.0)
    for name, number in numbers_of(after).items():
        allowed = live if name in LIVE_NUMBERS else live * RESERVED_SHARE[1] + cached
        allowed += stepping if name == "first_step_peak_bytes" else 0.0
        if name in HELD and number > (most[name] + allowed) * (1 + TOLERANCE):
            yield Violation(change.law, name, f"{change.words}: {name} {gigabytes(most[name], number)}", question)


def buffer_bytes(answer: MemoryEstimate, question: Question) -> tuple[float, float, float]:
    """Most bytes of a stage that sharding needs for itself: live, cached, and live inside the optimizer step alone.

    Each is a line of the answer, or its cached_bytes, as far as it is bounded. Gathered weights are those of a layer
    and of both ends of the model where they are freed after use, else all. Gradients that are reduced are those of a
    layer or an end, but all where they wait for the last micro-batch, those of flat parameters whole. A bucket is what
    the stack fills at most, or one matrix of the vocabulary. The allocator caches two flat copies of all weights and
    one of the rank's part, or the weights of three groups and the rank's gradients. fp32 gradients of the step are the
    rank's.
    """
    resolved = resolve(question)
    workload, degrees = resolved.workload, resolved.degrees
    frees, waits = degrees.reshard_after_forward, waits_for_last(workload, degrees)
    weight, found = workload.state.gathered_bytes, []
    for stage, loaded in zip(answer.memory.stages, stages_of(resolved), strict=True):
        load = loaded.load
        trained = float(load.parameters.dense_trained + load.parameters.expert_trained)
        stepping = trained * REDUCTION_BYTES / degrees.shard_group
        filled = workload.software.reduce_bucket_numbers or workload.stack.reduce_bucket_numbers
        ahead = max(load.largest_layer, gather_bucket_numbers(workload))
        every = (load.parameters.dense + load.parameters.expert) * weight
        flat = every if workload.implementation.accumulates_whole else 0.0
        flattened = trained * workload.state.weight_bytes if workload.stack.flattens_update else 0.0
        copies = float(flat_copy_bytes(flattened, degrees.shard_group))
        in_turn = max(load.largest_trained_layer, load.largest_trained_end) * (weight + REDUCTION_BYTES)
        bounds = {
            "gathered_weights": (ahead + load.gathered_ends) * weight if frees and not waits else every,
            "reduced_gradients": load.embedding_table * weight
            + flat
            + (trained * REDUCTION_BYTES if waits else in_turn),
            "gradient_buckets": 2 * max(filled, load.largest_table) * workload.state.gradient_bytes,
            "gradients": trained * REDUCTION_BYTES if waits else flat,
            "step_gradients": stepping,
            "update_buffers": copies,
        }
        live = sum(min(line.bytes, bounds.get(line.kind, 0.0)) for line in stage.lines)
        pools = 3 * max(load.largest_layer, load.gathered_ends) * weight
        pools += trained * workload.state.gradient_bytes / degrees.shard_group
        cached = min(stage.cached_bytes, pools + copies)
        held = rank_bytes_of(resolved, loaded)
        made = min(float(held.step_gradients), float(stepping)) + min(float(held.flat_copies), copies)
        found.append((float(live), float(cached), made))
    live_bytes, cached_bytes, made_bytes = map(max, zip(*found, strict=True))
    return live_bytes, cached_bytes, made_bytes


def gigabytes(before: float, after: float) -> str:
    """Two amounts in GB.

    >>> gigabytes(1e9, 5e8)
    '1.000 -> 0.500 GB'
    """
    return f"{before / 1e9:.3f} -> {after / 1e9:.3f} GB"


def plainly(noun: Any) -> str:
    """A part of a question by the fields that are not as usual."""
    if isinstance(noun, Question):
        slug = next((slug for slug, model in models().items() if model == noun.model), None) or plainly(noun.model)
        return f"{slug} | {plainly(noun.recipe)} | {plainly(noun.layout)} | {noun.gpu.slug}"
    if not is_dataclass(noun):
        return str(noun)
    values = ((field, getattr(noun, field.name)) for field in fields(noun))
    return " ".join(f"{field.name}={plainly(value)}" for field, value in values if value != field.default)


def shrink(violation: Violation) -> Violation:
    """The same violation of a question with as few unusual fields as it needs."""
    smallest = violation
    while (smaller := next(_smaller(smallest), None)) is not None:
        smallest = smaller
    return smallest


def _smaller(violation: Violation) -> Iterator[Violation]:
    for question in _simpler(violation.question):
        if question == violation.question or answer_of(question) is None:
            continue
        for other in violations(question):
            if (other.law, other.number) == (violation.law, violation.number):
                yield other
                break


def _simpler(question: Question) -> Iterator[Question]:
    """The question with one part of it plainer."""
    llama, plain = models()["llama-3.1-8b"], models()["small dense"]
    yield from (replace(question, model=model) for model in (llama, plain) if question.model not in (model, plain))
    h100 = gpus()["h100-sxm5-80gb"]
    yield replace(question, gpu=h100, cluster=replace(question.cluster, gpu=h100.slug))
    given, usual = {"sequence_length", "micro_batch", "stack", "data", "name"}, Software(name=software_name(question))
    parts: dict[str, Any] = {"stack": question.recipe.stack, "recipe": question.recipe, "layout": question.layout}
    for noun, part in parts.items():
        for field in fields(part) if is_dataclass(part) else ():
            if field.name not in given and getattr(part, field.name) != field.default:
                plainer: Any = replace(part, **{field.name: field.default})
                whole = {"recipe": replace(question.recipe, stack=plainer)} if noun == "stack" else {noun: plainer}
                yield filled(replace(question, **whole))
    yield with_recipe(question, stack=usual)
    for data in range(1, min(3, question.layout.data or 1)):
        yield with_recipe(with_layout(question, data=data), global_batch=None)
    yield with_recipe(question, micro_batch=1, global_batch=None)
