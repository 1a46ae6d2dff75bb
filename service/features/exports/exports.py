"""Questions written for a launcher or framework, with what the file cannot express, and files read back."""

import re
from collections.abc import Mapping
from dataclasses import MISSING, fields, replace
from math import prod
from typing import Any

from service.answers.exports import (
    ExplainedSetting,
    Export,
    ExportTarget,
    ExportTargets,
    FormatSettings,
    Imported,
    ImportFormat,
    ImportFormats,
    TargetVersion,
    UnknownSetting,
)
from service.catalogue import Catalogue
from service.errors import NotFound, Problem, Refused
from service.estimator.question import Layout, Model, Recipe
from service.estimator.resolve import resolve
from service.features.exports.losses import effects_of, refuse_large
from service.formats.comments import with_comments
from service.formats.drafts import BY_DIMENSIONS, Draft, Fate, Setting
from service.formats.model_names import preset_like
from service.formats.rules import LARGEST, ExportRequest, Target
from service.formats.sent import sent
from service.formats.targets import FORMATS, TARGETS
from service.formats.text import LONGEST_FILE_BYTES
from service.formats.training import SCRIPT_FORMAT, Job
from service.text_bounds import FIELD
from service.validation.questions import read_question
from service.validation.reading import read_spec, to_bytes


def listed_targets() -> ExportTargets:
    """Tools that a question can be exported to."""
    return ExportTargets(
        items=tuple(
            ExportTarget(
                target=target.name,
                tool=target.tool,
                kind=target.kind,
                versions=tuple(
                    TargetVersion(version=name, covers=one.covers, file_name=one.file_name, media_type=one.media_type)
                    for name, one in target.versions.items()
                ),
                source=target.source,
            )
            for target in TARGETS.values()
        )
    )


def listed_formats() -> ImportFormats:
    """Kinds of files that are read, with the fates of their settings."""
    return ImportFormats(
        items=tuple(
            ImportFormat(
                format=one.name,
                meaning=one.meaning,
                syntax=one.syntax,
                covers=one.covers or one.source,
                source=one.source,
                settings=FormatSettings(
                    understood=len(one.fates.types),
                    without_effect=len(one.fates.without_effect),
                    not_understood=len(one.fates.not_understood),
                ),
            )
            for one in FORMATS.values()
        )
    )


def target_named(name: str) -> Target:
    if name not in TARGETS:
        raise NotFound(f"nothing is written for that; a question can be written for {', '.join(TARGETS)}")
    return TARGETS[name]


def export(
    body: Mapping[str, Any],
    catalogue: Catalogue,
    target: Target,
    version: str,
    command: str | None = None,
    *,
    allow_loss: bool = False,
) -> Export:
    """Write a question as the file of one tool, unless that would change its job and no loss is allowed."""
    if command is not None and target.kind != "launcher":
        message = f"{target.tool} starts no command: its file says how to train"
        raise Refused(Problem(field=COMMAND, code="no_launcher", message=message, fix="leave command out"))
    parsed = read_question(body, catalogue)
    question = resolve(parsed.question).question
    written = target.write(ExportRequest(question=question, version=version, command=command))
    form = target.versions[version]
    effects = effects_of(parsed.question, question, target, written)
    if not allow_loss:
        refuse_large(effects.loss, written.not_expressible)
    return Export(
        target=target.name,
        version=version,
        file_name=form.file_name,
        media_type=form.media_type,
        content=with_comments(written, form.media_type, question),
        not_expressible=written.not_expressible,
        assumptions=(*parsed.assumptions, *written.assumptions),
        warnings=parsed.warnings,
        source=target.source,
        stack_change=effects.stack_change,
        loss=effects.loss,
    )


COMMAND = "command"
"""Field of problems of a given command."""

MOST_LISTED = 200
"""Most settings with one fate that are listed."""
LONGEST_NAME = 80
"""Characters of such a setting's name that are repeated."""


def import_file(
    name: str | None,
    text: str,
    files: Mapping[str, str] | None = None,
    job: Job | None = None,
    *,
    only_named: bool = False,
) -> Imported:
    """The parts of a question that a file sets, of the named kind or of the one that it is recognised as.

    With `only_named`, files beside it that nothing names are left aside.
    """
    if name not in (None, SCRIPT_FORMAT, *FORMATS):
        raise NotFound(f"files of that kind are not read; {', '.join(FORMATS)} are")
    if sum(len(one.encode()) for one in (text, *(files or {}).values())) > LONGEST_FILE_BYTES:
        message = f"the file has more than {LONGEST_FILE_BYTES // 1024} KiB, and none that says how to train is so long"
        raise Refused(Problem(field=FIELD, code="too_long", message=message, fix="send that file alone"))
    found = sent(name, text, files or {}, job, only_named=only_named)
    kind = FORMATS[found.format]
    draft = kind.read(found.entries)
    _refuse_wrong_values(draft)
    _name_preset(draft)
    if (grows := _SEGMENTS.search(text)) and isinstance(stack := draft.recipe.get("stack"), Mapping):
        draft.recipe["stack"] = {**stack, "expandable_segments": grows[1] == "True"}
    unknown = tuple(UnknownSetting(**_placed(one)) for one in draft.of("unknown")[:MOST_LISTED])
    return Imported(
        format=kind.name,
        recognised=found.why,
        model=draft.model,
        recipe=draft.recipe,
        layout=draft.layout,
        unknown=unknown,
        accumulation_steps=draft.accumulation_steps,
        training_steps=draft.training_steps,
        shard_groups=draft.shard_groups,
        understood=tuple(one.entry.name for one in draft.of("understood")[:MOST_LISTED]),
        without_effect=_with_reasons(draft, "without_effect"),
        not_understood=_with_reasons(draft, "not_understood"),
        assumptions=(*found.notes, *draft.assumptions),
        source=kind.source,
    )


_SEGMENTS = re.compile(r"_ALLOC_CONF=\S{0,99}expandable_segments:(True|False)")
"""Setting of torch's allocator in the environment that a script exports."""


def _name_preset(draft: Draft) -> None:
    """Name a model whose dimensions are those of one in the catalogue."""
    needed = {one.name for one in fields(Model) if one.default is MISSING}
    if isinstance(draft.model, Mapping) and needed <= draft.model.keys():
        preset = preset_like(read_spec(Model, draft.model, "model"))
        if preset is not None:
            draft.model = preset
            draft.assumptions.append(f"the model is named {preset}, {BY_DIMENSIONS}")


def _with_reasons(draft: Draft, fate: Fate) -> tuple[ExplainedSetting, ...]:
    return tuple(ExplainedSetting(**_placed(one), why=one.why) for one in draft.of(fate)[:MOST_LISTED])


def _placed(setting: Setting) -> dict[str, Any]:
    entry = setting.entry
    return {"name": entry.name[:LONGEST_NAME], "line": entry.place.line, "column": entry.place.column}


def with_replicas(
    imported: Imported, recipe: Mapping[str, Any], layout: Mapping[str, Any], gpus: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Recipe and layout with what the file counts in replicas, for a number of GPUs; a stated value stays."""
    recipe, layout = dict(recipe), dict(layout)
    ranks = [layout.get(axis) or 1 for axis in ("tensor", "context", "pipeline")]
    counts = [layout.get("data"), *(recipe.get(name) for name in ("micro_batch", "global_batch", "sequence_length"))]
    if not all(_is_count(count) for count in (gpus, *ranks, *filter(None, counts))):
        return recipe, layout
    data, micro, batch, length = counts
    data = data or gpus // prod(ranks)
    accumulated = data * (imported.accumulation_steps or 1)
    if imported.accumulation_steps and "global_batch_tokens" not in recipe:
        if batch is None:
            recipe["global_batch"] = batch = (micro or 1) * accumulated
        elif micro is None and accumulated and batch >= accumulated:
            recipe["micro_batch"] = batch // accumulated
    if imported.training_steps and batch and length:
        recipe.setdefault("training_tokens", float(imported.training_steps * batch * length))
    if imported.shard_groups and data * ranks[1] >= imported.shard_groups:
        layout.setdefault("shard_group", data * ranks[1] // imported.shard_groups)
    return recipe, layout


def _is_count(value: object) -> bool:
    return isinstance(value, int) and 0 < value <= LARGEST


def _refuse_wrong_values(draft: Draft) -> None:
    """Refuse invalid values of a file; missing fields are fine."""
    parts: list[tuple[type, str, Any]] = [(Recipe, "recipe", draft.recipe), (Layout, "layout", draft.layout)]
    parts += [(Model, "model", draft.model)] if isinstance(draft.model, Mapping) else []
    problems: list[Problem] = []
    for spec, path, values in parts:
        needed = {f.name for f in fields(spec) if f.default is MISSING and f.default_factory is MISSING}
        try:
            read_spec(spec, {**dict.fromkeys(needed, 1), **values}, path)
        except Refused as refused:
            problems += refused.problems
    if problems:
        wrong = "the file gives {} a value that it cannot have: {}"
        raise Refused(*(replace(one, field=FIELD, message=wrong.format(one.field, one.message)) for one in problems))


def imported_json(name: str | None, text: str, files: Mapping[str, str]) -> bytes:
    """The imported parts as JSON, for compute processes."""
    return to_bytes(import_file(name, text, files))
