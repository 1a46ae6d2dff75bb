"""Files that are sent together: the one that says how to train, and those that it names or stands under."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from service.errors import Problem, Refused
from service.formats.composed import CONFIG, PROGRAM, overridden
from service.formats.frameworks.megatron_yaml import YAML_CFG
from service.formats.frameworks.trainer import ACCELERATE, DEEPSPEED
from service.formats.recognise import (
    NOT_RECOGNISED,
    STATE_IT,
    Recognised,
    format_of,
    recognise,
    recognise_words,
    refuse_another,
    syntax_of,
)
from service.formats.targets import FORMATS, SYNTAXES
from service.formats.text import Entry
from service.text_bounds import FIELD, Place, refusal

FILES = "files"
"""Field of the files beside the first."""

_PATHS = (DEEPSPEED, ACCELERATE, "fsdp_config", "deepspeed_config.deepspeed_config_file", YAML_CFG)
"""Settings that name a file."""

_UNDER = {"deepspeed": DEEPSPEED, "accelerate": ACCELERATE}
"""Settings that files of these formats stand under, where no setting names them."""

_ABOVE = ("transformers", "trl", "axolotl", "llama-factory")
"""Formats of tools that DeepSpeed and accelerate stand under."""

_STARTED = (*_ABOVE, "torchtune", "torchtitan-module", "maxtext", "litgpt", "lightning", "llm-foundry")
"""Formats whose readers take what starts the tool."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A file with its format and settings, those of the files beside it included."""

    format: str
    entries: tuple[Entry, ...]
    why: str | None
    """Why it is of the format; None where the format was named."""


def sent(format: str | None, text: str, files: Mapping[str, str]) -> Sent:
    """The settings of files that are sent together; the first one's format is recognised unless it is named."""
    others = {name: _read(None, content, {}, name) for name, content in files.items()}
    first = _read(format, text, others)
    if first.format in _UNDER and format is None:
        above = [name for name, other in others.items() if other.format in _ABOVE]
        if above:
            first, others[f"{first.format} file"] = others.pop(above[0]), first
    return Sent(first.format, _joined(first.entries, others), first.why)


def _read(format: str | None, text: str, beside: dict[str, Sent], name: str | None = None) -> Sent:
    """One file with its format; a file of another tool is refused by that tool's name.

    Of the files beside it, one that it names as its own is taken out and stands in its place.
    """
    try:
        entries = _with_base(SYNTAXES[FORMATS[format].syntax if format else "any"](text), beside)
    except Refused:
        found = recognise_words(text) or (_recognised_otherwise(format, text) if format else None)
        if found is not None and format is None:
            raise refusal(found.place, *_unread(found)) from None
        if found is not None and format is not None:
            refuse_another(found, format)
        raise
    recognised = recognise(entries)
    if format is not None:
        if recognised is not None:
            refuse_another(recognised, format)
        return Sent(format, entries, None)
    recognised = recognised or recognise_words(text)
    if recognised is None:
        code, message, fix = NOT_RECOGNISED
        where = f"{FILES}.{name}" if name else FIELD
        raise Refused(Problem(field=where, code=code, message=message, fix=fix))
    known = format_of(recognised)
    if known not in _STARTED:  # others read no launcher's options
        entries = tuple(entry for entry in entries if not entry.name.startswith((PROGRAM, f"{ACCELERATE}.")))
    return Sent(known, entries, recognised.why)


def _with_base(entries: tuple[Entry, ...], beside: dict[str, Sent]) -> tuple[Entry, ...]:
    """The settings of the file that a command names, with those of the command in their place."""
    named = next((_base_name(entry) for entry in entries if entry.name == CONFIG), "")
    found = next((one for one in beside if named and one.rpartition("/")[2] == named), None)
    if found is None:
        return entries
    return overridden(beside.pop(found).entries, [entry for entry in entries if entry.name != CONFIG])


def _base_name(entry: Entry) -> str:
    """The last part of the path that a setting holds."""
    path = entry.value[0] if isinstance(entry.value, tuple) and len(entry.value) == 1 else entry.value
    return path.rpartition("/")[2] if isinstance(path, str) else ""


def _recognised_otherwise(format: str, text: str) -> Recognised | None:
    """The tool of a text that is in another syntax than the format's."""
    syntax = syntax_of(text)
    if syntax == FORMATS[format].syntax:
        return None
    try:
        return recognise(SYNTAXES[syntax](text))
    except Refused:
        return None


def _unread(found: Recognised) -> tuple[str, str, str]:
    message = f"this is a file of {found.tool.title}, and its syntax is none that is read: {found.why}"
    return "not_read", message, STATE_IT


def _joined(entries: Sequence[Entry], others: Mapping[str, Sent]) -> tuple[Entry, ...]:
    """Settings with those of the files that they name in place of the names, and of those that they stand under."""
    left = dict(others)
    found: list[Entry] = []
    for entry in entries:
        base = _base_name(entry) if entry.name in _PATHS else ""
        name = next((one for one in left if one.rpartition("/")[2] == base), None)
        found += _under(entry.name, left.pop(name).entries, entry.place) if name else (entry,)
    for name, other in left.items():
        if other.format not in _UNDER:
            message = f"a file beside the first is of {other.format}, and nothing in the first names it"
            fix = "send DeepSpeed's or accelerate's file beside the script's arguments"
            raise Refused(Problem(field=f"{FILES}.{name}", code="not_named", message=message, fix=fix))
        found += _under(_UNDER[other.format], other.entries, None)
    return tuple(found)


def _under(setting: str, entries: Sequence[Entry], place: Place | None) -> list[Entry]:
    """The settings of a file under another's setting, at the place that names the file."""
    return [replace(one, name=f"{setting}.{one.name}", place=place or one.place) for one in entries]
