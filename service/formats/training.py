"""The training that a shell script starts: launchers left aside, options with their places, files that it names.

Source: torch 2.13 distributed/run.py; NVIDIA/Megatron-LM@d98e8a64 pretrain_*.py and examples.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from service.errors import Refused
from service.formats.composed import CONFIG, PROCESSES, PROGRAM, overrides_in
from service.formats.frameworks.trainer import ACCELERATE
from service.formats.launched import read_words
from service.formats.recognise import recognise, recognise_words
from service.formats.shell.expander import Command, Script, expanded
from service.formats.shell.values import Text
from service.formats.text import NAMELESS, Entry, Unknown, options_in, shortened
from service.text_bounds import MOST_DIGITS, MOST_WORDS, TOO_MANY_DIGITS, TOO_MANY_WORDS, Place, refusal

SCRIPT_FORMAT = "script"
"""Name of scripts among the kinds of files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a scheduler gives to the process that runs a script."""

    variables: Mapping[str, str] = field(default_factory=dict)
    """Variables of its environment."""
    arguments: Sequence[str] | None = None
    """Words after its name; None where they are not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The training that a script starts."""

    format: str | None
    """The tool's format; None where the settings are recognised."""
    entries: tuple[Entry, ...]
    """Options on the command line; of a program that reads a file, those that change the file's settings."""
    file: str | None
    """The file that it reads; None where all settings are options."""
    files: Mapping[str, str]
    """Files that the script writes and the command names."""
    notes: tuple[str, ...]
    """What the reading of the script assumes."""
    script: Script

    def settled(self, entries: Sequence[Entry]) -> tuple[Entry, ...]:
        """Settings with unknown values where the script has them; a name that is not known stands for any setting."""
        return tuple(map(self._settled, entries))

    def _settled(self, one: Entry) -> Entry:
        if (found := self.script.unknown_in(one.name)) is not None:
            return Entry(f"{NAMELESS}{found.name.lstrip('$')}", (found,), one.place)
        return replace(one, value=self._value(one.value))

    def _value(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(self._value, value))
        unknown = self.script.unknown_in(value) if isinstance(value, str) else None
        if unknown is None:
            return value
        is_in_folder = "/" in value and self.script.unknown_in(_base(value)) is None and _base(value)
        return self.script.spelled(value) if is_in_folder else unknown


_MEGATRON = re.compile(r"pretrain_\w{1,40}\.py")
_OF_MEGATRON = ("pretrain_gpt.py", "pretrain_hybrid.py", "pretrain_mamba.py")
"""Programs with Megatron-LM's arguments, and those that are its own."""

_NOT_ESTIMATED = (
    (re.compile(r"pretrain_(?:bert|ict|biencoder)\w*\.py"), "trains an encoder, which is not estimated"),
    (re.compile(r"pretrain_t5\w*\.py"), "trains an encoder and a decoder, which are not estimated"),
    (re.compile(r"pretrain_retro\w*\.py"), "trains a model with retrieval, which is not estimated"),
    (re.compile(r"pretrain_v(?:ision|lm)\w*\.py|(?:.*/)?(?:multimodal|mimo)/(?:\w+/)*train\w*\.py"),
     "trains a model of images and text, which is not estimated"),
    (re.compile(r"(?:.*/)?(?:train_rl|grpo\w*)\.py"), "trains on what the model generates, which is not estimated"),
)  # fmt: skip
"""Programs whose training is not estimated, and why."""

_TRAINS_NOTHING = re.compile(
    r"(?:generate|sample|merge|convert|preprocess|prepare|tokenize|download|upload|evaluate|eval|inference|infer|serve"
    r"|quantize|export|plot|expand|checkpoint_util|\w+_converter)(?:[_-]\w+)*\.py"
)
"""Programs that train nothing, by their names."""

_TASKS = re.compile(r"(?:.*/)?tasks/main\.py")
"""Megatron-LM's program that fine-tunes encoders and evaluates models."""

_CONFIG_OPTIONS = {
    "job.config_file": "torchtitan",
    "job.config-file": "torchtitan",
    "config-file": "nanotron",
    "deepspeed_config": "deepspeed",
    "deepspeed": "deepspeed",
}
"""Options that name the file of a tool."""

_NAMED_FILE = re.compile(r"(?:axolotl|llamafactory-cli|trl|axolotl\.cli\.\w+|llamafactory\.cli)")
"""Programs whose words name their file."""

Words = list[tuple[str, Place]]


@dataclass(frozen=True, slots=True)
class _Candidate:
    command: Command
    started: Started

    @property
    def trained(self) -> object:
        """What is trained."""
        one = self.started
        return one.format, one.file, [(entry.name, entry.value) for entry in one.entries]


def training_in(
    script: str, job: Job | None = None, beside: Mapping[str, str] = MappingProxyType({}), *, any_program: bool = False
) -> Started:
    """The training that a script starts, with the files beside it.

    With `any_program` a script in Python with options counts whatever its name is.
    """
    job = job or Job()
    found = expanded(script, job.variables, job.arguments, beside)
    trainings = [
        one for command in _joined(found.commands) if (one := _training(found, command, any_program=any_program))
    ]
    if not trainings:
        raise _no_training(found, any_program=any_program)
    last = trainings[-1]
    if not last.command.certain and any(one.trained != last.trained for one in trainings):
        place = found.lines.place(last.command.words[0].source(0))
        message = "the script starts one of several trainings, by a condition that is not known"
        raise refusal(place, "several_trainings", message, "send the part that starts one of them")
    if all(one.trained == last.trained for one in trainings):
        return last.started
    return replace(
        last.started, notes=(*last.started.notes, "the script starts several trainings, and this is the last")
    )


def _joined(commands: Sequence[Command]) -> Iterator[Command]:
    """Commands, with lines of options alone as the end of what is before them."""
    before: list[Text] = []
    certain = True
    for one in commands:
        if before and one.words[0].plain.startswith("--"):
            before += one.words
            continue
        if before:
            yield Command(tuple(before), certain)
        before, certain = list(one.words), one.certain
    if before:
        yield Command(tuple(before), certain)


def _no_training(script: Script, *, any_program: bool) -> Refused:
    """The refusal of a script without a training that is known."""
    for word in (word for command in script.commands for word in command.words if _trains_nothing(word.plain)):
        message = f"{shortened(_base(word.plain))} trains no model, by its name"
        fix = "send the script that starts the training, or state model, recipe and layout"
        return refusal(script.lines.place(word.source(0)), "no_training", message, fix)
    if any_program:
        start = script.commands[0].words[0].source(0) if script.commands else 0
        message = "the arguments begin with no option, and no command here starts a script with options"
        return refusal(script.lines.place(start), "not_an_option", message, "begin with one, such as --bf16")
    for held, known in _unknown_programs(script):
        message = f"the program depends on {known.explained}"
        fix = "write its name into the script, or state model, recipe and layout"
        return refusal(script.lines.place(held.source(0)), "unknown_program", message, fix)
    for file, spelled in _absent_files(script):
        message = f"the settings are in {shortened(spelled)}, which the script does not write"
        fix = "send that file too, under its name in files, or alone"
        return refusal(script.lines.place(file.source(0)), "absent_file", message, fix)
    if script.absent:
        path = script.absent[-1]
        message = f"the script starts {shortened(script.spelled(path.plain))}, which is not written here"
        place = script.lines.place(path.source(0))
        return refusal(place, "absent_script", message, "send that script, or state model, recipe and layout")
    return _of_no_tool(script)


def _of_no_tool(script: Script) -> Refused:
    """The refusal of a script whose programs no tool that is read has."""
    programs = [word for command in script.commands for word in command.words if word.plain.endswith(".py")]
    if programs:
        named = shortened(_base(script.spelled(programs[-1].plain)))
        message = (
            f"the script starts no training that is known: {named} and its options are those of no tool that is read"
        )
        fix = "state the question itself: model, recipe, layout and cluster"
        place = script.lines.place(programs[-1].source(programs[-1].plain.rfind("/") + 1))
        return refusal(place, "no_training", message, fix)
    message = (
        "the script starts no training that is known: it runs the program of no tool whose settings are read, which "
        "GET /v1/imports lists"
    )
    fix = "write the file inside the script, or send it alone, with its own format"
    with_options = [one for one in script.commands if any(word.plain.startswith("--") for word in one.words)]
    last = (with_options or script.commands)[-1:]
    place = script.lines.place(last[0].words[0].source(0) if last else 0)
    return refusal(place, "no_training", message, fix)


_OF_SETTINGS = re.compile(r"conf|cfg|deepspeed|args|ya?ml|setting|recipe|hparam|-m\Z", re.IGNORECASE)
"""Options whose file holds settings of a training."""

_SETTINGS_FILE = re.compile(r"[^=]+\.(?:ya?ml|toml|json)")


def _absent_files(script: Script) -> Iterator[tuple[Text, str]]:
    """Files of settings that a program is started with and that are not here, last first."""
    for command in reversed(script.commands):
        plain = [script.spelled(one.plain) for one in command.words]
        if not any(word.endswith(".py") or _base(word) in _PROGRAMS for word in plain):
            continue
        for number in reversed(range(len(plain))):
            before = plain[number - 1] if number else ""
            option, _, named = plain[number].rpartition("=")
            option = option or (before if before.startswith("-") and "=" not in before else "")
            if not _SETTINGS_FILE.fullmatch(named) or named in script.files:
                continue
            if not option.startswith("-") or _OF_SETTINGS.search(option):
                yield command.words[number], named


def _unknown_programs(script: Script) -> Iterator[tuple[Text, Unknown]]:
    """Words that are not known where a command with options names its program."""
    for command in script.commands:
        plain = [one.plain for one in command.words]
        if any(word.endswith(".py") or word == "-m" for word in plain) or not any(w.startswith("--") for w in plain):
            continue
        for number, word in enumerate(plain[:8]):
            known = script.unknown_in(word) if len(word) == 1 else None
            if known is not None and not (number and plain[number - 1].startswith("-")):
                yield command.words[number], known


def _base(word: str) -> str:
    return word.rpartition("/")[2]


def _training(script: Script, command: Command, *, any_program: bool) -> _Candidate | None:
    """The training that a command starts; None for a command that is not known to train."""
    _refuse_what_is_not_estimated(script, command.words)
    words = _settings_known(script, command.words)
    if not words or any(_trains_nothing(word.plain) for word in command.words):
        return None
    if len(words) > MOST_WORDS:
        raise refusal(words[0][1], *TOO_MANY_WORDS)
    found = (
        _of_program(script, words)
        or _of_megatron(script, words)
        or _of_file(script, words)
        or _of_any(script, words, any_program=any_program)
    )
    return None if found is None else _Candidate(command, found)


def _refuse_what_is_not_estimated(script: Script, words: Sequence[Text]) -> None:
    for word in words:
        if not word.plain.endswith(".py"):
            continue
        for pattern, why in _NOT_ESTIMATED:
            if pattern.fullmatch(_base(word.plain)) or pattern.fullmatch(word.plain):
                fix = "no format reads it: state the question itself, for a model of the same size"
                message = f"{_base(word.plain)} {why}"
                raise refusal(script.lines.place(word.source(0)), "not_estimated", message, fix)


def _trains_nothing(word: str) -> bool:
    return bool(_TRAINS_NOTHING.fullmatch(_base(word)) or _TASKS.fullmatch(word))


def _started(
    script: Script, words: Words, format: str | None, entries: Sequence[Entry], file: str | None = None
) -> Started:
    return Started(
        format=format,
        entries=tuple(entries),
        file=file,
        files=_files_named(script, words, file),
        notes=_notes(script),
        script=script,
    )


_FOLLOWED = "megatron.bridge"
"""Module that programs in Python use whose settings are in them."""


def _of_program(script: Script, words: Words) -> Started | None:
    """A program in Python that is here and holds its own settings."""
    for word, _ in words:
        text = _file(script, word) if word.endswith(".py") else None
        if text is not None and _FOLLOWED in text:
            return _started(script, words, None, [one for one in read_words(words) if one.name == PROCESSES], text)
    return None


def _of_megatron(script: Script, words: Words) -> Started | None:
    number = next((number for number, (word, _) in enumerate(words) if _MEGATRON.fullmatch(_base(word))), None)
    if number is None:
        return None
    entries = options_in(words[number + 1 :])
    recognised = recognise(entries)
    if recognised is not None and recognised.tool.format not in (None, "megatron-lm"):
        return None
    word, place = words[number]
    own = () if _base(word) in _OF_MEGATRON else (Entry(PROGRAM, _base(word), place),)
    return _started(script, words, "megatron-lm" if recognised is None else None, (*own, *entries))


def _of_file(script: Script, words: Words) -> Started | None:
    """A program that reads a file which the script writes."""
    tool = next((number for number, (word, _) in enumerate(words) if _NAMED_FILE.fullmatch(_base(word))), None)
    for number in range(tool + 1, len(words)) if tool is not None else ():
        if _is_config(words, number) and (text := _file(script, words[number][0].rpartition("=")[2])) is not None:
            return _started(script, words, None, _beside(script, words, tool or 0, number), text)
    options = {} if not any(word.startswith("--") for word, _ in words) else _options(words)
    for name, format in _CONFIG_OPTIONS.items():
        if (
            name in options
            and not _is_of_another(options, format)
            and (text := _file(script, options[name])) is not None
        ):
            changes = _changes(words) if format in ("torchtitan", "nanotron") else _own(words, name)
            return _started(script, words, format, [one for one in changes if one.name != name], text)
    own = [after for (word, _), (after, _) in pairwise(words) if word.endswith(".py")]
    is_of_a_file = any(_file(script, path) is not None for path in (options.get("config", ""), *own))
    is_accelerate = any(_base(word) == "accelerate" for word, _ in words)
    if is_accelerate and not is_of_a_file and not _is_of_another(options, "accelerate"):
        text = _file(script, options.get("config_file", options.get("config-file", "")))
        if text is not None:
            return _started(script, words, "accelerate", _around(words), text)
    return None


def _is_config(words: Words, number: int) -> bool:
    """Whether a word stands where a tool's own file does: without an option, or as that of its configuration."""
    word, before = words[number][0], words[number - 1][0]
    name, equals, _ = word.partition("=")
    if word.startswith("--"):
        return bool(equals) and name in _OF_FILES
    return before in _OF_FILES or not (before.startswith("--") and "=" not in before)


_OF_FILES = ("--config", "--config_file", "--config-file")

_OF_CONSOLES = frozenset({"launcher", "cloud", "sweep", "accelerate", "no_accelerate", "main_process_port"})
"""Options of the tools' console programs that are no settings of the training."""


def _beside(script: Script, words: Words, tool: int, file: int) -> list[Entry]:
    """What a command changes of the file that it names, and what its launcher sets."""
    start = file - 1 if words[file - 1][0] in _OF_FILES else file
    after = [*words[tool + 1 : start], *words[file + 1 :]]
    end = next((number for number, (word, _) in enumerate(after) if word == "--"), len(after))
    own, passed_on = after[:end], after[end + 1 :]
    first = next((number for number, (word, _) in enumerate(own) if word.startswith("--")), len(own))
    changes = [*overrides_in(own[:first]), *options_in(own[first:])]
    named = [replace(one, name=one.name.replace("-", "_"), value=_truth(one.value)) for one in changes]
    before = words[:tool] if not passed_on else [("accelerate", passed_on[0][1]), ("launch", passed_on[0][1])]
    around = read_words([*before, *passed_on, ("train.py", words[tool][1])])
    return [
        *(one for one in around if one.name != PROGRAM and not _is_here(script, one)),
        *(one for one in named if one.name not in _OF_CONSOLES),
    ]


def _is_here(script: Script, entry: Entry) -> bool:
    """Whether an entry names the launcher's file, and that file is here."""
    return entry.name == ACCELERATE and _file(script, str(entry.word)) is not None


def _own(words: Words, config: str) -> list[Entry]:
    """Options of a program of no tool, spelled as such, beside the one that names its file."""
    options = [one for one in read_words(words) if one.name not in (PROGRAM, config) and "." not in one.name]
    return [replace(one, name=f"--{one.name}", value=one.word) for one in options if one.name != "deepspeed"]


def _around(words: Words) -> list[Entry]:
    """What a command sets beside accelerate's file: options of the launcher, and those of a program of no tool."""
    start = f"{ACCELERATE}."
    found = [one for one in read_words(words) if one.name not in (ACCELERATE, PROGRAM)]
    return [replace(one, name=one.name.removeprefix(start), value=one.word) for one in found]


def _changes(words: Words) -> list[Entry]:
    """Options that are settings of a file, by their dotted names."""
    first = next(number for number, (word, _) in enumerate(words) if word.startswith("--"))
    found = [one for one in options_in(words[first:]) if "." in one.name]
    return [replace(one, value=_truth(one.value)) for one in found]


def _truth(value: Any) -> Any:
    """What the words of an option say, where they say yes or no."""
    truths: dict[tuple[str, ...], bool] = {(): True, ("true",): True, ("false",): False}
    return truths.get(tuple(str(word).lower() for word in value), value) if isinstance(value, tuple) else value


_TRAINER = ("per_device_train_batch_size", "finetuning_type", "model_name_or_path")


def _is_of_another(options: Mapping[str, str], format: str) -> bool:
    """Whether options are settings of another tool than the one whose file is named beside them."""
    if any(name.replace("-", "_") in _TRAINER for name in options):
        return True
    found = recognise([Entry(name, value, Place(1, 1)) for name, value in options.items()])
    return found is not None and found.tool.name != format


def _options(words: Words) -> dict[str, str]:
    """Names of options with the words after them."""
    found: dict[str, str] = {}
    for number, (word, _) in enumerate(words):
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            found[name] = value if equals else words[number + 1][0] if number + 1 < len(words) else ""
    return found


def _of_any(script: Script, words: Words, *, any_program: bool) -> Started | None:
    """A program whose settings are those of a tool; where any counts, a script in Python, or options alone."""
    counts = any_program and any(word.endswith(".py") or word.startswith("--") for word, _ in words)
    is_alone = words[0][0].startswith("--")
    if not (counts or is_alone or _names_a_program(words)):
        words = _options_of_training(words)
    if not words:
        return None
    try:
        entries = read_words(words)
    except Refused:
        if counts or is_alone:
            raise
        return None
    if not (counts or is_alone):
        named = [one.value[0] for one in entries if one.name == CONFIG and one.value]
        is_here = any(_file(script, path) is not None for path in named if isinstance(path, str))
        if not is_here and not recognise(entries) and not recognise_words(" ".join(word for word, _ in words)):
            return None
    return _started(script, words, None, entries)


def _options_of_training(words: Words) -> Words:
    """The options of a program of any name, where one of them is a training's alone."""
    names = [word.partition("=")[0].removeprefix("--") for word, _ in words]
    if not any(name in _OF_TRAININGS for name in names):
        return []
    return words[next(number for number, (word, _) in enumerate(words) if word.startswith("--")) :]


_OF_TRAININGS = ("per_device_train_batch_size", "finetuning_type")

_PROGRAMS = frozenset({"-m", "deepspeed", "trl", "llamafactory-cli", "tune", "litgpt", "axolotl", "nemo"})


def _names_a_program(words: Words) -> bool:
    return any(word.endswith((".py", "run_train.sh")) or _base(word) in _PROGRAMS for word, _ in words)


def _file(script: Script, path: str) -> str | None:
    """A file that the script writes, its lines numbered as those of the script where it stands."""
    base = _base(script.spelled(path))
    text = next((one for name, one in script.files.items() if base and _base(name) == base), None)
    return None if text is None else _placed(script, text)


def _placed(script: Script, text: Text) -> str:
    return "\n" * (script.lines.place(text.source(0)).line - 1) + text.plain


def _files_named(script: Script, words: Words, own: str | None) -> dict[str, str]:
    """Files that the script writes and a command names, other than its own."""
    named = {_base(script.spelled(word)).rpartition("=")[2] for word, _ in words}
    found = {_base(name): _placed(script, text) for name, text in script.files.items() if _base(name) in named}
    return {name: text for name, text in found.items() if text != own}


def _notes(script: Script) -> tuple[str, ...]:
    names = sorted(name for name in script.unset if name not in ("@", "#") and not name.isdigit())
    notes = []
    if script.sourced:
        file = script.sourced[0]
        path, line = shortened(script.spelled(file.plain)), script.lines.place(file.source(0)).line
        notes.append(f"{path}, which line {line} reads, is not here: nothing that it sets counts")
    if names:
        shown = ", ".join(names[:8]) + (" and others" if len(names) > 8 else "")
        notes.append(f"variables that the script tests and does not set are taken to be unset: {shown}")
    if len(names) < len(script.unset):
        notes.append("the script is read as started without arguments")
    return tuple(notes)


_LONG_NUMBER = re.compile(rf"[+-]?[\d.]{{{MOST_DIGITS + 1}}}")


def _settings_known(script: Script, words: Sequence[Text]) -> Words:
    """Words with one of several branches written out: an option that all give alike, or its name with what is unknown.

    Words that are not known are the value of the option before them; where it has one, a setting of their own.
    """
    found: Words = []
    for word in words:
        place = script.lines.place(word.source(0))
        if _LONG_NUMBER.match(word.plain):
            raise refusal(place, *TOO_MANY_DIGITS)
        unknown = script.unknown_in(word.plain) if len(word.plain) == 1 else None
        if unknown is None or not unknown.many:
            found.append((word.plain, place))
        elif choices := script.choices_of(word.plain):
            found += _branches(script, found, word, choices)
        elif found and found[-1][0].startswith("--") and "=" not in found[-1][0]:
            found.append((word.plain, place))
        elif any(one.startswith("--") for one, _ in found):
            found.append((f"--{word.plain}", place))
    return found


def _branches(script: Script, before: Words, word: Text, choices: tuple[tuple[Text, ...], ...]) -> Words:
    """What one of several branches adds to the options before it."""
    place = script.lines.place(word.source(0))
    lists = [_settings_known(script, one) for one in choices]
    if not any(one.startswith("--") for one, _ in before) and not all(_begins(one) for one in lists):
        return []  # a program before the one that trains
    found: Words = [(word.plain, place)] if any(not _begins(one) for one in lists) else []
    branches = [_by_name(one) for one in lists]
    earlier = _by_name(before)
    for name in dict.fromkeys(name for branch in branches for name in branch):
        given = [branch.get(name, earlier.get(name)) for branch in branches]
        first = next(one for one in given if one is not None)
        if all(one is not None and [w for w, _ in one] == [w for w, _ in first] for one in given):
            found += first
        else:
            found += [(f"--{name}", first[0][1]), (word.plain, place)]
    return found


def _begins(words: Words) -> bool:
    return not words or words[0][0].startswith("--")


def _by_name(words: Words) -> dict[str, Words]:
    """Each option with its words."""
    found: dict[str, Words] = {}
    now: Words = []
    for word in words:
        if word[0].startswith("--"):
            now = found[word[0][2:].partition("=")[0]] = []
        now.append(word)
    return found
