"""What a file changes of the job that it is written for, by estimates of the question and of what is read back."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, NamedTuple

from service.answers.exports import ExportFigures, ExportLoss, NotExpressed, StackChange
from service.errors import Problem, Refused
from service.estimator import estimate
from service.estimator.complete import CompleteQuestion
from service.estimator.question import Layout, Model, Question, Recipe, Software
from service.estimator.software.stacks import requested_software, software_of
from service.formats.program import NODE
from service.formats.rules import MODEL, ExportedFile, ExportRequest, Target, values_of
from service.formats.targets import FORMATS, TARGETS
from service.units import BYTES, in_units
from service.validation.reading import read_spec

LARGEST_LOSS_FRACTION = 0.05
"""Change of memory or cost up to which a file is written without `allow_loss`."""

_STACK_NAME = "recipe.stack.name"

_DEGREES = {f"layout.{name}" for name in ("tensor", "context", "pipeline", "virtual_pipeline", "expert")}

_FROM_DEGREES = (
    "data", "shard_group", "virtual_group", "schedule", "stage_layers", "expert_tensor", "sequence_parallel",
)  # fmt: skip
"""Fields of a layout that follow from its degrees."""


class Effects(NamedTuple):
    """What a file changes."""

    stack_change: StackChange | None
    loss: ExportLoss | None


def effects_of(asked: Question, question: CompleteQuestion, target: Target, file: ExportedFile) -> Effects:
    """The effect of the file's training software, and of the fields that it neither holds nor leaves open."""
    lost = {one.field for one in file.not_expressible if not one.left_open}
    if not lost:
        return Effects(None, None)
    read = read_back(question, target, file)
    before = figures_of(asked)
    own = software_of(question.recipe).name
    change, base = None, before
    if (stack := software_of(read.recipe).name) != own:
        open_fields = {one.field for one in file.not_expressible if one.left_open}
        read = with_fields(read, {path: default_of(path) for path in open_fields if not _is_asked(asked, path)})
        restored = _restored(read, asked, question, lost)
        after, why = _figures_or_why(restored)
        change = StackChange(asked=own, written=stack, before=before, after=after, why=why)
        lost = {path for path in lost if path != _STACK_NAME and _is_asked(asked, path)}
        if after is None:
            read = _with_losses_alone(read, asked, lost)
        base = after or before
    if not lost:
        return Effects(change, None)
    return Effects(change, _loss(read, base, tuple(sorted(lost))))


def _loss(read: Question, before: ExportFigures, lost: tuple[str, ...]) -> ExportLoss | None:
    after, why = _figures_or_why(read)
    if after == before:
        return None
    memory = None if after is None else after.device_peak_bytes / before.device_peak_bytes - 1
    cost = None if after is None else before.tokens_per_s_per_gpu / after.tokens_per_s_per_gpu - 1
    return ExportLoss(fields=lost, before=before, after=after, why=why, memory_fraction=memory, cost_fraction=cost)


def refuse_large(loss: ExportLoss | None, gaps: tuple[NotExpressed, ...]) -> None:
    """Refuse a file that would change the memory or the cost of its job by more than is allowed."""
    if loss is None:
        return
    changes = [one for one in (loss.memory_fraction, loss.cost_fraction) if one is not None]
    if changes and max(map(abs, changes)) <= LARGEST_LOSS_FRACTION:
        return
    effect = f"the file's job runs nowhere: {loss.why}" if loss.after is None else _in_words(loss.before, loss.after)
    raise Refused(
        *(
            Problem(
                field=one.field,
                code="loses_too_much",
                message=f"{one.message}; {effect}",
                fix=f"{one.fix}; or add ?allow_loss=true, which writes the file all the same",
            )
            for one in gaps
            if one.field in loss.fields
        )
    )


def _in_words(before: ExportFigures, after: ExportFigures) -> str:
    memory = [in_units(one.device_peak_bytes, BYTES) for one in (before, after)]
    cost = before.tokens_per_s_per_gpu / after.tokens_per_s_per_gpu
    return f"the file's job would take {memory[1]} on the fullest GPU instead of {memory[0]}, and {cost:.3g} x the cost"


def figures_of(question: Question) -> ExportFigures:
    found = estimate(question)
    step, totals = found.step.step_seconds.value, found.totals
    return ExportFigures(
        device_peak_bytes=found.memory.device_peak_bytes.value,
        step_seconds=step,
        tokens_per_s_per_gpu=found.step.tokens_per_s_per_gpu.value,
        cost_usd=None if totals is None or totals.cost_usd is None else totals.cost_usd.value,
    )


def _figures_or_why(question: Question) -> tuple[ExportFigures | None, str | None]:
    try:
        return figures_of(question), None
    except Refused as refused:
        return None, refused.problems[0].message


def read_back(question: CompleteQuestion, target: Target, file: ExportedFile) -> Question:
    """A question as the file's training software takes it: what the file leaves open is as asked."""
    open_fields = {one.field for one in file.not_expressible if one.left_open}
    lost = {one.field for one in file.not_expressible} - open_fields
    derived: dict[str, Any] = {"recipe.global_batch_tokens": None}
    if lost & _DEGREES:
        derived |= {f"layout.{field}": None for field in _FROM_DEGREES}
    values: dict[str, Any] = {}
    reader = file.trains or target.name
    if reader in FORMATS:
        twin = TARGETS[reader]
        written = twin.write(ExportRequest(question=question, version=next(iter(twin.versions))))
        values = values_read(reader, written.content)
        if not any(path.startswith(f"{MODEL}.") for path in lost):
            values.pop(MODEL, None)
        values |= {path: default_of(path) for path in lost - values.keys() if path not in (MODEL, _STACK_NAME, NODE)}
        values = {path: value for path, value in values.items() if path not in open_fields}
    return with_fields(question, {**derived, **values, **file.instead})


def values_read(name: str, content: str) -> dict[str, Any]:
    """Values of fields in a file, by path."""
    draft = FORMATS[name].read(FORMATS[name].entries(content))
    recipe = read_spec(Recipe, {"sequence_length": 1, **draft.recipe}, "recipe")
    software, layout = requested_software(recipe), read_spec(Layout, draft.layout, "layout")
    found = {f"recipe.{field}": getattr(recipe, field) for field in draft.recipe if field != "stack"}
    found |= {f"recipe.stack.{one.name}": getattr(software, one.name) for one in fields(Software)}
    found |= {f"layout.{field}": getattr(layout, field) for field in draft.layout}
    if isinstance(draft.model, Mapping):
        found["model"] = read_spec(Model, draft.model, "model")
    return found


def with_fields(question: Question, values: Mapping[str, Any]) -> Question:
    """A question with other values of fields, by path."""
    for path, value in values.items():
        part, _, field = path.rpartition(".")
        if path == MODEL:
            question = replace(question, model=value)
        elif part == "recipe.stack":
            software = replace(requested_software(question.recipe), **{field: value})
            question = replace(question, recipe=replace(question.recipe, stack=software))
        else:
            question = replace(question, **{part: replace(getattr(question, part), **{field: value})})
    return question


def _restored(read: Question, asked: Question, question: CompleteQuestion, lost: set[str]) -> Question:
    """What is read back, with the lost fields that the caller set, but for the training software."""
    own = values_of(question)
    return with_fields(read, {path: own[path] for path in lost if path != _STACK_NAME and _is_asked(asked, path)})


def _with_losses_alone(read: Question, asked: Question, lost: set[str]) -> Question:
    """The question with the file's values of lost fields under its own training software, which may run that."""
    changed = with_fields(asked, {path: _value_at(read, path) for path in lost if path != MODEL})
    changed = replace(changed, model=read.model)
    return read if _figures_or_why(changed)[0] is None else changed


def _value_at(question: Question, path: str) -> Any:
    part, _, name = path.rpartition(".")
    if part == "recipe.stack":
        return getattr(requested_software(question.recipe), name)
    return getattr(getattr(question, part), name)


def _is_asked(asked: Question, path: str) -> bool:
    """Whether the caller set a field."""
    part, _, name = path.rpartition(".")
    if part == "recipe.stack":
        given = asked.recipe.stack
        return isinstance(given, Software) and getattr(given, name) != default_of(path)
    return part not in _KINDS or getattr(getattr(asked, part), name) != default_of(path)


_KINDS: Mapping[str, type] = {"recipe": Recipe, "layout": Layout, "recipe.stack": Software, "model": Model}


def default_of(path: str) -> Any:
    """The value of a field that a question leaves out; that of the other training software follows from it."""
    part, _, name = path.rpartition(".")
    kind: Any = _KINDS[part]
    return next(one.default for one in fields(kind) if one.name == name)
