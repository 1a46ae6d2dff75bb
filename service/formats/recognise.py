"""The tool that a text belongs to, by settings that stand together in its files alone."""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from service.formats.text import Entry
from service.text_bounds import Place, refusal

FAMILY = "*"
"""Begin or end of a sign's name that stands for any text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool whose files are recognised."""

    name: str
    title: str
    """What it is called."""
    signs: tuple[tuple[str, ...], ...]
    """Settings that stand together in its files alone."""
    words: tuple[str, ...] = ()
    """Texts that tell of it in a file that is none of settings."""
    format: str | None = None
    """The format that reads its files; None where they are not read."""
    like: tuple[str, ...] = ()
    """Formats under which its files may be sent as well."""
    source: str


@dataclass(frozen=True, slots=True)
class Recognised:
    """The tool of a file, and why."""

    tool: Tool
    signs: tuple[str, ...]
    """The settings, or the text, that tell."""
    place: Place

    @property
    def why(self) -> str:
        """The signs in words."""
        return f"{_listed(self.signs)} {'stand' if len(self.signs) > 1 else 'stands'} in files of {self.tool.title}"


def _tools() -> Iterator[Tool]:
    table: dict[str, Any] = tomllib.loads(files("service.formats").joinpath("recognise.toml").read_text("utf-8"))
    for name, row in table.items():
        lists = {key: tuple(value) for key, value in row.items() if isinstance(value, list) and key != "signs"}
        yield Tool(**{**row, **lists, "name": name, "signs": tuple(map(tuple, row["signs"]))})


TOOLS = tuple(_tools())


def recognise(entries: Sequence[Entry]) -> Recognised | None:
    """The tool whose settings these are; None where none is known.

    >>> found = recognise([Entry("base_model", "x", Place(1, 13)), Entry("sequence_len", 8, Place(2, 15))])
    >>> found and (found.tool.name, found.why)
    ('axolotl', 'base_model and sequence_len stand in files of axolotl')
    """
    places = {entry.name: entry.place for entry in entries}
    for tool in TOOLS:
        for sign in tool.signs:
            matches = [_first_like(places, pattern) for pattern in sign]
            if all(matches):
                found = tuple(name for name in matches if name is not None)
                return Recognised(tool, found, places[found[0]])
    return None


def recognise_words(text: str) -> Recognised | None:
    """The tool that a text without settings belongs to, by words such as a program; None where none is known."""
    for tool in TOOLS:
        for word in tool.words:
            if (offset := text.find(word)) >= 0:
                line = text.count("\n", 0, offset) + 1
                return Recognised(tool, (word.strip(),), Place(line, offset - text.rfind("\n", 0, offset)))
    return None


def _first_like(names: Mapping[str, Place], pattern: str) -> str | None:
    """The first name that a pattern stands for."""
    if pattern.startswith(FAMILY):
        return next((name for name in names if name.endswith(pattern[1:])), None)
    if pattern.endswith(FAMILY):
        return next((name for name in names if name.startswith(pattern[:-1])), None)
    return pattern if pattern in names else None


STATE_IT = "state the question itself: model, recipe, layout and cluster"
"""What to do about a file that is not read."""

_YAML = re.compile(r"\s*(?:-{3}\s*)?[\w\"'.-]+\s*:(?:\s|$)")
_TOML = re.compile(r"\s*(?:\[[\w.\"' -]+\]\s*$|[\w.\"'-]+\s*=)")
_ARGUMENTS = re.compile(r"(?:^|\s)--?\w|^(?:[A-Z][A-Z_]{0,30}=[\w./-]{1,80} ){1,9}\S")
_SCRIPT = re.compile(r"\A#!|^#SBATCH |\A(?:#[^\n]*\n|\s)*+[A-Za-z_]\w*=[^\s=]", re.MULTILINE)
"""Begin of a shell script: what runs it, an option for Slurm, or a variable that is set without blanks."""

_PYTHON = re.compile(
    r"\A(?:#[^\n]*\n|\s)*+(?:from [\w.]+ import |import [\w.]+|def \w|class \w|@\w|\"{3}|'{3}|\w+(?:: \w+)? = [\w.]+\()"
)
"""Begin of a program in Python."""

_OF_SHELL = re.compile(r"\A#!(?!.*python)")

_SECTION = re.compile(r"^\[[\w.\"' -]+\][ \t]*$", re.MULTILINE)

_LONGEST_START = 4096
"""Characters of a line that are read to find a text's syntax."""


def syntax_of(text: str) -> str:
    r"""The syntax of a file: json, yaml, toml, python or arguments, by its first line that is no comment.

    >>> [syntax_of(text) for text in ('{"a": 1}', "# x\na: 1", "[a]\nb = 1", "train.py --a 1", "import a")]
    ['json', 'yaml', 'toml', 'arguments', 'python']
    """
    if _PYTHON.match(text) and not _OF_SHELL.match(text):
        return "python"
    if _SCRIPT.search(text) and not _SECTION.search(text):
        return "arguments"
    lines = (line[:_LONGEST_START] for line in text.split("\n"))
    first = next((line for line in lines if not line.lstrip().startswith("#") and line.strip() not in ("", "---")), "")
    if first.lstrip().startswith("{"):
        return "json"
    if _TOML.match(first) and not _ARGUMENTS.search(first):
        return "toml"
    return "yaml" if _YAML.match(first) else "arguments"


def refuse_another(found: Recognised, format: str) -> None:
    """Refuse a file of another tool than the format's, by that tool's name."""
    if format in (found.tool.format, *found.tool.like):
        return
    raise refusal(found.place, "another_format", f"this is a file of {found.tool.title}: {found.why}", _fix(found.tool))


def format_of(found: Recognised) -> str:
    """The format that reads a recognised file; a tool whose files are not read is refused by name."""
    if found.tool.format is None:
        message = f"this is a file of {found.tool.title}, whose files are not read: {found.why}"
        raise refusal(found.place, "not_read", message, _fix(found.tool))
    return found.tool.format


def _fix(tool: Tool) -> str:
    return f"send it as {tool.format}" if tool.format else STATE_IT


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


NOT_RECOGNISED = (
    "not_recognised",
    "the file holds no settings that tell which tool's it is",
    f"name its format in the path, such as /v1/imports/{TOOLS[-1].name}",
)
