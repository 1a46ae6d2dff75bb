"""Files that are sent together: the one that says how to train, and those that it names or stands under."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from service.errors import Problem, Refused
from service.formats.composed import CONFIG, PROGRAM, overridden
from service.formats.frameworks.accelerate import FILE_OF_DEEPSPEED
from service.formats.frameworks.megatron_core.megatron_yaml import YAML_CFG
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
from service.formats.training import SCRIPT_FORMAT, Job, training_in
from service.text_bounds import FIELD, Place, refusal

FILES = "files"
"""Field of the files beside the first."""

_PATHS = (DEEPSPEED, ACCELERATE, "fsdp_config", FILE_OF_DEEPSPEED, f"{ACCELERATE}.{FILE_OF_DEEPSPEED}", YAML_CFG)
"""Settings that name a file."""

_UNDER = {"deepspeed": DEEPSPEED, "accelerate": ACCELERATE}
"""Settings that files of these formats stand under, where no setting names them."""

PART = ""
"""Format of a file that tells no tool, and counts where a setting names it."""

_ABOVE = ("transformers", "trl", "axolotl", "llama-factory")
"""Formats of tools that DeepSpeed and accelerate stand under."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A file with its format and settings, those of the files beside it included."""

    format: str
    entries: tuple[Entry, ...]
    why: str | None
    """Why it is of the format; None where the format was named."""
    notes: tuple[str, ...] = ()
    """What the reading of a script assumes."""


def sent(
    format: str | None, text: str, files: Mapping[str, str], job: Job | None = None, *, only_named: bool = False
) -> Sent:
    """The settings of files that are sent together; the first one's format is recognised unless it is named.

    With `only_named`, files that nothing names are left aside.
    """
    if _is_script(format, text):
        return _of_script(format, text, files, job, only_named=only_named)
    if only_named:
        files = _named_in(text, files)
    first = _read(format, text, others := _others(files))
    return _together(format, first, others, only_named=only_named)


def _others(files: Mapping[str, str]) -> dict[str, Sent]:
    return {name: _read(None, content, {}, name) for name, content in files.items()}


def _named_in(text: str, files: Mapping[str, str]) -> dict[str, str]:
    """The files whose names stand in a text, or in one of these files."""
    found: dict[str, str] = {}
    texts = [text]
    while texts:
        text = texts.pop()
        named = {name: one for name, one in files.items() if name not in found and name.rpartition("/")[2] in text}
        found |= named
        texts += named.values()
    return found


def _is_script(format: str | None, text: str) -> bool:
    """Whether a text is a command, or a script with one."""
    syntax = "arguments" if format == SCRIPT_FORMAT else FORMATS[format].syntax if format else "any"
    return (syntax_of(text) if syntax == "any" else syntax) == "arguments"


def _of_script(format: str | None, text: str, files: Mapping[str, str], job: Job | None, *, only_named: bool) -> Sent:
    """The settings of the training that a script starts, with those of the files that it names."""
    named = None if format == SCRIPT_FORMAT else format
    try:
        found = training_in(text, job, files, any_program=named is not None)
    except Refused:
        known = recognise_words(text) or (_recognised_otherwise(named, text) if named else None)
        if known is not None and (named is None or known.tool.format != named):
            refuse_unread(known, named)
        raise
    if only_named:
        files = _named_in("\n".join((found.file or "", *found.files, *found.files.values())), files)
    beside = {
        name: one
        for name, one in {**found.files, **files}.items()
        if one not in (found.file, text) and syntax_of(one) not in ("arguments", "python")
    }
    if found.file is not None:
        first = sent(found.format or named, found.file, beside, only_named=only_named)
        first = replace(first, entries=overridden(first.entries, found.entries))
    else:
        others = _others(beside)
        entries = _with_base(found.entries, others)
        first = _with_format(named or found.format, entries, text)
        first = _together(named, first, others, only_named=only_named)
    why = first.why or (None if named else f"the script starts a program of {first.format}")
    return replace(first, entries=found.settled(first.entries), why=why, notes=found.notes)


def _together(format: str | None, first: Sent, others: dict[str, Sent], *, only_named: bool) -> Sent:
    """A file with those beside it."""
    if first.format in _UNDER and format is None:
        above = [name for name, other in others.items() if other.format in _ABOVE]
        if above:
            first, others[f"{first.format} file"] = others.pop(above[0]), first
    return replace(first, entries=_joined(first.entries, others, only_named=only_named))


def _read(format: str | None, text: str, beside: dict[str, Sent], name: str | None = None) -> Sent:
    """One file with its format; a file of another tool is refused by that tool's name.

    Of the files beside it, one that it names as its own is taken out and stands in its place.
    """
    try:
        entries = _with_base(SYNTAXES[FORMATS[format].syntax if format else "any"](text), beside)
    except Refused as refused:
        found = recognise_words(text) or (_recognised_otherwise(format, text) if format else None)
        is_followed = syntax_of(text) == "python" and refused.problems[0].code != "not_read"
        if found is not None and not (is_followed and format in (None, found.tool.format)):
            refuse_unread(found, format)
        raise
    return _with_format(format, entries, text, name)


def refuse_unread(found: Recognised, format: str | None) -> None:
    """Refuse a text by the name of its tool."""
    if format is None:
        raise refusal(found.place, *_unread(found)) from None
    refuse_another(found, format)


def _with_format(format: str | None, entries: tuple[Entry, ...], text: str, name: str | None = None) -> Sent:
    """Settings with their format, which is recognised unless it is named."""
    recognised = recognise(entries)
    if format is not None:
        if recognised is not None:
            refuse_another(recognised, format)
        return Sent(format, _own(format, entries), None)
    recognised = recognised or recognise_words(text)
    if recognised is None and name is not None:
        return Sent(PART, entries, None)
    if recognised is None and entries:
        raise refusal(entries[0].place, *NOT_RECOGNISED)
    if recognised is None:
        raise _not_recognised(FIELD)
    known = format_of(recognised)
    return Sent(known, _own(known, entries), recognised.why)


def _not_recognised(field: str) -> Refused:
    code, message, fix = NOT_RECOGNISED
    return Refused(Problem(field=field, code=code, message=message, fix=fix))


def _own(format: str, entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """The settings without those of a launcher, where the format's reader takes none."""
    if FORMATS[format].takes_launcher:
        return entries
    return tuple(entry for entry in entries if not (entry.name == PROGRAM or entry.name.startswith(f"{ACCELERATE}.")))


def _with_base(entries: tuple[Entry, ...], beside: dict[str, Sent]) -> tuple[Entry, ...]:
    """The settings of the file that a command names, with those of the command in their place."""
    named = next((_base_name(entry) for entry in entries if entry.name == CONFIG), "")
    found = next((one for one in beside if named and one.rpartition("/")[2] == named), None)
    if found is None:
        return entries
    return overridden(beside.pop(found).entries, [entry for entry in entries if entry.name != CONFIG])


def _base_name(entry: Entry) -> str:
    """The last part of the path that a setting holds."""
    return entry.word.rpartition("/")[2] if isinstance(entry.word, str) else ""


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
    message = f"this is a file of {found.tool.title}, in none of the forms that are read: {found.why}"
    return "not_read", message, STATE_IT


def _joined(entries: Sequence[Entry], others: Mapping[str, Sent], *, only_named: bool) -> tuple[Entry, ...]:
    """Settings with those of the files that they name in place of the names, and of those that they stand under."""
    left = dict(others)
    named = {_base_name(entry) for entry in entries}
    found: list[Entry] = []
    for entry in entries:
        base = _base_name(entry) if entry.name in _PATHS else ""
        name = next((one for one in left if one.rpartition("/")[2] == base), None)
        found += _under(entry.name, left.pop(name).entries, entry.place) if name else (entry,)
    for name, other in () if only_named else left.items():
        if other.format == PART and name.rpartition("/")[2] in named:
            continue  # of a setting whose own fate says what is lost
        if other.format == PART:
            raise _not_recognised(f"{FILES}.{name}")
        if other.format not in _UNDER:
            message = f"a file beside the first is of {other.format}, and nothing in the first names it"
            fix = "send DeepSpeed's or accelerate's file beside the script's arguments"
            raise Refused(Problem(field=f"{FILES}.{name}", code="not_named", message=message, fix=fix))
        found += _under(_UNDER[other.format], other.entries, None)
    return tuple(found)


def _under(setting: str, entries: Sequence[Entry], place: Place | None) -> list[Entry]:
    """The settings of a file under another's setting, at the place that names the file."""
    return [replace(one, name=f"{setting}.{one.name}", place=place or one.place) for one in entries]
