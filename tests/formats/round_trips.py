"""Questions written for every target and read back, with what comes back otherwise than it was asked."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from service.answers.exports import Imported
from service.catalogue import shipped_catalogue
from service.errors import Refused
from service.estimator.complete import CompleteQuestion
from service.estimator.question import Layout, Model, Question, Recipe, Software
from service.estimator.resolve import resolve
from service.estimator.software.stacks import requested_software
from service.estimator.spelling import in_one_spelling
from service.features.checks.schemas import read_launch
from service.features.exports.exports import import_file, with_replicas
from service.features.exports.losses import with_fields
from service.formats.comments import with_comments
from service.formats.rules import MODEL, ExportRequest
from service.formats.targets import FORMATS, TARGETS
from service.validation.reading import read_spec
from tests.formats.launchers.test_launchers import SCRIPTS
from tests.formats.tools import STACKS_OF, asked

DELTA_NET = tuple(
    f"model.linear_{name}" for name in ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim")
)

FOLLOWS = {
    "recipe.stages": ("model.max_position_embeddings",),
    "model.layer_types": ("model.sliding_window", "model.conv_kernel", *DELTA_NET),
    "model.mlp_layer_types": ("model.intermediate_size",),
    "recipe.optimizer": ("recipe.stack.decoupled_gradients",),
    "recipe.recompute": ("layout.offload",),
    "recipe.precision": ("recipe.gradient_dtype", "recipe.moment_dtype", "recipe.master_dtype"),
    "layout.zero_stage": ("layout.shard_group", "layout.reshard_after_forward", "layout.offload"),
    "layout.shard_group": ("layout.reshard_after_forward",),
}
"""Fields that follow from others: where a file lists those, these come back otherwise."""


@dataclass(frozen=True, slots=True)
class Trip:
    """A question that was written and read back."""

    target: str
    unlisted: Mapping[str, Any]
    """Fields that came back otherwise and that the file does not list, as asked and as read."""
    listed: tuple[str, ...] = ()
    """Fields that the file lists, and that came back otherwise or not at all."""


def read_content(name: str, content: str) -> Any:
    """What our importer makes of a target's file."""
    if name in FORMATS:
        return import_file(name, content)
    return read_launch({"format": "script", "content": SCRIPTS[name](content)})


def trip_of(name: str, question: CompleteQuestion) -> Trip:
    """Write a question for a target, read the file, and compare all that the file does not list."""
    target = TARGETS[name]
    version, form = next(iter(target.versions.items()))
    written = target.write(ExportRequest(question=question, version=version))
    listed = tuple(sorted({one.field for one in written.not_expressible}))
    if any(path in ("recipe", "layout") for path in listed):  # it is in another file, or in a command
        return Trip(name, {}, listed)
    read = _read(question, read_content(name, with_comments(written, form.media_type, question)))
    own = _flat(question) | {MODEL: question.model}
    reasons = {*listed, *(path for one in listed for path in FOLLOWS.get(one, ()))}
    wanted = _flat(in_one_spelling(question))
    try:
        got = _flat(in_one_spelling(resolve(with_fields(read, {path: own[path] for path in reasons})).question))
    except Refused:  # with what the file has in place of other fields, some of those are illegal
        got = _flat(in_one_spelling(resolve(read).question))
    differing = {path: (wanted[path], got[path]) for path in wanted.keys() - reasons if wanted[path] != got[path]}
    return Trip(name, differing, listed)


def _read(question: CompleteQuestion, imported: Imported) -> Question:
    """What was read as a question on the same cluster; the model is as asked where the file names none."""
    recipe, layout = with_replicas(imported, imported.recipe, imported.layout, question.cluster.gpus)
    model = question.model
    if isinstance(imported.model, str):
        model = shipped_catalogue().find_model(imported.model).row.model or model
    elif imported.model is not None:
        model = read_spec(Model, imported.model, "model")
    length = {"sequence_length": question.recipe.sequence_length}
    return Question(
        model=model,
        recipe=read_spec(Recipe, {**length, **recipe}, "recipe"),
        layout=read_spec(Layout, layout, "layout"),
        cluster=question.cluster,
        gpu=question.gpu,
        price=question.price,
    )


def _flat(question: CompleteQuestion) -> dict[str, Any]:
    """Every field of the parts that a file may hold."""
    stack = question.recipe.stack
    software = stack if isinstance(stack, Software) else requested_software(question.recipe)
    parts: dict[str, Any] = {
        "model": question.model,
        "recipe": question.recipe,
        "layout": question.layout,
        "recipe.stack": software,
    }
    return {
        f"{part}.{one.name}": getattr(values, one.name)
        for part, values in parts.items()
        for one in fields(values)
        if (part, one.name) != ("recipe", "stack")
    }


def trips(name: str, most: int | None = None) -> list[Trip]:
    """Random questions of the software that a tool runs, written and read back."""
    questions = asked(STACKS_OF[name]) if name in STACKS_OF else asked()
    return [trip_of(name, one) for one in questions[:most]]
