"""Settings that a command changes, and settings that name others: OmegaConf's files and command lines.

Source: omegaconf 2.3 (interpolations, dotted overrides); pytorch/torchtune@bd2a0fc config/_utils.py (~ removes a
setting; a section's name stands for its component); jsonargparse 4 (--config, dotted options).
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from service.formats.text import Entry
from service.text_bounds import Place, refusal

CONFIG = "config"
"""Setting with the file that a command names."""

PROGRAM = "program"
"""Setting with the script, module or task that a command starts."""

PROCESSES = "accelerate.num_processes"
"""Setting with the processes that a launcher starts."""

COMPONENT = "_component_"

_OVERRIDE = re.compile(r"(?:\+\+?)?([A-Za-z_][\w.-]*)=(.*)", re.DOTALL)
_REMOVAL = re.compile(r"~([A-Za-z_][\w.-]*)=?\Z")
_FILE = re.compile(r"\S+\.ya?ml\Z")
_NOTHING = ("null", "None", "none", "~", "")
_LIST = re.compile(r"\[(.*)\]\Z", re.DOTALL)
_REFERENCE = re.compile(r"\$\{([\w.]+)\}\Z")

DEEPEST = 8
"""References to references that are followed."""


@dataclass(frozen=True, slots=True)
class Started:
    """A tool's own settings, and what starts it."""

    entries: tuple[Entry, ...]
    program: str = ""
    processes: int | None = None
    """Processes of the launcher; None where they are not known."""


def overrides_in(words: Sequence[tuple[str, Place]]) -> Iterator[Entry]:
    """The file and the settings of a command's words after its program: `--config c.yaml a.b=1 --c.d 2 ~e`.

    >>> here = Place(1, 1)
    >>> found = overrides_in([("c.yaml", here), ("a.b=1", here), ("--c.d", here), ("2", here), ("e=[x, y]", here)])
    >>> [(one.name, one.value) for one in found]
    [('config', ('c.yaml',)), ('a.b', ('1',)), ('c.d', ('2',)), ('e', ('x', 'y'))]
    """
    option: tuple[str, Place] | None = None
    for word, place in words:
        if option is not None and not word.startswith("--"):
            yield _entry(*option, word)
            option = None
            continue
        if option is not None:
            yield Entry(option[0], (), option[1])
        option = None
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            if equals:
                yield _entry(name, place, value)
            else:
                option = name, place
        elif match := _OVERRIDE.match(word):
            yield _entry(match[1], place, match[2])
        elif match := _REMOVAL.match(word):
            yield Entry(match[1], None, place)
        elif _FILE.match(word):
            yield Entry(CONFIG, (word,), place)
    if option is not None:
        yield Entry(option[0], (), option[1])


def _entry(name: str, place: Place, word: str) -> Entry:
    if word in _NOTHING:
        return Entry(name, None, place)
    listed = _LIST.match(word)
    values = tuple(one.strip(" '\"") for one in listed[1].split(",")) if listed else (word,)
    return Entry(name, values, place)


def overridden(base: Sequence[Entry], changes: Sequence[Entry]) -> tuple[Entry, ...]:
    """A file's settings with those of the command in their place; a component's section names it as well."""
    found = {entry.name: entry for entry in base}
    for change in changes:
        component = f"{change.name}.{COMPONENT}"
        name = component if component in found else change.name
        found[name] = replace(change, name=name)
    return tuple(found.values())


def started(entries: Sequence[Entry], shipped: str = "") -> Started:
    """A tool's own settings and what starts it; a file that a command names and that was not sent is refused.

    The file of the tool's defaults, which it ships by that name, is not missed.
    """
    apart = {entry.name: entry for entry in entries if entry.name in (CONFIG, PROGRAM, PROCESSES)}
    if CONFIG in apart and (not shipped or _file_name(apart[CONFIG]) != shipped):
        message = f"{CONFIG} names a file that was not sent, and most settings are in it"
        raise refusal(apart[CONFIG].place, "missing_file", message, "send that file too, under its name in files")
    own = referred(tuple(entry for entry in entries if entry.name not in apart))
    program = str(apart[PROGRAM].value) if PROGRAM in apart else ""
    return Started(own, program, apart[PROCESSES].value if PROCESSES in apart else None)


def _file_name(entry: Entry) -> str:
    return str(entry.word).rpartition("/")[2]


def referred(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Settings with the values of those that they name, as ${a.b} does; a name of none stays as it is.

    >>> here = Place(1, 1)
    >>> [one.value for one in referred((Entry("a", 8, here), Entry("b.c", "${a}", here), Entry("d", "${b.c}", here)))]
    [8, 8, 8]
    """
    values = {entry.name: entry.value for entry in entries}
    found = []
    for entry in entries:
        value = entry.value
        for _ in range(DEEPEST):
            match = _REFERENCE.match(value) if isinstance(value, str) else None
            if match is None or match[1] not in values:
                break
            value = values[match[1]]
        found.append(entry if value is entry.value else replace(entry, value=value))
    return tuple(found)
