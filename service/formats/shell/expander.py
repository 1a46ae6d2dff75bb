"""What a shell script starts: its commands with their words, and the files that it writes, without running anything."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any

from service.errors import Refused
from service.formats.shell import syntax
from service.formats.shell.arithmetic import calculated
from service.formats.shell.conditions import Condition, Decided, negated
from service.formats.shell.syntax import Raw
from service.formats.shell.values import (
    FIRST_HELD,
    HELD,
    MOST_HELD,
    Text,
    Value,
    between,
    joined,
    made,
    matches,
    tokens,
    whole,
)
from service.formats.text import Unknown
from service.text_bounds import Bound, Lines, refusal

MOST_STEPS = 20_000
"""Commands and words that are looked at, those of loops and functions each time."""
MOST_CHARACTERS = 1 << 23
"""Characters of all values that are made."""
MOST_ROUNDS = 64
"""Rounds of a loop that are followed."""
DEEPEST = 64
"""Nesting of commands, functions and texts that are scripts themselves."""

_TOO_LONG: Bound = (
    "too_long", f"following the script takes more than {MOST_STEPS} steps", "send the part that starts training"
)  # fmt: skip
_TOO_DEEP: Bound = ("too_deep", f"commands nest deeper than {DEEPEST}", "send the part that starts training")
_HELD_SIGN: Bound = ("not_text", "the text holds a character for private use", "remove that character")

UNSET = "which the script does not set"
_ARGUMENT = "which is an argument of the script"
_NOT_RUN = "which is a command, and no command is run"
_SOURCED = "which the file that is read before may set"
_BRANCHES = "which depends on a condition that is not known"
_LOOPS = "which a loop sets"
_TAKES = re.compile(r"(?:(?!\bdo\b)[^\n]){0,200}?(?:\$\{?[1#@*]|\(\([ ]*[#]|\bgetopts\b)")
"""The begin of a loop that asks for arguments before each round."""
_READ = "which is read as the script runs"
_NOT_FILLED_IN = "which stands where a value is to be filled in"
_FORM = "whose form of expansion is not followed"

_PLACEHOLDER = re.compile(r"<[A-Za-z][^<>\n|;&]{0,200}(?<![ \t])>")

_OF_JOBS = re.compile(
    r"(?:SLURM|PBS|LSB|SGE|PMI|PMIX|OMPI|MPI|FLUX|COBALT|SKYPILOT|KUBERNETES|RAY|MASTER|JOB|NODE|LOCAL)_\w+"
    r"|(?:LOCAL_|NODE_|GROUP_)?RANK|(?:LOCAL_)?WORLD_SIZE|HOSTNAME|HOME|USER|PATH|PWD|OLDPWD|TMPDIR|RANDOM|SHELL|HOST"
)
"""Variables that a scheduler or a login sets, so that they are no more unset than known."""

_ADDRESSES = re.compile(r"(?:MASTER|NODE|LOCAL|JOB)_\w+|NODE_RANK")

_HARMLESS = re.compile(
    r"(?:.*/)?(?:activate|conda\.sh|mamba\.sh|\.?bashrc|\.?bash_profile|\.?profile|profile\.d/.*|modules?\.sh|bash|init\.sh|setvars\.sh|.*/bin/activate|.*venv.*|\.env)"
)
"""Files that set up programs, not training."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command that the script may start."""

    words: tuple[Text, ...]
    certain: bool
    """Whether no condition that is not known decides on it."""


@dataclass(slots=True)
class Script:
    """What a script starts and writes."""

    lines: Lines
    commands: list[Command] = field(default_factory=list)
    files: dict[str, Text] = field(default_factory=dict)
    """Files that it writes, by their paths as they are spelled."""
    absent: list[Text] = field(default_factory=list)
    """Scripts that it starts and does not write."""
    sourced: list[Text] = field(default_factory=list)
    """Files whose commands it follows as its own and does not write, but for those that set up programs."""
    unset: dict[str, None] = field(default_factory=dict)
    """Variables that were taken to be unset."""
    unknown: list[Unknown] = field(default_factory=list)
    """Unknown values, by the character that stands for each."""
    choices: dict[int, tuple[tuple[Text, ...], ...]] = field(default_factory=dict)
    """The words that an unknown value may be, by the same."""

    def unknown_in(self, plain: str) -> Unknown | None:
        """The first unknown value that a text depends on."""
        found = HELD.search(plain)
        return self.unknown[ord(found[0]) - FIRST_HELD] if found else None

    def spelled(self, plain: str) -> str:
        """A text with names in place of unknown values."""
        return HELD.sub(lambda found: self.unknown[ord(found[0]) - FIRST_HELD].name, plain)

    def file(self, plain: str) -> Text | None:
        """The file at a path, or one of the same name where its folder is another."""
        path = self.spelled(plain)
        alike = (text for name, text in self.files.items() if name.rpartition("/")[2] == path.rpartition("/")[2])
        return self.files.get(path) or next(alike, None)

    def choices_of(self, plain: str) -> tuple[tuple[Text, ...], ...]:
        """The words that may stand in place of a word; none where they are not known."""
        return self.choices.get(ord(plain) - FIRST_HELD, ()) if len(plain) == 1 and HELD.match(plain) else ()


def expanded(
    script: str,
    variables: Mapping[str, str],
    arguments: Sequence[str] | None,
    files: Mapping[str, str] = MappingProxyType({}),
) -> Script:
    """Follow a script with the variables, arguments and files that are known; arguments that are not are None."""
    shell = _Shell(script)
    shell.script.files.update((name, made(text, 0)) for name, text in files.items())
    for name, value in variables.items():
        shell.put(name, made(value, 0))
    if arguments is not None:
        shell.put("@", tuple(made(word, 0) for word in arguments))
    shell.follow(whole(script))
    return shell.script


@dataclass(slots=True)
class _Fields:
    """Words that a word becomes."""

    done: list[Text] = field(default_factory=list)
    parts: list[Text] = field(default_factory=list)
    quoted: bool = False
    """Whether the word stands even where it is empty."""

    def close(self) -> None:
        if self.parts or self.quoted:
            self.done.append(joined(self.parts or [Text("")]))
        self.parts, self.quoted = [], False


_PLAIN = (re.compile(r"[^\\'\"`$]+"), re.compile(r"[^\\\"`$]+"), re.compile(r"[^\\`$]+"))
_BARE, _QUOTED, _DOCUMENT = range(3)
_ESCAPED = ("", '$`"\\', "$`\\")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-]")
_PARAMETER = re.compile(r"([!#]?)([A-Za-z_][A-Za-z0-9_]*|[0-9]{1,9}|[@*#?$!-])(?:\[([^\[\]]*)\])?")
_BRACED = re.compile(r"\{[^{}\s]*(?:,|\.\.)[^{}\s]*\}")
_DEFAULT = re.compile(r":?[-=+?]")
_DIGITS = re.compile(r"-?[0-9]{1,18}")
_BLANK = re.compile(r"[ \t\n]")
_ANSI = re.compile(r"\\(.)", re.DOTALL)
_WITH_COMMAND = re.compile(r"-[a-zA-Z]*c")
_SHELLS = frozenset({"bash", "sh", "zsh", "dash", "ksh"})

_SUCCEEDS = frozenset(
    ["cd", "mkdir", "module", "ml", "conda", "mamba", "pip", "pip3", "sleep", "wait", "trap", "chmod", "rm", "ls",
     "date", "pwd", "pushd", "popd", "hostname", "nvidia-smi", "ulimit", "umask", "set", "env", "printenv", "git",
     "spack", "which", "shopt", "cp", "ln", "touch", "export"]
)  # fmt: skip


class _Source:
    """A text that is a script, and the words in it."""

    def __init__(self, text: Text, refuse: Callable[[int, Bound], Refused]) -> None:
        self.text = text
        self.refuse = lambda at, bound: refuse(text.source(at), bound)
        self.words = syntax.Words(text.plain, self.refuse)


class _Shell:
    def __init__(self, script: str) -> None:
        lines = Lines(script)
        self.script = Script(lines)
        self._refuse: Callable[[int, Bound], Refused] = lambda at, bound: refusal(lines.place(at), *bound)
        if found := HELD.search(script):
            raise self._refuse(found.start(), _HELD_SIGN)
        self._variables: dict[str, Value] = {}
        self._journals: list[dict[str, Value | None]] = []
        self._functions: dict[str, tuple[_Source, syntax.Nodes]] = {}
        self._held: dict[object, int] = {}
        self._source = _Source(Text(""), self._refuse)
        self._flow = ""
        self._input: Text | None = None
        self._output: Text | None = None
        self._steps = self._characters = self._depth = self._doubts = self._suppositions = 0
        self._sourced = False

    # values

    def put(self, name: str, value: Value | None) -> None:
        """Set a variable, or unset it."""
        if self._journals:
            self._journals[-1].setdefault(name, self._variables.get(name))
        if value is None:
            self._variables.pop(name, None)
        else:
            self._variables[name] = value

    def _spend(self, characters: int, at: int) -> None:
        self._characters += characters
        self._steps += 1
        if self._steps > MOST_STEPS or self._characters > MOST_CHARACTERS:
            raise self._refuse(at, _TOO_LONG)

    def _unknown(
        self, name: str, why: str, at: int, choices: tuple[tuple[Text, ...], ...] = (), *, many: bool = False
    ) -> Text:
        """A text for a value that is not known; `many` for one that may be several words."""
        key = (name, why, at, many, tuple(tuple(one.plain for one in words) for words in choices))
        return self._hold(key, Unknown(name, why, self.script.lines.place(at), many=many), choices, at)

    def _hold(self, key: object, unknown: Unknown, choices: tuple[tuple[Text, ...], ...], at: int) -> Text:
        number = self._held.setdefault(key, len(self.script.unknown))
        if number == len(self.script.unknown):
            if number >= MOST_HELD:
                raise self._refuse(at, _TOO_LONG)
            self.script.unknown.append(unknown)
            if choices:
                self.script.choices[number] = choices
        return made(chr(FIRST_HELD + number), at)

    def _many(self, text: Text) -> Text:
        """A word outside quotes: what is unknown in it may be several words."""
        if not HELD.search(text.plain):
            return text
        parts: list[Text] = []
        at = 0
        for found in HELD.finditer(text.plain):
            number = ord(found[0]) - FIRST_HELD
            one = self.script.unknown[number]
            if one.why == _NOT_FILLED_IN:
                continue
            choices = tuple(
                tuple(word for text in words for word in tokens(text) if word is not None)
                for words in self.script.choices.get(number, ())
            )
            place = text.source(found.start())
            parts += [text.cut(at, found.start()), self._hold(number, replace(one, many=True), choices, place)]
            at = found.end()
        return joined([*parts, text.cut(at, len(text.plain))])

    def _is_unset(self, plain: str) -> bool:
        """Whether a word is the value of a variable that the script tests for one, and that nothing sets."""
        found = self.script.unknown_in(plain) if len(plain) == 1 else None
        if found is None or found.why not in (UNSET, _ARGUMENT) or self._is_of_job(found.name.lstrip("$")):
            return False
        self.script.unset[found.name.lstrip("$")] = None
        self._suppositions += 1
        return True

    def _is_of_job(self, name: str) -> bool:
        return self._sourced or (bool(_OF_JOBS.fullmatch(name)) and not _ADDRESSES.fullmatch(name))

    # words

    def _fields(self, raw: Raw, *, split: bool = True) -> list[Text]:
        """The words that a word becomes."""
        source, out = self._source, _Fields()
        at = source.text.source(raw.start)
        self._spend(raw.end - raw.start, at)
        plain = source.text.plain
        if split and plain[raw.start : raw.start + 2] in ("<(", ">("):
            return [self._unknown(plain[raw.start : raw.start + 2] + "...)", _NOT_RUN, at)]
        self._scan(raw.start, raw.end, out, _BARE, split=split)
        out.close()
        is_plain = split and [one.plain for one in out.done] == [plain[raw.start : raw.end]]
        if is_plain and _BRACED.search(out.done[0].plain):
            return [self._unknown(out.done[0].plain[:40], _FORM, at, many=True)]
        return out.done

    def _one(self, raw: Raw) -> Text:
        """The text that a word becomes where nothing is split."""
        return between(self._fields(raw, split=False), " ")

    def _part(self, start: int, end: int, mode: int) -> Text:
        out = _Fields()
        self._scan(start, end, out, mode, split=False)
        out.close()
        return between(out.done, " ")

    def _scan(self, at: int, end: int, out: _Fields, mode: int, *, split: bool) -> None:
        source, plain = self._source.text, self._source.text.plain
        self._depth += 1
        if self._depth > DEEPEST:
            raise self._refuse(source.source(at), _TOO_DEEP)
        while at < end:
            if run := _PLAIN[mode].match(plain, at, end):
                part = source.cut(at, run.end())
                if split and mode == _BARE and _BLANK.search(part.plain):  # in what stands for a variable
                    self._add(part, out, mode, split=True)
                else:
                    out.parts.append(part)
                at = run.end()
            elif plain[at] == "$":
                at = self._dollar(at, end, out, mode, split=split)
            else:
                at = self._sign(at, end, out, mode)
        self._depth -= 1

    def _sign(self, at: int, end: int, out: _Fields, mode: int) -> int:
        """The offset after a quote, a backslash or a command between backquotes."""
        source, plain = self._source.text, self._source.text.plain
        if plain[at] == "\\":
            after = plain[at + 1 : at + 2]
            if after not in ("\n", "\r"):
                start = at + 1 if mode == _BARE or after in _ESCAPED[mode] else at
                out.parts.append(source.cut(start, min(at + 2, end)))
            return at + 2
        if plain[at] == "'":
            close = plain.find("'", at + 1)
            out.parts.append(source.cut(at + 1, close))
            out.quoted = True
            return close + 1
        close = self._source.words.end(at + 1, plain[at])
        if plain[at] == "`":
            out.parts.append(self._unknown("`...`", _NOT_RUN, source.source(at), many=mode == _BARE))
            return close
        before = len(out.parts) + len(out.done)
        self._scan(at + 1, close - 1, out, _QUOTED, split=False)
        inner = plain[at + 1 : close - 1]
        out.quoted = (
            out.quoted
            or before != len(out.parts) + len(out.done)
            or not inner.endswith(("[@]}", "$@", "${@}", '[@]}"}'))
        )
        return close

    def _dollar(self, at: int, end: int, out: _Fields, mode: int, *, split: bool) -> int:
        """The offset after an expansion."""
        source, plain = self._source.text, self._source.text.plain
        after = plain[at + 1 : at + 2]
        place = source.source(at)
        if after == "(":
            close = self._source.words.end(at + 2, ")")
            if plain.startswith("((", at + 1) and plain.startswith("))", close - 2):
                self._add(self._calculated(at + 3, close - 2, place), out, mode, split=split)
            else:
                self._add(self._substituted(at + 2, close - 1, place), out, mode, split=split)
            return close
        if after == "{":
            close = self._source.words.end(at + 2, '"}' if mode else "}")
            keeps = split or mode == _QUOTED  # words of what stands for a variable stay words
            if keeps and (default := self._default_of(at + 2, close - 1, place)) is not None:
                self._scan(default.start, default.end, out, mode, split=split)
            else:
                self._add(self._parameter(at + 2, close - 1, place, mode), out, mode, split=split)
            return close
        if mode == _BARE and after == "'":
            close = self._source.words.end(at) if at + 2 > end else self._ansi_end(at)
            escapes = {"n": "\n", "t": "\t"}
            inner = _ANSI.sub(lambda found: escapes.get(found[1], found[1]), plain[at + 2 : close - 1])
            out.parts.append(made(inner, place))
            return close
        if found := _NAME.match(plain, at + 1, end):
            value = self._variable(found[0], place)
            self._add(_as_one(value) if found[0] == "*" and mode else value, out, mode, split=split)
            return found.end()
        if not (mode == _BARE and after == '"'):
            out.parts.append(source.cut(at, at + 1))
        return at + 1

    def _ansi_end(self, at: int) -> int:
        plain, at = self._source.text.plain, at + 2
        while at < len(plain) and plain[at] != "'":
            at += 2 if plain[at] == "\\" else 1
        return min(at + 1, len(plain))

    def _add(self, value: Value, out: _Fields, mode: int, *, split: bool) -> None:
        """Add a value to a word, which it may end and begin anew."""
        parts = value if isinstance(value, tuple) else (value,)
        self._spend(sum(len(part.plain) + len(part.marks) for part in parts), 0)
        for number, part in enumerate(parts):
            if number:
                out.close()
                out.quoted = mode != _BARE
            if mode != _BARE or not split:
                out.parts.append(part)
                continue
            for token in tokens(part):
                if token is None:
                    out.close()
                else:
                    out.parts.append(self._many(token))

    def _variable(self, name: str, at: int) -> Value:
        """The value of a variable."""
        if name in "@*":
            return self._arguments()
        value = self._set_value(name, at)
        if value is None:
            argument = name.isdigit()
            return self._unknown(f"${name}", _ARGUMENT if argument else UNSET, at)
        if isinstance(value, tuple):
            return value[0] if value else made("", at)
        return made(value.plain, at) if len(value.plain) == 1 and HELD.match(value.plain) else value

    def _arguments(self) -> tuple[Text, ...]:
        value = self._variables.get("@")
        if value is None:
            self.script.unset["@"] = None
        return value if isinstance(value, tuple) else ()

    def _set_value(self, name: str, at: int) -> Value | None:
        """The value of a variable; None for one that is not set."""
        arguments = self._variables.get("@")
        if name.isdigit() and name != "0":
            if not isinstance(arguments, tuple):
                return None
            place = int(name) - 1
            return arguments[place] if place < len(arguments) else None if self._open(arguments) else made("", at)
        if name == "#":
            if not isinstance(arguments, tuple) or self._open(arguments):
                return self._unknown("$#", _ARGUMENT, at)
            return made(str(len(arguments)), at)
        if name in "?$!-0":
            return self._unknown(f"${name}", _NOT_RUN, at)
        return self._variables.get(name)

    def _open(self, words: Sequence[Text]) -> bool:
        """Whether the number of words is not known."""
        return any(one.many for word in words if (one := self.script.unknown_in(word.plain)))

    def _parameter(self, start: int, end: int, at: int, mode: int) -> Value:
        """The value of what stands between braces."""
        plain = self._source.text.plain
        found = _PARAMETER.match(plain, start, end)
        if found is None:
            return self._unknown("${...}", _FORM, at)
        sign, name, subscript = found[1], found[2], found[3]
        rest = plain[found.end() : end]
        if sign == "!" or rest.startswith("@"):
            return self._unknown(f"${{{plain[start:end][:60]}}}", _FORM, at)
        value = self._subscripted(name, subscript, at)
        if sign == "#":
            return self._length(value, subscript, name, at)
        if not rest:
            found_value = self._unset_as_unknown(value, name, at, is_array=subscript in ("@", "*"))
            return _as_one(found_value) if mode and "*" in (name, subscript) else found_value
        if operator := _DEFAULT.match(rest):
            return self._defaulted(value, name, operator[0], Raw(found.end() + operator.end(), end), at, mode)
        return self._changed(value, name, Raw(found.end(), end), at)

    def _unset_as_unknown(self, value: Value | None, name: str, at: int, *, is_array: bool = False) -> Value:
        """A value, or an unknown one in place of none; no environment holds an array, so that is empty."""
        if value is None and is_array:
            return (self._unknown(f"${{{name}[@]}}", _SOURCED, at, many=True),) if self._sourced else ()
        return self._variable(name, at) if value is None else value

    def _subscripted(self, name: str, subscript: str | None, at: int) -> Value | None:
        if name in "@*":
            return self._arguments()
        value = self._set_value(name, at)
        if subscript is None:
            return (value[0] if value else None) if isinstance(value, tuple) else value
        if subscript in ("@", "*"):
            return value if value is None or isinstance(value, tuple) else (value,)
        items = value if isinstance(value, tuple) else () if value is None else (value,)
        place = calculated(subscript.lstrip("$").strip("{}"), self._number_text)
        if value is None or place is None or self._open(items[: place + 1]):
            return self._unknown(f"${{{name}[{subscript[:40]}]}}", UNSET if value is None else _FORM, at)
        return items[place] if -len(items) <= place < len(items) else made("", at)

    def _length(self, value: Value | None, subscript: str | None, name: str, at: int) -> Value:
        parts = (value,) if isinstance(value, Text) else value or ()
        if value is None or any(HELD.search(part.plain) for part in parts):
            return self._unknown(f"${{#{name}}}", UNSET if value is None else _FORM, at)
        return made(str(len(parts) if subscript in ("@", "*") else len(parts[0].plain) if parts else 0), at)

    def _defaulted(self, value: Value | None, name: str, operator: str, default: Raw, at: int, mode: int) -> Value:
        """A variable, or what stands for one that is not set."""
        is_unset = not value or (isinstance(value, Text) and self._is_unset(value.plain))
        if is_unset and self._is_of_job(name):
            return self._unknown(f"${name}", _SOURCED if self._sourced else UNSET, at)
        empty = ":" in operator and value is not None and not is_unset and self._is_empty(value)
        if empty is None and operator[-1] != "?":
            return self._unknown(f"${name}", _FORM, at)
        if is_unset:
            self.script.unset[name] = None
        if operator[-1] == "+":
            return made("", at) if is_unset or empty else self._part(default.start, default.end, mode)
        if not (is_unset or empty) or operator[-1] == "?":
            return self._unset_as_unknown(value, name, at)
        found = self._part(default.start, default.end, mode)
        if operator[-1] == "=":
            self.put(name, found)
        return found

    def _default_of(self, start: int, end: int, at: int) -> Raw | None:
        """What stands for a variable where it is split into words with its quotes; None where that is a value."""
        found = _PARAMETER.match(self._source.text.plain, start, end)
        operator = _DEFAULT.match(self._source.text.plain, found.end(), end) if found else None
        if found is None or operator is None or found[1] or operator[0][-1] not in "-+":
            return None
        value = self._subscripted(found[2], found[3], at)
        is_unset = not value or (isinstance(value, Text) and self._is_unset(value.plain))
        if is_unset and self._is_of_job(found[2]):
            return None
        empty = is_unset or (":" in operator[0] and value is not None and self._is_empty(value))
        if empty is None or empty is (operator[0][-1] == "+"):
            return None
        if is_unset:
            self.script.unset[found[2]] = None
        return Raw(operator.end(), end)

    def _is_empty(self, value: Value) -> Decided:
        parts = value if isinstance(value, tuple) else (value,)
        if any(HELD.sub("", part.plain) for part in parts):
            return False
        return not any(part.plain for part in parts)

    def _changed(self, value: Value | None, name: str, rest: Raw, at: int) -> Value:
        """A variable without its begin or its end, or a part of it."""
        plain = self._source.text.plain[rest.start : rest.end]
        spelled = f"${{{name}{plain[:40]}}}"
        if isinstance(value, tuple):
            return value if plain.startswith(":0") else self._unknown(spelled, _FORM, at, many=True)
        if value is None or HELD.search(value.plain):
            whole_name = self.script.unknown_in(value.plain) if value is not None else None
            return self._unknown(spelled, whole_name.why if whole_name else UNSET, at)
        sign = plain[:2] if plain[:2] in ("%%", "##", "//", "^^", ",,") else plain[:1]
        pattern = self._part(rest.start + len(sign), rest.end, _BARE).plain
        changed = _CHANGES.get(sign, _unchanged)(value.plain, pattern)
        return self._unknown(spelled, _FORM, at) if changed is None or HELD.search(pattern) else made(changed, at)

    def _number_text(self, name: str) -> str | None:
        value = self._variables.get(name)
        return value.plain if isinstance(value, Text) else None

    def _calculated(self, start: int, end: int, at: int) -> Text:
        text = self._part(start, end, _QUOTED).plain
        found = calculated(text, self._number_text)
        if found is not None:
            return made(str(found), at)
        cause = self.script.unknown_in(text)
        name, why = (cause.name, cause.why) if cause else self._unknown_named(text)
        return self._unknown(name, why, at)

    def _unknown_named(self, text: str) -> tuple[str, str]:
        """The first variable without a known value that an expression names without a sign, and why."""
        for name in _NAME.findall(text):
            value = self._variables.get(name)
            if isinstance(value, Text) and (found := self.script.unknown_in(value.plain)):
                return found.name, found.why
            if value is None and name.isidentifier():
                return f"${name}", UNSET
        return "$((...))", _FORM

    def _substituted(self, start: int, end: int, at: int) -> Text:
        """The output of a command: known for a few that shells and every system have, and for chains of them."""
        inner = self._source.text.cut(start, end)
        name = next(iter(inner.plain.split()), "")[:40]
        unknown = self._unknown(f"$({name} ...)", _NOT_RUN, at)
        if name not in _PRINTS:
            return unknown
        outer, self._source = self._source, _Source(inner, self._refuse)
        try:
            nodes = syntax.Parser(inner.plain, self._source.refuse).script()
            printed = self._printed(nodes[0])[0] if len(nodes) == 1 else None
            return unknown if printed is None else printed.cut(0, len(printed.plain.rstrip("\n")))
        finally:
            self._source = outer

    def _printed(self, node: syntax.Node) -> tuple[Text | None, Decided]:
        """What a command prints, None where that is not known, and whether it succeeds."""
        if isinstance(node, syntax.Chain):
            return self._printed_by_chain(node)
        if isinstance(node, syntax.Test):
            return Text(""), self._test(node)
        if not isinstance(node, syntax.Simple) or node.assignments:
            return None, None
        return self._printed_by_one(node)

    def _printed_by_one(self, node: syntax.Simple) -> tuple[Text | None, Decided]:
        fields = [one for raw in node.words for one in self._fields(raw)]
        name = fields[0].plain if fields else ""
        if name in ("[", "test"):
            return Text(""), self._tested(fields, node)
        document = self._read_from(node)
        if name == "cat" and len(fields) == 1 and document is not None and len(node.redirects) == 1:
            return document, True
        if node.redirects or name not in _OUTPUTS or len(fields) < 2:
            return None, None
        return _OUTPUTS[name](self, fields[1:]), True

    def _printed_by_chain(self, node: syntax.Chain) -> tuple[Text | None, Decided]:
        text, status = self._printed(node.first)
        for operator, other in node.others:
            if status is (operator == "&&"):
                after, status = self._printed(other)
                text = None if text is None or after is None else joined([text, after])
            elif status is None:
                return None, None
        return text, status

    def _echoed(self, words: list[Text]) -> Text | None:
        words = words[1:] if words[0].plain == "-n" else words
        is_plain = not any(one.plain.startswith("-") for one in words[:1])
        return between(words, " ") if is_plain else None

    def _expression(self, words: list[Text]) -> Text | None:
        """The output of expr, for arithmetic."""
        found = self._number(" ".join(one.plain for one in words))
        return None if found is None else made(str(found), words[0].source(0))

    def _base_name(self, words: list[Text]) -> Text | None:
        """The output of basename, without an ending."""
        plain = words[0].plain.rstrip("/")
        return words[0].cut(plain.rfind("/") + 1, len(plain)) if len(words) == 1 and plain else None

    def _read_from(self, node: syntax.Simple) -> Text | None:
        """The here-document or text that a command reads."""
        for one in node.redirects:
            if one.body is not None:
                body = one.body
                if body.quoted:
                    return self._source.text.cut(body.start, body.end)
                return self._part(body.start, body.end, _DOCUMENT)
            if one.operator == "<<<":
                return self._one(one.target)
        return None

    # commands

    def follow(self, text: Text) -> None:
        """Follow a text that is a script."""
        text = self._without_placeholders(text)
        outer, self._source = self._source, _Source(text, self._refuse)
        self._depth += 4
        if self._depth > DEEPEST:
            raise self._refuse(text.source(0), _TOO_DEEP)
        self._spend(len(text.plain), text.source(0))
        self._all(syntax.Parser(text.plain, self._source.refuse).script())
        self._depth -= 4
        self._source = outer

    def _without_placeholders(self, text: Text) -> Text:
        """A script with unknown values for texts in angle brackets, which a shell would read as redirections."""
        parts: list[Text] = []
        at = 0
        for found in _PLACEHOLDER.finditer(text.plain):
            held = self._unknown(found[0], _NOT_FILLED_IN, text.source(found.start()))
            parts += [text.cut(at, found.start()), held]
            at = found.end()
        return joined([*parts, text.cut(at, len(text.plain))]) if parts else text

    def _all(self, nodes: syntax.Nodes) -> Decided:
        status: Decided = True
        for node in nodes:
            status = self._run(node)
            if self._flow:
                break
        return status

    def _run(self, node: syntax.Node) -> Decided:
        self._spend(1, 0)
        self._depth += 1
        if self._depth > DEEPEST:
            raise self._refuse(0, _TOO_DEEP)
        status = _RUNNERS[type(node)](self, node)
        self._depth -= 1
        return status

    def _trial(self, action: Callable[[], object]) -> tuple[dict[str, Value | None], str]:
        """What an action sets, and whether it leaves the script; nothing of it stays."""
        self._journals.append({})
        action()
        flow, self._flow = self._flow, ""
        journal = self._journals.pop()
        changes = {name: self._variables.get(name) for name in journal}
        for name, value in journal.items():
            if value is None:
                self._variables.pop(name, None)
            else:
                self._variables[name] = value
        return changes, flow

    def _undecided(self, actions: Sequence[Callable[[], object]], at: int) -> None:
        """Follow each of several branches, of which one runs."""
        self._doubts += 1
        trials = [self._trial(action) for action in actions]
        self._doubts -= 1
        ends = [changes for changes, flow in trials if flow not in ("exit", "return")]
        if not ends:
            self._flow = trials[-1][1]
            return
        for name in dict.fromkeys(name for changes in ends for name in changes):
            now = self._variables.get(name)
            self.put(name, self._merged(name, [changes.get(name, now) for changes in ends], at))

    def _merged(self, name: str, values: list[Value | None], at: int) -> Value | None:
        """The value that several branches give a variable."""
        first = values[0]
        if all(_spelling(one) == _spelling(first) for one in values):
            return first
        if all(one is None or isinstance(one, tuple) for one in values):
            lists = [one if isinstance(one, tuple) else () for one in values]
            return self._merged_lists(name, lists, at)
        texts = [one for one in values if isinstance(one, Text)]
        choices = tuple((one,) for one in texts) if len(texts) == len(values) else ()
        return self._unknown(f"${name}", _BRANCHES, at, choices)

    def _merged_lists(self, name: str, lists: list[tuple[Text, ...]], at: int) -> tuple[Text, ...]:
        shortest = min(map(len, lists))
        begin = next((n for n in range(shortest) if len({one[n].plain for one in lists}) > 1), shortest)
        left = shortest - begin
        end = next((n for n in range(left) if len({one[-n - 1].plain for one in lists}) > 1), left)
        choices = tuple(one[begin : len(one) - end] for one in lists)
        middle = self._unknown(f"${name}", _BRANCHES, at, choices, many=True)
        return (*lists[0][:begin], middle, *(lists[0][-end:] if end else ()))

    def _place(self, start: int) -> int:
        return self._source.text.source(start)

    def _chain(self, node: syntax.Chain) -> Decided:
        before = self._suppositions
        status = self._run(node.first)
        for operator, other in node.others:
            if self._flow:
                break
            wanted = operator == "&&"
            if status is wanted:
                status = self._follow_on(before, other)
            elif status is None:
                self._undecided([partial(self._run, other), _nothing], 0)
        return status

    def _follow_on(self, before: int, *nodes: syntax.Node) -> Decided:
        """Commands that run by a condition; one that supposes no value or no arguments does not end the script."""
        if self._suppositions == before and "@" not in self.script.unset:
            return self._all(nodes)
        changes, flow = self._trial(partial(self._all, nodes))
        if flow != "exit":
            self._flow = flow
            for name, value in changes.items():
                self.put(name, value)
        return None

    def _pipeline(self, node: syntax.Pipeline) -> Decided:
        status: Decided = None
        for part in node.parts:
            self._input, self._output = self._output, None
            status = self._run(part)
        self._input = self._output = None
        return negated(status) if node.negated else status

    def _if(self, node: syntax.If) -> Decided:
        possible: list[syntax.Nodes] = []
        status: Decided = False
        before = self._suppositions
        for condition, body in node.arms:
            status = self._all(condition)
            if self._flow:
                return None
            if status is not False:
                possible.append(body)
            if status:
                break
        if status and len(possible) == 1:
            return self._follow_on(before, *possible[0])
        return self._branches(possible if status else [*possible, node.otherwise], node.start)

    def _branches(self, possible: list[syntax.Nodes], start: int) -> Decided:
        """One of several lists of commands."""
        if len(possible) == 1:
            return self._all(possible[0])
        self._undecided([partial(self._all, body) for body in possible], self._place(start))
        return None

    def _case(self, node: syntax.Case) -> Decided:
        word = self._one(node.word).plain
        held = HELD.search(word) and not self._is_unset(word)
        word = HELD.sub("", word) if not held else word
        possible: list[syntax.Nodes] = []
        for patterns, body in node.arms:
            spelled = [self._one(one).plain for one in patterns]
            found = [one == "*" or (None if held or HELD.search(one) else matches(word, one)) for one in spelled]
            if True in found:
                return self._branches([*possible, body], node.start)
            if None in found:
                possible.append(body)
        return self._branches([*possible, ()], node.start)

    def _for(self, node: syntax.For) -> Decided:
        words = self._arguments() if node.words is None else [w for raw in node.words for w in self._fields(raw)]
        if self._open(words) or len(words) > MOST_ROUNDS:
            self.put(node.name, self._unknown(f"${node.name}", _LOOPS, self._place(node.start)))
            return self._loop(node.body, node.start)
        for word in words:
            self.put(node.name, word)
            self._all(node.body)
            if self._ends_loop():
                break
        return None

    def _ends_loop(self) -> bool:
        flow = self._flow
        if flow in ("break", "continue"):
            self._flow = ""
        return flow not in ("", "continue")

    def _while(self, node: syntax.While) -> Decided:
        if self._takes_arguments(node):
            self.script.unset["@"] = None
            return None
        for _ in range(MOST_ROUNDS):
            status = self._all(node.condition)
            if self._flow:
                return None
            if status is node.until:
                return None
            if status is None:
                break
            self._all(node.body)
            if self._ends_loop():
                return None
        return self._loop((*node.condition, *node.body), node.start)

    def _takes_arguments(self, node: syntax.While) -> bool:
        """Whether a loop goes through the script's arguments, which are not known and then taken to be none."""
        return self._variables.get("@") is None and bool(_TAKES.match(self._source.text.plain, node.start))

    def _loop(self, body: syntax.Nodes, start: int) -> Decided:
        """Commands that run a number of times which is not known."""
        at = self._place(start)
        names = self._names_set(body)

        def forget() -> None:
            for name in names:
                is_list = isinstance(self._variables.get(name), tuple)
                one = self._unknown(f"${name}", _LOOPS, at, many=is_list)
                self.put(name, None if name == "@" else (one,) if is_list else one)

        forget()
        self._undecided([partial(self._all, body), _nothing], at)
        forget()
        return None

    def _names_set(self, body: syntax.Nodes) -> dict[str, None]:
        names: dict[str, None] = {}
        plain = self._source.text.plain
        for part in syntax.walk(body):
            if isinstance(part, syntax.Assignment | syntax.For):
                names[part.name] = None
            elif isinstance(part, syntax.Simple) and part.words:
                words = [plain[raw.start : raw.end] for raw in part.words]
                if words[0] in ("shift", "set"):
                    names["@"] = None
                elif words[0] in _SETS:
                    names |= dict.fromkeys(word for word in words[1:] if word.isidentifier())
        return names

    def _group(self, node: syntax.Group) -> Decided:
        if not node.subshell:
            return self._all(node.body)
        _, flow = self._trial(partial(self._all, node.body))
        return False if flow == "exit" else None

    def _function(self, node: syntax.Function) -> Decided:
        self._functions[node.name] = (self._source, node.body)
        return True

    def _test(self, node: syntax.Test) -> Decided:
        words = [one if isinstance(one, str) else self._one(one).plain for one in node.items]
        return Condition(words, self._is_unset, self._number, patterns=True).decided()

    def _number(self, word: str) -> int | None:
        return calculated(word, self._number_text)

    def _arithmetic(self, node: syntax.Arithmetic) -> Decided:
        text = self._part(node.text.start, node.text.end, _QUOTED).plain
        found = calculated(text, self._number_text)
        if found is not None:
            return bool(found)
        for name in _NAME.findall(text):
            changes = name in self._variables and re.search(
                rf"\b{re.escape(name)}\s*(?:[-+*/%&|^]?=(?!=)|\+\+|--)", text
            )
            if changes:
                self.put(name, self._unknown(f"${name}", _LOOPS, self._place(node.text.start)))
        return None

    # simple commands

    def _simple(self, node: syntax.Simple) -> Decided:
        fields = [one for raw in node.words for one in self._fields(raw)]
        name = fields[0].plain if fields else ""
        if not fields or name in syntax.DECLARES:
            self._declare(node, {word.plain for word in fields[1:]})
            return True
        document = self._read_from(node)
        if document is not None:
            self._input = document
        if builtin := _BUILTINS.get(name):
            return builtin(self, fields, node)
        before = {one.name: self._variables.get(one.name) for one in node.assignments}
        for one in node.assignments:
            self._assign(one)
        given = [self._given(one) for one in node.assignments]
        status = self._call(name, fields) if name in self._functions else self._start(given, fields)
        for variable, value in before.items():
            self.put(variable, value)
        return status

    def _given(self, one: syntax.Assignment) -> Text:
        """A variable that stands before a command, as a word."""
        at = self._place(one.start)
        value = self._variables.get(one.name)
        return joined([made(f"{one.name}=", at), value if isinstance(value, Text) else made("", at)])

    def _declare(self, node: syntax.Simple, flags: set[str]) -> None:
        for one in node.assignments:
            self._assign(one)
            if any(flag.startswith("-") and "A" in flag for flag in flags):
                at = self._place(one.start)
                self.put(one.name, (self._unknown(f"${one.name}", _FORM, at, many=True),))

    def _assign(self, one: syntax.Assignment) -> None:
        at = self._place(one.start)
        now = self._variables.get(one.name)
        value: Value
        if one.subscript is not None:
            value = (self._unknown(f"${one.name}", _FORM, at, many=True),)
        elif isinstance(one.value, Raw):
            text = self._one(one.value)
            first = now[:1] if isinstance(now, tuple) else (now,) if now is not None else ()
            text = joined([*first, text]) if one.appends else text
            value = (text, *now[1:]) if isinstance(now, tuple) else text
        else:
            words = tuple(word for raw in one.value for word in self._fields(raw))
            before = now if isinstance(now, tuple) else () if now is None else (now,)
            value = (*before, *words) if one.appends else words
        self._spend(len(value) if isinstance(value, tuple) else len(value.plain), at)
        self.put(one.name, value)

    def _call(self, name: str, fields: list[Text]) -> Decided:
        source, body = self._functions[name]
        outer, self._source = self._source, source
        arguments = self._variables.get("@")
        self.put("@", tuple(fields[1:]))
        self._depth += 4
        status = self._all(body)
        self._depth -= 4
        self._flow = "" if self._flow == "return" else self._flow
        self.put("@", arguments)
        self._source = outer
        return status

    def _start(self, given: list[Text], fields: list[Text]) -> Decided:
        """A program with variables before it; where it is a shell, what that runs."""
        self.script.commands.append(Command((*given, *fields), self._doubts == 0))
        name = fields[0].plain.rpartition("/")[2]
        if name in ("ssh", "pdsh", "su", "runuser"):
            for one in fields[1:]:
                if " " in one.plain.strip():
                    self._apart(one, ())
            return None
        if name == "sbatch" and self._input is not None:
            self._apart(self._input, ())
            return None
        names = [one.plain.rpartition("/")[2] for one in fields]
        shell = next((number for number, one in enumerate(names) if one in _SHELLS), None)
        if shell is not None:
            self._shell(fields[shell + 1 :])
        else:
            script = next((number for number, one in enumerate(names) if one.endswith((".sh", ".sbatch"))), len(names))
            self._script_file(fields[script:])
        return True if name in _SUCCEEDS else None

    def _shell(self, words: list[Text]) -> None:
        """What a shell runs: a text after -c, a script, or its input."""
        for place, one in enumerate(words):
            if _WITH_COMMAND.fullmatch(one.plain):
                rest = [word for word in words[place + 1 :] if not word.plain.startswith("-")]
                if rest:
                    self._apart(rest[0], tuple(rest[2:]))
                return
            if not one.plain.startswith(("-", "+")):
                self._script_file(words[place:])
                return
        if self._input is not None:
            self._apart(self._input, ())

    def _script_file(self, words: list[Text]) -> None:
        if not words:
            return
        text = self.script.file(words[0].plain)
        if text is not None:
            self._apart(text, tuple(words[1:]))
        elif not HELD.fullmatch(words[0].plain):
            self.script.absent.append(words[0])

    def _apart(self, text: Text, arguments: tuple[Text, ...]) -> None:
        """Follow a text that another shell runs, whose variables do not come back."""

        def run() -> None:
            self.put("@", arguments)
            self.follow(text)

        before, self._input = self._input, None
        self._trial(run)
        self._input = before

    # what shells do themselves

    def _tested(self, fields: list[Text], _: syntax.Simple) -> Decided:
        words = [one.plain for one in fields[1:]]
        if fields[0].plain == "[" and words[-1:] == ["]"]:
            words.pop()
        return Condition(words, self._is_unset, self._number, patterns=False).decided()

    def _leave(self, fields: list[Text], _: syntax.Simple) -> Decided:
        self._flow = fields[0].plain
        return True

    def _set(self, fields: list[Text], _: syntax.Simple) -> Decided:
        names = [one.plain for one in fields]
        if "--" in names:
            self.put("@", tuple(fields[names.index("--") + 1 :]))
        return True

    def _shift(self, fields: list[Text], _: syntax.Simple) -> Decided:
        arguments = self._variables.get("@")
        count = fields[1].plain if len(fields) > 1 else "1"
        if isinstance(arguments, tuple):
            known = _DIGITS.fullmatch(count) and not self._open(arguments[: int(count)])
            self.put("@", arguments[int(count) :] if known else None)
        return True

    def _unset(self, fields: list[Text], _: syntax.Simple) -> Decided:
        for one in fields[1:]:
            self.put(one.plain, None)
        return True

    def _reads(self, fields: list[Text], node: syntax.Simple) -> Decided:
        """A command that sets variables from what is not known."""
        is_list = fields[0].plain in ("mapfile", "readarray") or any(one.plain in ("-a", "-ra") for one in fields)
        names = [one.plain.partition("=")[0] for one in fields[1:] if not one.plain.startswith("-")]
        if fields[0].plain == "printf":
            names = names[:1] if fields[1:2] and fields[1].plain == "-v" else []
        at = self._place(node.start)
        for name in names:
            one = self._unknown(f"${name}", _READ, at, many=is_list)
            self.put(name, (one,) if is_list else one)
        return self._prints(fields, node) if fields[0].plain == "printf" else None

    def _read_file(self, fields: list[Text], _: syntax.Simple) -> Decided:
        if len(fields) > 1:
            text = self.script.file(fields[1].plain)
            if text is not None:
                self.follow(text)
            elif not _HARMLESS.fullmatch(fields[1].plain):
                self._sourced = True
                self.script.sourced.append(fields[1])
        return True

    def _evaluate(self, fields: list[Text], _: syntax.Simple) -> Decided:
        self.follow(between(fields[1:], " "))
        return None

    def _execute(self, fields: list[Text], _: syntax.Simple) -> Decided:
        if len(fields) > 1:
            self._start([], fields[1:])
            self._flow = "exit"
        return True

    def _prints(self, fields: list[Text], node: syntax.Simple) -> Decided:
        """A command whose output is known; it may go into a file, or into the next command."""
        name, words = fields[0].plain, fields[1:]
        text: Text | None = None
        if name in ("cat", "tee"):
            text = self._input if name == "tee" or not words else None
            if text is None and name == "cat" and len(words) == 1:
                text = self.script.file(words[0].plain)
        elif name == "echo":
            words = words[1:] if words and words[0].plain in ("-e", "-n", "-en", "-ne") else words
            text = joined([between(words, " "), made("\n", self._place(node.start))])
        targets = [(self._one(one.target), one.operator) for one in node.redirects if one.operator in (">", ">>", ">|")]
        targets += [(one, ">") for one in words if name == "tee" and not one.plain.startswith("-")]
        for target, operator in targets:
            path = self.script.spelled(target.plain)
            before = self.script.files.get(path) if operator == ">>" else None
            if text is None:
                self.script.files.pop(path, None)
            else:
                self.script.files[path] = joined([before, text]) if before else text
        self._output = text if not targets or name == "tee" else None
        self._input = None
        return True


def _nothing() -> None:
    """A branch without commands."""


def _as_one(value: Value) -> Text:
    """The words of an array with a blank between each two."""
    return between(value, " ") if isinstance(value, tuple) else value


def _spelling(value: Value | None) -> object:
    return tuple(one.plain for one in value) if isinstance(value, tuple) else value and value.plain


def _without_end(text: str, pattern: str, *, longest: bool) -> str | None:
    places = range(len(text) + 1) if longest else range(len(text), -1, -1)
    return _without(text, pattern, ((text[place:], text[:place]) for place in places))


def _without_begin(text: str, pattern: str, *, longest: bool) -> str | None:
    places = range(len(text), -1, -1) if longest else range(len(text) + 1)
    return _without(text, pattern, ((text[:place], text[place:]) for place in places))


LONGEST_CHANGED = 1024
"""Characters of a text whose begin or end is removed."""


def _without(text: str, pattern: str, pairs: Iterator[tuple[str, str]]) -> str | None:
    if len(text) > LONGEST_CHANGED:
        return None
    for removed, left in pairs:
        found = matches(removed, pattern)
        if found is None:
            return None
        if found:
            return left
    return text


def _replaced(text: str, pattern: str, count: int) -> str | None:
    old, _, new = pattern.partition("/")
    return None if not old or re.search(r"[*?\[\\#%&]", old) else text.replace(old, new, count)


def _piece(text: str, pattern: str) -> str | None:
    numbers = pattern.split(":")
    if len(numbers) > 2 or not all(_DIGITS.fullmatch(one.strip()) for one in numbers):
        return None
    start, *length = (int(one) for one in numbers)
    if start < 0 or any(one < 0 for one in length):
        return None
    return text[start:][: length[0]] if length else text[start:]


def _unchanged(_: str, __: str) -> str | None:
    return None


_CHANGES: dict[str, Callable[[str, str], str | None]] = {
    "%": lambda text, pattern: _without_end(text, pattern, longest=False),
    "%%": lambda text, pattern: _without_end(text, pattern, longest=True),
    "#": lambda text, pattern: _without_begin(text, pattern, longest=False),
    "##": lambda text, pattern: _without_begin(text, pattern, longest=True),
    "/": lambda text, pattern: _replaced(text, pattern, 1),
    "//": lambda text, pattern: _replaced(text, pattern, -1),
    "^^": lambda text, pattern: text.upper() if not pattern else None,
    ",,": lambda text, pattern: text.lower() if not pattern else None,
    ":": _piece,
}

_SETS = frozenset({"read", "mapfile", "readarray", "getopts", "let", "unset"})

_Builtin = Callable[[_Shell, list[Text], syntax.Simple], Decided]

_OUTPUTS: dict[str, Callable[[_Shell, list[Text]], Text | None]] = {
    "echo": _Shell._echoed,
    "expr": _Shell._expression,
    "basename": _Shell._base_name,
}
_PRINTS = frozenset({"cat", "[", "[[", "test", *_OUTPUTS})
"""Commands whose output is known."""

_BUILTINS: dict[str, _Builtin] = {
    ":": lambda *_: True,
    "true": lambda *_: True,
    "false": lambda *_: False,
    "[": _Shell._tested,
    "test": _Shell._tested,
    **dict.fromkeys(("exit", "return", "break", "continue"), _Shell._leave),
    "set": _Shell._set,
    "shift": _Shell._shift,
    "unset": _Shell._unset,
    **dict.fromkeys(("read", "mapfile", "readarray", "getopts", "let", "printf"), _Shell._reads),
    **dict.fromkeys(("source", "."), _Shell._read_file),
    "eval": _Shell._evaluate,
    "exec": _Shell._execute,
    **dict.fromkeys(("cat", "tee", "echo"), _Shell._prints),
}

_RUNNERS: dict[type, Callable[[_Shell, Any], Decided]] = {
    syntax.Simple: _Shell._simple,
    syntax.Pipeline: _Shell._pipeline,
    syntax.Chain: _Shell._chain,
    syntax.If: _Shell._if,
    syntax.While: _Shell._while,
    syntax.For: _Shell._for,
    syntax.Case: _Shell._case,
    syntax.Group: _Shell._group,
    syntax.Function: _Shell._function,
    syntax.Test: _Shell._test,
    syntax.Arithmetic: _Shell._arithmetic,
}
