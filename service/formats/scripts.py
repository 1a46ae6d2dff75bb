"""Training that a shell script starts: the file that configures it, or its arguments.

The script is not run: files come from its here-documents, and the last command with a known program counts.
"""

import re
from itertools import islice

from service.errors import Problem, Refused
from service.text_bounds import FIELD, MOST_COMMANDS, Lines, refusal

SCRIPT = "script"
"""Name of scripts among the kinds of files."""

_HERE = re.compile(r"<<-?\s{0,9}(?P<quote>['\"]?)(?P<end>\w{1,80})(?P=quote)(?:\s{0,9}>\s{0,9}(?P<after>\S{1,255}))?")
"""A here-document, and the file after it that it is written into."""

_BEFORE = re.compile(r"cat\s{0,9}>\s{0,9}(\S{1,255}) {0,9}\Z")
"""The file before it that a here-document is written into."""

_BEFORE_CHARACTERS = 300
"""Characters before a here-document to search for such a file."""

_PROGRAMS = (
    ("megatron-lm", re.compile(r"pretrain_\w{1,40}\.py(?=\s)"), False),
    ("torchtitan", re.compile(r"--job\.config_file[=\s]{1,9}(\S{1,255})"), True),
    ("nanotron", re.compile(r"run_train\.py\s.{0,400}?--config-file[=\s\\]{1,9}(\S{1,255})", re.DOTALL), True),
    ("deepspeed", re.compile(r"--deepspeed(?:_config)?[=\s]{1,9}(\S{1,255})"), True),
    ("accelerate", re.compile(r"accelerate\s+launch\s.{0,400}?--config_file[=\s\\]{1,9}(\S{1,255})", re.DOTALL), True),
)
"""Commands that train, and whether they name a configuration file; bounded, for scripts are hostile."""

_STARTS = re.compile(r"<<|pretrain_|--job\.config_file|run_train\.py|--deepspeed|accelerate\s")
"""Start of a here-document or one of those commands; each costs a search of some hundred characters."""

_LINE = re.compile(r"[^\n]*\n|[^\n]+")

_CONTENT = f"launch.{FIELD}"

_NO_TRAINING = Problem(
    field=_CONTENT,
    code="no_training",
    message="the script starts no training that is known: it neither runs Megatron-LM with its arguments, nor writes "
    "the file that torchtitan, nanotron, DeepSpeed or accelerate reads",
    fix="write the file inside the script, or send it alone, with its own format",
)


_SIGN = re.compile(r"['\";&|><\n]")
"""Quotes, and characters that may end a command."""


def training_in(script: str) -> tuple[str, str]:
    r"""The format and text of the training that a script starts.

    >>> training_in("srun python pretrain_gpt.py --bf16 --seq-length 8 && echo done")
    ('megatron-lm', '--bf16 --seq-length 8')
    """
    extra = next(islice(_STARTS.finditer(script), MOST_COMMANDS, None), None)
    if extra is not None:
        message = f"a script holds at most {MOST_COMMANDS} here-documents and commands that may start training"
        place = Lines(script).place(extra.start())
        raise refusal(place, "too_many_commands", message, "send the part that starts training", _CONTENT)
    files, commands = _split(script)
    for name, pattern, reads_a_file in _PROGRAMS:
        for found in reversed(list(pattern.finditer(commands))):
            if not reads_a_file:
                return name, _command_end(commands[found.end() :]).strip()
            text = files.get(found[1].strip("'\"").rpartition("/")[2])
            if text is not None:
                return name, text
    raise Refused(_NO_TRAINING)


def _split(script: str) -> tuple[dict[str, str], str]:
    """Files that the script writes, by name, and its other lines; commands inside a here-document are among them."""
    files: dict[str, str] = {}
    commands: list[str] = []
    lines = (match[0] for match in _LINE.finditer(script))
    for line in lines:
        found = _HERE.search(line)
        name = found and _file_of(line, found)
        if not found or not name:
            if not line.lstrip().startswith("#"):
                commands.append(line)
            continue
        inside: list[str] = []
        for inner in lines:
            if inner.strip() == found["end"]:
                break
            inside.append(inner)
        files[name.strip("'\"").rpartition("/")[2]] = "".join(inside)
    return files, "".join(commands)


def _file_of(line: str, found: re.Match[str]) -> str | None:
    """The file that a here-document is written into; None for a command."""
    before = _BEFORE.search(line[max(found.start() - _BEFORE_CHARACTERS, 0) : found.start()])
    return before[1] if before else found["after"]


def _command_end(text: str) -> str:
    """A command up to its end: a line that does not continue, or a shell operator."""
    quote = ""
    for match in _SIGN.finditer(text):
        place, sign = match.start(), match[0]
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        elif sign != "\n" or text[place - 1 : place] != "\\":
            return text[:place]
    return text
